-- walpost, schema version 4: the ids that outbox.events makes, what it refuses, and how it is found in order. Needs version 2.
-- A check that fails does so in the application's transaction, where it can still be corrected; rows that are there already are
-- not looked at. Safe to apply again.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

-- As `walpost init` asks: who owns a table or function here can have code of his run with the rights of who applies this.
DO $$
DECLARE
    foreign_object record;
BEGIN
    SELECT what, owner.rolname INTO foreign_object
    FROM (SELECT 'schema ' || quote_ident(nspname) AS what, nspowner AS owner, nspname AS place FROM pg_namespace
          UNION ALL SELECT c.oid::regclass::text, c.relowner, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
          UNION ALL SELECT p.oid::regprocedure::text, p.proowner, n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
         ) AS objects JOIN pg_roles owner ON owner.oid = objects.owner, pg_roles us
    WHERE us.rolname = current_user AND place IN ('walpost', 'outbox') AND owner.rolname NOT IN (current_user, 'outbox_owner')
      AND NOT owner.rolsuper AND (us.rolsuper OR NOT pg_has_role(owner.oid, 'USAGE'))
    ORDER BY 1 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% belongs to role %, whose code would run with the rights of whoever runs this',
                foreign_object.what, foreign_object.rolname
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Run it as that role, or give the schema and all that is in it to a role you trust (ALTER ... OWNER TO).';
    END IF;
END
$$;

-- Ids that grow with time. A random one touches another page of the index with each row, and after a checkpoint every page
-- that is touched goes to the WAL as a whole.
DO $outer$
BEGIN
    IF current_setting('server_version_num')::integer >= 180000 THEN
        CREATE OR REPLACE FUNCTION outbox.uuid_v7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
            AS 'SELECT pg_catalog.uuidv7()';
    ELSE
        -- RFC 9562: 48 bits of milliseconds, 12 bits of the millisecond's part, 62 random bits. In PL/pgSQL, which keeps the plan:
        -- of a function in SQL it is made anew with each INSERT. A search_path of its own would cost each INSERT as much again, so
        -- every name and operator has its schema in front.
        CREATE OR REPLACE FUNCTION outbox.uuid_v7() RETURNS uuid LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
            BEGIN
                RETURN pg_catalog.overlay(
                    pg_catalog.lpad(pg_catalog.to_hex(
                        (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint
                            OPERATOR(pg_catalog.*) 512 OPERATOR(pg_catalog./) 125), 15, '0')
                        OPERATOR(pg_catalog.||) pg_catalog.substr(pg_catalog.gen_random_uuid()::pg_catalog.text, 20),
                    '7', 13, 0)::pg_catalog.uuid;
            END
        $$;
    END IF;
END
$outer$;

-- Whether walpost can deliver this, at all and in every format, as far as the event alone shows. What the configuration and Kafka add
-- to that (which topics there are, headers of theirs, how large a record may be, a schema) is not known here; docs/database.md,
-- "Emit an event", lists it. One function instead of an expression for each rule: a table's
-- expressions are read anew with each INSERT, and that took longer than all that is asked here. All but the payload stays
-- below 48,000 bytes, what a broker's 1 MiB leaves beside the largest payload; walpost's names are those of docs/formats.md.
CREATE OR REPLACE FUNCTION outbox.check_event(
    aggregate_type text, aggregate_id text, event_type text, content_type text, schema_name text, headers jsonb, traceparent text,
    tracestate text, occurred_at timestamptz) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rule text;
    wanted text;
BEGIN
    -- It names the topic, by default, which has at most 249 bytes: 49 are left for what `topic` puts around it. The length is not
    -- part of the expression: that took as long as the rest.
    IF aggregate_type !~ '^[A-Za-z0-9._-]+$' OR octet_length(aggregate_type) > 200 OR aggregate_type IN ('.', '..')
       OR starts_with(aggregate_type, '__') OR starts_with(aggregate_type, 'walpost.') THEN
        rule := 'events_aggregate_type';
        wanted := 'aggregate_type must be what Kafka takes in a topic, at most 200 bytes, and begin neither with "__" nor with "walpost."';
    ELSIF octet_length(aggregate_id) > 1024 OR event_type = '' OR octet_length(event_type) > 255
          OR octet_length(content_type) > 255 OR octet_length(schema_name) > 512 THEN
        rule := 'events_text_max';
        wanted := 'aggregate_id has at most 1024 bytes, event_type 1 to 255, content_type at most 255, schema_name 512';
    -- In CloudEvents' binary mode readers would take the payload for the whole event, with all its attributes.
    ELSIF content_type COLLATE "C" ~* '^[\u0001-\u0020]*application/cloudevents' THEN
        rule := 'events_content_type';
        wanted := 'content_type must not begin with application/cloudevents, in whatever case: what walpost sends says that itself';
    ELSIF octet_length(traceparent) > 255 OR octet_length(tracestate) > 8192 THEN
        rule := 'events_trace_max';
        wanted := 'traceparent has at most 255 bytes, tracestate 8192';
    ELSIF occurred_at < '0001-01-01 00:00:00+00' OR occurred_at >= '10000-01-01 00:00:00+00' THEN
        rule := 'events_occurred_at';
        wanted := 'occurred_at must be in the years 1 to 9999';
    ELSIF headers IS NULL THEN
        RETURN true;
    ELSIF jsonb_typeof(headers) NOT IN ('object', 'null')
          -- A thousand members have at least 8,900 bytes.
          OR octet_length(headers::text) > 8192
             AND (octet_length(headers::text) > 16384 OR jsonb_array_length(jsonb_path_query_array(headers, '$.*')) > 1000)
          OR headers @? 'strict $.* ? (@.type() == "object" || @.type() == "array"
                                       || @.type() == "number" && (exists (@.double())) is unknown)' THEN
        rule := 'events_headers';
        wanted := 'headers must be one flat JSON object of at most 1000 members and 16384 bytes, of text, numbers that fit into a double, '
                  'booleans and null';
    -- Readers may take names without case, and so does walpost. The first expression only keeps the second, which takes ten times as
    -- long, from most names.
    ELSIF headers @? 'strict $.keyvalue().key ? (@ like_regex
              "^(id|type|content-type|walpost-|__value|ce_|$)|[\u0001-\u001f\u007f]" flag "i") ? (@ like_regex
              "^(id|type|content-type|walpost-.*|__value_schema_id|ce_(id|source|specversion|type|time|datacontenttype|data|data_base64|dataschema|subject|partitionkey|recordedtime|sequence|traceparent|tracestate))?$|[\u0001-\u001f\u007f]"
              flag "i")' THEN
        rule := 'events_header_names';
        wanted := 'headers must have names, without control characters, and none that walpost writes, in whatever case: id, type, content-type, '
                  'walpost-*, __value_schema_id, and the attributes of CloudEvents, such as ce_id';
    ELSIF traceparent <> '' AND headers @? 'strict $.keyvalue() ? (@.key like_regex "^traceparent$" flag "i" && @.value != null)'
          OR tracestate <> '' AND headers @? 'strict $.keyvalue() ? (@.key like_regex "^tracestate$" flag "i" && @.value != null)' THEN
        rule := 'events_header_names';
        wanted := 'traceparent and tracestate are given once: in the column or in headers';
    ELSE
        RETURN true;
    END IF;
    RAISE EXCEPTION 'outbox.events: %', wanted
        USING ERRCODE = 'check_violation', SCHEMA = 'outbox', TABLE = 'events', CONSTRAINT = rule;
