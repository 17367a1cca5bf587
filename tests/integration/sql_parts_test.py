"""How long writers wait where somebody has an index or a sequence of the outbox locked, and not the table."""

import time

import psycopg2.errors
import pytest
import servers
from sql_locks_test import WAIT_MAX_S, InThread, apply, emit, waiting, with_old_partitions
from rare import first

# What anybody can keep locked of a table without a lock on the table: LOCK TABLE does not wait for it, a change of the table does.
PARTS = {
    "sequence": "SAVEPOINT denied; SELECT nextval({sequence}::regclass)",
    "index": "SELECT count(*) FROM pg_partition_tree({index}::regclass)",
    "all sequences": "SELECT last_value FROM pg_sequences",
}
V4 = "V4__outbox_partitions.up.sql"
# The index of a plain table has no tree.
CHANGES_OF_PARTS = [("roles", "sequence"), ("roles", "index"), ("roles", "all sequences"), (V4, "sequence"), (V4, "all sequences")]


def keep_locked(p, cursor, part):
    """Leaves a transaction open which has locked the part, by a role without any right where that can do it. Returns the name of what is locked."""
    sequence, index = p.execute("SELECT pg_get_serial_sequence('outbox.events', 'seq')::regclass::oid::bigint, 'outbox.events_pkey'::regclass::oid::bigint")[0]
    if part != "all sequences":
        p.execute("DO $$ BEGIN IF to_regrole('nobody') IS NULL THEN CREATE ROLE nobody; END IF; END $$")
        cursor.execute("SET ROLE nobody")
    try:
        cursor.execute(PARTS[part].format(sequence=sequence, index=index))
    except psycopg2.errors.InsufficientPrivilege:
        cursor.execute("ROLLBACK TO denied")
    return p.execute("SELECT l.relation::regclass::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE l.pid = %s"
                     " AND c.relnamespace = 'outbox'::regnamespace ORDER BY l.relation LIMIT 1", cursor.connection.info.backend_pid)[0][0]


@pytest.mark.smoke
@pytest.mark.parametrize(("change", "part"), first(2, CHANGES_OF_PARTS))
def test_change_waits_for_a_part_of_the_table_and_nobody_else_waits_for_long(make_pipeline, change, part):
    p = make_pipeline()
    if change == V4:
        apply(p, "V1__walpost.up.sql", "V2__outbox.up.sql")
        run = lambda: apply(p, V4)  # noqa: E731
    else:
        p.walpost.init()
        run = lambda: p.walpost.verb("init", "--with-roles")  # noqa: E731
    with p.connected(autocommit=False) as holder, p.connected() as writer:
        writer.execute("SET statement_timeout = '20s'")
        keep_locked(p, holder, part)
        changing = InThread(run)
        longest_s = 0
        for _ in range(4):
            servers.wait_for(lambda: waiting(p) > 0, 30, f"{change} to wait for the {part}")
            began = time.monotonic()
            if change == V4:  # it does not go on when there are rows
                writer.execute("DELETE FROM outbox.events")
            else:
                emit(writer)
            longest_s = max(longest_s, time.monotonic() - began)
        assert changing.is_alive(), changing.outcome
        holder.connection.rollback()
        assert not isinstance(changing.result(), Exception), changing.outcome
    assert longest_s < WAIT_MAX_S
    assert p.execute("SELECT relkind, pg_get_userbyid(relowner) = 'outbox_owner' FROM pg_class WHERE oid = 'outbox.events'::regclass") == [("p", change == "roles")]


@pytest.mark.parametrize(("change", "part"), first(1, CHANGES_OF_PARTS))
def test_change_that_gets_no_lock_on_a_part_of_the_table_names_it_and_changes_nothing(make_pipeline, change, part):
    p = make_pipeline()
    if change == V4:
        apply(p, "V1__walpost.up.sql", "V2__outbox.up.sql")
    else:
        p.walpost.init()
    state = "SELECT oid, relkind, relowner, relacl FROM pg_class WHERE relnamespace IN ('walpost'::regnamespace, 'outbox'::regnamespace) ORDER BY oid"
    before = p.execute(state)
    with p.connected(autocommit=False) as holder:
        locked = keep_locked(p, holder, part)
        changing = InThread((lambda: apply(p, V4)) if change == V4 else lambda: p.walpost.verb("init", "--with-roles"))
        error = str(changing.result())
        assert not changing.is_alive(), "it still waits"
        assert "no lock on " in error and f"{locked} by session {holder.connection.info.backend_pid}" in error, error
    assert p.execute(state) == before


def keep_tree_locked(p, cursor, table):
    """By a role without any right."""
    (oid,), = p.execute("SELECT %s::regclass::oid::bigint", table)
    p.execute("DO $$ BEGIN IF to_regrole('nobody') IS NULL THEN CREATE ROLE nobody; END IF; END $$")
    cursor.execute(f"SET ROLE nobody; SELECT count(*) FROM pg_partition_tree({oid}::regclass)")
    return f"by session {cursor.connection.info.backend_pid}"


@pytest.mark.smoke
def test_maintain_names_the_session_that_keeps_it_from_making_and_dropping_partitions(make_pipeline):
    p, (old,) = with_old_partitions(make_pipeline, (10,))
    with p.connected(autocommit=False) as holder, p.connected() as maintain:
        session = keep_tree_locked(p, holder, "outbox.events")
        maintain.execute("SELECT action FROM outbox.maintain(ahead => '9 days')")
        assert maintain.fetchall() == []
        warnings = maintain.connection.notices
        assert any("with later ones; locked: outbox.events_default " + session in text for text in warnings), warnings
        assert any(f"{old} is left to the next call; locked: {old} {session}" in text for text in warnings), warnings
        holder.connection.rollback()
        maintain.execute("SELECT DISTINCT action FROM outbox.maintain(ahead => '9 days')")
        assert sorted(maintain.fetchall()) == [("dropped",), ("made",)]


@pytest.mark.smoke
def test_inbox_maintain_names_the_session_that_keeps_it_from_making_partitions(make_pipeline):
    p = make_pipeline()
    apply(p, "inbox/V1__inbox.up.sql")
    with p.connected(autocommit=False) as holder, p.connected() as maintain:
        session = keep_tree_locked(p, holder, "inbox.processed_events")
        maintain.execute("SELECT action FROM inbox.maintain(keep => '1 day', ahead => '9 days')")
        assert maintain.fetchall() == []
        assert any("locked: inbox.processed_events_default " + session in text for text in maintain.connection.notices), maintain.connection.notices


# Its tables are dropped in one bounded attempt.
@pytest.mark.smoke
def test_inbox_is_not_taken_away_while_a_session_has_an_index_of_it_locked(make_pipeline):
    p = make_pipeline()
    apply(p, "inbox/V1__inbox.up.sql")
    with p.connected(autocommit=False) as holder:
        keep_tree_locked(p, holder, "inbox.processed_events_pkey")
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            apply(p, "inbox/V1__inbox.down.sql")
    apply(p, "inbox/V1__inbox.down.sql")
    assert p.execute("SELECT to_regnamespace('inbox')") == [(None,)]
