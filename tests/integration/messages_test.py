"""Logical messages as events: with rows in one transaction, from SQL and from a generated class, and what is wrong with some."""

import contextlib
import re
import struct
import threading

import park_order_test
import psycopg2
import psycopg2.errors
import pytest
import servers
from psycopg2.extras import Json
from rejecting import dead_letters
from rare import first

PREFIXES = {"messages": {"prefixes": ["shop", "billing"]}}


def started(make_pipeline, config=None, **options):
    p = make_pipeline(config={**PREFIXES, **(config or {})}, **options)
    p.walpost.verb("init", "--with-messages")
    p.walpost.start()
    return p


def emit(cursor, p, key="key", payload="x", prefix="shop", **more):
    """The event's id."""
    names = "".join(f", {name} => %({name})s" for name in more)
    cursor.execute(f"SELECT outbox.emit_message('Tested', %(topic_)s, %(key_)s, %(payload_)s, prefix => %(prefix_)s{names})::text",
                   {"topic_": p.name, "key_": key, "payload_": payload, "prefix_": prefix, **more})
    return cursor.fetchone()[0]


def insert(cursor, p, key="key"):
    cursor.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type)"
                   " VALUES (gen_random_uuid(), %s, %s, 'Tested') RETURNING id::text", (p.name, key))
    return cursor.fetchone()[0]


def emit_bytes(cursor, content, prefix="shop", transactional=True):
    cursor.execute("SELECT pg_logical_emit_message(%s, %s, %s::bytea)", (transactional, prefix, psycopg2.Binary(content)))


def test_messages_are_emitted_in_a_session_in_which_a_backslash_escapes(make_pipeline):
    p = started(make_pipeline)
    with p.connected() as cursor:
        cursor.execute("SET standard_conforming_strings = off; SET escape_string_warning = off")
        sent = [emit(cursor, p, payload="x" * size, headers=Json({"h": "v"})) for size in (1, 100, 20_000, 500_000)]
    p.wait_confirmed()
    assert [record.id for record in p.records()] == sent


# Failure 56.
def test_rows_and_messages_of_one_transaction_arrive_in_its_order_and_nothing_that_was_rolled_back(make_pipeline):
    p = started(make_pipeline)
    with contextlib.closing(p.postgres.connect(p.database, autocommit=False)) as connection, connection.cursor() as cursor:
        sent = [insert(cursor, p), emit(cursor, p)]
        cursor.execute("SAVEPOINT undone")
        emit(cursor, p)
        insert(cursor, p)
        cursor.execute("ROLLBACK TO undone")
        sent += [emit(cursor, p, prefix="billing"), insert(cursor, p)]
        cursor.execute("SAVEPOINT kept")
        emit_bytes(cursor, b"of another application", prefix="audit")
        emit_bytes(cursor, b"at once, whatever becomes of the transaction", transactional=False)
        sent.append(emit(cursor, p))
        cursor.execute("RELEASE kept")
        connection.commit()
        emit(cursor, p)
        connection.rollback()
        last = emit(cursor, p)
        connection.commit()
    p.wait_confirmed()
    records = p.records()
    assert [record.id for record in records] == [*sent, last]
    assert [record.position[1] for record in records] == [0, 1, 2, 3, 4, 0], "the message of another prefix does not count"
    assert len({record.position[0] for record in records[:-1]}) == 1 and records[-1].position > records[0].position
    assert [(record.envelope.source.schema, record.envelope.source.table) for record in records[:3]] == [
        ("outbox", "events"), ("", "shop"), ("", "billing")]
    received = p.walpost.status()["events"]["by_table"]
    assert received == {"outbox.events": 2, "message:shop": 3, "message:billing": 1}


def contents(p, slot):
    """What the messages since the last call hold, by the prefix 'shop'."""
    rows = p.execute("SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
                     " 'publication_names', %s, 'messages', 'true')", slot, p.name)
    found = []
    for (data,) in rows:
        data = bytes(data)
        if data[:1] == b"M":
            end = data.index(b"\0", 10)
            (size,) = struct.unpack(">I", data[end + 1:end + 5])
            found.append(data[end + 5:])
            assert len(found[-1]) == size
    return found


