"""The consumer's side: inbox.accept and inbox.accept_position, what they promise to transactions, and how old ids leave."""

import datetime
import itertools
import random
import threading
import uuid

import psycopg2
import psycopg2.errors
import pytest
import servers

UP, DOWN = ((servers.ROOT / "sql" / "inbox" / f"V1__inbox.{way}.sql").read_text(encoding="utf-8") for way in ("up", "down"))
ACCEPT = "SELECT inbox.accept(%s, %s)"
POSITION = "SELECT inbox.accept_position(%s, %s, %s, %s)"
NOW = datetime.datetime.now(datetime.timezone.utc)  # so that a midnight in the middle changes nothing
_numbers = itertools.count(1)


class Inbox:
    """A database of a consumer."""

    def __init__(self, postgres):
        self.postgres = postgres
        self.database = postgres.create_database(f"inbox{next(_numbers)}")
        self.execute(UP)

    def execute(self, sql, *arguments):
        return self.postgres.execute(sql, *arguments, database=self.database)

    def accept(self, event, consumer="billing"):
        """In a transaction of its own."""
        return self.execute(ACCEPT, consumer, event)[0][0]

    def partition_of(self, event):
        return self.execute("SELECT tableoid::regclass::text FROM inbox.processed_events WHERE event_id = %s", event)[0][0]

    def maintain(self, arguments):
        """What it did, as {(action, what)}, and its warnings."""
        with self.connected() as cursor:
            cursor.execute(f"SELECT * FROM inbox.maintain({arguments})")
            return {(action, what) for action, what, _ in cursor.fetchall()}, "".join(cursor.connection.notices)

    def make_days(self, keep):
        """Calls maintain until it has made all days; its bound is on time."""
        while any(action == "made" for action, _ in self.maintain(f"keep => '{keep} days'")[0]):
            pass

    def age(self, *events, by="40 days"):
        self.execute("UPDATE inbox.processed_events SET accepted_at = accepted_at - %s::interval WHERE event_id = ANY (%s)", by, list(events))

    def connected(self, autocommit=True):
        return self.postgres.connected(self.database, autocommit)

    def waiting(self):
        return self.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'", self.database)[0][0]


@pytest.fixture
def inbox(postgres):
    return Inbox(postgres)


def one(cursor, sql, *arguments):
    cursor.execute(sql, arguments)
    return cursor.fetchone()[0]


def uuid7(days_ago=0):
    """As outbox.emit makes them."""
    made = NOW - datetime.timedelta(days=days_ago)
    return str(uuid.UUID(int=int(made.timestamp() * 1000) << 80 | 7 << 76 | random.getrandbits(12) << 64 | 2 << 62 | random.getrandbits(62)))


KINDS = {"of today": uuid7, "of a day without partition": lambda: uuid7(days_ago=300), "random": lambda: str(uuid.uuid4()),
         "text": lambda: f"order/{random.getrandbits(64)} ä"}


@pytest.mark.smoke
@pytest.mark.parametrize("kind", KINDS)
def test_event_is_accepted_once_by_each_consumer(inbox, kind):
    event = KINDS[kind]()
    with inbox.connected(autocommit=False) as cursor:
        assert [one(cursor, ACCEPT, "billing", event) for _ in range(3)] == [True, False, False]
        cursor.connection.commit()
    assert [inbox.accept(event), inbox.accept(event), inbox.accept(KINDS[kind]())] == [False, False, True]
    assert [inbox.accept(event, "shipping"), inbox.accept(event, "shipping")] == [True, False]


def test_uuid_and_its_text_are_the_same_event(inbox):
    event = uuid7()
    assert inbox.accept(event)
    assert inbox.execute("SELECT inbox.accept('billing', %s::uuid)", event) == [(False,)]


