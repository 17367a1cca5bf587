-- Takes version 5 away again: one plain table, with the rows of all partitions. Stop the writers, let walpost deliver everything,
-- then stop it: the publication loses the table, so `ALTER PUBLICATION ... ADD TABLE outbox.events` must follow, and
-- `walpost slot advance` says that the new table is meant. Take version 6 away first.

DELETE FROM walpost.schema_version WHERE version = 5;
DO $$
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = 'outbox.events'::regclass) <> 'p' THEN
        RETURN;
    END IF;
    LOCK TABLE outbox.events IN ACCESS EXCLUSIVE MODE;
    CREATE TABLE outbox.events_plain (LIKE outbox.events INCLUDING ALL EXCLUDING INDEXES);
    INSERT INTO outbox.events_plain OVERRIDING SYSTEM VALUE SELECT * FROM outbox.events ORDER BY seq;
    PERFORM setval(pg_get_serial_sequence('outbox.events_plain', 'seq'), max(seq)) FROM outbox.events;
    DROP TABLE outbox.events;
    ALTER TABLE outbox.events_plain RENAME TO events;
    ALTER TABLE outbox.events ADD CONSTRAINT events_pkey PRIMARY KEY (id);
    CREATE INDEX events_order ON outbox.events USING brin (seq, (tx::text::bigint)) WITH (autosummarize = on);
END
$$;
