"""Edits beside transactions that are open, and tables that are partitions for a part of the time."""

import signal
from contextlib import closing

import pytest
import servers
from edits_test import OWN, list_tables, missing

EVENTS = ("INSERT INTO {table} (id, aggregate_type, aggregate_id, event_type, payload, created_at)"
          " SELECT gen_random_uuid(), %s, %s, 'Tested', 'x', {at} FROM generate_series(1, %s)")


def insert(p, key="a", count=1, at="now()", table="outbox.events"):
    p.execute(EVENTS.format(table=table, at=at), p.name, key, count)


def in_transaction(connection, sql, *arguments):
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments)


# Which rows of other tables the server sends is no property of its log: it depends on what it decoded before.
@pytest.mark.full
@pytest.mark.smoke
@pytest.mark.parametrize("ended", ["walsender", "walpost"])
def test_table_is_published_while_a_transaction_is_open_that_wrote_into_it(make_pipeline, ended):
    p = make_pipeline()
    p.execute("CREATE TABLE other (id int)")
    p.start()
    p.walpost.works_hard = True
    opened = p.postgres.connect(p.database, autocommit=False)
    in_transaction(opened, "INSERT INTO other SELECT generate_series(1, 20000)")
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE other")
    p.execute("INSERT INTO other VALUES (-1)")
    p.wait_confirmed()
    in_transaction(opened, EVENTS.format(table="outbox.events", at="now()"), p.name, "a", 100_000)
    opened.commit()
    servers.wait_for(lambda: p.walpost.status()["events"]["received"] > 5_000, 60, "a part of the transaction")
    if ended == "walpost":
        p.walpost.kill9()
        p.walpost.start()
    else:
        p.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", p.name)
    p.wait_confirmed()
    positions = {}
    for record in p.records():
        positions.setdefault(record.id, set()).add(record.position)
    assert missing(p) == set()
    assert {len(each) for each in positions.values()} == {1}, "an event came again with another position"


