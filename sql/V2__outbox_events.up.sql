-- walpost, schema version 2: the outbox table of preset `walpost`. Not needed when the outbox is your own table.
-- Safe to apply again.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

CREATE SCHEMA IF NOT EXISTS outbox;

CREATE TABLE IF NOT EXISTS outbox.events (
    id             uuid        PRIMARY KEY,
    seq            bigint      GENERATED ALWAYS AS IDENTITY,
    -- The top-level transaction, also under savepoints: tells later whether a snapshot saw the row.
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
