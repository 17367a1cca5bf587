-- Takes version 6 away again; partitions and rows stay as they are.

DELETE FROM walpost.schema_version WHERE version = 6;
DROP TRIGGER IF EXISTS events_ephemeral ON outbox.events;
DROP FUNCTION IF EXISTS
    outbox.maintain(interval, interval, text, integer), outbox.set_ephemeral(boolean), outbox.forget(),
    outbox.delete_rows(timestamptz, outbox.retention_note, integer), outbox.drop_partitions(timestamptz, outbox.retention_note),
    outbox.make_partitions(interval, text), outbox.adopt_default(text), outbox.partition_name(timestamptz), outbox.partitions(),
    outbox.delivered_note();
DROP TABLE IF EXISTS outbox.retention_note;
