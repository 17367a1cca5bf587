"""`walpost status` and `walpost healthcheck`: what the person on call sees of a walpost that streams, is halted, hangs, is gone."""

import json
import os
import pty
import signal
import subprocess

import servers


def test_streaming_is_shown_in_words_as_json_and_for_monitoring(make_pipeline):
    p = make_pipeline().start()
    p.insert(1, 5)
    p.wait_confirmed()
    words = p.walpost.verb("status")
    assert words.stdout.startswith(f"{p.name}: streaming, since ") and words.stderr == ""
    assert "5 received, 5 delivered" in words.stdout and "last event    20" in words.stdout
    assert "lag           " in words.stdout and "to do         nothing\n" in words.stdout
    shown = json.loads(p.walpost.verb("status", "--json").stdout)
    assert shown["state"] == "streaming" and shown["events"]["delivered"] == 5
    assert shown.keys() == p.walpost.status().keys()
    plugin = p.walpost.verb("status", "--exit-code")
    assert plugin.stdout.startswith("WALPOST OK: streaming | lag=")
    assert p.walpost.verb("status", "--exit-code", "--lag-warning", "0B", check=False).returncode == 1
    assert p.walpost.verb("healthcheck").stdout == "ok\n"
    assert p.walpost.verb("healthcheck", "--ready").stdout == "ok: streaming\n"
    elsewhere = p.walpost.verb("--set", "http.listen=127.0.0.1:1", "healthcheck", "--url", f"http://{p.walpost.http}/")
    assert elsewhere.stdout == "ok\n"


def test_last_events_are_where_status_says_and_hold_no_content(make_pipeline):
    p = make_pipeline().start()
    p.insert(1, 200, keys=7)
    p.wait_confirmed()
    p.insert(201, 201)
    p.wait_confirmed()
    events = p.walpost.status()["last_events"]
    assert len(events) == 20 and events[0]["id"] == p.execute("SELECT id::text FROM outbox.events ORDER BY seq DESC LIMIT 1")[0][0]
    records = {(record.partition, record.offset): record for record in p.records()}
    for event in events:
        record = records[event["partition"], event["offset"]]
        assert event["id"] == record.id and event["type"] == "Tested" and event["topic"] == p.name
        assert servers.lsn(event["commit_lsn"]) == record.position[0] and 0 <= event["delay_seconds"] < 600
        assert event.keys() == {"id", "type", "topic", "partition", "offset", "commit_lsn", "committed_at", "delivered_at", "delay_seconds"}


def test_before_the_first_connection_nothing_is_made_up(make_pipeline):
    p = make_pipeline()
    away = p.another(conninfo="host=127.0.0.1 port=1 connect_timeout=2")
    away.start(wait=None)
    first = servers.wait_for(away.status, 60, "the first answer", every=0)
    assert first["source"]["slot"] == p.name and first["state"] == "starting" and first["state_since"]
    words = away.verb("status").stdout
    assert f"  source        not connected: slot {p.name}, publication {p.name}\n" in words and "PostgreSQL 0" not in words
    source = away.status()["source"]
    assert source["server_version"] is None and source["host"] is None and source["system_identifier"] is None


def test_halted_names_reason_section_and_is_alive_but_not_ready(make_pipeline):
    p = make_pipeline().start()
    p.walpost.stop()
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    p.walpost.start(wait="halted")
    words = p.walpost.verb("status")
    assert words.stdout.startswith(f"{p.name}: halted (slot_missing), since ")
    assert "section slot_missing\n" in words.stdout and "because       slot" in words.stdout
    plugin = p.walpost.verb("status", "--exit-code", check=False)
    assert plugin.returncode == 2 and plugin.stdout.startswith("WALPOST CRITICAL: halted: slot_missing |")
    assert p.walpost.verb("healthcheck").returncode == 0
    unready = p.walpost.verb("healthcheck", "--ready", check=False)
    assert unready.returncode == 1 and unready.stdout == "not ready: halted (slot_missing)\n"


def test_without_a_walpost_the_server_shows_the_slot(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    gone = p.walpost.verb("status", check=False)
    assert gone.returncode == 69 and "nothing answers at http://" in gone.stderr
    assert "read by nobody" in gone.stdout and "of WAL (reserved)" in gone.stdout and "systemctl start walpost" in gone.stdout
    plugin = p.walpost.verb("status", "--exit-code", check=False)
    assert plugin.returncode == 2 and plugin.stdout.startswith("WALPOST CRITICAL: walpost does not run")
    assert p.walpost.verb("status", "--json", check=False).stdout == ""
    unhealthy = p.walpost.verb("healthcheck", check=False)
    assert unhealthy.returncode == 1 and "nothing answers" in unhealthy.stderr
    # Another instance reads it, and is not asked.
    p.walpost.start()
    other = p.walpost.verb("--set", "http.listen=127.0.0.1:1", "status", "--exit-code", check=False)
    assert other.returncode == 3 and "read by PID" in other.stdout and "--url" in other.stdout
    nothing = p.walpost.verb("--set", "http.listen=127.0.0.1:1", "--set", "source.conninfo=host=127.0.0.1 port=1", "status", "--exit-code",
                             check=False)
    assert nothing.returncode == 3 and nothing.stdout.startswith("WALPOST UNKNOWN: neither")


def test_a_walpost_that_hangs_is_critical_and_unhealthy(make_pipeline):
    p = make_pipeline().start()
    p.walpost.signal(signal.SIGSTOP)
    try:
        hangs = p.walpost.verb("status", "--exit-code", "--timeout", "300ms", check=False)
        assert hangs.returncode == 2 and hangs.stdout.startswith("WALPOST CRITICAL: walpost hangs")
        assert p.walpost.verb("healthcheck", "--timeout", "300ms", check=False).returncode == 1
    finally:
        p.walpost.signal(signal.SIGCONT)


def test_wrong_configuration_is_reported_and_not_taken_for_ill_health(make_pipeline):
    p = make_pipeline()
    wrong = p.walpost.verb("--set", "http.lisen=x", "healthcheck", check=False)
    assert wrong.returncode == 78 and "lisen" in wrong.stderr
    assert p.walpost.verb("status", "--watch", check=False).returncode == 64
    assert p.walpost.verb("healthcheck", "--timeout", "soon", check=False).returncode == 64


def test_watch_draws_again_until_it_is_interrupted(make_pipeline):
    p = make_pipeline().start()
    terminal, end = pty.openpty()
    watching = subprocess.Popen([servers.walpost_binary(), "--config", str(p.walpost.file), "status", "--watch"],
                                stdout=end, stderr=subprocess.PIPE, start_new_session=True)
    os.close(end)
    try:
        drawn = b""
        while drawn.count(b"\x1b[H\x1b[J") < 3:
            drawn += os.read(terminal, 65536)
        assert f"{p.name}: streaming".encode() in drawn
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=30) == -signal.SIGINT
    finally:
        watching.kill()
        watching.wait()
        os.close(terminal)
