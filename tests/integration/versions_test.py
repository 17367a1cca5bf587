"""What differs from one version of PostgreSQL to the next, and what walpost does about it: docs/postgresql-versions.md."""

import contextlib
import re
import threading

import pytest
import servers

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def major(postgres):
    return postgres.major


def test_stream_asks_for_what_the_version_has(make_pipeline, workspace, major):
    postgres = workspace.postgres(settings={"log_replication_commands": "on"})
    p = make_pipeline(on_postgres=postgres).start()
    p.insert(1, 5)
    p.wait_confirmed()
    assert p.walpost.status()["source"]["server_version"] // 10_000 == major
    (options,) = set(re.findall(r"START_REPLICATION SLOT .*? \((.*)\)", postgres.log.read_text(encoding="utf-8")))
    assert options.split(", ") == ["proto_version '1'", f"publication_names '\"{p.name}\"'", *(["binary 'true'"] if major >= 14 else [])]
    assert p.judge() == 0


# Failure 56.
def test_messages_halt_before_14(make_pipeline, major):
    p = make_pipeline(config={"messages": {"prefixes": ["shop"]}})
    done = p.walpost.verb("init", "--with-messages", check=False)
    if major >= 14:
        assert done.returncode == 0, done
        p.walpost.start()
        return
    assert done.returncode == 78 and "logical messages need PostgreSQL 14 or newer" in done.stderr
    done = p.walpost.verb("init", check=False)
    assert done.returncode == 78 and "remove messages.prefixes" in done.stderr
    p.walpost.start(wait="halted")
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "schema_mismatch" and "remove messages.prefixes" in halt["detail"]
    p.insert(1, 5)
    p.walpost.stop()
    p.walpost = p.another(config={}).start()
    p.wait_confirmed()
    assert p.judge() == 0


# Failures 31, 32.
def test_publication_dropped_while_streaming_halts_and_confirms_nothing_behind(make_pipeline):
    """From 18 the server leaves the rows out with a warning; older ones end the stream."""
    p = make_pipeline().start()
    p.insert(1, 5)
    p.wait_confirmed()
    p.execute(f"DROP PUBLICATION {p.name}")
    p.insert(101, 105)
    behind = p.wal_position()
    p.walpost.wait_state("halted")
    assert p.walpost.status()["halt"]["reason"] == "publication_missing"
    assert p.walpost.stop() == 0
    assert p.slot()["confirmed"] < behind


# Failure 4.
def test_position_after_an_orderly_restart_is_kept_from_17(make_pipeline, workspace, major):
    """What only confirmed_flush_lsn has gained is not written at a shutdown by older servers; the progress topic knows."""
    postgres = workspace.postgres()
    p = make_pipeline(on_postgres=postgres).start()
    p.insert_transactions(1, 500)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    confirmed = p.slot()["confirmed"]
    postgres.restart()
    kept = p.slot()["confirmed"]
    assert kept == confirmed if major >= 17 else kept <= confirmed
    p.walpost.start()
    p.insert_transactions(501, 600)
    p.wait_confirmed()
    assert p.judge() == 0


def standby_with_slot(make_pipeline, workspace):
    """A pipeline, a standby of its server, and the walpost that is to read there; the slot is on the standby from 16 on."""
    primary, standby = workspace.postgres(), workspace.postgres(start=False)
    p = make_pipeline(on_postgres=primary)
    p.walpost.init()
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    standby.make_standby_of(primary)
    reader = p.another(conninfo=standby.conninfo(p.database))
    if primary.major < 16:
        return p, standby, reader
    made = threading.Thread(daemon=True, target=standby.execute, kwargs={"database": p.database}, args=(
        "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", p.name))
    made.start()

    def is_made():
        primary.execute("SELECT pg_log_standby_snapshot()")  # what the standby waits for
        return not made.is_alive()

    servers.wait_for(is_made, 60, "the slot on the standby", every=0.2)
    reader.verb("slot", "advance", "--yes")  # begins later than the one that init recorded
    return p, standby, reader


# Failure 19.
def test_standby_is_read_from_16_and_waited_for_before(make_pipeline, workspace, major):
    p, standby, reader = standby_with_slot(make_pipeline, workspace)
    if major < 16:
        reader.start(wait=None)
        servers.wait_for(lambda: "is a standby" in ((s := reader.status()) and s["last_error"] or ""), 30, "the standby to be rejected")
        assert "target_session_attrs=read-write" in reader.status()["last_error"]
        return
    # A standby takes no serializable transaction.
    p.execute(f"ALTER DATABASE {p.database} SET default_transaction_isolation = 'serializable'")
    p.insert_transactions(1, 500)
    servers.wait_for(lambda: standby.execute("SHOW default_transaction_isolation", database=p.database) == [("serializable",)], 30, "the setting")
    reader.start()
    reader.wait_delivered(500)
    assert p.judge() == 0


