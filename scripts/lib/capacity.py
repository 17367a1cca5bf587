"""The constants of docs/capacity.md, measured. What follows from them is in rates.py."""

import contextlib
import json
import random
import threading
import time

from backlog import Backlog, say, show_run, summary
from writers import plain_schema

SIZES = (200, 1000, 10_000)
KINDS = ("json", "random")
CODECS = ("none", "lz4", "snappy", "zstd")
DOCUMENTS = 2000  # different payloads of a kind and size; more than a batch holds of them
DRAINED = 120_000
DRAIN_SIZE = 1000  # bytes of the payloads that are drained
DRAIN_ROWS = 20  # in a transaction
DRAIN_ROUNDS = 3
DROPPED = 100  # partitions
DROPPED_ROWS = 1000  # in each
DROPPED_LARGE = (4, 700_000)  # partitions, and rows in each

WAYS = {
    "emit": "SELECT count(outbox.emit('Measured', 'bench', 'key-' || n, payload)) FROM documents WHERE kind = '{kind}' AND size = {size}",
    "plain": "INSERT INTO plain.events (aggregate_type, aggregate_id, event_type, payload) SELECT 'bench', 'key-' || n, 'Measured', payload"
             " FROM documents WHERE kind = '{kind}' AND size = {size}",
    "emit_message": "SELECT count(outbox.emit_message('Measured', 'bench', 'key-' || n, payload)) FROM documents"
                    " WHERE kind = '{kind}' AND size = {size}",
}
FILL = """DO $$
BEGIN
  FOR t IN {first}..{last} LOOP
    PERFORM outbox.emit('Measured', 'bench', 'key-' || t * {rows} + n, payload) FROM documents
    WHERE kind = 'json' AND size = {size} AND n >= t * {rows} % {documents} AND n < t * {rows} % {documents} + {rows};
    COMMIT;
  END LOOP;
END $$"""


def document(kind, size, source):
    """An order as shops write them, filled up to the size; or bytes that nothing compresses."""
    if kind == "random":
        return source.randbytes(size)
    order = {"order": source.randrange(10**9), "customer": f"customer-{source.randrange(10**6)}", "currency": "EUR",
             "placedAt": f"2026-{source.randrange(1, 13):02}-{source.randrange(1, 29):02}T{source.randrange(24):02}:{source.randrange(60):02}:00Z",
             "lines": []}
    room = size - 90 - len(json.dumps(order))
    while room > 0:
        order["lines"].append({"sku": f"SKU-{source.randrange(10**5):05}", "quantity": source.randrange(1, 9),
                               "price": source.randrange(10**5) / 100, "tax": "standard"})
        room -= len(json.dumps(order["lines"][-1])) + 2
    order["note"] = ""
    order["note"] = "".join(source.choices("abcdefghij klmnop", k=size - len(json.dumps(order))))
    return json.dumps(order).encode()


def fill_documents(postgres, sizes, kinds):
    source = random.Random(4711)
    postgres.execute("CREATE TABLE documents (kind text, size integer, n integer, payload bytea, PRIMARY KEY (kind, size, n))")
    connection = postgres.connect(autocommit=False)
    try:
        with connection.cursor() as cursor:
            for kind in kinds:
                for size in sizes:
                    rows = [(kind, size, n, document(kind, size, source)) for n in range(DOCUMENTS)]
                    for begin in range(0, DOCUMENTS, 100):
                        part = rows[begin:begin + 100]
                        cursor.execute("INSERT INTO documents VALUES " + ", ".join(["(%s, %s, %s, %s)"] * len(part)),
                                       [value for row in part for value in row])
        connection.commit()
    finally:
        connection.close()


# -- in PostgreSQL -------------------------------------------------------------------------------------------------------

def number(postgres, sql):
    return int(postgres.execute(f"SELECT {sql}")[0][0])


