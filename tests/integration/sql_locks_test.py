"""What the SQL files and functions decide while others write: under which lock, on which snapshot, for how long writers wait."""

import threading
import time

import psycopg2.errors
import pytest
import servers

SQL = servers.ROOT / "sql"
WAIT_MAX_S = 3  # 1.2 s, and a machine that is busy


def apply(p, *names):
    with p.connected(autocommit=False) as cursor:
        for name in names:
            cursor.execute((SQL / name).read_text(encoding="utf-8"))
            cursor.connection.commit()


def waiting(p):
    return p.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'", p.database)[0][0]


def emit(cursor, key=None):
    cursor.execute("SELECT outbox.emit('Tested', 'a', 'k', 'x', idempotency_key => %s)", (key,))
    return cursor.fetchone()[0]


class InThread(threading.Thread):
    """Runs it at once, and keeps what came of it."""

    def __init__(self, run):
        super().__init__()
        self.outcome = None
        self._run_it = run
        self.start()

    def run(self):
        try:
            self.outcome = self._run_it()
        except Exception as error:  # noqa: BLE001 - for the test to see
            self.outcome = error

    def result(self):
        self.join(60)
        return self.outcome


def test_row_that_is_committed_while_the_table_is_made_anew_is_not_lost(make_pipeline):
    p = make_pipeline()
    apply(p, "V1__walpost.up.sql", "V2__outbox.up.sql")
    with p.connected(autocommit=False) as writer:
        writer.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('a', 'k', 'Tested')")
        partitions = InThread(lambda: apply(p, "V4__outbox_partitions.up.sql"))
        servers.wait_for(lambda: waiting(p) == 1, 30, "the file to wait for the writer")
        writer.connection.commit()
    assert partitions.result() is None
    assert p.execute("SELECT count(*) FROM outbox.events") == [(1,)]
    with p.connected(autocommit=False) as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(psycopg2.errors.InvalidTransactionState, match="READ COMMITTED"):
            cursor.execute((SQL / "V4__outbox_partitions.up.sql").read_text(encoding="utf-8"))


HIDDEN = ("ALTER TABLE outbox.events ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
          "CREATE POLICY writes ON outbox.events FOR INSERT WITH CHECK (event_type = 'Tested')")


# The owner, who is no superuser, does not see the rows either.
def test_rows_that_a_policy_hides_are_not_taken_for_none(make_pipeline):
    p = make_pipeline()
    p.execute(f"CREATE ROLE {p.name} LOGIN")
    p.execute(f"ALTER DATABASE {p.database} OWNER TO {p.name}")
    with p.connected(user=p.name) as cursor:
        for name in ("V1__walpost.up.sql", "V2__outbox.up.sql"):
            cursor.execute((SQL / name).read_text(encoding="utf-8"))
        cursor.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('a', 'k', 'Tested')")
        for statement in HIDDEN:
            cursor.execute(statement)
        cursor.execute((SQL / "V4__outbox_partitions.up.sql").read_text(encoding="utf-8"))
    assert p.execute("SELECT count(*) FROM outbox.events") == [(1,)]
    with p.connected(user=p.name) as cursor:
        for statement in ("ALTER TABLE outbox.events NO FORCE ROW LEVEL SECURITY", "DROP POLICY writes ON outbox.events",
                          "ALTER TABLE outbox.events DISABLE ROW LEVEL SECURITY", "DELETE FROM outbox.events",
                          (SQL / "V4__outbox_partitions.up.sql").read_text(encoding="utf-8"), *HIDDEN):
            cursor.execute(statement)
        cursor.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('a', 'k', 'Tested')")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="row-level security"):
            cursor.execute((SQL / "V4__outbox_partitions.down.sql").read_text(encoding="utf-8"))
    assert p.execute("SELECT count(*), (SELECT relkind FROM pg_class WHERE oid = 'outbox.events'::regclass) FROM outbox.events") == [(1, "p")]


