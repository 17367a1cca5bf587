"""A walsender that needs long until it says something: the stream gets on all the same."""

import os
import signal

import pytest
import servers

INSERT = """INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type)
    VALUES (gen_random_uuid(), '{topic}', 'late', 'Late')"""


def walsender(p):
    return p.postgres.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", p.name)[0][0]


# Failure 25.
def test_log_that_is_read_for_longer_than_the_interval_of_reconnects_is_got_through(make_pipeline):
    """Each connection reads the log again from where the oldest open transaction began."""
    p = make_pipeline(config={"source": {"reconnect_interval": "200ms"}}).start()
    old = p.postgres.connect(p.database, autocommit=False)
    with old.cursor() as cursor:
        cursor.execute(INSERT.format(topic=p.name))
    p.execute("CREATE TABLE noise (value text)")
    p.execute("ALTER TABLE noise ALTER value SET STORAGE EXTERNAL")
    p.walpost.stop()
    p.execute("INSERT INTO noise SELECT repeat('x', 1000000) FROM generate_series(1, 400)")
    p.insert(1, 5)
    p.walpost.start()
    p.wait_confirmed()
    old.commit()
    old.close()
    p.wait_confirmed()
    assert p.judge() == 0
    assert len(p.records()) == 6


# Failure 1.
@pytest.mark.full
def test_server_without_wal_sender_timeout_that_is_silent_for_a_minute_keeps_its_connection(make_pipeline, workspace):
    """As a walsender of 13 to 15 is while it goes through a large transaction that is not published."""
    postgres = workspace.postgres(settings={"wal_sender_timeout": "0"})
    p = make_pipeline(on_postgres=postgres).start()
    p.insert(1, 5)
    p.wait_confirmed()
    pid = walsender(p)
    os.kill(pid, signal.SIGSTOP)
    try:
        servers.wait_for(lambda: "silent" in str(p.walpost.status()), 120, "the silence to be shown")
        p.insert(6, 10)
    finally:
        os.kill(pid, signal.SIGCONT)
    p.wait_confirmed()
    assert walsender(p) == pid
    assert p.judge() == 0
