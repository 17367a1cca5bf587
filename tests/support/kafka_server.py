"""A throwaway Kafka of one node. See servers.py."""

import base64
import glob
import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import kafka_requests
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from waiting import Unavailable, free_port, wait_for

KAFKA_VERSION = "4.1.0"
CLUSTER = "d2FscG9zdC10ZXN0LWtmaw"


def kafka_classpath():
    home = os.environ.get("KAFKA_HOME")
    folder = Path(home) / "libs" if home else Path(
        os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "walpost" / f"kafka-{KAFKA_VERSION}"
    if not glob.glob(str(folder / "kafka*.jar")):
        raise Unavailable(f"Kafka's jars in {folder} (run scripts/bootstrap, or set KAFKA_HOME)")
    if not shutil.which("java"):
        raise Unavailable("a Java runtime (Debian's package openjdk-17-jre-headless)")
    return f"{folder}/*"


def shows(admin, topic, settings):
    resource = ConfigResource("topic", topic)
    found = admin.describe_configs([resource])[resource].result(timeout=30)
    return all(found[name].value == value for name, value in settings.items())


class Kafka:
    """One node that is broker and controller. Topics are never created by themselves."""

    def __init__(self, path, settings=None, start=True, port=None, heap_mb=512):
        self.path = Path(path)
        self.path.mkdir(parents=True)
        self.data = self.path / "data"
        self.classpath = kafka_classpath()
        self.port = port or free_port()
        self.heap_mb = heap_mb
        controller = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.process = None
        lines = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.data,
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.backoff.ms": 200,
        }
        lines.update(settings or {})
        self.properties = self.path / "server.properties"
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in lines.items()), encoding="utf-8")
        self._format(lines)
        if start:
            self.start()

    def _format(self, lines):
        """As the tool does it, whose Java takes longer than all the rest: with_kafka.py has what it leaves, but for what is a node's own."""
        formatted = os.environ.get("WALPOST_KAFKA_FORMATTED")
        if not formatted:
            self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", self.properties)
            return
        shutil.copytree(formatted, lines["log.dirs"], dirs_exist_ok=True)
        directory = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        (Path(lines["log.dirs"]) / "meta.properties").write_text(
            f"version=1\ncluster.id={CLUSTER}\nnode.id={lines['node.id']}\ndirectory.id={directory}\n", encoding="utf-8")

    def _java(self, *arguments):
        done = subprocess.run(self._command(*arguments), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{arguments[0]}: {done.stdout}{done.stderr}")

    def _command(self, *arguments):
        """with_kafka.py gives options with which it starts sooner."""
        return ["java", f"-Xmx{self.heap_mb}m", "-XX:+UseSerialGC", *os.environ.get("WALPOST_KAFKA_JAVA", "").split(),
                "-cp", self.classpath, *map(str, arguments)]

    def copy_format(self, folder):
        folder.mkdir()
        shutil.copy(self.data / "bootstrap.checkpoint", folder)
        return folder

    def start(self, wait=True):
        log = open(self.path / "log", "ab")
        self.process = subprocess.Popen(
            self._command("kafka.Kafka", self.properties),
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            cwd=self.path)  # a Java that crashes writes its report there
        log.close()
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds=60):
        def ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"Kafka ended: {(self.path / 'log').read_text(errors='replace')[-2000:]}")
            try:
                return self.admin().list_topics(timeout=2).brokers
            except KafkaException:
                return None

        wait_for(ready, seconds, "Kafka to answer")

    def admin(self):
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(self, name, partitions=4, config=None):
        admin = self.admin()
        admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(timeout=30)
        wait_for(lambda: len(admin.list_topics(name, timeout=5).topics[name].partitions) == partitions, 20, f"topic {name}")
        return name

    def alter_topic(self, name, config):
        """Returns when the broker goes by it. It shows a change before it obeys, but begins the next one only when the last is done."""
        admin = self.admin()
        for settings in (config, {**config, "flush.messages": str(2**62)}):
            resource = ConfigResource("topic", name, set_config=settings)
            admin.alter_configs([resource])[resource].result(timeout=30)
            wait_for(lambda: shows(admin, name, settings), 30, f"{settings} of topic {name}")  # noqa: B023

    def read_all(self, topic, seconds=120):
        """Every record of the topic up to its end, by partition and offset."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.auto.commit": False,
                             "enable.partition.eof": True, "log_level": 0, "fetch.wait.max.ms": 20})
        try:
            partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
            ends, assigned = {}, []
            for number in partitions:
                low, high = wait_for(lambda: watermarks(consumer, topic, number), 60, f"the leader of {topic}")  # noqa: B023
                if high > low:
                    ends[number] = high
                    assigned.append(TopicPartition(topic, number, low))
            consumer.assign(assigned)
            records, deadline = [], time.monotonic() + seconds
            while ends:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"reading {topic}: partitions {sorted(ends)} not read to their end")
                for message in consumer.consume(5000, timeout=0.05):  # it waits for so many, or so long
                    ended = message.error() is not None and message.error().code() == KafkaError._PARTITION_EOF
                    if message.error() and not ended:
                        raise KafkaException(message.error())
                    if not ended:
                        records.append(message)
                    if ended or message.offset() + 1 >= ends.get(message.partition(), 0):  # the last one may be gone by now
                        ends.pop(message.partition(), None)
            records.sort(key=lambda m: (m.partition(), m.offset()))
            return records
        finally:
            consumer.close()

    def rewrite(self, topic, records):
        """The topic made anew with these records, each in its partition and with its time."""
        admin = self.admin()
        partitions = len(admin.list_topics(topic, timeout=20).topics[topic].partitions)
        admin.delete_topics([topic])[topic].result(timeout=30)
        wait_for(lambda: topic not in admin.list_topics(timeout=20).topics, 30, f"{topic} to be gone")
        self.create_topic(topic, partitions)
        self.produce(topic, records)

    def compact(self, topic):
        """What log compaction leaves: of each key the last record."""
        last = {(record.partition(), record.key()): record for record in self.read_all(topic)}
        self.rewrite(topic, sorted(last.values(), key=lambda record: record.offset()))
        self.alter_topic(topic, {"cleanup.policy": "compact"})

    def clean(self, topic, seconds=120, others=0):
        """Compacts partition 0 as a broker does, until records without a value are gone, too; `others`: keys whose records stay."""
        self.alter_topic(topic, {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"})
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})

        def is_clean():
            # Only what lies before the newest segment is compacted, and a record with a later time begins one.
            producer.produce(topic, b"newest", b"of walpost's tests", 0)
            assert producer.flush(60) == 0
            records = self.read_all(topic)
            return len(records) < 4 + others and all(record.value() is not None for record in records)

        wait_for(is_clean, seconds, f"{topic} to be compacted", every=0.5)

    def delete_records(self, topic, partition, before):
        """What retention does: the partition begins at this offset from here on."""
        known = self.admin().list_topics(topic, timeout=30)
        leader = known.brokers[known.topics[topic].partitions[partition].leader]
        kafka_requests.delete_records(f"{leader.host}:{leader.port}", topic, partition, before)

    def produce(self, topic, records):
        """Copies of records, in this order."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for record in records:
            producer.produce(topic, record.value(), record.key(), record.partition(), timestamp=record.timestamp()[1],
                             headers=record.headers())
        assert producer.flush(60) == 0

    def transaction(self, topic, records):
        """An open transaction with copies of records; the caller ends it."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"of {topic}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for record in records:
            producer.produce(topic, record.value(), record.key(), record.partition(), timestamp=record.timestamp()[1], headers=record.headers())
        assert producer.flush(60) == 0
        return producer

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.kill9()


class SharedKafka(Kafka):
    """The one that with_kafka.py runs for all files of tests at the same time: it has topics of others, too, and nobody stops it."""

    def __init__(self, path):
        self.path = Path(path)  # of this file's own
        self.path.mkdir(parents=True)
        self.data = Path(os.environ["WALPOST_TEST_KAFKA_DATA"])
        self.classpath = kafka_classpath()
        self.heap_mb = 512
        self.bootstrap = os.environ["WALPOST_TEST_KAFKA"]
        self._topics = set()

    @property
    def process(self):
        raise AssertionError("this Kafka is not yours alone: take workspace.kafka()")

    start = stop = kill9 = process

    def create_topic(self, name, *arguments, **options):
        self._topics.add(name)
        return super().create_topic(name, *arguments, **options)

    def close(self):
        """What is left costs the broker time until the last file ends."""
        admin = self.admin()
        left = self._topics & set(admin.list_topics(timeout=30).topics)
        for future in admin.delete_topics(list(left)).values() if left else ():
            future.exception(timeout=60)


def watermarks(consumer, topic, partition):
    """(low, high), or None while a broker that has just started does not lead its partitions yet."""
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    except KafkaException as error:
        if error.args[0].code() in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
                                    KafkaError.UNKNOWN_TOPIC_OR_PART):
            return None
        raise