END
$$;

-- Kafka takes 1 MiB by default, with key, headers and envelope around the payload. To change: SELECT outbox.set_payload_max(5000000).
CREATE OR REPLACE FUNCTION outbox.set_payload_max(bytes integer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    present text;
BEGIN
    IF (bytes > 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'outbox.set_payload_max: bytes must be at least 1' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR locked IN 0..1 LOOP
        IF locked = 1 THEN
            PERFORM walpost.lock_tables('outbox.events');
        END IF;
        present := (SELECT pg_get_constraintdef(oid) FROM pg_constraint
                    WHERE conrelid = 'outbox.events'::regclass AND conname = 'events_payload_max');
        IF present ~ format(' <= %s\)', bytes) THEN
            RETURN;
        END IF;
    END LOOP;
    IF present IS NOT NULL THEN
        ALTER TABLE outbox.events DROP CONSTRAINT events_payload_max;
    END IF;
    EXECUTE format('ALTER TABLE outbox.events ADD CONSTRAINT events_payload_max CHECK (octet_length(payload) <= %s) NOT VALID',
                   bytes);
END
$$;

-- Only what is not there yet: who runs this again holds up nobody.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_attrdef WHERE adrelid = 'outbox.events'::regclass
                   AND pg_get_expr(adbin, adrelid) = 'outbox.uuid_v7()') THEN
        PERFORM walpost.lock_tables('outbox.events');
        ALTER TABLE outbox.events ALTER COLUMN id SET DEFAULT outbox.uuid_v7();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'outbox.events'::regclass AND conname = 'events_check') THEN
        PERFORM walpost.lock_tables('outbox.events');
        ALTER TABLE outbox.events ADD CONSTRAINT events_check CHECK (outbox.check_event(
            aggregate_type, aggregate_id, event_type, content_type, schema_name, headers, traceparent, tracestate, occurred_at)) NOT VALID;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'outbox.events'::regclass AND conname = 'events_payload_max') THEN
        PERFORM outbox.set_payload_max(1000000);
    END IF;
    -- Finds rows by their order, and those that a transaction may have added late, for next to nothing: a few bytes for each
    -- 128 pages of the table, none of them written with a row. An xid8 has no place in such an index, its number does.
    IF to_regclass('outbox.events_order') IS NULL THEN
        PERFORM walpost.lock_tables('outbox.events');
        CREATE INDEX events_order ON outbox.events USING brin (seq, (tx::text::bigint)) WITH (autosummarize = on);
    END IF;
END
$$;

INSERT INTO walpost.schema_version (version) VALUES (4) ON CONFLICT DO NOTHING;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
