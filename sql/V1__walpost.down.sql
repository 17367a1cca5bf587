-- Takes version 1 away again. Stop walpost and drop slot and publication first:
--   walpost slot drop --yes; DROP PUBLICATION walpost;

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DO $$
BEGIN
    IF to_regprocedure('walpost.change_tables(text[], regclass[])') IS NOT NULL THEN
        PERFORM walpost.change_tables(
            ARRAY['DROP TABLE IF EXISTS walpost.schema_version, walpost.dead_letters, walpost.dead_letter_count, walpost.pipeline'],
            VARIADIC ARRAY(SELECT c.oid::regclass FROM pg_class c
                           WHERE c.oid IN (to_regclass('walpost.pipeline'), to_regclass('walpost.dead_letters'),
                                           to_regclass('walpost.dead_letter_count'), to_regclass('walpost.schema_version'))));
    END IF;
END
$$;
DROP FUNCTION IF EXISTS
    walpost.decide(), walpost.reject_code_of_others(name[]), walpost.rights_of_others(name[]), walpost.code_of_others(name[]), walpost.tables_of(name[]), walpost.other_roles(),
    walpost.pasteable(text), walpost.revoke_default_rights(regclass), walpost.change_tables(text[], regclass[]), walpost.parts_of(regclass[]), walpost.locked_by(regclass[], text), walpost.bound_lock_wait(timestamptz), walpost.lock_wait_ms();
DROP SCHEMA IF EXISTS walpost;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
