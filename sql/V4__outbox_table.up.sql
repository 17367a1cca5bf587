-- walpost, schema version 4: the ids that outbox.events makes, what it refuses, and how it is found in order. Needs version 2.
-- A check that fails does so in the application's transaction, where it can still be corrected; rows that are there already are
-- not looked at. Safe to apply again.

-- Writers wait for this, and not for long.
SET LOCAL lock_timeout = '5s';

-- Ids that grow with time. A random one touches another page of the index with each row, and after a checkpoint every page
-- that is touched goes to the WAL as a whole.
DO $outer$
BEGIN
    IF current_setting('server_version_num')::integer >= 180000 THEN
        CREATE OR REPLACE FUNCTION outbox.uuid_v7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
            AS 'SELECT pg_catalog.uuidv7()';
    ELSE
        -- RFC 9562: 48 bits of milliseconds, 12 bits of the millisecond's part, 62 random bits. In PL/pgSQL, which keeps the plan:
        -- of a function in SQL it is made anew with each INSERT.
        CREATE OR REPLACE FUNCTION outbox.uuid_v7() RETURNS uuid LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
            BEGIN
                RETURN overlay(lpad(to_hex((date_part('epoch', clock_timestamp()) * 1000000)::bigint * 512 / 125), 15, '0')
                               || substr(gen_random_uuid()::text, 20) PLACING '7' FROM 13 FOR 0)::uuid;
            END
        $$;
    END IF;
END
$outer$;

ALTER TABLE outbox.events ALTER COLUMN id SET DEFAULT outbox.uuid_v7();

-- Kafka takes 1 MiB by default, with the envelope around it. To change: SELECT outbox.set_payload_max(5000000).
CREATE OR REPLACE FUNCTION outbox.set_payload_max(bytes integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'outbox.events'::regclass AND conname = 'events_payload_max') THEN
        ALTER TABLE outbox.events DROP CONSTRAINT events_payload_max;
    END IF;
    EXECUTE format('ALTER TABLE outbox.events ADD CONSTRAINT events_payload_max CHECK (octet_length(payload) <= %s) NOT VALID',
                   bytes);
END
$$;

DO $$
DECLARE
    rule record;
BEGIN
    FOR rule IN SELECT * FROM (VALUES
        -- It names the topic, by default. The length is not part of the expression: that took as long as the rest of the INSERT.
        ('events_aggregate_type', 'aggregate_type ~ ''^[A-Za-z0-9._-]+$'' AND char_length(aggregate_type) <= 249'
            ' AND aggregate_type NOT IN (''.'', ''..'')'),
        ('events_text_max', 'char_length(aggregate_id) <= 1024 AND char_length(event_type) BETWEEN 1 AND 255'
            ' AND char_length(content_type) <= 255 AND char_length(schema_name) <= 512'),
        ('events_trace_max', 'char_length(traceparent) <= 255 AND char_length(tracestate) <= 8192'),
        ('events_headers', 'jsonb_typeof(headers) IN (''object'', ''null'') AND octet_length(headers::text) <= 65536')
    ) AS wanted (name, condition) LOOP
        IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'outbox.events'::regclass AND conname = rule.name) THEN
            EXECUTE format('ALTER TABLE outbox.events ADD CONSTRAINT %I CHECK (%s) NOT VALID', rule.name, rule.condition);
        END IF;
    END LOOP;
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'outbox.events'::regclass AND conname = 'events_payload_max') THEN
        PERFORM outbox.set_payload_max(1000000);
    END IF;
END
$$;

-- Finds rows by their order, and those that a transaction may have added late, for next to nothing: a few bytes for each
-- 128 pages of the table, none of them written with a row. An xid8 has no place in such an index, its number does.
CREATE INDEX IF NOT EXISTS events_order ON outbox.events USING brin (seq, (tx::text::bigint)) WITH (autosummarize = on);

INSERT INTO walpost.schema_version (version) VALUES (4) ON CONFLICT DO NOTHING;
