"""delivery.on_undeliverable: what happens to an event that Kafka does not take, and to the rest."""

import threading

import pytest
import servers
from confluent_kafka.admin import NewTopic
from kafka_cluster import KafkaCluster
from rejecting import ACLS, Rejecting, dead_letters, start_parking
from tcp_proxy import TcpProxy
from rare import first

ROWS = 20_000


# Failure 70.
def test_dead_letter_takes_what_the_broker_rejects_and_the_rest_goes_on(make_pipeline, workspace):
    kafka = workspace.kafka(settings=ACLS)
    rejecting = Rejecting(make_pipeline, kafka, described=False, on_undeliverable="dead_letter", dead_letter_topic="dead-rejected")
    p = rejecting.pipeline
    rejecting.insert(1, ROWS, every=100)
    p.wait_confirmed()
    rows = rejecting.rows()
    rejected = [event for event, is_rejected in rows if is_rejected]
    assert len(rejected) == ROWS // 100
    assert sorted(rejecting.delivered()) == sorted(event for event, is_rejected in rows if not is_rejected), "each once"
    found = dead_letters(p)
    assert sorted(row["event_id"] for row, _, _ in found) == sorted(rejected), "each once"
    row, key, value = next(each for each in found if each[0]["event_id"] == rejected[0])
    assert key is None and value == b"100"
    assert row["state"] == "dead_letter" and row["reason"] == "record_invalid"
    assert row["topic"] == rejecting.topic and row["source"] == "public.outbox"
    servers.wait_for(lambda: len(kafka.read_all("dead-rejected")) == len(rejected), 60, "the dead-letter topic to get each")
    headers = {name: text.decode() for name, text in kafka.read_all("dead-rejected")[0].headers()}
    assert headers["walpost-dlq"] == "dead_letter" and headers["walpost-dlq-id"] == found[0][0]["event_id"]
    events = p.walpost.status()["events"]
    assert events["received"] == ROWS and events["dead_lettered"] == ROWS // 100 and events["in_flight"] == 0
    assert events["delivered"] == ROWS - ROWS // 100
    logged = [line for line in p.walpost.log_events() if line["event"] == "event_dead_lettered"]
    assert logged and logged[0]["event_id"] in rejected and logged[0]["reason"] == "record_invalid"


def test_skip_counts_what_is_rejected_and_goes_on(make_pipeline, kafka):
    rejecting = Rejecting(make_pipeline, kafka, on_undeliverable="skip")
    p = rejecting.pipeline
    rejecting.insert(1, 1_000, every=100)
    p.wait_confirmed()
    assert sorted(rejecting.delivered()) == sorted(event for event, is_rejected in rejecting.rows() if not is_rejected)
    events = p.walpost.status()["events"]
    assert events["skipped"] == 10 and events["delivered"] == 990 and events["received"] == 1_000


# Each rejection by the broker costs a batch and a producer, which held up every pipeline of the table.
def test_what_a_compacted_topic_does_not_take_is_rejected_before_it_is_sent(make_pipeline, kafka):
    rejecting = Rejecting(make_pipeline, kafka, on_undeliverable="skip")
    p = rejecting.pipeline
    rejecting.insert(1, ROWS, every=2)
    p.wait_confirmed()
    status = p.walpost.status()
    assert status["events"]["skipped"] == status["events"]["delivered"] == ROWS // 2
    assert status["sink"]["producer_sessions"] == 1 and status["sink"]["records_resubmitted"] == 0
    assert "kafka_delivery_failed" not in [line["event"] for line in p.walpost.log_events()]


def test_rows_that_become_no_record_are_truncated_and_kept(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}}).start()
    p.allow_bad_topics()
    p.insert(1, 10)
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload) VALUES"
              " ('00000000-0000-0000-0000-000000000bad', 'no such/topic', 'key-1', 'Created', 'secret payload')")
    p.insert(11, 20)
    p.wait_confirmed()
    (row, key, value), = dead_letters(p)
    assert row["reason"] == "row_invalid" and row["event_id"].endswith("bad")
    assert row["truncated_bytes"] > 0
    assert value.startswith(b"walpost-row-1\n")
    assert b"secret payload" in value or b"secret payload".hex().encode() in value  # 13 sends text
    assert len(p.records()) == 20


