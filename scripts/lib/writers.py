"""What an event costs the transaction that emits it: pgbench, with fsync, once with each way of having an outbox.

The transaction is five statements of a shop (UPDATE, three INSERTs, SELECT); the outbox adds a sixth. walpost itself does not
run, and no slot is there: what they read, they read from the log, and here the writer is measured. The poller does run, since
without it there is no UPDATE.
"""

import os
import re
import select
import statistics
import subprocess
import threading
import time
from pathlib import Path

from backlog import say, summary

ROOT = Path(__file__).resolve().parents[2]
PAYLOAD_BYTES = 1000
SECONDS = 3  # a run
ACCOUNTS = 10_000
COMMIT_WAIT_MS = 2

BUSINESS = """\\set account random(1, {accounts})
\\set amount random(1, 100)
BEGIN;
UPDATE accounts SET balance = balance - :amount WHERE id = :account;
INSERT INTO orders (account, total) VALUES (:account, :amount) RETURNING id AS order \\gset
INSERT INTO lines (order_id, sku, quantity) VALUES (:order, 'sku-1', 1);
INSERT INTO lines (order_id, sku, quantity) VALUES (:order, 'sku-2', 2);
SELECT balance FROM accounts WHERE id = :account;
"""
INSERT = ("INSERT INTO {table} (aggregate_type, aggregate_id, event_type, payload)"
          " VALUES ('order', :order::text, 'OrderPlaced', :payload::bytea);\n")
CALL = "SELECT outbox.{function}('OrderPlaced', 'order', :order::text, :payload::bytea);\n"

OUTBOXES = {
    "none": ("without an outbox", ""),
    "emit": ("`outbox.emit`, partitions", CALL.format(function="emit")),
    "emit_message": ("`outbox.emit_message`, no table", CALL.format(function="emit_message")),
    "direct": ("INSERT into the same table, partitions", INSERT.format(table="outbox.events")),
    "plain": ("INSERT into the plain table (`init --plain-table`)", INSERT.format(table="plain.events")),
    "bare": ("INSERT into a table without checks, key `bigint`", INSERT.format(table="bare_outbox")),
    "polled": ("INSERT into a polled outbox, poller beside it", INSERT.format(table="polled_outbox")),
}

# The plain INSERTs that the functions are compared with.
BASES = {"direct": "INSERT into the same table", "plain": "INSERT into the plain table", "bare": "INSERT into a table without checks"}

TABLES = """
CREATE TABLE accounts (id integer PRIMARY KEY, balance bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50);
INSERT INTO accounts SELECT generate_series(1, {accounts});
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account integer NOT NULL, total integer NOT NULL,
                     placed_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE lines (order_id bigint NOT NULL, sku text NOT NULL, quantity integer NOT NULL, PRIMARY KEY (order_id, sku));
CREATE TABLE bare_outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregate_type text NOT NULL,
    aggregate_id text NOT NULL, event_type text NOT NULL, payload bytea, created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE polled_outbox (LIKE bare_outbox INCLUDING ALL);
ALTER TABLE polled_outbox ADD sent_at timestamptz;
CREATE INDEX polled_outbox_unsent ON polled_outbox (id) WHERE sent_at IS NULL;
CREATE FUNCTION notify_poller() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NOTIFY polled_outbox; RETURN NULL; END';
CREATE TRIGGER notify_poller AFTER INSERT ON polled_outbox FOR EACH STATEMENT EXECUTE FUNCTION notify_poller();
VACUUM ANALYZE accounts;
"""

BATCH = """UPDATE polled_outbox o SET sent_at = now()
FROM (SELECT id FROM polled_outbox WHERE sent_at IS NULL ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED) AS batch
WHERE o.id = batch.id RETURNING o.id, o.payload"""


class Load:
    """How many writers, and what a commit waits for."""

    def __init__(self, title, clients, wait_ms=0):
        self.title, self.clients, self.wait_ms = title, clients, wait_ms


LOADS = {
    "1": Load("One writer, a commit waits for this disk", 1),
    "8": Load("Eight writers, a commit waits for this disk", 8),
    "wait": Load(f"One writer, a commit that waits {COMMIT_WAIT_MS} ms", 1, COMMIT_WAIT_MS),
}


class Poller(threading.Thread):
    """Marks rows as sent, in batches, at once when it is notified of some. It sends them nowhere."""

    def __init__(self, postgres):
        super().__init__(daemon=True)
        self._connection = postgres.connect()
        self._closed = threading.Event()
        self.sent = 0

    def run(self):
        with self._connection.cursor() as cursor:
            cursor.execute("LISTEN polled_outbox")
            while not self._closed.is_set():
                cursor.execute(BATCH)
                self.sent += cursor.rowcount
                if cursor.rowcount == 0:
                    select.select([self._connection], [], [], 0.1)
                    self._connection.poll()
                self._connection.notifies.clear()

    def close(self):
        self._closed.set()
        self.join()
        self._connection.close()


