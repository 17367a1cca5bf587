"""`walpost slot recreate`: what stands in its way is found before the slot is dropped, and what one attempt leaves is known to the next."""

import contextlib
import os
import signal
import subprocess

import pytest
import servers
from rare import first


def stopped(make_pipeline, **options):
    """It has delivered 1 to 5, and the slot has 6 to 10."""
    p = make_pipeline(**options).start()
    p.insert(1, 5)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.insert(6, 10)
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
    return p


@contextlib.contextmanager
def begun(p):
    """`slot recreate --yes`, in the background."""
    with subprocess.Popen([servers.walpost_binary(), "--config", str(p.walpost.file), "slot", "recreate", "--yes"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as attempt:
        try:
            yield attempt
        finally:
            attempt.kill()  # also where a test has stopped it


def wait_for_creation(p):
    servers.wait_for(lambda: p.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'") == [(1,)], 60, "it to wait")


# Nothing else has a message that waits in the slot.
@pytest.mark.smoke
@pytest.mark.parametrize("done", ["CREATE ROLE {role}; GRANT CREATE ON SCHEMA outbox TO {role}", "CREATE ROLE {role}; ALTER PUBLICATION {name} OWNER TO {role}"],
                         ids=["others may create", "publication of another"])
def test_slot_stays_where_init_would_reject(make_pipeline, done):
    p = stopped(make_pipeline)
    role = f"{p.name}_other"
    p.execute(done.format(role=role, name=p.name))
    for arguments in ([], ["--yes"], ["--yes", "--leave-gap"]):
        rejected = p.walpost.verb("slot", "recreate", *arguments, check=False)
        assert rejected.returncode == 78 and role in rejected.stderr, rejected
    assert p.slot() and p.execute("SELECT backfilled FROM walpost.pipeline") == [(True,)]
    assert p.execute("SELECT count(*) FROM walpost.dead_letters") == [(0,)], "nothing is noted as left out"
    p.execute(f"REVOKE CREATE ON SCHEMA outbox FROM {role}; ALTER PUBLICATION {p.name} OWNER TO postgres; DROP ROLE {role}")
    p.walpost.verb("slot", "recreate", "--yes")
    assert p.ids() == p.stored_ids()


@pytest.mark.full
def test_slot_stays_while_somebody_holds_what_must_be_locked(make_pipeline):
    p = stopped(make_pipeline)
    with p.connected(autocommit=False) as cursor:
        cursor.execute("LOCK TABLE outbox.retention_note IN SHARE MODE")
        assert p.walpost.verb("slot", "recreate", "--yes", check=False).returncode == 69
        assert p.slot() and p.execute("SELECT backfilled FROM walpost.pipeline") == [(True,)]
    p.walpost.verb("slot", "recreate", "--yes")
    assert p.ids() == p.stored_ids()


# A new slot begins when they have ended, and those that began meanwhile: until then the old one is there.
@pytest.mark.smoke
@pytest.mark.parametrize("begin", ["SELECT pg_current_xact_id()", "SELECT pg_current_xact_id(); PREPARE TRANSACTION '{name}'"], ids=["open", "prepared"])
def test_slot_stays_while_a_transaction_is_open(make_pipeline, begin, workspace):
    p = stopped(make_pipeline, on_postgres=workspace.postgres(settings={"max_prepared_transactions": "2"}))
    old = p.slot()["confirmed"]
    with p.connected(autocommit=False) as cursor, p.connected(autocommit=False) as later:
        cursor.execute(begin.format(name=p.name))
        with begun(p) as attempt:
            wait_for_creation(p)
            later.execute("SELECT pg_current_xact_id()")
            cursor.connection.rollback()
            if "PREPARE" in begin:
                p.execute(f"ROLLBACK PREPARED '{p.name}'")
            later_xid = later.execute("SELECT pg_current_xact_id()::xid::text") or later.fetchone()[0]
            servers.wait_for(lambda: p.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND transactionid::text = %s", later_xid), 60, "it to wait for the later one")
            assert p.slot()["confirmed"] == old and attempt.poll() is None
            later.connection.rollback()
            said = attempt.communicate(timeout=120)[0]
    assert attempt.returncode == 0, said
    assert p.ids() == p.stored_ids()
    assert p.execute("SELECT slot_name FROM pg_replication_slots") == [(p.name,)]


def test_slot_stays_where_there_is_no_room_for_a_second_one(make_pipeline, workspace):
    p = stopped(make_pipeline, on_postgres=workspace.postgres(settings={"max_replication_slots": "1"}))
    old = p.slot()["confirmed"]
    rejected = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 78 and "max_replication_slots" in rejected.stderr and p.slot()["confirmed"] == old
    p.walpost.verb("slot", "drop", "--yes")
    p.walpost.verb("slot", "recreate", "--yes")
    assert p.ids() == p.stored_ids()


# The one that sends must be the one whose slot is there.
@pytest.mark.parametrize("arguments", [[], ["--leave-gap"]], ids=["recreate", "leave gap"])
@pytest.mark.parametrize("moment", first(1, ["its slot is there", "it sends"]))
def test_slot_that_another_attempt_has_made_is_not_dropped(make_pipeline, arguments, moment):
    p = stopped(make_pipeline)
    p.insert(11, 60_000)
    old = p.slot()["confirmed"]
    if moment == "it sends":
        reached = lambda: "sending" in (p.execute("SELECT backfill::text FROM walpost.pipeline")[0][0] or "")
    else:
        reached = lambda: (p.slot() or {"confirmed": 0})["confirmed"] not in (0, old)
    with begun(p) as first:
        servers.wait_for(reached, 60, moment, every=0.002)
        os.kill(first.pid, signal.SIGSTOP)
        p.insert(60_001, 60_005)
        second = p.walpost.verb("slot", "recreate", "--yes", *arguments, check=False)
        assert second.returncode == 78 and "another walpost is" in second.stderr, second
        assert p.walpost.verb("slot", "drop", "--yes", check=False).returncode == 78
        os.kill(first.pid, signal.SIGCONT)
        said = first.communicate(timeout=120)[0]
    assert first.returncode == 0, said
    p.walpost.works_hard = True
    p.walpost.start()
    p.wait_confirmed()
    assert set(p.ids()) == set(p.stored_ids())


ENDED = "SELECT pg_terminate_backend({pid}) FROM {where}"
LOCK = ENDED.format(pid="pid", where="pg_locks WHERE relation = 'walpost.pipeline'::regclass AND mode = 'ShareUpdateExclusiveLock'")
NEW_SLOT = "pg_replication_slots WHERE slot_name LIKE 'walpost_new_%%' AND confirmed_flush_lsn IS NOT NULL"


# Then another one may have begun anew, and the rows are not sent because this one has ended.
def test_attempt_that_has_lost_its_lock_does_not_say_that_all_is_sent(make_pipeline):
    p = stopped(make_pipeline)
    p.insert(11, 60_000)
    with subprocess.Popen([servers.walpost_binary(), "--config", str(p.walpost.file), "slot", "recreate", "--yes"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as attempt:
        servers.wait_for(lambda: "sending" in (p.execute("SELECT backfill::text FROM walpost.pipeline")[0][0] or ""), 60, "it to send", every=0.01)
        os.kill(attempt.pid, signal.SIGSTOP)
        ended = p.execute(LOCK)
        os.kill(attempt.pid, signal.SIGCONT)
        error = attempt.communicate(timeout=120)[1]
    assert ended == [(True,)] and attempt.returncode != 0, error
    assert p.execute("SELECT backfilled FROM walpost.pipeline") == [(False,)]
    p.walpost.verb("slot", "recreate", "--yes")
    assert set(p.stored_ids()) <= set(p.ids())


@contextlib.contextmanager
def stopped_with_a_new_slot(p):
    """`slot recreate --yes`, stopped after its new slot was made, and before the old one is dropped."""
    while True:
        with begun(p) as attempt:
            servers.wait_for(lambda: attempt.poll() is not None or p.execute(f"SELECT 1 FROM {NEW_SLOT}"), 60, "the new slot", every=0.001)
            os.kill(attempt.pid, signal.SIGSTOP)
            if attempt.poll() is None and p.execute(f"SELECT 1 FROM {NEW_SLOT}"):
                yield attempt
                return
            os.kill(attempt.pid, signal.SIGCONT)
            attempt.communicate(timeout=120)  # it was too fast


def goes_on(attempt):
    os.kill(attempt.pid, signal.SIGCONT)
    return attempt.communicate(timeout=120)[0]


def test_old_slot_stays_when_the_new_one_is_gone_before_it_has_its_name(make_pipeline):
    p = stopped(make_pipeline)
    p.insert(11, 60_000)
    with stopped_with_a_new_slot(p) as attempt:
        old = p.slot()["confirmed"]
        assert p.execute(ENDED.format(pid="active_pid", where=NEW_SLOT)) == [(True,)]
        servers.wait_for(lambda: not p.execute(f"SELECT 1 FROM {NEW_SLOT}"), 20, "the session to end")
        said = goes_on(attempt)
    assert attempt.returncode != 0 and p.slot()["confirmed"] == old, said
    p.walpost.verb("slot", "recreate", "--yes")
    assert set(p.stored_ids()) <= set(p.ids())


def test_slot_that_another_attempt_has_made_is_not_dropped_by_one_that_lost_its_lock(make_pipeline):
    p = stopped(make_pipeline)
    p.insert(11, 60_000)
    with stopped_with_a_new_slot(p) as attempt:
        assert p.execute(LOCK) == [(True,)]
        p.walpost.verb("slot", "recreate", "--yes")
        made = p.slot()["confirmed"]
        said = goes_on(attempt)
    assert attempt.returncode != 0 and p.slot()["confirmed"] == made, said
    assert p.execute("SELECT backfilled FROM walpost.pipeline") == [(True,)]
    p.walpost.start()


OLD = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, created_at) SELECT %s, 'key', 'Old', '', now() - interval '2 hours' FROM generate_series(1, 3)"


@pytest.mark.full
@pytest.mark.smoke
def test_limit_of_an_attempt_that_failed_is_not_that_of_the_next(make_pipeline):
    p = stopped(make_pipeline)
    p.execute(OLD, p.name)
    bad, = p.execute("UPDATE outbox.events SET aggregate_type = 'nowhere' WHERE seq = (SELECT max(seq) - 3 FROM outbox.events) RETURNING id::text")[0]
    assert p.walpost.verb("slot", "recreate", "--yes", "--since", "1h", check=False).returncode == 78
    p.execute("UPDATE outbox.events SET aggregate_type = %s WHERE id = %s", p.name, bad)
    p.walpost.verb("slot", "recreate", "--yes")
    assert p.ids() == p.stored_ids()


# Else outbox.maintain would drop what is nowhere else.
@pytest.mark.smoke
def test_rows_that_a_limit_leaves_out_are_kept_until_somebody_discards_them(make_pipeline):
    p = stopped(make_pipeline)
    p.execute(OLD, p.name)
    output = p.walpost.verb("slot", "recreate", "--yes", "--since", "1h").stdout
    assert "5 events sent" in output and "dlq discard" in output, output
    assert p.execute("SELECT reason FROM walpost.dead_letters WHERE closed_at IS NULL") == [("transactions_skipped",)]
    p.walpost.start()
    p.walpost.verb("replay", "--missing", "--in-place", "--wait", "60s")
    assert p.ids() == p.stored_ids()


# As above.
def test_rows_that_can_be_no_records_are_kept_when_they_are_left_out(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.verb("init", "--plain-table")
    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) SELECT %s, 'k', 'Large', sha256(n::text::bytea)"
              " || (SELECT string_agg(sha256(i::text::bytea), '') FROM generate_series(1, 2000) i) FROM generate_series(1, 2) n", p.name)
    p.walpost.verb("slot", "drop", "--yes")
    assert "2 left out" in p.walpost.verb("slot", "recreate", "--yes", "--skip-undeliverable").stdout
    assert p.execute("SELECT reason FROM walpost.dead_letters WHERE closed_at IS NULL") == [("transactions_skipped",)]
    # And not given up with others, by a slip.
    discarded = p.walpost.verb("dlq", "discard", "--all-undecided", "--yes")
    assert "--reason transactions_skipped" in discarded.stdout
    assert p.execute("SELECT count(*) FROM walpost.dead_letters WHERE closed_at IS NULL") == [(1,)]
    p.walpost.start()
    p.walpost.verb("dlq", "discard", "--reason", "transactions_skipped", "--yes")
    assert p.execute("SELECT count(*) FROM walpost.dead_letters WHERE closed_at IS NULL") == [(0,)]


# Positions of one log, and notes about another: a dump brings the first along.
@pytest.mark.full
def test_gap_of_another_cluster_says_nothing_here(make_pipeline, workspace):
    p = make_pipeline(on_postgres=workspace.postgres()).start()
    p.insert(1, 5)
    p.wait_confirmed()
    for _ in range(6):  # the log of the other cluster is shorter
        p.execute("SELECT pg_switch_wal(), pg_logical_emit_message(true, 'x', 'y')")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.walpost.start()
    assert p.walpost.stop() == 0
    p.insert(6, 60_000)
    with begun(p) as attempt:
        servers.wait_for(lambda: p.execute("SELECT backfilled FROM walpost.pipeline") == [(False,)], 60, "the gap to be noted", every=0.002)
        attempt.kill()
    other = workspace.postgres()
    other.create_database(p.database)
    rows = p.execute("SELECT id::text, created_at, aggregate_id FROM outbox.events")
    record = p.execute("SELECT name, slot, publication, system_identifier, consistent_point, delivered_lsn, backfilled, backfill::text FROM walpost.pipeline")
    p.postgres = other
    for path in sorted((servers.ROOT / "sql").glob("V*.up.sql")):
        other.execute(path.read_text(encoding="utf-8"), database=p.database)
    p.execute("INSERT INTO walpost.pipeline (name, slot, publication, system_identifier, consistent_point, delivered_lsn, backfilled, backfill)"
              " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", *record[0])
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, created_at) SELECT id, %s, key, 'T', '', at"
              " FROM unnest(%s::uuid[], %s::timestamptz[], %s::text[]) AS rows (id, at, key)", p.name, *([row[n] for row in rows] for n in range(3)))
    p.insert(70_001, 70_007)
    p.execute("SELECT * FROM outbox.maintain()")
    moved = p.another(conninfo=other.conninfo(p.database))
    said = moved.verb("slot", "recreate", "--yes").stdout
    assert f"{len(rows) + 7 - 5} events sent, 5 are in Kafka already" in said, said
    assert set(p.ids()) == set(p.stored_ids())