def test_rollback_and_savepoint_rollback_free_the_event(inbox):
    event = uuid7()
    with inbox.connected(autocommit=False) as cursor:
        assert one(cursor, ACCEPT, "billing", event)
        cursor.connection.rollback()
        cursor.execute("SAVEPOINT try")
        assert one(cursor, ACCEPT, "billing", event)
        cursor.execute("ROLLBACK TO SAVEPOINT try")
        assert one(cursor, ACCEPT, "billing", event)
        cursor.connection.commit()
    assert not inbox.accept(event)


@pytest.mark.smoke
@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("kind", [*KINDS, "position"])
def test_second_of_two_at_once_waits_for_the_first(inbox, kind, end):
    statement = (POSITION, "billing", "order", "4711", position(5)) if kind == "position" else (ACCEPT, "billing", KINDS[kind]())
    results = []

    def second():
        with inbox.connected() as cursor:
            results.append(one(cursor, *statement))

    with inbox.connected(autocommit=False) as first:
        assert one(first, *statement)
        other = threading.Thread(target=second)
        other.start()
        try:
            servers.wait_for(lambda: inbox.waiting() == 1, 30, "the second to wait for the first")
        finally:
            getattr(first.connection, end)()
            other.join(30)
    assert results == [end == "rollback"]


def test_transaction_with_an_older_snapshot_accepts_nothing_twice(inbox):
    event = uuid7()
    with inbox.connected(autocommit=False) as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert [one(cursor, ACCEPT, "billing", "another") for _ in range(2)] == [True, False]
        assert inbox.accept(event)
        with pytest.raises(psycopg2.errors.SerializationFailure):
            cursor.execute(ACCEPT, ("billing", event))


REJECTED = [("accept", (None, "id"), "no value and 2"), ("accept", ("billing", None), "7 and no value"), ("accept", ("", "id"), "0 and 2"),
           ("accept", ("billing", ""), "7 and 0"), ("accept", ("c" * 256, "id"), "256 and 2"), ("accept", ("billing", "ä" * 513), "7 and 1026"),
           ("accept_position", (None, "order", "1", "p"), "no value, 5 and 1"), ("accept_position", ("billing", "", "1", "p"), "7, 0 and 1"),
           ("accept_position", ("billing", "order", None, "p"), "7, 5 and no value"),
           ("accept_position", ("billing", "order", "k" * 2001, "p"), "7, 5 and 2001"),
           ("accept_position", ("billing", "t" * 250, "k", "p"), "7, 250 and 1"),
           ("accept_position", ("billing", "order", "1", None), "walpost-position: NULL"),
           ("accept_position", ("billing", "order", "1", "16/B374D848"), "walpost-position: '16/B374D848'")]


@pytest.mark.parametrize("function, arguments, message", REJECTED)
def test_arguments_that_cannot_be_meant_are_named(inbox, function, arguments, message):
    with inbox.connected() as cursor, pytest.raises(psycopg2.errors.InvalidParameterValue) as rejected:
        cursor.execute(f"SELECT inbox.{function}({', '.join(['%s::text'] * len(arguments))})", arguments)
    assert f"inbox.{function}: " in str(rejected.value) and message in str(rejected.value)


def test_largest_arguments_are_taken(inbox):
    rng = random.Random(6)  # what repeats would be compressed
    noise = [bytes(rng.choices(range(33, 127), k=n)).decode() for n in (255, 1024, 249, 2000)]
    assert inbox.execute(ACCEPT, noise[0], noise[1]) == [(True,)]
    assert inbox.execute(POSITION, noise[0], noise[2], noise[3], position(1)) == [(True,)]


