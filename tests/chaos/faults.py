"""Makes the faults of a plan happen, each in a thread of its own, and heals them.

Faults of one thing follow one another; those of different things overlap as they come. At most two brokers are away at a time, or all of them
at once.
"""

import collections
import contextlib
import os
import signal
import threading
import time

import servers
from kafka_answers import ERRORS
from plan import BROKERS

BROKERS_AWAY_MAX = 2
BROKER_UP_S_MAX = 120
BROKER_LIVES_S = 3  # one that could not write ends within that
LONG_S = 60  # planned reconnects further apart than that are distinguished from others
UNDISTURBING = ("publication edited", "clock jumps")
STOP_S_MAX = 60  # for a fast stop of PostgreSQL, for SIGTERM of walpost


class Injector:
    def __init__(self, world, plan, report):
        self.world, self.plan, self.report = world, plan, report
        self.locks = collections.defaultdict(threading.Lock)
        self.done = collections.Counter()  # kind: how often it happened
        self.active = {}  # number: fault
        self.disturbed = []  # (begin, end) by the wall clock, of what may hold up events
        self.last_change = 0.0  # when a fault last began or was healed
        self.longest_fast_stop_s = 0.0
        self.longest_sigterm_s = 0.0
        self.ending = threading.Event()
        self._brokers = threading.BoundedSemaphore(BROKERS_AWAY_MAX)
        self._threads = []
        self._planned = threading.Thread(target=self._follow_plan, daemon=True)

    def start(self):
        self.begin = time.monotonic()
        self._planned.start()

    def finish(self):
        """No further fault; returns when all are healed."""
        self.ending.set()
        self._planned.join()
        for thread in self._threads:
            thread.join()

    def _follow_plan(self):
        for fault in self.plan.faults:
            if self.ending.wait(max(0.0, self.begin + fault.begin_s - time.monotonic())):
                return
            thread = threading.Thread(target=self._run, args=(fault,), daemon=True, name=str(fault))
            self._threads.append(thread)
            thread.start()

    def _run(self, fault):
        subject = fault.kind.split()[0]
        brokers = [f"broker{n}" for n in range(1, BROKERS + 1)]
        whats = {"walsender": ["postgres"], "network": [f"network {fault.target}"], "kafka": brokers, "publication": ["publication"],
                 "clock": ["clock"], "answers": ["answers"]}.get(subject, [fault.target])
        with contextlib.ExitStack() as held:
            for what in whats:
                held.enter_context(self.locks[what])
            if subject == "broker":
                held.enter_context(self._brokers)
            if self.ending.is_set():
                return
            begin = time.time()
            self.active[fault.number] = fault
            self.last_change = time.monotonic()
            self.report.event("fault", str(fault))
            try:
                if STEPS[fault.kind](self, fault) is not False:
                    self.done[fault.kind] += 1
            except Exception as error:  # noqa: BLE001 - a fault that cannot be healed is a finding, too
                self.report.finding(f"fault {fault}: {type(error).__name__}: {error}")
            finally:
                del self.active[fault.number]
                if fault.kind not in UNDISTURBING:
                    self.disturbed.append((begin, time.time()))
                self.last_change = time.monotonic()
                self.report.event("healed", str(fault))

    def _last(self, fault):
        self.ending.wait(fault.seconds)

    # -- walpost -----------------------------------------------------------------------------------------------------

    def _walpost_kill(self, _):
        self.world.walpost.kill9()
        self.world.walpost.start(wait=None)

    def _walpost_term(self, _):
        begin = time.monotonic()
        code = self.world.walpost.stop(timeout=STOP_S_MAX)
        self.longest_sigterm_s = max(self.longest_sigterm_s, time.monotonic() - begin)
        if code != 0:
            self.report.finding(f"walpost ended with {code} after SIGTERM")
        self.world.walpost.start(wait=None)

    def _walpost_stop(self, fault):
        with stopped(self.world.walpost.process.pid):
            self._last(fault)

    def _clock(self, fault):
        clock = self.world.clock
        clock.set(int(fault.detail.split()[0]))
        try:
            self._last(fault)
        finally:
            clock.set(0)

    # -- PostgreSQL --------------------------------------------------------------------------------------------------

    def _walsender(self):
        """The process that serves the slot; None when there is none for long."""
        def pid():
            try:
                return self.world.slot()["pid"]
            except Exception:  # noqa: BLE001 - the server is on its way up
                return None

        try:
            return servers.wait_for(pid, 30, "a walsender")
        except TimeoutError:
            return None

    def _walsender_kill(self, _):
        pid = self._walsender()
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        self._postgres_up(since=time.monotonic())
        return True

    def _walsender_terminate(self, _):
        pid = self._walsender()
        return pid is not None and self.world.postgres.execute("SELECT pg_terminate_backend(%s)", pid)[0][0]

    def _walsender_stop(self, fault):
        pid = self._walsender()
        if pid is None:
            return False
        with stopped(pid):
            self._last(fault)
        return True

    def _postgres_kill(self, fault):
        self.world.postgres.kill9()
        self._last(fault)
        self._postgres_up()

    def _postgres_immediate(self, fault):
        self.world.postgres.stop("immediate")
        self._last(fault)
        self._postgres_up()

    def _postgres_fast(self, fault):
        begin = time.monotonic()
        try:
            self.world.postgres.stop("fast", timeout=STOP_S_MAX)
        except RuntimeError as error:
            self.report.finding(f"PostgreSQL could not shut down: {error}")
            self.world.postgres.stop("immediate")
        self.longest_fast_stop_s = max(self.longest_fast_stop_s, time.monotonic() - begin)
        self._last(fault)
        self._postgres_up()

    def _disk_full(self, fault):
        if self.world.wal_disk is None:
            return False
        self.world.wal_disk.fill()
        for _ in range(3):  # the segments that are there already would last for a while
            with contextlib.suppress(Exception):
                self.world.postgres.execute("SELECT txid_current(), pg_switch_wal()")
        self._last(fault)
        self.world.wal_disk.empty()
        self._postgres_up()
        return True

    def _postgres_up(self, since=None):
        """Starts it unless it comes back by itself."""
        deadline = time.monotonic() + 120
        while True:
            try:
                self.world.postgres.execute("SELECT 1")
                if since is None or time.monotonic() - since > 0.5:
                    return
            except Exception:  # noqa: BLE001 - down or in recovery
                if time.monotonic() > deadline:
                    raise
            if not servers.alive(self.world.postgres.pid):
                with contextlib.suppress(RuntimeError):
                    self.world.postgres.start()
            time.sleep(0.1)

    def _publication(self, fault):
        """What leaves no row out must hold up nothing: no halt, and no connection is given up for it."""
        before, alone = self._connections(), len(self.active) == 1
        for _ in range(int(fault.detail.split()[0])):
            name = self.world.migrations.next()
            self.report.event("edit", name)
            alone = alone and len(self.active) == 1
        after = self._connections()
        if alone and self.world.reconnect_s > LONG_S and before and after and before[0] == after[0] and after[1] > before[1]:
            self.report.finding(f"{after[1] - before[1]} connection(s) given up for harmless edits")

    def _connections(self):
        """(process, reconnects so far)"""
        status = self.world.walpost.status()
        return status and status["state"] == "streaming" and (self.world.walpost.process.pid, status["reconnects"])

    # -- Kafka and the network ---------------------------------------------------------------------------------------

    def _broker_kill(self, fault):
        node = self.world.broker(fault.target)
        node.kill9()
        self._last(fault)
        node.start(wait=False)
        node.wait_ready(120)

    def _kafka_kill(self, fault):
        nodes = self.world.kafka.nodes
        for node in nodes:
            node.kill9()
        self._last(fault)
        for node in nodes:
            node.start(wait=False)  # one alone is no quorum and never becomes ready
        for node in nodes:
            node.wait_ready(BROKER_UP_S_MAX)

    def _broker_disk_full(self, fault):
        if not self.world.broker_disks:
            return False
        disk = self.world.broker_disks[int(fault.target[-1]) - 1]
        disk.fill()
        try:
            self._last(fault)
        finally:
            disk.empty()
            self._broker_up(self.world.broker(fault.target))
        return True

    def _broker_up(self, node):
        """It ends by itself when it could not write; perhaps only a moment after there is room again."""
        deadline = time.monotonic() + BROKER_UP_S_MAX
        lives_since = time.monotonic()
        while time.monotonic() - lives_since < BROKER_LIVES_S:
            if node.process.poll() is not None:
                node.start(wait=False)
                node.wait_ready(deadline - time.monotonic())
                return
            time.sleep(0.1)
        node.wait_ready(deadline - time.monotonic())

    def _broker_errors(self, fault):
        code, when, every = fault.detail.split()
        before = sum(answers.spoilt for answers in self.world.answers)
        for answers in self.world.answers:
            answers.spoil(ERRORS[code], when == "instead", int(every))
        try:
            self._last(fault)
        finally:
            for answers in self.world.answers:
                answers.stop()
        return sum(answers.spoilt for answers in self.world.answers) > before

    def _broker_stop(self, fault):
        with stopped(self.world.broker(fault.target).process.pid):
            self._last(fault)

    def _network(self, fault):
        mode = {"cut": "cut", "latency": "latency", "half-open": fault.detail, "black hole": "hold"}[fault.kind.split(" ", 1)[1]]
        delay = float(fault.detail.split()[0]) / 1000 if mode == "latency" else 0.0
        proxy = self.world.proxy(fault.target)
        proxy.set_mode(mode, delay)
        try:
            self._last(fault)
        finally:
            proxy.set_mode("pass")


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


