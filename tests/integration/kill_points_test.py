"""walpost dies, or stands still, exactly where it meets the outside: none lost, none invented, order kept, nothing confirmed too early.

WALPOST_SEED chooses the passages; it is printed.
"""

import collections
import contextlib
import os
import random
import signal
import threading

import pytest

import pipeline
import servers

KILLS = 3
KEYS = 200
ROWS = 2  # of a transaction
DELAY_MS = 700

# At which passage it dies: at least, at most, and for delays at every which one. The first record of a process says only where its
# stream begins.
PASSAGES = {"after_submit": (1, 3_000, 2_500), "after_report": (1, 3_000, 2_500), "after_progress": (2, 3, 1), "after_status": (1, 3, 2)}
CONNECTS = ("before_connect", "after_connect")
SENDER_TIMEOUT_S = 3


@pytest.fixture(scope="module")
def postgres(module_workspace):
    """A server that gives up soon, so that a standstill too long for it would show."""
    return module_workspace.postgres(settings={"wal_sender_timeout": f"{SENDER_TIMEOUT_S}s"})


@pytest.fixture
def chance():
    seed = int(os.environ.get("WALPOST_SEED") or random.randrange(2**32))
    print(f"WALPOST_SEED={seed}")
    return random.Random(seed)


class Load(threading.Thread):
    """Transactions of ROWS rows, one in twenty rolled back, in rounds until finish()."""

    ROUND = 150

    def __init__(self, p):
        super().__init__(daemon=True)
        self.p = p
        self.over = threading.Event()
        self.error = None
        self.transactions = 0

    def run(self):
        try:
            while not self.over.wait(0.05):
                first = self.transactions + 1
                self.transactions += self.ROUND
                self.p.insert_transactions(first, self.transactions, rows=ROWS, keys=KEYS, rolled_back_every=20)
        except Exception as error:  # noqa: BLE001 - finish() raises it
            self.error = error

    def reached(self, events, seconds=60):
        target = self.transactions + events // ROWS
        servers.wait_for(lambda: self.error or self.transactions >= target, seconds, f"{events} more events")

    def finish(self):
        self.over.set()
        self.join()
        if self.error:
            raise self.error


@contextlib.contextmanager
def load_on(p):
    load = Load(p)
    load.start()
    try:
        yield load
    finally:
        load.finish()


def start_with(p, kill_point, wait=None):
    p.walpost.start(wait=wait, binary=os.environ["WALPOST_KILL_POINTS_BIN"], env={"WALPOST_KILL_POINT": kill_point})


def end_connection(p):
    """Of the walsender, as an administrator may; walpost connects again."""
    pid = servers.wait_for(lambda: (s := p.slot()) and s["pid"], 30, "an active walsender")
    p.execute("SELECT pg_terminate_backend(%s)", pid)
    return pid


def run_until_killed(p, place, nth):
    start_with(p, f"{place}:crash:{nth}")
    if place in CONNECTS and nth > 1:
        p.walpost.wait_state("streaming")
        end_connection(p)
    try:
        p.walpost.process.wait(timeout=60)
    finally:
        code = p.walpost.process.poll()
        assert code == -signal.SIGKILL, f"{place}:{nth}: exit {code}: {p.walpost.log_text()[-3000:]}"


def remembered(p):
    """The position that Kafka has as remembered; 0 = none."""
    progress = servers.load_proto("progress").Progress
    records = p.kafka.read_all(f"walpost.progress.{p.name}")
    return max((progress.FromString(record.value()).end_lsn for record in records), default=0)


Look = collections.namedtuple("Look", "confirmed remembered records")


def look(p):
    """What was confirmed, then what was remembered, then what was in Kafka: each must be covered by the next."""
    return Look(p.slot()["confirmed"], remembered(p), p.records())


def assert_consistent(looks, records):
    finally_there = collections.Counter(record.id for record in records)
    for then in looks:
        assert then.confirmed <= max(then.remembered, looks[0].confirmed)
        pipeline.assert_nothing_confirmed_too_early(max(then.confirmed, then.remembered), then.records, records)
        there = collections.Counter(record.id for record in then.records)
        again = [record for record in then.records
                 if record.position[0] < then.remembered and finally_there[record.id] > there[record.id]]
        assert not again, f"{len(again)} events below {then.remembered:X}, which was remembered, were sent once more"


# Failure 81.
@pytest.mark.parametrize("place", [*PASSAGES, *CONNECTS])
def test_killed(make_pipeline, chance, place):
    p = make_pipeline()
    p.walpost.init()
    looks = [look(p)]
    with load_on(p):
        for number in range(KILLS):
            nth = number % 2 + 1 if place in CONNECTS else chance.randint(*PASSAGES[place][:2])
            run_until_killed(p, place, nth)
            looks.append(look(p))
        p.walpost.start()
    p.wait_confirmed()
    records = p.records()
    pipeline.judge(p.committed(), records)
    assert_consistent(looks, records)
    if place == "after_progress":
        # The first record of a pipeline says where its stream begins, which is where the slot stands.
        later = [then for then in looks if then.remembered > looks[0].confirmed]
        assert later and all(then.remembered > then.confirmed for then in later), "it did not die before the status"
    assert p.walpost.stop() == 0


@pytest.mark.full
@pytest.mark.parametrize("place", [*PASSAGES, *CONNECTS])
def test_standing_still(make_pipeline, place):
    p = make_pipeline()
    p.walpost.init()
    every = PASSAGES[place][2] if place in PASSAGES else 1
    start_with(p, f"{place}:delay:{every}:{DELAY_MS}", wait="streaming")
    reconnects = 0
    with load_on(p) as load:
        load.reached(1_000 if place in CONNECTS else 7_000)
        if place in CONNECTS:
            pid = end_connection(p)
            servers.wait_for(lambda: p.slot()["pid"] not in (None, pid), 30, "a new walsender")
            reconnects = 1
            load.reached(1_000)
        servers.wait_for(lambda: p.walpost.log_text().count("standing still") >= 2, 60, "the second standstill")
    p.wait_confirmed()
    status = p.walpost.status()
    assert (status["state"], status["reconnects"]) == ("streaming", reconnects), p.walpost.log_text()[-3000:]
    assert pipeline.judge(p.committed(), p.records()) == 0
    assert p.walpost.stop() == 0


# Failure 83.
def test_standing_still_longer_than_the_server_waits(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    start_with(p, f"after_report:delay:3000:{SENDER_TIMEOUT_S * 1_500}", wait="streaming")
    with load_on(p) as load:
        load.reached(5_000)
    p.wait_confirmed()
    status = p.walpost.status()
    assert status["state"] == "streaming" and status["reconnects"] >= 1, p.walpost.log_text()[-3000:]
    assert pipeline.judge(p.committed(), p.records()) == 0, "what it had taken before was sent once more"
    assert p.walpost.stop() == 0