@pytest.mark.smoke
def test_what_was_accepted_longer_ago_than_keep_is_forgotten_and_the_rest_is_not(inbox):
    old, recent = [uuid7(40), uuid7(40), str(uuid.uuid4()), uuid7(300)], [uuid7(35), uuid7(), str(uuid.uuid4()), uuid7(300), "text"]
    inbox.make_days(50)
    made = {inbox.partition_of(event) for event in old + recent if inbox.accept(event)}
    assert len(made) == 5, "three days, and the two for the rest"
    inbox.age(*old)
    did, warnings = inbox.maintain("keep => '30 days'")
    assert warnings == ""
    assert did >= {("dropped", inbox_partition(40)), ("kept", inbox_partition(35)), ("deleted", "inbox.processed_events_untimed"),
                   ("deleted", "inbox.processed_events_default")}
    assert [inbox.accept(event) for event in recent] == [False] * 5
    assert [inbox.accept(event) for event in old] == [True] * 4
    assert [inbox.accept(event) for event in old] == [False] * 4


def inbox_partition(days_ago):
    return f"inbox.processed_events_p{NOW - datetime.timedelta(days=days_ago):%Y%m%d}"


def test_day_on_which_somebody_has_built_leaves_no_ids_behind(inbox):
    event = uuid7(40)
    inbox.make_days(50)
    assert inbox.accept(event)
    inbox.age(event)
    inbox.execute(f"CREATE VIEW public.of_another AS SELECT * FROM {inbox_partition(40)}")
    did, warnings = inbox.maintain("keep => '30 days'")
    assert ("emptied", inbox_partition(40)) in did and "view public.of_another" in warnings, (did, warnings)
    assert inbox.execute(f"SELECT count(*), pg_relation_size('{inbox_partition(40)}') FROM {inbox_partition(40)}") == [(0, 0)]
    assert inbox.execute("SELECT count(*) FROM inbox.partitions() WHERE day < current_date - 31") == [(0,)]
    did, warnings = inbox.maintain("keep => '30 days'")
    assert not {action for action, _ in did} & {"emptied", "dropped"}, did
    # Another id of that day is forgotten in time, too.
    assert inbox.accept(event) and not inbox.accept(event)
    inbox.age(event)
    assert ("deleted", "inbox.processed_events_default") in inbox.maintain("keep => '30 days'")[0]
    inbox.execute(f"DROP VIEW public.of_another; DROP TABLE {inbox_partition(40)}")


def test_foreign_key_keeps_a_day_and_is_named(inbox):
    inbox.make_days(50)
    event = uuid7(40)
    assert inbox.accept(event)
    inbox.age(event)
    inbox.execute(f"CREATE TABLE public.refers (c text, e text, d date, FOREIGN KEY (c, e, d) REFERENCES {inbox_partition(40)})")
    did, warnings = inbox.maintain("keep => '30 days'")
    assert not {what for _, what in did} & {inbox_partition(40)} and "on table public.refers depends on table" in warnings, (did, warnings)
    assert not inbox.accept(event)
    inbox.execute("DROP TABLE public.refers")
    assert ("dropped", inbox_partition(40)) in inbox.maintain("keep => '30 days'")[0]


def test_maintenance_makes_the_days_that_events_come_from_and_repeats_nothing(inbox):
    inbox.make_days(7)
    with inbox.connected() as cursor:
        cursor.execute("SELECT action FROM inbox.maintain(keep => '7 days', ahead => '5 days')")
        assert {action for action, in cursor.fetchall()} == {"made"}
        cursor.execute("SELECT (now() AT TIME ZONE 'UTC')::date - day FROM inbox.partitions()")
        assert {days for days, in cursor.fetchall()} >= set(range(-5, 8))
        cursor.execute("SELECT action FROM inbox.maintain(keep => '7 days', ahead => '5 days')")
        assert cursor.fetchall() == []
    for event in (uuid7(), uuid7(6)):
        assert inbox.accept(event) and inbox.partition_of(event).startswith("inbox.processed_events_p")


def test_rows_of_the_default_partition_are_deleted_in_chunks(inbox):
    events = [str(uuid.uuid4()) for _ in range(25)]
    assert all(inbox.accept(event) for event in events)
    inbox.age(*events)
    for left in (15, 5, 0, 0):
        inbox.maintain("keep => '30 days', rows => 10")
        assert inbox.execute("SELECT count(*) FROM inbox.processed_events_untimed") == [(left,)]


