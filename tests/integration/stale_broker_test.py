"""A broker that is cut off from the controller answers with what it knew before: what it says is no verdict, and moves no key."""

import signal

import pytest
import servers
from kafka_pair import KafkaPair

OUTBOX = {"outboxes": [{"table": "public.o", "preset": "debezium", "topics": {"allowed": ["*"]}, "columns": {"partition": "part"}}],
          "delivery": {"on_undeliverable": "skip", "unknown_topic_wait": "10s"}}


@pytest.fixture
def pair(tmp_path):
    made = KafkaPair(tmp_path)
    yield made
    made.close()


def pipeline_of(make_pipeline, pair, progress_on=1, **options):
    p = make_pipeline(on_kafka=pair, create_topic=False, config=OUTBOX, **options)
    p.execute("CREATE TABLE public.o (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text,"
              " type text, payload text, part int)")
    pair.create_topic(f"walpost.progress.{p.name}", node=progress_on)
    return p


@pytest.fixture
def stale(make_pipeline, pair):
    """A pipeline that asks both brokers, and often."""
    return pipeline_of(make_pipeline, pair, properties={"topic.metadata.refresh.interval.ms": 500})


def insert(p, topic, key, payload, partition=None):
    p.execute("INSERT INTO public.o (aggregatetype, aggregateid, type, payload, part) VALUES (%s, %s, 'T', %s, %s)",
              topic.removeprefix("outbox.event."), key, payload, partition)


def leader(node, topic):
    found = node.admin().list_topics(timeout=5).topics.get(topic)
    return found and found.partitions[0].leader


def sessions(p):
    return p.walpost.status()["sink"]["producer_sessions"]


def skipped(p):
    return [line for line in p.walpost.log_events() if line["event"] == "event_skipped"]


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


# Its client asks the broker that it used last, again and again.
def test_topic_that_only_the_other_broker_knows_is_found(make_pipeline, pair):
    p = pipeline_of(make_pipeline, pair, progress_on=2)
    known, new = f"outbox.event.{p.name}", f"outbox.event.{p.name}new"
    pair.create_topic(known, node=2)
    p.start()
    for n in range(3):
        insert(p, known, "k", str(n))
        p.wait_confirmed()
    pair.cut_off()
    pair.create_topic(new, seen_by=[pair.one])
    insert(p, new, "k", "first")
    servers.wait_for(lambda: pair.read_all(new), 60, "its event")
    assert not skipped(p)


# Failure 64.
@pytest.mark.parametrize("busy", [False, True], ids=["alone", "beside a topic that the other broker answers for"])
def test_leader_that_only_the_other_broker_knows_is_followed(make_pipeline, pair, busy):
    p = pipeline_of(make_pipeline, pair, progress_on=2)
    topic = pair.create_topic(f"outbox.event.{p.name}", replicas=[2, 1])
    other = pair.create_topic(f"outbox.event.{p.name}other", node=2)

    def arrived():
        if busy:
            insert(p, other, "k", "x")
        return len(pair.read_all(topic)) >= 2

    servers.wait_for(lambda: leader(pair.one, topic) == leader(pair.two, topic) == 2, 30, "the topic")
    p.start()
    insert(p, topic, "k", "before")
    p.wait_confirmed()
    pair.cut_off()
    servers.wait_for(lambda: leader(pair.one, topic) == 1, 60, "another leader")
    insert(p, topic, "k", "after")
    servers.wait_for(arrived, 240, "its event")
    assert [record.value() for record in pair.read_all(topic)][:2] == [b"before", b"after"]


# It still has the records of before, and says that it leads.
def test_leader_that_is_cut_off_is_not_believed_by_those_who_read(make_pipeline, pair):
    p = make_pipeline(on_kafka=pair, create_topic=False, config=OUTBOX)
    p.execute("CREATE TABLE public.o (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text,"
              " type text, payload text, part int, created_at timestamptz DEFAULT now())")
    topics = [pair.create_topic(f"walpost.progress.{p.name}", replicas=[2, 1], config={"cleanup.policy": "compact"}),
              pair.create_topic(f"outbox.event.{p.name}", replicas=[2, 1])]
    topic = topics[1]
    servers.wait_for(lambda: all(leader(n, t) == 2 for n in (pair.one, pair.two) for t in topics), 30, "the topics")
    p.start()
    insert(p, topic, "k", "0")
    p.wait_confirmed()
    pair.cut_off()
    servers.wait_for(lambda: all(leader(pair.one, t) == 1 for t in topics), 60, "other leaders")
    for n in range(1, 4):
        insert(p, topic, "k", str(n))
    p.wait_confirmed(seconds=240)
    assert p.walpost.stop() == 0
    p.walpost = p.another(bootstrap=pair.two.bootstrap)  # so that it is asked first
    assert p.walpost.verb("audit", check=False).returncode == 69
    assert p.walpost.verb("replay", "--missing", "--in-place", check=False).returncode == 69
    p.walpost.start(wait=None)
    servers.wait_for(lambda: "leader of partition 0" in str(p.walpost.status()), 60, "the reason")
    assert p.walpost.status()["state"] != "halted"
    pair.to_controller.set_mode("pass")
    insert(p, topic, "k", "4")
    p.wait_confirmed(seconds=120)
    servers.wait_for(lambda: leader(pair.two, topic) == leader(pair.one, topic), 60, "the broker to be back")
    assert p.walpost.verb("audit").returncode == 0
    assert [record.value() for record in pair.read_all(topic)] == [b"0", b"1", b"2", b"3", b"4"]