ODD = [
    {},
    {"key": None, "payload": None},
    {"key": "", "payload": b""},
    {"key": "ключ 😀", "payload": "Grüße\n\\ '", "schema_name": "é", "traceparent": "00-a", "tracestate": "a=b"},
    {"payload": bytes(range(256)), "content_type": "application/octet-stream"},
    {"payload": b"x" * 127},
    {"payload": b"x" * 128},
    {"payload": b"x" * 16_383},
    {"payload": b"x" * 16_384},
    {"key": "k" * 127, "content_type": "c" * 128, "tracestate": "t" * 20_000},
    {"key": "ü" * 64},
    {"payload": b"\xff" * 300_000},
    {"payload": Json({"a": [1, None, "é"]})},
    {"headers": Json({"text": "é", "number": 1.50, "large": 12345678901234567890, "yes": True, "none": None, "empty": ""})},
    {"headers": Json({})},
    {"occurred_at": "1969-12-31 23:59:58.999999+00"},
    {"occurred_at": "1970-01-01 00:00:00+00"},
    {"occurred_at": "0001-01-01 00:00:00+00"},
    {"occurred_at": "9999-12-31 23:59:59.999999+00"},
    {"occurred_at": "2026-02-28 12:00:00.000001+05"},
    {"partition": 0},
    {"partition": 3},
    {"id": "3f2504e0-4f89-11d3-9a0c-0305e82c3301"},
]


def test_what_sql_builds_is_what_the_generated_class_reads_and_writes(make_pipeline, kafka):
    p = started(make_pipeline)
    generated = servers.load_proto("outbox_message").OutboxMessage
    p.execute("SELECT pg_create_logical_replication_slot('probe', 'pgoutput')")
    expected = []
    with p.connected() as cursor:
        for odd in [*ODD, {"topic": p.name}]:
            arguments = dict(odd)
            payload = arguments.get("payload", "x")
            message = generated(type="Tested", aggregate_type=p.name)
            if isinstance(payload, Json):
                cursor.execute("SELECT %s::jsonb::text", (payload,))
                message.payload = cursor.fetchone()[0].encode()
                message.content_type = "application/json"
                cursor.execute("SELECT outbox.emit_message('Tested', %s, 'key', %s::jsonb, prefix => 'shop')::text", (p.name, payload))
                message.aggregate_id = "key"
                message.id = cursor.fetchone()[0]
                expected.append(message)
                continue
            if isinstance(payload, bytes):
                message.payload = payload
                arguments["payload"] = psycopg2.Binary(payload)
            elif payload is not None:
                message.payload = payload.encode()
            if arguments.get("key", "key") is not None:
                message.aggregate_id = arguments.get("key", "key")
            for name in ("content_type", "schema_name", "traceparent", "tracestate", "topic", "partition"):
                if name in arguments:
                    setattr(message, name, arguments[name])
            for name, value in (arguments["headers"].adapted.items() if "headers" in arguments else ()):
                if value is not None:
                    message.headers[name] = {True: "true"}.get(value, str(value)) if name != "number" else "1.5"
            if "occurred_at" in arguments:
                cursor.execute("SELECT extract(epoch FROM %s::timestamptz)", (arguments["occurred_at"],))
                micros = int(cursor.fetchone()[0] * 1_000_000)
                message.occurred_at.SetInParent()
                message.occurred_at.seconds, message.occurred_at.nanos = micros // 1_000_000, micros % 1_000_000 * 1_000
            message.id = emit(cursor, p, **arguments)
            expected.append(message)
    assert [generated.FromString(content) for content in contents(p, "probe")] == expected
    p.execute("SELECT pg_drop_replication_slot('probe')")
    p.wait_confirmed()
    records = {record.id: record for record in p.records()}
    assert len(records) == len(expected)
    for message in expected:
        record = records[message.id]
        assert record.key == (message.aggregate_id if message.HasField("aggregate_id") else None)
        envelope = record.envelope
        for name in ("type", "aggregate_type", "payload", "content_type", "schema_name", "traceparent", "tracestate", "occurred_at"):
            assert getattr(envelope, name) == getattr(message, name), name
        assert envelope.HasField("payload") == message.HasField("payload")
        assert dict(envelope.headers) == dict(message.headers)
        assert not message.HasField("partition") or record.partition == message.partition


