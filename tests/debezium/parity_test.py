"""Real Kafka Connect with Debezium's Event Router and walpost over the same tables, record by record.

The option sets are connectors of one worker. What is not the same is named in docs/migrate-from-debezium.md: a name there
that no row here shows, and one here that is not there, fail.
"""

import ctypes
import json
import os
import re
import sys
import uuid

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]
import connect  # noqa: E402 - the path above makes it importable
import option_sets  # noqa: E402
import servers  # noqa: E402

SLOTS = len(option_sets.SETS) + 10
# Records of a time long ago shall not be deleted at once.
KAFKA = {"log.retention.ms": -1}
THEIRS = {**KAFKA, "auto.create.topics.enable": "true", "num.partitions": 4}
DOCUMENT = servers.ROOT / "docs" / "migrate-from-debezium.md"
CONTEXT = "__debezium.context."


def differences():
    """The names in the first column of the table of differences."""
    text = DOCUMENT.read_text(encoding="utf-8")
    block = text.split("<!-- differences:begin -->")[1].split("<!-- differences:end -->")[0]
    return set(re.findall(r"^\| `([a-z-]+)`", block, flags=re.M))


def event_id(set_number, row_number):
    return str(uuid.UUID(int=(1 << 78) + set_number * 1000 + row_number))


class Tables:
    """The tables of all option sets in one database, filled once for both."""

    def __init__(self, postgres):
        self.postgres = postgres
        self.database = postgres.create_database("parity")
        self.execute("CREATE TYPE mood AS ENUM ('happy', 'sad'); CREATE DOMAIN short_text AS text;"
                     " CREATE SCHEMA \"Mixed Case\"")
        for options in option_sets.SETS:
            columns = ", ".join(f"{name} {kind}" for name, kind in options.all_columns().items())
            self.execute(f"CREATE TABLE {sql_name(options)} ({columns}, PRIMARY KEY ({options.id_column}))")

    def execute(self, sql):
        return self.postgres.execute(sql, database=self.database)

    def fill(self):
        """{event id: (set, row)} of what was inserted."""
        events = {}
        for i, options in enumerate(option_sets.SETS):
            for j, row in enumerate(options.rows):
                event = event_id(i, j)
                values = {options.id_column: f"'{event}'", **options.all_defaults(), **row.values}
                insert = f"INSERT INTO {sql_name(options)} ({', '.join(values)}) VALUES ({', '.join(values.values())})"
                self.execute((row.sql or "{insert}").replace("{insert}", insert).replace("{table}", sql_name(options))
                             .replace("{id_column}", options.id_column).replace("{id}", f"'{event}'"))
                events[event] = (options, row)
        return events


def sql_name(options):
    return f'"{options.schema}"."{options.table_name()}"'


def headers_of(message):
    """A header without a value costs None a reference in Debian's confluent_kafka, and Python its life at the end."""
    headers = message.headers() or []
    for _, value in headers:
        if value is None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(None))
    return headers


class Copy:
    """One record, without what is never compared."""

    def __init__(self, message, options, row):
        headers = headers_of(message)
        self.topic = message.topic()
        self.key = message.key()
        self.value = message.value()
        self.headers = [header for header in headers if not header[0].startswith(CONTEXT)]
        self.context = len(headers) - len(self.headers)
        placed = options.timestamp and row.values.get("shard", "") != "NULL"
        # Without key and partition each producer chooses as it likes.
        self.partition = message.partition() if self.key is not None or placed else None
        self.timestamp = message.timestamp()[1] if options.timestamp else None
        self.offset = message.offset()

    def comparable(self):
        return (self.topic, self.partition, self.key, self.headers, self.value, self.timestamp)

    def __repr__(self):
        return repr(self.comparable())


def read(kafka, events):
    """{event id: Copy} and the order of ids in each partition."""
    records, order = {}, {}
    for topic in kafka.admin().list_topics(timeout=20).topics:
        if topic.startswith("__") or topic.startswith("walpost."):
            continue
        for message in kafka.read_all(topic):
            event = dict(headers_of(message))["id"].decode()
            assert event not in records, f"{event} twice"
            records[event] = Copy(message, *events[event])
            order.setdefault((topic, message.partition(), message.key()), []).append(event)
    return records, order


def run_debezium(workspace, tables, kafka):
    worker = workspace.add(connect.Connect(workspace.path / "connect", kafka)).start()
    for options in option_sets.SETS:
        tables.execute(f"CREATE PUBLICATION {options.name} FOR TABLE {sql_name(options)}")
        tables.execute(f"SELECT pg_create_logical_replication_slot('{options.name}', 'pgoutput')")
        worker.create(options.name, connect.connector(tables.postgres, tables.database, options.name,
                                                      (options.schema, options.table_name()), options.options,
                                                      **options.converters))
    return worker


