"""The measurements of scripts/bench. Every figure is taken from this machine, now; nothing is a constant."""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import capacity as sizes  # noqa: E402 - a neighbour of this file
import formats  # noqa: E402 - a neighbour of this file
import instructions as callgrind  # noqa: E402 - a neighbour of this file
import live as live_load  # noqa: E402 - a neighbour of this file
import machine  # noqa: E402 - the path above makes it importable
import rates  # noqa: E402 - a neighbour of this file
import rejected_events  # noqa: E402 - a neighbour of this file
import servers  # noqa: E402
import starts  # noqa: E402 - a neighbour of this file
import writers as pgbench  # noqa: E402 - a neighbour of this file
from backlog import (FILL, PARTITIONS, PAYLOAD_BYTES, Backlog, cpu_seconds, peak_rss_bytes, relay_with_cpu, say,  # noqa: E402
                     show_run, summary)

RESULTS = ROOT / "build" / "bench"
SHAPES = (1, 20)  # rows in a transaction
INSTRUCTION_EVENTS = 120_000  # at the pace of the replay, some seconds

OFFERED = """DO $$
BEGIN
  FOR t IN {first}..{first} + 249 LOOP
    INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)
      SELECT gen_random_uuid(), 'bench', 'key-' || (t * 20 + r) % 100000, 'Measured', convert_to(rpad('', 1000, 'x'), 'UTF8')
      FROM generate_series(1, 20) r;
    COMMIT;
  END LOOP;
END $$"""


def save(name, result):
    RESULTS.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    result.update(machine=machine.describe(), date=time.strftime("%Y-%m-%d"), commit=commit.stdout.strip(),
                  kafka=servers.KAFKA_VERSION)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


# -- drain ---------------------------------------------------------------------------------------------------------------

def drain(arguments):
    if arguments.format:
        result = formats.measure(arguments)
        print(formats.text(result))
        if arguments.format == "all":
            save("formats", result)
        return
    result = {"events": arguments.events, "pairs": arguments.pairs, "payload_bytes": PAYLOAD_BYTES, "shapes": {}}
    for rows in SHAPES if not arguments.rows else (arguments.rows,):
        with servers.Workspace("walpost-bench-") as workspace:
            say(f"{arguments.events:,} events, {rows} a transaction: filling")
            backlog = Backlog(workspace, workspace.kafka(), arguments.events, rows)
            tools = {"walpost": backlog.walpost, "minimal_relay": lambda: relay_with_cpu(backlog),
                     "pg_recvlogical": backlog.pg_recvlogical}
            runs = {name: [] for name in tools}
            for pair in range(arguments.pairs + 1):
                for name in (list(tools) if pair % 2 else list(tools)[::-1]):
                    run = tools[name]()
                    if pair > 0:  # the first round warms the caches
                        runs[name].append(run)
                    show_run(pair, name, run)
            figures = {name: {key: summary([run[key] for run in runs[name]]) for key in runs[name][0]} for name in runs}
            figures["ratio_to_relay"] = (figures["walpost"]["events_per_s"]["median"]
                                         / figures["minimal_relay"]["events_per_s"]["median"])
            figures["ratio_to_recvlogical"] = (figures["walpost"]["events_per_s"]["median"]
                                               / figures["pg_recvlogical"]["events_per_s"]["median"])
            figures["ratios_to_relay"] = summary([w["events_per_s"] / r["events_per_s"] for w, r in
                                                  zip(runs["walpost"], runs["minimal_relay"])])
            result["shapes"][str(rows)] = figures
            result["postgres"] = backlog.postgres.execute("SHOW server_version")[0][0].split()[0]
    print(drain_text(result))
    if not arguments.rows:
        save("drain", result)


