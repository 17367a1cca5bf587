-- Takes version 3 away again. Nothing may emit messages any more; schema outbox stays when version 2 is there.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DELETE FROM walpost.schema_version WHERE version = 3;
DROP FUNCTION IF EXISTS
    outbox.emit_message(text, text, text, bytea, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid),
    outbox.emit_message(text, text, text, text, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid),
    outbox.emit_message(text, text, text, jsonb, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid),
    walpost.message_prefix(text), walpost.wire_options(text, text, jsonb, timestamptz, text, text, text, integer),
    walpost.wire_headers(integer, jsonb), walpost.wire_field(integer, bytea),
    walpost.wire_field(integer, text), walpost.wire_field(integer, bigint), walpost.wire_number(bigint);

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
