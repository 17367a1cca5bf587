"""`walpost init --backfill`: the rows that were there before the slot, each once, also when it is interrupted."""

import contextlib
import subprocess
import threading

import pytest
import servers
from table_writers import Writers

FILL = """INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
    SELECT %s, 'key-' || n %% 100, 'Tested', convert_to('row ' || n, 'UTF8') FROM generate_series(%s, %s) n"""


def prepared(make_pipeline, rows, **options):
    """A table with rows and no slot yet, as a migration tool leaves it."""
    p = make_pipeline(**options)
    sql = p.walpost.verb("init", "--print-sql").stdout
    p.execute(sql[:sql.index("-- Before the slot, always.")])
    if rows:
        p.execute(FILL, p.name, 1, rows)
    return p


def stored(p, table="outbox.events"):
    return sorted(row[0] for row in p.execute(f"SELECT id::text FROM {table}"))


def ids(records):
    return sorted(record.id for record in records)


def backfill_in_background(p):
    return subprocess.Popen([servers.walpost_binary(), "--config", str(p.walpost.file), "init", "--backfill"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_rows_from_before_the_slot_are_sent_before_the_stream_begins(make_pipeline):
    p = prepared(make_pipeline, 50)
    assert "backfill     outbox.events: 50 events sent\n" in p.walpost.verb("init", "--backfill").stdout
    backfilled = p.records()
    assert ids(backfilled) == stored(p)
    for record in backfilled:
        assert record.headers["walpost-redelivery"] == b"backfill" and "walpost-position" not in record.headers
        assert "walpost-original-position" not in record.headers
        assert record.position[0] == 0 and record.envelope.payload.startswith(b"row ")
    for key in {record.key for record in backfilled}:
        positions = [record.position for record in backfilled if record.key == key]
        assert positions == sorted(positions)
    p.walpost.start()
    p.insert(51, 60)
    p.wait_confirmed()
    assert ids(p.records()) == stored(p) and len(p.records()) == 60
    again = p.walpost.verb("init", "--backfill", check=False)
    assert again.returncode == 78 and "was set up before" in again.stderr
    p.walpost.init()


@pytest.mark.full
def test_two_hundred_thousand_rows_under_writers_arrive_once_although_the_backfill_is_killed(make_pipeline):
    rows = 200_000
    p = prepared(make_pipeline, rows)
    writers = Writers(p, 4)
    try:
        killed = 0
        while killed < 3:
            backfill = backfill_in_background(p)
            servers.wait_for(lambda: noted(p) > killed * 20_000 or backfill.poll() is not None, 120, "a part to be sent")
            assert backfill.poll() is None, backfill.communicate()
            backfill.kill()
            backfill.wait()
            killed += 1
            p.walpost.start(wait="halted")
            assert p.walpost.status()["halt"]["reason"] == "init_incomplete"
            p.walpost.stop()
            incomplete = p.walpost.verb("init", check=False)
            assert incomplete.returncode == 78 and "--backfill" in incomplete.stderr
        servers.wait_for(lambda: only_one_may(p), 60, "the server to notice that the backfill died")
        p.walpost.verb("init", "--backfill")
        p.walpost.start()
    finally:
        writers.stop()
    p.wait_confirmed(seconds=300)
    records = p.records()
    assert ids(records) == stored(p), "each row exactly once across backfill and stream"
    redelivered = sum("walpost-redelivery" in record.headers for record in records)
    assert redelivered >= rows
    for number in range(4):  # the order of commits, also across the seam
        of_writer = [record for record in records if record.key == f"writer-{number}"]
        emitted = [record.id for record in of_writer]
        assert emitted == sorted(emitted)


def noted(p):
    try:
        rows = p.execute("SELECT coalesce((backfill -> 'outbox.events' ->> 'seq')::bigint, 0) FROM walpost.pipeline")
    except Exception:  # noqa: BLE001 - the table is not there yet
        return 0
    return rows[0][0] if rows else 0


def only_one_may(p):
    return p.execute("SELECT count(*) FROM pg_locks WHERE mode = 'ShareUpdateExclusiveLock' AND locktype = 'relation'"
                     " AND relation = to_regclass('walpost.pipeline') AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == [(0,)]


def test_rows_of_a_transaction_that_was_open_when_the_slot_was_wanted_come_once(make_pipeline):
    p = prepared(make_pipeline, 5)
    with contextlib.closing(p.postgres.connect(p.database, autocommit=False)) as connection, connection.cursor() as cursor:
        cursor.execute(FILL, (p.name, 6, 10))
        backfill = backfill_in_background(p)
        servers.wait_for(lambda: p.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                                           " AND datname = current_database()")[0][0] > 0, 60, "the slot to wait for the transaction")
        p.execute(FILL, p.name, 11, 15)
        connection.commit()
    out, err = backfill.communicate(timeout=60)
    assert backfill.returncode == 0, (out, err)
    p.walpost.start()
    p.wait_confirmed()
    assert ids(p.records()) == stored(p) and len(p.records()) == 15


def snapshots(p):
    return p.execute("SELECT snapshot FROM walpost.pipeline WHERE NOT backfilled")


def killed_between_slot_and_snapshot(make_pipeline):
    """Until the rows are open, only the slot is there."""
    while True:
        p = prepared(make_pipeline, 100_000)
        backfill = backfill_in_background(p)
        servers.wait_for(lambda: (p.slot() or {"confirmed": None})["confirmed"], 120, "the slot", every=0.001)
        backfill.kill()
        backfill.wait()
        servers.wait_for(lambda: only_one_may(p), 60, "the server to notice that the backfill died")
        if snapshots(p) == [(None,)]:
            return p


# Whoever takes that slot as it is leaves out the rows, and outbox.maintain would drop them.
@pytest.mark.full
@pytest.mark.parametrize("slot", ["is there", "was dropped"])
def test_first_backfill_that_was_killed_before_it_noted_its_snapshot_is_the_only_one_that_goes_on(make_pipeline, slot):
    p = killed_between_slot_and_snapshot(make_pipeline)
    if slot == "was dropped":
        p.walpost.verb("slot", "drop", "--yes")
    p.walpost.start(wait="halted")
    assert p.walpost.status()["halt"]["reason"] == "init_incomplete"
    p.walpost.stop()
    for verb in (["init"], ["slot", "create"]):
        rejected = p.walpost.verb(*verb, check=False)
        assert rejected.returncode in (73, 78) and (slot == "is there" or "init_incomplete" in rejected.stderr), rejected
    p.walpost.verb("init", "--backfill")
    p.walpost.start()
    p.insert(1, 1)
    p.wait_confirmed()
    assert ids(p.records()) == stored(p) and len(p.records()) == 100_001


@pytest.mark.smoke
def test_nobody_else_begins_while_a_first_backfill_waits_for_its_slot(make_pipeline):
    p = prepared(make_pipeline, 10)
    with contextlib.closing(p.postgres.connect(p.database, autocommit=False)) as connection, connection.cursor() as cursor:
        cursor.execute(FILL, (p.name, 11, 15))
        backfill = backfill_in_background(p)
        servers.wait_for(lambda: snapshots(p) == [(None,)], 60, "it to be recorded")
        p.walpost.start(wait="standby")
        assert "init_incomplete" in p.walpost.verb("init", check=False).stderr
        assert "another walpost" in p.walpost.verb("init", "--backfill", check=False).stderr
        connection.commit()
    assert backfill.wait(60) == 0, backfill.communicate()
    p.walpost.stop()
    p.walpost.start()
    p.wait_confirmed()
    assert ids(p.records()) == stored(p) and len(p.records()) == 15


# A pod and the one beside it, each with `walpost init` before its `walpost run`.
def test_two_that_begin_at_once_are_set_up_once(make_pipeline):
    p = prepared(make_pipeline, 0)
    both = [subprocess.Popen([servers.walpost_binary(), "--config", str(p.walpost.file), "init"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for _ in range(2)]
    said = [each.communicate(timeout=60)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    p.walpost.start()
    p.insert(1, 3)
    p.wait_confirmed()
    assert ids(p.records()) == stored(p)


OWN = {"outboxes": [{"table": "public.own", "columns": {"seq": "n"}}]}
OWN_TABLE = """CREATE TABLE own (n bigint GENERATED ALWAYS AS IDENTITY, id uuid DEFAULT gen_random_uuid(), aggregate_type text,
    aggregate_id text, event_type text, payload bytea)"""
OWN_FILL = "INSERT INTO own (aggregate_type, aggregate_id, event_type) SELECT %s, 'k', 'Tested' FROM generate_series(1, %s)"


def test_table_without_transaction_ids_is_read_in_the_snapshot_of_the_slot(make_pipeline):
    p = make_pipeline(config=OWN)
    p.execute(OWN_TABLE)
    p.execute(OWN_FILL, p.name, 30)
    assert "public.own: 30 events sent" in p.walpost.verb("init", "--backfill").stdout
    p.execute(OWN_FILL, p.name, 5)
    p.walpost.start()
    p.wait_confirmed()
    assert ids(p.records()) == stored(p, "own") and len(p.records()) == 35


def test_interrupted_backfill_of_such_a_table_says_that_it_begins_anew(make_pipeline):
    p = make_pipeline(config=OWN, create_topic=False)
    p.execute(OWN_TABLE)
    p.execute(OWN_FILL, p.name, 3)
    stopped = p.walpost.verb("init", "--backfill", check=False)
    assert stopped.returncode == 78 and p.name in stopped.stderr  # there is no such topic
    p.kafka.create_topic(p.name, 1)
    again = p.walpost.verb("init", "--backfill", check=False)
    assert again.returncode == 78 and "slot recreate --yes" in again.stderr
    p.walpost.verb("slot", "recreate", "--yes")
    assert ids(p.records()) == stored(p, "own")
    p.walpost.start()


def test_interrupted_backfill_does_not_go_on_among_rows_without_a_transaction(make_pipeline):
    p = make_pipeline(config=OWN)
    p.execute(OWN_TABLE)
    p.execute(OWN_FILL, "nowhere", 1)
    p.execute(OWN_FILL, p.name, 19)
    p.execute("ALTER TABLE own ADD COLUMN tx xid8; ALTER TABLE own ALTER COLUMN tx SET DEFAULT pg_current_xact_id()")
    p.execute(OWN_FILL, p.name, 10)
    assert p.walpost.verb("init", "--backfill", check=False).returncode == 78
    p.execute("UPDATE own SET aggregate_type = %s WHERE aggregate_type = 'nowhere'", p.name)
    assert p.walpost.verb("init", "--backfill", check=False).returncode == 78
    p.walpost.verb("slot", "recreate", "--yes")
    assert ids(p.records()) == stored(p, "own") and len(p.records()) == 30


# As a dump brings it along; this cluster comes to that number only after the slot was made.
def test_interrupted_backfill_does_not_go_on_among_rows_with_a_tx_of_another_cluster(make_pipeline):
    p = make_pipeline(config=OWN)
    p.execute(OWN_TABLE + "; ALTER TABLE own ADD COLUMN tx xid8 DEFAULT pg_current_xact_id()")
    p.execute("INSERT INTO own (tx, aggregate_type, aggregate_id, event_type) SELECT (pg_current_xact_id()::text::bigint + 100)::text::xid8, %s, 'k', 'T'", p.name)
    p.execute(OWN_FILL, "nowhere", 1)
    assert p.walpost.verb("init", "--backfill", check=False).returncode == 78
    p.execute("UPDATE own SET aggregate_type = %s WHERE aggregate_type = 'nowhere'", p.name)
    for _ in range(110):
        p.execute("SELECT pg_current_xact_id()")
    assert p.walpost.verb("init", "--backfill", check=False).returncode == 78
    p.walpost.verb("slot", "recreate", "--yes")
    assert ids(p.records()) == stored(p, "own") and len(p.records()) == 2


# By outbox.maintain, which knows of no pipeline before it is recorded.
def test_partition_is_not_dropped_between_the_slot_of_a_second_pipeline_and_its_record(make_pipeline, kafka):
    p = prepared(make_pipeline, 0).start()
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at)"
              " SELECT %s, 'k', 'Tested', now() - interval '3 days' FROM generate_series(1, 20)", p.name)
    p.execute("SELECT * FROM outbox.maintain(keep => '1 day')")
    p.wait_confirmed()
    p.walpost.stop()
    p.walpost.start()
    kafka.create_topic(p.name + "-two", 1)
    two = p.another(name=p.name + "_two", config={"outboxes": [{"table": "outbox.events", "topic": p.name + "-two"}]})
    # As if the record took its time.
    p.execute("CREATE FUNCTION maintain_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.snapshot IS NOT NULL THEN"
              " PERFORM pg_advisory_xact_lock(1); END IF; RETURN NEW; END $$;"
              " CREATE TRIGGER maintain_first BEFORE INSERT ON walpost.pipeline FOR EACH ROW EXECUTE FUNCTION maintain_first()")
    with contextlib.closing(p.postgres.connect(p.database)) as hold, hold.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(1)")
        verb = subprocess.Popen([servers.walpost_binary(), "--config", str(two.file), "init", "--backfill"])
        servers.wait_for(lambda: p.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"), 60, "the slot")
        p.execute("SELECT * FROM outbox.maintain(keep => '1 day')")
        cursor.execute("SELECT pg_advisory_unlock(1)")
    assert verb.wait(60) == 0
    assert sorted(dict(message.headers())["id"].decode() for message in kafka.read_all(p.name + "-two")) == stored(p) and len(stored(p)) == 20


# By outbox.maintain, which has asked who needs the rows before the second pipeline is recorded. Read again, they would be missing.
@pytest.mark.smoke
def test_rows_of_a_plain_table_that_are_about_to_be_deleted_then_the_slot_of_a_second_pipeline_is_made_without_them(make_pipeline, kafka):
    p = make_pipeline()
    p.walpost.verb("init", "--plain-table")
    p.walpost.start()
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at)"
              " SELECT %s, 'k', 'Tested', now() - interval '3 days' FROM generate_series(1, 50)", p.name)
    p.execute("SELECT * FROM outbox.maintain(keep => '1 day')")
    p.execute(FILL, p.name, 51, 51)
    p.wait_confirmed()
    p.walpost.stop()
    p.walpost.start()
    topic = p.name + "-two"  # not there yet, so the backfill is interrupted
    two = p.another(name=p.name + "_two", config={"outboxes": [{"table": "outbox.events", "topic": topic}]})
    p.execute("CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS"
              " $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$; CREATE TRIGGER wait BEFORE DELETE ON outbox.events FOR EACH STATEMENT EXECUTE FUNCTION wait()")
    with contextlib.closing(p.postgres.connect(p.database)) as hold, hold.cursor() as cursor, \
            contextlib.closing(p.postgres.connect(p.database)) as maintaining, maintaining.cursor() as maintain:
        cursor.execute("SELECT pg_advisory_lock(1)")
        deleting = threading.Thread(target=maintain.execute, args=("SELECT action, detail FROM outbox.maintain(keep => '1 day')",))
        deleting.start()
        servers.wait_for(lambda: p.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"), 60, "maintain to delete")
        verb = subprocess.Popen([servers.walpost_binary(), "--config", str(two.file), "init", "--backfill"])
        servers.wait_for(lambda: verb.poll() is not None or p.execute(
            "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'outbox.retention_note'::regclass"), 60, "init to wait, or to end")
        made = p.execute("SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s", p.name + "_two")
        cursor.execute("SELECT pg_advisory_unlock(1)")
        deleting.join(60)
        assert maintain.fetchall() == [("deleted", "50 rows")]
    assert verb.wait(60) == 78, "the topic is missing"
    kafka.create_topic(topic, 1)
    two.verb("init", "--backfill")
    sent = sorted(dict(message.headers())["id"].decode() for message in kafka.read_all(topic))
    assert not made and sent == stored(p) and len(sent) == 1


def table_with_order(p, *orders, stops=()):
    """Rows in the order in which they are sent, of each (n, how many) so many; at those of `stops` a backfill ends."""
    p.execute("CREATE TABLE own (at integer GENERATED ALWAYS AS IDENTITY, n numeric, id uuid DEFAULT gen_random_uuid(), aggregate_type text,"
              " aggregate_id text, event_type text, payload bytea, tx xid8 DEFAULT pg_current_xact_id())")
    first = 1
    for n, count in orders:
        p.execute("INSERT INTO own (n, aggregate_type, aggregate_id, event_type) SELECT %s, CASE WHEN g = ANY (%s) THEN 'nowhere' ELSE %s END,"
                  " 'key-' || g %% 50, 'Tested' FROM generate_series(%s, %s) g", n, list(stops), p.name, first, first + count - 1)
        first += count


def backfilled_up_to(p, row):
    """What is noted when row number `row` ends a backfill. It is deleted, for an update would move it among others of its order."""
    stopped = p.walpost.verb("init", "--backfill", check=False)
    bad, = p.execute("DELETE FROM own WHERE at = %s RETURNING id::text", row)[0]
    assert stopped.returncode == 78 and bad in stopped.stderr, stopped
    return p.execute("SELECT backfill -> 'public.own' FROM walpost.pipeline")[0][0]


def with_order(p, n):
    return {row[0] for row in p.execute("SELECT id::text FROM own WHERE n IS NOT DISTINCT FROM %s", n)}


def test_interrupted_backfill_goes_on_among_rows_of_the_same_order(make_pipeline):
    p = make_pipeline(config=OWN)
    table_with_order(p, ("1.0", 5_000), ("1.00", 5_200), ("2", 15_800), stops=(10_300, 23_000))
    assert backfilled_up_to(p, 10_300)["seq"] == "1.00"
    assert backfilled_up_to(p, 23_000)["seq"] == "2" and with_order(p, 2) - set(ids(p.records())), "some of the same order are left"
    p.walpost.verb("init", "--backfill")
    assert ids(p.records()) == stored(p, "own"), "each once"


def test_interrupted_backfill_goes_on_with_rows_without_order(make_pipeline):
    p = make_pipeline(config=OWN)
    table_with_order(p, ("1", 10_001), (None, 2_000), stops=(11_000,))
    assert backfilled_up_to(p, 11_000)["seq"] == "1" and with_order(p, None) - set(ids(p.records()))
    p.walpost.verb("init", "--backfill")
    assert ids(p.records()) == stored(p, "own"), "each once"


def test_row_that_cannot_be_sent_is_named_and_the_backfill_goes_on_once_it_is_fixed(make_pipeline):
    p = prepared(make_pipeline, 10)
    p.allow_bad_topics()
    bad = p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('no topic', 'k', 't')"
                    " RETURNING id::text")[0][0]
    p.execute(FILL, p.name, 11, 20)
    stopped = p.walpost.verb("init", "--backfill", check=False)
    assert stopped.returncode == 78 and bad in stopped.stderr and "outbox.events" in stopped.stderr
    assert "--skip-undeliverable" in stopped.stderr
    p.execute("UPDATE outbox.events SET aggregate_type = %s WHERE id = %s", p.name, bad)
    p.walpost.verb("init", "--backfill")
    assert ids(p.records()) == stored(p) and len(p.records()) == 21


def test_rows_that_cannot_be_sent_are_left_out_and_named_on_request(make_pipeline):
    p = prepared(make_pipeline, 10)
    p.allow_bad_topics()
    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    p.insert_large(30_000)
    bad = p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('no topic', 'k', 't')"
                    " RETURNING id::text")[0][0]
    large = p.execute("SELECT id::text FROM outbox.events WHERE event_type = 'Large'")[0][0]
    nowhere = p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('no-topic', 'k', 't')"
                        " RETURNING id::text")[0][0]
    p.execute(FILL, p.name, 11, 20)
    done = p.walpost.verb("init", "--backfill", "--skip-undeliverable", check=False)
    assert done.returncode == 65, "something is missing in a topic"
    assert "outbox.events: 20 events sent, 2 left out, since they can be no records, or their topics do not take them, 1 left out, since their topics take nothing: 'no-topic' (it does not exist" in done.stdout
    assert all(f"event '{each}' is left out: " in done.stderr for each in (large, bad, nowhere))
    assert len(p.records()) == 20
    p.walpost.start()