# Failure 94.
@pytest.mark.parametrize("idle", [False, True])
def test_standby_that_is_promoted_while_it_is_read_is_followed_onto_its_timeline(make_pipeline, workspace, major, idle):
    """The walsender goes on without a word: rows, and what is remembered, must say the timeline that they are on."""
    if major < 16:
        return  # a standby is not read
    p, standby, reader = standby_with_slot(make_pipeline, workspace)
    p.insert_transactions(1, 50)
    reader.start()
    reader.wait_delivered(50)
    p.postgres.stop()
    standby.execute("SELECT pg_promote()")
    p.postgres, p.walpost = standby, reader
    if idle:  # positions are remembered, too
        p.write_wal_past(p.wal_position() + 100_000)
    else:
        p.insert_transactions(51, 100)
        reader.wait_delivered(100)
    p.wait_confirmed()
    assert 'reason="promoted"} 1' in reader.get("/metrics")[1]
    assert reader.stop() == 0
    reader.start()  # what is remembered is not taken for a loss
    p.insert_transactions(101, 120)
    p.wait_confirmed()
    assert p.judge() == 0
    timelines = [int(record.headers["walpost-position"].split(b"-")[1], 16) for record in sorted(p.records(), key=lambda record: record.position)]
    assert timelines == [1] * 50 + [2] * (len(p.committed()) - 50)


# `walpost init` keeps others from the slot of the server that it writes to, and the reader's is on the standby.
# Failure 56.
def test_prefix_that_is_recorded_while_a_standby_is_read_stops_its_reader_before_the_first_message(make_pipeline, workspace, major):
    if major < 16:
        return  # a standby is not read
    p, standby, reader = standby_with_slot(make_pipeline, workspace)
    p.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", p.name)  # as if that of init had been kept
    p.insert_transactions(1, 20)
    reader.start()
    reader.wait_delivered(20)
    prefixes = {"messages": {"prefixes": ["shop"]}}
    p.another(config=prefixes).verb("init", "--with-messages")
    emitted = {p.execute("SELECT outbox.emit_message('Tested', %s, 'key', '{}'::jsonb, prefix => 'shop')::text", p.name)[0][0] for _ in range(5)}
    reader.wait_state("halted")
    assert reader.status()["halt"]["reason"] == "init_incomplete"
    assert reader.stop() == 0
    reader = p.another(conninfo=standby.conninfo(p.database), config=prefixes).start()
    servers.wait_for(lambda: emitted <= {record.id for record in p.records()}, 60, "the messages")
    assert len(p.records()) == 25
    assert reader.stop() == 0


# The same file of settings on all nodes, say.
# Failure 30.
def test_standby_that_names_walpost_as_synchronous_is_read_until_it_is_promoted(make_pipeline, workspace, major):
    if major < 16:
        return  # a standby is not read
    p, standby, reader = standby_with_slot(make_pipeline, workspace)
    standby.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    standby.execute("SELECT pg_reload_conf()")
    servers.wait_for(lambda: standby.execute("SHOW synchronous_standby_names") == [("*",)], 30, "the setting")
    done = reader.verb("check", check=False)
    assert done.returncode == 0 and "synchronous_standby_names" in done.stdout, done
    p.insert_transactions(1, 20)
    reader.start()
    reader.wait_delivered(20)
    assert standby.execute("SELECT sync_state FROM pg_stat_replication") == [("async",)]
    assert reader.stop() == 0
    p.postgres.stop()
    standby.execute("SELECT pg_promote()")
    reader.start(wait="halted")
    assert reader.status()["halt"]["reason"] == "init_incomplete"
    assert reader.stop() == 0


def test_partition_that_was_filled_by_hand_is_streamed_once_the_publication_was_touched(make_pipeline):
    """13 and 14 remember of a table they have seen rows of that it is in no publication, also when it becomes a partition of one."""
    p = make_pipeline().start()
    p.insert(1, 5)
    p.wait_confirmed()
    p.execute(f"""BEGIN;
        CREATE TABLE outbox.filled (LIKE outbox.events INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
        INSERT INTO outbox.filled SELECT * FROM outbox.events;
        UPDATE outbox.filled SET id = gen_random_uuid(), created_at = '2020-01-01Z';
        ALTER TABLE outbox.events ATTACH PARTITION outbox.filled FOR VALUES FROM ('2020-01-01Z') TO ('2020-01-02Z');
        CREATE PUBLICATION touched; DROP PUBLICATION touched;
        COMMIT""")
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at)"
              " SELECT %s, 'key', 'Tested', '2020-01-01T12:00Z' FROM generate_series(1, 5)", p.name)
    p.wait_confirmed()
    assert len(p.records()) == 10


def test_large_rolled_back_transaction_with_a_savepoint_is_passed_over(make_pipeline, workspace):
    """18 ends such a transaction with a message of streaming, which nobody asked for, where it was rolled back before it is decoded."""
    p = make_pipeline(on_postgres=workspace.postgres(settings={"logical_decoding_work_mem": "64kB"})).start()
    p.execute("CREATE TABLE other (n int, t text)")
    p.insert(1, 5)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    with contextlib.closing(p.postgres.connect(p.database, autocommit=False)) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO other VALUES (1); SAVEPOINT s; INSERT INTO other VALUES (2); RELEASE s")
        cursor.execute("INSERT INTO other SELECT n, repeat('x', 200) FROM generate_series(1, 5000) n")
        connection.rollback()
    p.insert(6, 10)
    p.walpost.start()
    p.wait_confirmed()
    assert p.judge() == 0
