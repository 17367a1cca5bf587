-- walpost, schema version 2: the outbox table of preset `walpost`. Not needed when the outbox is your own table.
-- Safe to apply again.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

CREATE SCHEMA IF NOT EXISTS outbox;

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

CREATE TABLE IF NOT EXISTS outbox.events (
    id             uuid        PRIMARY KEY,
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
    created_at     timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE outbox.events IS 'Events to be published by walpost; insert in the transaction that makes them true.';

INSERT INTO walpost.schema_version (version) VALUES (2) ON CONFLICT DO NOTHING;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
