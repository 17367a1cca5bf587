"""What a role without any right can do to those who have some. PostgreSQL locks a table before it asks for a right on it."""

import contextlib
import threading

import psycopg2
import pytest
import servers
from sql_locks_test import with_old_partitions


@contextlib.contextmanager
def looping(p, statement, sessions=1):
    """Sessions of a role without rights that run it again and again."""
    over = threading.Event()

    def loop():
        with p.connected() as cursor:
            cursor.execute("SET ROLE nobody_at_all")
            while not over.is_set():
                with contextlib.suppress(psycopg2.Error):
                    cursor.execute(statement)

    p.execute("CREATE ROLE nobody_at_all; REVOKE ALL ON SCHEMA outbox, walpost FROM PUBLIC")
    threads = [threading.Thread(target=loop) for _ in range(sessions)]
    for thread in threads:
        thread.start()
    try:
        begun = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%brin_summarize_new_values%'"
        servers.wait_for(lambda: len(p.execute(begun)) == sessions, 30, "the loops")
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
        p.execute("DROP ROLE nobody_at_all")


@pytest.mark.smoke
def test_maintain_does_not_give_way_to_locks_that_no_writer_takes(make_pipeline):
    p, olds = with_old_partitions(make_pipeline, (14, 12, 10))
    index = p.execute("SELECT min(i.indexrelid::bigint) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam"
                      " WHERE a.amname = 'brin' AND i.indrelid = %s::regclass", olds[0])[0][0]
    with looping(p, f"SELECT brin_summarize_new_values({index}::oid::regclass)"), p.connected() as maintain:
        done = []
        for _ in range(5):  # a call may miss a lock
            maintain.execute("SELECT action FROM outbox.maintain(ahead => '9 days')")
            done += [action for action, in maintain.fetchall()]
    assert done.count("dropped") == len(olds) and "made" in done


@pytest.mark.smoke
def test_slot_is_dropped_while_anybody_locks_the_table_of_pipelines(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    index = p.execute("SELECT 'walpost.pipeline_pkey'::regclass::oid::bigint")[0][0]
    many = (f"DO $$ BEGIN FOR i IN 1..2000 LOOP BEGIN PERFORM brin_summarize_new_values({index}::oid::regclass);"
            " EXCEPTION WHEN OTHERS THEN END; END LOOP; END $$")
    with looping(p, many, sessions=4):
        p.walpost.verb("slot", "drop", "--yes")
    assert p.slot() is None


@pytest.mark.smoke
def test_publication_of_a_schema_that_the_owner_may_not_use_stops_no_file(make_pipeline):
    p = make_pipeline()
    p.execute(f"CREATE ROLE an_owner LOGIN; CREATE ROLE another LOGIN; GRANT CREATE ON DATABASE {p.database} TO an_owner, another")
    with p.connected(user="another") as cursor:
        cursor.execute("CREATE SCHEMA another; CREATE TABLE another.t (); CREATE PUBLICATION another FOR TABLE another.t")
    with p.connected(user="an_owner", autocommit=False) as cursor:
        for name in ("V1__walpost.up.sql", "V2__outbox.up.sql", "V4__outbox_partitions.up.sql"):
            cursor.execute((servers.ROOT / "sql" / name).read_text(encoding="utf-8"))
            cursor.connection.commit()
    assert p.execute("SELECT relkind FROM pg_class WHERE oid = 'outbox.events'::regclass") == [("p",)]
    p.execute("DROP OWNED BY an_owner, another; DROP ROLE an_owner; DROP ROLE another")
