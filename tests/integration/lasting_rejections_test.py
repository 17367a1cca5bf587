"""A rejection that may pass must last before it counts: not again for each record, and not shorter for records that Kafka takes."""

import random
import signal
import threading
import time

import park_order_test
import pytest
import servers
from confluent_kafka.admin import NewPartitions
from kafka_answers import TOPIC_AUTHORIZATION_FAILED
from kafka_pair import insert, pipeline_of
from late_limit_test import LARGE, MSG_SIZE_TOO_LARGE, fixture_answering, insert_packed, pipeline_on, skipped  # noqa: F401
from messages_test import parked_behind

ROW = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, %s, 'Row', %s)"


def packing(make_pipeline, kafka, wait):
    """Whose producer packs records: noise keeps its size."""
    p = pipeline_on(make_pipeline, kafka, wait, {"compression.type": "gzip"})
    kafka.alter_topic(p.name, {"max.message.bytes": str(LARGE)})
    p.execute("SELECT outbox.set_payload_max(%s)", 20 * LARGE)
    p.insert(1, 1)
    p.wait_confirmed()
    return p


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


def test_records_that_are_taken_and_not_in_turn_hold_their_topic_once(make_pipeline, kafka):
    p = packing(make_pipeline, kafka, "4s")
    began = time.monotonic()
    for seed in range(6):
        p.execute(ROW, p.name, "k", noise(2 * LARGE, seed))
        p.execute(ROW, p.name, "k", b"\0" * 3 * LARGE)
    p.wait_confirmed()
    assert len(skipped(p)) == 6 and time.monotonic() - began < 12, "one wait of 4 s"


# Both are a little above and a little below the limit; the second is rejected for a moment.
@pytest.mark.full
def test_record_that_fits_the_limit_has_a_time_of_its_own(make_pipeline, answering):
    kafka, answers = answering
    p = packing(make_pipeline, kafka, "6s")
    p.execute(ROW, p.name, "k", noise(LARGE + 1_000))
    servers.wait_for(lambda: skipped(p), 60, "the decision")
    answers.spoil(MSG_SIZE_TOO_LARGE, instead=True, larger_than=LARGE // 2)
    p.execute(ROW, p.name, "k", noise(LARGE - 1_000))
    servers.wait_for(lambda: answers.spoilt >= 4 or len(skipped(p)) > 1, 60, "attempts")
    answers.stop()
    p.wait_confirmed()
    assert len(skipped(p)) == 1


@pytest.mark.full
def test_right_that_was_granted_in_between_must_be_missing_for_the_whole_time_again(make_pipeline, answering):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "5s")
    answers.spoil(TOPIC_AUTHORIZATION_FAILED, instead=True, larger_than=LARGE)
    p.insert_large(2 * LARGE)
    servers.wait_for(lambda: skipped(p), 60, "the first decision")
    answers.stop()
    began = time.monotonic()
    servers.wait_for(lambda: time.monotonic() > began + 11, 60, "more than what counts at once")
    answers.spoil(TOPIC_AUTHORIZATION_FAILED, instead=True, larger_than=LARGE)
    before = answers.spoilt
    p.insert_large(2 * LARGE)
    servers.wait_for(lambda: answers.spoilt >= before + 5 or len(skipped(p)) > 1, 60, "attempts")
    answers.stop()
    p.wait_confirmed()
    assert len(skipped(p)) == 1


# The topic takes events that are as large, again and again.
@pytest.mark.full
def test_message_that_is_too_large_leaves_its_key_while_its_topic_is_busy(make_pipeline, kafka):
    p = parked_behind(make_pipeline, kafka, unknown_topic_wait="6s", payload=noise(2 * LARGE), properties={"compression.type": "gzip"})
    p.execute("SELECT outbox.set_payload_max(%s)", 20 * LARGE)
    park_order_test.insert(p, "o1", "other", bad=True)
    servers.wait_for(lambda: park_order_test.open_rows(p) == 4, 60, "the row of the other key")
    park_order_test.correct(p)
    kafka.alter_topic(p.name, {"max.message.bytes": str(LARGE)})
    verbs = [threading.Thread(target=p.walpost.verb, args=("dlq", "retry", "--key", key), kwargs={"check": False}) for key in ("k", "other")]
    for verb in verbs:  # each waits for what becomes of it
        verb.start()

    def released():
        return park_order_test.types(p) == ["e1", "e2"] and park_order_test.types(p, "other")

    began = time.monotonic()
    while not released():
        assert time.monotonic() - began < 40
        p.execute(ROW, p.name, "busy", b"\0" * 3 * LARGE)
        next_at = time.monotonic() + 1
        servers.wait_for(lambda: time.monotonic() > next_at, 60, "the next row")  # noqa: B023
    for verb in verbs:
        verb.join()


