"""The order of the rows within a parked key."""

import re
import threading

import psycopg2
import pytest
import servers
from confluent_kafka.admin import NewTopic
from rejecting import dead_letters

def parking(make_pipeline, kafka, on_postgres=None, **delivery):
    """Events with a header of walpost's become no record."""
    p = make_pipeline(on_postgres=on_postgres, on_kafka=kafka, create_topic=False,
                      config={"delivery": {"on_undeliverable": "park", **delivery}})
    kafka.create_topic(p.name, 1)
    p.start()
    p.execute("ALTER TABLE outbox.events DROP CONSTRAINT events_check")
    return p


def insert(p, name, key="k", bad=False):
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers) VALUES (%s, %s, %s, %s)",
              p.name, key, name, '{"walpost-x": "1"}' if bad else "{}")


def correct(p):
    p.execute("UPDATE outbox.events SET headers = '{}' WHERE headers IS NOT NULL")


def open_rows(p):
    return p.execute("SELECT count(*) FROM walpost.dead_letters WHERE closed_at IS NULL")[0][0]


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


@pytest.mark.full
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


def held_back(make_pipeline, kafka):
    """An event waits for its topic, so all behind it comes again with each start. "e0" is delivered, "e1" is parked."""
    p = parking(make_pipeline, kafka, unknown_topic_wait="10min", shutdown_timeout="1s")
    p.insert(1, 1, topic=f"missing-{p.name}")
    insert(p, "e0")
    insert(p, "e1", bad=True)
    servers.wait_for(lambda: len(dead_letters(p)) == 1 and types(p) == ["e0"], 60, "the row")
    return p


def restart(p):
    p.walpost.stop()
    p.walpost.start()


def test_event_from_before_the_parked_ones_comes_again_before_them(make_pipeline, kafka):
    p = held_back(make_pipeline, kafka)
    insert(p, "e2")
    servers.wait_for(lambda: len(dead_letters(p)) == 2, 60, "the row behind it")
    restart(p)
    insert(p, "e3")
    servers.wait_for(lambda: len(dead_letters(p)) >= 3 and types(p) == ["e0", "e0"], 60, "what comes again")
    correct(p)
    p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "60s")
    assert types(p) == ["e0", "e0", "e1", "e2", "e3"]


def retry(p):
    correct(p)
    p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "60s")


def test_event_that_was_sent_from_its_row_comes_again_as_the_row_has_it(make_pipeline, kafka):
    p = held_back(make_pipeline, kafka)
    retry(p)
    insert(p, "e2")
    insert(p, "e3", bad=True)
    servers.wait_for(lambda: open_rows(p) == 1 and types(p) == ["e0", "e1", "e2"], 60, "the second row")
    restart(p)  # the stream brings "e1" as it was written
    servers.wait_for(lambda: len(types(p)) >= 6, 60, "what comes again")
    assert open_rows(p) == 1, "nobody decided about it"
    retry(p)
    assert types(p) == ["e0", "e1", "e2", "e0", "e1", "e2", "e3"]
    restart(p)
    insert(p, "e4")
    servers.wait_for(lambda: "e4" in types(p), 60, "a new one")
    assert types(p)[7:] == ["e0", "e1", "e2", "e3", "e4"]
    assert not open_rows(p)


def test_policy_that_halts_does_not_halt_on_what_was_sent(make_pipeline, kafka):
    p = held_back(make_pipeline, kafka)
    retry(p)
    p.walpost.stop()
    p.walpost = p.another(config={"delivery": {"on_undeliverable": "halt", "unknown_topic_wait": "10min", "shutdown_timeout": "1s"}})
    p.walpost.start()
    insert(p, "e2")
    servers.wait_for(lambda: "e2" in types(p), 60, "a new one")
    assert types(p) == ["e0", "e1", "e0", "e1", "e2"]


def decide_before_start(p):
    """The release could begin before the stream comes to the events of its rows."""
    p.walpost.stop()
    correct(p)
    p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "0s", check=False)