# Who writes events chooses their days: one of each day to come must not keep that day in the default partition.
@pytest.mark.smoke
def test_days_that_the_default_partition_holds_are_made_and_their_repeats_are_known(inbox):
    events = [uuid7(20), uuid7(-4), uuid7(-5)]
    for event in events:
        assert inbox.accept(event) and inbox.partition_of(event) == "inbox.processed_events_default"
    did, warnings = inbox.maintain("keep => '30 days', ahead => '4 days'")
    assert warnings == "" and {("made", inbox_partition(age).removeprefix("inbox.")) for age in (20, -4)} <= did
    assert [inbox.partition_of(event) for event in events] == [inbox_partition(20), inbox_partition(-4), "inbox.processed_events_default"]
    assert not any(inbox.accept(event) for event in events)


# The consumer finds the default partition to be the id's, waits for it, and then may not insert there any more.
@pytest.mark.smoke
@pytest.mark.parametrize("days_ago", [0, 20, -4])
@pytest.mark.parametrize("held", [False, True])
def test_accept_does_not_fail_when_the_partition_of_its_day_is_made_meanwhile(inbox, days_ago, held):
    inbox.execute("".join(f"DROP TABLE {name};" for name, in inbox.execute("SELECT partition::text FROM inbox.partitions()")))
    if held:
        assert inbox.accept(uuid7(days_ago))
    event, results = uuid7(days_ago), []

    def accept():
        try:
            results.append(inbox.accept(event))
        except psycopg2.Error as error:
            results.append(error)

    with inbox.connected(autocommit=False) as cursor:
        cursor.execute("SELECT action FROM inbox.make_partitions(%s, %s)", [(NOW - datetime.timedelta(days=days_ago)).date()] * 2)
        assert cursor.fetchall() == [("made",)]
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            servers.wait_for(lambda: not accepting.is_alive() or inbox.waiting(), 30, "the consumer to wait")
        finally:
            cursor.connection.commit()
            accepting.join(60)
    assert results == [True]
    assert inbox.partition_of(event) == inbox_partition(days_ago) and not inbox.accept(event)


# Weeks without maintenance: to move that many ids, or to look through them for each day, would keep all consumers waiting.
@pytest.mark.smoke
def test_many_ids_in_the_default_partition_stay_there_and_the_days_ahead_are_made(inbox):
    inbox.execute("".join(f"DROP TABLE {name};" for name, in inbox.execute("SELECT partition::text FROM inbox.partitions()")))
    inbox.execute("INSERT INTO inbox.processed_events SELECT 'billing', gen_random_uuid()::text, day, now() FROM generate_series(1, 10001),"
                  " (VALUES ((now() AT TIME ZONE 'UTC')::date), ((now() AT TIME ZONE 'UTC')::date - 3)) AS days (day)")
    few = uuid7(5)
    assert inbox.accept(few)
    did, warnings = inbox.maintain("keep => '30 days'")
    assert warnings == "" and ("kept", "inbox.processed_events_default") in did
    assert {what for action, what in did if action == "made"} == {inbox_partition(age).removeprefix("inbox.") for age in (5, -1, -2, -3)}
    assert inbox.execute("SELECT count(*) FROM inbox.processed_events_default") == [(20002,)]
    assert inbox.partition_of(few) == inbox_partition(5) and not inbox.accept(few)


