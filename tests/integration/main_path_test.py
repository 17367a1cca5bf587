"""What walpost is for: committed rows become records, in order, and the slot moves on."""

import json
import re
import uuid

import pytest
import servers


# Failure 43.
@pytest.mark.smoke
def test_committed_events_arrive_and_rolled_back_ones_do_not(make_pipeline):
    p = make_pipeline().start()
    p.insert_transactions(1, 300, rows=3, rolled_back_every=3)
    connection = p.postgres.connect(p.database, autocommit=False)
    with connection.cursor() as cursor:
        insert = "INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES (%s, %s, 'key-0', 'Saved')"
        kept, dropped = str(uuid.uuid4()), str(uuid.uuid4())
        cursor.execute(insert, (kept, p.name))
        cursor.execute("SAVEPOINT s")
        cursor.execute(insert, (dropped, p.name))
        cursor.execute("ROLLBACK TO s")
    connection.commit()
    p.wait_confirmed()
    assert p.judge() == 0
    ids = {record.id for record in p.records()}
    assert kept in ids and dropped not in ids
    assert len(ids) == 601


@pytest.mark.smoke
def test_every_column_reaches_the_envelope_and_the_headers(make_pipeline):
    p = make_pipeline().start()
    event = "0f9ac1d2-5a41-4a6c-9d0e-3f0b5a9e7c11"
    p.execute(
        """INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, content_type, schema_name,
               headers, traceparent, tracestate, occurred_at)
           VALUES (%s, %s, 'Ärger 7', 'OrderPlaced', '\\x000aff', 'application/protobuf', 'shop.v1.Order',
               '{"tenant": "a b", "n": 7}', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', 'x=y',
               '2026-01-02 03:04:05.678901+00')""", event, p.name)
    p.wait_confirmed()
    (record,) = p.records()
    envelope = record.envelope
    system, timeline = p.execute("SELECT system_identifier, timeline_id FROM pg_control_system(), pg_control_checkpoint()")[0]
    assert (envelope.id, envelope.type, envelope.aggregate_type, envelope.aggregate_id) == (
        event, "OrderPlaced", p.name, "Ärger 7")
    assert (envelope.payload, envelope.content_type, envelope.schema_name) == (
        b"\x00\x0a\xff", "application/protobuf", "shop.v1.Order")
    assert dict(envelope.headers) == {"tenant": "a b", "n": "7"}
    assert envelope.occurred_at.ToJsonString() == "2026-01-02T03:04:05.678901Z"
    assert envelope.traceparent.startswith("00-4bf92f") and envelope.tracestate == "x=y"
    assert (envelope.source.database, envelope.source.schema, envelope.source.table) == (p.database, "outbox", "events")
    assert (envelope.source.system_identifier, envelope.source.timeline) == (system % 2**64, timeline)
    assert record.key == "Ärger 7"
    assert record.headers["id"] == event.encode()
    assert record.headers["type"] == b"OrderPlaced"
    assert record.headers["traceparent"].startswith(b"00-4bf92f")
    assert record.headers["walpost-position"].decode() == (
        f"{system % 2**64:016x}-{timeline:08x}-{record.position[0]:016x}-{record.position[1]:08x}")


def test_a_key_goes_where_java_producers_put_it(make_pipeline):
    p = make_pipeline(partitions=7).start()
    p.insert(1, 200, keys=50)
    p.wait_confirmed()

    def murmur2(data):
        mask, m = 0xFFFFFFFF, 0x5BD1E995
        h = (0x9747B28C ^ len(data)) & mask
        whole = len(data) // 4 * 4
        for i in range(0, whole, 4):
            k = int.from_bytes(data[i:i + 4], "little") * m & mask
            k = (k ^ k >> 24) * m & mask
            h = (h * m & mask) ^ k
        if whole < len(data):
            h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
        h = (h ^ h >> 13) * m & mask
        return h ^ h >> 15

    for record in p.records():
        assert record.partition == (murmur2(record.key.encode()) & 0x7FFFFFFF) % 7


# Failure 50.
def test_two_tables_have_their_own_mappings(make_pipeline, kafka):
    kafka.create_topic("audit.log", 1)
    p = make_pipeline(config={"outboxes": [
        {"table": "outbox.events"},
        {"table": "public.journal", "columns": {"id": ["uid", "id"], "aggregate_type": [], "key": "account", "type": "kind", "payload": "body"},
         "topic": "audit.log"}]})
    p.execute("CREATE TABLE journal (id serial PRIMARY KEY, account text, kind text NOT NULL, body jsonb)")
    p.start()
    p.insert(1, 5)
    p.execute("INSERT INTO journal (account, kind, body) VALUES ('a-1', 'Debited', '{\"n\": 1}')")
    p.wait_confirmed()
    assert p.judge() == 0
    (message,) = kafka.read_all("audit.log")
    envelope = servers.load_envelope().FromString(message.value())
    assert (envelope.id, envelope.type, envelope.aggregate_id, json.loads(envelope.payload)) == ("1", "Debited", "a-1", {"n": 1})


