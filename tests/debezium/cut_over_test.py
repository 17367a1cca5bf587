"""From a running Debezium to walpost on the same slot, as docs/migrate-from-debezium.md says, while writers go on.

Nothing is lost; what Debezium had sent and not confirmed when it stopped comes once more, and nothing else does.
"""

import collections
import json
import os
import sys
import threading

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]
import connect  # noqa: E402 - the path above makes it importable
import servers  # noqa: E402

TOPIC = "outbox.event.order"
EACH = 300  # records that each of the two has to deliver
TABLE = """CREATE TABLE outbox (n bigserial, id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL,
    aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb,
    seen pg_lsn DEFAULT pg_current_wal_insert_lsn())"""
INSERT = """INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', 'key-' || %s, 'Placed', '{}')"""


class Writer:
    """One row after the other in transactions of their own, until stopped; so `n` is the order of commits."""

    def __init__(self, postgres, database):
        self.connection = postgres.connect(database)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        number = 0
        with self.connection.cursor() as cursor:
            while not self.ended.is_set():
                cursor.execute(INSERT, (number % 10,))
                number += 1
                self.ended.wait(0.002)

    def stop(self):
        self.ended.set()
        self.thread.join()
        self.connection.close()


@pytest.fixture
def workspace():
    with servers.Workspace() as own:
        yield own


def count(kafka):
    return len(kafka.read_all(TOPIC))


def debezium(workspace, postgres, database, kafka):
    """Makes slot and publication itself, as most do."""
    worker = workspace.add(connect.Connect(workspace.path / "connect", kafka)).start()
    config = connect.connector(postgres, database, "debezium", ("public", "outbox"),
                               {"table.fields.additional.placement": "type:header:eventType"})
    config.update({"publication.name": "dbz_publication", "publication.autocreate.mode": "filtered"})
    worker.create("orders", config)
    servers.wait_for(lambda: (s := postgres.slot("debezium", database)) and s["active"], 60, "Debezium to stream")
    return worker, config


def walpost(workspace, postgres, database, kafka, config):
    """With what `config import-debezium` makes of the connector's file."""
    file = workspace.path / "connector.json"
    file.write_text(json.dumps({"name": "orders", "config": config}), encoding="utf-8")
    own = workspace.walpost(conninfo=postgres.conninfo(database), bootstrap=kafka.bootstrap, name="orders")
    made = own.verb("config", "import-debezium", str(file))
    assert "snapshot.mode" not in made.stderr and "unused" not in made.stdout  # unused is its password
    own.file.write_text(made.stdout + f'http: {{listen: "{own.http}"}}\nlog: {{level: debug, format: json}}\n',
                        encoding="utf-8")
    os.environ["PGPASSWORD"] = "unused"
    os.environ["WALPOST_KAFKA_BOOTSTRAP_SERVERS"] = kafka.bootstrap
    return own


def test_nothing_is_lost_and_only_what_was_not_confirmed_comes_again(workspace):
    postgres, kafka = workspace.postgres(), workspace.kafka()
    database = postgres.create_database("shop")
    postgres.execute(TABLE, database=database)
    kafka.create_topic(TOPIC, 4)
    worker, config = debezium(workspace, postgres, database, kafka)
    writer = Writer(postgres, database)
    servers.wait_for(lambda: count(kafka) >= EACH, 120, "Debezium to deliver", every=0.3)

    worker.delete("orders")
    servers.wait_for(lambda: not postgres.slot("debezium", database)["active"], 60, "Debezium to leave the slot")
    before = {dict(message.headers())["id"] for message in kafka.read_all(TOPIC)}
    confirmed = postgres.slot("debezium", database)["confirmed"]

    own = walpost(workspace, postgres, database, kafka, config)
    own.init()
    own.start()
    own.wait_delivered(EACH)
    writer.stop()
    end = int(postgres.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn", database=database)[0][0])
    servers.wait_for(lambda: postgres.slot("debezium", database)["confirmed"] >= end, 120, "everything to be confirmed")

    rows = postgres.execute("SELECT id::text, aggregateid, seen - '0/0'::pg_lsn FROM outbox ORDER BY n", database=database)
    judge(rows, kafka.read_all(TOPIC), before, confirmed)


def judge(rows, records, before, confirmed):
    ids = [dict(message.headers())["id"].decode() for message in records]
    times = collections.Counter(ids)
    lost = [row[0] for row in rows if row[0] not in times]
    assert not lost, f"{len(lost)} of {len(rows)} lost"
    assert set(times) == {row[0] for row in rows}, "a record of no row"
    assert max(times.values()) <= 2
    # A transaction ends before the next row of the only writer is written.
    ends = {row[0]: int(following[2]) for row, following in zip(rows, rows[1:])}
    repeated = [event for event, number in times.items() if number > 1]
    for event in repeated:
        assert event.encode() in before, "repeated by walpost alone"
        assert ends[event] >= confirmed, "repeated although Debezium had confirmed it"
    order = collections.defaultdict(list)
    for message, event in zip(records, ids):
        if event not in order[message.key()]:
            order[message.key()].append(event)
    for key, events in order.items():
        assert events == [row[0] for row in rows if row[1].encode() == key], f"order of {key}"
    print(f"{len(rows)} rows, {len(before)} by Debezium; lost 0, repeated {len(repeated)}")