# Each waits for the other; the server would end one of the two, deadlock_timeout after it began to wait.
@pytest.mark.smoke
@pytest.mark.parametrize("consumer_ms", [100, 300])
def test_consumer_is_not_ended_when_it_and_maintenance_wait_for_each_other(inbox, consumer_ms):
    inbox.make_days(7)
    gone, event, results = str(uuid.uuid4()), uuid7(), []
    assert inbox.accept(gone)
    with inbox.connected(autocommit=False) as consumer, inbox.connected(autocommit=False) as maintenance:
        consumer.execute(f"SET deadlock_timeout = '{consumer_ms}ms'")
        assert one(consumer, ACCEPT, "billing", event)
        maintenance.execute("SET deadlock_timeout = '300ms'; DELETE FROM inbox.processed_events_untimed")  # as old ids are deleted
        accepting = threading.Thread(target=lambda: results.append(one(consumer, ACCEPT, "billing", gone)))
        accepting.start()
        servers.wait_for(inbox.waiting, 30, "the consumer to wait for the deletion")
        maintenance.execute("SELECT action FROM inbox.make_partitions(%s, %s)", [(NOW - datetime.timedelta(days=40)).date()] * 2)
        assert maintenance.fetchall() == []
        maintenance.connection.commit()
        accepting.join(60)
    assert results == [True]


def test_day_of_which_a_transaction_accepts_in_the_default_partition_is_made_by_the_next_call(inbox):
    event, other = uuid7(20), uuid7(20)
    assert inbox.accept(event)
    with inbox.connected(autocommit=False) as cursor:
        assert one(cursor, ACCEPT, "billing", other)
        did, warnings = inbox.maintain("keep => '30 days'")
        assert "is left to the next call" in warnings and not inbox.accept(event)
        cursor.connection.commit()
    inbox.maintain("keep => '30 days'")
    assert [inbox.partition_of(each) for each in (event, other)] == [inbox_partition(20)] * 2
    assert not inbox.accept(event) and not inbox.accept(other)


# One id of an old day, accepted now and then, keeps that day's partition, but not what else is in it.
@pytest.mark.smoke
def test_old_rows_beside_an_id_that_was_accepted_later_are_deleted_in_chunks(inbox):
    inbox.make_days(50)
    old = [uuid7(40) for _ in range(25)]
    assert all(inbox.accept(event) for event in old)
    inbox.age(*old)
    late = uuid7(40)
    assert inbox.accept(late)
    for left in (16, 6, 1, 1):
        did, _ = inbox.maintain("keep => '30 days', rows => 10")
        assert ("kept", inbox_partition(40)) in did
        assert inbox.execute(f"SELECT count(*) FROM {inbox_partition(40)}") == [(left,)]
    assert not inbox.accept(late)
    inbox.age(late)
    assert ("dropped", inbox_partition(40)) in inbox.maintain("keep => '30 days'")[0]


def test_partition_in_which_a_transaction_accepts_is_left_to_the_next_call(inbox):
    inbox.make_days(50)
    event = uuid7(40)
    with inbox.connected(autocommit=False) as cursor:
        assert one(cursor, ACCEPT, "billing", event)
        did, warnings = inbox.maintain("keep => '30 days'")
        assert "no lock in time" in warnings and "dropped" not in {action for action, _ in did}
        cursor.connection.commit()
    did, _ = inbox.maintain("keep => '30 days'")
    assert ("kept", inbox_partition(40)) in did
    assert not inbox.accept(event)


def test_what_was_accepted_while_maintenance_waited_is_not_dropped(inbox):
    inbox.make_days(50)
    inbox.execute("ALTER FUNCTION inbox.maintain SET lock_timeout = '120s'")
    # The first partition that it wants to drop, so that it waits there.
    oldest, results = inbox.execute("SELECT min(day) FROM inbox.partitions()")[0][0], []
    age = (NOW.date() - oldest).days
    event = uuid7(age)
    with inbox.connected(autocommit=False) as cursor:
        assert one(cursor, ACCEPT, "billing", event)
        maintenance = threading.Thread(target=lambda: results.append(inbox.maintain("keep => '30 days'")[0]))
        maintenance.start()
        try:
            servers.wait_for(lambda: inbox.waiting() == 1, 30, "maintenance to wait for the consumer")
        finally:
            cursor.connection.commit()
            maintenance.join(60)
    assert ("kept", inbox_partition(age)) in results[0]
    assert not inbox.accept(event)


