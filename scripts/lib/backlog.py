"""A backlog of events that every contender of a benchmark drains, each from a copy of the same slot."""

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import servers  # noqa: E402 - the path above makes it importable
from confluent_kafka import Consumer, TopicPartition  # noqa: E402

RELAY = ROOT / "build" / "release" / "tests" / "bench" / "minimal_relay"
PARTITIONS = 4
PAYLOAD_BYTES = 250

FILL = """DO $$
BEGIN
  FOR t IN 1..{transactions} LOOP
    INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)
      SELECT gen_random_uuid(), 'bench', 'key-' || (t * {rows} + r) % 1000, 'Measured', convert_to(rpad('', {bytes}, 'x'), 'UTF8')
      FROM generate_series(1, {rows}) r;
    COMMIT;
  END LOOP;
END $$"""


def say(text):
    print(text, file=sys.stderr, flush=True)


def show_run(number, name, run):
    """The first round warms the caches."""
    say(f"  {'warm-up' if number == 0 else number} {name:<15}" + "".join(
        f" {run[key] / scale:10,.1f} {unit}" for key, scale, unit in (
            ("events_per_s", 1000, "k/s"), ("cpu_us_per_event", 1, "us"), ("peak_rss_bytes", 2**20, "MB")) if key in run))


def peak_rss_bytes(pid):
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def outbox_for(topic, outbox):
    """Debezium's own options name the topic in another way."""
    if "debezium" in outbox:
        return {**outbox, "debezium": {**outbox["debezium"], "route.topic.replacement": topic}}
    return {"table": "outbox.events", "topic": topic, **outbox}


class Backlog:
    """N events behind a slot that is never advanced; each run reads a copy of it."""

    def __init__(self, workspace, kafka, events, rows):
        self.events = events
        self.kafka = kafka
        self.workspace = workspace
        self.postgres = workspace.postgres(settings={"max_wal_size": "8GB", "checkpoint_timeout": "1h"})
        self.runs = 0
        self.topic = None  # of the last run
        setup = workspace.walpost(conninfo=self.postgres.conninfo(), bootstrap=kafka.bootstrap)
        setup.init()
        self.postgres.execute("SELECT pg_copy_logical_replication_slot('walpost', 'backlog')")
        self.fill(rows)
        self.end = self.postgres.execute("SELECT pg_current_wal_flush_lsn()::text")[0][0]

    def fill(self, rows):
        for _ in range(8):  # in pieces, so that no statement runs for minutes
            self.postgres.execute(FILL.format(transactions=self.events // rows // 8, rows=rows, bytes=PAYLOAD_BYTES))

    def fresh(self):
        """A slot at the beginning, and a topic whose timestamps are the broker's."""
        self.runs += 1
        servers.wait_for(lambda: not self.postgres.slot()["active"], 20, "the slot to be free")
        self.postgres.execute("SELECT pg_drop_replication_slot('walpost')")
        self.postgres.execute("SELECT pg_copy_logical_replication_slot('backlog', 'walpost')")
        self.topic = self.kafka.create_topic(f"bench-{id(self)}-{self.runs}", PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        return self.topic

    def check_and_time(self, topic):
        """Seconds from the first append to the last, by the broker's clock; every event must be there."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 0})
        count, first, last = 0, None, None
        for number in range(PARTITIONS):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
            count += high - low
            for offset in (low, high - 1):
                consumer.assign([TopicPartition(topic, number, offset)])
                stamp = consumer.poll(20).timestamp()[1]
                first = stamp if first is None else min(first, stamp)
                last = stamp if last is None else max(last, stamp)
        consumer.close()
        if count != self.events:
            raise RuntimeError(f"{topic}: {count} records instead of {self.events}")
        return (last - first) / 1000

    def pg_recvlogical(self):
        self.fresh()
        begin = time.monotonic()
        subprocess.run([self.postgres.bindir / "pg_recvlogical", "-d", self.postgres.conninfo(), "--slot", "walpost", "--start",
                        "--endpos", self.end, "-o", "proto_version=1", "-o", "publication_names=walpost", "-f", "/dev/null"],
                       check=True, capture_output=True)
        return {"events_per_s": self.events / (time.monotonic() - begin)}

    def minimal_relay(self):
        topic = self.fresh()
        process = subprocess.Popen([RELAY, self.postgres.conninfo(), "walpost", "walpost", self.kafka.bootstrap, topic,
                                    str(self.events)])
        peak = 0
        while process.poll() is None:
            try:
                peak = max(peak, peak_rss_bytes(process.pid))
            except (OSError, IndexError):
                break
            time.sleep(0.05)
        process.wait()
        return {"events_per_s": self.events / self.check_and_time(topic), "peak_rss_bytes": peak}

    def walpost(self, outbox=None, properties=None):
        topic = self.fresh()
        walpost = self.workspace.walpost(conninfo=self.postgres.conninfo(), bootstrap=self.kafka.bootstrap, properties=properties, config={
            "outboxes": [outbox_for(topic, outbox or {})], "log": {"level": "info"}})
        walpost.verb("slot", "advance", "--yes")  # goes back to the slot's beginning, whatever the run before remembered
        walpost.start(wait=None)
        servers.wait_for(walpost.status, 20, "walpost's status page")
        while walpost.status()["events"]["delivered"] < self.events:
            time.sleep(0.1)
        cpu, peak = cpu_seconds(walpost.process.pid), walpost.peak_rss_bytes()
        if walpost.stop() != 0:
            raise RuntimeError(walpost.log_text())
        return {"events_per_s": self.events / self.check_and_time(topic), "cpu_us_per_event": cpu / self.events * 1e6,
                "peak_rss_bytes": peak}


def relay_with_cpu(backlog):
    """The relay has no status page: its CPU is what this process's children used meanwhile."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = backlog.minimal_relay()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**result, "cpu_us_per_event": used / backlog.events * 1e6}


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}