def drain_text(result):
    lines = [f"drain of {result['events']:,} events, {result['payload_bytes']} bytes of payload, {result['pairs']} interleaved rounds;"
             " median (lowest - highest)", "",
             "| rows a transaction | | events/s | CPU per event | peak memory |", "|---|---|---|---|---|"]
    names = {"walpost": "walpost", "minimal_relay": "minimal relay, no guarantees", "pg_recvlogical": "pg_recvlogical to /dev/null"}
    for rows, figures in result["shapes"].items():
        for name, title in names.items():
            f = figures[name]
            rate = f["events_per_s"]
            cpu = f"{f['cpu_us_per_event']['median']:.1f} us" if "cpu_us_per_event" in f else ""
            peak = f"{f['peak_rss_bytes']['max'] / 2**20:.0f} MB" if "peak_rss_bytes" in f else ""
            lines.append(f"| {rows} | {title} | {rate['median'] / 1000:.1f} k ({rate['min'] / 1000:.1f} - {rate['max'] / 1000:.1f})"
                         f" | {cpu} | {peak} |")
        spread = figures["ratios_to_relay"]
        lines.append(f"| {rows} | **walpost / minimal relay** | **{figures['ratio_to_relay']:.2f}**"
                     f" (rounds {spread['min']:.2f} - {spread['max']:.2f}) | | |")
    return "\n".join(lines)


# -- live ----------------------------------------------------------------------------------------------------------------