def test_rows_are_sent_behind_what_comes_again_before_them(make_pipeline, kafka):
    p = held_back(make_pipeline, kafka)
    retry(p)
    p.insert(1, 25_000)  # time for the release
    insert(p, "e2")
    servers.wait_for(lambda: types(p) == ["e0", "e1", "e2"], 60, "e2")
    insert(p, "e3", bad=True)
    servers.wait_for(lambda: open_rows(p) == 1, 60, "the row")
    decide_before_start(p)
    p.walpost.start()
    insert(p, "e4")
    servers.wait_for(lambda: "e4" in types(p), 60, "a new one")
    assert types(p)[3:] == ["e0", "e1", "e2", "e3", "e4"]


def test_rows_that_cannot_be_closed_stop_nobody(make_pipeline, kafka):
    p = held_back(make_pipeline, kafka)
    decide_before_start(p)
    with p.connected(autocommit=False) as cursor:
        cursor.execute("SELECT FROM walpost.dead_letters FOR UPDATE")
        p.walpost.start()
        servers.wait_for(lambda: "e1" in types(p), 60, "the record of the row")
        insert(p, "other", key="o")
        servers.wait_for(lambda: types(p, "o") == ["other"], 60, "another key")
    insert(p, "e2")
    servers.wait_for(lambda: "e2" in types(p), 60, "a new one")
    assert types(p)[-3:] == ["e0", "e1", "e2"]
    assert not open_rows(p)


def test_discard_that_somebody_holds_up_stops_no_retry(make_pipeline, kafka):
    p = parking(make_pipeline, kafka)
    insert(p, "e1", bad=True)
    insert(p, "b1", key="b", bad=True)
    servers.wait_for(lambda: open_rows(p) == 2, 60, "the rows")
    correct(p)
    with p.connected(autocommit=False) as cursor:
        cursor.execute("UPDATE walpost.dead_letters SET decision = 'discard', of_key = true WHERE event_type = 'b1'")
        cursor.execute("COMMIT; BEGIN; SELECT FROM walpost.dead_letters WHERE event_type = 'b1' FOR UPDATE")
        servers.wait_for(lambda: "lock timeout" in str(p.walpost.status()), 60, "a discard that waits")
        p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "60s")
        assert types(p) == ["e1"]
    servers.wait_for(lambda: open_rows(p) == 0, 60, "the discard")
    assert types(p, "b") == []


def test_row_without_a_key_that_is_sent_before_its_event_comes_again_settles_it(make_pipeline, kafka):
    p = parking(make_pipeline, kafka, on_undeliverable="dead_letter", unknown_topic_wait="10min", shutdown_timeout="1s")
    p.insert(1, 1, topic=f"missing-{p.name}")
    p.insert(1, 15_000)
    insert(p, "e1", bad=True)
    servers.wait_for(lambda: open_rows(p) == 1, 60, "the row")
    decide_before_start(p)
    p.walpost = p.another(config={"delivery": {"on_undeliverable": "halt", "unknown_topic_wait": "10min", "shutdown_timeout": "1s"}})
    p.walpost.start()
    servers.wait_for(lambda: "e1" in types(p), 60, "the row, which later events do not wait for")
    insert(p, "e2")
    servers.wait_for(lambda: "e2" in types(p), 60, "a new one")
    assert types(p) == ["e1", "e2"]


def test_row_of_a_parked_key_is_sent_to_no_other_topic(make_pipeline, kafka):
    p = held_back(make_pipeline, kafka)
    with pytest.raises(psycopg2.Error):
        p.execute("UPDATE walpost.dead_letters SET decision = 'retry', send_to = 'elsewhere'")
    p.execute("ALTER TABLE walpost.dead_letters DISABLE TRIGGER ALL")  # as a table of before
    kafka.create_topic(f"{p.name}-elsewhere", 1)
    decide_before_start(p)
    p.execute("UPDATE walpost.dead_letters SET send_to = %s", f"{p.name}-elsewhere")
    p.walpost.start()
    servers.wait_for(lambda: open_rows(p) == 0, 60, "the row")
    restart(p)
    insert(p, "e2")
    servers.wait_for(lambda: "e2" in types(p), 60, "a new one")
    assert "e1" not in types(p)
    assert len(kafka.read_all(f"{p.name}-elsewhere")) == 1


