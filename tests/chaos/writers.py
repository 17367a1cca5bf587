"""The load: writers that commit, roll back, take back to savepoints, change tables in between, and know precisely what became of it."""

import random
import threading
import time

import psycopg2
from history import KEYS, TOPICS, Part

SHARED_KEYS = 8
FIRST_ROW = 3_000_000_000  # no integer in the way is too small only after minutes
BEHIND_ROWS = 8_000  # a writer that is so far behind its rate makes a large transaction
LARGE_ROWS = (10_000, 20_000)
LARGE_CHANCE = 0.0005

SCHEMA = """
CREATE SCHEMA shop;
CREATE TABLE shop.outbox (id uuid PRIMARY KEY, customer text NOT NULL, kind varchar(40) NOT NULL, body jsonb, noted_at timestamptz DEFAULT now());
CREATE TABLE shop.transactions (writer int, number bigint, PRIMARY KEY (writer, number));
CREATE TABLE shop.turns (topic text, key text, turn bigint NOT NULL, PRIMARY KEY (topic, key));
CREATE TABLE shop.noise (n bigserial PRIMARY KEY, filler text);
"""

ID = "(lpad(to_hex({w}), 8, '0') || '-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
INSERTS = {
    "outbox.events": "INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload) SELECT " + ID +
                     ", '{topic}', {key}, 'Written', convert_to({body}, 'UTF8') FROM generate_series({first}, {last}) n",
    "shop.outbox": "INSERT INTO shop.outbox (id, customer, kind, body) SELECT " + ID +
                   ", {key}, 'Written', to_jsonb({body}) FROM generate_series({first}, {last}) n",
}
OWN_KEY = "'w{w}-k' || (n * 7919 % " + str(KEYS) + ")"  # history.key_of


def table_of(topic):
    return "shop.outbox" if topic == "chaos.messages" else "outbox.events"


