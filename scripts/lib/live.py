"""Live load: from the commit to a consumer's hand, alone or beside many who watch walpost by HTTP."""

import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import servers
from confluent_kafka import Consumer, TopicPartition

WATCHERS = Path(servers.__file__).with_name("watchers.py")
WARM_S = 20  # a fresh JVM takes that long to reach its speed
SETTLE_S = 2  # of each window of `watched`, not counted

TRANSACTION = """INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)
VALUES (gen_random_uuid(), 'bench', 'key-' || :client_id, 'Measured', convert_to(rpad('', {bytes}, 'x'), 'UTF8'));
"""


class LiveReader(threading.Thread):
    """Commit to consumer, by one clock: the commit's time in the envelope and the time the record is in hand."""

    def __init__(self, bootstrap, partitions):
        super().__init__(daemon=True)
        self._envelope = servers.load_envelope()
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "live", "enable.auto.commit": False,
                                   "fetch.wait.max.ms": 5, "log_level": 0})
        self._consumer.assign([TopicPartition("bench", number, 0) for number in range(partitions)])
        self._closed = threading.Event()
        self.samples = []  # (committed at, delay in ms)

    def run(self):
        while not self._closed.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and not message.error():
                now = time.time()
                committed = self._envelope.FromString(message.value()).committed_at.ToMicroseconds() / 1e6
                self.samples.append((committed, (now - committed) * 1000))

    def delays(self, begin, end=float("inf")):
        """Of what was committed in between, ascending."""
        return sorted(delay for committed, delay in list(self.samples) if begin < committed <= end)

    def close(self):
        self._closed.set()
        self.join()
        self._consumer.close()


def load(postgres, script, rate, seconds):
    """Transactions a second that were reached."""
    done = subprocess.run([postgres.bindir / "pgbench", "-n", "-c", "8", "-j", "2", "-R", str(rate), "-T", str(seconds), "-f", script,
                           "-h", postgres.path, "-p", str(postgres.port), "-U", "postgres", "postgres"],
                          check=True, capture_output=True, text=True)
    return float(done.stdout.split("tps = ")[1].split()[0])


def watched(postgres, walpost, reader, script, arguments, say):
    """The same load alone and with 50 open pages and 10 scrapes a second beside it, in turn; each pair in the other order."""
    pairs = []
    load(postgres, script, arguments.rate, WARM_S)
    for number in range(arguments.pairs):
        pair = {}
        for kind in ("alone", "watched") if number % 2 == 0 else ("watched", "alone"):
            watchers = start_watchers(walpost) if kind == "watched" else None
            begin = time.time() + SETTLE_S
            load(postgres, script, arguments.rate, arguments.seconds + SETTLE_S)
            end = time.time()
            answers = stop_watchers(watchers) if watchers else None
            count = postgres.execute("SELECT count(*) FROM outbox.events")[0][0]
            servers.wait_for(lambda n=count: len(reader.samples) >= n, 60, "every event to be read")
            delays = reader.delays(begin, end)
            pair[kind] = {"p50_ms": delays[len(delays) // 2], "p99_ms": delays[int(len(delays) * 0.99)], "events": len(delays), "answers": answers}
            say(f"pair {number + 1}, {kind}: median {pair[kind]['p50_ms']:.1f} ms, 99 % under {pair[kind]['p99_ms']:.1f} ms"
                f"{f', {sum(answers.values()):,} answers' if answers else ''}")
        pairs.append(pair)
    ratio = {name: [pair["watched"][name] / pair["alone"][name] for pair in pairs] for name in ("p50_ms", "p99_ms")}
    return {"pairs": pairs, "rate": arguments.rate, "seconds": arguments.seconds,
            "ratio_p50": statistics.median(ratio["p50_ms"]), "ratio_p99": statistics.median(ratio["p99_ms"]),
            "ratios_p99": sorted(ratio["p99_ms"])}


def start_watchers(walpost):
    """In a process of their own: the reader's must not share its time with them."""
    return subprocess.Popen([sys.executable, str(WATCHERS), walpost.http], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def stop_watchers(process):
    output, _ = process.communicate(timeout=120)
    if process.returncode != 0:
        raise RuntimeError("a page or a scrape was not answered")
    return json.loads(output)


def watched_text(r):
    return (f"live, {r['rate']:,} transactions/s, with 50 open status pages and 10 scrapes a second beside it and without, {len(r['pairs'])} pairs of"
            f" {r['seconds']} s: commit to consumer 99 %, watched / alone {r['ratio_p99']:.2f}"
            f" (pairs {r['ratios_p99'][0]:.2f} - {r['ratios_p99'][-1]:.2f}), median {r['ratio_p50']:.2f}")
