"""outbox.maintain: partitions, and which rows may leave the table."""

import psycopg2.errors
import pytest
import servers
from rare import first

OLD = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, created_at) SELECT %s, 'key', 'Tested', '', " \
      "now() - %s::interval FROM generate_series(1, %s)"


def maintain(p, arguments=""):
    """What it did, as {(action, what)}, and its warnings."""
    with p.connected() as cursor:
        cursor.execute(f"SELECT * FROM outbox.maintain({arguments})")
        return {(action, what) for action, what, _ in cursor.fetchall()}, "".join(cursor.connection.notices)


def reconnect(p):
    """A connect notes how far was delivered, and maintain believes what is noted."""
    p.walpost.stop()
    p.walpost.start()


def partitions(p, older_than="1 day"):
    rows = p.execute("SELECT partition::text FROM outbox.partitions() WHERE ends < now() - %s::interval", older_than)
    return {row[0] for row in rows}


@pytest.mark.smoke
def test_rows_of_the_default_partition_get_one_of_their_own_and_are_sent_once(make_pipeline):
    p = make_pipeline().start()
    p.execute(OLD, p.name, "2 days", 50)
    p.execute(OLD, p.name, "0 days", 5)
    assert p.execute("SELECT count(*) FROM outbox.events_default")[0][0] == 50
    did, warnings = maintain(p)
    assert {action for action, _ in did} == {"made"} and "rows were in the default partition" in warnings
    assert p.execute("SELECT count(*) FROM outbox.events_default")[0][0] == 0
    assert len(p.stored_ids()) == 55
    p.execute(OLD, p.name, "2 days", 1)
    assert p.execute("SELECT count(*) FROM outbox.events_default")[0][0] == 0
    p.wait_confirmed()
    assert p.ids() == p.stored_ids()
    assert maintain(p)[0] == set()


# Whoever inserts waits meanwhile.
def test_a_call_that_gives_the_rows_of_the_default_partition_one_makes_few_others(make_pipeline):
    p = make_pipeline().start()
    p.execute(OLD, p.name, "2 days", 1)
    arguments = "ahead => '6 days', every => 'hour'"
    assert len(maintain(p, arguments)[0]) == 1 + 24
    assert len(maintain(p, arguments)[0]) > 24, "the others"
    assert maintain(p, arguments)[0] == set()


def test_rows_from_before_and_after_other_partitions_stay_in_the_default_one(make_pipeline):
    p = make_pipeline().start()
    p.execute(OLD, p.name, "9 days", 1)
    p.execute(OLD, p.name, "-9 days", 1)
    for _ in range(2):
        did, warnings = maintain(p)
        assert did == set() and "keeps them" in warnings
    p.execute("DELETE FROM outbox.events WHERE created_at > now()")
    assert len(maintain(p)[0]) == 1
    p.wait_confirmed()
    assert len(p.ids()) == 2


def test_no_partition_is_dropped_before_every_slot_has_passed_it(make_pipeline):
    p = make_pipeline().start()
    p.execute(OLD, p.name, "10 days", 20)
    maintain(p)
    old = partitions(p)
    assert len(old) == 1
    p.wait_confirmed()
    p.walpost.stop()
    expected = p.stored_ids()
    p.execute(OLD, p.name, "10 days", 20)  # not delivered
    p.execute(OLD, p.name, "9 days", 20)
    for _ in range(3):
        did, warnings = maintain(p)
        assert "dropped" not in {action for action, _ in did}, (did, warnings)
    assert len(partitions(p)) == 2
    expected = p.stored_ids()
    p.walpost.start()
    p.wait_confirmed()
    assert "dropped" not in {action for action, _ in maintain(p)[0]}, "what is confirmed is not noted yet"
    reconnect(p)
    did, _ = maintain(p)
    assert {action for action, _ in did} == {"dropped"} and len(did) == 2 and partitions(p) == set()
    assert p.ids() == expected


