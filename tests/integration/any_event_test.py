"""What outbox.check_event takes, every format delivers: odd events that are made at random.

WALPOST_SEED chooses them; it is printed.
"""

import json
import os
import random

import psycopg2
import pytest
import servers

EVENTS = 3_000
FORMATS = {
    "envelope": {"format": "envelope"}, "raw": {"format": "raw"}, "binary": {"format": "cloudevents"},
    "protobuf": {"format": "cloudevents", "cloudevents": {"mode": "structured_protobuf"}},
    "json": {"format": "cloudevents", "cloudevents": {"mode": "structured_json"}}}
INSERT = """INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, content_type, schema_name, headers, traceparent,
    tracestate, occurred_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"""
EMIT = """SELECT outbox.emit_message(prefix => 'shop', aggregate_type => %s, aggregate_id => %s, type => %s, payload => %s::bytea,
    content_type => %s, schema_name => %s, headers => %s::jsonb, traceparent => %s, tracestate => %s, occurred_at => %s::timestamptz)"""

# White space, controls, letters whose other case is ASCII or longer, what is no character, and what names and types are made of.
CHARACTERS = [*"aBz0-_.: \t\n\r\x01\x7f'\"\\/%{}$&=;,*", *"\u0085\u00a0\u017f\u212a\u0130\u0131\u2028\ufeff\u200b\ufffe\uffff\U0001f600\u0301\u00df\u1e9e"]
HEADERS = ["id", "type", "content-type", "content_type", "walpost-position", "walpost-", "__value_schema_id", "__x", "ce_", "ce_x", "ce-foo", "ce_id", "ce-id",
           "ce_type", "ce_time", "ce_data", "ce_data_base64", "ce_source", "ce_subject", "ce_specversion", "ce_sequence", "ce_sequencetype", "ce_traceparent", "ce_dataschema",
           "ce_datacontenttype", "ce_partitionkey", "cloudEvents:id", "cloudEvents_type", "traceparent", "tracestate", "baggage", "tracingspancontext"]
NUMBERS = ["1.7976931348623157e308", "1.797693134862315807e308", "1.7976931348623158e308", "1e309", "-1e308", "1e-400", "4.9e-324", "2e-324", "-0.0",
           "123456789012345678901234567890", "18446744073709551616", "-9223372036854775809", "0.1", "1E+2", "1.50"]
TYPES = ["application/json", "application/json; charset=utf-8", "application/cloudevents+json", "application/protobuf", "text/plain", "+json", "/", ";"]
SCHEMAS = ["shop.v1.X", "http://x/y", "http://\u00e4", "type.googleapis.com/shop.v1.X", "urn:x", "1.x", "_", ".", ".."]
TIMES = [None, "infinity", "-infinity", "0001-01-01 00:00:00+00", "0001-12-31 BC", "9999-12-31 23:59:59.999999+00", "10000-01-01 00:00:00+00",
         "1969-12-31 23:59:59.999999+00", "2026-01-01", "294276-12-31"]
PAYLOADS = [None, b"", b"{}", b"1", b"\xff\x00", b'"x"', b"\xef\xbb\xbf{}", b"1e400"]


@pytest.fixture
def rng():
    seed = int(os.environ.get("WALPOST_SEED") or random.randrange(2**32))
    print(f"WALPOST_SEED={seed}")
    return random.Random(seed)


def text(rng, length):
    return "".join(rng.choice(CHARACTERS) for _ in range(rng.randint(0, length)))


def nearly(rng, word):
    """The word, or what some code may take for it."""
    at = rng.randint(0, len(word))
    return rng.choice([
        word, word[:-1], word + rng.choice("abc-_1"), word[:at] + rng.choice(CHARACTERS) + word[at:],
        "".join(rng.choice([letter.upper(), letter]) for letter in word), word.replace("s", "\u017f").replace("i", "\u0131")])


def headers(rng):
    if rng.random() < 0.25:
        return rng.choice([None, "null", "[]", "{}", '"x"'])
    values = [*NUMBERS, "true", "null", "{}", "[1]", '""']
    pairs = [(rng.choice([nearly(rng, rng.choice(HEADERS)), text(rng, 6)]), rng.choice([json.dumps(text(rng, 6)), rng.choice(values)]))
             for _ in range(rng.randint(1, 4))]
    return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in pairs) + "}"


def event(rng, topic):
    trace = [None, "", f"00-{'a' * 32}-{'b' * 16}-01"]
    return (topic, rng.choice(["", "k", "x" * 1_024, "\u00e4" * 512, text(rng, 8)]), rng.choice(["T", "", "x" * 255, text(rng, 5)]), rng.choice(PAYLOADS),
            rng.choice([None, "", text(rng, 5), nearly(rng, rng.choice(TYPES))]), rng.choice([None, "", text(rng, 8), *SCHEMAS]), headers(rng),
            rng.choice([*trace, text(rng, 6)]), rng.choice([*trace, text(rng, 6)]), rng.choice(TIMES))


def take(cursor, sql, row):
    """Whether the database does."""
    try:
        cursor.execute(sql, row)
    except psycopg2.Error as rejected:
        assert rejected.pgcode[:2] in ("22", "23"), (rejected, row)  # the values are wrong
        return False
    return True


def test_what_the_database_takes_is_delivered_in_every_format(make_pipeline, rng):
    p = make_pipeline()
    pipelines = {}
    for name, value in FORMATS.items():
        mapping = {"topic": "{aggregate_type}", "topics": {"allowed": [p.name]}, "value": value}
        pipelines[name] = p.another(name=p.name + name, config={
            "outboxes": [{"table": "outbox.events", **mapping}], "messages": {"prefixes": ["shop"], "on_undeliverable": "halt", **mapping},
            "delivery": {"on_undeliverable": "dead_letter"}})
        pipelines[name].verb("init", "--with-messages")
        pipelines[name].start()
    with p.connected() as cursor:
        events = [event(rng, p.name) for _ in range(EVENTS)]
        taken = [take(cursor, sql, row) for row in events for sql in (INSERT, EMIT)]
    assert EVENTS / 10 < sum(taken) < 2 * EVENTS
    end = p.wal_position()
    for name, walpost in pipelines.items():
        servers.wait_for(lambda name=name, walpost=walpost: p.postgres.slot(p.name + name, p.database)["confirmed"] >= end or walpost.state() == "halted",
                         240, f"{name} to be confirmed")
        assert walpost.state() == "streaming", walpost.status()["halt"]
    # Only the payload is not looked at: docs/database.md, "Emit an event". A message has one reason for all that is wrong with it.
    assert p.execute("SELECT pipeline, source, reason, detail FROM walpost.dead_letters WHERE reason <> 'payload_invalid'"
                     " AND NOT (reason = 'message_malformed' AND pipeline = %s AND detail LIKE '%%the payload of event%%')", p.name + "json") == []
