-- Takes version 5 away again; partitions and rows stay as they are.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DELETE FROM walpost.schema_version WHERE version = 5;
DROP FUNCTION IF EXISTS
    outbox.maintain(interval, interval, text, integer), outbox.set_ephemeral(boolean),
    outbox.committed(), outbox.delete_rows(timestamptz, outbox.retention_note, integer), outbox.drop_partitions(regclass[], timestamptz[]),
    outbox.old_partitions(timestamptz, outbox.retention_note), outbox.kept_because(regclass, outbox.retention_note),
    outbox.age_of(outbox.retention_note), outbox.needed_in(regclass), outbox.needed_rows(),
    outbox.make_partitions(interval, text), outbox.adopt_default(text), outbox.partition_name(timestamptz), outbox.give_to_owner(text),
    outbox.partitions(), outbox.give_way(), outbox.because_locked(regclass[], text),
    outbox.delivered_note();
DROP TABLE IF EXISTS outbox.retention_note;
-- Last, since writers wait from here on.
SELECT walpost.change_tables(ARRAY['DROP TRIGGER IF EXISTS events_ephemeral ON outbox.events', 'DROP FUNCTION IF EXISTS outbox.forget()'],
                             'outbox.events');

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
