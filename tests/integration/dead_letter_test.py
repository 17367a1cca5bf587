"""delivery.on_undeliverable: what happens to an event that Kafka does not take, and to the rest."""

from refusing import Refusing

ROWS = 20_000


def letters(kafka, topic, pipeline):
    """The dead-letter topic's records of a pipeline: [(headers, key, value)]."""
    found = []
    for message in kafka.read_all(topic):
        headers = {name: value.decode() for name, value in message.headers()}
        if headers.get("walpost-dlq-pipeline") == pipeline:
            found.append((headers, message.key(), message.value()))
    return found


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
    p.insert(1, 10)
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload) VALUES"
              " ('00000000-0000-0000-0000-000000000bad', 'no such/topic', 'key-1', 'Created', 'secret payload')")
    p.insert(11, 20)
    p.wait_confirmed()
    (headers, key, value), = letters(kafka, "dead-unfit", p.name)
    assert headers["walpost-dlq-reason"] == "row_unfit" and headers["walpost-dlq-id"].endswith("bad")
    assert int(headers["walpost-dlq-left-out-bytes"]) > 0 and value is None
    assert len(p.records()) == 20


def test_five_megabytes_among_small_ones(make_pipeline, kafka):
    """The topic takes 1 MB; the dead-letter topic was made for more."""
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter", "dead_letter_topic": "dead-large"}}).start()
    p.insert(1, 100)
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload) VALUES"
              f" (gen_random_uuid(), '{p.name}', 'key-1', 'Large', convert_to(repeat('x', 5000000), 'UTF8'))")
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
    p.walpost.start()
    refusing.insert(1, 10, every=5)
    p.walpost.wait_state("halted", 60)
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "dead_letter_failed" and "dead-missing" in halt["detail"]
    p.walpost.init()
    p.walpost.signal(1)
    p.wait_confirmed()
    assert len(letters(kafka, "dead-missing", p.name)) == 2
    assert len(refusing.delivered()) >= 8
