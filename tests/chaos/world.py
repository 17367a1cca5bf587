"""The servers, the program under test, and the way between them."""

import os
import shutil

import psycopg2
import servers
from confluent_kafka import Consumer, KafkaException, TopicPartition
from fake_clock import FakeClock
from history import TOPICS
from hostile import PROGRESS_TOPIC
from hostile import SCHEMA as HOSTILE_SCHEMA
from hostile import TOPIC as HOSTILE_TOPIC
from judge import Look
from kafka_answers import Answers
from kafka_cluster import KafkaCluster
from migrations import Migrations
from plan import BROKERS
from small_disk import SmallDisk
from tcp_proxy import TcpProxy
from writers import SCHEMA

NAME = "chaos"
PARTITIONS = 4
PLACES = tuple((topic, n) for topic in TOPICS for n in range(PARTITIONS))
WAL_DISK_MB = 1024
BROKER_DISK_MB = 8192  # as much memory as lies on it
EVENT_BYTES_MAX = 1 << 20
UNKNOWN_TOPIC_WAIT_S = 2
OUTBOXES = [
    {"table": "outbox.events", "preset": "walpost", "topic": "{aggregate_type}", "topics": {"allowed": ["chaos.orders", "chaos.payments", "hostile.*"]}},
    {"table": "shop.outbox", "preset": "walpost", "topic": "chaos.messages",
     "columns": {"id": "id", "key": "customer", "aggregate_type": "kind", "type": "kind", "payload": "body", "content_type": [],
                 "schema_name": [], "headers": [], "occurred_at": "noted_at", "traceparent": [], "tracestate": []}},
    {"table": "shop.expanded", "columns": {"headers": "headers", "occurred_at": "occurred_at"}, "topics": {"allowed": ["hostile.*"]},
     "debezium": {"route.topic.replacement": "${routedByValue}", "table.expand.json.payload": "true"}},
]


def small_disk(workspace, name, size_mb):
    """None where mounting is not allowed; the run then goes without full disks, and says so."""
    try:
        return workspace.add(SmallDisk(workspace.path / name, size_mb))
    except servers.Unavailable:
        return None