# Failure 69.
def test_five_megabytes_among_small_ones(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}}).start()
    p.insert(1, 100)
    p.insert_large(5_000_000)
    p.insert(101, 200)
    p.wait_confirmed()
    (row, key, value), = dead_letters(p)
    assert row["reason"] == "record_too_large" and "max.message.bytes" in row["detail"]
    assert key == b"key-1" and len(value) > 5_000_000
    assert len(p.records()) == 200


def test_dead_letter_topic_that_is_missing_stops_nothing(make_pipeline, kafka):
    rejecting = Rejecting(make_pipeline, kafka, on_undeliverable="dead_letter")
    p = rejecting.pipeline
    p.walpost.stop()
    p.walpost = p.another(config={**p.options["config"],
                                  "delivery": {"on_undeliverable": "dead_letter", "dead_letter_topic": "dead-never-made"}})
    p.walpost.start()
    rejecting.insert(1, 10, every=5)
    p.wait_confirmed()
    assert len(dead_letters(p)) == 2 and len(rejecting.delivered()) == 8


def test_missing_table_is_rejected_by_name_and_taken_once_it_is_made(make_pipeline, kafka):
    rejecting = Rejecting(make_pipeline, kafka, on_undeliverable="skip")
    p = rejecting.pipeline
    p.walpost.stop()
    p.execute("DROP TABLE walpost.dead_letters")
    p.walpost = p.another(config={**p.options["config"], "delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.start(wait="halted")
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "dead_letter_failed" and "walpost init" in halt["detail"]
    rejecting.insert(1, 10, every=5)
    p.walpost.init()
    p.walpost.signal(1)
    p.wait_confirmed()
    assert len(dead_letters(p)) == 2 and len(rejecting.delivered()) == 8


def connections(p):
    """Ordinary ones of walpost."""
    return p.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name LIKE 'walpost-%%'")[0][0]


# outbox.maintain would look for them in the source's own database, find none, and drop the rows that they need.
def test_dead_letters_in_another_database_of_the_cluster_are_rejected(make_pipeline):
    other = make_pipeline()
    other.walpost.init()
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter",
                                           "dead_letter_conninfo": other.postgres.conninfo(other.database)}})
    words = f'database "{other.database}" on'
    initialized = p.walpost.verb("init", check=False)
    assert initialized.returncode == 78 and words in initialized.stderr
    checked = p.walpost.verb("check", check=False)
    assert checked.returncode == 78 and f"✗ delivery.dead_letter_conninfo: {words}" in checked.stdout, checked.stdout
    assert words in p.walpost.verb("dlq", "list", check=False).stderr
    p.walpost.start(wait="halted")
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "dead_letter_failed" and words in halt["detail"], halt


def test_connection_for_the_table_is_there_only_while_something_is_open(make_pipeline, kafka):
    rejecting = Rejecting(make_pipeline, kafka, on_undeliverable="dead_letter")
    p = rejecting.pipeline
    rejecting.insert(1, 10)
    p.wait_confirmed()
    assert connections(p) == 0
    rejecting.insert(11, 20, every=5)
    p.wait_confirmed()
    servers.wait_for(lambda: connections(p) == 1, 20, "a connection for decisions")
    p.walpost.verb("dlq", "discard", "--all-undecided", "--yes")
    servers.wait_for(lambda: connections(p) == 0, 20, "the connection to be closed")


# --- park ---


