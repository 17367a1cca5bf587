-- Takes version 4 away again; the rows stay. Take version 5 away first.

DELETE FROM walpost.schema_version WHERE version = 4;
DROP INDEX IF EXISTS outbox.events_order;
ALTER TABLE outbox.events
    DROP CONSTRAINT IF EXISTS events_payload_max, DROP CONSTRAINT IF EXISTS events_headers,
    DROP CONSTRAINT IF EXISTS events_trace_max, DROP CONSTRAINT IF EXISTS events_text_max,
    DROP CONSTRAINT IF EXISTS events_aggregate_type, ALTER COLUMN id DROP DEFAULT;
DROP FUNCTION IF EXISTS outbox.set_payload_max(integer);
DROP FUNCTION IF EXISTS outbox.uuid_v7();
