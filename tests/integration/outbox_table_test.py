"""What applications and administrators touch: outbox.emit, what the table rejects, roles."""

import json
import threading
import time
import uuid

import psycopg2
import psycopg2.errors
import pytest
import servers


def one(cursor, sql, *arguments):
    cursor.execute(sql, arguments or None)
    return cursor.fetchone()[0]


@pytest.mark.smoke
def test_emit_takes_bytes_json_and_text_and_returns_ids_that_grow(make_pipeline):
    p = make_pipeline().start()
    with p.connected() as cursor:
        emitted = [one(cursor, "SELECT outbox.emit('Tested', %s, 'k', '\\x00ff'::bytea)", p.name),
                   one(cursor, "SELECT outbox.emit('Tested', %s, 'k', '{\"a\": 1}'::jsonb, headers => '{\"h\": \"v\"}')", p.name),
                   one(cursor, "SELECT outbox.emit('Tested', %s, 'k', 'text', schema_name => 's', occurred_at => '2026-01-02Z')", p.name),
                   one(cursor, "SELECT outbox.emit('Tested', %s, 'k', NULL::bytea)", p.name)]
    p.wait_confirmed()
    envelopes = [record.envelope for record in p.records()]
    assert [envelope.id for envelope in envelopes] == emitted == sorted(emitted)
    assert {(uuid.UUID(each).version, uuid.UUID(each).variant) for each in emitted} == {(7, uuid.RFC_4122)}
    assert all(abs((uuid.UUID(each).int >> 80) / 1000 - time.time()) < 3600 for each in emitted), "its time, in milliseconds"
    assert [(e.payload, e.content_type) for e in envelopes] == [
        (b"\x00\xff", ""), (b'{"a": 1}', "application/json"), (b"text", "text/plain; charset=utf-8"), (b"", "")]
    assert dict(envelopes[1].headers) == {"h": "v"} and envelopes[2].schema_name == "s"
    assert envelopes[2].occurred_at.ToDatetime().year == 2026


def test_trace_context_of_the_transaction_is_taken_when_none_is_given(make_pipeline):
    p = make_pipeline().start()
    context, own = f"00-{'a' * 32}-{'b' * 16}-01", f"00-{'c' * 32}-{'d' * 16}-01"
    with p.connected(autocommit=False) as cursor:
        cursor.execute("SET LOCAL outbox.traceparent = %s; SET LOCAL outbox.tracestate = 'vendor=1'", (context,))
        one(cursor, "SELECT outbox.emit('Tested', %s, 'k', 'x')", p.name)
        one(cursor, "SELECT outbox.emit('Tested', %s, 'k', 'x', traceparent => %s, tracestate => 'own=1')", p.name, own)
        cursor.connection.commit()
        one(cursor, "SELECT outbox.emit('Tested', %s, 'k', 'x')", p.name)  # the setting is '' now, not gone
        cursor.connection.commit()
    p.wait_confirmed()
    traces = [(record.envelope.traceparent, record.envelope.tracestate) for record in p.records()]
    assert traces == [(context, "vendor=1"), (own, "own=1"), ("", "")]


# What IsOwnHeader of src/envelope/encoder.cc knows, in all formats.
OWN_HEADERS = ["id", "type", "content-type", "walpost-", "walpost-x", "__value_schema_id", "ce_id", "ce_source", "ce_specversion", "ce_type", "ce_datacontenttype",
               "ce_data", "ce_data_base64", "ce_dataschema", "ce_partitionkey", "ce_recordedtime", "ce_time", "ce_sequence", "ce_sequencetype", "ce_subject", "ce_traceparent",
               "ce_tracestate", "ce-id", "cloudEvents:source", "cloudEvents_type"]