class Writer(threading.Thread):
    def __init__(self, postgres, database, number, seed, rate, history):
        super().__init__(name=f"writer {number}", daemon=True)
        self.number = number
        self.rng = random.Random(f"{seed}/{number}")
        self.rate = rate
        self.history = history
        self.row = FIRST_ROW
        self.transaction = 0
        self.error = None
        self._connect_to = (postgres, database)
        self._connection = None
        self._stopping = threading.Event()

    def run(self):
        begin, paced = time.monotonic(), 0
        try:
            while not self._stopping.is_set():
                behind = self.rate * (time.monotonic() - begin) - paced
                if behind < 0:
                    self._stopping.wait(min(0.5, -behind / self.rate))
                    continue
                before = self.row
                self._one(large=behind > BEHIND_ROWS or self.rng.random() < LARGE_CHANCE)
                paced += min(self.row - before, BEHIND_ROWS, max(100, behind))  # a large one causes no long silence after it
        except Exception as error:  # noqa: BLE001 - the run asks for it
            self.error = error
            raise
        finally:
            if self._connection is not None:
                self._connection.close()

    def stop(self):
        self._stopping.set()

    # -- one transaction ---------------------------------------------------------------------------------------------

    def _one(self, large):
        self.transaction += 1
        parts = []
        rolls_back = self.rng.random() < 0.1
        try:
            cursor = self._cursor()
            cursor.execute("INSERT INTO shop.transactions VALUES (%s, %s)", (self.number, self.transaction))
            for step in self._steps(large):
                step(cursor, parts)
            if rolls_back:
                self._connection.rollback()
                self.history.add(self.number, self.transaction, False, parts)
                return
            self._connection.commit()
        except psycopg2.Error as error:
            # The connection broke (then there is no code), the server goes down, its disk is full, a lock was waited for too
            # long. Any other error is a mistake of this load, which would go quiet without being noticed.
            if error.pgcode is not None and not isinstance(error, psycopg2.OperationalError):
                raise
            self.history.add(self.number, self.transaction, self._became(), parts, resolved=True)
            return
        self.history.add(self.number, self.transaction, True, parts)

    def _steps(self, large):
        if large:
            return [self._rows(self.rng.randint(*LARGE_ROWS)), *([self._taken_back] if self.rng.random() < 0.5 else [])]
        steps = [self._rows(self._size()) for _ in range(self.rng.choice([1, 1, 1, 2, 3]))]
        for chance, step in ((0.15, self._taken_back), (0.1, self._shared), (0.1, self._deleted), (0.1, self._noise), (0.01, self._ddl)):
            if self.rng.random() < chance:
                steps.insert(self.rng.randint(0, len(steps)), step)
        return steps

    def _size(self):
        return self.rng.choice([1, 1, 1, 2, 5, 20])

    def _rows(self, count, **more):
        def step(cursor, parts, topic=self.rng.choice(TOPICS)):
            parts.append(Part(topic, self.row, self.row + count - 1, **more))
            self.row += count
            self._insert(cursor, parts[-1])
        return step

    def _insert(self, cursor, part):
        key = f"'{part.key}'" if part.key else OWN_KEY.format(w=self.number)
        filler = self.rng.choice([30, 50, 200])  # rpad cuts what is longer
        body = f"rpad('{self.number}:' || n || ':', {filler}, '.')"
        cursor.execute(INSERTS[table_of(part.topic)].format(w=self.number, topic=part.topic, key=key, body=body, first=part.first,
                                                            last=part.last))

    def _taken_back(self, cursor, parts):
        cursor.execute("SAVEPOINT s")
        self._rows(self._size() * 5, kept=False)(cursor, parts)
        cursor.execute("ROLLBACK TO s")

    def _shared(self, cursor, parts):
        """A key of all writers: the counter's row is locked until this transaction ends, so its order is the commits' order."""
        topic, key = self.rng.choice(TOPICS), f"shared-{self.rng.randrange(SHARED_KEYS)}"
        cursor.execute("INSERT INTO shop.turns VALUES (%s, %s, 1) ON CONFLICT (topic, key) DO UPDATE SET turn = turns.turn + 1"
                       " RETURNING turn", (topic, key))
        part = Part(topic, self.row, self.row, key=key, turn=cursor.fetchone()[0])
        self.row += 1
        parts.append(part)
        self._insert(cursor, part)

    def _deleted(self, cursor, parts):
        """An outbox that is kept empty: the row is gone when the transaction commits, its event is not."""
        self._rows(self._size(), deleted=True)(cursor, parts)
        part = parts[-1]
        cursor.execute(f"DELETE FROM {table_of(part.topic)} t USING generate_series({part.first}, {part.last}) n"
                       f" WHERE t.id = {ID.format(w=self.number)}")

    def _noise(self, cursor, _):
        cursor.execute("INSERT INTO shop.noise (filler) SELECT repeat('x', 100) FROM generate_series(1, %s)", (self.rng.randint(1, 50),))

    def _ddl(self, cursor, _):
        table = self.rng.choice(["outbox.events", "shop.outbox", "shop.noise"])
        column = f"extra_{self.number}"
        change = self.rng.choice([
            f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column} int DEFAULT 7",
            f"ALTER TABLE {table} DROP COLUMN IF EXISTS {column}",
            f"ALTER TABLE {table} DROP COLUMN IF EXISTS {column}",
            f"CREATE TABLE IF NOT EXISTS shop.more_{self.number} AS SELECT * FROM shop.noise LIMIT 10",
            f"DROP TABLE IF EXISTS shop.more_{self.number}",
            f"CREATE INDEX IF NOT EXISTS noise_{self.number} ON shop.noise (filler, n)",
            "TRUNCATE shop.noise",
        ])
        cursor.execute(change)

    # -- the connection ----------------------------------------------------------------------------------------------

    def _cursor(self):
        while self._connection is None or self._connection.closed:
            self._connection = self._try_to_connect()
        return self._connection.cursor()

    def _try_to_connect(self):
        postgres, database = self._connect_to
        try:
            # A lock that is waited for is trouble like any other: DDL of two writers can wait for each other.
            return postgres.connect(database, autocommit=False, options="'-c lock_timeout=2s'")
        except psycopg2.OperationalError:
            time.sleep(0.1)
            return None

    def _became(self):
        """Whether the transaction that ended in trouble was committed.

        Connections are lost only when the server goes down, and a new one is taken only after all backends are gone and the
        log was replayed: what is not there then never will be.
        """
        while True:
            try:
                if self._connection is not None and not self._connection.closed:
                    self._connection.rollback()
                cursor = self._cursor()
                cursor.execute("SELECT count(*) FROM shop.transactions WHERE writer = %s AND number = %s",
                               (self.number, self.transaction))
                found = cursor.fetchone()[0] == 1
                self._connection.rollback()
                return found
            except psycopg2.Error:
                if self._connection is not None:
                    self._connection.close()
                time.sleep(0.1)
