-- walpost, schema version 8: how far `walpost init --drain-existing` has come. Needs version 1. Safe to apply again.

ALTER TABLE walpost.pipeline ADD COLUMN IF NOT EXISTS drain jsonb;

INSERT INTO walpost.schema_version (version) VALUES (8) ON CONFLICT DO NOTHING;