def test_applications_generated_class_needs_no_sql_function(make_pipeline):
    p = started(make_pipeline)
    message = servers.load_proto("outbox_message").OutboxMessage(
        id="any text", type="Tested", aggregate_type=p.name, aggregate_id="key", payload=b"\0\1", headers={"a": "b"})
    with p.connected() as cursor:
        emit_bytes(cursor, message.SerializeToString())
    p.wait_confirmed()
    (record,) = p.records()
    assert record.id == "any text" and record.envelope.payload == b"\0\1" and dict(record.envelope.headers) == {"a": "b"}


def test_pipeline_needs_no_table(make_pipeline):
    p = started(make_pipeline, config={"outboxes": []})
    assert p.execute("SELECT to_regclass('outbox.events')") == [(None,)]
    first = p.walpost.verb("emit", "--aggregate-type", p.name).stdout.strip()
    p.walpost.stop()
    second = p.walpost.verb("emit", "--message", "--aggregate-type", p.name).stdout.strip()
    p.walpost.start()
    p.wait_confirmed()
    assert [record.id for record in p.records()] == [first, second]
    assert p.walpost.verb("check").returncode == 0


def test_malformed_message_halts_and_names_where_it_is(make_pipeline, kafka):
    kafka.create_topic("dead-passed", 1)  # shows what is skipped below
    p = started(make_pipeline, config={"messages": {**PREFIXES["messages"], "on_undeliverable": "halt"},
                                       "delivery": {}})
    with p.connected() as cursor:
        first = emit(cursor, p)
        emit_bytes(cursor, b"no protobuf, a secret")
        second = emit(cursor, p)
    p.walpost.wait_state("halted")
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "undeliverable_event" and "prefix 'shop'" in halt["detail"]
    assert "secret" not in p.walpost.log_text()
    assert [record.id for record in p.records()] == [first]
    commit = re.search(r"commit LSN ([0-9A-F]+/[0-9A-F]+)", halt["detail"])[1]
    p.walpost.verb("slot", "advance", "--to", commit, "--yes")
    p.walpost.signal(1)
    p.wait_confirmed()
    assert [record.id for record in p.records()] == [first, second]


def test_dead_letter_of_a_malformed_message_keeps_what_no_table_has(make_pipeline, kafka):
    p = started(make_pipeline, config={"delivery": {"on_undeliverable": "dead_letter"}})
    with p.connected() as cursor:
        emit_bytes(cursor, b"\x0a\x02e1 cut")
        event = emit(cursor, p)
    p.wait_confirmed()
    assert [record.id for record in p.records()] == [event]
    ((row, key, value),) = dead_letters(p)
    assert row["reason"] == "message_malformed" and row["source"] == "message:shop"
    assert key is None and value == b"\x0a\x02e1 cut"
    logged = [line for line in p.walpost.log_events() if line["event"] == "event_dead_lettered"]
    assert logged[0]["table"] == "message:shop"
    assert p.walpost.verb("dlq", "show", "--payload", row["position"]).stdout.startswith("\n\x02e1 cut")
    rejected = p.walpost.verb("dlq", "retry", "--all-undecided", "--to-topic", p.name, check=False)
    assert rejected.returncode != 0 and "have the application emit it" in rejected.stdout + rejected.stderr
    assert len(p.records()) == 1
    p.walpost.verb("dlq", "discard", "--all-undecided", "--yes")


def test_message_too_large_for_its_topic_is_sent_again_as_it_was(make_pipeline, kafka):
    p = started(make_pipeline, config={"delivery": {"on_undeliverable": "dead_letter"}})
    with p.connected() as cursor:
        event = emit(cursor, p, payload="x" * 2_000_000)
    p.wait_confirmed()
    assert p.records() == []
    kafka.alter_topic(p.name, {"max.message.bytes": "10000000"})
    p.walpost.verb("dlq", "retry", "--all-undecided")
    (record,) = p.records()
    assert record.id == event and len(record.envelope.payload) == 2_000_000


