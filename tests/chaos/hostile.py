"""Somebody who may write events, and nothing else, tries to harm those of others all the time. docs/security.md says what it cannot do.

What it writes is undeliverable, or goes to topics of its own: nothing of it may arrive where the honest events are.
"""

import collections
import random
import threading
import time

import psycopg2
import servers
from history import TOPICS

TOPIC = "hostile.known"
PROGRESS_TOPIC = "hostile.progress"  # where it may send to, but for the rule that this is walpost's own
PAUSE_S = 0.3  # a writer without limit of its own is nothing that a configuration of walpost could hold back
TOPICS_AT_ONCE = 20
PAYLOAD_BYTES = 1_500_000  # above source.event_bytes_max

SCHEMA = """
DO $$ BEGIN IF to_regrole('outbox_writer') IS NULL THEN CREATE ROLE outbox_writer NOLOGIN; CREATE ROLE outbox_owner NOLOGIN;
    GRANT outbox_owner TO CURRENT_USER; END IF; END $$;
CREATE ROLE hostile LOGIN IN ROLE outbox_writer;
CREATE TABLE shop.expanded (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload text,
    headers jsonb, occurred_at timestamptz);
GRANT USAGE ON SCHEMA shop TO outbox_writer;
GRANT INSERT ON shop.expanded TO outbox_writer;
"""

INSERTS = {
    "outbox.events": "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers, occurred_at)"
                     " VALUES (%s, %s, 'Forged', convert_to(%s, 'UTF8'), coalesce(%s::jsonb, '{}'), %s::timestamptz)",
    "shop.expanded": "INSERT INTO shop.expanded (aggregatetype, aggregateid, type, payload, headers, occurred_at)"
                     " VALUES (%s, %s, 'Forged', %s, coalesce(%s::jsonb, '{}'), %s::timestamptz)",
}
TABLES = tuple(INSERTS)
HEADERS = ('{"walpost-position": "ffffffffffffffff-ffffffff-ffffffffffffffff-ffffffff"}', '{"walpost-redelivery": "retry"}',
           '{"walpost-dlq": "decision", "walpost-dlq-action": "discarded"}', '{"n": 1e400}', '{"a": {"b": 1}}', '{"": "x"}', "[1]")
NEVER_TOPICS = ("hostile.progress", "walpost.progress.chaos", "walpost.dead-letters.chaos", "__consumer_offsets", "no topic", "", "..",
                "somebody.elses")
TIMES = ("infinity", "-infinity", "20000-01-01", "0044-03-15 BC", "294276-12-31")


class Hostile(threading.Thread):
    def __init__(self, postgres, database, seed):
        super().__init__(name="hostile writer", daemon=True)
        self.tried = collections.Counter()
        self.rejected = 0  # by the database
        self.held = []  # when topics that do not exist were committed, by the wall clock
        self.error = None
        self._rng = random.Random(f"{seed}/hostile")
        self._connect = lambda: postgres.connect(database, user="hostile", options="'-c lock_timeout=2s'")
        self._connection = None
        self._stopping = threading.Event()

    def run(self):
        tricks = [self._headers, self._destinations, self._times, self._own_topic, self._expanding, self._large, self._idempotency_keys]
        # Each holds back the confirming for as long as a topic is waited for; more of them than that would be a limit of what goes through.
        tricks = [*tricks, *tricks, *tricks, self._unknown_topics]
        try:
            while not self._stopping.wait(PAUSE_S):
                trick = self._rng.choice(tricks)
                self._try(trick)
        except Exception as error:  # noqa: BLE001 - the run asks for it
            self.error = error
            raise
        finally:
            if self._connection is not None:
                self._connection.close()

    def stop(self):
        self._stopping.set()

    def _try(self, trick):
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            with self._connection.cursor() as cursor:
                trick(cursor)
            self.tried[trick.__name__.strip("_")] += 1
            if trick == self._unknown_topics:
                self.held.append(time.time())
        except psycopg2.Error as error:
            if self._connection is None or self._connection.closed or isinstance(error, psycopg2.OperationalError):
                time.sleep(0.2)  # the server is away, or a table is locked
                return
            self.rejected += 1

    def _row(self, cursor, table, topic, payload="x", headers=None, occurred_at=None):
        key = self._rng.choice(["w1-k1", "w2-k7", "shared-3"])  # keys of the honest ones
        cursor.execute(INSERTS[table], (topic, key, payload, headers, occurred_at))

    # -- the tricks --------------------------------------------------------------------------------------------------

    def _headers(self, cursor):
        """Headers that speak for walpost, for the topic of the honest ones."""
        self._row(cursor, "outbox.events", self._rng.choice(TOPICS[:2]), headers=self._rng.choice(HEADERS))

    def _destinations(self, cursor):
        for topic in NEVER_TOPICS:
            self._row(cursor, self._rng.choice(TABLES), topic)

    def _times(self, cursor):
        self._row(cursor, "outbox.events", self._rng.choice(TOPICS[:2]), occurred_at=self._rng.choice(TIMES))

    def _unknown_topics(self, cursor):
        """Each a different one, which the configuration allows and Kafka does not have."""
        for _ in range(TOPICS_AT_ONCE):
            self._row(cursor, self._rng.choice(TABLES), f"hostile.unknown-{self._rng.randrange(10**9)}")

    def _own_topic(self, cursor):
        self._row(cursor, self._rng.choice(TABLES), TOPIC)

    def _expanding(self, cursor):
        """What is small here and large there."""
        members = ",".join('{"member%d":1}' % n for n in range(500))
        payload = self._rng.choice(['{"l":[%s]}' % members, '{"l":[' + "[" * 1_000 + "]" * 1_000 + "]}", '{"l":[' + "0," * 20_000 + "0]}"])
        self._row(cursor, "shop.expanded", TOPIC, payload=payload)

    def _large(self, cursor):
        self._row(cursor, self._rng.choice(TABLES), self._rng.choice(TOPICS[:2]), payload="x" * PAYLOAD_BYTES)
        self._row(cursor, "outbox.events", TOPIC, headers="{%s}" % ",".join('"h%d": 1' % n for n in range(5_000)))

    def _idempotency_keys(self, cursor):
        cursor.execute("SELECT outbox.emit(type => 'Forged', aggregate_type => %s, aggregate_id => 'w1-k1', payload => '{}'::jsonb,"
                       " idempotency_key => %s)", (TOPIC, f"key-{self._rng.randrange(100)}"))


def believed_too_much(world):
    """What stands in the progress topic and was not written by walpost; empty when all was."""
    read = servers.load_proto("progress").Progress.FromString
    records = [read(value) for value in world.values(PROGRESS_TOPIC)]
    end = world.wal_position()
    return [record for record in records if record.epoch > (time.time() + 60) * 1000 or record.end_lsn > end]
