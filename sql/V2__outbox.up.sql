-- walpost, schema version 2: the outbox table of preset `walpost`, and outbox.emit. Not needed when the outbox is your own table.
-- A check that fails does so in the application's transaction, where it can still be corrected. outbox.emit runs with the rights of who
-- applies this; writers need USAGE on schema outbox and EXECUTE on outbox.emit, as R__roles.sql gives them, and no right on the tables.
-- Needs version 1. Safe to apply again.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DO $$
DECLARE
    creator text;
BEGIN
    IF to_regnamespace('outbox') IS NULL THEN
        CREATE SCHEMA outbox;
        -- Whom default privileges let create in it, nobody has chosen for this schema.
        FOR creator IN SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
                       FROM pg_namespace CROSS JOIN aclexplode(nspacl) AS acl
                       WHERE nspname = 'outbox' AND acl.privilege_type = 'CREATE' AND acl.grantee <> nspowner LOOP
            EXECUTE format('REVOKE CREATE ON SCHEMA outbox FROM %s', creator);
        END LOOP;
    END IF;
END
$$;

-- As `walpost init` asks: who owns a table or function here can have code of his run with the rights of who applies this. So can who
-- may create here, by a function that fits a call better than ours does.
DO $$
DECLARE
    foreign_object record;
BEGIN
    SELECT what, owner.rolname, revoke INTO foreign_object
    FROM (SELECT 'schema ' || quote_ident(nspname) AS what, nspowner AS owner, nspname AS place, NULL AS revoke FROM pg_namespace
          UNION ALL SELECT c.oid::regclass::text, c.relowner, n.nspname, NULL FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
          UNION ALL SELECT p.oid::regprocedure::text, p.proowner, n.nspname, NULL FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
          UNION ALL SELECT 'schema ' || quote_ident(nspname), acl.grantee, nspname,
                           CASE acl.grantor WHEN nspowner THEN '' ELSE format('SET ROLE %s; ', acl.grantor::regrole) END || format(
                               'REVOKE CREATE ON SCHEMA %I FROM %s CASCADE', nspname, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END)
                    FROM pg_namespace CROSS JOIN aclexplode(nspacl) AS acl WHERE acl.privilege_type = 'CREATE' AND NOT pg_has_role(acl.grantee, nspowner, 'USAGE')
         ) AS objects JOIN (SELECT oid, rolname FROM pg_roles UNION ALL SELECT 0::oid, 'PUBLIC') AS owner ON owner.oid = objects.owner
    WHERE place IN ('walpost', 'outbox') AND owner.rolname <> 'outbox_owner' AND NOT
        pg_has_role(CASE owner.rolname WHEN 'pg_database_owner' THEN (SELECT datdba FROM pg_database WHERE datname = current_database())
                    ELSE owner.oid END, current_user, 'USAGE')
    ORDER BY revoke NULLS FIRST, 1 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%, whose code would run with the rights of whoever runs this',
                format(CASE WHEN foreign_object.revoke IS NULL THEN '%s belongs to role %s' ELSE '%s lets others create in it: role %s' END,
                       foreign_object.what, foreign_object.rolname)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = coalesce(foreign_object.revoke, 'Run it as that role, or DROP it. ALTER ... OWNER TO is not enough: its constraints, '
                                                         'defaults, indexes, rules and functions stay what that role has made of them.');
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
    -- In CloudEvents' binary mode readers would take the payload for the whole event, with all its attributes. Of what is no
    -- printable ASCII they may make a blank, or another letter.
    ELSIF content_type COLLATE "C" ~* '^ *application/cloudevents|[^\u0020-\u007e]' THEN
        rule := 'events_content_type';
        wanted := 'content_type must be of printable ASCII, and not begin with application/cloudevents, in whatever case: what walpost '
                  'sends says that itself';
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
              "^(id|type|content-type|walpost-|__value|ce[_-]|cloudevents[:_]|$)|[^\u0020-\u007e]|^ | $" flag "is") ? (@ like_regex
              "^(id|type|content-type|walpost-.*|__value_schema_id|(ce[_-]|cloudevents[:_])(id|source|specversion|type|time|datacontenttype|data|data_base64|dataschema|subject|partitionkey|recordedtime|sequence|sequencetype|traceparent|tracestate))?$|[^\u0020-\u007e]|^ | $"
              flag "is")' THEN
        rule := 'events_header_names';
        wanted := 'headers must have names, of printable ASCII and without a space at the ends, and none that walpost writes, in whatever case: id, type, content-type, '
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

