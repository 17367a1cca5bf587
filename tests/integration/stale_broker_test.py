"""A broker that is cut off from the controller answers with what it knew before: what it says is no verdict, and moves no key."""

import signal
import time
import types
from datetime import datetime

import pytest
import servers
from kafka_pair import OUTBOX, KafkaPair, insert, pipeline_of


@pytest.fixture
def stale(make_pipeline, pair):
    """A pipeline that asks both brokers, and often."""
    return pipeline_of(make_pipeline, pair, properties={"topic.metadata.refresh.interval.ms": 500})


def sessions(p):
    return p.walpost.status()["sink"]["producer_sessions"]


def waits_for_s(p):
    since = p.walpost.status()["in_flight"]["oldest_commit_at"]
    return time.time() - datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp() if since else 0


def skipped(p):
    return [line for line in p.walpost.log_events() if line["event"] == "event_skipped"]


@pytest.mark.full
def test_added_partitions_that_one_broker_does_not_know_are_used(stale, pair):
    p = stale
    chosen, keyed = (pair.create_topic(f"outbox.event.{p.name}{name}") for name in ("p", "k"))
    p.start()
    insert(p, chosen, "key-7", "before", 0)
    insert(p, keyed, "key-7", "before")
    p.wait_confirmed()
    pair.cut_off()
    for topic in (chosen, keyed):
        pair.add_partitions(topic, 8)
    assert len(pair.two.admin().list_topics(keyed, timeout=5).topics[keyed].partitions) == 1, "it has not heard of it"
    n = 0

    def deliver_more():
        nonlocal n
        n += 1
        insert(p, chosen, "key-7", str(n), 5)
        insert(p, keyed, "key-7", str(n))
        p.wait_confirmed()

    servers.wait_for(lambda: deliver_more() or "topic_partitions_changed" in p.walpost.log_text(), 60, "the partitions")
    for _ in range(12):  # each producer looks the topics up anew
        before = sessions(p)
        p.walpost.signal(signal.SIGHUP)
        servers.wait_for(lambda: sessions(p) > before, 30, "another producer")  # noqa: B023
        deliver_more()
    assert not skipped(p)
    records = sorted(pair.read_all(keyed)[1:], key=lambda record: int(record.value()))
    partitions = [record.partition() for record in records]
    assert partitions == sorted(partitions) and len(set(partitions)) <= 2, "the key moves once"
    for _ in range(4):
        assert p.walpost.verb("audit").returncode == 0
        assert "0 events missing" in p.walpost.verb("replay", "--missing", "--dry-run").stdout


@pytest.mark.full
def test_limits_that_one_broker_still_has_reject_nothing(stale, pair):
    p = stale
    small = pair.create_topic(f"outbox.event.{p.name}s", config={"max.message.bytes": "2000"})
    compacted = pair.create_topic(f"outbox.event.{p.name}c", config={"cleanup.policy": "compact"})
    p.start()
    insert(p, small, "key-7", "before")
    insert(p, compacted, "key-7", "before")
    p.wait_confirmed()
    pair.cut_off()
    pair.one.alter_topic(small, {"max.message.bytes": "1000000"})
    pair.one.alter_topic(compacted, {"cleanup.policy": "delete"})
    for _ in range(12):
        assert p.walpost.stop() == 0
        p.walpost.start()
        insert(p, small, "key-7", "x" * 5000)
        insert(p, compacted, None, "no key")
        p.wait_confirmed()
    assert not skipped(p)


def with_topic_that_one_broker_does_not_know(make_pipeline, pair):
    """That broker is the one that the producer has used last."""
    p = pipeline_of(make_pipeline, pair, progress_on=2)
    known, new = f"outbox.event.{p.name}", f"outbox.event.{p.name}new"
    pair.create_topic(known, node=2)
    p.start()
    for n in range(3):
        insert(p, known, "k", str(n))
        p.wait_confirmed()
    pair.cut_off()
    pair.create_topic(new, seen_by=[pair.one])
    return p, new