def test_sent_row_goes_once_its_event_cannot_come_again(make_pipeline, kafka):
    p = held_back(make_pipeline, kafka)
    retry(p)
    assert len(dead_letters(p)) == 1
    kafka.create_topic(f"missing-{p.name}", 1)

    def is_gone():
        insert(p, "e2")
        p.wait_confirmed()
        p.execute("CHECKPOINT")  # the slot's restart_lsn moves
        restart(p)
        return not dead_letters(p)

    servers.wait_for(is_gone, 60, "the row to go")


def test_without_progress_a_restart_of_the_server_parks_no_key_again(make_pipeline, kafka, workspace):
    server = workspace.postgres()
    p = parking(make_pipeline, kafka, on_postgres=server, progress_topic="", shutdown_timeout="1s")
    insert(p, "e0")
    insert(p, "e1", bad=True)
    servers.wait_for(lambda: open_rows(p) == 1 and types(p) == ["e0"], 60, "the row")
    p.wait_confirmed()
    retry(p)
    insert(p, "e2")
    p.wait_confirmed()
    p.walpost.stop()
    server.restart("fast")  # before 17 it forgets what was confirmed since its last checkpoint
    p.walpost.start()
    insert(p, "e3")
    servers.wait_for(lambda: "e3" in types(p), 60, "a new one")
    assert not open_rows(p)
    assert types(p) in (["e0", "e1", "e2", "e3"], ["e0", "e1", "e2", "e0", "e1", "e2", "e3"],
                        ["e0", "e1", "e2", "e1", "e2", "e3"])


@pytest.mark.parametrize("discarded", [False, True])
def test_row_that_a_verb_wrote_stands_where_the_row_before_it_does(make_pipeline, kafka, workspace, discarded):
    """It has no position of its own."""
    server = workspace.postgres()
    p = parking(make_pipeline, kafka, on_postgres=server, progress_topic="", shutdown_timeout="1s")
    insert(p, "x")
    p.wait_confirmed()
    p.execute("CHECKPOINT")
    p.insert(1, 20_000)
    insert(p, "e0")
    insert(p, "e1", bad=True)
    servers.wait_for(lambda: open_rows(p) == 1 and "e0" in types(p), 120, "the row")
    p.wait_confirmed()
    p.walpost.verb("replay", "--in-place", "--type", "x")
    position = p.execute("SELECT position FROM walpost.dead_letters WHERE event_type = 'e1'")[0][0]
    if discarded:
        p.walpost.verb("dlq", "discard", "--position", position, "--yes", "--wait", "60s")
    p.walpost.stop()
    server.restart("fast")  # before 17 it forgets what was confirmed since its last checkpoint
    correct(p)
    p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "0s", check=False)
    before = len(types(p))
    p.walpost.start()
    insert(p, "e4")
    servers.wait_for(lambda: "e4" in types(p), 120, "a new one")
    after = types(p)[before:]
    assert not open_rows(p)
    assert [name for name in after if name != "e0"] == (["x", "e4"] if discarded else ["e1", "x", "e4"]), after
    assert "e0" not in after or after[0] == "e0"


def test_row_that_was_sent_comes_again_before_one_that_a_verb_wrote_behind_it(make_pipeline, kafka, workspace):
    server = workspace.postgres()
    p = parking(make_pipeline, kafka, on_postgres=server, progress_topic="", shutdown_timeout="1s")
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, 'k', 'x',"
              " decode(repeat('ab', 20000), 'hex'))", p.name)
    p.wait_confirmed()
    p.execute("CHECKPOINT")
    insert(p, "e0")
    insert(p, "e1", bad=True)
    servers.wait_for(lambda: open_rows(p) == 1 and "e0" in types(p), 60, "the row")
    p.wait_confirmed()
    p.walpost.verb("replay", "--in-place", "--type", "x")
    kafka.alter_topic(p.name, {"max.message.bytes": "5000"})
    correct(p)
    p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "60s", check=False)
    assert types(p) == ["x", "e0", "e1"] and open_rows(p) == 1
    p.walpost.stop()
    server.restart("fast")  # before 17 it forgets what was confirmed since its last checkpoint
    p.walpost.start()
    p.insert(1, 1)
    p.wait_confirmed()
    assert types(p)[3:] in ([], ["e0", "e1"])
    assert open_rows(p) == 1