REJECTED = [
    ("'Tested', 'no topic', 'k', 'x'", "events_aggregate_type"),
    ("'Tested', '..', 'k', 'x'", "events_aggregate_type"),
    ("'Tested', repeat('a', 201), 'k', 'x'", "events_aggregate_type"),
    ("'', 'a', 'k', 'x'", "events_text_max"),
    ("'Tested', '__a', 'k', 'x'", "events_aggregate_type"), ("'Tested', 'walpost.a', 'k', 'x'", "events_aggregate_type"),
    ("'Tested', 'a', repeat('k', 1025), 'x'", "events_text_max"),
    ("'Tested', 'a', repeat('\u00e4', 513), 'x'", "events_text_max"),
    ("'Tested', 'a', 'k', 'x', content_type => 'application/cloudevents+json'", "events_content_type"),
    ("'Tested', 'a', 'k', 'x', content_type => E' \\tAPPLICATION/CloudEvents-Batch;a=b'", "events_content_type"),
    ("'Tested', 'a', 'k', repeat('x', 1000001)", "events_payload_max"),
    ("'Tested', 'a', 'k', 'x', headers => '[]'", "events_headers"),
    ("'Tested', 'a', 'k', 'x', headers => '{\"a\": {\"b\": 1}}'", "events_headers"),
    ("'Tested', 'a', 'k', 'x', headers => '{\"a\": 1, \"b\": [1]}'", "events_headers"),
    ("'Tested', 'a', 'k', 'x', headers => '{\"n\": 1e400}'", "events_headers"),
    ("'Tested', 'a', 'k', 'x', headers => '{\"n\": -1e309}'", "events_headers"),
    ("'Tested', 'a', 'k', 'x', headers => jsonb_build_object('a', repeat('x', 16384))", "events_headers"),
    ("'Tested', 'a', 'k', 'x', headers => '{\"\": \"x\"}'", "events_header_names"),
    ("'Tested', 'a', 'k', 'x', headers => '{\"a\": 1, \"walpost-position\": \"f\"}'", "events_header_names"),
    ("'Tested', 'a', 'k', 'x', headers => '{\"id\": \"x\"}'", "events_header_names"),
    ("'Tested', 'a', 'k', 'x', headers => '{\"ce_id\": \"x\"}'", "events_header_names"),
    ("'Tested', 'a', 'k', 'x', content_type => U&'appl\\0130cation/cloudevents+json'", "events_content_type"),
    *((f"'Tested', 'a', 'k', 'x', headers => '{{\"{name}\": \"x\"}}'", "events_header_names") for name in (r"a\u0001", r"a\nb", r"walpost-\nx")),
    ("'Tested', 'a', 'k', 'x', headers => '{\"walpo\\u017ft-x\": \"x\"}'", "events_header_names"),
    ("'Tested', 'a', 'k', 'x', headers => (SELECT jsonb_object_agg(n, '') FROM generate_series(1, 1001) n)", "events_headers"),
    *((f"'Tested', 'a', 'k', 'x', headers => '{{\"a\": 1, \"{name}\": \"x\"}}'", "events_header_names")
      for own in OWN_HEADERS for name in (own, own.upper(), own.title())),
    *((f"'Tested', 'a', 'k', 'x', headers => '{{\"{name}\": \"x\"}}', {name.lower()} => '0'", "events_header_names")
      for name in ("traceparent", "TraceParent", "tracestate", "TRACESTATE")),
    ("'Tested', 'a', 'k', 'x', occurred_at => 'infinity'", "events_occurred_at"),
    ("'Tested', 'a', 'k', 'x', occurred_at => '-infinity'", "events_occurred_at"),
    ("'Tested', 'a', 'k', 'x', occurred_at => '10000-01-01Z'", "events_occurred_at"),
    ("'Tested', 'a', 'k', 'x', occurred_at => '0001-12-31Z BC'", "events_occurred_at"),
    ("'Tested', 'a', 'k', 'x', traceparent => repeat('0', 256)", "events_trace_max"),
]