# It waits when it has found days before that may go.
@pytest.mark.smoke
def test_maintenance_has_no_lock_that_consumers_wait_for_while_it_looks_for_what_may_go(inbox):
    inbox.make_days(50)
    day, results = inbox_partition(35), []
    with inbox.connected(autocommit=False) as cursor:
        cursor.execute(f"LOCK TABLE ONLY {day} IN SHARE UPDATE EXCLUSIVE MODE")
        maintenance = threading.Thread(target=lambda: results.append(inbox.maintain("keep => '30 days'")))
        maintenance.start()
        held = servers.wait_for(lambda: inbox.execute(
            "SELECT count(*) FILTER (WHERE h.granted AND h.relation = 'inbox.processed_events'::regclass AND h.mode = 'AccessExclusiveLock')"
            " FROM pg_locks w JOIN pg_locks h ON h.pid = w.pid WHERE NOT w.granted AND w.relation = %s::regclass GROUP BY w.pid", day), 30, "maintenance to wait")
        maintenance.join(60)
    assert held == [(0,)]
    did, warnings = results[0]
    assert day in warnings and {("dropped", inbox_partition(40)), ("dropped", inbox_partition(34))} < did
    assert ("dropped", day) in inbox.maintain("keep => '30 days'")[0]


def test_maintenance_with_an_older_snapshot_is_rejected(inbox):
    with inbox.connected(autocommit=False) as cursor, pytest.raises(psycopg2.Error, match="READ COMMITTED"):
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT * FROM inbox.maintain('7 days')")


def test_one_maintenance_runs_at_a_time_and_bad_arguments_are_reported(inbox):
    with inbox.connected(autocommit=False) as cursor:
        cursor.execute("SELECT * FROM inbox.maintain('7 days')")
        assert "is running already" in inbox.maintain("'7 days'")[1]
    for arguments in ("'-1 day'", "NULL", "'7 days', ahead => '-1 day'", "'7 days', rows => 0", "'401 days'"):
        with pytest.raises(psycopg2.errors.InvalidParameterValue, match="from 0 to 400 days"):
            inbox.maintain(arguments)


def position(lsn, ordinal=0, timeline=1, system=0x6B019E5DCB6BD76F):
    return f"{system:016x}-{timeline:08x}-{lsn:016x}-{ordinal:08x}"


@pytest.mark.smoke
def test_position_is_accepted_when_it_is_newer_than_all_of_its_key(inbox):
    def accept(text, key="4711", topic="order", consumer="billing"):
        return inbox.execute(POSITION, consumer, topic, key, text)[0][0]

    rising = [position(9), position(9, 1), position(10), position(0x10), position(2**40), position(8, timeline=2)]
    for number, text in enumerate(rising):
        assert accept(text), text
        assert [accept(older) for older in rising[:number + 1]] == [False] * (number + 1)
    assert inbox.execute("SELECT position FROM inbox.position") == [(rising[-1],)]
    # Others begin anew: keys, topics, consumers, and a cluster whose positions do not compare.
    assert accept(position(1), key="") and accept(position(1), topic="cart") and accept(position(1), consumer="shipping")
    assert accept(position(1, system=1)) and not accept(position(1, system=1)) and not accept(position(9))


def test_position_that_was_rolled_back_is_free(inbox):
    with inbox.connected(autocommit=False) as cursor:
        assert one(cursor, POSITION, "billing", "order", "4711", position(5))
        cursor.connection.commit()
        assert one(cursor, POSITION, "billing", "order", "4711", position(6))
        cursor.connection.rollback()
        assert one(cursor, POSITION, "billing", "order", "4711", position(6))


