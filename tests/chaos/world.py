"""The servers, the program under test, and the way between them."""

import os
import shutil

import psycopg2
import servers
from confluent_kafka import Consumer, KafkaException, TopicPartition
from history import TOPICS
from judge import Look
from kafka_cluster import KafkaCluster
from small_disk import SmallDisk
from tcp_proxy import TcpProxy
from writers import SCHEMA

NAME = "chaos"
PARTITIONS = 4
WAL_DISK_MB = 1024
OUTBOXES = [
    {"table": "outbox.events", "preset": "walpost", "topic": "{aggregate_type}"},
    {"table": "shop.outbox", "preset": "walpost", "topic": "chaos.messages",
     "columns": {"id": "id", "key": "customer", "aggregate_type": "kind", "type": "kind", "payload": "body", "content_type": [],
                 "schema_name": [], "headers": [], "occurred_at": "noted_at", "traceparent": [], "tracestate": []}},
]


def small_disk(workspace):
    """None where mounting is not allowed; the run then goes without full disks, and says so."""
    try:
        return workspace.add(SmallDisk(workspace.path / "wal", WAL_DISK_MB))
    except servers.Unavailable:
        return None


class World:
    def __init__(self, workspace, plan):
        self.kafka = workspace.add(KafkaCluster(workspace.path / "kafka", settings={
            "broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500, "replica.lag.time.max.ms": 4000,
            "controller.quorum.election.timeout.ms": 1000, "controller.quorum.fetch.timeout.ms": 2000,
        })).start()
        self.wal_disk = small_disk(workspace)  # first, so that it goes away after the server
        self.postgres = workspace.postgres(start=False, settings={
            "wal_sender_timeout": "'10s'", "max_wal_size": "'256MB'", "checkpoint_timeout": "'30s'", "wal_recycle": "off",
            "wal_writer_delay": "'10ms'",
        })
        if self.wal_disk:
            self._move_wal()
        self.postgres.start()
        self.postgres.create_database(NAME)
        self.postgres.execute(SCHEMA, database=NAME)
        self.postgres_proxy = workspace.add(TcpProxy("postgres", ("127.0.0.1", self.postgres.port)))
        for topic in TOPICS:
            self.kafka.create_topic(topic, PARTITIONS, {"min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"})
        conninfo = f"host=127.0.0.1 port={self.postgres_proxy.port} dbname={NAME} user=postgres"
        self.walpost = workspace.walpost(conninfo=conninfo, bootstrap=self.kafka.proxied_bootstrap, name=NAME,
                                         properties=plan.kafka, config={"outboxes": OUTBOXES, "delivery": plan.walpost["delivery"],
                                                                        "source": {"conninfo": conninfo, "slot": NAME,
                                                                                   "publication": NAME, **plan.walpost["source"]},
                                                                        "log": {"level": "info", "format": "json"}})
        self.walpost.init()
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

    def wal_position(self):
        return int(self.postgres.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn", database=NAME)[0][0])

    def _new_consumer(self):
        return Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": "chaos", "enable.auto.commit": False,
                         "isolation.level": "read_uncommitted", "log_level": 0, "reconnect.backoff.max.ms": 500})

    def look(self):
        """What is confirmed, and then where the partitions end; None while a server cannot say."""
        self._consumer = self._consumer or self._new_consumer()
        try:
            confirmed = self.slot()["confirmed"]
            return Look(confirmed, ends_of(self._consumer, timeout_s=2))
        except (psycopg2.Error, TypeError):  # TypeError: no slot, right after a crash
            return None
        except KafkaException:
            self._consumer.close()
            self._consumer = None  # it would go on asking who led the partition before
            return None

    def _ends(self):
        consumer = self._new_consumer()
        try:
            return ends_of(consumer, timeout_s=5)
        except KafkaException:
            return None
        finally:
            consumer.close()

    def read(self, take):
        """Gives take() every record of the topics, in order within each partition."""
        ends = {where: high for where, high in servers.wait_for(self._ends, 120, "all partitions to have a leader").items() if high}
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


def ends_of(consumer, timeout_s):
    return {(topic, n): consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=timeout_s)[1]
            for topic in TOPICS for n in range(PARTITIONS)}