def test_slot_that_init_did_not_make_is_rejected(make_pipeline):
    p = prepared(make_pipeline, 1)
    p.execute(f"CREATE PUBLICATION {p.name} FOR TABLE outbox.events WITH (publish = 'insert', publish_via_partition_root = true)")
    p.execute(f"SELECT pg_create_logical_replication_slot('{p.name}', 'pgoutput')")
    rejected = p.walpost.verb("init", "--backfill", check=False)
    assert rejected.returncode == 78 and "walpost slot drop --yes" in rejected.stderr
    p.walpost.verb("slot", "drop", "--yes")
    p.walpost.verb("init", "--backfill")
    assert ids(p.records()) == stored(p)


# The rows of the time between are in no stream, and nothing in the stream shows it.
@pytest.mark.smoke
@pytest.mark.parametrize("edit", ["ADD TABLE outbox.events", "SET (publish = 'insert')"])
def test_slot_that_is_older_than_what_publishes_the_outbox_is_not_taken(make_pipeline, edit):
    p = prepared(make_pipeline, 0)
    p.execute("CREATE TABLE public.other (id int PRIMARY KEY)")
    tables, kinds = ("public.other", "insert") if "ADD" in edit else ("outbox.events", "update")
    p.execute(f"CREATE PUBLICATION {p.name} FOR TABLE {tables} WITH (publish = '{kinds}', publish_via_partition_root = true)")
    rejected = p.walpost.verb("slot", "create", check=False)
    assert rejected.returncode == 78 and edit.split()[0] + " " in rejected.stderr
    p.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", p.name)
    p.execute(FILL, p.name, 1, 3)
    rejected = p.walpost.verb("init", check=False)
    assert rejected.returncode == 78 and "ALTER PUBLICATION" in rejected.stderr
    p.execute(f"ALTER PUBLICATION {p.name} {edit}")
    rejected = p.walpost.verb("init", check=False)
    assert rejected.returncode == 78 and "may be older than what publishes outbox.events" in rejected.stderr
    p.walpost.verb("slot", "drop", "--yes")
    p.walpost.verb("init", "--backfill")
    p.walpost.start()
    p.execute(FILL, p.name, 4, 4)
    p.wait_confirmed()
    assert ids(p.records()) == stored(p)
    assert p.walpost.stop() == 0


@pytest.mark.parametrize("beside", [None, "another slot that lags"])
def test_slot_that_was_made_by_hand_behind_its_publication_is_taken(make_pipeline, workspace, beside):
    p = prepared(make_pipeline, 0, on_postgres=workspace.postgres())
    if beside:
        p.execute("SELECT pg_create_logical_replication_slot('other', 'pgoutput')")
    p.execute(f"CREATE PUBLICATION {p.name} FOR TABLE outbox.events WITH (publish = 'insert', publish_via_partition_root = true)")
    p.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", p.name)
    p.execute(FILL, p.name, 1, 3)
    if beside:
        assert "--take-slot" in p.walpost.verb("init", check=False).stderr
    p.walpost.verb("init", *(["--take-slot"] if beside else []))
    p.walpost.start()
    p.wait_confirmed()
    assert ids(p.records()) == stored(p)