def test_event_that_was_skipped_and_comes_again_is_sent_at_its_place(make_pipeline, kafka):
    """It becomes a row behind those of later events."""
    p = held_back(make_pipeline, kafka)

    def change_policy(policy):
        p.walpost.stop()
        p.walpost = p.another(config={"delivery": {"on_undeliverable": policy, "unknown_topic_wait": "10min",
                                                   "shutdown_timeout": "1s"}})
        p.walpost.start()

    change_policy("skip")
    insert(p, "e2", bad=True)
    insert(p, "e3")
    servers.wait_for(lambda: open_rows(p) == 2, 60, "the row of e3")
    change_policy("park")
    insert(p, "e4")
    servers.wait_for(lambda: open_rows(p) == 4, 60, "the row of e4")
    retry(p)
    assert [name for name in types(p) if name != "e0"] == ["e1", "e2", "e3", "e4"]


@pytest.mark.full
def test_rows_that_somebody_holds_stop_no_reading_after_a_reconnect(make_pipeline, kafka):
    p = parking(make_pipeline, kafka, dead_letters_max=5)
    insert(p, "e1", bad=True)
    insert(p, "b1", key="b", bad=True)
    insert(p, "c1", key="c", bad=True)  # half of the table is full
    servers.wait_for(lambda: open_rows(p) == 3, 60, "the rows")
    p.wait_confirmed()
    decide_before_start(p)
    p.walpost.verb("dlq", "discard", "--key", "b", "--yes", "--wait", "0s", check=False)
    with p.connected(autocommit=False) as cursor:
        cursor.execute("SELECT FROM walpost.dead_letters WHERE event_type IN ('e1', 'b1') FOR UPDATE")
        p.walpost.start()
        servers.wait_for(lambda: "e1" in types(p) and "lock timeout" in str(p.walpost.status()), 60, "the lock")
        before = p.walpost.status()["reconnects"]
        p.execute("SELECT pg_terminate_backend(%s)", p.slot()["pid"])
        servers.wait_for(lambda: p.walpost.status()["reconnects"] > before and p.slot()["active"], 60, "another connection")
        insert(p, "other", key="o")
        servers.wait_for(lambda: types(p, "o") == ["other"], 90, "another key")


def test_retry_makes_room_in_a_full_table(make_pipeline, kafka):
    p = parking(make_pipeline, kafka, unknown_topic_wait="10min", shutdown_timeout="1s", dead_letters_max=3)
    p.insert(1, 1, topic=f"missing-{p.name}")
    insert(p, "e0")
    insert(p, "e1", bad=True)
    servers.wait_for(lambda: open_rows(p) == 1 and types(p) == ["e0"], 60, "the row")
    insert(p, "e2")
    insert(p, "e3")
    servers.wait_for(lambda: open_rows(p) == 3, 60, "the rows behind it")
    insert(p, "e4")
    servers.wait_for(lambda: p.walpost.status()["halt"], 60, "the halt")
    decide_before_start(p)
    p.walpost.start()
    servers.wait_for(lambda: "e4" in types(p), 60, "the newest")
    assert types(p) == ["e0", "e0", "e1", "e2", "e3", "e4"]


def test_retry_that_waits_for_the_stream_stops_no_other_and_can_be_discarded(make_pipeline, kafka):
    p = parking(make_pipeline, kafka, unknown_topic_wait="10min", shutdown_timeout="1s")
    p.insert(1, 1, topic=f"missing-{p.name}")
    insert(p, "j1", key="j", bad=True)
    p.insert(1, 2_000)
    insert(p, "e1", bad=True)
    servers.wait_for(lambda: open_rows(p) == 2, 60, "the rows")
    decide_before_start(p)
    p.walpost = p.another(config={"delivery": {"on_undeliverable": "park", "unknown_topic_wait": "10min",
                                               "shutdown_timeout": "1s", "in_flight_bytes_max": "64KiB"}})
    p.walpost.start(wait=None)
    servers.wait_for(lambda: (p.walpost.status() or {}).get("state") == "backpressured", 60, "reading to wait")
    p.walpost.verb("dlq", "retry", "--key", "j", "--wait", "60s")
    assert types(p, "j") == ["j1"]
    p.walpost.verb("dlq", "discard", "--key", "k", "--yes", "--wait", "60s")
    assert types(p) == []