def test_park_keeps_a_keys_order_until_it_is_retried_while_new_events_come(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "park"}}).start()
    p.insert(1, 100)
    p.insert_large(5_000_000)
    p.insert(101, 300)
    p.wait_confirmed()
    parked = [row for row, _, _ in dead_letters(p)]
    assert [row["state"] for row in parked] == ["parked"] * 21
    assert [row["reason"] for row in parked] == ["record_too_large"] + ["key_parked"] * 20
    assert len(p.records()) == 280
    events = p.walpost.status()["events"]
    assert events["parked"] == 21 and events["parked_keys"] == 1 and events["delivered"] == 280

    rejected = p.walpost.verb("dlq", "retry", "--key", "key-1", check=False)
    assert rejected.returncode == 75 and "failed: " in rejected.stdout
    p.walpost.kill9()
    p.walpost.start()
    servers.wait_for(lambda: p.walpost.status()["events"]["parked_keys"] == 1, 20, "the table to show the key")

    kafka.alter_topic(p.name, {"max.message.bytes": "10000000"})
    writer = threading.Thread(target=p.insert_transactions, args=(1, 4_000), kwargs={"keys": 10})
    writer.start()
    servers.wait_for(lambda: p.walpost.verb("dlq", "retry", "--key", "key-1", check=False).returncode == 0, 120, "the key to be sent")
    writer.join()
    p.wait_confirmed()
    servers.wait_for(lambda: p.walpost.status()["events"]["parked_keys"] == 0, 20, "the key to be released")
    committed = sorted(p.committed().items(), key=lambda item: item[1][1])
    for key in {key for _, (key, _) in committed}:
        ids = list(dict.fromkeys(record.id for record in p.records() if record.key == key))
        assert ids == [event for event, (of, _) in committed if of == key], f"{key}: each event, in commit order"


def test_discarded_key_goes_on_with_its_next_event(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "park"}}).start()
    p.insert_large(5_000_000)
    p.insert(1, 20)
    p.wait_confirmed()
    assert len(p.records()) == 18
    assert "discarded" in p.walpost.verb("dlq", "discard", "--key", "key-1", "--yes").stdout
    p.insert(21, 40)
    p.wait_confirmed()
    assert len(p.records()) == 38


# Its release would wait for days, and everything else with it.
@pytest.mark.full
def test_retry_into_a_topic_without_a_leader_stops_nothing_else(make_pipeline, workspace):
    kafka = KafkaCluster(workspace.path / "cluster", nodes=3)
    workspace.add(kafka)
    kafka.start()
    p = make_pipeline(on_kafka=kafka, create_topic=False, config={"delivery": {"on_undeliverable": "park", "unknown_topic_wait": "100ms"}})
    admin = kafka.admin()
    first, second, last = sorted(admin.list_topics(timeout=10).brokers)
    gone, missing = p.name + "-gone", p.name + "-missing"

    def create(topic, nodes):
        new = NewTopic(topic, 1, replica_assignment=[nodes], config={"min.insync.replicas": "1"})
        admin.create_topics([new])[topic].result(30)

    create(p.name, [first, second])
    p.start()
    for topic in (gone, missing):
        p.insert(1, 3, keys=1, topic=topic)
    p.wait_confirmed()
    create(gone, [last])
    # The sink believes for some seconds that it is missing.
    servers.wait_for(lambda: p.execute("SELECT max(written_at) < now() - interval '7 s' FROM walpost.dead_letters") == [(True,)], 20, "it")
    kafka.nodes[2].kill9()
    assert p.walpost.verb("dlq", "retry", "--topic", gone, "--wait", "5s", check=False).returncode == 75
    p.walpost.verb("dlq", "discard", "--topic", missing, "--yes")
    p.insert(4, 4, keys=1, topic=gone)
    p.insert(1, 3)
    p.wait_confirmed()
    assert len(kafka.nodes[0].read_all(p.name)) == 3
    assert [row["state"] for row, _, _ in dead_letters(p, gone)] == ["parked"] * 4
    p.walpost.verb("dlq", "discard", "--topic", gone, "--yes")
    servers.wait_for(lambda: p.walpost.status()["events"]["parked_keys"] == 0, 20, "no parked key")
    kafka.nodes[2].start()
    p.insert(5, 5, keys=1, topic=gone)
    p.wait_confirmed()
    assert len(kafka.nodes[0].read_all(gone)) == 1, "nothing of what was discarded"