# Its client asks the broker that it used last, again and again.
def test_topic_that_only_the_other_broker_knows_is_found(make_pipeline, pair):
    p, new = with_topic_that_one_broker_does_not_know(make_pipeline, pair)
    insert(p, new, "k", "first")
    servers.wait_for(lambda: pair.read_all(new), 60, "its event")
    assert not skipped(p)


class Answers:
    """While it is `silent`, no connection through the proxy gets an answer, but for the next one after `once`: that of a question."""

    def __init__(self, proxy):
        self.silent = self.once = False
        self.next_at = 0
        proxy.make_filter = self._connection

    def _connection(self):
        asked, self.once = self.once, False
        return types.SimpleNamespace(up=lambda data: (b"" if self.silent and not asked else data, b""), down=lambda data: data)


def contradicted(p, answers):
    """Now and then one more connection gets answers, as the first may have been that of the producer."""
    if "do not agree about topic" in str(p.walpost.status()["sink"]):
        return True
    if time.monotonic() > answers.next_at:
        answers.once, answers.next_at = True, time.monotonic() + 5
    return False


@pytest.fixture
def half_silent(tmp_path):
    """Two brokers, of which the first is reached through a proxy only, and what it answers."""
    pair = KafkaPair(tmp_path, proxy_to_one=True)
    yield pair, Answers(pair.to_one)
    pair.close()


def arrives_once_it_answers(pair, answers, topic):
    answers.silent = False
    pair.to_one.set_mode("cut")
    pair.to_one.set_mode("pass")
    servers.wait_for(lambda: pair.read_all(topic), 60, "its event")


# It answers one question, and then the other one says again what it said before.
def test_topic_of_which_a_broker_has_said_that_it_is_there_must_be_missing_for_the_whole_time_again(make_pipeline, half_silent):
    pair, answers = half_silent
    p, new = with_topic_that_one_broker_does_not_know(make_pipeline, pair)
    answers.silent = True
    insert(p, new, "k", "first")
    servers.wait_for(lambda: waits_for_s(p) > 6, 60, "most of the time")
    servers.wait_for(lambda: contradicted(p, answers), 120, "the contradiction")
    until = time.monotonic() + 8
    servers.wait_for(lambda: skipped(p) or time.monotonic() > until, 30, "less than the whole time")
    assert not skipped(p)
    arrives_once_it_answers(pair, answers, new)


# Whether it is there is not known then.
@pytest.mark.full
def test_verbs_reject_a_topic_of_which_not_all_brokers_speak(make_pipeline, half_silent):
    pair, answers = half_silent
    p, new = with_topic_that_one_broker_does_not_know(make_pipeline, pair)
    insert(p, new, "k", "first")
    p.wait_confirmed()
    checked = p.another(config={**OUTBOX, "outboxes": [{**OUTBOX["outboxes"][0], "topics": {"allowed": [new]}}]})
    for _ in range(4):  # each begins with one of the two
        lines = checked.verb("check", check=False).stdout
        assert f"topic {new}" in lines and "nknown topic" not in lines, lines
    answers.silent = True

    def rejects(*verb, walpost=p.walpost):
        done = walpost.verb(*verb, check=False)
        assert done.returncode == 69 and "broker 1 does not answer" in done.stdout + done.stderr, done

    rejects("audit")
    rejects("check", walpost=checked)
    rejects("replay", "--missing", "--dry-run")
    assert p.walpost.stop() == 0
    rejects("slot", "recreate", "--skip-undeliverable", "--yes")


# Of two brokers, one has not heard of it, and the other one does not answer.
@pytest.mark.full
def test_missing_topic_of_which_not_all_brokers_speak_must_be_missing_for_a_minute(make_pipeline, half_silent):
    pair, answers = half_silent
    p, new = with_topic_that_one_broker_does_not_know(make_pipeline, pair)
    answers.silent = True
    insert(p, new, "k", "first")
    servers.wait_for(lambda: waits_for_s(p) > 35, 60, "three times as long as where all answer")
    assert not skipped(p)
    arrives_once_it_answers(pair, answers, new)
