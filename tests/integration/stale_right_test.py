"""A broker that is cut off from the controller never learns of a new right: that it lacks one is no verdict."""

import pytest
import servers
from kafka_pair import KafkaPair, insert, pipeline_of
from rejecting import ACLS, permit


@pytest.fixture
def pair_with_rights(tmp_path):
    made = KafkaPair(tmp_path, settings=ACLS)
    yield made
    made.close()


def skipped(p):
    return [line for line in p.walpost.log_events() if line["event"] == "event_skipped"]


# Failure 66.
@pytest.mark.full
def test_right_that_only_the_other_broker_knows_of_is_used(make_pipeline, pair_with_rights):
    pair = pair_with_rights
    p = pipeline_of(make_pipeline, pair, progress_on=2)
    known = pair.create_topic(f"outbox.event.{p.name}", node=2)
    new = [pair.create_topic(f"outbox.event.{p.name}new{n}", node=1) for n in range(3)]
    for topic in new:
        permit(pair.one, topic, "All", principal="User:other")
    p.start()
    for n in range(3):
        insert(p, known, "k", str(n))
        p.wait_confirmed()
    pair.cut_off()
    for topic in new:
        permit(pair.one, topic, "All")

    def arrived():
        insert(p, known, "k", "busy")  # so the client goes on with the broker that does not know
        return all(pair.read_all(topic) for topic in new)

    for topic in new:
        insert(p, topic, "k", "first")
    servers.wait_for(lambda: skipped(p) or arrived(), 120, "the events")
    assert not skipped(p)


def end_connection(p):
    pid = p.slot()["pid"]
    p.execute("SELECT pg_terminate_backend(%s)", pid)
    servers.wait_for(lambda: p.slot()["pid"] not in (None, pid) or p.walpost.status()["halt"], 60, "the next connection")


# What is remembered is asked for at each reconnect.
# Failure 66.
@pytest.mark.full
def test_right_that_one_broker_has_never_heard_of_halts_no_reconnect(make_pipeline, pair_with_rights):
    pair = pair_with_rights
    p = pipeline_of(make_pipeline, pair, progress_on=1)
    progress = f"walpost.progress.{p.name}"
    topic = pair.create_topic(f"outbox.event.{p.name}", node=1)
    p.start()
    insert(p, topic, "k", "0")
    p.wait_confirmed()
    permit(pair.one, progress, "All", principal="User:other")
    servers.wait_for(lambda: pair.leaders(progress) == (None, None), 30, "the loss of the right")
    pair.cut_off()
    permit(pair.one, progress, "All")
    insert(p, topic, "k", "1")
    p.wait_confirmed()
    for n in range(4):
        end_connection(p)
        assert p.walpost.status()["halt"] is None
        insert(p, topic, "k", str(n))
        p.wait_confirmed()


# Failure 66.
def test_right_that_is_missing_for_a_moment_halts_no_reconnect(make_pipeline, workspace):
    kafka = workspace.kafka(settings=ACLS)
    p = make_pipeline(on_kafka=kafka).start()
    topic = f"walpost.progress.{p.name}"
    permit(kafka, topic, "Describe", "Write", "Read")
    p.insert(1, 5)
    p.wait_confirmed()
    permit(kafka, topic, "Read", change="--remove")
    p.execute("SELECT pg_terminate_backend(%s)", p.slot()["pid"])
    servers.wait_for(lambda: "cannot be read yet" in (p.walpost.status()["last_error"] or ""), 60, "the answer")
    permit(kafka, topic, "Read")
    p.insert(6, 10)
    p.wait_confirmed()


# The topic may be described, so the answer about the record itself says that it may not be written.
# Failure 66.
@pytest.mark.full
def test_leader_that_is_cut_off_does_not_decide_that_a_topic_may_not_be_written(make_pipeline, pair_with_rights):
    pair = pair_with_rights
    p = pipeline_of(make_pipeline, pair, progress_on=2)
    topic = pair.create_topic(f"outbox.event.{p.name}", replicas=[2, 1])
    servers.wait_for(lambda: pair.leaders(topic) == (2, 2), 30, "the topic")
    permit(pair.one, topic, "Describe")
    p.walpost = p.another(bootstrap=pair.two.bootstrap)  # so it is asked first
    p.start()
    pair.cut_off()
    servers.wait_for(lambda: pair.leaders(topic)[0] == 1, 60, "another leader")
    permit(pair.one, topic, "All")
    insert(p, topic, "k", "event")
    servers.wait_for(lambda: skipped(p) or "another leader" in str(p.walpost.status()) or pair.read_all(topic), 120, "the end")
    assert not skipped(p)
    sent = p.walpost.verb("replay", "--all", "--in-place", "--skip-undeliverable", check=False)
    assert sent.returncode == 69 or "left out" not in sent.stdout + sent.stderr, sent
    pair.to_controller.set_mode("pass")
    servers.wait_for(lambda: pair.read_all(topic), 120, "the event")
    p.wait_confirmed(seconds=120)
    assert not skipped(p)


# Nor of a limit that was raised, or of a topic that is compacted no more.
@pytest.mark.full
def test_leader_that_is_cut_off_does_not_decide_what_a_topic_takes(make_pipeline, pair):
    p = pipeline_of(make_pipeline, pair, progress_on=2)
    large = [pair.create_topic(f"outbox.event.{p.name}s{n}", replicas=[2, 1], config={"max.message.bytes": "2000"}) for n in range(4)]
    keyless = [pair.create_topic(f"outbox.event.{p.name}k{n}", replicas=[2, 1], config={"cleanup.policy": "compact"}) for n in range(4)]
    servers.wait_for(lambda: all(pair.leaders(each) == (2, 2) for each in large + keyless), 30, "the topics")
    p.walpost = p.another(bootstrap=pair.two.bootstrap)  # so it is asked first
    p.start()
    pair.cut_off()
    servers.wait_for(lambda: all(pair.leaders(each)[0] == 1 for each in large + keyless), 60, "other leaders")
    for topics, setting in ((large, {"max.message.bytes": "1000000"}), (keyless, {"cleanup.policy": "delete"})):
        for topic in topics:
            pair.one.alter_topic(topic, setting)
    for topic in large:
        insert(p, topic, "k", "x" * 5000)
    for topic in keyless:
        insert(p, topic, None, "no key")
    servers.wait_for(lambda: skipped(p) or "another leader" in str(p.walpost.status())
                     or all(pair.read_all(each) for each in large + keyless), 120, "what becomes of them")
    sent = p.walpost.verb("replay", "--all", "--in-place", "--skip-undeliverable", check=False)
    assert sent.returncode == 69 or "left out" not in sent.stdout + sent.stderr, sent
    pair.to_controller.set_mode("pass")
    servers.wait_for(lambda: all(pair.read_all(each) for each in large + keyless), 120, "the events")
    p.wait_confirmed(seconds=120)
    assert not skipped(p)