def stored_bytes(postgres):
    """Of both tables, with indexes and what lies outside the rows."""
    return number(postgres, "pg_total_relation_size('plain.events') + (SELECT sum(pg_total_relation_size(relid))"
                            " FROM pg_partition_tree('outbox.events'))")


def bytes_of(postgres, way, kind, size):
    """(WAL, table and indexes) of one event, in a transaction of many: what the transaction itself costs is not in it."""
    statement = WAYS[way].format(kind=kind, size=size)
    wal, stored = number(postgres, "pg_current_wal_insert_lsn() - '0/0'::pg_lsn"), stored_bytes(postgres)
    postgres.execute(statement)
    wal = number(postgres, "pg_current_wal_insert_lsn() - '0/0'::pg_lsn") - wal
    return {"wal": wal / DOCUMENTS, "stored": (stored_bytes(postgres) - stored) / DOCUMENTS}


def dropping(postgres, partitions, rows):
    """Seconds that outbox.maintain takes to drop old partitions that have been delivered, and how long it holds up who emits meanwhile."""
    postgres.execute(f"""DO $$
        DECLARE starts timestamptz := date_trunc('hour', now()) - interval '20 days'; name text;
        BEGIN
            FOR h IN 1..{partitions} LOOP
                name := outbox.partition_name(starts);
                EXECUTE format('CREATE TABLE outbox.%I (LIKE outbox.events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
                EXECUTE format('ALTER TABLE outbox.events ATTACH PARTITION outbox.%I FOR VALUES FROM (%L) TO (%L)', name, starts,
                               starts + interval '1 hour');
                INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at)
                    SELECT 'bench', 'key', 'Measured', starts FROM generate_series(1, {rows});
                starts := starts + interval '1 hour';
            END LOOP;
        END $$""")
    postgres.execute("SELECT count(*) FROM outbox.maintain(keep => '30 days')")  # makes a note
    postgres.execute("SELECT pg_replication_slot_advance('walpost', pg_current_wal_lsn())")
    postgres.execute("UPDATE walpost.pipeline SET delivered_lsn = pg_current_wal_lsn()")
    emits, done = [], threading.Event()

    def emit():
        with contextlib.closing(postgres.connect()) as connection, connection.cursor() as cursor:
            while not done.is_set():
                began = time.monotonic()
                cursor.execute("SELECT outbox.emit('Measured', 'bench', 'key', 'x')")
                emits.append(time.monotonic() - began)

    emitting = threading.Thread(target=emit)
    emitting.start()
    dropped = calls = 0
    begin = time.monotonic()
    while dropped < partitions and calls < partitions:
        dropped += number(postgres, "count(*) FROM outbox.maintain(keep => '10 days') WHERE action = 'dropped'")
        calls += 1
    seconds = time.monotonic() - begin
    done.set()
    emitting.join()
    if dropped != partitions:
        raise RuntimeError(f"{dropped} partitions dropped instead of {partitions}")
    return {"partitions": dropped, "rows": rows, "calls": calls, "seconds": seconds, "longest_emit_s": max(emits)}


def database(workspace):
    postgres = workspace.postgres(settings={"max_wal_size": "8GB", "checkpoint_timeout": "1h"})
    workspace.walpost(conninfo=postgres.conninfo(), bootstrap="127.0.0.1:1", config={
        "messages": {"prefixes": ["bench"]}, "delivery": {"progress_topic": ""}}).verb("init", "--with-messages")
    plain_schema(postgres)
    fill_documents(postgres, SIZES, KINDS)
    found = {"bytes": {way: {kind: {} for kind in KINDS} for way in WAYS}}
    for way in WAYS:
        bytes_of(postgres, way, "random", 1000)  # the first 128 pages of a table cost more: their BRIN summary follows each row
        for kind in KINDS:
            for size in SIZES:
                found["bytes"][way][kind][str(size)] = bytes_of(postgres, way, kind, size)
    found["dropping"] = [dropping(postgres, DROPPED, DROPPED_ROWS), dropping(postgres, *DROPPED_LARGE)]
    found["postgres"] = postgres.execute("SHOW server_version")[0][0].split()[0]
    return found


