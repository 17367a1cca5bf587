-- walpost, schema version 7: outbox.emit, one event from any language that can call a function. Needs version 4.
-- The functions run with the rights of who applies this; writers need USAGE on schema outbox and EXECUTE on outbox.emit, as
-- R__roles.sql gives them, and no right on the tables. Safe to apply again.

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

INSERT INTO walpost.schema_version (version) VALUES (7) ON CONFLICT DO NOTHING;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
