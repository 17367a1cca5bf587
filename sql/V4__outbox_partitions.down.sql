-- Takes version 4 away again: one plain table, with the rows of all partitions. Stop the writers, let walpost deliver everything,
-- then stop it: the publication loses the table, so `ALTER PUBLICATION ... ADD TABLE outbox.events` must follow, and
-- `walpost slot advance` says that the new table is meant. Take version 5 away first.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere; and rows that a policy of row-level
-- security hides are an error, not no rows. The last lines take this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
SELECT pg_catalog.set_config('walpost.row_security', pg_catalog.current_setting('row_security'), false);
SELECT pg_catalog.set_config('row_security', 'off', false);

DELETE FROM walpost.schema_version WHERE version = 4;
CREATE OR REPLACE FUNCTION outbox.make_plain() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CREATE TABLE outbox.events_plain (LIKE outbox.events INCLUDING ALL EXCLUDING INDEXES);
    INSERT INTO outbox.events_plain OVERRIDING SYSTEM VALUE SELECT * FROM outbox.events ORDER BY seq;
    PERFORM setval(pg_get_serial_sequence('outbox.events_plain', 'seq'), max(seq)) FROM outbox.events;
    DROP TABLE outbox.events;
    ALTER TABLE outbox.events_plain RENAME TO events;
    ALTER TABLE outbox.events ADD CONSTRAINT events_pkey PRIMARY KEY (id);
    CREATE INDEX events_order ON outbox.events USING brin (seq, (tx::text::bigint)) WITH (autosummarize = on);
END
$$;
DO $$
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = 'outbox.events'::regclass) <> 'p' THEN
        RETURN;
    END IF;
    IF current_setting('transaction_isolation') NOT LIKE 'read%' THEN
        RAISE EXCEPTION 'an older snapshot does not see what was inserted last: apply this in READ COMMITTED'
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    PERFORM walpost.change_tables(ARRAY['SELECT outbox.make_plain()'], 'outbox.events');
END
$$;

DROP FUNCTION IF EXISTS outbox.events_stay(), outbox.make_plain(), outbox.make_anew(aclitem[], boolean);

SELECT pg_catalog.set_config('row_security', pg_catalog.current_setting('walpost.row_security'), false);
SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
