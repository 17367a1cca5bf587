-- walpost, schema version 1: its record of pipelines.
-- Apply with `walpost init`, or with any migration tool, in one transaction. Safe to apply again.
-- Publication and slot are not here: a slot cannot be made in a transaction that has written.

CREATE SCHEMA IF NOT EXISTS walpost;

CREATE TABLE IF NOT EXISTS walpost.pipeline (
    name              text        PRIMARY KEY,
    slot              text        NOT NULL,
    publication       text        NOT NULL,
    system_identifier numeric     NOT NULL,
    consistent_point  pg_lsn      NOT NULL,
    snapshot          text,
    drained           boolean     NOT NULL DEFAULT true,
    prefixes          text[]      NOT NULL DEFAULT '{}',
    created_at        timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE walpost.pipeline IS 'Written by walpost init, read before streaming. Not to be edited.';

CREATE TABLE IF NOT EXISTS walpost.schema_version (
    version    integer     PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO walpost.schema_version (version) VALUES (1) ON CONFLICT DO NOTHING;