# PostgreSQL asks for no right on a partition where a view or a default is built on it.
@pytest.mark.smoke
def test_partition_on_which_somebody_has_built_leaves_no_rows_and_no_space_behind(make_pipeline):
    p = make_pipeline().start()
    writer = f"{p.name}_writer"
    p.execute(f"CREATE ROLE {writer} LOGIN; GRANT USAGE ON SCHEMA outbox TO {writer}")
    for days in ("12 days", "11 days", "10 days"):
        p.execute(OLD, p.name, days, 20)
        maintain(p, "keep => '30 days'")
    old = sorted(partitions(p))
    with p.connected(user=writer) as cursor:
        cursor.execute(f"CREATE TEMP VIEW mine AS SELECT id FROM {old[0]}")
        oid = p.execute("SELECT %s::regclass::oid", old[1])[0][0]
        cursor.execute(f"CREATE TEMP TABLE other (x regclass DEFAULT '{oid}'::regclass)")
        p.wait_confirmed()
        reconnect(p)
        sent = p.ids()
        did, warnings = maintain(p)
        assert did == {("emptied", old[0]), ("emptied", old[1]), ("dropped", old[2])}, (did, warnings)
        assert "view pg_temp" in warnings and "default value for column x of table pg_temp" in warnings, warnings
        assert partitions(p) == set() and p.stored_ids() == []
        assert p.execute("SELECT pg_relation_size(%s), pg_relation_size(%s)", old[0], old[1]) == [(0, 0)]
        assert maintain(p)[0] == set(), "it is no longer the outbox's"
        # Its time can have a partition again.
        p.execute(OLD, p.name, "12 days", 1)
        p.insert(1, 5)
        assert {(action, what) for action, what in maintain(p, "keep => '30 days'")[0]} == {("made", old[0].split(".")[1] + "_2")}
    p.wait_confirmed()
    assert p.ids() == sorted(sent + p.stored_ids()), "nothing else is sent or missing"
    p.execute(f"DROP TABLE {old[0]}, {old[1]}")


# A foreign key needs a right, and would lose what it refers to.
@pytest.mark.smoke
def test_what_keeps_a_partition_from_being_emptied_is_named(make_pipeline):
    p = make_pipeline().start()
    p.execute(OLD, p.name, "10 days", 1)
    maintain(p, "keep => '30 days'")
    old = partitions(p).pop()
    p.execute(f"CREATE TABLE refers (id uuid, at timestamptz, FOREIGN KEY (id, at) REFERENCES {old} (id, created_at))")
    p.wait_confirmed()
    reconnect(p)
    did, warnings = maintain(p)
    assert did == set() and f"on table public.refers depends on table {old}" in warnings, (did, warnings)
    assert len(p.stored_ids()) == 1 and partitions(p) == {old}
    p.execute("DROP TABLE refers")
    assert {action for action, _ in maintain(p)[0]} == {"dropped"}


def test_partition_that_a_long_transaction_has_added_to_is_kept_until_that_is_delivered(make_pipeline):
    p = make_pipeline().start()
    p.execute(OLD, p.name, "10 days", 1)
    maintain(p, "keep => '30 days'")
    with p.connected(autocommit=False) as late:
        late.execute(OLD, (p.name, "10 days", 1))
        p.wait_confirmed()
        maintain(p, "keep => '30 days'")  # its note does not see the late row
        p.wait_confirmed()
        reconnect(p)
        _, warnings = maintain(p)
        assert "no lock in time" in warnings
        p.wait_confirmed()
        p.walpost.stop()
        late.connection.commit()
    did, _ = maintain(p)
    assert {action for action, _ in did} == {"kept"} and len(partitions(p)) == 1
    expected = p.stored_ids()
    p.walpost.start()
    p.wait_confirmed()
    reconnect(p)
    did, _ = maintain(p)
    assert {action for action, _ in did} == {"dropped"}
    assert p.ids() == expected