def expected_of_debezium(events):
    """Of a set that ends the task nothing is expected."""
    return {event for event, (options, _) in events.items() if not options.stops}


def settled(worker, kafka, events):
    """All that Debezium has to say: every row, or a failed task where that is the point."""
    expected = expected_of_debezium(events)

    def there():
        for options in option_sets.SETS:
            if not options.stops:
                worker.state(options.name)  # raises when it failed
        return expected <= set(read(kafka, events)[0])

    servers.wait_for(there, 240, f"{len(expected)} records of Debezium", every=1)

    def stopped():
        return all(failed(worker, options.name) for options in option_sets.SETS if options.stops)

    servers.wait_for(stopped, 120, "the tasks to end that Debezium ends", every=0.5)
    return read(kafka, events)


def failed(worker, name):
    try:
        worker.state(name)
    except RuntimeError:
        return True
    return False


def walpost_config():
    outboxes = [{"table": f"{options.schema}.{options.table_name()}", "debezium": options.options, "topics": {"allowed": ["*"]}}
                for options in option_sets.SETS]
    return {"outboxes": outboxes, "delivery": {"on_undeliverable": "dead_letter"}}


@pytest.fixture(scope="module")
def both():
    with servers.Workspace() as workspace:
        postgres = workspace.postgres(settings={"max_replication_slots": SLOTS, "max_wal_senders": SLOTS,
                                                "max_connections": 20 + 4 * SLOTS})
        theirs, ours = workspace.kafka(settings=THEIRS), workspace.kafka(settings=KAFKA)
        tables = Tables(postgres)
        worker = run_debezium(workspace, tables, theirs)
        walpost = workspace.walpost(conninfo=postgres.conninfo(tables.database), bootstrap=ours.bootstrap,
                                    config=walpost_config())
        walpost.init()
        events = tables.fill()
        debezium, their_order = settled(worker, theirs, events)
        worker.stop()
        for topic in {record.topic for record in debezium.values()}:
            ours.create_topic(topic, 4)
        for options in option_sets.SETS:
            if options.stops and not any(record.topic == f"outbox.event.{options.name}" for record in debezium.values()):
                ours.create_topic(f"outbox.event.{options.name}", 4)
        walpost.start()
        rejected = sum(row.rejected for _, row in events.values())
        walpost.wait_delivered(len(events) - rejected, seconds=120)
        walpost.wait_idle()
        assert walpost.status()["events"]["dead_lettered"] == rejected
        copies, our_order = read(ours, events)
        yield events, debezium, copies, their_order, our_order


def test_every_row_is_the_same_record_or_a_difference_that_is_listed(both):
    events, debezium, walpost, _, _ = both
    wrong = []
    for event, (options, row) in events.items():
        name = f"{options.name}: {row.name}"
        if options.stops:
            if (event in walpost) == row.rejected or event in debezium:
                wrong.append(f"{name}: Debezium {debezium.get(event)}, walpost {walpost.get(event)}")
            continue
        theirs, ours = debezium.get(event), walpost.get(event)
        same = theirs is not None and ours is not None and theirs.comparable() == ours.comparable()
        if row.differs in option_sets.BY_CHANCE:
            same = json.loads(theirs.value) != json.loads(ours.value)
        if same == bool(row.differs) or (ours is None) != row.rejected:
            wrong.append(f"{name} ({row.differs or 'no difference listed'}):\n  Debezium {theirs}\n  walpost  {ours}")
    assert not wrong, f"{len(wrong)} of {len(events)}:\n" + "\n".join(wrong)
    print(f"{len(events)} rows in {len(option_sets.SETS)} option sets")
    assert len(events) >= 40 and len(option_sets.SETS) >= 40


def test_order_of_each_key_is_the_same(both):
    events, _, _, their_order, our_order = both
    alike = {event for event, (options, row) in events.items() if not row.differs and not options.stops}
    for place, ids in their_order.items():
        if place[2] is not None:
            expected = [event for event in ids if event in alike]
            assert [event for event in our_order.get(place, []) if event in alike] == expected, place


def test_list_of_differences_is_what_the_rows_show():
    shown = {row.differs for options in option_sets.SETS for row in options.rows} | {o.stops for o in option_sets.SETS}
    assert shown - {""} == differences() - option_sets.NOT_SHOWN_BY_A_ROW


def test_context_headers_are_debeziums_alone(both):
    _, debezium, walpost, _, _ = both
    assert all(record.context for record in debezium.values())
    assert not any(record.context for record in walpost.values())