def test_gap_rows_of_a_parked_key_do_not_overtake_it(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "park"}}).start()
    p.insert_large(5_000_000)
    p.insert(1, 10, keys=5)
    p.wait_confirmed()
    p.walpost.stop()
    p.insert(11, 20, keys=5)
    recreated = p.walpost.verb("slot", "recreate", "--yes").stdout
    assert "parked behind others of their key" in recreated, recreated
    p.walpost.start()
    p.wait_confirmed()
    assert "key-1" not in {record.key for record in p.records()}
    kafka.alter_topic(p.name, {"max.message.bytes": "10000000"})
    servers.wait_for(lambda: p.walpost.verb("dlq", "retry", "--key", "key-1", check=False).returncode == 0, 60, "the key to be sent")
    order = [record.id for record in p.records() if record.key == "key-1"]
    expected = [row[0] for row in p.execute("SELECT id::text FROM outbox.events WHERE aggregate_id = 'key-1' ORDER BY seq")]
    assert list(dict.fromkeys(order)) == expected


# The rest is for events of the stream, which would halt.
def test_verb_does_not_fill_the_table_of_dead_letters(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "park", "dead_letters_max": 20}}).start()
    p.insert(1, 100, keys=2)
    p.insert_large(5_000_000)
    p.wait_confirmed()
    rejected = p.walpost.verb("replay", "--all", "--in-place", check=False)
    assert rejected.returncode == 78 and "dead_letters_max" in rejected.stderr, rejected
    assert p.execute("SELECT count(*) <= 20 FROM walpost.dead_letters") == [(True,)]


def test_dead_letter_larger_than_the_table_takes_is_sent_again_once_the_limit_is_raised(make_pipeline, kafka):
    p = start_parking(make_pipeline, kafka, 8_000_000)
    p.insert_large(9_000_000, key="key-0")
    p.insert(1, 3, keys=1)
    p.wait_confirmed()
    kafka.alter_topic(p.name, {"max.message.bytes": "60000000"})
    p.walpost.verb("dlq", "retry", "--all-undecided")
    expected = [row[0] for row in p.execute("SELECT id::text FROM outbox.events ORDER BY seq")]
    assert [record.id for record in p.records()] == expected


# Its row is gone by the time that its key is released, so the dead letter has to have all of it.
def test_large_event_whose_key_is_parked_is_sent_though_its_row_is_gone(make_pipeline, kafka):
    p = start_parking(make_pipeline, kafka, 200_000)
    p.insert_large(300_000, event_type="Parked")
    p.wait_confirmed()
    p.insert_large(60_000_000, event_type="Healthy")
    p.execute("DELETE FROM outbox.events WHERE event_type = 'Healthy'")
    p.wait_confirmed()
    kafka.alter_topic(p.name, {"max.message.bytes": "90000000"})
    p.walpost.verb("dlq", "retry", "--key", "key-1")
    records = kafka.read_all(p.name)
    assert [dict(record.headers())["type"] for record in records] == [b"Parked", b"Healthy"]
    assert len(records[1].value()) > 60_000_000
    assert p.walpost.peak_rss_bytes() < 800 * 2**20


def test_large_row_that_a_verb_put_behind_a_parked_key_is_sent(make_pipeline, kafka):
    p = start_parking(make_pipeline, kafka, 60_000_000)
    p.insert_large(9_000_000, event_type="First")
    p.wait_confirmed()
    kafka.alter_topic(p.name, {"max.message.bytes": "200000"})
    p.insert_large(300_000, event_type="Second")
    p.wait_confirmed()
    kafka.alter_topic(p.name, {"max.message.bytes": "60000000"})
    assert "1 parked" in p.walpost.verb("replay", "--type", "First", "--in-place").stdout
    p.walpost.verb("dlq", "retry", "--all-undecided")
    records = p.records()
    assert [record.headers["type"] for record in records] == [b"First", b"Second", b"First"]
    assert "walpost-position" not in records[2].headers