def test_nothing_is_dropped_while_a_slot_is_missing(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.execute(OLD, p.name, "10 days", 1)
    p.walpost.verb("slot", "drop", "--yes")
    for _ in range(2):
        did, warnings = maintain(p)
        assert "dropped" not in {action for action, _ in did}
        assert f"slot {p.name} of pipeline {p.name} is missing" in warnings
    p.execute("DELETE FROM walpost.pipeline")
    assert "walpost.pipeline is empty" in maintain(p)[1]


def with_old_undelivered_rows(make_pipeline):
    """A pipeline that is stopped, and the ids of its old rows."""
    p = make_pipeline().start()
    p.insert(1, 5)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.execute(OLD, p.name, "10 days", 7)  # not delivered
    undelivered = p.stored_ids()
    maintain(p)
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
    return p, undelivered


def assert_kept_until_they_are_sent(p, undelivered, warning):
    p.walpost.start()
    p.wait_confirmed()
    maintain(p)
    reconnect(p)
    did, warnings = maintain(p)
    assert p.stored_ids() == undelivered and not did and warning in warnings
    p.walpost.verb("replay", "--missing", "--in-place")
    assert set(undelivered) <= set(p.ids())
    p.walpost.verb("dlq", "discard", "--reason", "transactions_skipped", "--yes")
    assert "dropped" in {action for action, _ in maintain(p)[0]}


FOREIGN_HANDS = {
    "advance": ["SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())"],
    "new slot": ["SELECT pg_drop_replication_slot(%s)", "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"],
}


# `run` itself halts then, because what lies between is not delivered.
@pytest.mark.smoke
@pytest.mark.parametrize("hand", FOREIGN_HANDS)
def test_nothing_undelivered_is_dropped_because_a_foreign_hand_has_moved_the_slot(make_pipeline, hand):
    p, undelivered = with_old_undelivered_rows(make_pipeline)
    for statement in FOREIGN_HANDS[hand]:
        p.execute(statement, p.name)
    p.walpost.start(wait="halted")
    assert p.walpost.status()["halt"]["reason"] == "slot_moved"
    for _ in range(2):
        maintain(p)
    assert p.stored_ids() == undelivered, "rows are gone that Kafka does not have"
    # Going on from here does not say that they may go: they are sent from the table first.
    assert p.walpost.stop() == 0
    p.walpost.verb("slot", "advance", "--yes")
    assert_kept_until_they_are_sent(p, undelivered, "dlq discard --reason transactions_skipped")


# Who leaves the gap does not say that its rows may go.
@pytest.mark.smoke
def test_nothing_undelivered_is_dropped_because_its_gap_was_left(make_pipeline):
    p, undelivered = with_old_undelivered_rows(make_pipeline)
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    assert "dlq discard --reason transactions_skipped" in p.walpost.verb("slot", "recreate", "--leave-gap", "--yes").stdout
    assert_kept_until_they_are_sent(p, undelivered, "slot recreate --leave-gap")


def test_nothing_is_dropped_before_it_is_noted_how_far_was_delivered(make_pipeline):
    p = make_pipeline().start()
    p.execute(OLD, p.name, "10 days", 5)
    maintain(p)
    p.wait_confirmed()
    p.execute("UPDATE walpost.pipeline SET delivered_lsn = NULL")
    did, warnings = maintain(p)
    assert "dropped" not in {action for action, _ in did}
    assert f"pipeline {p.name} has not noted yet how far it has delivered" in warnings
    reconnect(p)
    assert "dropped" in {action for action, _ in maintain(p)[0]}


def test_rows_of_a_partition_that_was_dropped_by_hand_still_arrive(make_pipeline):
    p = make_pipeline().start()
    p.walpost.stop()
    p.execute(OLD, p.name, "10 days", 20)
    maintain(p)
    p.execute(OLD, p.name, "10 days", 20)
    expected = p.stored_ids()
    for partition in partitions(p):
        p.execute(f"DROP TABLE {partition}")
    p.insert(1, 5)
    expected = sorted(expected + p.stored_ids())
    if p.postgres.major < 15:  # the table was announced again behind `maintain`, and might have been none of the outbox's then
        p.walpost.start(wait="halted")
        assert p.walpost.status()["halt"]["reason"] == "publication_missing"
        p.walpost.stop()
    p.walpost.start()
    p.wait_confirmed()
    assert p.ids() == expected and len(expected) == 45


def test_partitions_of_hours_follow_those_of_days_without_overlap(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    did, _ = maintain(p, "ahead => '4 days', every => 'hour'")
    assert len(did) in range(1, 26)
    overlapping = p.execute("SELECT count(*) FROM outbox.partitions() a JOIN outbox.partitions() b"
                            " ON a.partition <> b.partition AND a.starts < b.ends AND b.starts < a.ends")
    assert overlapping == [(0,)]
    assert p.execute("SELECT max(ends) - min(starts) = sum(ends - starts) FROM outbox.partitions()") == [(True,)]
    with p.connected() as cursor, pytest.raises(psycopg2.errors.InvalidParameterValue, match="every is day or hour"):
        cursor.execute("SELECT outbox.maintain(every => 'week')")


def test_ephemeral_rows_are_streamed_and_leave_no_trace(make_pipeline):
    p = make_pipeline().start()
    p.execute("SELECT outbox.set_ephemeral(true)")
    emitted = [p.execute("SELECT outbox.emit('Tested', %s, 'k', 'x')", p.name)[0][0] for _ in range(3)]
    assert p.stored_ids() == []
    p.execute("SELECT outbox.set_ephemeral(false)")
    p.insert(1, 1)
    p.wait_confirmed()
    assert p.ids() == sorted(emitted + p.stored_ids()) and len(p.stored_ids()) == 1


@pytest.mark.smoke
@pytest.mark.parametrize("plain", [False, True], ids=["partitions", "plain"])
def test_row_that_an_open_dead_letter_needs_stays_until_it_is_closed(make_pipeline, plain):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.verb("init", *(["--plain-table"] if plain else []))
    p.walpost.start()
    p.allow_bad_topics()
    p.execute(OLD, p.name, "10 days", 3)
    p.execute(OLD, "no such/topic", "10 days", 2)  # of these the dead letter has only the id
    maintain(p, "keep => '30 days'")
    p.execute(OLD, p.name, "8 days", 3)
    needed = sorted(row[0] for row in p.execute("SELECT id::text FROM outbox.events WHERE aggregate_type <> %s", p.name))
    everything = p.stored_ids()
    p.wait_confirmed()
    assert p.execute("SELECT count(*) FROM walpost.dead_letters WHERE truncated_bytes IS NOT NULL") == [(2,)]
    # Others have what they are about, or are about nothing here.
    p.execute("INSERT INTO walpost.dead_letters (pipeline, position, event_id, event_type, source, topic, event_time_ms, value, header_names, header_values,"
              " value_schema, reason, detail, attempts, parked, truncated_bytes, closed_at)"
              " SELECT 'other', n, id, '', CASE n WHEN 1 THEN 'public.events' ELSE 'outbox.events' END, '', 0, 'whole', '{}', '{}', '', '', '', 0, false,"
              " CASE n WHEN 2 THEN NULL ELSE 1 END, CASE n WHEN 3 THEN now() END FROM generate_series(1, 4) n,"
              " LATERAL (SELECT CASE n WHEN 4 THEN 'no id' ELSE (SELECT id::text FROM outbox.events WHERE created_at > now() - interval '9 days' LIMIT 1) END) AS e (id)")
    for _ in range(3):
        did, _ = maintain(p)
        p.wait_confirmed()
        reconnect(p)
    left = set(p.stored_ids())
    assert left >= set(needed) and [action for action, _ in did] == ["kept"], did
    assert left == set(needed) if plain else len(left) == 5 and left > set(needed)
    # What is kept can be sent.
    p.execute("UPDATE outbox.events SET aggregate_type = %s WHERE id = %s", p.name, needed[0])
    p.walpost.verb("dlq", "retry", "--id", needed[0])
    assert "kept" in {action for action, _ in maintain(p)[0]}
    p.walpost.verb("dlq", "discard", "--id", needed[1], "--yes")
    # The row that was corrected is newer than the note, as far as the database knows.
    maintain(p)
    p.wait_confirmed()
    reconnect(p)
    did, _ = maintain(p)
    assert [action for action, _ in did] == ["deleted" if plain else "dropped"] and p.stored_ids() == []
    assert p.ids() == [event for event in everything if event != needed[1]]


# Who writes one event in each of them that cannot be delivered would stop all retention.
def test_partitions_that_are_kept_take_no_time_from_those_behind_them(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}}).start()
    p.allow_bad_topics()
    for days in range(20, 12, -1):
        p.execute(f"""DO $$ BEGIN EXECUTE format('CREATE TABLE outbox.d{days} PARTITION OF outbox.events FOR VALUES FROM (%L) TO (%L)',
            now() - interval '{days} days 9 hours', now() - interval '{days - 1} days 15 hours'); END $$""")
        p.execute(OLD, "no such/topic" if days > 14 else p.name, f"{days} days", 1)
    p.wait_confirmed()
    # Each look takes long, as beside many dead letters.
    p.execute("""CREATE OR REPLACE FUNCTION outbox.needed_rows() RETURNS uuid[] LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
        SELECT pg_sleep(0.3); SELECT array_agg(event_id::uuid) FROM walpost.dead_letters $$""")
    dropped = set()
    for _ in range(3):
        dropped |= {what for action, what in maintain(p, "keep => '7 days'")[0] if action == "dropped"}
        p.wait_confirmed()
        reconnect(p)
    assert dropped == {"outbox.d14", "outbox.d13"}


