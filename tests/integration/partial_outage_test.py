"""One broker of two is away: what goes to the other is delivered, whatever happens to the producer."""

import signal
import time

import pytest
import servers
from kafka_pair import KafkaPair


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    made = KafkaPair(tmp_path_factory.mktemp("pair"))
    yield made
    made.close()


@pytest.fixture
def outage(make_pipeline, pair):
    """A pipeline with an event that waits for the broker that is away; after the test all events of that topic are there."""
    p = make_pipeline(on_kafka=pair, create_topic=False, properties={"compression.codec": "gzip"},
                      config={"delivery": {"on_undeliverable": "dead_letter"}})
    pair.create_topic(p.name, config={"max.message.bytes": "5000000"})
    pair.create_topic(p.name + "small", config={"max.message.bytes": "3000"})
    pair.create_topic(p.name + "away", node=2)
    pair.create_topic(f"walpost.progress.{p.name}")
    p.start()
    p.insert(1, 1)
    p.insert(1, 1, topic=p.name + "away")
    p.wait_confirmed()
    pair.two.kill9()
    p.insert(2, 2, topic=p.name + "away")
    p.insert(3, 3, topic=p.name + "away")
    yield p
    pair.two.start()
    p.wait_confirmed()
    assert len(pair.read_all(p.name + "away")) == 3
    assert p.walpost.stop() == 0


def await_delivered(p, pair, first, count):
    """Of the topic whose broker is there. One at a time: each is read from the stream after the last was delivered."""
    before = len(pair.read_all(p.name))
    for event in range(first, first + count):
        p.insert(event, event)
        before += 1
        servers.wait_for(lambda: len(pair.read_all(p.name)) >= before, 60, f"event {event}")  # noqa: B023


def test_a_rejected_record_does_not_stop_other_topics(outage, pair):
    # Compressed, so only the broker knows that it is too large.
    outage.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload) SELECT gen_random_uuid(), %s,"
                   " 'key-1', 'Large', convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8') FROM generate_series(1, 400)",
                   outage.name + "small")
    servers.wait_for(lambda: outage.execute("SELECT 1 FROM walpost.dead_letters"), 60, "the dead letter")
    await_delivered(outage, pair, 2, 10)


def test_a_record_that_needs_another_producer_does_not_stop_other_topics(outage, pair):
    outage.insert_large(2_000_000)
    await_delivered(outage, pair, 2, 10)
    assert "kafka_producer_replaced" in {line["event"] for line in outage.walpost.log_events()}


def test_a_new_configuration_does_not_stop_other_topics(outage, pair):
    outage.walpost.signal(signal.SIGHUP)
    servers.wait_for(lambda: "kafka_producer_replaced" in outage.walpost.log_text(), 30, "another producer")
    await_delivered(outage, pair, 2, 10)


# The next connection could not be made: nobody would say whether another instance has gone on.
def test_planned_reconnect_waits_for_the_progress_topic(make_pipeline, pair):
    interval_s = 2
    p = make_pipeline(on_kafka=pair, create_topic=False, config={"source": {"reconnect_interval": f"{interval_s}s"}})
    pair.create_topic(p.name)
    pair.create_topic(f"walpost.progress.{p.name}", node=2)
    p.start()
    p.insert(1, 1)
    p.wait_confirmed()
    pair.two.kill9()
    away, event = time.monotonic(), 2
    while time.monotonic() < away + 5 * interval_s:
        await_delivered(p, pair, event, 1)
        event += 1
    assert p.walpost.status()["state"] == "streaming" and p.slot()["active"]
    pid = p.slot()["pid"]
    pair.two.start()
    p.wait_confirmed()
    servers.wait_for(lambda: p.slot()["pid"] not in (pid, None), 60, "a planned reconnect")
    assert p.walpost.stop() == 0
