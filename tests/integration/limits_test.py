"""What only Kafka judges: limits of topics, and records that the broker rejects."""

import itertools
import re
import signal
import subprocess

import pytest
import servers
from confluent_kafka.admin import NewPartitions
from rejecting import ACLS, Rejecting, permit

def commit_lsn(halt):
    return servers.lsn(re.search(r"commit LSN ([0-9A-F/]+)", halt["detail"])[1])


def sessions(p):
    return p.walpost.status()["sink"]["producer_sessions"]


# Failure 70.
def test_halt_stops_at_the_first_of_a_thousand_rejected_rows(make_pipeline, workspace):
    rejecting = Rejecting(make_pipeline, workspace.kafka(settings=ACLS), described=False)
    p = rejecting.pipeline
    rejecting.insert(1, 500)
    p.wait_confirmed()
    before = p.wal_position()
    rejecting.insert(501, 100_500, every=100)
    p.walpost.wait_state("halted", 120)
    rows = rejecting.rows()
    assert sum(rejected for _, rejected in rows) == 1_000
    first = next(index for index, (_, rejected) in enumerate(rows) if rejected)
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "undeliverable_event"
    assert rows[first][0] in halt["detail"] and "Kafka rejected it" in halt["detail"] and "INVALID_RECORD" in halt["detail"] and "without a key" in halt["detail"]
    delivered = rejecting.delivered()
    assert {event for event, _ in rows[:first]} <= set(delivered)
    assert not {event for event, rejected in rows if rejected} & set(delivered)
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
    assert before <= p.slot()["confirmed"] <= commit_lsn(halt), "all before the transaction, nothing of it"


def test_a_topic_that_takes_less_than_a_batch_costs_no_failure(make_pipeline, kafka):
    p = make_pipeline(create_topic=False)
    kafka.create_topic(p.name, 4, {"max.message.bytes": "100000"})
    p.start()
    p.insert(1, 20_000)
    p.wait_confirmed()
    assert p.judge() == 0
    assert sessions(p) == 1 and p.walpost.status()["sink"]["records_resubmitted"] == 0
    events = [line["event"] for line in p.walpost.log_events()]
    assert "kafka_producer_replaced" not in events and "kafka_delivery_failed" not in events


# Brokers answer nothing to a request beyond socket.request.max.bytes, and end the connection: that looks like a broker that is away.
def test_record_larger_than_brokers_take_in_one_request_stops_nobody(make_pipeline, kafka):
    p = make_pipeline(create_topic=False, properties={"compression.type": "lz4"}, config={
        "outboxes": [{"table": "public.own", "topic": "{aggregate_type}", "topics": {"allowed": ["*"]},
                      "value": {"format": "cloudevents", "cloudevents": {"mode": "structured_json"}}}],
        "delivery": {"on_undeliverable": "dead_letter"}})
    kafka.create_topic(p.name, 1, {"max.message.bytes": "200000000"})
    p.execute("CREATE TABLE own (id uuid DEFAULT gen_random_uuid(), seq bigint GENERATED ALWAYS AS IDENTITY, aggregate_type text, aggregate_id text,"
              " event_type text, content_type text DEFAULT 'text/plain', payload bytea, created_at timestamptz DEFAULT now())")
    p.start()
    # As JSON each of these bytes is six.
    p.execute("INSERT INTO own (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, 'k', 'T', convert_to(repeat(chr(1), 20000000), 'UTF8'))", p.name)
    p.execute("INSERT INTO own (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, 'k', 'T', 'small')", p.name)
    p.wait_confirmed(seconds=60)
    assert len(kafka.read_all(p.name)) == 1
    assert p.execute("SELECT reason, topic FROM walpost.dead_letters") == [("record_too_large", p.name)]


def test_check_warns_of_brokers_that_take_smaller_requests(make_pipeline, workspace):
    p = make_pipeline(on_kafka=workspace.kafka(settings={"socket.request.max.bytes": "2000000"}))
    p.walpost.init()
    assert "socket.request.max.bytes is 2000000" in p.walpost.verb("check", check=False).stdout
    less = p.another(properties={"message.max.bytes": "1900000"})
    assert "socket.request.max.bytes" not in less.verb("check", check=False).stdout


