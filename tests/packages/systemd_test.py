"""The service of the Debian package under a real systemd: started, fed, reloaded, hung, killed, misconfigured, upgraded, removed.

Its sandbox is that of the unit: what the process may not do there shows here.
"""

import pytest
import servers
from booted import BootedRoot
from debian_package import Shop, install, leftovers, newer, output

# What an operator may add, and times that a test can wait for.
DROP_IN = """[Service]
LoadCredential=source-password:/etc/walpost/source-password
WatchdogSec=2s
RestartSec=100ms
"""
KEEP = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")


@pytest.fixture
def booted(root, package):
    booted = BootedRoot(root)
    install(booted, package[1])
    yield booted
    booted.close()


@pytest.fixture
def shop(booted, postgres, kafka):
    shop = Shop(booted, postgres, kafka)
    shop.configure()
    output(booted, "walpost", "init", user="walpost")
    return shop


def show(root, what):
    return output(root, "systemctl", "show", "--property", what, "--value", "walpost").strip()


def systemctl(root, *arguments):
    done = root.run("systemctl", *arguments, check=False, capture_output=True)
    assert done.returncode == 0, f"{done.stderr}{output(root, 'journalctl', '--output', 'cat', '--no-pager', '--lines', '40')}"


def journal(root):
    return output(root, "journalctl", "--unit", "walpost", "--output", "cat", "--no-pager")


def delivered(shop, *keys):
    return servers.wait_for(lambda: shop.keys() == list(keys), 30, f"{keys} in Kafka, where there is {shop.keys()}")


def test_installed_it_neither_runs_nor_will_and_an_upgrade_leaves_it_so(booted, package, tmp_path):
    assert (show(booted, "ActiveState"), show(booted, "UnitFileState")) == ("inactive", "disabled")
    install(booted, newer(package[1], tmp_path))
    assert (show(booted, "ActiveState"), show(booted, "UnitFileState")) == ("inactive", "disabled")


def test_enabled_it_delivers_and_survives_a_reload_a_crash_and_a_hang(booted, shop):
    (booted.path / "etc/walpost/source-password").write_text("secret\n", encoding="utf-8")
    (booted.path / "etc/walpost/source-password").chmod(0o600)
    conninfo = shop.conninfo() + " password=${file:/run/credentials/walpost.service/source-password}"
    shop.configure(conninfo)
    folder = booted.path / "etc/systemd/system/walpost.service.d"
    folder.mkdir()
    (folder / "test.conf").write_text(DROP_IN, encoding="utf-8")
    systemctl(booted, "daemon-reload")

    systemctl(booted, "enable", "--now", "walpost")  # returns when it is ready
    assert (show(booted, "ActiveState"), show(booted, "UnitFileState")) == ("active", "enabled")
    assert show(booted, "StatusText").startswith("streaming: ")
    shop.order(1)
    delivered(shop, b"1")

    shop.configure(conninfo, log={"level": "debug"})
    systemctl(booted, "reload", "walpost")
    assert "reloaded: " in journal(booted)
    shop.order(2)
    delivered(shop, b"1", b"2")

    systemctl(booted, "kill", "--signal", "KILL", "walpost")
    servers.wait_for(lambda: show(booted, "NRestarts") == "1" and show(booted, "ActiveState") == "active", 60, "a start after the crash")
    systemctl(booted, "kill", "--signal", "STOP", "walpost")
    servers.wait_for(lambda: show(booted, "NRestarts") == "2" and show(booted, "ActiveState") == "active", 60, "a start after the hang")
    shop.order(3)
    servers.wait_for(lambda: shop.keys()[-1] == b"3", 30, "the event after both")
    assert list(dict.fromkeys(shop.keys())) == [b"1", b"2", b"3"]  # a crash may repeat

    systemctl(booted, "stop", "walpost")
    assert (show(booted, "ActiveState"), show(booted, "Result")) == ("inactive", "success")


def test_with_a_wrong_configuration_it_is_not_started_again(booted, shop):
    shop.configure("host=127.0.0.1 dbname")
    assert booted.run("systemctl", "start", "walpost", check=False, capture_output=True).returncode == 1
    assert (show(booted, "ActiveState"), show(booted, "ExecMainStatus"), show(booted, "NRestarts")) == ("failed", "78", "0")
    assert "source.conninfo" in journal(booted)


def test_upgraded_while_it_runs_it_is_restarted_and_removed_it_is_stopped(booted, shop, package, tmp_path):
    systemctl(booted, "enable", "--now", "walpost")
    shop.order(1)
    delivered(shop, b"1")
    before = show(booted, "MainPID")
    install(booted, newer(package[1], tmp_path), *KEEP)
    assert show(booted, "ActiveState") == "active" and show(booted, "MainPID") not in ("0", before)
    assert show(booted, "NRestarts") == "0"
    shop.order(2)
    delivered(shop, b"1", b"2")

    output(booted, "apt-get", "remove", "-y", "walpost")
    assert booted.run("pgrep", "-x", "walpost", check=False).returncode == 1
    output(booted, "apt-get", "purge", "-y", "walpost")
    assert leftovers(booted) == []
