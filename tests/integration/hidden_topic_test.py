"""Topics for which walpost's Kafka user lacks a right: the verbs that send rows, or compare them, go on beside them."""

import concurrent.futures
import itertools
import json

import pytest
import servers
from rejecting import ACLS, permit


@pytest.fixture
def kafka_with_rights(workspace):
    return workspace.kafka(settings=ACLS)


def hide(kafka, topic):
    """Nobody but a superuser may describe it; it need not exist."""
    permit(kafka, topic, "All", principal="User:other")


def row(p, topic):
    return p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'T') RETURNING id::text",
                     topic)[0][0]


def left_out(p, *verb):
    """What a verb says that leaves out rows whose topic takes nothing: something is missing."""
    done = p.walpost.verb(*verb, "--skip-undeliverable", check=False)
    assert done.returncode == 65 and "left out" in done.stderr.splitlines()[-1], done
    return done


def lose_slot(p):
    assert p.walpost.stop() == 0
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)


def test_topic_that_may_not_be_described_then_its_rows_are_left_out_and_the_others_are_sent(make_pipeline, kafka_with_rights):
    p = make_pipeline(on_kafka=kafka_with_rights, config={"delivery": {"on_undeliverable": "dead_letter", "unknown_topic_wait": "100ms"}})
    hidden = p.name + "-hidden"
    hide(p.kafka, hidden)
    p.start()
    p.insert(1, 20)
    row(p, hidden)
    p.wait_confirmed()
    found = json.loads(p.walpost.verb("audit", "--json").stdout)
    assert found["missing"] == 0 and found["ok"] == 20 and found["dead_lettered"] == 1, found
    lose_slot(p)
    p.insert(21, 30)
    bad = row(p, hidden)
    rejected = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 78, rejected
    assert bad in rejected.stderr and hidden in rejected.stderr and "DESCRIBE" in rejected.stderr and "--skip-undeliverable" in rejected.stderr
    done = left_out(p, "slot", "recreate", "--yes")
    assert "1 left out" in done.stdout and f"'{hidden}' (" in done.stdout and bad in done.stderr and "1 are dead letters" in done.stdout
    p.walpost.start()
    p.wait_confirmed()
    assert len(p.ids()) == len(set(p.ids())) == 30
    # What was left out is missing, and the line of its topic says why it is not seen.
    audit = p.walpost.verb("audit", check=False)
    assert audit.returncode == 65 and f"topic {hidden}: walpost's Kafka user may not DESCRIBE it" in audit.stdout, audit
    rejected = p.walpost.verb("replay", "--missing", "--in-place", check=False)
    assert rejected.returncode == 78 and bad in rejected.stderr and "DESCRIBE" in rejected.stderr, rejected
    assert bad in left_out(p, "replay", "--missing", "--in-place").stderr


def test_topic_that_may_not_be_described_or_written_then_a_backfill_leaves_its_rows_out(make_pipeline, kafka_with_rights):
    p = make_pipeline(on_kafka=kafka_with_rights)
    hidden, read_only = p.name + "-hidden", p.name + "-read-only"
    hide(p.kafka, hidden)
    p.kafka.create_topic(read_only, 1)
    permit(p.kafka, read_only, "Describe", "DescribeConfigs", "Read")
    p.execute(p.walpost.verb("init", "--print-sql").stdout.partition("-- Before the slot, always.")[0])
    p.insert(1, 10)
    bad = [row(p, topic) for topic in (hidden, read_only, read_only)]
    p.insert(11, 20)
    for topic, right, first in ((hidden, "DESCRIBE", bad[0]), (read_only, "WRITE", bad[1])):
        rejected = p.walpost.verb("init", "--backfill", check=False)
        assert rejected.returncode == 78 and topic in rejected.stderr and right in rejected.stderr and first in rejected.stderr, rejected
        p.execute("UPDATE outbox.events SET seq = DEFAULT WHERE id::text = %s", first)  # the next one comes first
    done = left_out(p, "init", "--backfill")
    assert "3 left out" in done.stdout and all(each in done.stderr for each in bad), done
    assert p.execute("SELECT backfilled FROM walpost.pipeline") == [(True,)], "the operator said so"
    assert len(p.ids()) == len(set(p.ids())) == 20