class World:
    def __init__(self, workspace, plan):
        self.broker_disks = [small_disk(workspace, f"broker{n}", BROKER_DISK_MB) for n in range(1, BROKERS + 1)]
        self.broker_disks = [disk for disk in self.broker_disks if disk]
        log_dirs = [disk.path / "data" for disk in self.broker_disks]
        self.kafka = workspace.add(KafkaCluster(workspace.path / "kafka", log_dirs=log_dirs, settings={
            "broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500, "replica.lag.time.max.ms": 4000,
            "controller.quorum.election.timeout.ms": 1000, "controller.quorum.fetch.timeout.ms": 2000,
            "leader.imbalance.check.interval.seconds": 20,  # a broker that was away leads again
        })).start()
        self.answers = []
        for proxy in self.kafka.proxies:
            self.answers.append(Answers())
            proxy.make_filter = self.answers[-1].connection
        self.wal_disk = small_disk(workspace, "wal", WAL_DISK_MB)  # first, so that it goes away after the server
        self.postgres = workspace.postgres(start=False, settings={
            "wal_sender_timeout": "'10s'", "max_wal_size": "'256MB'", "checkpoint_timeout": "'30s'", "wal_recycle": "off",
            "wal_writer_delay": "'10ms'",
        })
        if self.wal_disk:
            self._move_wal()
        self.postgres.start()
        self.postgres.create_database(NAME)
        self.postgres.execute(SCHEMA, database=NAME)
        self.postgres.execute(HOSTILE_SCHEMA, database=NAME)
        self.postgres_proxy = workspace.add(TcpProxy("postgres", ("127.0.0.1", self.postgres.port)))
        for topic in TOPICS:
            self.kafka.create_topic(topic, PARTITIONS, {"min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"})
        self.kafka.create_topic(HOSTILE_TOPIC, 1)
        conninfo = f"host=127.0.0.1 port={self.postgres_proxy.port} dbname={NAME} user=postgres"
        self.walpost = workspace.walpost(conninfo=conninfo, bootstrap=self.kafka.proxied_bootstrap, name=NAME,
                                         properties=plan.kafka, config={
            "outboxes": OUTBOXES, "log": {"level": "info", "format": "json"},
            "delivery": {"on_undeliverable": "skip", "unknown_topic_wait": f"{UNKNOWN_TOPIC_WAIT_S}s", "progress_topic": PROGRESS_TOPIC, **plan.walpost["delivery"]},
            "source": {"conninfo": conninfo, "slot": NAME, "publication": NAME, "event_bytes_max": EVENT_BYTES_MAX, **plan.walpost["source"]}})
        self.reconnect_s = {"10s": 10, "60s": 60, "10min": 600}[plan.walpost["source"]["reconnect_interval"]]
        self.clock = FakeClock(workspace.path / "clock")
        self.walpost.env = self.clock.env
        self.migrations = Migrations(self.postgres, NAME, [outbox["table"] for outbox in OUTBOXES])
        self.walpost.verb("init", "--with-roles")
        # What the table rejects anyhow is not what the hostile writer tries.
        self.postgres.execute("ALTER TABLE outbox.events DROP CONSTRAINT IF EXISTS events_check", database=NAME)
        self.walpost.start()
        self._consumer = None

    def _move_wal(self):
        wal, target = self.postgres.data / "pg_wal", self.wal_disk.path / "pg_wal"
        shutil.copytree(wal, target)
        shutil.rmtree(wal)
        wal.symlink_to(target)
        target.chmod(0o700)
        if self.postgres.user:
            for path in [target, *target.rglob("*"), wal]:
                os.chown(path, self.postgres.user.pw_uid, self.postgres.user.pw_gid, follow_symlinks=False)

    def proxy(self, target):
        return self.postgres_proxy if target == "postgres" else self.kafka.proxies[int(target[-1]) - 1]

    def broker(self, target):
        return self.kafka.nodes[int(target[-1]) - 1]

    def slot(self):
        return self.postgres.slot(NAME, NAME)

    def execute(self, sql, *arguments):
        return self.postgres.execute(sql, *arguments, database=NAME)

    def wal_position(self):
        return int(self.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")[0][0])

    def _new_consumer(self):
        return Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": "chaos", "enable.auto.commit": False,
                         "isolation.level": "read_uncommitted", "log_level": 0, "reconnect.backoff.max.ms": 500})

    def look(self):
        """What is confirmed, and then where the partitions end; None while a server cannot say."""
        self._consumer = self._consumer or self._new_consumer()
        try:
            confirmed = self.slot()["confirmed"]
            return Look(confirmed, ends_of(self._consumer, PLACES, timeout_s=2))
        except (psycopg2.Error, TypeError):  # TypeError: no slot, right after a crash
            return None
        except KafkaException:
            self._consumer.close()
            self._consumer = None  # it would go on asking who led the partition before
            return None

    def ends(self, places=PLACES):
        """{(topic, partition): where it ends}; None while a partition has no leader."""
        consumer = self._new_consumer()
        try:
            return ends_of(consumer, places, timeout_s=5)
        except KafkaException:
            return None
        finally:
            consumer.close()

    def read(self, take, places=PLACES):
        """Gives take() every record of the topics, in order within each partition."""
        found = servers.wait_for(lambda: self.ends(places), 120, "all partitions to have a leader")
        ends = {where: high for where, high in found.items() if high}
        consumer = self._new_consumer()
        try:
            consumer.assign([TopicPartition(topic, n, 0) for topic, n in ends])
            while ends:
                messages = consumer.consume(5000, timeout=30)
                if not messages:
                    raise TimeoutError(f"reading: {sorted(ends)} not read to their end")
                for message in messages:
                    if message.error():
                        raise KafkaException(message.error())
                    take(message)
                    where = (message.topic(), message.partition())
                    if message.offset() + 1 >= ends.get(where, 0):
                        ends.pop(where, None)
        finally:
            consumer.close()

    def values(self, topic):
        """Those of a topic of one partition."""
        values = []
        self.read(lambda message: values.append(message.value()), places=[(topic, 0)])
        return values


def ends_of(consumer, places, timeout_s):
    return {(topic, n): consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=timeout_s)[1] for topic, n in places}
