"""delivery.on_undeliverable: what happens to an event that Kafka does not take, and to the rest."""

import threading

import servers
from confluent_kafka import Producer
from refusing import Refusing, letters

ROWS = 20_000


# Failure 70.
def test_dead_letter_takes_what_the_broker_refuses_and_the_rest_goes_on(make_pipeline, kafka):
    refusing = Refusing(make_pipeline, kafka, on_undeliverable="dead_letter", dead_letter_topic="dead-refused")
    p = refusing.pipeline
    refusing.insert(1, ROWS, every=100)
    p.wait_confirmed()
    rows = refusing.rows()
    refused = [event for event, is_refused in rows if is_refused]
    assert len(refused) == ROWS // 100
    assert sorted(refusing.delivered()) == sorted(event for event, is_refused in rows if not is_refused), "each once"
    found = letters(kafka, "dead-refused", p.name)
    assert [headers["id"] for headers, _, _ in found] == refused, "each once, in order"
    headers, key, value = found[0]
    assert key is None and value == b"100"
    assert headers["walpost-dlq"] == "letter" and headers["walpost-dlq-reason"] == "record_invalid"
    assert headers["walpost-dlq-topic"] == refusing.topic and headers["walpost-dlq-table"] == "public.outbox"
    events = p.walpost.status()["events"]
    assert events["received"] == ROWS and events["dead_lettered"] == ROWS // 100 and events["in_flight"] == 0
    assert events["delivered"] == ROWS - ROWS // 100
    told = [line for line in p.walpost.log_events() if line["event"] == "event_dead_lettered"]
    assert told and told[0]["event_id"] == refused[0] and told[0]["reason"] == "record_invalid"


def test_skip_counts_what_is_refused_and_goes_on(make_pipeline, kafka):
    refusing = Refusing(make_pipeline, kafka, on_undeliverable="skip")
    p = refusing.pipeline
    refusing.insert(1, 1_000, every=100)
    p.wait_confirmed()
    assert sorted(refusing.delivered()) == sorted(event for event, is_refused in refusing.rows() if not is_refused)
    events = p.walpost.status()["events"]
    assert events["skipped"] == 10 and events["delivered"] == 990 and events["received"] == 1_000


def test_rows_that_become_no_record_are_stubs(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter", "dead_letter_topic": "dead-unfit"}}).start()
    p.allow_bad_topics()
    p.insert(1, 10)
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload) VALUES"
              " ('00000000-0000-0000-0000-000000000bad', 'no such/topic', 'key-1', 'Created', 'secret payload')")
    p.insert(11, 20)
    p.wait_confirmed()
    (headers, key, value), = letters(kafka, "dead-unfit", p.name)
    assert headers["walpost-dlq-reason"] == "row_unfit" and headers["walpost-dlq-id"].endswith("bad")
    assert int(headers["walpost-dlq-left-out-bytes"]) > 0 and value is None
    assert len(p.records()) == 20


# Failure 69.
def test_five_megabytes_among_small_ones(make_pipeline, kafka):
    """The topic takes 1 MB; the dead-letter topic was made for more."""
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter", "dead_letter_topic": "dead-large"}}).start()
    p.insert(1, 100)
    p.insert_large(5_000_000)
    p.insert(101, 200)
    p.wait_confirmed()
    (headers, key, value), = letters(kafka, "dead-large", p.name)
    assert headers["walpost-dlq-reason"] == "record_too_large" and "max.message.bytes" in headers["walpost-dlq-detail"]
    assert key == b"key-1" and len(value) > 5_000_000
    assert len(p.records()) == 200


def test_missing_dead_letter_topic_halts_and_goes_on_once_it_is_made(make_pipeline, kafka):
    refusing = Refusing(make_pipeline, kafka, on_undeliverable="skip")
    p = refusing.pipeline
    p.walpost.stop()
    p.walpost = p.another(config={**p.options["config"],
                                  "delivery": {"on_undeliverable": "dead_letter", "dead_letter_topic": "dead-missing"}})
    p.walpost.start(wait="halted")
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "dead_letter_failed" and "dead-missing" in halt["detail"]
    refusing.insert(1, 10, every=5)
    p.walpost.init()
    p.walpost.signal(1)
    p.wait_confirmed()
    assert len(letters(kafka, "dead-missing", p.name)) == 2
    assert len(refusing.delivered()) == 8


# --- park ---


def command(p, kafka, topic, action, key):
    """What `walpost dlq retry` and `discard` append for a parked key."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, key=key.encode(), partition=0, headers=[
        ("walpost-dlq", b"command"), ("walpost-dlq-pipeline", p.name.encode()), ("walpost-dlq-action", action.encode()),
        ("walpost-dlq-topic", p.name.encode())])
    assert producer.flush(20) == 0


def answer(p, kafka, topic):
    """The last decision, once there are as many as commands."""
    def answered():
        kinds = [headers["walpost-dlq"] for headers, _, _ in letters(kafka, topic, p.name)]
        return kinds.count("decision") == kinds.count("command")

    servers.wait_for(answered, 60, "the command to be answered")
    return [headers for headers, _, _ in letters(kafka, topic, p.name) if headers["walpost-dlq"] == "decision"][-1]


def test_park_keeps_a_keys_order_until_it_is_retried_while_new_events_come(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "park", "dead_letter_topic": "dead-park"}}).start()
    p.insert(1, 100)
    p.insert_large(5_000_000)
    p.insert(101, 300)
    p.wait_confirmed()
    parked = [headers for headers, _, _ in letters(kafka, "dead-park", p.name)]
    assert [headers["walpost-dlq"] for headers in parked] == ["parked"] * 21
    assert [headers["walpost-dlq-reason"] for headers in parked] == ["record_too_large"] + ["key_parked"] * 20
    assert len(p.records()) == 280
    events = p.walpost.status()["events"]
    assert events["parked"] == 21 and events["parked_keys"] == 1 and events["delivered"] == 280

    command(p, kafka, "dead-park", "retry", "key-1")
    assert "cannot be delivered yet" in answer(p, kafka, "dead-park")["walpost-dlq-detail"]
    p.walpost.kill9()
    p.walpost.start()
    servers.wait_for(lambda: p.walpost.status()["events"]["parked_keys"] == 1, 20, "the log to tell of the key")

    kafka.alter_topic(p.name, {"max.message.bytes": "10000000"})
    writer = threading.Thread(target=p.insert_transactions, args=(1, 4_000), kwargs={"keys": 10})
    writer.start()
    command(p, kafka, "dead-park", "retry", "key-1")
    assert answer(p, kafka, "dead-park")["walpost-dlq-action"] == "delivered"
    writer.join()
    p.wait_confirmed()
    servers.wait_for(lambda: p.walpost.status()["events"]["parked_keys"] == 0, 20, "the key to be released")
    committed = sorted(p.committed().items(), key=lambda item: item[1][1])
    for key in {key for _, (key, _) in committed}:
        ids = list(dict.fromkeys(record.id for record in p.records() if record.key == key))
        assert ids == [event for event, (of, _) in committed if of == key], f"{key}: each event, in commit order"


def test_discarded_key_goes_on_with_its_next_event(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "park", "dead_letter_topic": "dead-discard"}}).start()
    p.insert_large(5_000_000)
    p.insert(1, 20)
    p.wait_confirmed()
    assert len(p.records()) == 18
    command(p, kafka, "dead-discard", "discard", "key-1")
    assert answer(p, kafka, "dead-discard")["walpost-dlq-action"] == "discarded"
    p.insert(21, 40)
    p.wait_confirmed()
    assert len(p.records()) == 38