# What a topic said must not count for another one.
@pytest.mark.full
def test_verb_gives_each_topic_a_time_of_its_own(make_pipeline, answering):
    kafka, answers = answering
    p = packing(make_pipeline, kafka, "6s")
    other = kafka.create_topic(p.name + "b", 1)
    kafka.alter_topic(p.name, {"max.message.bytes": "1048588"})
    p.execute(ROW, p.name, "k", noise(LARGE + 1_000))
    p.execute(ROW, other, "k", noise(LARGE - 1_000))
    p.wait_confirmed()
    for topic in (p.name, other):
        kafka.alter_topic(topic, {"max.message.bytes": str(LARGE)})
    answers.spoil(MSG_SIZE_TOO_LARGE, instead=True, larger_than=LARGE // 2)
    sent = []
    verb = threading.Thread(target=lambda: sent.append(p.walpost.verb("replay", "--all", "--in-place", "--skip-undeliverable", check=False)))
    began = time.monotonic()
    verb.start()
    servers.wait_for(lambda: sent or time.monotonic() > began + 9, 60, "the wait of the first topic, and half of the other's")
    answers.stop()
    verb.join()
    assert sent[0].returncode == 0 and len(kafka.read_all(other)) == 2, sent


# Somebody names partitions that there are not, while one broker does not know of new ones.
@pytest.mark.full
@pytest.mark.parametrize("silent", [False, True], ids=["answers", "silent"])
def test_partition_that_only_another_broker_knows_is_waited_for(make_pipeline, pair, silent):
    p = pipeline_of(make_pipeline, pair, progress_on=2)
    known = pair.create_topic(f"outbox.event.{p.name}k", node=2)
    # The producer asks any broker: with each topic it may be the one that does not know.
    topics = [pair.create_topic(f"outbox.event.{p.name}{number}", node=1) for number in range(1 if silent else 6)]
    expected = 2 if silent else len(topics)
    decided = lambda: p.walpost.status()["events"]["skipped"]  # noqa: E731
    p.start()
    insert(p, known, "k", "first")
    for topic in topics:
        insert(p, topic, "k", "none", 9999)
    servers.wait_for(lambda: decided() == len(topics), 60, "the decisions")
    pair.cut_off()
    for topic in topics:
        pair.add_partitions(topic, 8)
    if silent:
        pair.one.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    servers.wait_for(lambda: time.monotonic() > began + 1.5, 60, "more than what was looked up counts for")
    for topic in topics:
        if silent:
            insert(p, topic, "k", "none", 9998)
        insert(p, topic, "k", "new", 5)
    servers.wait_for(lambda: decided() > expected or time.monotonic() > began + 7, 60, "more than a short wait")
    pair.one.process.send_signal(signal.SIGCONT)
    pair.to_controller.set_mode("pass")
    servers.wait_for(lambda: decided() > expected or all(pair.read_all(topic) for topic in topics), 60, "the new partitions")
    assert decided() == expected


def with_partitions(make_pipeline, kafka, wait, **delivery):
    """Whose rows name a partition. The topic has one."""
    p = make_pipeline(on_kafka=kafka, create_topic=False, config={
        "outboxes": [{"table": "public.own", "preset": "debezium", "topic": "{aggregatetype}", "topics": {"allowed": ["*"]},
                      "columns": {"partition": "part"}}],
        "delivery": {"on_undeliverable": "skip", "unknown_topic_wait": wait, **delivery}})
    kafka.create_topic(p.name, 1)
    p.execute("CREATE TABLE public.own (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text,"
              " payload text, part int, seq bigserial)")
    return p.start()


def insert_for(p, partitions):
    p.execute("INSERT INTO public.own (aggregatetype, aggregateid, type, payload, part) SELECT %s, 'k', 'T', 'x', n FROM unnest(%s) n",
              p.name, partitions)


@pytest.mark.parametrize("step", [0, 1, -1], ids=["same", "rising", "falling"])
def test_rows_that_name_missing_partitions_hold_their_topic_once(make_pipeline, kafka, step):
    p = with_partitions(make_pipeline, kafka, "2s")
    began = time.monotonic()
    insert_for(p, [9_999 + step * number for number in range(60)])
    p.wait_confirmed()
    assert p.walpost.status()["events"]["skipped"] == 60 and time.monotonic() - began < 12, "one wait of 2 s"


# They fill what may be in flight many times.
def test_rows_that_name_missing_partitions_let_another_topic_go_on(make_pipeline, kafka):
    p = with_partitions(make_pipeline, kafka, "2s", in_flight_bytes_max="1MiB")
    other = kafka.create_topic(p.name + "other", 1)
    insert_for(p, [9_999])
    p.wait_confirmed()
    insert_for(p, [9_999] * 20_000)
    began = time.monotonic()
    p.execute("INSERT INTO public.own (aggregatetype, aggregateid, type, payload) VALUES (%s, 'k', 'T', 'x')", other)
    servers.wait_for(lambda: kafka.read_all(other), 60, "the event behind them")
    assert time.monotonic() - began < 4, "a part of a second"


# A row that came before it has just been rejected for another partition.
def test_partition_that_was_added_a_moment_ago_is_found(make_pipeline, kafka):
    p = with_partitions(make_pipeline, kafka, "2s")
    for partition in range(1, 4):
        insert_for(p, [9_999])
        servers.wait_for(lambda: len(skipped(p)) == partition, 60, "the decision")  # noqa: B023
        admin = kafka.admin()
        admin.create_partitions([NewPartitions(p.name, partition + 1)])[p.name].result(timeout=30)
        servers.wait_for(lambda: len(admin.list_topics(p.name, timeout=5).topics[p.name].partitions) > partition, 30, "it")  # noqa: B023
        insert_for(p, [partition])
        p.wait_confirmed()
    assert len(skipped(p)) == 3


# Somebody lowers it by mistake. A larger row has just been rejected.
def test_row_that_the_limit_of_before_took_waits_as_long_as_the_first(make_pipeline, kafka):
    p = pipeline_on(make_pipeline, kafka, "3s")
    p.execute("SELECT outbox.set_payload_max(%s)", 20 * LARGE)
    kafka.alter_topic(p.name, {"max.message.bytes": str(5 * LARGE)})
    p.execute(ROW, p.name, "k", noise(10 * LARGE))
    servers.wait_for(lambda: len(skipped(p)) == 1, 60, "the first decision")
    kafka.alter_topic(p.name, {"max.message.bytes": str(LARGE // 4)})
    began = time.monotonic()
    p.execute(ROW, p.name, "k", noise(LARGE))
    servers.wait_for(lambda: len(skipped(p)) == 2, 60, "the second decision")
    assert time.monotonic() - began >= 3


def test_partition_that_a_topic_made_anew_does_not_have_yet_is_waited_for(make_pipeline, kafka):
    p = with_partitions(make_pipeline, kafka, "4s")
    other = kafka.create_topic(p.name + "other", 1)
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(p.name, 6)])[p.name].result(timeout=30)
    insert_for(p, [5, 9_999])
    p.wait_confirmed()
    admin.delete_topics([p.name])[p.name].result(timeout=30)
    insert_for(p, [3])
    servers.wait_for(lambda: "_UNKNOWN_PARTITION" in str(p.walpost.status()), 30, "walpost to notice")
    p.execute("INSERT INTO public.own (aggregatetype, aggregateid, type, payload) VALUES (%s, 'k', 'T', 'x')", other)
    servers.wait_for(lambda: kafka.read_all(other), 30, "the topic behind it to be looked up")
    kafka.create_topic(p.name, 1)
    began = time.monotonic()
    servers.wait_for(lambda: len(skipped(p)) == 2, 60, "the second decision")
    assert time.monotonic() - began >= 3


# Each of them is asked about at each broker, with a client of its own.
def test_rows_that_name_ever_new_topics_connect_a_few_times_a_second(make_pipeline, proxied):
    kafka, proxy = proxied
    p = with_partitions(make_pipeline, kafka, "60s")
    insert_for(p, [0])
    p.wait_confirmed()
    before, began = proxy.accepted, time.monotonic()
    with p.connected() as cursor:
        for number in range(2_000):
            cursor.execute("INSERT INTO public.own (aggregatetype, aggregateid, type, payload) VALUES (%s, 'k', 'T', 'x')", [f"missing-{number}"])
            if time.monotonic() > began + 5:
                break
    rate = (proxy.accepted - before) / (time.monotonic() - began)
    assert rate < 16, "two for each look-up, of which there are at most seven"