@pytest.mark.parametrize("megabytes", [2, 30])
def test_a_large_event_passes_when_its_topic_takes_it(make_pipeline, kafka, megabytes):
    p = make_pipeline(create_topic=False, config={"delivery": {"in_flight_bytes_max": "1MiB"}})
    kafka.create_topic(p.name, 1, {"max.message.bytes": "40000000"})
    p.start()
    p.insert(1, 100)
    p.insert_large(megabytes * 1_000_000)
    p.insert(101, 200)
    p.wait_confirmed()
    assert p.judge() == 0
    assert sessions(p) == 2, "another producer, and none failed"


# librdkafka says "queue full" for ever of what is larger than its queue, and then nothing else was sent, either.
def test_an_event_larger_than_the_users_queue_passes(make_pipeline, kafka):
    p = make_pipeline(create_topic=False, properties={"queue.buffering.max.kbytes": 100, "queue.buffering.max.messages": 3})
    kafka.create_topic(p.name, 2, {"max.message.bytes": "10000000"})
    p.start()
    p.insert_large(900_000)
    p.insert_large(3_000_000)
    p.insert(1, 50)
    p.wait_confirmed()
    assert p.judge() == 0


def test_verbs_send_more_than_the_users_queue_holds(make_pipeline):
    p = make_pipeline(properties={"queue.buffering.max.messages": 1000}).start()
    p.insert(1, 1)
    p.wait_confirmed()
    p.walpost.kill9()
    p.insert(2, 5_000)
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    assert "4999 events sent" in p.walpost.verb("slot", "recreate", "--yes").stdout
    assert {record.id for record in p.records()} == {row[0] for row in p.execute("SELECT id::text FROM outbox.events")}


# Failure 76.
@pytest.mark.full
def test_partitions_added_to_a_topic_are_used_and_logged(make_pipeline, kafka):
    p = make_pipeline(create_topic=False)
    kafka.create_topic(p.name, 1)
    p.start()
    p.insert(1, 10)
    p.wait_confirmed()
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(p.name, 4)])[p.name].result(timeout=30)

    def noticed():
        return [line for line in p.walpost.log_events() if line["event"] == "topic_partitions_changed"]

    line, = servers.wait_for(noticed, 90, "the change to be noticed")  # looked at every half minute
    assert line["level"] == "warning" and f"'{p.name}' has 4 partitions instead of 1" in line["msg"]
    p.insert(11, 100)
    p.wait_confirmed()
    assert len({record.id for record in p.records()}) == 100
    assert len({record.partition for record in p.records()}) > 1


# A broker learns of new partitions later than another, as of a new topic.
# Failure 76.
@pytest.mark.full
def test_partition_that_comes_while_its_event_waits_is_used(make_pipeline, kafka):
    topic, other = (kafka.create_topic(f"{which}-partitions", 2) for which in ("few", "other"))
    p = make_pipeline(create_topic=False)
    p.execute("CREATE TABLE own (id text, aggregatetype text, aggregateid text, type text, payload text, part int)")
    p.walpost = p.another(config={
        "outboxes": [{"table": "public.own", "columns": {"id": "id", "key": "aggregateid", "aggregate_type": "aggregatetype", "type": "type",
                                                         "payload": "payload", "partition": "part"},
                      "topic": "{aggregate_type}", "topics": {"allowed": [topic, other]}}],
        "delivery": {"on_undeliverable": "dead_letter", "unknown_topic_wait": "20s"}})
    p.start()

    def insert(row, to, partition):
        p.execute("INSERT INTO own VALUES (%s, %s, 'k', 'T', 'x', %s)", row, to, partition)

    insert("a", topic, 0)
    insert("b", topic, 3)
    insert("c", other, 1)
    servers.wait_for(lambda: ids_in(kafka, other) == ["c"], 30, "the other topic")
    assert ids_in(kafka, topic) == ["a"] and p.walpost.status()["events"]["dead_lettered"] == 0
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(timeout=30)
    p.wait_confirmed()
    assert sorted(ids_in(kafka, topic)) == ["a", "b"]
    insert("d", topic, 9)
    p.wait_confirmed(seconds=60)
    assert p.walpost.status()["events"]["dead_lettered"] == 1, "nobody made that one"
    insert("e", topic, 9)
    p.wait_confirmed(seconds=10)