# -- in Kafka ------------------------------------------------------------------------------------------------------------

class Documents(Backlog):
    """A backlog of such documents, emitted with outbox.emit."""

    def fill(self, rows):
        fill_documents(self.postgres, [DRAIN_SIZE], ["json"])
        step = self.events // rows // 8
        for part in range(8):
            self.postgres.execute(FILL.format(first=part * step, last=(part + 1) * step - 1, rows=rows, size=DRAIN_SIZE,
                                              documents=DOCUMENTS))

    def drained(self, codec):
        run = self.walpost(properties={"compression.type": codec})
        logs = (self.kafka.path / "data").glob(f"{self.topic}-*/*.log")
        run["topic_bytes"] = sum(log.stat().st_size for log in logs) / self.events
        return run


def topics(servers):
    with servers.Workspace("walpost-bench-") as workspace:
        say(f"{DRAINED:,} events of {DRAIN_SIZE:,} bytes: filling")
        backlog = Documents(workspace, workspace.kafka(), DRAINED, DRAIN_ROWS)
        runs = {codec: [] for codec in CODECS}
        for turn in range(DRAIN_ROUNDS + 1):
            for codec in (CODECS if turn % 2 else CODECS[::-1]):
                run = backlog.drained(codec)
                show_run(turn, codec, run)
                if turn:
                    runs[codec].append(run)
        return {codec: {key: summary([run[key] for run in runs[codec]]) for key in runs[codec][0]} for codec in runs}


def measure(servers):
    with servers.Workspace("walpost-bench-") as workspace:
        say("bytes in PostgreSQL")
        result = database(workspace)
    result["topics"] = topics(servers)
    result.update(documents=DOCUMENTS, drained=DRAINED, drain_size=DRAIN_SIZE, drain_rows=DRAIN_ROWS, drain_rounds=DRAIN_ROUNDS)
    return result


# -- in the document -----------------------------------------------------------------------------------------------------

def text(result):
    lines = ["| payload | `emit`: WAL | table and indexes | plain table: WAL | table and indexes | `emit_message`: WAL |", "|---|---|---|---|---|---|"]
    for kind, title in (("json", "JSON"), ("random", "random bytes")):
        for size in SIZES:
            of = {way: result["bytes"][way][kind][str(size)] for way in WAYS}
            lines.append(f"| {size:,} B of {title} | {of['emit']['wal']:,.0f} B | {of['emit']['stored']:,.0f} B | {of['plain']['wal']:,.0f} B"
                         f" | {of['plain']['stored']:,.0f} B | {of['emit_message']['wal']:,.0f} B |")
    lines += ["", f"| `compression.type` | an event of {result['drain_size']:,} B of JSON in the topic | events/s | CPU of walpost per event |",
              "|---|---|---|---|"]
    for codec in CODECS:
        of = result["topics"][codec]
        rate = of["events_per_s"]
        lines.append(f"| `{codec}` | {of['topic_bytes']['median']:,.0f} B | {rate['median'] / 1000:.1f} k ({rate['min'] / 1000:.1f} -"
                     f" {rate['max'] / 1000:.1f}) | {of['cpu_us_per_event']['median']:.1f} us |")
    lines += ["", "`outbox.maintain` dropped, while somebody emitted all the time:", "",
              "| partitions | rows in each | calls | seconds | longest `outbox.emit` |", "|---|---|---|---|---|"]
    lines += [f"| {of['partitions']:,} | {of['rows']:,} | {of['calls']} | {of['seconds']:.2f} | {of['longest_emit_s'] * 1000:.0f} ms |"
              for of in result["dropping"]]
    return "\n".join(lines)
