-- walpost, schema version 8: how far `walpost init --drain-existing` has come. Needs version 1. Safe to apply again.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DO $$
BEGIN
    -- The lock is needed only once: outbox.emit_message waits for it.
    IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'walpost.pipeline'::regclass AND attname = 'drain') THEN
        PERFORM walpost.lock_tables('walpost.pipeline');
        ALTER TABLE walpost.pipeline ADD COLUMN IF NOT EXISTS drain jsonb;
    END IF;
END
$$;

INSERT INTO walpost.schema_version (version) VALUES (8) ON CONFLICT DO NOTHING;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
