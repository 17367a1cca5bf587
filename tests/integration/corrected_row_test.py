"""Which row `walpost dlq retry` takes for that of a dead letter: one that was corrected, and none that has its id alone."""

import pytest

CLOUD_EVENTS = {"format": "cloudevents", "cloudevents": {"mode": "structured_json"}}  # takes JSON only


@pytest.fixture
def parking(make_pipeline):
    return make_pipeline(config={"outboxes": [{"table": "outbox.events", "value": CLOUD_EVENTS}],
                                 "delivery": {"on_undeliverable": "park"}}).start()


def insert(p, key, payload):
    (event,), = p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, content_type)"
                          " VALUES (%s, %s, 'T', convert_to(%s, 'UTF8'), 'application/json') RETURNING id::text", p.name, key, payload)
    p.wait_confirmed()
    return event


def open_rows(p):
    """(id, topic, key, whether it has no record, decision) in their order."""
    return p.execute("SELECT event_id, topic, convert_from(key, 'UTF8'), truncated_bytes IS NOT NULL, decision"
                     " FROM walpost.dead_letters WHERE closed_at IS NULL ORDER BY seq")


def retry(p, key, exit_code=0):
    done = p.walpost.verb("dlq", "retry", "--key", key, check=False)
    assert done.returncode == exit_code, done
    return done.stdout


def keys(p, topic):
    return [message.key().decode() for message in p.kafka.read_all(topic)]


def test_row_that_has_another_key_now_stays_parked_until_it_is_discarded(parking):
    p = parking
    bad = insert(p, "K1", "no json")
    p.execute("UPDATE outbox.events SET payload = '{}', aggregate_id = 'K2' WHERE id = %s", bad)
    said = retry(p, "K1", exit_code=75)
    assert bad in said and "key" in said and "discard" in said and "replay" in said
    assert open_rows(p) == [(bad, p.name, "K1", True, None)]
    p.walpost.verb("dlq", "discard", "--id", bad, "--yes")
    p.walpost.verb("replay", "--in-place", "--id", bad)
    insert(p, "K1", "1")
    assert not open_rows(p)
    assert sorted(keys(p, p.name)) == ["K1", "K2"]
    assert p.walpost.verb("audit").returncode == 0


def test_row_that_has_another_topic_now_goes_to_it_when_it_is_sent_anew(parking):
    p = parking
    other = p.kafka.create_topic(f"{p.name}-other", 1)
    bad = insert(p, "K1", "no json")
    p.execute("UPDATE outbox.events SET payload = '{}', aggregate_type = %s WHERE id = %s", other, bad)
    said = retry(p, "K1", exit_code=75)
    assert bad in said and other in said and "discard" in said
    assert open_rows(p) == [(bad, p.name, "K1", True, None)]
    p.walpost.verb("dlq", "discard", "--id", bad, "--yes")
    p.walpost.verb("replay", "--in-place", "--id", bad)
    assert (keys(p, p.name), keys(p, other)) == ([], ["K1"])
    assert p.walpost.verb("audit").returncode == 0


def test_key_of_which_one_row_is_still_bad_stays_as_it_was(parking):
    p = parking
    first, second = insert(p, "K1", "no json"), insert(p, "K1", "no json either")
    before = open_rows(p)
    p.execute("UPDATE outbox.events SET payload = '1' WHERE id = %s", first)
    assert second in retry(p, "K1", exit_code=75)
    assert open_rows(p) == before, "nothing was restored"
    p.execute("UPDATE outbox.events SET payload = '2' WHERE id = %s", second)
    retry(p, "K1")
    assert not open_rows(p)
    assert keys(p, p.name) == ["K1", "K1"]


def allowing(table, *topics):
    return {"outboxes": [{**table, "topics": {"allowed": list(topics)}}], "delivery": {"on_undeliverable": "dead_letter"}}


def values(p, topic):
    return [message.value().decode() for message in p.kafka.read_all(topic)]


