"""A leader that is cut off from the controller goes on answering clients, while another broker leads its partitions."""

import signal

import pytest
import servers
from kafka_pair import insert, pipeline_of
from rare import first


# Failure 64.
@pytest.mark.parametrize("busy", [pytest.param(False, id="alone"), pytest.param(True, id="beside another topic", marks=pytest.mark.full)])
def test_leader_that_only_the_other_broker_knows_is_followed(make_pipeline, pair, busy):
    p = pipeline_of(make_pipeline, pair, progress_on=2)
    topic = pair.create_topic(f"outbox.event.{p.name}", replicas=[2, 1])
    other = pair.create_topic(f"outbox.event.{p.name}other", node=2)

    def arrived():
        if busy:
            insert(p, other, "k", "x")
        return len(pair.read_all(topic)) >= 2

    servers.wait_for(lambda: pair.leaders(topic) == (2, 2), 30, "the topic")
    p.start()
    insert(p, topic, "k", "before")
    p.wait_confirmed()
    pair.cut_off()
    servers.wait_for(lambda: pair.leaders(topic)[0] == 1, 60, "another leader")
    insert(p, topic, "k", "after")
    servers.wait_for(arrived, 240, "its event")
    assert [record.value() for record in pair.read_all(topic)][:2] == [b"before", b"after"]


# It still has the records of before, and says that it leads.
@pytest.mark.full
def test_leader_that_is_cut_off_is_not_believed_by_those_who_read(make_pipeline, pair):
    p = pipeline_of(make_pipeline, pair, progress_on=None)
    topics = [pair.create_topic(f"walpost.progress.{p.name}", replicas=[2, 1], config={"cleanup.policy": "compact"}),
              pair.create_topic(f"outbox.event.{p.name}", replicas=[2, 1])]
    topic = topics[1]
    servers.wait_for(lambda: all(pair.leaders(each) == (2, 2) for each in topics), 30, "the topics")
    p.start()
    insert(p, topic, "k", "0")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    pair.cut_off()
    servers.wait_for(lambda: all(pair.leaders(each)[0] == 1 for each in topics), 60, "other leaders")
    with_one, with_two = (p.another(bootstrap=node.bootstrap) for node in (pair.one, pair.two))  # each is asked first
    p.walpost = with_one.start()
    insert(p, topic, "k", "1")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.walpost = with_two
    assert p.walpost.verb("audit", check=False).returncode == 69
    assert p.walpost.verb("replay", "--missing", "--in-place", check=False).returncode == 69
    p.walpost.start(wait=None)
    servers.wait_for(lambda: "leader of partition 0" in str(p.walpost.status()), 60, "the reason")
    assert p.walpost.status()["state"] != "halted"
    pair.to_controller.set_mode("pass")
    insert(p, topic, "k", "2")
    p.wait_confirmed(seconds=120)
    servers.wait_for(lambda: pair.leaders(topic)[0] == pair.leaders(topic)[1], 60, "the broker to be back")
    assert p.walpost.verb("audit").returncode == 0
    assert [record.value() for record in pair.read_all(topic)] == [b"0", b"1", b"2"]


# Whoever reads what is remembered gives up in time, and asks again who leads.
@pytest.mark.parametrize("restarted", first(1, [False, True]), ids=["reconnect", "start"])
def test_frozen_leader_of_the_progress_topic_holds_nothing_up_once_another_leads(make_pipeline, pair, restarted):
    p = make_pipeline(on_kafka=pair, create_topic=False)
    progress = pair.create_topic(f"walpost.progress.{p.name}", node=2, replicas=[2, 1])
    pair.create_topic(p.name, node=1)
    p.start()
    p.insert(1, 3)
    p.wait_confirmed()
    if restarted:
        assert p.walpost.stop() == 0
    pair.two.process.send_signal(signal.SIGSTOP)
    if restarted:
        p.walpost.start(wait=None)
    else:
        p.execute("SELECT pg_terminate_backend(%s)", p.slot()["pid"])
    p.insert(4, 6)
    servers.wait_for(lambda: p.walpost.status() and p.walpost.status()["events"]["delivered"] >= (3 if restarted else 6), 90, "the events")
    assert pair.one.admin().list_topics(timeout=5).topics[progress].partitions[0].leader == 1
    pair.two.process.send_signal(signal.SIGCONT)