SELECT walpost.reject_code_of_others(ARRAY['walpost', 'outbox']::name[]);

-- Which tables this makes: another schema of the database may have had its own before.
SELECT pg_catalog.set_config('walpost.made', concat_ws(',', CASE WHEN to_regclass('outbox.events') IS NULL THEN 'outbox.events' END,
    CASE WHEN to_regclass('outbox.idempotency') IS NULL THEN 'outbox.idempotency' END), false);

CREATE TABLE IF NOT EXISTS outbox.events (
    id             uuid        PRIMARY KEY DEFAULT outbox.uuid_v7(),
    seq            bigint      GENERATED ALWAYS AS IDENTITY,
    -- The top-level transaction, also under savepoints: shows later whether a snapshot saw the row.
    tx             xid8        NOT NULL DEFAULT pg_current_xact_id(),
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    payload        bytea,
    content_type   text,
    schema_name    text,
    headers        jsonb,
    traceparent    text,
    tracestate     text,
    occurred_at    timestamptz,
    created_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT events_check CHECK (outbox.check_event(
        aggregate_type, aggregate_id, event_type, content_type, schema_name, headers, traceparent, tracestate, occurred_at)),
    -- Kafka takes 1 MiB by default, with key, headers and envelope around the payload.
    CONSTRAINT events_payload_max CHECK (octet_length(payload) <= 1000000)
);

COMMENT ON TABLE outbox.events IS 'Events to be published by walpost; insert in the transaction that makes them true.';

-- Finds rows by their order, and those that a transaction may have added late, for next to nothing: a few bytes for each 128 pages
-- of the table, none of them written with a row. An xid8 has no place in such an index, its number does.
DO $$
BEGIN
    -- CREATE INDEX IF NOT EXISTS would wait for writers each time.
    IF to_regclass('outbox.events_order') IS NULL THEN
        CREATE INDEX events_order ON outbox.events USING brin (seq, (tx::text::bigint)) WITH (autosummarize = on);
    END IF;
END
$$;

