"""Every program of docs/examples on real servers: a producer of each language, and consumers that read all of it, twice."""

import collections
import os
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
import build  # noqa: E402 - the path above makes it importable
import pipeline  # noqa: E402
import servers  # noqa: E402

CHOSEN = os.environ.get("WALPOST_EXAMPLES", "python").split()
CONSUMERS = [language for language in CHOSEN if language != "node"]
ORDERS, TOPIC, PARTITIONS = 60, "order", 3


def url(language, postgres, database):
    return f"{'jdbc:' * (language == 'java')}postgresql://127.0.0.1:{postgres.port}/{database}?user=postgres"


class World:
    """A shop whose orders go through walpost to Kafka."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.programs = {language: build.LANGUAGES[language](workspace.path) for language in CHOSEN}
        self.postgres, self.kafka = workspace.postgres(), workspace.kafka()
        self.shop = pipeline.Pipeline("shop", self.postgres, self.kafka, workspace, {})
        self.shop.execute((build.EXAMPLES / "shop.sql").read_text(encoding="utf-8"))
        self.kafka.create_topic(TOPIC, PARTITIONS)
        self.shop.start()
        self.said = {language: self.produce(language) for language in CHOSEN}
        self.shop.wait_confirmed()

    def produce(self, language):
        self.shop.execute("UPDATE customers SET credit = 300")
        log = self.workspace.path / f"{language}-producer.log"
        environment = {"DATABASE_URL": url(language, self.postgres, "shop")}
        code = self.programs[language]["producer"].start(log, environment, ORDERS).wait(120)
        text = log.read_text(encoding="utf-8")
        assert code == 0, text
        return text

    def orders(self):
        return sorted(self.shop.execute("SELECT id, total FROM orders"))


@pytest.fixture(scope="module")
def world():
    with servers.Workspace() as workspace:
        yield World(workspace)


def test_every_order_has_its_event_and_what_was_rolled_back_has_none(world):
    orders, records = world.orders(), world.kafka.read_all(TOPIC)
    rejected = {language: text.count("no order, no event") for language, text in world.said.items()}
    print(f"{len(orders)} orders, rejected: {rejected}")
    assert all(0 < count < ORDERS for count in rejected.values())
    assert len(orders) == ORDERS * len(CHOSEN) - sum(rejected.values())
    events = [servers.load_envelope().FromString(record.value()) for record in records]
    assert sorted(int(event.aggregate_id) for event in events) == [order for order, _ in orders]
    assert {event.type for event in events} == {"OrderPlaced"}
    traced = sum(1 for event in events if event.traceparent)
    assert traced == sum(ORDERS - rejected[language] for language in CHOSEN if language in ("python", "node"))


def offsets(world, group):
    """(committed, end) of each partition."""
    consumer = Consumer({"bootstrap.servers": world.kafka.bootstrap, "group.id": group, "enable.auto.commit": False})

    def committed():
        try:
            return consumer.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], timeout=20)
        except KafkaException:
            return None  # the group has no coordinator yet

    try:
        return [(one.offset, consumer.get_watermark_offsets(one, timeout=20)[1])
                for one in servers.wait_for(committed, 120, f"the offsets of group {group}", every=0.2)]
    finally:
        consumer.close()


def rewind(world, group):
    """As an operator does who wants a topic read again. Only a group without members lets that happen."""
    consumer = Consumer({"bootstrap.servers": world.kafka.bootstrap, "group.id": group, "enable.auto.commit": False})

    def done():
        try:
            return consumer.commit(offsets=[TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)], asynchronous=False)
        except KafkaException:
            return None  # its last member is not gone yet

    try:
        servers.wait_for(done, 120, f"group {group} to be rewound", every=0.2)
    finally:
        consumer.close()


def consume(world, language, group, database):
    """Runs the consumer until it has committed all there is."""
    log = world.workspace.path / f"{language}-consumer.log"
    environment = {"DATABASE_URL": url(language, world.postgres, database), "BOOTSTRAP_SERVERS": world.kafka.bootstrap, "GROUP": group}
    process = world.programs[language]["consumer"].start(log, environment)

    def caught_up():
        assert process.poll() is None, log.read_text(encoding="utf-8")[-3000:]
        return all(committed == end or end == 0 for committed, end in offsets(world, group))

    try:
        servers.wait_for(caught_up, 120, f"{language}'s consumer to commit all offsets", every=0.2)
        process.terminate()
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.parametrize("language", CONSUMERS)
def test_consumer_handles_each_event_once_although_all_records_come_again(world, language):
    group = f"billing-{language}"
    database = world.postgres.create_database(group)
    for file in (servers.ROOT / "sql" / "inbox" / "V1__inbox.up.sql", build.EXAMPLES / "billing.sql"):
        world.postgres.execute(file.read_text(encoding="utf-8"), database=database)

    def invoices():
        return collections.Counter(world.postgres.execute("SELECT order_id, total FROM invoices", database=database))

    expected = collections.Counter(world.orders())
    consume(world, language, group, database)
    assert invoices() == expected
    for _ in range(2):
        rewind(world, group)
        assert [committed for committed, _ in offsets(world, group)] == [0] * PARTITIONS
        consume(world, language, group, database)
    assert invoices() == expected
    print(f"{language}: {sum(expected.values())} events, each 3 times: {sum(invoices().values())} invoices")
    # The inbox is what keeps them apart: without it they would be there once more.
    world.postgres.execute("DELETE FROM inbox.processed_events", database=database)
    rewind(world, group)
    consume(world, language, group, database)
    assert invoices() == expected + expected
