-- Takes version 4 away again; the rows stay. Take version 5 away first.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DELETE FROM walpost.schema_version WHERE version = 4;
SELECT walpost.lock_tables('outbox.events');
DROP INDEX IF EXISTS outbox.events_order;
ALTER TABLE outbox.events
    DROP CONSTRAINT IF EXISTS events_payload_max, DROP CONSTRAINT IF EXISTS events_check, ALTER COLUMN id DROP DEFAULT;
DROP FUNCTION IF EXISTS outbox.set_payload_max(integer);
DROP FUNCTION IF EXISTS outbox.check_event(text, text, text, text, text, jsonb, text, text, timestamptz);
DROP FUNCTION IF EXISTS outbox.uuid_v7();

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