STEPS = {
    # Failure 81.
    "walpost kill -9": Injector._walpost_kill,
    # Failure 80.
    "walpost SIGTERM": Injector._walpost_term,
    # Failure 83.
    "walpost SIGSTOP": Injector._walpost_stop,
    "walsender kill -9": Injector._walsender_kill,
    # Failure 7.
    "walsender terminated": Injector._walsender_terminate,
    "walsender SIGSTOP": Injector._walsender_stop,
    # Failure 4.
    "postgres kill -9": Injector._postgres_kill,
    "postgres immediate stop": Injector._postgres_immediate,
    "postgres fast stop": Injector._postgres_fast,
    # Failure 24.
    "postgres disk full": Injector._disk_full,
    # Failure 64.
    "broker kill -9": Injector._broker_kill,
    "broker SIGSTOP": Injector._broker_stop,
    # Failure 1.
    "network cut": Injector._network,
    # Failure 63.
    "network latency": Injector._network,
    # Failure 1.
    "network half-open": Injector._network,
    # Failure 1.
    "network black hole": Injector._network,
    # Failure 92.
    "broker disk full": Injector._broker_disk_full,
    # Failure 93.
    "answers are errors": Injector._broker_errors,
    # Failure 62.
    "kafka kill -9": Injector._kafka_kill,
    "publication edited": Injector._publication,
    # Failure 29.
    "clock jumps": Injector._clock,
}
