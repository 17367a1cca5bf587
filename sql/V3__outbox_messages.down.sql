-- Takes version 3 away again. Nothing may emit messages any more; schema outbox stays when version 2 is there.

DELETE FROM walpost.schema_version WHERE version = 3;
DROP FUNCTION IF EXISTS
    outbox.emit_message(text, text, text, bytea, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid),
    outbox.emit_message(text, text, text, text, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid),
    outbox.emit_message(text, text, text, jsonb, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid),
    walpost.message_prefix(text), walpost.wire_options(text, text, jsonb, timestamptz, text, text, text, integer),
    walpost.wire_headers(integer, jsonb), walpost.wire_field(integer, bytea),
    walpost.wire_field(integer, text), walpost.wire_field(integer, bigint), walpost.wire_number(bigint);