# Without DESCRIBE_CONFIGS nobody knows beforehand what the topic takes.
@pytest.mark.full
def test_verbs_find_out_how_large_a_batch_may_be(make_pipeline, workspace):
    kafka = workspace.kafka(settings=ACLS)
    p = make_pipeline(create_topic=False, on_kafka=kafka)
    kafka.create_topic(p.name, 1, {"max.message.bytes": "50000"})
    permit(kafka, p.name, "Describe", "Write", "Read")
    p.start()
    p.insert(1, 1)
    p.wait_confirmed()
    p.walpost.kill9()
    p.insert_transactions(2, 4, rows=300, payload_bytes=300)
    p.insert_large(70_000)
    large, = p.execute("SELECT id::text FROM outbox.events WHERE event_type = 'Large'")[0]
    p.insert_transactions(5, 5, rows=300, payload_bytes=300)
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    stopped = p.walpost.verb("slot", "recreate", "--yes", "--send-unproven", check=False)
    assert stopped.returncode == 78 and large in stopped.stderr, "the one that no batch could hold"
    done = p.walpost.verb("init", "--backfill", "--skip-undeliverable", "--send-unproven")
    assert "1 left out" in done.stdout and large in done.stderr
    ids = [record.id for record in p.records()]
    assert len(ids) == len(set(ids)) == 1201


# Failure 66.
def test_without_a_right_nothing_is_lost_and_the_missing_one_is_named(make_pipeline, workspace):
    kafka = workspace.kafka(settings=ACLS)
    p = make_pipeline(on_kafka=kafka)
    permit(kafka, p.name, "Describe", "Write", "Read")
    p.start()
    p.insert(1, 100)
    p.wait_confirmed()
    assert p.judge() == 0
    unknown = [line["msg"] for line in p.walpost.log_events() if line["event"] == "kafka_topic_limits_unknown"]
    assert len(unknown) == 1 and p.name in unknown[0], "DESCRIBE_CONFIGS is missing, which costs nothing but a line"

    permit(kafka, p.name, "Write", change="--remove")
    numbers = itertools.count(101)

    def rejected():  # the broker goes by a change of rights some time after it has taken it
        number = next(numbers)
        p.insert(number, number)
        return p.walpost.status()["state"] == "halted"

    servers.wait_for(rejected, 60, "an event to be rejected", every=0.1)
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "undeliverable_event" and "TOPIC_AUTHORIZATION_FAILED" in halt["detail"]
    permit(kafka, p.name, "Write")
    lsn = p.wal_position()

    def looked_again():
        p.walpost.signal(signal.SIGHUP)
        return p.slot()["confirmed"] >= lsn

    servers.wait_for(looked_again, 60, "all to be delivered", every=1)
    p.judge()


# librdkafka keeps each topic that a producer asked about.
def test_topics_that_may_not_be_described_take_no_memory(make_pipeline, workspace):
    kafka = workspace.kafka(settings=ACLS)
    permit(kafka, "forbidden-", "All", prefixed=True, principal="User:other")
    p = make_pipeline(on_kafka=kafka, config={"delivery": {"on_undeliverable": "skip", "unknown_topic_wait": "100ms"}})
    p.start()

    def forbidden(first, last):
        p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)"
                  " SELECT 'forbidden-' || n, 'key', 'T', 'x' FROM generate_series(%s, %s) n", first, last)
        p.insert(last, last)
        p.wait_confirmed(seconds=100)

    forbidden(1, 2_000)  # some look-ups of a thousand names, each of which takes memory while it lasts
    before = p.walpost.peak_rss_bytes()
    forbidden(2_001, 4_500)
    assert p.walpost.status()["events"]["skipped"] == 4_500
    assert p.walpost.peak_rss_bytes() - before < 16 << 20


def producers(kafka, topic, partition):
    """Those that the broker still knows there."""
    done = subprocess.run(kafka._command("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", kafka.bootstrap,
                                         "describe-producers", "--topic", topic, "--partition", partition),
                          capture_output=True, text=True, check=True)
    header, *known = done.stdout.splitlines()
    assert header.startswith("ProducerId"), done.stdout
    return known