def test_what_kafka_would_not_take_is_rejected_in_the_transaction_of_the_application(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    outcome = {}
    with p.connected() as cursor:
        for arguments, _ in REJECTED:
            try:
                cursor.execute(f"SELECT outbox.emit({arguments})")
            except psycopg2.errors.CheckViolation as rejected:
                outcome[arguments] = rejected.diag.constraint_name
    assert outcome == dict(REJECTED)


@pytest.mark.smoke
def test_what_the_table_takes_can_be_delivered_at_the_limits_of_all_columns_together(make_pipeline):
    p = make_pipeline().start()
    strange = {"number": 1.5, "large": 10**300, "flag": True, "none": None, "ce_own": "extension", "walpost": "no prefix", "a name": "\U0001f600",
               "text": 'quotes " and : "walpost-x": 1', "Tracestate": None, "x-id": "no end"}
    with p.connected() as cursor:
        cursor.execute("SELECT outbox.emit('Tested', %s, 'k', 'x', headers => %s, occurred_at => '0001-01-01Z')", (p.name, json.dumps(strange)))
        cursor.execute("SELECT outbox.emit('Tested', %s, 'k', 'x', headers => 'null', occurred_at => '9999-12-31 23:59:59.999999Z')", (p.name,))
        # A name in one column, and the most that each of the others may hold.
        cursor.execute("SELECT outbox.emit(repeat('t', 255), %s, repeat('k', 1024), decode(repeat('00', 1000000), 'hex'), content_type => repeat('c', 255),"
                       " schema_name => repeat('s', 512), headers => jsonb_build_object('h', repeat('x', 16374)),"
                       " traceparent => repeat('0', 255), tracestate => repeat('0', 8192))", (p.name,))
    p.wait_confirmed()
    first, second, largest = (record.envelope for record in p.records())
    assert dict(first.headers) == {"number": "1.5", "large": str(10**300), "flag": "true", "ce_own": "extension", "walpost": "no prefix",
                                   "a name": "\U0001f600", "text": 'quotes " and : "walpost-x": 1', "x-id": "no end"}
    assert (first.occurred_at.ToDatetime().year, second.occurred_at.ToDatetime().year) == (1, 9999)
    assert len(largest.payload) == 1000000 and len(largest.headers["h"]) == 16374


@pytest.mark.parametrize("value", [{"format": "raw"}, {"format": "cloudevents"}], ids=["raw", "cloudevents"])
def test_what_the_table_takes_is_delivered_to_the_default_topic_in_formats_that_make_headers_of_headers(make_pipeline, kafka, value):
    p = make_pipeline(create_topic=False, config={"outboxes": [{"table": "outbox.events", "topic": "outbox.event.{aggregate_type}", "value": value}]})
    longest = p.name.ljust(200, "a")
    topic = f"outbox.event.{longest}"
    kafka.create_topic(topic)
    p.start()
    own = {"traceparent": "00-ab", "Tracestate": "x", "ce_own": "y", "a" * 300: "z"}
    many = {str(n): "" for n in range(1000)}
    with p.connected() as cursor:
        emitted = [one(cursor, "SELECT outbox.emit('Tested', %s, 'k', '{}'::jsonb, headers => %s, traceparent => '', tracestate => NULL)", longest, json.dumps(own)),
                   one(cursor, "SELECT outbox.emit('Tested', %s, 'k', '{}'::jsonb, headers => %s, traceparent => '00-cd')", longest,
                       json.dumps({"traceparent": None, "Tracestate": "x"})),
                   one(cursor, "SELECT outbox.emit('Tested', %s, 'k', '{}'::jsonb, headers => %s)", longest, json.dumps(many))]
    p.wait_confirmed(seconds=30)
    records = [dict(message.headers()) for message in kafka.read_all(topic)]
    assert [record["id"].decode() for record in records] == emitted
    assert {name: value.decode() for name, value in records[0].items() if name in own} == own
    assert records[1]["traceparent"] == b"00-cd" and records[1]["Tracestate"] == b"x" and set(many) < set(records[2])


def test_emit_without_a_value_names_the_argument_and_the_limit_of_the_payload_can_be_raised(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    with p.connected() as cursor:
        with pytest.raises(psycopg2.errors.NullValueNotAllowed, match="aggregate_id must have a value"):
            cursor.execute("SELECT outbox.emit('Tested', 'a', NULL, 'x')")
        cursor.execute("SELECT outbox.set_payload_max(2000000)")
        cursor.execute("SELECT outbox.emit('Tested', 'a', 'k', repeat('x', 2000000))")
        with pytest.raises(psycopg2.errors.CheckViolation):
            cursor.execute("SELECT outbox.emit('Tested', 'a', 'k', repeat('x', 2000001))")


def waiting_for_another(p):
    return p.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'", p.database)[0][0]


def test_one_idempotency_key_is_one_event_also_when_two_come_at_once(make_pipeline):
    p = make_pipeline().start()
    emit = "SELECT outbox.emit('Tested', %s, 'k', 'x', idempotency_key => %s)"
    results = {}

    def second(key):
        with p.connected() as cursor:
            results[key] = one(cursor, emit, p.name, key)

    with p.connected(autocommit=False) as first:
        kept = one(first, emit, p.name, "kept")
        assert one(first, emit, p.name, "kept") == kept
        first.connection.commit()
        for key, end in [("committed", first.connection.commit), ("rolled back", first.connection.rollback)]:
            results["first " + key] = one(first, emit, p.name, key)
            other = threading.Thread(target=second, args=(key,))
            other.start()
            servers.wait_for(lambda: waiting_for_another(p) == 1, 30, "the second to wait for the first")
            end()
            other.join(30)
    assert results["committed"] == results["first committed"]
    assert results["rolled back"] != results["first rolled back"]
    p.wait_confirmed()
    assert p.ids() == sorted([kept, results["committed"], results["rolled back"]]) == p.stored_ids()

    p.execute("UPDATE outbox.idempotency SET created_at = now() - interval '8 days' WHERE key = 'kept'")
    assert p.execute("SELECT outbox.forget_keys()")[0][0] == 1
    with p.connected() as cursor:
        assert one(cursor, emit, p.name, "kept") != kept
        assert one(cursor, emit, p.name, "committed") == results["committed"]


def test_another_schema_holds_everything(make_pipeline):
    p = make_pipeline(config={"outboxes": [{"table": "shop.events"}]})
    p.walpost.verb("init", "--schema", "shop")
    assert p.execute("SELECT to_regnamespace('outbox')") == [(None,)]
    p.walpost.start()
    with p.connected() as cursor:
        emitted = one(cursor, "SELECT shop.emit('Tested', %s, 'k', 'x')", p.name)
        cursor.execute("SELECT * FROM shop.maintain()")
    p.wait_confirmed()
    assert p.ids() == [emitted]
    other_id = p.another(config={"outboxes": [{"table": "shop.events", "columns": {"id": "traceparent"}}]})
    assert other_id.verb("init", "--schema", "shop", check=False).returncode == 78
    wrong = p.walpost.verb("init", "--schema", "My Shop", check=False)
    assert wrong.returncode == 64 and "needs no quotes" in wrong.stderr


# The way from a plain table to a partitioned one.
def test_second_schema_is_made_beside_the_first(make_pipeline):
    p = make_pipeline()
    p.walpost.verb("init", "--plain-table")
    p.walpost.start()
    both = p.another(config={"outboxes": [{"table": "outbox.events"}, {"table": "shop.events"}]})
    made = both.verb("init", "--schema", "shop", check=False)
    assert made.returncode == 78 and "ADD TABLE" in made.stderr
    with p.connected() as cursor:
        cursor.execute(f"ALTER PUBLICATION {p.name} ADD TABLE shop.events")
    both.verb("init", "--schema", "shop")
    assert p.walpost.stop() == 0
    both.start()
    p.walpost = both
    with p.connected() as cursor:
        emitted = [one(cursor, "SELECT outbox.emit('Tested', %s, 'k', 'x')", p.name), one(cursor, "SELECT shop.emit('Tested', %s, 'k', 'x')", p.name)]
        assert one(cursor, "SELECT relkind::text FROM pg_class WHERE oid = 'shop.events'::regclass") == "p"
    p.wait_confirmed()
    assert p.ids() == sorted(emitted)


def test_roles_have_the_rights_they_need_and_no_more(make_pipeline):
    p = make_pipeline()
    p.walpost.verb("init", "--with-roles")
    p.walpost.verb("init", "--with-roles")  # again, after the next version
    relay = p.another(conninfo=p.postgres.conninfo(p.database, user="outbox_relay"))
    relay.start()
    with p.connected() as cursor:
        def may_not(statement):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(statement)

        cursor.execute("SET ROLE outbox_writer")
        emitted = [one(cursor, "SELECT outbox.emit('Tested', %s, 'k', 'x')", p.name),
                   one(cursor, "SELECT outbox.emit('Tested', %s, 'k', 'x', idempotency_key => 'once')", p.name)]
        cursor.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'Tested')", (p.name,))
        may_not("SELECT count(*) FROM outbox.events")
        may_not("DELETE FROM outbox.events")
        may_not("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at) VALUES ('a', 'k', 't', now())")
        may_not("INSERT INTO outbox.events_default (aggregate_type, aggregate_id, event_type) VALUES ('a', 'k', 't')")
        may_not("SELECT * FROM outbox.maintain()")
        may_not("SELECT * FROM walpost.pipeline")
        may_not("CREATE TEMPORARY TABLE bait (id uuid, created_at timestamptz);"
                "CREATE TRIGGER t AFTER INSERT ON bait FOR EACH ROW EXECUTE FUNCTION outbox.forget()")
        cursor.execute("RESET ROLE; SET ROLE outbox_relay")
        assert one(cursor, "SELECT count(*) FROM outbox.events") == 3
        may_not("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('a', 'k', 't')")
        may_not("UPDATE walpost.pipeline SET name = 'x'")
        cursor.execute("UPDATE walpost.pipeline SET delivered_lsn = NULL")
        cursor.execute("RESET ROLE; SET ROLE outbox_owner")
        cursor.execute("SELECT * FROM outbox.maintain(ahead => '10 days')")
        assert len(cursor.fetchall()) > 0
    servers.wait_for(lambda: len(p.records()) == 3, 60, "three events")
    assert set(emitted) < {record.id for record in p.records()}
    assert "0 missing of 3" in relay.verb("audit").stdout
    relay.stop()
    relay.start()
    assert p.execute("SELECT delivered_lsn IS NOT NULL FROM walpost.pipeline") == [(True,)]
    # Rows that are hidden from who reads them must not be taken for none.
    p.execute("ALTER TABLE outbox.events ENABLE ROW LEVEL SECURITY")
    for verb in (["audit"], ["replay", "--missing", "--dry-run"]):
        hidden = relay.verb(*verb, check=False)
        assert hidden.returncode == 77 and "row-level security" in hidden.stderr