def test_plain_table_loses_old_delivered_rows_in_chunks(make_pipeline):
    p = make_pipeline()
    p.walpost.verb("init", "--plain-table")
    p.walpost.start()
    p.execute(OLD, p.name, "10 days", 25)
    p.insert(1, 5)
    expected = p.stored_ids()
    p.wait_confirmed()
    assert maintain(p, "rows => 10") == (set(), "")  # makes the first note
    p.wait_confirmed()
    reconnect(p)
    p.walpost.stop()
    p.execute(OLD, p.name, "10 days", 2)  # not delivered
    expected = sorted(set(expected + p.stored_ids()))
    for left in (22, 12, 7, 7):
        maintain(p, "rows => 10")
        assert len(p.stored_ids()) == left
    p.walpost.start()
    p.wait_confirmed()
    reconnect(p)
    maintain(p)
    assert len(p.stored_ids()) == 5
    assert p.ids() == expected


@pytest.mark.parametrize("tx", ["700", "4000000000"])
@pytest.mark.parametrize("plain", first(1, [False, True]), ids=["partitions", "plain"])
def test_rows_with_a_tx_of_another_cluster_leave_when_they_are_delivered_here(make_pipeline, plain, tx):
    p = make_pipeline()
    p.walpost.verb("init", *(["--plain-table"] if plain else []))
    p.walpost.start()
    p.execute(OLD, p.name, "10 days", 3)
    maintain(p, "keep => '30 days'")
    p.wait_confirmed()
    reconnect(p)
    p.walpost.stop()
    # As a dump brings it along.
    p.execute("INSERT INTO outbox.events (tx, aggregate_type, aggregate_id, event_type, payload, created_at)"
              " VALUES (%s, %s, 'key', 'Restored', '', now() - interval '10 days')", tx, p.name)
    for _ in range(2):
        maintain(p)
        assert len(p.stored_ids()) == (1 if plain else 4)
    p.walpost.start()
    p.wait_confirmed()
    reconnect(p)
    maintain(p)
    assert p.stored_ids() == []
    assert len(p.ids()) == 4