def test_records_of_walpost_are_accepted_once_by_id_and_by_position(inbox, make_pipeline):
    p = make_pipeline().start()
    p.insert_transactions(1, 20, rows=3, keys=7)
    p.wait_confirmed()
    records = p.records()
    assert len(records) == 60

    def accept_all():
        by_id = [inbox.accept(record.id) for record in records]
        by_position = [inbox.execute(POSITION, "billing", p.name, record.key, record.headers["walpost-position"].decode())[0][0]
                       for record in records]
        return by_id, by_position

    assert accept_all() == ([True] * 60, [True] * 60)
    assert accept_all() == ([False] * 60, [False] * 60)
    assert inbox.execute("SELECT count(*) FROM inbox.position") == [(7,)]


def test_consumer_needs_nothing_but_usage_of_the_schema(inbox):
    with inbox.connected() as cursor:
        def may_not(statement):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(statement)

        cursor.execute(f"CREATE ROLE {inbox.database}; SET ROLE {inbox.database}")
        may_not("SELECT inbox.accept('billing', 'id')")
        cursor.execute(f"RESET ROLE; GRANT USAGE ON SCHEMA inbox TO {inbox.database}; SET ROLE {inbox.database}")
        assert one(cursor, ACCEPT, "billing", "id") and one(cursor, POSITION, "billing", "order", "1", position(1))
        for statement in ("SELECT * FROM inbox.processed_events", "DELETE FROM inbox.position", "SELECT * FROM inbox.maintain('0 days')"):
            may_not(statement)


@pytest.mark.smoke
def test_file_is_applied_again_without_loss_and_taken_away_without_trace(inbox):
    old, event = uuid7(40), uuid7()
    inbox.make_days(50)
    assert inbox.accept(event) and inbox.accept(old)
    inbox.age(old)
    inbox.execute(UP)
    assert not inbox.accept(event) and not inbox.accept(old)
    inbox.execute(DOWN)
    assert inbox.execute("SELECT to_regnamespace('inbox')") == [(None,)]
    inbox.execute(UP)
    assert inbox.accept(event)


# By whoever had TRIGGER, or was the owner, once.
LEFT_BEHIND = {
    "CREATE TRIGGER x BEFORE INSERT ON inbox.position FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()": "DROP TRIGGER x ON inbox.position",
    "CREATE RULE x AS ON DELETE TO inbox.one_at_a_time DO ALSO SELECT 1": "DROP RULE x ON inbox.one_at_a_time",
    "CREATE POLICY x ON inbox.processed_events_default": "DROP POLICY x ON inbox.processed_events_default",
    "CREATE STATISTICS inbox.x ON topic, key FROM inbox.position": "DROP STATISTICS inbox.x",
    "ALTER TABLE inbox.position ADD CONSTRAINT x CHECK (topic <> key)": "ALTER TABLE inbox.position DROP CONSTRAINT x",
    "CREATE INDEX x ON inbox.position (lower(key))": "DROP INDEX inbox.x",
    "CREATE INDEX x ON inbox.processed_events_default (day) WHERE consumer = 'x'": "DROP INDEX inbox.x",
    "ALTER TABLE inbox.one_at_a_time ADD x text DEFAULT 'x'": "ALTER TABLE inbox.one_at_a_time DROP COLUMN x",
    "CREATE DOMAIN inbox.y AS text; ALTER TABLE inbox.position ADD x inbox.y": "ALTER TABLE inbox.position DROP COLUMN x",
    "CREATE TABLE public.x (); ALTER TABLE inbox.one_at_a_time INHERIT public.x": "ALTER TABLE inbox.one_at_a_time NO INHERIT public.x",
    "DROP TABLE inbox.position; CREATE VIEW inbox.position AS SELECT 1": "DROP VIEW inbox.position",
}


@pytest.mark.smoke
def test_what_the_file_has_not_made_of_a_table_stops_it_and_is_named(inbox):
    inbox.execute(UP)
    for made, cure in LEFT_BEHIND.items():
        inbox.execute(made)
        with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState) as rejected:
            inbox.execute(UP)
        assert rejected.value.diag.message_hint.replace('"', "") == cure, made
        inbox.execute(cure)
        inbox.execute(UP)