@pytest.mark.full
def test_release_of_rows_with_large_headers_reads_a_few_at_a_time(make_pipeline, kafka):
    p = make_pipeline(create_topic=False, config={"outboxes": [{"table": "outbox.events", "value": {"format": "raw"}}],
                                                  "delivery": {"on_undeliverable": "park"}})
    kafka.create_topic(p.name, 1, {"max.message.bytes": "200000"})
    p.start()
    p.allow_bad_topics()
    p.insert_large(300_000, key="key-0")
    for _ in range(40):
        p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, headers) VALUES"
                  " (gen_random_uuid(), %s, 'key-0', 'H', jsonb_build_object('h', repeat('x', 4000000)))", p.name)
    p.wait_confirmed()
    kafka.alter_topic(p.name, {"max.message.bytes": "60000000"})
    before = p.walpost.peak_rss_bytes()
    p.walpost.verb("dlq", "retry", "--all-undecided", "--wait", "110s")  # on a busy machine
    assert len(kafka.read_all(p.name)) == 41
    assert p.walpost.peak_rss_bytes() - before < 100 * 2**20


# The proxy lets 1 MiB pass in `delay_s`, each way. In hexadecimal a value takes twice its bytes.
@pytest.mark.full
def test_a_large_dead_letter_is_written_and_read_over_a_slow_line(make_pipeline, postgres, kafka):
    slow = TcpProxy("postgres", ("127.0.0.1", postgres.port))
    try:
        p = make_pipeline(create_topic=False)
        through = postgres.conninfo(p.database, tcp=True, port=slow.port)
        p.walpost = p.another(config={"delivery": {"on_undeliverable": "park", "dead_letter_conninfo": through}})
        kafka.create_topic(p.name, 1, {"max.message.bytes": "100000"})
        p.start()
        p.insert_large(200_000)
        p.wait_confirmed()
        slow.set_mode("latency", delay_s=0.6)
        p.insert_large(14_000_000)  # the table keeps what is parked whole
        p.wait_confirmed(seconds=60)
        slow.set_mode("pass")
        values = [bytes(value) for _, _, value in dead_letters(p)]
        assert len(values) == 2 and len(values[1]) > 14_000_000
        kafka.alter_topic(p.name, {"max.message.bytes": "20000000"})
        p.walpost.verb("dlq", "retry", "--topic", p.name, "--key", "key-1")
        slow.set_mode("latency", delay_s=0.6)
        servers.wait_for(lambda: len(kafka.read_all(p.name)) == 2, 60, "the events")
        assert [message.value() for message in kafka.read_all(p.name)] == values
    finally:
        slow.close()


WAITS = {"unknown_topic_wait": "10min", "shutdown_timeout": "1s"}


def held_back(make_pipeline, kafka, policy):
    """A pipeline with an event that waits for its topic, so that all behind it comes again with each start; and one that is undeliverable."""
    p = make_pipeline(create_topic=False, config={"delivery": {"on_undeliverable": policy, **WAITS}})
    kafka.create_topic(p.name, 1)
    p.start()
    p.execute("ALTER TABLE outbox.events DROP CONSTRAINT events_check")
    p.insert(1, 1, topic=f"missing-{p.name}")
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers) VALUES (%s, 'key-0', 'Bad', '{\"walpost-x\": \"1\"}')", p.name)
    return p


def open_rows(p):
    return p.execute("SELECT count(*) FROM walpost.dead_letters WHERE closed_at IS NULL")[0][0]


