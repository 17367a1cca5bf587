-- walpost, schema version 5: outbox.events in partitions by created_at, so that old rows leave without a DELETE. Needs version 4.
-- Only a table that is empty and in no publication yet is made anew; any other stays as it is, and outbox.maintain (version 6)
-- deletes from it in chunks. Leave this file out for a plain table. Safe to apply again.

-- Writers wait for this, and not for long.
SET LOCAL lock_timeout = '5s';

DO $$
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = 'outbox.events'::regclass) = 'p' THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM outbox.events)
       OR EXISTS (SELECT FROM pg_publication_tables
                  WHERE format('%I.%I', schemaname, tablename)::regclass = 'outbox.events'::regclass) THEN
        RAISE NOTICE 'outbox.events stays one plain table: it has rows, or is published already';
        RETURN;
    END IF;
    ALTER TABLE outbox.events RENAME TO events_plain;
    CREATE TABLE outbox.events (LIKE outbox.events_plain INCLUDING ALL EXCLUDING INDEXES) PARTITION BY RANGE (created_at);
    DROP TABLE outbox.events_plain;
    -- A unique index of a partitioned table must hold the partition's key.
    ALTER TABLE outbox.events ADD CONSTRAINT events_pkey PRIMARY KEY (id, created_at);
    CREATE INDEX events_order ON outbox.events USING brin (seq, (tx::text::bigint)) WITH (autosummarize = on);
    COMMENT ON TABLE outbox.events IS
        'Events to be published by walpost; insert in the transaction that makes them true. created_at is not to be set.';
    -- No insert fails because nobody made a partition: what lands here outbox.maintain sees to.
    CREATE TABLE outbox.events_default PARTITION OF outbox.events DEFAULT;
END
$$;

INSERT INTO walpost.schema_version (version) VALUES (5) ON CONFLICT DO NOTHING;
