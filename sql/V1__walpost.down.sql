-- Takes version 1 away again. Stop walpost and drop slot and publication first:
--   walpost slot drop --yes; DROP PUBLICATION walpost;

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DROP FUNCTION IF EXISTS
    walpost.reject_code_of_others(name[]), walpost.rights_of_others(name[]), walpost.code_of_others(name[]), walpost.tables_of(name[]), walpost.other_roles(),
    walpost.pasteable(text), walpost.revoke_default_rights(regclass), walpost.lock_tables(regclass[]), walpost.bound_lock_wait(timestamptz), walpost.lock_wait_ms();
DROP TABLE IF EXISTS walpost.schema_version;
DROP TABLE IF EXISTS walpost.dead_letters;
DROP FUNCTION IF EXISTS walpost.decide();
DROP TABLE IF EXISTS walpost.dead_letter_count;
DROP TABLE IF EXISTS walpost.pipeline;
DROP SCHEMA IF EXISTS walpost;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