def test_updates_and_deletes_are_no_events(make_pipeline):
    p = make_pipeline().start()
    p.insert(1, 10)
    p.execute("UPDATE outbox.events SET event_type = 'Changed'")
    p.wait_confirmed()
    before = len(p.records())
    committed = p.committed()
    p.execute("DELETE FROM outbox.events")
    p.execute("TRUNCATE outbox.events")
    p.wait_confirmed()
    assert before == 10 == len(p.records()) == len(committed)


# Failure 34.
@pytest.mark.smoke
def test_a_column_added_while_streaming_is_bound_by_name(make_pipeline):
    p = make_pipeline().start()
    p.insert(1, 5)
    p.execute("BEGIN; ALTER TABLE outbox.events ADD COLUMN extra int DEFAULT 7; ALTER TABLE outbox.events DROP COLUMN tracestate;"
              f" INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES (gen_random_uuid(), '{p.name}',"
              " 'key-1', 'After'); COMMIT")
    p.wait_confirmed()
    assert p.judge() == 0
    assert sum(record.envelope.type == "After" for record in p.records()) == 1


def test_no_sql_reaches_the_server_while_streaming(make_pipeline, workspace):
    postgres = workspace.postgres(settings={"log_statement": "all", "log_replication_commands": "on", "log_min_messages": "log",
                                            "log_line_prefix": "'%p [%a] '"})
    p = make_pipeline(on_postgres=postgres).start()
    p.insert_transactions(1, 500)
    p.wait_confirmed()
    pid = p.slot()["pid"]
    p.walpost.stop()
    lines = [line for line in postgres.log.read_text(encoding="utf-8").splitlines() if line.startswith(f"{pid} [")]
    start = next(i for i, line in enumerate(lines) if "START_REPLICATION" in line and "statement:" not in line)
    preflight = [line for line in lines[:start] if "statement:" in line]
    streaming = [line for line in lines[start + 1:] if "statement:" in line or "received replication command" in line]
    assert preflight, "the log shows statements at all"
    # START itself may be logged a second time, as a statement.
    assert [line for line in streaming if "START_REPLICATION" not in line] == []


# Failure 44.
def test_an_idle_outbox_in_a_busy_database_keeps_confirming(make_pipeline):
    p = make_pipeline().start()
    p.execute("CREATE TABLE noise (n bigint, t text)")
    confirmed = [p.slot()["confirmed"]]
    for _ in range(3):
        p.execute("INSERT INTO noise SELECT n, repeat('x', 100) FROM generate_series(1, 20000) n")
        p.wait_confirmed(seconds=60)
        confirmed.append(p.slot()["confirmed"])
    assert confirmed == sorted(set(confirmed))
    assert p.walpost.status()["events"]["received"] == 0
    assert p.execute("SELECT count(*) FROM pg_class WHERE relname LIKE '%%heartbeat%%'") == [(0,)]


# Failure 80.
@pytest.mark.smoke
def test_sigterm_under_load_ends_0_and_the_next_start_repeats_nothing(make_pipeline):
    p = make_pipeline().start()
    p.insert_transactions(1, 20000)
    p.walpost.wait_delivered(1000)
    assert p.walpost.stop() == 0
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
    p.insert_transactions(20001, 21000)
    p.walpost.start()
    p.wait_confirmed()
    assert p.judge() == 0
    assert p.walpost.stop() == 0


def test_preset_debezium_sends_what_its_event_router_sends(make_pipeline, kafka):
    kafka.create_topic("outbox.event.order", 4)
    p = make_pipeline(create_topic=False, config={"outboxes": [{"table": "public.outbox", "preset": "debezium"}]})
    p.execute("CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255),"
              " type varchar(255), payload jsonb)")
    p.start()
    p.execute("INSERT INTO outbox VALUES ('0f9ac1d2-5a41-4a6c-9d0e-3f0b5a9e7c11', 'order', '7', 'Placed', '{\"n\": 1}'),"
              " ('0f9ac1d2-5a41-4a6c-9d0e-3f0b5a9e7c12', 'order', NULL, 'Placed', '{\"n\": 2}')")
    p.wait_confirmed()
    keyed, loose = sorted(kafka.read_all("outbox.event.order"), key=lambda m: m.value())
    assert (keyed.key(), keyed.value(), keyed.headers()) == (
        b"7", b'{"n": 1}', [("id", b"0f9ac1d2-5a41-4a6c-9d0e-3f0b5a9e7c11")])
    assert (loose.key(), loose.value()) == (None, b'{"n": 2}')