def goes_on(p, sent):
    """After a start in which all of it has come again, the key's next events arrive, and nothing stays a dead letter."""
    p.insert(8, 9, keys=1)
    servers.wait_for(lambda: len({record.id for record in p.records()}) == sent + 2 and not open_rows(p), 60, "the newest events")


def test_key_that_was_discarded_is_not_parked_again_by_what_comes_again(make_pipeline, kafka):
    p = held_back(make_pipeline, kafka, "park")
    p.insert(2, 4, keys=1)
    servers.wait_for(lambda: open_rows(p) == 4, 60, "the key to be parked")
    p.walpost.verb("dlq", "discard", "--key", "key-0", "--yes", "--wait", "60s")
    p.insert(5, 7, keys=1)
    servers.wait_for(lambda: len(p.records()) == 3, 60, "later events of the key")
    p.walpost.stop()
    p.walpost.start()
    goes_on(p, 3)


def test_event_that_was_sent_again_is_no_dead_letter_when_it_comes_again(make_pipeline, kafka):
    p = held_back(make_pipeline, kafka, "park")
    p.insert(2, 4, keys=1)
    servers.wait_for(lambda: open_rows(p) == 4, 60, "the key to be parked")
    p.execute("UPDATE outbox.events SET headers = '{}' WHERE event_type = 'Bad'")
    p.walpost.verb("dlq", "retry", "--key", "key-0", "--wait", "60s")
    assert len(p.records()) == 4
    p.walpost.stop()
    p.walpost.start()
    goes_on(p, 4)


def test_dead_letter_of_before_parks_no_key_under_a_new_policy(make_pipeline, kafka):
    p = held_back(make_pipeline, kafka, "dead_letter")
    servers.wait_for(lambda: open_rows(p) == 1, 60, "the dead letter")
    p.walpost.stop()
    p.walpost = p.another(config={"delivery": {"on_undeliverable": "park", **WAITS}})
    p.walpost.start()
    p.walpost.verb("dlq", "discard", "--all-undecided", "--yes", "--wait", "60s")
    goes_on(p, 0)


# It can be delivered by then, and later events of its key are there: sent by the stream, it would overtake them, and a discard would be void.
@pytest.mark.parametrize("decision, policy", first(2, [("retry", "dead_letter"), ("discard", "park"), (None, "halt"), (None, "dead_letter")]))
def test_event_that_is_a_dead_letter_is_not_sent_by_the_stream_when_it_comes_again(make_pipeline, kafka, decision, policy):
    p = make_pipeline(create_topic=False, config={"source": {"event_bytes_max": "1MiB"}, "delivery": {"on_undeliverable": "dead_letter", **WAITS}})
    kafka.create_topic(p.name, 1, {"max.message.bytes": "3000000"})
    p.start()
    p.insert(1, 1, topic=f"missing-{p.name}")
    p.insert_large(1_500_000, key="key-0")
    servers.wait_for(lambda: open_rows(p) == 1, 60, "the dead letter")
    large, = [row["event_id"] for row, _, _ in dead_letters(p)]
    p.insert(2, 4, keys=1)
    servers.wait_for(lambda: len(p.records()) == 3, 60, "later events of the key")
    raised = p.another(config={"source": {"event_bytes_max": "4MiB"}, "delivery": {"on_undeliverable": policy, **WAITS}})
    if decision:
        raised.verb("dlq", decision, "--all-undecided", *["--yes"] * (decision == "discard"), "--wait", "60s")
    before = [record.id for record in p.records()].count(large)
    assert before == (1 if decision == "retry" else 0)
    assert p.walpost.stop() == 0
    p.walpost = raised
    p.walpost.start()
    p.insert(5, 6, keys=1)
    servers.wait_for(lambda: len({record.id for record in p.records()} - {large}) == 5, 60, "the newest events")
    assert [record.id for record in p.records()].count(large) == before, "its key was not parked, so it has no order"
    assert open_rows(p) == (0 if decision else 1)
