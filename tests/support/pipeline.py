"""A pipeline under test: its database, its topic, its walpost; and the judge of what arrived.

The outbox table keeps every row, so the table is the truth that Kafka's content is compared with.
"""

import collections
import servers

INSERT = """INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)
    SELECT gen_random_uuid(), %s, 'key-' || (n %% %s), 'Tested', convert_to('event ' || n, 'UTF8')
    FROM generate_series(%s, %s) n"""

# Many transactions in one round trip; every `rolled_back_every`th of them is rolled back.
INSERT_TRANSACTIONS = """DO $$
DECLARE t bigint;
BEGIN
  FOR t IN {first}..{last} LOOP
    INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)
      SELECT gen_random_uuid(), '{topic}', 'key-' || ((t * {rows} + r) % {keys}), 'Tested',
             convert_to(rpad('event ' || t || '.' || r, {payload_bytes}, '.'), 'UTF8')
      FROM generate_series(1, {rows}) r;
    IF t % {rolled_back_every} = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
  END LOOP;
END $$"""


class Pipeline:
    def __init__(self, name, postgres, kafka, workspace, options, encoding="UTF8"):
        self.name = name
        self.postgres = postgres
        self.kafka = kafka
        self.workspace = workspace
        self.database = postgres.create_database(name, encoding)
        self.options = options
        self.walpost = self.another()

    def another(self, **more):
        """One more walpost of the same pipeline: another process with the same slot."""
        options = {"conninfo": self.postgres.conninfo(self.database), "bootstrap": self.kafka.bootstrap, "name": self.name}
        return self.workspace.walpost(**{**options, **self.options, **more})

    def start(self):
        self.walpost.init()
        self.walpost.start()
        return self

    def execute(self, sql, *arguments):
        return self.postgres.execute(sql, *arguments, database=self.database)

    def connected(self, autocommit=True, **more):
        """A cursor in its database."""
        return self.postgres.connected(self.database, autocommit, **more)

    def stored_ids(self):
        return sorted(row[0] for row in self.execute("SELECT id::text FROM outbox.events"))

    def ids(self):
        """Of the events in its topic."""
        return sorted(record.id for record in self.records())

    def insert(self, first, last, keys=10, topic=None):
        """Rows first..last in one transaction."""
        self.execute(INSERT, topic or self.name, keys, first, last)

    def insert_large(self, payload_bytes, key="key-1", event_type="Large", topic=None):
        """One row that may be larger than the table takes as it comes."""
        self.execute("SELECT outbox.set_payload_max(%s)", 100_000_000)
        self.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)"
                     " VALUES (gen_random_uuid(), %s, %s, %s, convert_to(repeat('x', %s), 'UTF8'))",
                     topic or self.name, key, event_type, payload_bytes)

    def allow_bad_topics(self):
        """The table lets pass what walpost must be able to bear: topics, headers, times."""
        self.execute("ALTER TABLE outbox.events DROP CONSTRAINT events_check")

    def insert_transactions(self, first, last, rows=1, keys=100, payload_bytes=20, rolled_back_every=10**9):
        self.execute(INSERT_TRANSACTIONS.format(first=first, last=last, rows=rows, keys=keys, topic=self.name,
                                                payload_bytes=payload_bytes, rolled_back_every=rolled_back_every))

    def committed(self):
        """{id: (key, seq)} of what the database has."""
        return {row[0]: (row[1], row[2]) for row in self.execute("SELECT id::text, aggregate_id, seq FROM outbox.events")}

    def records(self):
        return [Record(message) for message in self.kafka.read_all(self.name)]

    def slot(self):
        return self.postgres.slot(self.name, self.database)

    def wal_position(self):
        return int(self.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")[0][0])

    def write_wal_past(self, lsn):
        """And past what the server wrote by itself after somebody looked where its log ends: a checkpoint, running transactions."""
        while self.wal_position() <= lsn + 100_000:
            self.execute("SELECT pg_logical_emit_message(true, 'filler', repeat('x', 10000))")

    def wait_confirmed(self, lsn=None, seconds=120):
        """Until the slot has passed everything that is committed now, and /status, which may be 100 ms old, shows it."""
        lsn = lsn or self.wal_position()
        try:
            servers.wait_for(lambda: self.slot()["confirmed"] >= lsn, seconds, f"confirmed_flush_lsn >= {lsn:X}")
            servers.wait_for(lambda: self._shown_confirmed() >= lsn, 30, f"/status to show {lsn:X} as confirmed")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; slot {self.slot()}; status {self.walpost.status()};"
                               f" log {self.walpost.log_text()[-2000:]}") from None

    def _shown_confirmed(self):
        status = self.walpost.status()
        return servers.lsn(status["source"]["confirmed_lsn"] if status else None)

    def judge(self):
        """Every committed event is there, nothing else is, and each key's order is the order of commits."""
        return judge(self.committed(), self.records())


class Record:
    def __init__(self, message):
        envelope = servers.load_envelope().FromString(message.value())
        self.message = message
        self.envelope = envelope
        self.id = envelope.id
        self.key = message.key().decode() if message.key() is not None else None
        self.partition = message.partition()
        self.offset = message.offset()
        self.position = (envelope.position.commit_lsn, envelope.position.ordinal)
        self.headers = dict(message.headers() or [])


def judge(committed, records):
    """The promise to a consumer: dropping what is not above the last position seen for its key leaves each event once, in order.

    Returns the number of repeats. `committed` is {id: (key, seq)} with one writer, so seq is the commit order.
    """
    seen = {record.id for record in records}
    lost = set(committed) - seen
    phantoms = seen - set(committed)
    assert not lost, f"{len(lost)} lost of {len(committed)}, first {sorted(lost)[:3]}"
    assert not phantoms, f"{len(phantoms)} phantoms, first {sorted(phantoms)[:3]}"

    last, kept = {}, collections.defaultdict(list)
    for record in records:  # by partition and offset; a key has one partition
        if record.position > last.get(record.key, (0, -1)):
            last[record.key] = record.position
            kept[record.key].append(record.id)
    expected = collections.defaultdict(list)
    for event, (key, _) in sorted(committed.items(), key=lambda item: item[1][1]):
        expected[key].append(event)
    for key, ids in expected.items():
        assert kept[key] == ids, f"key {key}: not each event once in commit order"
    return len(records) - len(committed)


def assert_nothing_confirmed_too_early(confirmed, records_then, records_finally):
    """Whatever lies before the position that was confirmed then was in Kafka then."""
    there = {record.id for record in records_then}
    early = [record for record in records_finally if record.position[0] < confirmed and record.id not in there]
    assert not early, f"confirmed {confirmed:X} although {len(early)} events before it were not delivered"
