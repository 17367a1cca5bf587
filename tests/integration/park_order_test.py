"""The order within a parked key: of its rows, and of what comes again."""

import pytest
import servers
from rejecting import dead_letters

WAITS = {"unknown_topic_wait": "10min", "shutdown_timeout": "1s"}


def parking(make_pipeline, kafka, **delivery):
    """Events with a header of walpost's become no record."""
    p = make_pipeline(on_kafka=kafka, create_topic=False, config={"delivery": {"on_undeliverable": "park", **delivery}})
    kafka.create_topic(p.name, 1)
    p.start()
    p.execute("ALTER TABLE outbox.events DROP CONSTRAINT events_check")
    return p


def insert(p, name, key="k", bad=False):
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers) VALUES (%s, %s, %s, %s)",
              p.name, key, name, '{"walpost-x": "1"}' if bad else "{}")


def correct(p):
    p.execute("UPDATE outbox.events SET headers = '{}' WHERE headers IS NOT NULL")


def types(p, key="k"):
    return [record.envelope.type for record in p.records() if record.key == key]


def test_rows_that_become_no_record_are_parked_behind_earlier_events_of_their_key(make_pipeline, kafka):
    p = parking(make_pipeline, kafka)
    insert(p, "e0", bad=True)
    p.wait_confirmed()
    for n in range(20):
        p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers) VALUES"
                  f" (%s, 'k', 'e{3 * n + 1}', '{{}}'), (%s, 'k', 'e{3 * n + 2}', '{{}}'), (%s, 'k', 'e{3 * n + 3}', %s)",
                  p.name, p.name, p.name, '{"walpost-x": "1"}')
    p.wait_confirmed()
    assert [row["event_type"] for row, _, _ in dead_letters(p)] == [f"e{n}" for n in range(61)]


def test_rows_that_become_no_record_wait_for_earlier_events_that_wait_with_their_topic(make_pipeline, proxied):
    kafka, proxy = proxied
    p = parking(make_pipeline, kafka)
    insert(p, "e0", bad=True)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    insert(p, "other", key="o")  # its topic is looked up, and what follows waits with it
    for n in range(1, 6):
        insert(p, f"e{n}")
    insert(p, "e6", bad=True)
    proxy.set_mode("latency", delay_s=0.5)
    p.walpost.start(seconds=90)
    servers.wait_for(lambda: len(dead_letters(p)) >= 7, 90, "rows")
    proxy.set_mode("pass")
    p.wait_confirmed()
    correct(p)
    p.walpost.verb("dlq", "retry", "--key", "k")
    assert types(p) == [f"e{n}" for n in range(7)]


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one transaction"])
def test_what_was_delivered_before_its_key_was_parked_is_not_parked_when_it_comes_again(make_pipeline, kafka, together):
    p = parking(make_pipeline, kafka, **WAITS)
    p.insert(1, 1, topic=f"missing-{p.name}")  # so that all behind it comes again
    if together:
        p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers) VALUES (%s, 'k', 'e1', '{}'), (%s, 'k', 'e2', '{}'),"
                  " (%s, 'k', 'e3', '{\"walpost-x\": \"1\"}')", p.name, p.name, p.name)
    else:
        insert(p, "e1")
        insert(p, "e2")
        servers.wait_for(lambda: len(p.records()) == 2, 60, "the first two")
        insert(p, "e3", bad=True)
    servers.wait_for(lambda: len(dead_letters(p)) == 1, 60, "the row")
    p.walpost.stop()
    p.walpost.start()
    insert(p, "e4")
    servers.wait_for(lambda: "e4" in [row["event_type"] for row, _, _ in dead_letters(p)], 60, "its row")
    assert [row["event_type"] for row, _, _ in dead_letters(p)] == ["e3", "e4"]
    correct(p)
    p.walpost.verb("dlq", "retry", "--key", "k")
    insert(p, "e5")
    servers.wait_for(lambda: "e5" in types(p), 60, "e5")
    assert types(p) == ["e1", "e2", "e3", "e4", "e5"]


def test_what_was_delivered_before_a_released_row_is_not_sent_behind_it_when_it_comes_again(make_pipeline, kafka):
    p = parking(make_pipeline, kafka, **WAITS)
    p.insert(1, 1, topic=f"missing-{p.name}")
    insert(p, "e0")
    servers.wait_for(lambda: types(p) == ["e0"], 60, "e0")
    insert(p, "e1", bad=True)
    servers.wait_for(lambda: len(dead_letters(p)) == 1, 60, "the row")
    correct(p)
    p.walpost.verb("dlq", "retry", "--key", "k")
    assert types(p) == ["e0", "e1"]
    p.walpost.kill9()
    p.walpost.start()
    insert(p, "after", key="o")
    servers.wait_for(lambda: types(p, "o"), 60, "what is behind all that comes again")
    assert types(p) == ["e0", "e1"]
