-- Takes version 7 away again, with the idempotency keys. Nothing may call outbox.emit any more.

DELETE FROM walpost.schema_version WHERE version = 7;
DROP FUNCTION IF EXISTS
    outbox.emit(text, text, text, bytea, text, text, jsonb, timestamptz, text, text, text, uuid),
    outbox.emit(text, text, text, jsonb, text, text, jsonb, timestamptz, text, text, text, uuid),
    outbox.emit(text, text, text, text, text, text, jsonb, timestamptz, text, text, text, uuid),
    outbox.forget_keys(interval, integer);
DROP TABLE IF EXISTS outbox.idempotency;
