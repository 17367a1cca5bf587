"""`walpost tail`: events as they are committed, from a slot of its own that is gone afterwards, without Kafka."""

import json
import select
import signal
import subprocess

import pytest
import servers

AWAY = ("--set", "sink.kafka.properties={bootstrap.servers: '127.0.0.1:1'}")


@pytest.fixture
def pipeline(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    return p


def slots(p):
    return [row[0] for row in p.execute("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")]


def tail(p, *arguments):
    """Once it has its slot and streams."""
    process = subprocess.Popen([servers.walpost_binary(), "--config", str(p.walpost.file), *AWAY, "tail", *arguments],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    servers.wait_for(lambda: process.poll() is not None or
                     p.execute("SELECT count(*) FROM pg_stat_replication JOIN pg_replication_slots ON active_pid = pid"
                               " WHERE database = current_database() AND slot_name LIKE 'walpost_tail_%'")[0][0] == 1, 60, "tail to stream")
    return process


def wait_gone(p):
    servers.wait_for(lambda: slots(p) == [p.name], 60, "the temporary slot to be gone")


@pytest.mark.smoke
def test_what_is_pending_and_what_comes_is_shown_and_neither_slot_nor_kafka_is_touched(pipeline):
    p = pipeline
    p.insert(1, 3)
    before = p.slot()
    process = tail(p, "--json", "--payload", "--limit", "5")
    p.insert(4, 5)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    shown = [json.loads(line) for line in out.splitlines()]
    assert [event["payload"] for event in shown] == [f"event {n}" for n in range(1, 6)]
    assert {event["id"] for event in shown} == set(p.committed())
    wait_gone(p)
    assert p.slot() == before
    # The same positions as on Kafka.
    p.walpost.start()
    p.wait_confirmed()
    positions = {record.id: record.headers["walpost-position"].decode() for record in p.records()}
    assert {event["id"]: event["position"] for event in shown} == positions
    assert all(event["headers"]["walpost-position"] == event["position"] and event["topic"] == p.name for event in shown)


@pytest.mark.smoke
def test_beside_a_walpost_that_runs_from_now_with_filters_until_ctrl_c(pipeline):
    p = pipeline
    p.walpost.start()
    p.insert(1, 3)
    p.wait_confirmed()
    process = tail(p, "--from-now", "--key", "key-1", "--table", "outbox.events")
    p.insert(4, 23)
    lines = [process.stdout.readline() for _ in range(2)]
    assert all(f" {p.name} key-1 Tested " in line for line in lines)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
    wait_gone(p)
    p.wait_confirmed()
    assert p.judge() == 0


def test_a_row_that_is_no_event_is_shown_as_such_and_ends_nothing(pipeline):
    p = pipeline
    p.allow_bad_topics()
    p.insert(1, 1, topic="not a topic!")
    p.insert(2, 2)
    process = tail(p, "--limit", "2")
    out, err = process.communicate(timeout=60)
    bad, good = out.splitlines()
    assert " UNDELIVERABLE key-1 Tested " in bad and "topic" in bad.split(": ", 1)[1], (bad, err)
    assert f" {p.name} key-2 Tested " in good and process.returncode == 0


def test_one_that_is_killed_leaves_no_slot_and_one_that_nobody_reads_ends(pipeline):
    p = pipeline
    process = tail(p)
    process.kill()
    process.communicate()
    wait_gone(p)
    process = tail(p, "--from-now")
    process.stdout.close()
    p.insert(1, 1)
    assert process.wait(timeout=60) == 0
    process.stderr.close()
    wait_gone(p)


# A server that shuts down waits for a client that does not read.
@pytest.mark.full
def test_one_whose_output_is_held_up_ends_by_ctrl_c_and_by_itself(pipeline):
    p = pipeline
    p.execute("SELECT outbox.emit('Tested', 'a', 'k', repeat('x', 100000)) FROM generate_series(1, 3)")
    process = tail(p, "--payload", "--json")
    select.select([process.stdout], [], [], 60)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    process.communicate()
    wait_gone(p)
    process = tail(p, "--payload", "--json")
    assert process.wait(timeout=300) != 0
    assert "nobody has read" in process.communicate()[1]
    wait_gone(p)


def test_without_the_slot_it_says_so_and_from_now_works(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    missing = p.walpost.verb("tail", "--limit", "1", check=False)
    assert missing.returncode != 0 and p.name in missing.stderr
    process = tail(p, "--from-now", "--limit", "1")
    p.insert(1, 1)
    assert len(process.communicate(timeout=60)[0].splitlines()) == 1
    servers.wait_for(lambda: slots(p) == [], 60, "the temporary slot to be gone")