# One of 1 GB is written by PostgreSQL before 16, and can never be read back.
def test_message_that_could_stop_every_slot_is_rejected(make_pipeline):
    p = started(make_pipeline)
    with p.connected() as cursor:
        with pytest.raises(psycopg2.errors.ProgramLimitExceeded, match="67108864"):
            emit(cursor, p, payload="x" * (64 << 20))
        with pytest.raises(psycopg2.errors.ProgramLimitExceeded, match="67108864"):
            emit(cursor, p, payload=None, schema_name="x" * (64 << 20))
        event = emit(cursor, p)
    p.wait_confirmed()
    assert [record.id for record in p.records()] == [event]


# Readers of CloudEvents' binary mode would believe a whole event that stands in the payload.
def test_content_type_of_a_whole_cloud_event_is_rejected(make_pipeline):
    p = started(make_pipeline)
    with p.connected() as cursor:
        for content_type in ("application/cloudevents+json", "\tApplication/CloudEvents-Batch", "\u2003application/cloudevents"):
            with pytest.raises(psycopg2.errors.InvalidParameterValue, match="application/cloudevents"):
                emit(cursor, p, content_type=content_type)
        event = emit(cursor, p, content_type="application/json")
    p.wait_confirmed()
    assert [record.id for record in p.records()] == [event]


# A message is in no table, so the dead letter has to have all of it.
def test_large_message_that_its_topic_rejected_is_sent_again(make_pipeline, kafka):
    p = started(make_pipeline, config={"delivery": {"on_undeliverable": "dead_letter"}})
    kafka.alter_topic(p.name, {"max.message.bytes": "200000"})
    with p.connected() as cursor:
        event = emit(cursor, p, payload="x" * 9_000_000)
    p.wait_confirmed()
    assert p.records() == []
    kafka.alter_topic(p.name, {"max.message.bytes": "60000000"})
    p.walpost.verb("dlq", "retry", "--id", event)
    assert [record.id for record in p.records()] == [event]


def test_truncated_message_cannot_be_sent_again_and_says_so(make_pipeline, kafka):
    p = started(make_pipeline, config={"source": {"event_bytes_max": "1MiB"}, "delivery": {"on_undeliverable": "dead_letter"}})
    with p.connected() as cursor:
        event = emit(cursor, p, payload="x" * 2_000_000)
    p.wait_confirmed()
    ((row, _, value),) = dead_letters(p)
    assert row["event_id"] == event and row["source"] == "message:shop" and value is None
    rejected = p.walpost.verb("dlq", "retry", "--id", event, check=False)
    assert rejected.returncode != 0 and "it was a logical message, which is in no table" in rejected.stdout + rejected.stderr


def configured(p, *prefixes):
    """The same pipeline with other prefixes."""
    p.walpost.stop()
    p.walpost = p.another(config={**p.options["config"], "messages": {"prefixes": list(prefixes)}})
    return p.walpost


# Failure 56.
def test_prefix_that_is_not_configured_any_more_halts_until_it_is_or_is_given_up(make_pipeline):
    p = started(make_pipeline)
    with p.connected() as cursor:
        emit(cursor, p)
        p.wait_confirmed()
        configured(p, "billing").start(wait="halted")
        halt = p.walpost.status()["halt"]
        assert halt["reason"] == "init_incomplete" and "'shop'" in halt["detail"] and "messages.prefixes" in halt["detail"]
        assert p.walpost.verb("check", check=False).returncode == 78
        emit(cursor, p)  # waits in the slot
        configured(p, "billing", "shop").start()
        p.wait_confirmed()
        assert len(p.records()) == 2

        configured(p, "billing").verb("init", "--with-messages")
        with pytest.raises(psycopg2.Error, match="walpost does not read messages with prefix 'shop'"):
            emit(cursor, p)
        p.walpost.start(wait="halted")
        halt = p.walpost.status()["halt"]
        assert halt["reason"] == "init_incomplete" and "prefix 'shop'" in halt["detail"] and "slot advance --yes" in halt["detail"]
        p.walpost.verb("slot", "advance", "--yes")
        p.walpost.signal(1)
        emit(cursor, p, prefix="billing")
        p.wait_confirmed()
        assert len(p.records()) == 3


