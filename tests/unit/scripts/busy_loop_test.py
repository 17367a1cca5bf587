"""A walpost that turns in a loop fails the test that started it, whatever the test looks at."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import servers  # noqa: E402 - the path above makes it importable

BUSY = "#!/bin/sh\nwhile :; do :; done\n"
QUIET = "#!/bin/sh\nexec tail -f /dev/null\n"


def started(workspace, script):
    binary = workspace.path / "binary"
    binary.write_text(script, encoding="utf-8")
    binary.chmod(0o755)
    return workspace.walpost(conninfo="", bootstrap="").start(wait=None, binary=str(binary))


def wait_for_cpu(walpost, seconds):
    servers.wait_for(lambda: servers.cpu_seconds(walpost.process.pid) >= seconds, 60, "processor time")


@pytest.fixture(autouse=True)
def little_is_plenty(monkeypatch):
    monkeypatch.setattr(servers, "CPU_S_MAX", 0.2)
    monkeypatch.setattr(servers, "CPU_SHARE_MAX", 0.01)


def test_a_busy_loop_is_noticed_when_it_is_stopped():
    with servers.Workspace() as workspace:
        walpost = started(workspace, BUSY)
        wait_for_cpu(walpost, 0.5)
        with pytest.raises(servers.BusyLoop):
            walpost.stop()
        walpost.kill9()


def test_a_busy_loop_is_noticed_at_the_end_of_the_test():
    with pytest.raises(servers.BusyLoop), servers.Workspace() as workspace:
        wait_for_cpu(started(workspace, BUSY), 0.5)
    assert not workspace.path.exists()


def test_what_is_quiet_or_said_to_work_hard_passes():
    with servers.Workspace() as workspace:
        started(workspace, QUIET).kill9()
        walpost = started(workspace, BUSY)
        walpost.works_hard = True
        wait_for_cpu(walpost, 0.5)
