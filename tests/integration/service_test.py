"""As a service: what the service manager gets, what SIGHUP takes and what not, and the unit itself."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import servers

UNIT = Path(__file__).resolve().parents[2] / "packaging" / "systemd" / "walpost.service"


class Manager:
    """The socket of a service manager that is not there."""

    def __init__(self, folder):
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.lines = []  # and how many of them have been waited for
        self.seen = 0

    def environment(self, watchdog_s=3):
        return {"NOTIFY_SOCKET": str(self.path), "WATCHDOG_USEC": str(watchdog_s * 1_000_000)}

    def wait(self, start, seconds=60):
        """The next line that begins so, and all that was sent since the last one that was waited for."""
        end = time.monotonic() + seconds
        begin = self.seen
        while True:
            while self.seen < len(self.lines):
                self.seen += 1
                if self.lines[self.seen - 1].startswith(start):
                    return self.lines[begin:self.seen]
            self.socket.settimeout(max(0.001, end - time.monotonic()))
            self.lines += self.socket.recv(65536).decode().splitlines()


@pytest.fixture
def manager(tmp_path):
    made = Manager(tmp_path)
    yield made
    made.socket.close()


def test_the_manager_gets_ready_status_watchdog_and_stopping(make_pipeline, manager):
    p = make_pipeline()
    p.walpost.init()
    p.walpost.start(wait=None, env=manager.environment())
    before = manager.wait("READY=1")
    assert "WATCHDOG=1" in before and any(re.match("STATUS=streaming: .*confirmed 0/[1-9A-F]", line) for line in before)
    for _ in range(3):
        manager.wait("WATCHDOG=1", 30)
    p.walpost.process.terminate()
    manager.wait("STOPPING=1")
    assert p.walpost.process.wait(timeout=60) == 0


def test_without_postgresql_it_asks_for_time_and_a_halt_to_wait_in_is_ready(make_pipeline, manager):
    p = make_pipeline()
    away = p.another(conninfo="host=127.0.0.1 port=1 connect_timeout=2")
    away.start(wait=None, env=manager.environment())
    lines = manager.wait("EXTEND_TIMEOUT_USEC=60000000") + manager.wait("EXTEND_TIMEOUT_USEC=60000000", 60)
    assert "READY=1" not in lines
    away.stop()
    p.walpost.start(wait="halted", env=manager.environment())  # there is no slot
    manager.wait("STATUS=halted (slot_missing): ")
    manager.wait("READY=1")


# Failure 86.
def test_sighup_takes_passwords_and_log_level_and_says_what_needs_a_restart(make_pipeline, manager):
    p = make_pipeline().start()
    p.walpost.stop()
    p.walpost.start(env=manager.environment())
    manager.wait("READY=1")
    p.insert(1, 10)
    p.wait_confirmed()
    content = json.loads(p.walpost.file.read_text())
    content["log"]["level"] = "error"
    content["delivery"] = {"unknown_topic_wait": "7s"}
    p.execute(f"CREATE ROLE {p.name}_other LOGIN REPLICATION SUPERUSER")
    content["source"]["conninfo"] += f" user={p.name}_other"
    p.walpost.file.write_text(json.dumps(content))
    p.walpost.signal(signal.SIGHUP)
    manager.wait("RELOADING=1")
    manager.wait("READY=1")
    events = {line["event"]: line for line in p.walpost.log_events()}
    assert "resume" not in events, "the new level is error"
    # The old connection is good; the next one is made as the file says now.
    p.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", p.name)
    servers.wait_for(lambda: p.execute("SELECT count(*) FROM pg_stat_replication WHERE usename = %s", f"{p.name}_other")[0][0] == 1, 60,
                     "a connection of the other role")
    p.insert(11, 20)
    p.wait_confirmed()
    assert p.judge() == 0
    content["log"]["level"] = "debug"
    p.walpost.file.write_text(json.dumps(content))
    p.walpost.signal(signal.SIGHUP)
    servers.wait_for(lambda: "reload_needs_restart" in p.walpost.log_text(), 60, "the log to say so")
    events = {line["event"]: line for line in p.walpost.log_events()}
    assert events["reload_needs_restart"]["msg"].endswith(": delivery.unknown_topic_wait")
    assert "reloaded" in events
    p.walpost.file.write_text("name: [")
    p.walpost.signal(signal.SIGHUP)
    servers.wait_for(lambda: "reload_rejected" in p.walpost.log_text(), 60, "the log to say so")
    p.insert(21, 30)
    p.wait_confirmed()
    assert p.judge() == 0


def test_the_unit_is_valid_and_exposes_little(tmp_path):
    analyze = shutil.which("systemd-analyze")
    assert analyze, "systemd-analyze is missing: scripts/bootstrap"
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/usr/bin/walpost", servers.walpost_binary()), encoding="utf-8")
    valid = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert (valid.returncode, valid.stdout, valid.stderr) == (0, "", "")
    # In tenths: 1.5 of 10.
    exposed = subprocess.run([analyze, "security", "--offline=true", "--threshold=15", "--no-pager", str(unit)], capture_output=True, text=True,
                             check=False, env={**os.environ, "SYSTEMD_COLORS": "0"})
    assert exposed.returncode == 0, exposed.stdout