@pytest.mark.parametrize("made", ["CREATE POLICY writes ON outbox.events FOR INSERT WITH CHECK (event_type = 'Tested')",
                                  "ALTER TABLE outbox.events ENABLE ROW LEVEL SECURITY", "GRANT INSERT ON outbox.events TO PUBLIC",
                                  "GRANT INSERT (payload) ON outbox.events TO PUBLIC",
                                  "CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
                                  " CREATE TRIGGER t BEFORE INSERT ON outbox.events FOR EACH ROW EXECUTE FUNCTION t()"])
def test_table_with_what_would_not_come_along_is_not_made_anew(make_pipeline, made):
    p = make_pipeline()
    apply(p, "V1__walpost.up.sql", "V2__outbox.up.sql")
    p.execute(made)
    apply(p, "V4__outbox_partitions.up.sql")
    assert p.execute("SELECT relkind FROM pg_class WHERE oid = 'outbox.events'::regclass") == [("r",)]


@pytest.mark.smoke
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_maintain_does_not_run_on_an_old_snapshot(make_pipeline, level):
    p = make_pipeline()
    p.walpost.init()
    with p.connected(autocommit=False) as cursor, pytest.raises(psycopg2.errors.InvalidTransactionState, match="READ COMMITTED"):
        cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}; SELECT * FROM outbox.maintain()")


# What takes a strong lock where something is to be changed, and none when it runs again.
CHANGES = {
    "roles": lambda p: p.walpost.verb("init", "--with-roles"),
    "payload": lambda p: p.execute("SELECT outbox.set_payload_max(5000)"),
    "ephemeral": lambda p: p.execute("SELECT outbox.set_ephemeral(true)"),
    "files": lambda p: apply(p, "V1__walpost.up.sql", "V2__outbox.up.sql", "V4__outbox_partitions.up.sql",
                             "V5__outbox_maintain.up.sql", "R__roles.sql"),
}