def fsync_ms(folder):
    """The median time of 200 times 8 KiB and fdatasync, which is what a commit does here."""
    path = Path(folder) / "fsync-probe"
    times = []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.pwrite(descriptor, bytes(2**24), 0)
        os.fsync(descriptor)
        for page in range(200):
            begin = time.perf_counter()
            os.pwrite(descriptor, b"x" * 8192, page * 8192)
            os.fdatasync(descriptor)
            times.append((time.perf_counter() - begin) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(times)


def plain_schema(postgres):
    """plain.events, as `init --schema plain --plain-table` makes it."""
    sql = (ROOT / "sql" / "V2__outbox.up.sql").read_text(encoding="utf-8")
    postgres.execute(re.sub(r"\boutbox\b", "plain", sql))


def prepare(postgres, walpost):
    walpost.verb("init", "--with-messages")
    postgres.execute("SELECT pg_drop_replication_slot('walpost')")  # or all of the log would be kept
    plain_schema(postgres)
    for statement in TABLES.format(accounts=ACCOUNTS).split(";\n"):
        if statement.strip():
            postgres.execute(statement)


def script(outbox, load):
    wait = f"\\sleep {load.wait_ms} ms\n" if load.wait_ms else ""
    return BUSINESS.format(accounts=ACCOUNTS) + OUTBOXES[outbox][1] + wait + "END;\n"


def pgbench(postgres, folder, outbox, load, seconds):
    """One run: what pgbench reports and logs."""
    path = folder / f"{outbox}.sql"
    path.write_text(script(outbox, load), encoding="utf-8")
    for old in folder.glob("log.*"):
        old.unlink()
    options = "-c synchronous_commit=off" if load.wait_ms else ""
    done = subprocess.run(
        [postgres.bindir / "pgbench", "-n", "-M", "prepared", "-r", "-l", f"--log-prefix={folder / 'log'}", "-c", str(load.clients),
         "-j", "1", "-T", str(seconds), "-D", "payload=\\x" + bytes(range(250)).hex() * (PAYLOAD_BYTES // 250), "-f", path,
         "-h", postgres.path, "-p", str(postgres.port), "-U", "postgres", "postgres"],
        check=False, capture_output=True, text=True, env={**os.environ, "PGOPTIONS": options})
    if done.returncode != 0:
        raise RuntimeError(f"pgbench with {outbox}: {done.stderr}")
    delays = sorted(int(line.split()[2]) / 1000 for log in folder.glob("log.*") for line in log.read_text().splitlines())
    statements = re.findall(r"^\s+([\d.]+)\s+\d+\s+(.*)$", done.stdout, re.M)
    return {"tps": float(re.search(r"tps = ([\d.]+)", done.stdout)[1]), "transactions": len(delays),
            "mean_ms": statistics.mean(delays), "statement_ms": sum(float(ms) for ms, text in statements if is_outbox(text)),
            **{f"p{percent}_ms": delays[len(delays) * percent // 100] for percent in (50, 95, 99)}}


def is_outbox(statement):
    return bool(re.search(r"outbox\.e|INTO plain\.events|_outbox", statement))


def reaped_cpu_s(postgres):
    """CPU of the server's processes that have ended, and been looked after by the first of them."""
    seconds = None
    while True:
        fields = Path(f"/proc/{postgres.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        now = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
        if now == seconds:
            return now
        seconds = now
        time.sleep(0.05)


def one_run(postgres, folder, outbox, load, seconds):
    poller = Poller(postgres) if outbox == "polled" else None
    before = wal_position(postgres)
    if poller:
        poller.start()
    cpu = reaped_cpu_s(postgres)
    run = pgbench(postgres, folder, outbox, load, seconds)
    if not poller:
        run["cpu_us"] = (reaped_cpu_s(postgres) - cpu) / run["transactions"] * 1e6
    if poller:
        while postgres.execute("SELECT EXISTS (SELECT FROM polled_outbox WHERE sent_at IS NULL)")[0][0]:
            time.sleep(0.01)
        poller.close()
        run["cpu_us"] = (reaped_cpu_s(postgres) - cpu) / run["transactions"] * 1e6
    run["wal_bytes"] = (wal_position(postgres) - before) / run["transactions"]
    return run


def wal_position(postgres):
    return int(postgres.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])


def measure(servers, rounds):
    """The rounds are interleaved, every other one in reverse; the first warms caches and makes WAL segments that are used again."""
    settings = {"min_wal_size": "2GB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}
    with servers.Workspace("walpost-bench-") as workspace:
        postgres = workspace.postgres(settings=settings, fsync=True)
        result = {"payload_bytes": PAYLOAD_BYTES, "seconds": SECONDS, "rounds": rounds, "accounts": ACCOUNTS, "wait_ms": COMMIT_WAIT_MS,
                  "postgres": postgres.execute("SHOW server_version")[0][0].split()[0], "fsync_ms": fsync_ms(postgres.path)}
        say(f"one fsync takes {result['fsync_ms']:.2f} ms")
        prepare(postgres, workspace.walpost(conninfo=postgres.conninfo(), bootstrap="127.0.0.1:1", config={
            "messages": {"prefixes": ["bench"]}, "delivery": {"progress_topic": ""}}))
        folder = workspace.path / "pgbench"
        folder.mkdir()
        runs = {load: {outbox: [] for outbox in OUTBOXES} for load in LOADS}
        for number in range(rounds + 1):
            postgres.execute("CHECKPOINT")
            postgres.execute("UPDATE accounts SET balance = 0")  # each page's first change after a checkpoint costs nobody below
            for name, load in LOADS.items():
                for outbox in (list(OUTBOXES) if number % 2 else list(OUTBOXES)[::-1]):
                    run = one_run(postgres, folder, outbox, load, SECONDS if number else 1)
                    say(f"  {number or 'warm-up'} {name:<5}{outbox:<14}{run['mean_ms']:8.3f} ms {run['tps']:8.0f}/s"
                        f" {run['statement_ms'] * 1000:6.0f} us {run['cpu_us']:6.0f} us CPU {run['wal_bytes']:7.0f} B")
                    if number:
                        runs[name][outbox].append(run)
        result["loads"] = {name: {outbox: figures(runs[name], outbox) for outbox in OUTBOXES} for name in LOADS}
    return result


def figures(runs, outbox):
    """Medians over the rounds, and of ratios within a round."""
    def ratios(key, base):
        return summary([run[key] / other[key] for run, other in zip(runs[outbox], runs[base]) if other[key]] or [0])

    found = {key: summary([run[key] for run in runs[outbox]]) for key in runs[outbox][0]}
    for base in ("none", *BASES):
        found[f"to_{base}"] = ratios("p50_ms", base)  # of medians: a pause of the machine is nobody's cost
    for base in BASES:
        found[f"statement_to_{base}"] = ratios("statement_ms", base)
    return found


def spread(figure, digits=2):
    return f"{figure['median']:.{digits}f} ({figure['min']:.{digits}f} - {figure['max']:.{digits}f})"


def text(result):
    lines = [f"a transaction of five statements and one event of {result['payload_bytes']:,} bytes; pgbench with prepared statements, {result['rounds']}"
             f" interleaved rounds of {result['seconds']} s, medians. PostgreSQL with fsync: one takes {result['fsync_ms']:.2f} ms here."]
    for name, load in LOADS.items():
        loads = result["loads"][name]
        lines += ["", f"**{load.title}:**", "",
                  "| the event | mean, ms | 50 % | 95 % | 99 % | transactions/s | WAL a transaction | its statement"
                  " | server's CPU | 50 % / without an outbox |", "|---|---|---|---|---|---|---|---|---|---|"]
        for outbox, (title, _) in OUTBOXES.items():
            f = {key: figure["median"] for key, figure in loads[outbox].items()}
            statement = f"{f['statement_ms'] * 1000:.0f} us" if f["statement_ms"] else ""
            lines.append(f"| {title} | {f['mean_ms']:.3f} | {f['p50_ms']:.3f} | {f['p95_ms']:.3f} | {f['p99_ms']:.3f} | {f['tps']:,.0f}"
                         f" | {f['wal_bytes']:,.0f} B | {statement} | {f['cpu_us']:.0f} us"
                         f" | {spread(loads[outbox]['to_none'])} |")
    return "\n".join([*lines, "", *targets(result)])


def event_cpu_us(loads, outbox):
    """What the server uses more than without an outbox; no less than what its clock can measure."""
    return max(loads[outbox]["cpu_us"]["median"] - loads["none"]["cpu_us"]["median"], 1)


def targets(result):
    """What was wanted, and what came; of one writer, whose statements wait for nobody."""
    one, wait = result["loads"]["1"], result["loads"]["wait"]
    lines = ["| wanted | whole transaction, 50 % | its statement alone, mean | server's CPU of the event |", "|---|---|---|---|"]
    for outbox, wanted in (("emit", "at most 1.10"), ("emit_message", "below 1")):
        for base, against in BASES.items():
            whole, alone = (spread(one[outbox][f"{what}to_{base}"]) for what in ("", "statement_"))
            lines.append(f"| `{outbox}` / {against}: {wanted} | {whole} | {alone} | {event_cpu_us(one, outbox) / event_cpu_us(one, base):.2f} |")
    for outbox in ("emit", "emit_message"):
        share = {key: (value - 1) * 100 for key, value in wait[outbox]["to_none"].items()}
        lines.append(f"| `{outbox}` adds to a transaction whose commit waits {result['wait_ms']} ms: at most 2 % | {spread(share, 1)} % | | |")
    return lines


def line(result):
    """For the README."""
    one, wait = result["loads"]["1"], result["loads"]["wait"]
    share = [(wait[outbox]["to_none"]["median"] - 1) * 100 for outbox in ("emit", "emit_message", "polled")]
    micros = [one[outbox]["statement_ms"]["median"] * 1000 for outbox in ("emit", "emit_message", "plain")]
    return (f"an event costs its writer {micros[0]:.0f} us with `outbox.emit` and {micros[1]:.0f} us with `outbox.emit_message`, where a plain INSERT takes"
            f" {micros[2]:.0f} us: {share[0]:.1f} % and {share[1]:.1f} % of a transaction whose commit waits {result['wait_ms']} ms")