def test_planned_reconnects_under_load_lose_and_repeat_nothing(make_pipeline):
    p = make_pipeline(config={"source": {"reconnect_interval": "200ms"}}).start()
    first = p.slot()["pid"]
    for batch in range(10):
        p.insert_transactions(batch * 500 + 1, batch * 500 + 500)
        p.wait_confirmed()
    servers.wait_for(lambda: (pid := p.slot()["pid"]) and pid != first, 30, "a new connection")
    p.wait_confirmed()
    assert p.judge() == 0
    assert p.walpost.status()["reconnects"] == 0


def test_metrics_and_health_show_what_happened(make_pipeline):
    p = make_pipeline().start()
    p.insert(1, 25)
    p.wait_confirmed()
    code, text = p.walpost.get("/metrics")
    assert code == 200
    values = dict(re.findall(r'^(walpost_\w+)(?:\{[^}]*\})? ([0-9.e+-]+)$', text, re.M))
    assert float(values["walpost_events_received_total"]) == 25
    assert p.walpost.get("/livez")[0] == 200 and p.walpost.get("/readyz")[0] == 200
    status = p.walpost.status()
    assert status["gap_guard"] == "on" and status["events"]["delivered"] == 25
    assert status["delivery_delay_seconds"]["count"] == 25


def test_the_slot_is_confirmed_only_after_kafka_has_it(make_pipeline, workspace):
    kafka = workspace.kafka()
    p = make_pipeline(on_kafka=kafka).start()
    p.insert(1, 10)
    p.wait_confirmed()
    kafka.process.send_signal(19)  # SIGSTOP: it neither answers nor goes away
    before = p.wal_position()
    p.insert(11, 20)
    # The server has sent it, walpost has taken it, and yet the slot stays.
    servers.wait_for(lambda: p.walpost.status()["events"]["in_flight"] == 10, 30, "10 events in flight")
    # Also a later position that walpost certainly took, in a transaction without events, moves nothing.
    p.execute("CREATE TABLE noise (n int)")
    noise = p.wal_position()
    servers.wait_for(lambda: servers.lsn(p.walpost.status()["source"]["server_wal_lsn"]) >= noise, 60, "a keepalive past the noise")
    assert p.slot()["confirmed"] <= before < noise
    kafka.process.send_signal(18)
    p.wait_confirmed()
    assert p.judge() == 0


def test_kafka_that_creates_topics_by_itself_does_not_make_ours(make_pipeline, workspace):
    """auto.create.topics.enable is on by default; such a topic has as many partitions as the broker likes."""
    kafka = workspace.kafka(settings={"auto.create.topics.enable": "true", "num.partitions": 3})
    p = make_pipeline(on_kafka=kafka, create_topic=False, config={"outboxes": [{"topic": "orders"}]})
    looked = p.walpost.verb("check", check=False).stdout
    assert "topic orders" in looked and f"walpost.progress.{p.name}" in looked
    assert not kafka.admin().list_topics(timeout=10).topics, "to look creates nothing"
    p.start()
    assert len(kafka.admin().list_topics(timeout=10).topics[f"walpost.progress.{p.name}"].partitions) == 1


def test_events_make_no_topics_on_a_kafka_that_creates_them_by_itself(make_pipeline, workspace):
    kafka = workspace.kafka(settings={"auto.create.topics.enable": "true"})
    p = make_pipeline(on_kafka=kafka, properties={"topic.metadata.refresh.interval.ms": 500}, config={
        "outboxes": [{"topic": "{aggregate_type}", "topics": {"allowed": ["*"]}}],
        "delivery": {"on_undeliverable": "skip", "unknown_topic_wait": "100ms"}})
    p.walpost.works_hard = True
    p.start()
    p.insert(1, 5)
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'junk' || n, 'k', 't' FROM generate_series(1, 250) n")
    p.insert(6, 10)
    p.wait_confirmed()
    events = p.walpost.status()["events"]
    assert events["skipped"] == 250 and events["delivered"] == 10

    def topics():
        return {topic for topic in kafka.admin().list_topics(timeout=10).topics if not topic.startswith("__")}

    assert topics() == {p.name, f"walpost.progress.{p.name}"}
    admin = kafka.admin()
    admin.delete_topics([p.name])[p.name].result(timeout=30)
    p.insert(11, 12)
    p.wait_confirmed()
    assert p.walpost.status()["events"]["skipped"] == 252 and topics() == {f"walpost.progress.{p.name}"}