@pytest.fixture
def deleted(make_pipeline, kafka):
    """A dead letter of a row without transaction ids that was deleted at once; later its topic is allowed."""
    table = {"table": "public.box", "preset": "debezium"}
    p = make_pipeline(create_topic=False)
    kafka.create_topic(f"outbox.event.{p.name}", 1)
    p.later = kafka.create_topic(f"outbox.event.later-{p.name}", 1)
    p.walpost = p.another(config=allowing(table, f"outbox.event.{p.name}"))
    p.execute("CREATE TABLE public.box (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)")
    p.walpost.init()
    p.walpost.start()
    p.execute("INSERT INTO box VALUES (%s, %s, 'k', 'T', 'its own'); DELETE FROM box", IDENTITY, f"later-{p.name}")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.walpost = p.another(config=allowing(table, f"outbox.event.{p.name}", p.later))
    return p


IDENTITY = "11111111-2222-4333-8444-555555555555"


@pytest.mark.parametrize("key", ["k", "another"])
def test_row_that_another_inserts_with_the_id_of_one_that_is_gone_is_not_sent_for_it(deleted, key):
    p = deleted
    p.execute("INSERT INTO box VALUES (%s, %s, %s, 'T', 'forged')", IDENTITY, p.name, key)
    p.walpost.start()
    p.wait_confirmed()
    retry(p, "k")
    assert values(p, p.later) == ["its own"] and values(p, f"outbox.event.{p.name}") == ["forged"]


def test_row_with_another_key_is_none_that_was_corrected_where_nothing_shows_its_transaction(make_pipeline, kafka):
    p = make_pipeline(create_topic=False)
    topic = kafka.create_topic(f"outbox.event.{p.name}", 1)
    p.walpost = p.another(config=allowing({"table": "public.box", "preset": "debezium", "columns": {"partition": "part"}}, topic))
    p.execute("CREATE TABLE public.box (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text, part integer)")
    p.walpost.init()
    p.walpost.start()
    p.execute("INSERT INTO box VALUES (%s, %s, 'k', 'T', 'v', -1)", IDENTITY, p.name)
    p.wait_confirmed()
    p.execute("UPDATE box SET aggregateid = 'another', part = 0")
    assert "replay --in-place --id" in retry(p, "k", exit_code=75) and not values(p, topic)
    p.execute("UPDATE box SET aggregateid = 'k'")
    retry(p, "k")
    assert values(p, topic) == ["v"]


def test_of_two_rows_with_one_id_the_one_of_the_transaction_is_sent(make_pipeline, kafka):
    p = make_pipeline()
    later = kafka.create_topic(f"later-{p.name}", 1)
    table = {"table": "outbox.events", "value": {"format": "raw"}}
    p.walpost = p.another(config=allowing(table, p.name))
    p.walpost.init()
    p.walpost.start()
    (event,), = p.execute("SELECT outbox.emit('T', %s, 'k', 'its own'::text)::text", later)
    for topic in (p.name, later):
        p.execute("SELECT outbox.emit('T', %s, 'k', 'forged'::text, id => %s)", topic, event)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.walpost = p.another(config=allowing(table, p.name, later))
    p.walpost.start()
    position, = (position for position, in p.execute("SELECT position FROM walpost.dead_letters ORDER BY seq LIMIT 1"))
    done = p.walpost.verb("dlq", "retry", "--position", position)
    assert done.returncode == 0 and values(p, later) == ["its own"], done


def test_of_two_rows_with_one_id_the_one_with_its_key_is_sent_where_no_row_is_kept(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}}).start()
    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    p.execute("SELECT outbox.set_payload_max(20000000)")
    (event,), = p.execute("SELECT outbox.emit('T', %s, 'k', repeat('x', 9000000), id => %s)::text", p.name, IDENTITY)
    p.execute("SELECT outbox.emit('T', %s, 'another', 'forged'::text, id => %s)", p.name, event)
    p.wait_confirmed()
    p.execute("UPDATE outbox.events SET payload = 'shorter' WHERE aggregate_id = 'k'")
    retry(p, "k")
    assert [record.envelope.payload for record in p.records() if record.key == "k"] == [b"shorter"]
