-- Takes version 7 away again, with the idempotency keys. Nothing may call outbox.emit any more.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DELETE FROM walpost.schema_version WHERE version = 7;
DROP FUNCTION IF EXISTS
    outbox.emit(text, text, text, bytea, text, text, jsonb, timestamptz, text, text, text, uuid),
    outbox.emit(text, text, text, jsonb, text, text, jsonb, timestamptz, text, text, text, uuid),
    outbox.emit(text, text, text, text, text, text, jsonb, timestamptz, text, text, text, uuid),
    outbox.forget_keys(interval, integer);
DROP TABLE IF EXISTS outbox.idempotency;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