@pytest.mark.smoke
def test_change_waits_for_a_transaction_and_nobody_else_waits_for_long(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    longest_s = 0
    for name, change in CHANGES.items():
        with p.connected(autocommit=False) as late:
            emit(late, name)  # open, with a lock on all that emit writes
            changing = InThread(lambda change=change: change(p))
            if name != "files":
                servers.wait_for(lambda: waiting(p) > 0, 30, f"{name} to wait for the transaction")
                for _ in range(4):
                    began = time.monotonic()
                    with p.connected() as other:
                        emit(other)
                    longest_s = max(longest_s, time.monotonic() - began)
                assert changing.is_alive(), changing.outcome
                late.connection.commit()
            assert not isinstance(changing.result(), Exception), changing.outcome
        with p.connected(autocommit=False) as late:
            emit(late, name + " again")
            again = InThread(lambda change=change: change(p))
            assert not isinstance(again.result(), Exception), again.outcome
    assert longest_s < WAIT_MAX_S


@pytest.mark.smoke
def test_writer_that_waits_for_a_change_is_not_ended_when_the_change_waits_for_the_writer(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    with p.connected(autocommit=False) as writer, p.connected() as changer:
        emit(writer)
        changer.execute("SET deadlock_timeout = '60s'")  # so that only the writer would look for who waits for whom
        changing = InThread(lambda: changer.execute("SELECT walpost.change_tables('{}', 'walpost.pipeline', 'outbox.events')"))
        servers.wait_for(lambda: p.execute(WAITS_FOR, "outbox.events"), 30, "the change to wait for the writer", every=0.001)
        writer.execute("SELECT count(*) FROM walpost.pipeline")  # as outbox.emit_message does
        assert changing.is_alive()
        writer.connection.commit()
        assert changing.result() is None


# lock_timeout counts for each lock, deadlock_timeout for all that the writer waits for.
@pytest.mark.smoke
def test_writer_is_not_ended_when_a_change_waits_for_one_partition_after_the_other(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    first, second = (name for name, in p.execute("SELECT partition::text FROM outbox.partitions() ORDER BY partition::oid LIMIT 2"))
    with p.connected(autocommit=False) as busy, p.connected(autocommit=False) as writer, p.connected() as changer:
        busy.execute(f"LOCK TABLE ONLY {first} IN ROW EXCLUSIVE MODE")
        writer.execute(f"SET deadlock_timeout = '600ms'; LOCK TABLE ONLY {second} IN ROW EXCLUSIVE MODE")
        changing = InThread(lambda: changer.execute("SELECT walpost.change_tables('{}', 'outbox.events')"))
        servers.wait_for(lambda: p.execute(WAITS_FOR, first), 30, "the change to wait for the first partition", every=0.001)
        writing = InThread(lambda: writer.execute("LOCK TABLE ONLY outbox.events IN ROW EXCLUSIVE MODE"))
        servers.wait_for(lambda: not writing.is_alive() or p.execute(
            "SELECT pid FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock' AND clock_timestamp() > query_start + interval '300 ms'",
            writer.connection.info.backend_pid), 30, "the writer to have waited for a while", every=0.001)
        busy.connection.rollback()
        assert writing.result() is None
        writer.connection.commit()
        assert changing.result() is None


@pytest.mark.smoke
def test_roles_hold_no_lock_that_a_writer_still_needs(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    with p.connected(autocommit=False) as writer:
        emit(writer)  # a session's first one reads catalogs
        writer.connection.commit()
        writer.execute("LOCK TABLE outbox.idempotency IN ROW EXCLUSIVE MODE")
        roles = InThread(lambda: p.walpost.verb("init", "--with-roles"))
        # On 18 a GRANT keeps ACCESS SHARE, which no writer waits for.
        held = servers.wait_for(lambda: p.execute(
            "SELECT count(*) FILTER (WHERE h.granted AND h.relation = 'outbox.events'::regclass"
            " AND h.mode <> 'AccessShareLock') FROM pg_locks w JOIN pg_locks h ON h.pid = w.pid"
            " WHERE NOT w.granted AND w.relation = 'outbox.idempotency'::regclass AND w.database = (SELECT oid FROM pg_database WHERE datname ="
            " current_database()) GROUP BY w.pid"), 30, "the roles to wait for the writer", every=0.001)
        assert held == [(0,)]
        writer.connection.commit()
    assert not isinstance(roles.result(), Exception), roles.outcome


# The server ends its own vacuum only for one who waits longer than deadlock_timeout.
def test_change_does_not_wait_for_the_end_of_a_vacuum(make_pipeline, workspace):
    postgres = workspace.postgres(settings={"autovacuum_naptime": "1s"})
    p = make_pipeline(on_postgres=postgres)
    p.walpost.verb("init", "--plain-table")
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'a', 'k', 'Tested' FROM generate_series(1, 20000)")
    p.execute("ALTER TABLE outbox.events SET (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1,"
              " autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0)")
    p.execute("DELETE FROM outbox.events")
    vacuuming = "SELECT pid FROM pg_stat_progress_vacuum WHERE relid = 'outbox.events'::regclass"
    (pid,), = servers.wait_for(lambda: p.execute(vacuuming), 60, "the server to vacuum the table")
    p.execute("SELECT outbox.set_payload_max(5000)")
    assert (pid,) not in p.execute(vacuuming)


@pytest.mark.full
def test_change_that_gets_no_lock_names_the_table_and_changes_nothing(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    with p.connected(autocommit=False) as late:
        emit(late)
        with pytest.raises(psycopg2.errors.LockNotAvailable, match="no lock on outbox.events"):
            p.execute("SELECT outbox.set_payload_max(5000)")
    assert "1000000" in p.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'events_payload_max' AND conrelid = 'outbox.events'::regclass")[0][0]


# The key is there when emit inserts it, and gone when it asks which event it stands for.
@pytest.mark.smoke
def test_emit_returns_an_id_also_when_its_key_is_forgotten_at_that_moment(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    with p.connected() as cursor:
        first = emit(cursor, "key")
    p.execute("CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;"
              "CREATE TRIGGER wait AFTER INSERT ON outbox.idempotency FOR EACH STATEMENT EXECUTE FUNCTION public.wait()")
    with p.connected(autocommit=False) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(1)")

        def second():
            with p.connected() as cursor:
                return emit(cursor, "key")

        emitting = InThread(second)
        servers.wait_for(lambda: waiting(p) == 1, 30, "emit to stand between its two statements")
        holder.execute("SELECT outbox.forget_keys(keep => '0')")
        assert holder.fetchone() == (1,)
        holder.connection.commit()
    assert emitting.result() not in (None, first)
    assert p.execute("SELECT count(*) FROM outbox.events") == [(2,)]


def partitions_of(p):
    return dict(p.execute("SELECT c.relname, pg_get_userbyid(c.relowner) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
                          " WHERE i.inhparent = 'outbox.events'::regclass"))


@pytest.mark.smoke
def test_partition_that_cannot_be_handled_stops_nothing_else(make_pipeline):
    p = make_pipeline()
    p.walpost.verb("init", "--with-roles")
    p.execute("SELECT FROM outbox.maintain(ahead => '4 days')")  # by a superuser
    assert set(partitions_of(p).values()) == {"outbox_owner"}
    p.execute("CREATE ROLE stranger")
    # In the way: a table of the next one's name, and a partition that overlaps the one after.
    p.execute("DO $$ DECLARE day timestamptz := date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'; BEGIN"
              " EXECUTE format('CREATE TABLE outbox.%I ()', outbox.partition_name(day + interval '5 days'));"
              " EXECUTE format('CREATE TABLE outbox.made_by_hand PARTITION OF outbox.events FOR VALUES FROM (%L) TO (MAXVALUE)', day + interval '7 days 1 hour');"
              " END $$")
    old = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at) VALUES ('a', 'k', 'Tested', now() - interval '{} days')"
    p.execute(old.format(12) + ";" + old.format(12))
    p.execute("SELECT FROM outbox.maintain()")
    p.execute(old.format(10))
    p.execute("SELECT FROM outbox.maintain()")
    foreign, = p.execute("SELECT partition::text FROM outbox.partitions() WHERE ends < now() ORDER BY ends LIMIT 1")[0]
    p.execute(f"ALTER TABLE {foreign} OWNER TO stranger")
    as_if_delivered(p)
    with p.connected() as cursor:
        cursor.execute("SET ROLE outbox_owner; SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Kolkata'")
        cursor.execute("SELECT action, what FROM outbox.maintain(ahead => '9 days')")
        did = cursor.fetchall()
        warnings = "".join(cursor.connection.notices)
        cursor.execute("SELECT action FROM outbox.maintain(ahead => '9 days')")
        assert cursor.fetchall() == []
    assert [what for action, what in did if action == "made"][0].endswith("_2")
    assert [action for action, _ in did].count("made") == 2 and [action for action, _ in did].count("dropped") == 1, did
    assert f"{foreign} stays as it is: must be owner" in warnings and "is left to the next call" in warnings
    assert p.execute("SELECT count(*) FROM outbox.partitions() WHERE starts <> date_trunc('day', starts AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'") == [(0,)]


def as_if_delivered(p):
    p.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", p.name)
    p.execute("UPDATE walpost.pipeline SET delivered_lsn = pg_current_wal_lsn()")


def with_old_partitions(make_pipeline, days):
    """Partitions of a row each, which may be dropped."""
    p = make_pipeline()
    p.walpost.init()
    old = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at) VALUES ('a', 'k', 'Tested', now() - interval '{} days')"
    for day in days:
        p.execute(old.format(day))
        p.execute("SELECT FROM outbox.maintain()")
    as_if_delivered(p)
    found = [name for name, in p.execute("SELECT partition::text FROM outbox.partitions() WHERE ends < now() - interval '7 days' ORDER BY ends")]
    assert len(found) == len(days)
    return p, found


def maintained(p):
    """[(action, what)], and the warnings."""
    with p.connected() as cursor:
        cursor.execute("SELECT action, what FROM outbox.maintain()")
        return cursor.fetchall(), "".join(cursor.connection.notices)


def begun_to_wait(run, waits, what):
    """The thread of run, which was seen waiting. All waits of maintain end within half a second, and a busy machine looks too late: then again."""
    def begin():
        thread = InThread(run)
        servers.wait_for(lambda: waits() or not thread.is_alive(), 30, what, every=0.001)
        return thread if thread.is_alive() else None
    return servers.wait_for(begin, 60, what)


WAITS_FOR = ("SELECT a.pid FROM pg_locks a WHERE NOT a.granted AND a.relation = %s::regclass AND a.database ="
             " (SELECT oid FROM pg_database WHERE datname = current_database()) AND a.pid <> pg_backend_pid()")


# Whatever maintain has to wait for, or to look through, before it drops anything.
@pytest.mark.smoke
def test_maintain_has_no_lock_that_writers_wait_for_until_it_drops(make_pipeline):
    p, (first, second) = with_old_partitions(make_pipeline, (12, 10))
    with p.connected(autocommit=False) as busy, p.connected(autocommit=False) as maintain, p.connected() as eye:
        busy.execute(f"LOCK TABLE ONLY {second} IN ROW EXCLUSIVE MODE")
        held = []

        def run():
            maintain.connection.rollback()  # what it did when it was not seen waiting
            maintain.execute("SELECT action, what FROM outbox.maintain()")
            return maintain.fetchall()

        def waits():
            # In one look, so that it is true of one moment.
            eye.execute("SELECT count(*) FILTER (WHERE h.granted AND h.relation = 'outbox.events'::regclass AND h.mode = 'AccessExclusiveLock')"
                        " FROM pg_locks w JOIN pg_locks h ON h.pid = w.pid WHERE NOT w.granted AND w.relation = %s::regclass GROUP BY w.pid", (second,))
            held[:] = eye.fetchall()
            return held

        maintaining = begun_to_wait(run, waits, "maintain to wait for the second partition")
        assert held == [(0,)]
        did = maintaining.result()
        maintain.connection.commit()
        warnings = "".join(maintain.connection.notices)
    assert ("dropped", first) in did and ("dropped", second) not in did and f"{second} is left to the next call" in warnings
    assert ("dropped", second) in maintained(p)[0]


@pytest.mark.smoke
def test_row_that_comes_while_its_partition_is_about_to_be_dropped_is_not_dropped_with_it(make_pipeline):
    p, (partition,) = with_old_partitions(make_pipeline, (10,))

    starts = p.execute("SELECT min(starts) FROM outbox.partitions()")[0][0]
    # Half a second is all that maintain waits, so nothing is connected meanwhile.
    with p.connected(autocommit=False) as busy, p.connected(autocommit=False) as late, p.connected() as eye:
        def waits(table):
            eye.execute(WAITS_FOR, (table,))
            return eye.fetchone()

        def insert():
            # Into the partition by its name: through the table it would wait there already.
            late.execute(f"INSERT INTO {partition} (id, seq, aggregate_type, aggregate_id, event_type, created_at)"
                         " OVERRIDING SYSTEM VALUE VALUES (outbox.uuid_v7(), 0, 'a', 'k', 'Late', %s)", (starts,))
            late.connection.commit()

        insert()  # a session's first one reads what the table says of the partition, and would wait for that
        p.execute(f"DELETE FROM {partition} WHERE event_type = 'Late'")
        busy.execute("LOCK TABLE ONLY outbox.events IN ROW EXCLUSIVE MODE")
        maintaining = begun_to_wait(lambda: maintained(p), lambda: waits("outbox.events"), "maintain to wait for the table")
        inserting = InThread(insert)
        servers.wait_for(lambda: not inserting.is_alive() or waits(partition), 30, "the insert to be done, or to wait", every=0.001)
        busy.connection.commit()
        did, _ = maintaining.result()
        inserting.result()
    if ("dropped", partition) in did:
        assert isinstance(inserting.result(), psycopg2.errors.UndefinedTable), "the application knows that there is no such event"
    else:  # it was too late for the lock
        assert inserting.result() is None
        assert p.execute(f"SELECT count(*) FROM {partition}") == [(2,)]
        assert ("kept", partition) in maintained(p)[0]


# Each waits for the other; the server would end one of the two.
@pytest.mark.smoke
def test_maintain_gives_way_to_a_writer_that_waits_for_it(make_pipeline):
    p, (partition,) = with_old_partitions(make_pipeline, (10,))
    with p.connected(autocommit=False) as writer, p.connected(autocommit=False) as blocker:
        writer.execute("SET deadlock_timeout = '300ms'; LOCK TABLE ONLY outbox.events IN ROW EXCLUSIVE MODE")
        blocker.execute(f"LOCK TABLE ONLY {partition} IN SHARE MODE")  # as if it were looking through it
        writing = InThread(lambda: writer.execute("UPDATE outbox.events SET payload = 'corrected'"))
        servers.wait_for(lambda: p.execute(WAITS_FOR, partition), 30, "the writer to wait for the partition")
        blocker.execute(f"SELECT * FROM outbox.drop_partitions(ARRAY['{partition}'::regclass], ARRAY[now()])")
        assert blocker.fetchall() == []
        blocker.connection.commit()
        assert writing.result() is None
        writer.connection.commit()
    assert p.execute(f"SELECT count(*) FROM {partition} WHERE payload = 'corrected'") == [(1,)]


# PostgreSQL asks for the right to make a trigger when it has the lock, so whoever uses the schema can wait for it again and again.
@pytest.mark.smoke
def test_maintain_does_not_give_way_to_who_waits_for_its_notes(make_pipeline):
    p, (partition,) = with_old_partitions(make_pipeline, (10,))
    p.execute("CREATE ROLE notes_waiter; GRANT USAGE ON SCHEMA outbox TO notes_waiter")
    with p.connected() as waiter, p.connected(autocommit=False) as maintain:
        maintain.execute("LOCK TABLE outbox.retention_note IN SHARE ROW EXCLUSIVE MODE")  # as it does first
        waiter.execute("SET ROLE notes_waiter")
        making = InThread(lambda: waiter.execute("CREATE TRIGGER x BEFORE INSERT ON outbox.retention_note FOR EACH ROW"
                                                 " EXECUTE FUNCTION suppress_redundant_updates_trigger()"))
        servers.wait_for(lambda: waiting(p) == 1, 30, "the other role to wait")
        maintain.execute(f"SELECT what FROM outbox.drop_partitions(ARRAY['{partition}'::regclass], ARRAY[now()])")
        assert maintain.fetchall() == [(partition,)]
        maintain.connection.commit()
    assert isinstance(making.result(), psycopg2.errors.InsufficientPrivilege)
    p.execute("DROP OWNED BY notes_waiter; DROP ROLE notes_waiter")


# Whoever may make a table can make an index of it so again and again.
@pytest.mark.smoke
def test_maintain_does_not_give_way_to_an_index_that_is_made_concurrently(make_pipeline):
    p, (partition,) = with_old_partitions(make_pipeline, (10,))
    p.execute("CREATE TABLE mine (x integer)")
    waits = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'virtualxid' AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    with p.connected(autocommit=False) as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        making = InThread(lambda: p.execute("CREATE INDEX CONCURRENTLY ON mine (x)"))
        cursor.execute(f"DO $$ BEGIN WHILE NOT EXISTS ({waits}) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$")
        cursor.execute(f"SELECT what FROM outbox.drop_partitions(ARRAY['{partition}'::regclass], ARRAY[now()])")
        assert cursor.fetchall() == [(partition,)]
        assert making.is_alive()
        cursor.connection.commit()
    assert making.result() is None


# All that maintain calls when it has locks on old partitions already, and waits for a lock that the writer of the next test holds.
STEPS = {
    "the next old partition": "old_partitions(now() - interval '7 days', (SELECT n FROM outbox.retention_note n ORDER BY n.lsn DESC LIMIT 1))",
    "the default partition": "adopt_default('day')",
    "a partition made ahead": "make_partitions('9 days', 'day')",
    "the drop of another one": "drop_partitions(ARRAY['{second}'::regclass], ARRAY[now()])",
}


# deadlock_timeout counts from when somebody begins to wait, so the short one stands for a writer who has waited for a while.
@pytest.mark.smoke
@pytest.mark.parametrize(("first_to_wait", "writer_ms"), [("writer", 100), ("maintain", 300)])
@pytest.mark.parametrize("step", STEPS)
def test_writer_is_not_ended_when_it_and_maintain_wait_for_each_other(make_pipeline, step, first_to_wait, writer_ms):
    p, (first, second) = with_old_partitions(make_pipeline, (12, 10))
    if step == "the default partition":
        p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at) VALUES ('a', 'k', 'Tested', now() + interval '30 days')")
    with p.connected(autocommit=False) as writer, p.connected(autocommit=False) as maintain, p.connected() as eye:
        writer.execute(f"SET deadlock_timeout = '{writer_ms}ms'")
        for table in ("outbox.events", "outbox.events_default", second):
            writer.execute(f"LOCK TABLE ONLY {table} IN ROW EXCLUSIVE MODE")
        maintain.execute(f"SET deadlock_timeout = '300ms'; LOCK TABLE ONLY {first} IN SHARE MODE")
        running = {"writer": lambda: writer.execute(f"UPDATE {first} SET payload = 'corrected'"),
                   "maintain": lambda: maintain.execute("SELECT * FROM outbox." + STEPS[step].format(second=second))}

        def waits(name):
            pid = {"writer": writer, "maintain": maintain}[name].connection.info.backend_pid
            eye.execute("SELECT FROM pg_locks WHERE pid = %s AND NOT granted", (pid,))
            return eye.rowcount

        waiting_first = begun_to_wait(running[first_to_wait], lambda: waits(first_to_wait), f"{first_to_wait} to wait")
        del running[first_to_wait]
        (then_run,) = running.values()
        after = InThread(then_run)
        maintaining, writing = (after, waiting_first) if first_to_wait == "writer" else (waiting_first, after)
        assert maintaining.result() is None
        maintain.connection.commit()
        assert writing.result() is None
        writer.connection.commit()
    assert p.execute(f"SELECT count(*) FROM {first} WHERE payload = 'corrected'") == [(1,)]


# The writer finds the default partition to be the row's, waits for it, and then may not insert there any more.
@pytest.mark.smoke
def test_insert_does_not_fail_when_the_partition_of_its_time_is_made_meanwhile(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    ahead = [name for name, in p.execute("SELECT partition::text FROM outbox.partitions() WHERE starts > now()")]
    p.execute("".join(f"DROP TABLE {name};" for name, in p.execute("SELECT partition::text FROM outbox.partitions() WHERE starts <= now()")))
    with p.connected(autocommit=False) as maintain, p.connected() as writer:
        maintain.execute("SELECT action FROM outbox.maintain()")
        assert maintain.fetchall() == [("made",)]
        writing = InThread(lambda: emit(writer))
        servers.wait_for(lambda: not writing.is_alive() or waiting(p), 30, "the writer to wait")
        maintain.connection.commit()
        assert isinstance(writing.result(), str), writing.outcome
    assert p.execute("SELECT count(*) FROM outbox.events_default") == [(0,)]
    # Nobody waits for what is made ahead, however long that transaction takes.
    p.execute(f"DROP TABLE {ahead[-1]}")
    with p.connected(autocommit=False) as maintain, p.connected() as writer:
        maintain.execute("SELECT 'outbox.' || what FROM outbox.maintain()")
        assert maintain.fetchall() == [(ahead[-1],)]
        writer.execute("SET lock_timeout = '1s'")
        assert emit(writer)


# A transaction that has emitted may stay open for long.
@pytest.mark.smoke
def test_partitions_ahead_are_made_also_while_a_transaction_keeps_the_present_one_from_being_made(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    present, *ahead = [name for name, in p.execute("SELECT partition::text FROM outbox.partitions() WHERE ends > now() ORDER BY starts")]
    p.execute("".join(f"DROP TABLE {name};" for name in [present, *ahead]))
    with p.connected(autocommit=False) as late:
        late.execute("LOCK TABLE ONLY outbox.events IN ROW EXCLUSIVE MODE")  # as if it had emitted into an older partition
        did, warnings = maintained(p)
        assert {"outbox." + what for action, what in did if action == "made"} == set(ahead)
        assert f"{present.removeprefix('outbox.')} is left to the next call" in warnings
    assert ("made", present.removeprefix("outbox.")) in maintained(p)[0]


@pytest.mark.smoke
def test_partition_that_is_kept_can_be_written_to_before_maintain_ends(make_pipeline):
    p, (kept, dropped) = with_old_partitions(make_pipeline, (12, 10))
    p.execute("INSERT INTO walpost.dead_letters (pipeline, position, event_id, event_type, source, topic, event_time_ms, header_names, header_values,"
              " value_schema, reason, detail, attempts, parked, truncated_bytes)"
              f" SELECT %s, 'x', id::text, 'Tested', 'outbox.events', 't', 0, '{{}}', '{{}}', '', 'row_invalid', '', 1, false, 1 FROM {kept}", p.name)
    with p.connected(autocommit=False) as maintain, p.connected() as writer:
        maintain.execute("SELECT partition::text, kept IS NULL FROM outbox.old_partitions(now() - interval '7 days',"
                         " (SELECT n FROM outbox.retention_note n ORDER BY n.lsn DESC LIMIT 1))")
        assert maintain.fetchall() == [(kept, False), (dropped, True)]
        writer.execute(f"SET lock_timeout = '1s'; UPDATE {kept} SET payload = 'corrected'")
        assert writer.rowcount == 1
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            writer.execute(f"UPDATE {dropped} SET payload = 'corrected'")


@pytest.mark.smoke
def test_notes_that_came_with_a_dump_let_nothing_be_dropped(make_pipeline):
    p = make_pipeline()
    p.walpost.verb("init", "--plain-table")
    p.insert(1, 3)
    p.execute("INSERT INTO outbox.retention_note SELECT now() - interval '1 day', pg_current_snapshot(), '0/1', system_identifier - 1 FROM pg_control_system()")
    p.execute("SELECT FROM outbox.maintain(keep => '0')")
    assert p.execute("SELECT count(*) FROM outbox.events") == [(3,)]
    output = p.walpost.init().stdout
    assert "1 notes of another cluster removed" in output
    assert p.execute("SELECT DISTINCT n.system_identifier = c.system_identifier FROM outbox.retention_note n, pg_control_system() c") == [(True,)]


def test_writers_do_not_wait_for_the_standby_that_the_commit_of_maintain_would_wait_for(make_pipeline, workspace):
    p = make_pipeline(on_postgres=workspace.postgres())
    p.walpost.init()
    p.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    p.execute("SELECT pg_reload_conf()")
    servers.wait_for(lambda: p.execute("SHOW synchronous_standby_names") == [("nobody",)], 20, "the setting")
    maintaining = InThread(lambda: p.execute("SELECT action FROM outbox.maintain(ahead => '10 days')"))
    maintaining.join(20)
    waits = maintaining.is_alive()
    p.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    assert ("made",) in maintaining.result() and not waits


# It may be interrupted before it has sent them.
def test_partition_is_not_dropped_that_a_pipeline_needs_which_was_recorded_while_maintain_waited(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.walpost.start()
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, created_at)"
              " SELECT gen_random_uuid(), %s, 'k', 'Tested', now() - interval '3 days' FROM generate_series(1, 20)", p.name)
    p.execute("SELECT * FROM outbox.maintain(keep => '1 day')")
    p.wait_confirmed()
    p.walpost.stop()
    p.walpost.start()
    with p.connected(autocommit=False) as init:
        init.execute("LOCK TABLE outbox.events IN ACCESS SHARE MODE")
        init.execute("CREATE TEMP TABLE another AS SELECT * FROM walpost.pipeline; UPDATE another SET name = 'another', backfilled = false;"
                     " INSERT INTO walpost.pipeline SELECT * FROM another")
        maintaining = InThread(lambda: p.execute("SELECT * FROM outbox.maintain(keep => '1 day')"))
        servers.wait_for(lambda: waiting(p) or not maintaining.is_alive(), 10, "maintain to wait")
        init.connection.commit()
    maintaining.result()
    assert p.execute("SELECT count(*) FROM outbox.events") == [(20,)]