# `init` remembers what the stream consists of.
@pytest.mark.smoke
def test_publication_is_edited_before_the_first_run(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    insert(p)
    p.execute(f"ALTER PUBLICATION {p.name} DROP TABLE outbox.events")
    insert(p)
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE outbox.events")
    insert(p)
    p.walpost.start(wait="halted")
    assert p.walpost.status()["halt"]["reason"] == "publication_missing"


# What it wrote in between is in no stream, and nobody sees it before it commits.
@pytest.mark.parametrize("prepared", [False, True], ids=["open", "prepared"])
def test_way_out_waits_for_a_transaction_that_was_open_during_the_edit(make_pipeline, prepared):
    p = make_pipeline().start()
    insert(p)
    p.wait_confirmed()
    opened = p.postgres.connect(p.database, autocommit=False)
    in_transaction(opened, EVENTS.format(table="outbox.events", at="now()"), p.name, "a", 2)
    p.execute(f"ALTER PUBLICATION {p.name} DROP TABLE outbox.events")
    in_transaction(opened, EVENTS.format(table="outbox.events", at="now()"), p.name, "a", 3)
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE outbox.events")
    insert(p)
    p.walpost.wait_state("halted")
    p.walpost.verb("slot", "advance", "--yes")
    p.walpost.signal(signal.SIGHUP)
    p.walpost.wait_state("streaming")
    if prepared:
        in_transaction(opened, "PREPARE TRANSACTION 'opened'")
    rejected = p.walpost.verb("replay", "--missing", "--in-place", "--wait", "1s", check=False)
    assert rejected.returncode != 0 and ("prepared as opened" if prepared else "process") in rejected.stderr
    p.execute("COMMIT PREPARED 'opened'") if prepared else opened.commit()
    p.wait_confirmed()
    p.walpost.verb("replay", "--missing", "--in-place")
    assert missing(p) == set()


# By its schema where the version has that.
def publish(p, table):
    p.execute(f"ALTER PUBLICATION {p.name} ADD " + ("TABLES IN SCHEMA outbox" if p.postgres.major >= 15 else f"TABLE {table}"))


# 13 and 14 send rows of a detached partition as the outbox's, and those of an attached table as its own, until the
# connection ends.
def restart_where_moves_go_unnoticed(p):
    if p.postgres.major < 15:
        p.walpost.wait_state("halted")
        assert p.walpost.status()["halt"]["reason"] == "publication_missing"
        p.walpost.signal(signal.SIGHUP)


def test_table_that_is_published_filled_and_then_attached(make_pipeline):
    p = make_pipeline().start()
    insert(p)
    p.wait_confirmed()
    p.execute("CREATE TABLE outbox.filled (LIKE outbox.events INCLUDING ALL EXCLUDING IDENTITY); ALTER TABLE outbox.filled ALTER seq SET DEFAULT 1")
    publish(p, "outbox.filled")
    p.walpost.stop()
    insert(p, "filled", 3, "'2001-02-02'", "outbox.filled")
    p.execute("ALTER TABLE outbox.filled ALTER seq DROP DEFAULT")  # 17 and newer take no default beside the identity
    p.execute("ALTER TABLE outbox.events ATTACH PARTITION outbox.filled FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')")
    insert(p, "a", 2)
    p.walpost.start()
    p.wait_confirmed()
    assert [record.key for record in p.records()] == ["a"] * 3


@pytest.mark.smoke
def test_table_that_had_rows_is_attached_when_it_is_empty(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.execute("CREATE TABLE outbox.filled (LIKE outbox.events INCLUDING ALL EXCLUDING IDENTITY); ALTER TABLE outbox.filled ALTER seq SET DEFAULT 1")
    publish(p, "outbox.filled")
    p.walpost.start()
    insert(p)
    insert(p, "filled", 1, "'2001-02-02'", "outbox.filled")
    p.wait_confirmed()
    p.execute("TRUNCATE outbox.filled; ALTER TABLE outbox.filled ALTER seq DROP DEFAULT")
    p.execute("ALTER TABLE outbox.events ATTACH PARTITION outbox.filled FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')")
    insert(p, "a", 3, "'2001-02-02'")
    restart_where_moves_go_unnoticed(p)
    p.wait_confirmed()
    assert [record.key for record in p.records()] == ["a"] * 4


def test_tree_of_tables_is_filled_and_attached_in_one_transaction(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.execute("CREATE TABLE outbox.middle (LIKE outbox.events INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY RANGE (created_at)")
    publish(p, "outbox.middle")
    p.walpost.start()
    insert(p)
    p.wait_confirmed()
    with closing(p.postgres.connect(p.database, autocommit=False)) as connection:
        in_transaction(connection, "ALTER TABLE outbox.middle ALTER seq SET DEFAULT 1;"
                       "CREATE TABLE outbox.leaf PARTITION OF outbox.middle FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')")
        in_transaction(connection, EVENTS.format(table="outbox.middle", at="'2001-02-02'"), p.name, "before", 1)
        in_transaction(connection, "ALTER TABLE outbox.middle ALTER seq DROP DEFAULT; ALTER TABLE outbox.leaf ALTER seq DROP DEFAULT;"
                       "ALTER TABLE outbox.events ATTACH PARTITION outbox.middle FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')")
        connection.commit()
    insert(p, "a", 2, "'2001-02-02'")
    restart_where_moves_go_unnoticed(p)
    p.wait_confirmed()
    assert [record.key for record in p.records()] == ["a"] * 3


def test_row_is_written_into_a_partition_that_was_detached(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.execute("CREATE TABLE outbox.old PARTITION OF outbox.events FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')")
    publish(p, "outbox.old")
    p.walpost.start()
    insert(p)
    insert(p, "a", 1, "'2001-02-02'")
    p.wait_confirmed()
    p.execute("ALTER TABLE outbox.events DETACH PARTITION outbox.old; ALTER TABLE outbox.old ALTER seq SET DEFAULT 1")
    insert(p, "archive", 1, "'2001-02-02'", "outbox.old")
    insert(p)
    restart_where_moves_go_unnoticed(p)
    p.wait_confirmed()
    assert [record.key for record in p.records()] == ["a"] * 3


# Temporary tables of a migration, say.
def test_many_tables_that_are_no_outboxes_cost_no_memory(make_pipeline):
    p = make_pipeline()
    p.execute(f"CREATE PUBLICATION {p.name} FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)")
    p.start()
    insert(p)
    p.wait_confirmed()
    before = p.walpost.peak_rss_bytes()
    columns = ", ".join(f"column_with_a_rather_long_name_that_takes_place_{number} int" for number in range(400))
    with closing(p.postgres.connect(p.database)) as connection:
        for _ in range(300):
            in_transaction(connection, f"CREATE TABLE public.x ({columns}); INSERT INTO public.x DEFAULT VALUES; DROP TABLE public.x")
    insert(p)
    p.wait_confirmed()
    assert p.walpost.peak_rss_bytes() - before < 5 << 20, "300 descriptions are about 14 MB"


# With FOR ALL TABLES a row comes under the name of the topmost table that its own is a partition of.
# Failure 96.
@pytest.mark.smoke
def test_outbox_is_a_partition_of_another_table_for_the_time_of_one_transaction(make_pipeline, postgres):
    p = make_pipeline(config={"outboxes": [{"table": "app.events"}]})
    p.execute("CREATE SCHEMA app")
    p.execute(f"{OWN.format(table='events')}; {OWN.format(table='other')} PARTITION BY LIST (event_type)")
    p.execute(f"CREATE PUBLICATION {p.name} FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)")
    p.start()
    row = "INSERT INTO app.events (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'Tested')"
    p.execute(row, p.name)
    p.wait_confirmed()
    with closing(p.postgres.connect(p.database, autocommit=False)) as connection:
        in_transaction(connection, "ALTER TABLE app.other ATTACH PARTITION app.events FOR VALUES IN ('Tested')")
        in_transaction(connection, row, p.name)
        in_transaction(connection, "ALTER TABLE app.other DETACH PARTITION app.events")
        connection.commit()
    if postgres.major < 15:  # within a connection these do not notice it
        p.wait_confirmed()
        assert len(p.records()) == 2
        return
    p.walpost.wait_state("halted")
    assert p.walpost.status()["halt"]["reason"] == "publication_missing"
    p.walpost.verb("slot", "recreate", "--yes")
    p.walpost.signal(signal.SIGHUP)
    p.walpost.wait_state("streaming")
    assert len({record.id for record in p.records()}) == 2


def under_root(make_pipeline, publish="insert"):
    """app.events, an outbox by day, is itself a partition of app.root, which is not published. One event of the first day is delivered."""
    p = make_pipeline(config={"outboxes": [{"table": "app.events"}]}, partitions=1)
    p.execute("CREATE SCHEMA app")
    p.execute(f"{OWN.format(table='root')} PARTITION BY LIST (event_type)")
    p.execute("CREATE TABLE app.events PARTITION OF app.root FOR VALUES IN ('Tested') PARTITION BY LIST (aggregate_id)")
    p.execute("CREATE TABLE app.day1 PARTITION OF app.events FOR VALUES IN ('1'); CREATE TABLE app.day2 PARTITION OF app.events FOR VALUES IN ('2')")
    for table in ("root", "events", "day1", "day2"):
        p.execute(f"ALTER TABLE app.{table} REPLICA IDENTITY FULL")
    p.execute(f"CREATE PUBLICATION {p.name} FOR TABLE app.events WITH (publish = '{publish}', publish_via_partition_root = true)")
    p.start()
    insert(p, "1", count=2, table="app.events")
    p.wait_confirmed()
    return p


# Nobody decided about the row by making its partition go. Failure 96.
@pytest.mark.parametrize("retention, resume", [("DROP TABLE app.day1", "SIGHUP"), ("ALTER TABLE app.events DETACH PARTITION app.day1", "restart")],
                         ids=["dropped, SIGHUP", "detached, restart"])
def test_halt_for_a_row_stays_when_its_partition_has_gone(make_pipeline, retention, resume):
    p = under_root(make_pipeline)
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE app.root")
    insert(p, "1", table="app.events")
    p.walpost.wait_state("halted")
    before = p.walpost.status()
    p.execute(f"ALTER PUBLICATION {p.name} DROP TABLE app.root")
    p.execute(retention)
    if resume == "SIGHUP":
        p.walpost.signal(signal.SIGHUP)
        servers.wait_for(lambda: p.walpost.status()["state_since"] != before["state_since"], 20, "walpost to resume")
    else:
        p.walpost.stop()
        p.walpost.start(wait=None)
    insert(p, "2", table="app.events")
    p.walpost.wait_state("halted")
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "publication_missing" and "under the name of another table" in halt["detail"]


# The server announces a table before its first change alone. Failure 96.
@pytest.mark.smoke
@pytest.mark.parametrize("change", ["UPDATE app.events SET payload = 'y'", "DELETE FROM app.events WHERE id = (SELECT id FROM app.events LIMIT 1)"], ids=["update", "delete"])
def test_root_is_published_for_a_while_and_an_insert_follows_another_change(make_pipeline, change):
    p = under_root(make_pipeline, publish="insert, update, delete")
    p.walpost.stop()
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE app.root")
    p.execute(change)
    insert(p, "1", table="app.events")
    p.execute(f"ALTER PUBLICATION {p.name} DROP TABLE app.root")
    p.walpost.start(wait="halted")
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "publication_missing" and "under the name of another table" in halt["detail"]


# Failure 97.
@pytest.mark.smoke
def test_row_of_a_detached_partition_is_no_event_of_the_outbox(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.execute("CREATE TABLE outbox.old PARTITION OF outbox.events FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')")
    p.walpost.start()
    insert(p, at="'2001-02-02'")
    p.wait_confirmed()
    p.execute("ALTER TABLE outbox.events DETACH PARTITION outbox.old; ALTER TABLE outbox.old ALTER seq SET DEFAULT 1")
    insert(p, "archive", 1, "'2001-02-02'", "outbox.old")
    insert(p)
    restart_where_moves_go_unnoticed(p)
    p.wait_confirmed()
    assert [record.key for record in p.records()] == ["a"] * 2


# Failure 96.
def test_rows_of_tables_that_inherit_from_the_outbox_are_not_passed_over(make_pipeline):
    p = make_pipeline(config={"outboxes": [{"table": "app.events"}]})
    p.execute("CREATE SCHEMA app")
    p.execute(OWN.format(table="events"))
    p.start()
    p.execute("CREATE TABLE app.child () INHERITS (app.events)")
    for table in ("child", "events"):
        p.execute(f"INSERT INTO app.{table} (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'Tested')", p.name)
    p.walpost.wait_state("halted")
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "publication_missing" and "app.child" in halt["detail"]
    p.walpost.stop()
    p.execute("ALTER TABLE app.child NO INHERIT app.events")
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE app.child")
    list_tables(p, "events", "child")
    p.walpost.verb("slot", "advance", "--yes")
    p.walpost.start()
    p.wait_confirmed()
    p.walpost.verb("replay", "--missing", "--in-place")
    assert len(p.records()) == 2