def test_prefix_is_not_added_while_events_with_dead_letters_come_again(make_pipeline, kafka):
    """Their ordinals would count its messages."""
    p = park_order_test.held_back(make_pipeline, kafka)
    before = p.walpost
    added = configured(p, "shop")
    init = added.verb("init", "--with-messages", check=False)
    assert init.returncode == 78 and "walpost.dead_letters has 1 rows" in init.stderr, init.stderr
    assert p.execute("SELECT prefixes FROM walpost.pipeline") == [([],)]
    added.start(wait="halted")
    halt = added.status()["halt"]
    assert halt["reason"] == "init_incomplete" and "prefix 'shop'" in halt["detail"]
    added.stop()
    advance = added.verb("slot", "advance", "--yes", check=False)
    assert advance.returncode == 78 and "walpost.dead_letters has 1 rows" in advance.stderr, advance.stderr
    before.start()
    kafka.create_topic(f"missing-{p.name}", 1)
    p.walpost = before
    p.wait_confirmed()
    p.walpost = added
    before.stop()
    added.verb("init", "--with-messages")
    added.start()


def parked_behind(make_pipeline, kafka, unknown_topic_wait="10s", properties=None, **message):
    """Of one key: "e1", which is parked, a message and "e2"."""
    p = make_pipeline(on_kafka=kafka, create_topic=False, properties=properties, config={
        "messages": {"prefixes": ["shop"], "topic": "{aggregate_type}", "topics": {"allowed": ["*"]}},
        "delivery": {"on_undeliverable": "park", "unknown_topic_wait": unknown_topic_wait}})
    kafka.create_topic(p.name, 1)
    p.walpost.verb("init", "--with-messages")
    p.walpost.start()
    p.execute("ALTER TABLE outbox.events DROP CONSTRAINT events_check")
    park_behind(p, **message)
    return p


def park_behind(p, key="k", **message):
    before = park_order_test.open_rows(p)
    park_order_test.insert(p, "e1", key, bad=True)
    servers.wait_for(lambda: park_order_test.open_rows(p) == before + 1, 60, "the row")
    headers = message.pop("headers", {})
    made = servers.load_proto("outbox_message").OutboxMessage(id="m" if key == "k" else f"m-{key}", type="m", aggregate_type=p.name, aggregate_id=key, **message)
    made.headers.update(headers)
    with p.connected() as cursor:
        emit_bytes(cursor, made.SerializeToString())
    park_order_test.insert(p, "e2", key)
    servers.wait_for(lambda: park_order_test.open_rows(p) == before + 3, 60, "the rows")


@pytest.mark.parametrize("message", first(1, [{"headers": {"walpost-x": "1"}}, {"partition": 9999}]), ids=["no event", "no partition"])
def test_message_that_cannot_be_delivered_keeps_no_key_parked(make_pipeline, kafka, message):
    """Who may emit messages could keep the key of somebody else parked for as long as he likes."""
    p = parked_behind(make_pipeline, kafka, **message)
    park_order_test.correct(p)
    p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "60s", check=False)  # of the message it says that it failed
    servers.wait_for(lambda: park_order_test.types(p) == ["e1", "e2"], 60, "the events before and behind it")
    park_order_test.insert(p, "e3")
    servers.wait_for(lambda: park_order_test.types(p) == ["e1", "e2", "e3"], 60, "an event after them")
    assert p.execute("SELECT event_id, parked FROM walpost.dead_letters WHERE closed_at IS NULL") == [("m", False)]


def test_message_about_which_nobody_has_decided_is_not_overtaken(make_pipeline, kafka):
    p = parked_behind(make_pipeline, kafka)
    p.walpost.verb("dlq", "discard", "--position", p.execute("SELECT position FROM walpost.dead_letters WHERE seq = 1")[0][0],
                   "--yes", "--wait", "60s")
    p.execute("UPDATE walpost.dead_letters SET decision = 'retry' WHERE event_type = 'e2'")
    servers.wait_for(lambda: "nobody has decided" in p.execute("SELECT detail FROM walpost.dead_letters WHERE event_id = 'm'")[0][0],
                     60, "the retry to fail")
    assert park_order_test.types(p) == []
    assert p.execute("SELECT parked FROM walpost.dead_letters WHERE closed_at IS NULL") == [(True,)] * 2