# A snapshot lists no subtransactions, and xmin is one.
@pytest.mark.parametrize("plain", [False, True], ids=["partitions", "plain"])
def test_rows_of_a_subtransaction_leave_when_they_are_delivered(make_pipeline, plain):
    p = make_pipeline()
    p.walpost.verb("init", *(["--plain-table"] if plain else []))
    p.walpost.start()
    with p.connected(autocommit=False) as cursor:
        cursor.execute("SELECT pg_current_xact_id()")
        cursor.execute("SAVEPOINT inner_one")
        cursor.execute(OLD, (p.name, "10 days", 3))
        maintain(p)
        cursor.connection.commit()
    p.wait_confirmed()
    reconnect(p)
    maintain(p)
    assert len(p.stored_ids()) == 3, "the note is older than they are"
    p.wait_confirmed()
    reconnect(p)
    maintain(p)
    assert p.stored_ids() == []
    assert len(p.ids()) == 3


def test_row_that_somebody_holds_does_not_keep_the_others(make_pipeline):
    p = make_pipeline()
    p.walpost.verb("init", "--plain-table")
    p.walpost.start()
    p.execute(OLD, p.name, "10 days", 5)
    maintain(p, "keep => '30 days'")
    p.wait_confirmed()
    reconnect(p)
    with p.connected(autocommit=False) as cursor:
        cursor.execute("SELECT FROM outbox.events LIMIT 1 FOR UPDATE")
        assert maintain(p)[0] == {("deleted", "outbox.events")}
        assert len(p.stored_ids()) == 1
    maintain(p)
    assert p.stored_ids() == []