def test_lock_of_the_table_stops_no_reading_at_a_connect(make_pipeline, kafka):
    p = parking(make_pipeline, kafka)
    insert(p, "e1", bad=True)
    servers.wait_for(lambda: open_rows(p) == 1, 60, "the row")
    p.wait_confirmed()
    p.walpost.stop()
    with p.connected(autocommit=False) as cursor:
        cursor.execute("LOCK TABLE walpost.dead_letters IN SHARE MODE")
        p.walpost.start()
        insert(p, "other", key="o")
        servers.wait_for(lambda: "other" in types(p, "o"), 60, "another key")


def test_documented_statement_deletes_what_cannot_come_again(make_pipeline, kafka):
    text = (servers.ROOT / "docs/dead-letters.md").read_text()
    statement = re.search(r"DELETE FROM walpost.dead_letters d[^;]*;", text).group(0)
    p = held_back(make_pipeline, kafka)
    statement = statement.replace("orders", p.name).replace(f"walpost_{p.name}", p.name).replace("90 days", "0 s").replace("%", "%%")
    p.walpost.verb("dlq", "discard", "--key", "k", "--yes", "--wait", "60s")
    p.execute(statement)
    assert len(dead_letters(p)) == 1
    kafka.create_topic(f"missing-{p.name}", 1)

    def is_gone():
        insert(p, "e2", key="o")
        p.wait_confirmed()
        p.execute("CHECKPOINT")  # the slot's restart_lsn moves
        p.execute(statement)
        return not dead_letters(p)

    servers.wait_for(is_gone, 60, "the row to go")


def test_retry_of_which_one_row_was_taken_back_stops_no_other_key(make_pipeline, kafka):
    p = parking(make_pipeline, kafka)
    for name, key, bad in (("e1", "k", True), ("e2", "k", False), ("j1", "j", True), ("d1", "d", True)):
        insert(p, name, key, bad)
    servers.wait_for(lambda: open_rows(p) == 4, 60, "the rows")
    assert p.walpost.stop() == 0
    correct(p)
    p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "0s", check=False)
    p.execute("UPDATE walpost.dead_letters SET decision = NULL WHERE event_type = 'e1'")
    p.walpost.start()
    p.walpost.verb("dlq", "retry", "--key", "j", "--wait", "60s")
    p.walpost.verb("dlq", "discard", "--key", "d", "--yes", "--wait", "60s")
    assert types(p) == [] and types(p, "j") == ["j1"]
    assert p.execute("SELECT event_type, decision FROM walpost.dead_letters WHERE closed_at IS NULL ORDER BY seq") == [("e1", None), ("e2", None)]


def test_full_table_whose_retry_fails_at_once_has_the_discards_behind_it_carried_out(make_pipeline, kafka):
    p = parking(make_pipeline, kafka, dead_letters_max=6, shutdown_timeout="1s")
    insert(p, "e1", bad=True)
    insert(p, "e2")
    for n in range(4):
        insert(p, f"d{n}", key="d", bad=True)
    servers.wait_for(lambda: open_rows(p) == 6, 60, "the rows")
    p.execute("UPDATE walpost.dead_letters SET decision = 'retry' WHERE event_type = 'e2'")  # it cannot go before e1
    insert(p, "e3")
    servers.wait_for(lambda: p.walpost.status()["halt"], 60, "the halt")
    p.walpost.verb("dlq", "discard", "--key", "d", "--yes", "--wait", "0s", check=False)
    p.walpost.stop()
    p.walpost.start()
    p.wait_confirmed()
    assert open_rows(p) == 3 and not p.walpost.status()["halt"]


