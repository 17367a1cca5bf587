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
