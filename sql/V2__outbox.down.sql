-- Takes version 2 away again, with every event still in the table, and the idempotency keys. Take versions 4 and 5 away first.
-- Nothing may call outbox.emit any more.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DELETE FROM walpost.schema_version WHERE version = 2;
DROP FUNCTION IF EXISTS
    outbox.emit(text, text, text, bytea, text, text, jsonb, timestamptz, text, text, text, uuid),
    outbox.emit(text, text, text, jsonb, text, text, jsonb, timestamptz, text, text, text, uuid),
    outbox.emit(text, text, text, text, text, text, jsonb, timestamptz, text, text, text, uuid),
    outbox.forget_keys(interval, integer);
DO $$
BEGIN
    PERFORM walpost.change_tables(
        ARRAY['DROP TABLE IF EXISTS outbox.idempotency, outbox.events'],
        VARIADIC ARRAY(SELECT c.oid::regclass FROM pg_class c WHERE c.oid IN (to_regclass('outbox.idempotency'), to_regclass('outbox.events'))
                       ORDER BY c.oid = to_regclass('outbox.events')));
END
$$;
DROP FUNCTION IF EXISTS outbox.set_payload_max(integer);
DROP FUNCTION IF EXISTS outbox.check_event(text, text, text, text, text, jsonb, text, text, timestamptz);
DROP FUNCTION IF EXISTS outbox.uuid_v7();
DROP SCHEMA IF EXISTS outbox;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