# Failure 99.
@pytest.mark.full
def test_partition_whose_broker_has_forgotten_the_producer_goes_on_in_order(make_pipeline, workspace):
    kafka = workspace.kafka(settings={"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "200"})
    p = make_pipeline(on_kafka=kafka, partitions=1).start()
    for round_ in range(3):
        first = round_ * 5_000
        p.insert(first + 1, first + 5_000)
        p.wait_confirmed()
        servers.wait_for(lambda: not producers(kafka, p.name, 0), 60, "the broker to forget the producer")
    assert p.judge() == 0
    assert p.walpost.status()["state"] == "streaming" and sessions(p) == 1


TIMED = """CREATE TABLE public.own (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text,
    happened timestamptz NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY)"""
TIMED_COLUMNS = {"id": "id", "key": "aggregateid", "aggregate_type": "aggregatetype", "type": "type", "payload": "payload",
                 "timestamp": "happened"}


def timed(make_pipeline, kafka, *topics):
    """A pipeline whose events carry a time of their own, with dead letters."""
    p = make_pipeline(on_kafka=kafka, create_topic=False)
    p.execute(TIMED)
    p.walpost = p.another(config={
        "outboxes": [{"table": "public.own", "columns": TIMED_COLUMNS, "topic": "{aggregate_type}", "topics": {"allowed": list(topics)}}],
        "delivery": {"on_undeliverable": "dead_letter"}})
    return p.start()


def insert_timed(p, topic, *rows):
    """rows: (id, how long ago it happened)"""
    for row, ago in rows:
        p.execute("INSERT INTO own (id, aggregatetype, aggregateid, type, payload, happened) VALUES (%s, %s, 'k', 'T', 'x', now() - %s::interval)",
                  row, topic, ago)


def ids_in(kafka, topic):
    return [dict(message.headers())["id"].decode() for message in kafka.read_all(topic)]


# Failure 29.
def test_a_time_that_the_topic_rejects_and_does_not_say_is_replaced(make_pipeline, workspace):
    kafka = workspace.kafka(settings=ACLS)
    topic = kafka.create_topic("dated", 1, {"message.timestamp.before.max.ms": "60000"})
    permit(kafka, topic, "Describe", "Write", "Read")
    p = timed(make_pipeline, kafka, topic)
    insert_timed(p, topic, ("a", "0"), ("b", "1 hour"), ("c", "2 days"), ("d", "1 s"))
    p.wait_confirmed()
    assert ids_in(kafka, topic) == ["a", "b", "c", "d"]
    before = sessions(p)
    insert_timed(p, topic, ("e", "3 days"))
    p.wait_confirmed()
    assert ids_in(kafka, topic)[-1] == "e" and sessions(p) == before, "what was learned is kept"
    assert p.walpost.status()["events"]["dead_lettered"] == 0


def test_a_topic_that_rejects_the_present_holds_its_events_and_judges_none(make_pipeline, workspace):
    kafka = workspace.kafka()
    # With differences of 0, what is an instant old is rejected.
    nothing = {"message.timestamp.before.max.ms": "0", "message.timestamp.after.max.ms": "0"}
    rejecting, other = kafka.create_topic("rejecting", 1, nothing), kafka.create_topic("other", 1)
    p = timed(make_pipeline, kafka, rejecting, other)
    numbers = itertools.count()

    def rejected():  # what comes within the same millisecond is taken
        insert_timed(p, rejecting, (f"n-{next(numbers):04}", "0"))
        return any(line["event"] == "event_retried" for line in p.walpost.log_events())

    servers.wait_for(rejected, 60, "an attempt", every=0.05)
    insert_timed(p, other, ("c", "0"))
    servers.wait_for(lambda: ids_in(kafka, other) == ["c"], 60, "the other topic")
    kafka.alter_topic(rejecting, {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"})
    p.wait_confirmed(seconds=120)
    assert ids_in(kafka, rejecting) == [f"n-{number:04}" for number in range(next(numbers))]
    assert p.walpost.status()["events"]["dead_lettered"] == 0


def test_topic_that_was_made_anew_is_logged(make_pipeline):
    p = make_pipeline(partitions=1).start()
    p.insert(1, 10)
    p.wait_confirmed()
    admin = p.kafka.admin()
    admin.delete_topics([p.name])[p.name].result(timeout=30)
    p.kafka.create_topic(p.name, 1)
    p.insert(11, 15)
    p.wait_confirmed()
    assert "topic_made_anew" in [line["event"] for line in p.walpost.log_events()]
