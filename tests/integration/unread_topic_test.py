"""A topic whose configuration walpost may not read: whether it is compacted is not known, so what is not there may have been removed."""

import json

import pytest
import servers
from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource
from rejecting import ACLS, permit


@pytest.fixture(scope="module", name="guarded")
def fixture_guarded(module_workspace):
    return module_workspace.kafka(settings=ACLS)


def may_describe(p):
    admin, resource = p.kafka.admin(), ConfigResource("topic", p.name)
    try:
        return bool(admin.describe_configs([resource])[resource].result(timeout=30))
    except KafkaException:
        return False


# The broker goes by a change of rights some time after it has taken it.
def take_right(p):
    permit(p.kafka, p.name, "Describe", "Write", "Read")
    servers.wait_for(lambda: not may_describe(p), 30, "the right to be gone")


def grant(p):
    permit(p.kafka, p.name, "DescribeConfigs")
    servers.wait_for(lambda: may_describe(p), 30, "the right")


@pytest.fixture(name="make_unread")
def fixture_make_unread(make_pipeline, guarded):
    """Five versions of ten keys, delivered; then walpost is stopped and loses the right to read the topic's configuration."""

    def make(compacted=True):
        p = make_pipeline(on_kafka=guarded).start()
        for version in range(5):
            p.insert(version * 10 + 1, version * 10 + 10)
        p.wait_confirmed()
        assert p.walpost.stop() == 0
        if compacted:
            guarded.compact(p.name)
        take_right(p)
        return p

    return make


def names_the_right(p, text):
    return f"topic '{p.name}'" in text and "DESCRIBE_CONFIGS" in text


def lose_slot(p):
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)


def newest(p):
    return {key: event for event, (key, _) in sorted(p.committed().items(), key=lambda item: item[1][1])}


def last(p):
    return {record.key: record.id for record in p.records()}


def test_audit_does_not_know_what_is_missing(make_unread):
    p = make_unread()
    p.walpost.start()
    found = p.walpost.verb("audit", "--json", check=False)
    counts = json.loads(found.stdout)
    assert found.returncode == 75 and counts["compaction_unknown"] == 40 and counts["missing"] == 0 and counts["ok"] == 10, counts
    assert names_the_right(p, counts["notes"][0])
    grant(p)
    assert json.loads(p.walpost.verb("audit", "--json", check=False).stdout)["topic_compacted"] == 40


def test_old_values_are_not_sent_behind_newer_ones(make_unread):
    p = make_unread()
    p.walpost.start()
    asked = p.walpost.verb("replay", "--missing", "--dry-run")
    assert "warning: " in asked.stdout and names_the_right(p, asked.stdout)
    rejected = p.walpost.verb("replay", "--missing", "--in-place", check=False)
    assert rejected.returncode == 78 and names_the_right(p, rejected.stderr) and "--send-unproven" in rejected.stderr, rejected
    assert len(p.records()) == 10 and last(p) == newest(p), "nothing was sent"
    grant(p)
    assert "40 superseded by newer ones, compacted" in p.walpost.verb("replay", "--missing", "--in-place").stdout
    assert last(p) == newest(p)


def test_another_topic_has_no_newer_ones_so_rows_are_sent_there(make_unread):
    p = make_unread()
    p.walpost.start()
    other = p.kafka.create_topic(f"{p.name}-again", 1)
    assert "40 events sent" in p.walpost.verb("replay", "--missing", "--to-topic", other).stdout


def test_topic_that_holds_everything_needs_no_right(make_unread):
    p = make_unread(compacted=False)
    p.walpost.start()
    assert p.walpost.verb("audit").returncode == 0
    assert "0 events sent" in p.walpost.verb("replay", "--missing", "--in-place").stdout


def test_lost_slot_is_not_made_anew_until_its_topic_may_be_described(make_unread):
    p = make_unread()
    p.insert(51, 55)
    lose_slot(p)
    record = p.execute("SELECT p::text FROM walpost.pipeline p")
    for yes in ([], ["--yes"]):
        rejected = p.walpost.verb("slot", "recreate", *yes, check=False)
        assert rejected.returncode == 78 and names_the_right(p, rejected.stderr) and "--send-unproven" in rejected.stderr, rejected
    assert not p.slot() and p.execute("SELECT p::text FROM walpost.pipeline p") == record and len(p.records()) == 10, "nothing was changed"
    grant(p)
    done = p.walpost.verb("slot", "recreate", "--yes").stdout
    assert "5 events sent, 10 are in Kafka already, 40 superseded" in done, done
    assert last(p) == newest(p)


def test_lost_slot_is_made_anew_with_the_flag_that_sends_what_is_not_there(make_unread):
    p = make_unread(compacted=False)
    p.insert(51, 55)
    lose_slot(p)
    done = p.walpost.verb("slot", "recreate", "--yes", "--send-unproven").stdout
    assert "5 events sent, 50 are in Kafka already\n" in done, done
    assert last(p) == newest(p) and len(p.records()) == 55


def test_gap_that_is_left_needs_no_right(make_unread):
    p = make_unread()
    lose_slot(p)
    assert "done" in p.walpost.verb("slot", "recreate", "--yes", "--leave-gap").stdout
    assert len(p.records()) == 10


# The right is lost between the two attempts.
@pytest.mark.full
def test_closing_that_goes_on_stops_before_it_sends(make_pipeline, guarded):
    p = make_pipeline(on_kafka=guarded).start()
    p.insert(1, 20)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.insert(21, 30)
    bad, = p.execute("UPDATE outbox.events SET aggregate_type = 'nowhere' WHERE seq = (SELECT max(seq) - 5 FROM outbox.events) RETURNING id::text")[0]
    lose_slot(p)
    assert p.walpost.verb("slot", "recreate", "--yes", check=False).returncode == 78
    p.execute("UPDATE outbox.events SET aggregate_type = %s WHERE id = %s", p.name, bad)
    take_right(p)
    before = len(p.records())
    rejected = p.walpost.verb("init", "--backfill", check=False)
    assert rejected.returncode == 78 and names_the_right(p, rejected.stderr) and len(p.records()) == before, rejected
    p.walpost.verb("init", "--backfill", "--send-unproven")
    assert sorted(record.id for record in p.records()) == sorted(p.committed()), "each once"