@pytest.mark.full
def test_discards_end_a_release_that_waits_for_its_topic(make_pipeline, pair):
    """One partition of the topic has no leader, and an event waits for it."""
    p = make_pipeline(on_kafka=pair, create_topic=False, config={"delivery": {"on_undeliverable": "park", "shutdown_timeout": "1s"}})
    for topic in (f"walpost.progress.{p.name}", "other-" + p.name):
        pair.create_topic(topic, node=1)
    admin = pair.admin()
    admin.create_topics([NewTopic(p.name, 2, replica_assignment=[[1], [2]])])[p.name].result(timeout=30)
    p.start()
    p.execute("ALTER TABLE outbox.events DROP CONSTRAINT events_check")
    for n in range(8):
        insert(p, "first", key=f"key-{n}")
    p.wait_confirmed()
    at = {message.partition(): message.key().decode() for message in pair.read_all(p.name)}
    insert(p, "k1", key=at[0], bad=True)
    insert(p, "k2", key=at[0])
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers) VALUES (%s, 'j', 'j1', '{\"walpost-x\": \"1\"}')",
              "other-" + p.name)
    servers.wait_for(lambda: open_rows(p) == 3, 60, "the rows")
    correct(p)
    pair.two.stop()
    insert(p, "waits", key=at[1])
    servers.wait_for(lambda: p.walpost.status()["in_flight"]["events"] == 1, 60, "the event that waits")
    p.walpost.verb("dlq", "retry", "--key", at[0], "--wait", "5s", check=False)
    later = p.execute("SELECT position FROM walpost.dead_letters WHERE event_type = 'k2'")[0][0]
    p.walpost.verb("dlq", "discard", "--position", later, "--yes", "--wait", "60s")
    p.walpost.verb("dlq", "discard", "--key", at[0], "--yes", "--wait", "60s")
    p.walpost.verb("dlq", "retry", "--key", "j", "--wait", "60s")
    assert [message.key() for message in pair.read_all("other-" + p.name)] == [b"j"]


def test_discard_soon_after_a_retry_ends_it(make_pipeline, kafka):
    """The retry waits for its topic, and walpost has not looked yet whether it is still wanted."""
    p = parking(make_pipeline, kafka, unknown_topic_wait="3min", shutdown_timeout="1s")
    at_once = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers) VALUES (%s, %s, %s, %s)"
    p.execute(at_once, "missing-" + p.name, "k", "k1", '{"walpost-x": "1"}')
    p.execute(at_once, "missing-" + p.name, "k", "k2", "{}")
    insert(p, "j1", key="j", bad=True)
    servers.wait_for(lambda: open_rows(p) == 3, 60, "the rows")
    correct(p)
    p.execute(at_once, "missing-" + p.name, "o", "waits", "{}")
    servers.wait_for(lambda: p.walpost.status()["in_flight"]["events"] == 1, 60, "the event that waits")
    p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "1s", check=False)
    p.walpost.verb("dlq", "discard", "--key", "k", "--yes", "--wait", "60s")
    p.walpost.verb("dlq", "retry", "--key", "j", "--wait", "60s")
    assert types(p, "j") == ["j1"]


def test_rows_that_come_during_a_release_are_sent_after_a_restart(make_pipeline, kafka):
    """The key gets events about as fast as its rows are sent."""
    p = parking(make_pipeline, kafka)
    insert(p, "bad", bad=True)
    servers.wait_for(lambda: open_rows(p) == 1, 60, "the row")
    correct(p)
    written = threading.Event()

    def write():
        with p.connected() as cursor:
            while not written.wait(0.003):
                cursor.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'later')", (p.name,))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        servers.wait_for(lambda: open_rows(p) >= 5, 60, "rows")
        p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "60s")
        servers.wait_for(lambda: open_rows(p) >= 20, 60, "rows that came later")
        p.walpost.kill9()
        p.walpost.start()
    finally:
        written.set()
        writer.join()
    servers.wait_for(lambda: open_rows(p) == 0, 120, "the key to be released")
    p.wait_confirmed()
    assert len(types(p)) >= 1 + p.execute("SELECT count(*) FROM outbox.events WHERE event_type = 'later'")[0][0]
