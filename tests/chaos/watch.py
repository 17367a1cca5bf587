"""Looks at the run while it goes: state, memory, what is confirmed and what Kafka has, how long healing takes."""

import collections
import contextlib
import json
import os
import threading
import time
from pathlib import Path

import psycopg2
from servers import wait_for

TURN_S = 0.25
LOOK_EVERY_S = 1.0
WHILE_S = 10.0
TELL_BYTES = 2 << 20
TELL_SHARE = 0.02


class Watch(threading.Thread):
    def __init__(self, world, injector, report):
        super().__init__(daemon=True, name="watch")
        self.world, self.injector, self.report = world, injector, report
        self.looks = []
        self.looks_in_vain = 0
        self.peak_rss_bytes = 0
        self.cpu = CpuTime()
        self.busiest = ""  # what happened while it took most of the processor
        self.state = None
        self.recoveries_s = []  # from the last heal, with nothing else broken, to the next delivery
        self.error = None
        self.halted = threading.Event()
        self._stopping = threading.Event()
        self._change_seen = 0.0  # the injector's last_change that is being waited for
        self._delivered_then = None  # (process, events) at that time
        self._next_look = 0.0

    def run(self):
        try:
            while not self._stopping.wait(TURN_S):
                self._turn()
        except Exception as error:  # noqa: BLE001 - the run asks for it
            self.error = error
            raise

    def stop(self):
        self._stopping.set()
        self.join()

    @property
    def in_kafka(self):
        return sum(self.looks[-1].high.values()) if self.looks else 0

    def _turn(self):
        self._watch_process()
        status = self._status()
        self.state = status["state"] if status else None
        if self.state == "halted" and not self.halted.is_set():
            self.halted.set()
            self.report.finding(f"walpost halted: {status['halt']}")
        self._watch_recovery(status)
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_EVERY_S
            look = self.world.look()
            if look:
                self.looks.append(look)
            else:
                self.looks_in_vain += 1

    def _status(self):
        code, body = self.world.walpost.get("/status", timeout=1)
        return json.loads(body) if code == 200 else None

    def _watch_process(self):
        process = self.world.walpost.process
        if self.cpu.look(process.pid, time.monotonic()):
            faults = ", ".join(fault.kind for fault in list(self.injector.active.values())) or "no fault"
            self.busiest = f"{self.state}, {faults}; seconds so far: {threads_of(process.pid)}"
            self.report.event("processor", f"{self.cpu.worst:.0%} over {WHILE_S:.0f} s, {self.busiest}")
        try:
            text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            if "VmHWM:" in text:
                peak_bytes = int(text.split("VmHWM:")[1].split()[0]) * 1024
                if peak_bytes > self.peak_rss_bytes + TELL_BYTES:
                    self.report.event("memory", f"{peak_bytes / (1 << 20):.0f} MiB, {self.state}")
                self.peak_rss_bytes = max(self.peak_rss_bytes, peak_bytes)
        except (FileNotFoundError, ProcessLookupError):  # it ended, before or while this was read
            pass
        lock = self.injector.locks["walpost"]
        if lock.acquire(blocking=False):  # else a fault is about to end it or has just done so
            try:
                code = self.world.walpost.process.poll()
                if code is not None:
                    self.report.finding(f"walpost ended by itself with {code}")
                    self.world.walpost.start(wait=None)
            finally:
                lock.release()

    def _watch_recovery(self, status):
        """From the moment in which nothing is broken any more to the next event that is delivered."""
        changed = self.injector.last_change
        if self.injector.active or not changed:
            return
        delivered = (self.world.walpost.process.pid, status["events"]["delivered"]) if status else None
        if changed != self._change_seen:
            self._change_seen, self._delivered_then = changed, delivered
        elif self._delivered_then != "recovered" and delivered and delivered[1] and delivered != self._delivered_then:
            self.recoveries_s.append(time.monotonic() - changed)
            self._delivered_then = "recovered"


class CpuTime:
    """What walpost's processes take, altogether and in the worst while."""

    def __init__(self, while_s=WHILE_S):
        self._while_s = while_s
        self.worst = 0.0  # share of a core over that time
        self._of = {}  # pid: seconds
        self._looks = collections.deque()  # (when, pid, seconds)

    @property
    def total_s(self):
        return sum(self._of.values())

    def look(self, pid, now):
        """Whether it is a good deal worse than ever before."""
        reported = self.worst
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            return False
        if fields[0] == "Z":
            return False
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self._of[pid] = used
        self._looks.append((now, pid, used))
        while self._looks[0][1] != pid or len(self._looks) > 1 and now - self._looks[1][0] >= self._while_s:
            self._looks.popleft()
        begin, _, before = self._looks[0]
        if now - begin >= self._while_s:
            share = (used - before) / (now - begin)
            if share > self.worst + TELL_SHARE:
                self.worst = share
        return self.worst > reported


def threads_of(pid):
    """Seconds of each thread so far, those that took most first."""
    seconds = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            name, fields = (thread / "stat").read_text(encoding="utf-8").split("(", 1)[1].rsplit(")", 1)
            used = fields.split()
            seconds.append(((int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK"), name))
    return ", ".join(f"{name} {used:.1f}" for used, name in sorted(seconds, reverse=True)[:6])


def longest(values):
    return max(values, default=0.0)


def wait_until_confirmed(world, seconds):
    """Until the slot has passed everything that is committed; returns how long that took."""
    begin = time.monotonic()
    end = world.wal_position()

    def confirmed():
        try:
            return world.slot()["confirmed"] >= end
        except psycopg2.Error:
            return False

    wait_for(confirmed, seconds, f"confirmed_flush_lsn >= {end:X}; slot {world.slot()}; walpost {world.walpost.status()}")
    return time.monotonic() - begin