def live(arguments):
    with servers.Workspace("walpost-bench-") as workspace:
        postgres, kafka = workspace.postgres(settings={"max_wal_size": "8GB"}), workspace.kafka()
        kafka.create_topic("bench", PARTITIONS)
        walpost = workspace.walpost(conninfo=postgres.conninfo(), bootstrap=kafka.bootstrap, config={"log": {"level": "info"}})
        walpost.init()
        walpost.start()
        script = workspace.path / "live.sql"
        script.write_text(live_load.TRANSACTION.format(bytes=PAYLOAD_BYTES), encoding="utf-8")
        reader = live_load.LiveReader(kafka.bootstrap, PARTITIONS)
        reader.start()
        if arguments.watched:
            result = live_load.watched(postgres, walpost, reader, script, arguments, say)
            reader.close()
            walpost.stop()
            print(live_load.watched_text(result))
            save("live-watched", result)
            return
        warm_s = live_load.WARM_S
        cpu_before, begin = cpu_seconds(walpost.process.pid), time.time()
        tps = live_load.load(postgres, script, arguments.rate, arguments.seconds + warm_s)
        cpu = cpu_seconds(walpost.process.pid) - cpu_before
        count = postgres.execute("SELECT count(*) FROM outbox.events")[0][0]
        servers.wait_for(lambda: len(reader.samples) >= count, 60, "every event to be read")
        reader.close()
        delays = reader.delays(begin + warm_s)
        result = {"writers": 8, "rate": arguments.rate, "seconds": arguments.seconds, "tps": tps, "events": len(delays),
                  "warm_up_s": warm_s, "p50_ms": delays[len(delays) // 2], "p99_ms": delays[int(len(delays) * 0.99)], "max_ms": delays[-1],
                  "cpu_us_per_event": cpu / count * 1e6, "peak_rss_bytes": walpost.peak_rss_bytes(),
                  "postgres": postgres.execute("SHOW server_version")[0][0].split()[0]}
        walpost.stop()
    print(live_text(result))
    save("live", result)


def live_text(r):
    return (f"live, {r['writers']} writers, {r['tps']:,.0f} transactions/s for {r['seconds']} s after {r['warm_up_s']} s of warm-up: commit to consumer median"
            f" {r['p50_ms']:.1f} ms, 99 % under {r['p99_ms']:.1f} ms, longest {r['max_ms']:.0f} ms ({r['events']:,} events;"
            f" {r['cpu_us_per_event']:.0f} us of CPU per event, peak memory {r['peak_rss_bytes'] / 2**20:.0f} MB)")


# -- stop ----------------------------------------------------------------------------------------------------------------

def stop(arguments):
    del arguments
    result = {"undelivered_s": timed_stop(backlog_transactions=5), "paused_s": timed_stop(backlog_transactions=10_000)}
    print(stop_text(result))
    save("stop", result)


def timed_stop(backlog_transactions):
    with servers.Workspace("walpost-bench-") as workspace:
        postgres, kafka = workspace.postgres(), workspace.kafka()
        kafka.create_topic("bench", PARTITIONS)
        walpost = workspace.walpost(conninfo=postgres.conninfo(), bootstrap=kafka.bootstrap)
        walpost.init()
        walpost.start()
        # Until Kafka has answered about the topic and has acknowledged a first record of each partition, nothing more is in flight.
        postgres.execute(FILL.format(transactions=1, rows=500, bytes=100))
        servers.wait_for(lambda: walpost.status()["events"]["delivered"] == 500, 60, "each partition to have had a record")
        kafka.kill9()
        postgres.execute(FILL.format(transactions=backlog_transactions, rows=20, bytes=1000))
        expected = "backpressured" if backlog_transactions > 1000 else "streaming"
        servers.wait_for(lambda: walpost.state() == expected and walpost.status()["events"]["in_flight"] >= 100, 60, expected)
        begin = time.monotonic()
        postgres.stop("fast")
        return time.monotonic() - begin


def stop_text(r):
    return (f"PostgreSQL fast shutdown with Kafka away: {r['undelivered_s']:.1f} s with 100 undelivered events,"
            f" {r['paused_s']:.1f} s with 200 MB waiting and reading paused")


# -- memory --------------------------------------------------------------------------------------------------------------

def memory(arguments):
    result = {"outage_s": arguments.outage}
    with servers.Workspace("walpost-bench-") as workspace:
        postgres, kafka = workspace.postgres(settings={"max_wal_size": "8GB"}), workspace.kafka()
        kafka.create_topic("bench", PARTITIONS)
        walpost = workspace.walpost(conninfo=postgres.conninfo(), bootstrap=kafka.bootstrap, config={"log": {"level": "info"}})
        walpost.init()
        walpost.start()
        result["idle_bytes"] = walpost.peak_rss_bytes()
        postgres.execute(FILL.format(transactions=1, rows=1_000_000, bytes=PAYLOAD_BYTES))
        walpost.wait_delivered(1_000_000, 300)
        result["transaction_bytes"] = walpost.peak_rss_bytes()
        walpost.stop()

        walpost.start()
        postgres.execute(OFFERED.format(first=-250))  # every partition has had its first record: what follows is in flight at once
        walpost.wait_delivered(5_000, 60)
        kafka.process.send_signal(19)  # SIGSTOP
        inserted = offered_load(postgres, arguments.outage)
        kafka.process.send_signal(18)
        begin = time.monotonic()
        walpost.wait_delivered(5_000 + inserted, 600)
        result["outage_drain_events_per_s"] = inserted / (time.monotonic() - begin)
        result["outage_bytes"], result["outage_events"] = walpost.peak_rss_bytes(), inserted
        walpost.stop()
    print(memory_text(result))
    save("memory", result)


def offered_load(postgres, seconds):
    """5 MB of payload a second over 100,000 keys, in transactions of 20 rows; the number of events."""
    begin, batches = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        postgres.execute(OFFERED.format(first=batches * 250))
        batches += 1
        time.sleep(max(0.0, begin + batches - time.monotonic()))
    return batches * 250 * 20


def memory_text(r):
    return (f"peak memory: {r['idle_bytes'] / 2**20:.0f} MB idle, {r['transaction_bytes'] / 2**20:.0f} MB for a transaction of"
            f" 1,000,000 rows, {r['outage_bytes'] / 2**20:.0f} MB with Kafka stopped for {r['outage_s']} s while"
            f" {r['outage_events']:,} events of 1,000 bytes for 100,000 keys were written")


# -- restart -------------------------------------------------------------------------------------------------------------

def restart(arguments):
    """kill -9 on an idle server, and at once a new process and a new event: how long until a consumer has it?"""
    del arguments
    delays = []
    with servers.Workspace("walpost-bench-") as workspace:
        postgres, kafka = workspace.postgres(), workspace.kafka()
        kafka.create_topic("bench", PARTITIONS)
        walpost = workspace.walpost(conninfo=postgres.conninfo(), bootstrap=kafka.bootstrap, config={"log": {"level": "info"}})
        walpost.init()
        walpost.start()
        reader = live_load.LiveReader(kafka.bootstrap, PARTITIONS)
        reader.start()
        for _ in range(11):
            one_event(postgres, reader)
            walpost.kill9()
            begin = time.monotonic()
            walpost.start(wait=None)
            one_event(postgres, reader)
            delays.append(time.monotonic() - begin)
        reader.close()
        walpost.stop()
    result = {"median_s": statistics.median(delays), "max_s": max(delays), "times": len(delays)}
    print(restart_text(result))
    save("restart", result)


def one_event(postgres, reader):
    """Inserts one and waits until the consumer has it: it, and not a repeat of one before."""
    begin = time.time()
    postgres.execute(FILL.format(transactions=1, rows=1, bytes=PAYLOAD_BYTES))
    servers.wait_for(lambda: any(committed >= begin for committed, _ in reader.samples[-3:]), 60, "an event", every=0.002)


def restart_text(r):
    return (f"kill -9 and a new process: the next event is with its consumer after {r['median_s']:.2f} s (median of {r['times']},"
            f" longest {r['max_s']:.2f} s)")


# -- start ---------------------------------------------------------------------------------------------------------------

def start(arguments):
    del arguments
    result = starts.measure(servers)
    print(starts.text(result))
    save("start", result)


# -- rejected -------------------------------------------------------------------------------------------------------------

def rejected(arguments):
    del arguments
    result = rejected_events.measure(PARTITIONS)
    print(rejected_text(result))
    save("rejected", result)


def rejected_text(r):
    return (f"{r['dead_lettered']:,} of {r['events']:,} events rejected by the broker, spread evenly, with `dead_letter`:"
            f" {r['events'] / r['seconds']:,.0f} events/s meanwhile, by {r['producers']:,} producers")


# -- instructions --------------------------------------------------------------------------------------------------------

def instructions(arguments):
    del arguments
    result = {}
    with servers.Workspace() as workspace:
        postgres = workspace.postgres()
        setup = workspace.walpost(conninfo=postgres.conninfo(), bootstrap="127.0.0.1:1", config={"delivery": {"progress_topic": ""}})
        setup.init()
        for rows in SHAPES:
            say(f"recording {INSTRUCTION_EVENTS} events, {rows} in a transaction, and replaying them under callgrind")
            before = postgres.execute("SELECT pg_current_wal_flush_lsn()::text")[0][0]
            postgres.execute("SELECT pg_replication_slot_advance('walpost', %s::pg_lsn)", before)
            postgres.execute(FILL.format(transactions=INSTRUCTION_EVENTS // rows, rows=rows, bytes=PAYLOAD_BYTES))
            recording = workspace.path / "recording"
            oid = callgrind.record(postgres, recording)
            result[str(rows)] = callgrind.shares(recording, oid, workspace.path)
            if result[str(rows)]["events"] != INSTRUCTION_EVENTS:
                raise RuntimeError(f"{result[str(rows)]['events']} events replayed instead of {INSTRUCTION_EVENTS}")
        result["formats"] = callgrind.by_format(recording, oid, workspace.path)  # of the last recording
    save("instructions", result)
    print(instructions_text(result))


def instructions_text(result):
    each = [f"{r['per_event']:,.0f} instructions with {rows} row{'s' if rows > 1 else ''} a transaction, of which remembered progress takes"
            f" {100 * r['progress']:.1f} %, counting {100 * r['counters']:.1f} %, and log, status and metrics {100 * r['showing']:.1f} %"
            for rows in SHAPES for r in [result[str(rows)]]]
    formats_text = ", ".join(f"{name} {per_event:,.0f}" for name, per_event in result["formats"].items())
    return f"from frame to record and back to the position, an event takes {'; '.join(each)}; by format, with {SHAPES[-1]} rows: {formats_text}"


# -- writers, capacity ---------------------------------------------------------------------------------------------------

def writers(arguments):
    result = pgbench.measure(servers, arguments.pairs)
    print(pgbench.text(result))
    save("writers", result)


def capacity(arguments):
    del arguments
    result = sizes.measure(servers)
    print(sizes.text(result))
    save("capacity", result)


# -- documents -----------------------------------------------------------------------------------------------------------

def docs(arguments):
    del arguments
    texts = {"drain": drain_text, "live": live_text, "live-watched": live_load.watched_text, "stop": stop_text, "memory": memory_text, "start": starts.text,
             "restart": restart_text, "rejected": rejected_text, "instructions": instructions_text, "formats": formats.text, "writers": pgbench.line, "capacity": sizes.text}
    results = {name: json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in texts
               if (RESULTS / f"{name}.json").exists()}
    missing = sorted(set(texts) - set(results))
    if missing:
        print(f"not measured yet, and left out: {', '.join(missing)} (scripts/bench all)")
    if {"drain", "formats", "writers", "capacity"} & set(missing):
        sys.exit("these make tables that cannot be left out: nothing is written")
    d = results["drain"]
    head = (f"Measured by `scripts/bench` on {d['machine']}, PostgreSQL {d['postgres']} and Kafka {d['kafka']} on the same cores"
            f" (commit {d['commit']}, {d['date']}).")
    table = drain_text(d)
    lines = []
    for name in ("live", "live-watched", "memory", "stop", "start", "restart", "rejected", "instructions", "writers"):
        if name in results:
            text, commit = texts[name](results[name]), results[name]["commit"]
            lines.append(f"- {text[0].upper() + text[1:]}{'' if commit == d['commit'] else f' (commit {commit})'}.")
    other = "\n".join(lines)
    servers.replace_block(ROOT / "docs" / "benchmarks.md", "bench", f"{head}\n\n{table[0].upper() + table[1:]}\n\n{other}")
    f = results["formats"]
    kinds = formats.text(f)
    servers.replace_block(ROOT / "docs" / "benchmarks.md", "formats", f"{kinds[0].upper() + kinds[1:]}\n\nCommit {f['commit']}, {f['date']}.")
    w, c = results["writers"], results["capacity"]
    costs = pgbench.text(w)
    servers.replace_block(ROOT / "docs" / "benchmarks.md", "writers", f"{costs[0].upper() + costs[1:]}\n\nCommit {w['commit']}, {w['date']}.")
    servers.replace_block(ROOT / "docs" / "capacity.md", "constants", f"{measured(c)}\n\n{sizes.text(c)}")
    servers.replace_block(ROOT / "docs" / "capacity.md", "rates", rates.table(c, w))


def measured(result):
    return f"Measured on {result['machine']}, PostgreSQL {result['postgres']} and Kafka {result['kafka']} (commit {result['commit']}, {result['date']})."


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench")
    parser.add_argument("what", choices=("drain", "live", "stop", "memory", "start", "restart", "rejected", "instructions", "writers", "capacity", "all", "docs"))
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows", type=int, help="only this shape; nothing is kept")
    parser.add_argument("--format", choices=("all", *formats.FORMATS))
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--rate", type=int, default=3000)
    parser.add_argument("--watched", action="store_true", help="live: beside 50 open status pages and 10 scrapes a second, in pairs")
    parser.add_argument("--outage", type=int, default=60)
    arguments = parser.parse_args()
    if not shutil.which("java"):
        sys.exit("a Java runtime is missing: Kafka needs one")
    if arguments.what == "all":
        arguments.format = None
    for what in ("drain", "live", "stop", "memory", "start", "restart", "rejected", "instructions", "writers", "capacity") if arguments.what == "all" else (arguments.what,):
        globals()[what](arguments)
    if arguments.what == "all":
        arguments.format = "all"
        drain(arguments)


if __name__ == "__main__":
    main()