# A broker may learn of a right late. Who leaves out what cannot be sent does not leave that out.
def test_right_that_comes_late_is_waited_for(make_pipeline, kafka_with_rights):
    p = make_pipeline(on_kafka=kafka_with_rights, config={"delivery": {"unknown_topic_wait": "5min"}})
    p.execute(p.walpost.verb("init", "--print-sql").stdout.partition("-- Before the slot, always.")[0])
    hidden, read_only = p.name + "-hidden", p.name + "-read-only"
    for topic in (hidden, read_only):
        p.kafka.create_topic(topic, 1)
    hide(p.kafka, hidden)
    permit(p.kafka, read_only, "Describe", "DescribeConfigs", "Read")
    for topic in (hidden, read_only):
        p.insert(1, 5, topic=topic)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        backfill = pool.submit(p.walpost.verb, "init", "--backfill", "--skip-undeliverable")
        for topic in (hidden, read_only):
            permit(p.kafka, topic, "Write", "Read", "Describe")
        assert "10 events sent" in backfill.result().stdout
    assert [len(p.kafka.read_all(topic)) for topic in (hidden, read_only)] == [5, 5]


def test_topic_that_may_not_be_read_then_nothing_is_judged_or_sent(make_pipeline, kafka_with_rights):
    p = make_pipeline(on_kafka=kafka_with_rights)
    permit(p.kafka, p.name, "Describe", "Write")
    p.start()
    p.insert(1, 10)
    p.wait_confirmed()
    for verb in (["audit"], ["replay", "--missing", "--in-place", "--skip-undeliverable"]):
        rejected = p.walpost.verb(*verb, check=False)
        assert rejected.returncode == 77 and p.name in rejected.stderr, rejected
    permit(p.kafka, p.name, "Read")
    assert len(p.ids()) == 10


def test_topic_that_may_not_be_read_then_no_slot_is_replaced(make_pipeline, kafka_with_rights):
    p = make_pipeline(on_kafka=kafka_with_rights)
    permit(p.kafka, p.name, "Describe", "Write")
    p.start()
    p.insert(1, 10)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.insert(11, 20)
    before = p.execute("SELECT restart_lsn, confirmed_flush_lsn FROM pg_replication_slots")
    rejected = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 77 and "READ" in rejected.stderr and p.name in rejected.stderr, rejected
    assert p.execute("SELECT restart_lsn, confirmed_flush_lsn FROM pg_replication_slots") == before
    permit(p.kafka, p.name, "Read", "DescribeConfigs")
    assert "10 events sent" in p.walpost.verb("slot", "recreate", "--yes").stdout
    assert len(p.ids()) == len(set(p.ids())) == 20


# The look-up finds the topic; which of its partitions answers first is chance.
def test_topic_that_may_not_be_written_is_decided_in_time_and_other_topics_go_on(make_pipeline, kafka_with_rights):
    p = make_pipeline(on_kafka=kafka_with_rights, create_topic=False,
                      config={"delivery": {"on_undeliverable": "skip", "unknown_topic_wait": "5s"}})
    other = p.kafka.create_topic(p.name + "-other", 2)
    p.kafka.create_topic(p.name, 12)
    permit(p.kafka, p.name, "Describe", "DescribeConfigs", "Read")
    p.start()
    p.insert(1, 24, keys=1_000)
    sent = itertools.count(1)

    def skipped():
        """How many, once the other topic has taken one more event."""
        number = next(sent)
        p.insert(number, number, topic=other)
        servers.wait_for(lambda: p.walpost.status()["events"]["by_topic"].get(other) == number, 10, "the other topic to go on")
        return p.walpost.status()["events"]["skipped"]

    servers.wait_for(lambda: skipped() == 24, 60, "all 24 to be decided")  # 5 s after the first answer
    p.wait_confirmed()
