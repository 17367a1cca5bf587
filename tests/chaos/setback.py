"""The scene at the end of a run: the server's disk is put back to what it was, and goes on from there with other events.

What comes then has the positions of another history. walpost must halt by name, and neither send nor confirm any of it.
"""

import contextlib
import os
import shutil
import subprocess
import time

import psycopg2
import servers
from history import TOPICS

EVENTS = 200
HALT_S_MAX = 120
CONFIRM_S_MAX = 120
STAYS_S = 3  # nothing comes for so long after the halt
REASON = "timeline_changed"
INSERT = ("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload) SELECT gen_random_uuid(), %s, 'k' || n %% 20,"
          " %s, 'x' FROM generate_series(1, %s) n")


class Disks:
    """The data folder, and that of the log where it lies on a disk of its own."""

    def __init__(self, world, copies):
        self._folders = [(world.postgres.data, copies / "data")]
        if world.wal_disk:
            self._folders.append((world.wal_disk.path / "pg_wal", copies / "pg_wal"))
        copies.mkdir()

    def copy(self):
        for folder, copy in self._folders:
            subprocess.run(["cp", "-a", folder, copy], check=True)

    def put_back(self):
        for folder, copy in self._folders:
            shutil.rmtree(folder)
            subprocess.run(["cp", "-a", copy, folder], check=True)


def play(world, plan, folder, report):
    """Every promise that does not hold is a finding."""
    report.say(f"the server is set back: {plan.scene}")
    killed, writers_first = "killed" in plan.scene, "writers first" in plan.scene
    disks = Disks(world, folder)
    world.postgres.stop("fast")
    disks.copy()
    world.postgres.start()
    world.walpost.wait_state("streaming", HALT_S_MAX)
    _insert(world, "Before")
    end = world.wal_position()
    servers.wait_for(lambda: _confirmed(world) >= end, CONFIRM_S_MAX, "everything before the set-back to be confirmed")
    ends = servers.wait_for(world.ends, CONFIRM_S_MAX, "all partitions to have a leader")

    world.postgres_proxy.set_mode("cut")
    if killed:
        world.walpost.kill9()
    world.postgres.kill9()
    disks.put_back()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(world.postgres.data / "postmaster.pid")
    world.postgres.start()
    confirmed = world.slot()["confirmed"]
    if writers_first:
        _insert(world, "After")
        _write_past(world, end)
        _insert(world, "After")
    world.postgres_proxy.set_mode("pass")
    if killed:
        world.walpost.start(wait=None)
    _must_halt(world, report)
    if not writers_first:
        _write_past(world, end)
        _insert(world, "After")
    time.sleep(STAYS_S)
    now = servers.wait_for(world.ends, CONFIRM_S_MAX, "all partitions to have a leader")
    if now != ends:
        report.finding(f"after the server was set back {sum(now.values()) - sum(ends.values())} records of the other history came to Kafka")
    if _confirmed(world) != confirmed:
        report.finding(f"after the server was set back {_confirmed(world):X} was confirmed, before {confirmed:X}")


def _must_halt(world, report):
    try:
        world.walpost.wait_state("halted", HALT_S_MAX)
    except (TimeoutError, RuntimeError) as error:
        report.finding(f"walpost did not halt although the server was set back: {str(error)[:500]}")
        return
    halt = world.walpost.status()["halt"]
    if halt["reason"] != REASON:
        report.finding(f"the server was set back, and walpost halted with {halt}")


def _insert(world, kind):
    for topic in TOPICS[:2]:
        world.execute(INSERT, topic, kind, EVENTS)


def _confirmed(world):
    try:
        return world.slot()["confirmed"]
    except psycopg2.Error:
        return 0


def _write_past(world, lsn):
    while world.wal_position() <= lsn:
        world.execute("SELECT pg_logical_emit_message(true, 'filler', 'x')")
        world.execute("SELECT pg_switch_wal()")
