"""A pipeline that is brought to a halt, led out of it by the runbook, and judged: nothing that was committed is missing.

A scene is a generator that causes a halt and yields the words by which the runbook's capitals are replaced; then it is led out, and may
cause the next one. Its ways are those of the runbook's section that are taken, in this order.
"""

import collections
import contextlib
import itertools
import re
import subprocess

import pytest
import runbook
import servers

LSN = r"[0-9A-F]+/[0-9A-F]+"
Scene = collections.namedtuple("Scene", "reason ways play since")


class Scenes(dict):
    """{name: Scene} of a file of tests."""

    def of(self, reason, *ways, since=13):
        def register(play):
            self[play.__name__] = Scene(reason, ways or ("",), play, since)
            return play

        return register

    def playable(self):
        """What a version does not have has no meaning there."""
        return [name for name, scene in self.items() if postgres_major() >= scene.since]


def postgres_major():
    """Of the servers that the tests start."""
    version = subprocess.run([servers.postgres_bindir() / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"\d+", version)[0])


@pytest.fixture(scope="module")
def kafka(module_workspace):
    """One for all scenes of a module."""
    made = module_workspace.kafka()
    return made


@pytest.fixture
def stage(make_pipeline, workspace, kafka):  # noqa: F811 - the fixture above
    return Stage(make_pipeline, workspace, kafka)


class Stage:
    def __init__(self, make_pipeline, workspace, kafka):
        self.make_pipeline, self.workspace, self.kafka = make_pipeline, workspace, kafka
        self.p = None
        self.table = "outbox.events"
        self.topics = []
        self.fix = None  # what the runbook says in words only: called before its commands
        self._rows = itertools.count(1)
        self._folders = itertools.count(1)

    # -- what scenes are made of ---------------------------------------------------------------------------------------

    def pipeline(self, **options):
        self.p = self.make_pipeline(**options)
        self.topics = [self.p.name]
        return self.p

    def streamed(self, **options):
        """Streaming, with events delivered."""
        p = self.pipeline(**options).start()
        self.insert(20)
        p.wait_confirmed()
        return p

    def stopped(self, undelivered=5, **options):
        """The same, stopped, with rows that are not in Kafka."""
        p = self.streamed(**options)
        assert p.walpost.stop() == 0
        self.insert(undelivered)
        return p

    def prepared(self, rows, **options):
        """A table with rows and no slot yet, as a migration tool leaves it."""
        p = self.pipeline(**options)
        self.make_tables(p)
        self.insert(rows)
        return p

    def make_tables(self, p):
        sql = p.walpost.verb("init", "--print-sql").stdout
        p.execute(sql[:sql.index("-- Before the slot, always.")])

    def insert(self, count=5, **columns):
        """Rows of new keys' events in one transaction; `columns` over the usual ones."""
        first = next(itertools.islice(self._rows, count - 1, None)) - count + 1
        values = {"id": "gen_random_uuid()", "aggregate_type": f"'{self.p.name}'", "aggregate_id": "'key-' || n % 10", "event_type": "'Tested'",
                  "payload": "convert_to('event ' || n, 'UTF8')", **self.columns, **columns}
        values = {name: value for name, value in values.items() if value is not None}
        self.p.execute(f"INSERT INTO {self.table} ({', '.join(values)}) SELECT {', '.join(values.values())}"
                       f" FROM generate_series({first}, {first + count - 1}) n")

    columns = {}

    def newest(self):
        """The id of the row that was inserted last."""
        return self.p.execute(f"SELECT id::text FROM {self.table} ORDER BY seq DESC LIMIT 1")[0][0]

    def reconfigure(self, **options):
        """Another configuration for the same pipeline, whose walpost is stopped."""
        with contextlib.suppress(AttributeError):
            assert self.p.walpost.process.poll() is not None
        self.p.walpost = self.p.another(**options)
        return self.p.walpost

    # -- the judge -------------------------------------------------------------------------------------------------------

    def committed(self):
        return {row[0] for row in self.p.execute(f"SELECT id::text FROM {self.table}")}

    def delivered(self):
        return {dict(message.headers())["id"].decode() for topic in self.topics for message in self.kafka.read_all(topic)}

    def judge(self):
        missing = self.committed() - self.delivered()
        assert not missing, f"{len(missing)} of {len(self.committed())} are not in Kafka"

    # -- the way out -----------------------------------------------------------------------------------------------------

    def play(self, scene, book):
        for title, words in itertools.zip_longest(scene.ways, scene.play(self)):
            assert title is not None and words is not None, f"ways and halts of {scene.play.__name__} are not as many"
            self.lead_out(scene.reason, title, words, book)

    def lead_out(self, reason, title, words, book):
        detail = self._halted(reason)
        if self.fix:
            self.fix()
            self.fix = None
        p = self.p
        known = {"COMMIT_LSN": lambda op: commit_lsn(detail, op.answers), "SAFE_LSN": p.walpost.status()["source"]["safe_lsn"] or "0/0",
                "CHANGE_LSN": lambda _: re.search(f"associated LSN ({LSN})", detail)[1]}
        parts = book.parts(reason)
        way = book.way(reason, detail, title)
        with runbook.operator(p, self.workspace.path / f"bin{next(self._folders)}", {**known, **words}) as op:
            op.follow(book.steps(parts["Diagnosis"], reason))
            op.follow(book.steps(way.text, reason))
            p.walpost.wait_state("streaming", 60)
            self.insert()
            p.wait_confirmed()
            op.follow(book.steps(parts["Verify"], reason))
        self.judge()

    def _halted(self, reason):
        walpost = self.p.walpost
        walpost.wait_state("halted", 90)
        halt = walpost.status()["halt"]
        assert halt["reason"] == reason, halt
        code, body = walpost.get("/readyz?verbose")
        assert code == 503 and f"halted ({reason})" in body and walpost.get("/livez")[0] == 200
        # The slot must be free for who fixes it.
        servers.wait_for(lambda: not (self.p.slot() or {"active": False})["active"], 20, "the slot to be free")
        return halt["detail"]


def commit_lsn(detail, answers):
    """Of the message, or of the query that the runbook gives for where it has none."""
    named = re.search(f"commit LSN ({LSN})", detail)
    return named[1] if named else re.findall(rf"commit_lsn\s*\n[-+]+\n\s*\d+ \|\s*({LSN})", answers)[-1]


