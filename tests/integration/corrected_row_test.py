"""A parked event whose row was corrected: its key keeps its order, and a row that has another place now is not sent with it."""

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