-- Another limit of the payload: SELECT outbox.set_payload_max(5000000).
CREATE OR REPLACE FUNCTION outbox.set_payload_max(bytes integer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    present text;
BEGIN
    IF (bytes > 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'outbox.set_payload_max: bytes must be at least 1' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    present := (SELECT pg_get_constraintdef(oid) FROM pg_constraint
                WHERE conrelid = 'outbox.events'::regclass AND conname = 'events_payload_max');
    IF present ~ format(' <= %s[)]', bytes) THEN
        RETURN;
    END IF;
    PERFORM walpost.change_tables(ARRAY[
        'ALTER TABLE outbox.events DROP CONSTRAINT IF EXISTS events_payload_max',
        format('ALTER TABLE outbox.events ADD CONSTRAINT events_payload_max CHECK (octet_length(payload) <= %s) NOT VALID', bytes)],
        'outbox.events');
END
$$;

-- Which event a writer's key stands for. Each writer has keys of its own, so that nobody's event is left out because somebody
-- else has guessed its key.
CREATE TABLE IF NOT EXISTS outbox.idempotency (
    writer     text        COLLATE "C" NOT NULL,
    key        text        NOT NULL CHECK (char_length(key) BETWEEN 1 AND 512),
    event_id   uuid        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (key, writer)
);
DO $$
BEGIN
    IF to_regclass('outbox.idempotency_age') IS NULL THEN
        CREATE INDEX idempotency_age ON outbox.idempotency USING brin (created_at) WITH (autosummarize = on);
    END IF;
END
$$;

-- Forgets keys that are older than `keep`, at most `rows` of them, and returns how many.
CREATE OR REPLACE FUNCTION outbox.forget_keys(keep interval DEFAULT '7 days', rows integer DEFAULT 100000) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    forgotten bigint;
BEGIN
    DELETE FROM outbox.idempotency WHERE ctid = ANY (ARRAY(
        SELECT k.ctid FROM outbox.idempotency k WHERE k.created_at < now() - keep LIMIT rows));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;

-- Inserts one event in this transaction and returns its id. With an idempotency_key, only if this writer has emitted no event with
-- that key before; else the id of that event. Who comes second while the first is still in its transaction waits for its end. The
-- writer is the role of SET ROLE, or else the one that logged in.
-- Without traceparent and tracestate: those of `SET LOCAL outbox.traceparent = '...'`, which a connection pool can set once.
-- In PL/pgSQL, which keeps the plan of an INSERT; a function in SQL makes it anew with each call.
CREATE OR REPLACE FUNCTION outbox.emit(
    type text, aggregate_type text, aggregate_id text, payload bytea,
    content_type text DEFAULT NULL, schema_name text DEFAULT NULL, headers jsonb DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL, traceparent text DEFAULT NULL, tracestate text DEFAULT NULL,
    idempotency_key text DEFAULT NULL, id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    event uuid := coalesce(emit.id, outbox.uuid_v7());
    emitter text;
    known uuid;
BEGIN
    IF emit.type IS NULL OR emit.aggregate_type IS NULL OR emit.aggregate_id IS NULL THEN
        RAISE EXCEPTION 'outbox.emit: type, aggregate_type and aggregate_id must have a value'
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF emit.idempotency_key IS NOT NULL THEN
        -- This function runs as its owner, so current_user is not who calls it.
        emitter := coalesce(nullif(current_setting('role'), 'none'), session_user);
        LOOP
            INSERT INTO outbox.idempotency (writer, key, event_id) VALUES (emitter, emit.idempotency_key, event)
            ON CONFLICT DO NOTHING;
            EXIT WHEN FOUND;
            SELECT k.event_id INTO known FROM outbox.idempotency k WHERE k.writer = emitter AND k.key = emit.idempotency_key;
            IF FOUND THEN
                RETURN known;
            END IF;
            -- It was forgotten in between.
        END LOOP;
    END IF;
    INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, content_type, schema_name, headers,
                               traceparent, tracestate, occurred_at)
    VALUES (event, emit.aggregate_type, emit.aggregate_id, emit.type, emit.payload, emit.content_type, emit.schema_name,
            emit.headers, coalesce(emit.traceparent, nullif(current_setting('outbox.traceparent', true), '')),
            coalesce(emit.tracestate, nullif(current_setting('outbox.tracestate', true), '')), emit.occurred_at);
    RETURN event;
END
$$;

CREATE OR REPLACE FUNCTION outbox.emit(
    type text, aggregate_type text, aggregate_id text, payload jsonb,
    content_type text DEFAULT 'application/json', schema_name text DEFAULT NULL, headers jsonb DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL, traceparent text DEFAULT NULL, tracestate text DEFAULT NULL,
    idempotency_key text DEFAULT NULL, id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN outbox.emit(type, aggregate_type, aggregate_id, convert_to(payload::text, 'UTF8'), content_type, schema_name, headers,
                       occurred_at, traceparent, tracestate, idempotency_key, id);
END
$$;

CREATE OR REPLACE FUNCTION outbox.emit(
    type text, aggregate_type text, aggregate_id text, payload text,
    content_type text DEFAULT 'text/plain; charset=utf-8', schema_name text DEFAULT NULL, headers jsonb DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL, traceparent text DEFAULT NULL, tracestate text DEFAULT NULL,
    idempotency_key text DEFAULT NULL, id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN outbox.emit(type, aggregate_type, aggregate_id, convert_to(payload, 'UTF8'), content_type, schema_name, headers,
                       occurred_at, traceparent, tracestate, idempotency_key, id);
END
$$;

-- To PUBLIC a new function is open.
REVOKE ALL ON FUNCTION
    outbox.emit(text, text, text, bytea, text, text, jsonb, timestamptz, text, text, text, uuid),
    outbox.emit(text, text, text, jsonb, text, text, jsonb, timestamptz, text, text, text, uuid),
    outbox.emit(text, text, text, text, text, text, jsonb, timestamptz, text, text, text, uuid)
    FROM PUBLIC;

DO $$
BEGIN
    PERFORM walpost.revoke_default_rights(made::regclass) FROM unnest(string_to_array(current_setting('walpost.made'), ',')) AS made;
END
$$;

INSERT INTO walpost.schema_version (version) VALUES (2) ON CONFLICT DO NOTHING;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