EMIT_TRANSACTIONS = """DO $$
DECLARE t bigint; e uuid;
BEGIN
  FOR t IN {first}..{last} LOOP
    e := outbox.emit_message('Tested', '{topic}', 'key-' || t % 20, 'event ' || t, prefix => 'shop');
    INSERT INTO sent (id, key) VALUES (e, 'key-' || t % 20);
    IF t % 3 = 0 THEN
      INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type)
        VALUES (gen_random_uuid(), '{topic}', 'key-' || t % 20, 'Tested') RETURNING id INTO e;
      INSERT INTO sent (id, key) VALUES (e, 'key-' || t % 20);
    END IF;
    IF t % 50 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
  END LOOP;
END $$"""


def emit_transactions(p, first, last):
    p.execute(EMIT_TRANSACTIONS.format(first=first, last=last, topic=p.name))


def kill_after(p, count):
    """Once so many events were delivered since walpost's own start."""
    servers.wait_for(lambda: (status := p.walpost.status()) and status["events"]["delivered"] >= count, 120, f"{count} events delivered")
    p.walpost.kill9()


# Failure 81.
def test_kill_loses_and_reorders_no_message(make_pipeline):
    p = started(make_pipeline)
    p.execute("CREATE TABLE sent (id uuid PRIMARY KEY, key text, seq bigint GENERATED ALWAYS AS IDENTITY)")
    p.committed = lambda: {row[0]: (row[1], row[2]) for row in p.execute("SELECT id::text, key, seq FROM sent")}
    writer = threading.Thread(target=emit_transactions, args=(p, 1, 5_000))
    writer.start()
    kill_after(p, 500)
    writer.join()
    emit_transactions(p, 5_001, 10_000)
    p.walpost.start()
    kill_after(p, 1_000)  # the events of the second half were all still to be sent
    p.walpost.start()
    p.wait_confirmed()
    assert len(p.committed()) > 10_000
    p.judge()


def test_newest_event_of_a_key_in_a_compacted_topic_is_a_message_then_no_older_row_is_sent(make_pipeline):
    p = make_pipeline(config={"messages": {"prefixes": ["ev"]}})
    p.walpost.verb("init", "--with-messages")
    p.walpost.start()
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, 'k', 'T', 'row')", p.name)
    p.wait_confirmed()
    p.execute("SELECT outbox.emit_message('T', %s, 'k', 'message'::text)", p.name)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    p.kafka.compact(p.name)
    before = [message.value() for message in p.kafka.read_all(p.name)]
    assert len(before) == 1
    rejected = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 78 and p.name in rejected.stderr, rejected
    assert [message.value() for message in p.kafka.read_all(p.name)] == before


# Also in schema outbox other things may stand.
def test_messages_are_emitted_after_roles_came_behind_the_revoke(make_pipeline, workspace):
    p = make_pipeline(on_postgres=workspace.postgres(), config={"messages": {"prefixes": ["m"]}})
    p.walpost.verb("init", "--with-messages", "--revoke-emit")
    p.execute("CREATE PROCEDURE outbox.mine() LANGUAGE sql AS ''; CREATE AGGREGATE outbox.total(int) (sfunc = int4pl, stype = int)")
    p.walpost.verb("init", "--with-messages", "--with-roles")
    p.execute("CREATE ROLE emitter LOGIN IN ROLE outbox_writer")
    emit = "SELECT outbox.emit_message('Tested', 'a', 'k', 'x')"
    with p.postgres.connect(p.database, user="emitter") as connection, connection.cursor() as cursor:
        cursor.execute(emit)
    assert "emit_message fails" not in p.walpost.verb("check", check=False).stdout
    for revoke, in p.execute("SELECT format('REVOKE EXECUTE ON FUNCTION %s FROM outbox_owner', oid::regprocedure) FROM pg_proc WHERE proname = 'pg_logical_emit_message'"):
        p.execute(revoke)
    assert "emit_message fails" in p.walpost.verb("check", check=False).stdout
