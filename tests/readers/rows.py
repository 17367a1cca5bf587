"""Rows of many shapes, and what the database says of them afterwards: the truth that readers are held against."""

import json

import servers

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
# Kinds of tables: by the type of their payload; the last one by preset debezium, where keys may be NULL and headers are few.
KINDS = {"bytea": "bytea", "text": "text", "jsonb": "jsonb", "keyless": "bytea"}
TABLE = """CREATE TABLE public.{} (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), seq bigint GENERATED ALWAYS AS IDENTITY, tx xid8 DEFAULT pg_current_xact_id(),
    aggregate_type text NOT NULL DEFAULT 'order', aggregate_id text DEFAULT '42', event_type text NOT NULL DEFAULT 'OrderPlaced',
    payload {}, content_type text, schema_name text, headers jsonb, traceparent text, tracestate text, occurred_at timestamptz)"""
# Times in microseconds since 1970; one row for each event, in the order of its transaction.
TRUTH = """SELECT json_build_object('id', id, 'seq', seq, 'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id,
      'event_type', event_type, 'payload', encode({bytes}, 'base64'), 'content_type', content_type, 'schema_name', schema_name,
      'headers', (SELECT json_object_agg(key, value) FROM jsonb_each_text(headers) WHERE value IS NOT NULL),
      'traceparent', traceparent, 'tracestate', tracestate, 'occurred_at', (extract(epoch FROM occurred_at) * 1000000)::bigint,
      'committed_at', (extract(epoch FROM pg_xact_commit_timestamp(tx::xid)) * 1000000)::bigint, 'xid', tx::xid,
      'ordinal', rank() OVER (PARTITION BY tx ORDER BY seq) - 1)
    FROM public.{table} ORDER BY seq"""


def bytes_rows():
    """Lists of rows, each list a transaction. A row holds the columns that are not the table's defaults."""
    inner = servers.load_envelope()(id="inner", type="ä", payload=b"\x00\xff").SerializeToString()
    big = json.dumps({"text": "ä☃😀" * 20_000}, ensure_ascii=False).encode()
    return [
        [{"payload": '{"total": 1.50, "b": [1, null], "a": "ä\\n"}'.encode(), "content_type": "application/json",
          "schema_name": "https://shop.example/order.json", "traceparent": TRACE, "tracestate": "x=y,z=1",
          "headers": '{"own": "1", "n": 1.50, "yes": true, "none": null, "empty": "", "snow": "☃"}',
          "occurred_at": "2024-02-29 12:00:00.123456+02"}],
        [{"payload": None}, {"payload": b""}, {"payload": b"\x00\xff\xfe"}],
        [{"payload": b"empty key", "aggregate_id": ""}],
        [{"payload": inner, "content_type": "application/protobuf", "schema_name": "walpost.v1.Envelope"}],
        [{"payload": inner, "content_type": "application/x-protobuf", "schema_name": "walpost.v1.Envelope"}],
        [{"payload": inner, "content_type": "application/protobuf"}],
        [{"payload": '"Grüße" \\ \t☃😀\n'.encode(), "content_type": "text/plain; charset=UTF-8", "aggregate_id": "schlüssel-☃😀",
          "event_type": "Bestellung aufgegeben – 😀", "aggregate_type": "bestellung"}],
        [{"payload": b"\xff no UTF-8", "content_type": "text/plain"}],
        [{"payload": b"<a/>", "content_type": "text/xml", "schema_name": "just.a.Name"}],
        [{"payload": b"\x89PNG", "content_type": "image/png", "schema_name": "urn:example:png", "traceparent": TRACE}],
        [{"payload": b'{"a": 1}', "content_type": "application/shop+json; charset=utf-8"}],
        [{"payload": b"5", "content_type": "application/json"}, {"payload": b'"text"', "content_type": "application/json"},
         {"payload": b"[]", "content_type": "application/json"}, {"payload": b"true", "content_type": "application/json"}],
        [{"payload": b"old", "occurred_at": "1969-12-31 23:59:59.999999+00"}],
        [{"payload": b"far", "occurred_at": "9999-12-31 23:59:59.999999+00"}],
        [{"payload": bytes(range(256)) * 2_400, "content_type": "application/octet-stream"}],
        [{"payload": big, "content_type": "application/json"}],
        [{"payload": str(n).encode(), "aggregate_id": f"key-{n}"} for n in range(20)],
    ]


# In a JSON envelope Java's SDK takes this payload for no JSON, and rejects the event: its pattern has no place for the dot.
UNREADABLE_IN_JAVA = {"payload": b'{"a": 1}', "content_type": "application/vnd.shop+json"}


def transactions(form, kind):
    if kind == "bytea":
        return bytes_rows() + ([] if form == "structured" else [[UNREADABLE_IN_JAVA]])
    if kind == "keyless":
        return [[{"payload": None, "aggregate_id": None, "content_type": "application/json"}],
                [{"payload": b"no key", "aggregate_id": None, "content_type": "text/plain"}, {"payload": b"key"}]]
    if kind == "text":
        return [[{"payload": text, "occurred_at": "2024-02-29 12:00:00+00"} for text in ("plain", "", "täxt ☃😀\n\"", None)],
                [{"payload": '{"a": "ä"}', "content_type": "application/json"}]]
    return [[{"payload": text} for text in ('{"b": 1.50, "a": [1, null, "ä😀"]}', '"text"', "5", "[]", "false", None)],
            [{"payload": '{"n": 123456789012}', "content_type": "application/json", "headers": '{"h": "1"}'}]]


def table_of(form, kind):
    return f"{form}_{kind}"


def insert(execute, form, kind):
    table = table_of(form, kind)
    for rows in transactions(form, kind):
        statements, values = [], []
        for row in rows:
            statements.append(f"INSERT INTO public.{table} ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))})")
            values += row.values()
        execute("; ".join(statements), *values)


def truth(execute, form, kind):
    as_bytes = "payload" if KINDS[kind] == "bytea" else "convert_to(payload::text, 'UTF8')"
    return [row[0] for row in execute(TRUTH.format(bytes=as_bytes, table=table_of(form, kind)))]
