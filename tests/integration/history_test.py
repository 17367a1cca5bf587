"""A server that was set back has the same name, cluster and timeline as before, and another history."""

import json
import signal
import time
import uuid

import pytest
import servers
from fake_clock import FakeClock
from rejecting import start_parking
from rare import first


def delivered_and_stopped(p, first, last):
    p.walpost.start()
    p.insert(first, last)
    p.wait_confirmed()
    assert p.walpost.stop() == 0


def halted(p):
    p.walpost.start(wait="halted")
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "timeline_changed", halt
    assert "docs/runbook.md, timeline_changed" in halt["detail"]
    return halt["detail"]


def go_on_from_here(p):
    assert "slot" in p.walpost.verb("slot", "advance", "--yes").stdout
    p.walpost.signal(signal.SIGHUP)
    p.walpost.wait_state("streaming")


# The event counts as delivered, and its row is the only trace of it.
@pytest.mark.full
@pytest.mark.smoke
def test_server_set_back_between_an_event_and_its_dead_letter(make_pipeline, workspace):
    postgres = workspace.postgres()
    p = make_pipeline(on_postgres=postgres, config={"delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.init()
    delivered_and_stopped(p, 1, 5)
    p.insert_large(2_000_000)
    copy = postgres.copy_disk(workspace.path / "copy")
    p.walpost.start()
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    assert p.execute("SELECT count(*) FROM walpost.dead_letters") == [(1,)]
    end = p.wal_position()
    postgres.put_back(copy)
    p.write_wal_past(end)
    p.insert(6, 10)
    assert "wrote 1 rows to walpost.dead_letters" in halted(p)
    go_on_from_here(p)
    p.wait_confirmed()
    assert p.execute("SELECT count(*) FROM walpost.dead_letters WHERE event_id <> ''") == [(1,)], "the event comes again"
    assert len(p.records()) >= 10
    assert p.walpost.stop() == 0


# Rows of the copy, and those of the new history at positions that were used before.
@pytest.mark.smoke
@pytest.mark.parametrize("writers_first", [pytest.param(True, marks=pytest.mark.full), False])
def test_key_that_was_parked_before_the_copy_is_released_whole_and_in_order(make_pipeline, kafka, workspace, writers_first):
    postgres = workspace.postgres()
    p = start_parking(make_pipeline, kafka, 20_000, on_postgres=postgres)

    def of_key(first, last):
        p.insert(first, last, keys=1)

    of_key(1, 2)
    p.insert_large(30_000, key="key-0")
    of_key(3, 5)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    copy = postgres.copy_disk(workspace.path / "copy")
    p.walpost.start()
    of_key(6, 8)  # of the history that is lost
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    end = p.wal_position()
    postgres.put_back(copy)
    if writers_first:
        of_key(11, 13)
        p.write_wal_past(end)
    halted(p)
    go_on_from_here(p)
    of_key(21, 23)
    p.wait_confirmed()
    p.kafka.alter_topic(p.name, {"max.message.bytes": "1048588"})
    servers.wait_for(lambda: p.walpost.verb("dlq", "retry", "--key", "key-0", check=False).returncode == 0, 60, "the key to be released")
    of_key(31, 32)
    p.wait_confirmed()
    assert p.execute("SELECT count(*) FROM walpost.dead_letters WHERE closed_at IS NULL AND parked") == [(0,)]
    expected = [row[0] for row in p.execute("SELECT id::text FROM outbox.events ORDER BY seq")]
    assert len(expected) == (14 if writers_first else 11)
    arrived = [record.id for record in p.records()]
    assert list(dict.fromkeys(arrived)) == expected, "each, in order"
    assert {event for event in arrived if arrived.count(event) > 1} <= set(expected[:2]), "of the copy's slot, and nothing that was parked"


def insert_as_origin(p, event_id, origin):
    """Commits one event, with the time of an origin if `origin`. Returns by what a history is recognised, but the time."""
    with p.connected(autocommit=False) as cursor:
        if origin:
            cursor.execute("SELECT pg_replication_origin_session_setup('elsewhere')")
            cursor.execute("SELECT pg_replication_origin_xact_setup('0/1', '2026-01-01 00:00:00+00')")
        cursor.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)"
                       " VALUES (%s, %s, 'key-1', 'Tested', 'x') RETURNING tx::text", (event_id, p.name))
        xid = cursor.fetchone()
        cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
        position = cursor.fetchone()
        cursor.connection.commit()
        return xid + position


# The same transaction of another server is applied again at the same position, with the same xid and time.
@pytest.mark.full
@pytest.mark.smoke
def test_server_set_back_behind_an_event_before_a_transaction_that_is_applied_again(make_pipeline, workspace):
    ours, lost, applied = (str(uuid.UUID(int=n)) for n in (1, 2, 3))
    postgres = workspace.postgres(settings={"autovacuum": "off"})
    p = make_pipeline(on_postgres=postgres)
    p.walpost.init()
    p.execute("SELECT pg_replication_origin_create('elsewhere')")
    delivered_and_stopped(p, 1, 3)
    copy = postgres.copy_disk(workspace.path / "copy")
    before = insert_as_origin(p, lost, origin=False), insert_as_origin(p, applied, origin=True)
    p.walpost.start()
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    end = p.wal_position()
    postgres.put_back(copy)
    assert (insert_as_origin(p, ours, origin=False), insert_as_origin(p, applied, origin=True)) == before
    p.write_wal_past(end)
    halted(p)
    go_on_from_here(p)
    servers.wait_for(lambda: ours in p.ids(), 60, "the event of the new history")
    assert p.walpost.stop() == 0


# What walpost remembers in its own process says nothing of it.
def test_operator_decides_while_the_connection_is_gone_then_the_next_one_and_its_successor_go_by_it(make_pipeline):
    p = make_pipeline().start()
    p.insert(1, 10)
    p.wait_confirmed()
    p.walpost.signal(signal.SIGSTOP)
    p.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", p.name)
    servers.wait_for(lambda: not p.slot()["active"], 20, "a free slot")
    p.walpost.verb("slot", "advance", "--yes")
    p.walpost.signal(signal.SIGCONT)
    p.insert(11, 20)
    p.wait_confirmed()
    successor = p.another()
    successor.start(wait="standby")
    p.walpost.kill9()
    p.walpost = successor
    p.insert(21, 30)
    p.walpost.wait_state("streaming", 60)
    p.wait_confirmed()
    assert p.judge() <= 30


def test_dead_letters_are_guarded_after_a_slot_was_advanced(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.init()
    p.insert_large(2_000_000)
    p.walpost.start()
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.walpost.verb("slot", "advance", "--yes")
    p.execute("TRUNCATE walpost.dead_letters, walpost.dead_letter_count")
    assert "wrote 2 rows to walpost.dead_letters" in halted(p), "its own, and that of the verb"


def test_what_a_decision_gave_up_stays_out_when_postgresql_forgets_the_decision(make_pipeline, workspace):
    postgres = workspace.postgres(settings={"checkpoint_timeout": "'1h'"})
    p = make_pipeline(on_postgres=postgres)
    p.walpost.init()
    delivered_and_stopped(p, 1, 10)
    p.execute("CHECKPOINT")
    p.insert(11, 20)
    p.walpost.verb("slot", "advance", "--to", p.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0], "--yes")
    postgres.kill9()
    postgres.start()
    p.walpost.start()
    p.insert(21, 30)
    p.wait_confirmed()
    rows = [row[0] for row in p.execute("SELECT id::text FROM outbox.events ORDER BY seq")]
    assert sorted(rows.index(record.id) for record in p.records()) == [*range(10), *range(20, 30)]


@pytest.mark.smoke
@pytest.mark.parametrize("writers_first", first(1, [True, False]))
def test_server_set_back(make_pipeline, workspace, writers_first):
    postgres = workspace.postgres()
    p = make_pipeline(on_postgres=postgres)
    p.walpost.init()
    delivered_and_stopped(p, 1, 20)
    copy = postgres.copy_disk(workspace.path / "copy")
    delivered_and_stopped(p, 21, 40)
    end = p.wal_position()
    before = {record.id for record in p.records()}
    postgres.put_back(copy)
    if writers_first:
        p.insert(101, 120)
        p.write_wal_past(end)
        p.insert(121, 140)
    confirmed = p.slot()["confirmed"]
    detail = halted(p)
    assert ("set back" in detail) if writers_first else ("the server's log ends at" in detail)
    assert {record.id for record in p.records()} == before, "nothing of the other history"
    assert p.slot()["confirmed"] == confirmed
    go_on_from_here(p)
    p.insert(141, 160)
    p.wait_confirmed()
    delivered = {record.id for record in p.records()}
    assert set(p.committed()) <= delivered, "nothing of the tables is missing"
    assert before <= delivered
    assert p.walpost.stop() == 0


def made_anew_and_complete(p):
    """What the server has is in Kafka; what the verb said."""
    made = p.walpost.verb("slot", "recreate", "--yes").stdout
    p.walpost.start()
    p.insert(901, 905)
    p.wait_confirmed()
    missing = set(p.committed()) - {record.id for record in p.records()}
    assert not missing, f"{len(missing)} rows are missing:\n{made}"
    assert p.walpost.stop() == 0
    return made


# Notes of the new history stand below what is remembered of the old one, and say nothing of what is in Kafka.
@pytest.mark.smoke
@pytest.mark.parametrize("writers_first", [True, pytest.param(False, marks=pytest.mark.full)])
def test_slot_made_anew_after_a_set_back_sends_the_rows_of_the_new_history(make_pipeline, workspace, writers_first):
    postgres = workspace.postgres()
    p = make_pipeline(on_postgres=postgres)
    p.walpost.init()
    delivered_and_stopped(p, 1, 20)
    copy = postgres.copy_disk(workspace.path / "copy")
    p.write_wal_past(p.wal_position() + 2_000_000)
    delivered_and_stopped(p, 21, 25)
    end = p.wal_position()
    postgres.put_back(copy)
    p.insert(101, 110)
    p.execute("SELECT * FROM outbox.maintain()")
    assert p.wal_position() < end
    if writers_first:
        p.write_wal_past(end)
    halted(p)
    assert p.walpost.stop() == 0
    made = made_anew_and_complete(p)
    words = "what the database itself knows to be delivered" if writers_first else "does not have that position"
    assert words in made, made


def failed_over_without_the_newest(p, primary, standby, lose):
    """The standby that `p` reads from here on never had what `lose` does; where the log ended."""
    standby.make_standby_of(primary)
    behind = p.wal_position()
    servers.wait_for(lambda: standby.execute("SELECT pg_last_wal_replay_lsn() - '0/0'::pg_lsn")[0][0] >= behind, 60, "the standby")
    standby.stop("immediate")
    lose()
    end = p.wal_position()
    primary.stop("immediate")
    standby.start()
    standby._run("pg_ctl", "-D", standby.data, "-w", "promote")
    servers.wait_for(lambda: not standby.execute("SELECT pg_is_in_recovery()")[0][0], 60, "the promotion")
    if standby.slot(p.name, p.database):  # the copy of a disk has it, the standby of a backup would not
        standby.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    p.postgres = standby
    p.walpost = p.another()
    return end


@pytest.mark.full
@pytest.mark.smoke
def test_slot_made_anew_after_a_failover_that_lost_the_newest_sends_the_rows_of_the_new_timeline(make_pipeline, workspace):
    primary, standby = workspace.postgres(), workspace.postgres(start=False)
    p = make_pipeline(on_postgres=primary)
    p.walpost.init()
    delivered_and_stopped(p, 1, 20)
    p.execute("SELECT * FROM outbox.maintain()")

    def lose():
        p.write_wal_past(p.wal_position() + 2_000_000)
        delivered_and_stopped(p, 21, 25)

    end = failed_over_without_the_newest(p, primary, standby, lose)
    p.insert(101, 110)
    p.execute("SELECT * FROM outbox.maintain()")
    assert p.wal_position() < end
    p.walpost.start(wait="halted")
    assert p.walpost.stop() == 0
    assert "does not have that position" in made_anew_and_complete(p)


class NumberedTable:
    """An outbox of one's own, whose ids the server gives out again when it was set back."""

    config = {"outboxes": [{"table": "public.own"}]}

    def __init__(self, p):
        self.p = p
        p.execute("CREATE TABLE own (id bigserial PRIMARY KEY, seq bigint GENERATED ALWAYS AS IDENTITY, aggregate_type text,"
                  " aggregate_id text, event_type text, payload bytea, tx xid8 DEFAULT pg_current_xact_id(),"
                  " created_at timestamptz DEFAULT now())")
        p.walpost.init()

    def insert(self, count, what):
        self.p.execute("INSERT INTO own (aggregate_type, aggregate_id, event_type, payload)"
                       " SELECT %s, 'k', 'T', convert_to(%s || n, 'UTF8') FROM generate_series(1, %s) n", self.p.name, what, count)

    def deliver(self, count, what):
        self.p.walpost.start()
        self.insert(count, what)
        self.p.wait_confirmed()
        assert self.p.walpost.stop() == 0

    def delivered(self, what):
        payloads = [record.envelope.payload.decode() for record in self.p.records()]
        return sum(payload.startswith(what) for payload in payloads)


# A record of a transaction that the failover lost says nothing about a row that has its id now.
@pytest.mark.full
@pytest.mark.smoke
def test_ids_that_a_failover_gives_out_again_belong_to_new_rows_which_are_sent(make_pipeline, workspace):
    primary, standby = workspace.postgres(), workspace.postgres(start=False)
    p = make_pipeline(on_postgres=primary, config=NumberedTable.config)
    table = NumberedTable(p)
    table.deliver(20, "old ")
    failed_over_without_the_newest(p, primary, standby, lambda: table.deliver(200, "lost "))
    table.insert(60, "new ")
    assert ", 60 unknown" in p.walpost.verb("audit", "--wait", "0s", check=False).stdout, "without a slot"
    made = p.walpost.verb("slot", "recreate", "--yes").stdout
    assert table.delivered("new ") == 60, made
    assert "60 events sent, 20 are in Kafka already" in made


@pytest.mark.full
def test_ids_that_a_server_set_back_gives_out_again_are_warned_of(make_pipeline, workspace):
    postgres = workspace.postgres()
    p = make_pipeline(on_postgres=postgres, config=NumberedTable.config)
    table = NumberedTable(p)
    table.deliver(5, "old ")
    copy = postgres.copy_disk(workspace.path / "copy")
    p.write_wal_past(p.wal_position() + 2_000_000)
    table.deliver(20, "lost ")
    postgres.put_back(copy)
    table.insert(10, "new ")
    warning = "has 20 record(s) from beyond the end of its log"
    assert warning in p.walpost.verb("audit", "--wait", "0s", check=False).stdout
    assert warning in p.walpost.verb("slot", "recreate", "--yes").stdout
    p.walpost.start()
    assert warning in p.walpost.verb("replay", "--missing", "--dry-run").stdout
    assert table.delivered("new ") == 10


# PostgreSQL writes down seldom what was confirmed, so after a crash it sends rows again that were nobody's.
@pytest.mark.full
def test_outbox_and_prefix_that_are_adopted_keep_the_rows_of_before_out_when_postgresql_forgets(make_pipeline, workspace):
    postgres = workspace.postgres(settings={"checkpoint_timeout": "'1h'"})
    p = make_pipeline(on_postgres=postgres, config={"outboxes": [{"table": "outbox.events"}]})
    p.walpost.verb("init")
    p.execute("CREATE TABLE public.second (LIKE outbox.events INCLUDING DEFAULTS INCLUDING IDENTITY)")
    row = "INSERT INTO public.second (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'Tested')"
    p.start()
    p.insert(1, 10)
    p.wait_confirmed()
    p.execute("CHECKPOINT")
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE public.second")
    p.execute(row, p.name)
    p.execute("SELECT pg_logical_emit_message(true, 'mine', 'nobody reads it')")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    configuration = json.loads(p.walpost.file.read_text())
    configuration["outboxes"].append(configuration["outboxes"][0] | {"table": "public.second"})
    if postgres.major >= 14:
        configuration["messages"] = {"prefixes": ["mine"], "topic": p.name}
    p.walpost.file.write_text(json.dumps(configuration))
    p.walpost.start()
    p.execute("SELECT pg_logical_emit_message(true, 'other', 'no event, but something to confirm')")
    p.wait_confirmed()
    for again in ("same process", "next process"):
        postgres.kill9()
        if again == "next process":
            assert p.walpost.stop() == 0
        postgres.start()
        if again == "next process":
            p.walpost.start()
        p.walpost.wait_state("streaming", 60)
        p.execute("SELECT pg_logical_emit_message(true, 'other', 'no event')")
        p.wait_confirmed()
    p.execute(row, p.name)
    p.wait_confirmed()
    assert len(p.records()) == 11


# No event that could be recognized was delivered since the decision. `slot advance` notes in the database what it left out; after
# `slot recreate` only the clock shows that what comes before the decision was written after it.
@pytest.mark.smoke
@pytest.mark.parametrize("verb", [pytest.param("recreate", marks=pytest.mark.full), "advance", pytest.param("advance --to", marks=pytest.mark.full)])
def test_server_set_back_to_before_a_decision(make_pipeline, workspace, verb):
    postgres = workspace.postgres()
    p = make_pipeline(on_postgres=postgres)
    p.walpost.init()
    delivered_and_stopped(p, 1, 20)
    copy = postgres.copy_disk(workspace.path / "copy")
    p.insert(21, 25)
    there = [p.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0]] if "--to" in verb else []
    p.walpost.verb("slot", *verb.split(), *there, "--yes")
    end = p.wal_position()
    postgres.put_back(copy)
    p.insert(101, 120)
    p.write_wal_past(end)
    p.insert(121, 140)
    assert "set back" in halted(p)
    go_on_from_here(p)
    p.wait_confirmed()
    assert not set(p.committed()) - {record.id for record in p.records()}
    assert p.walpost.stop() == 0


def promoted_from_one_ahead(workspace):
    """The clock of its former primary was ten minutes ahead."""
    clock = FakeClock(workspace.path / "clock")
    clock.set(600)
    ahead = workspace.postgres(start=False)
    ahead.env = clock.env
    ahead.start()
    postgres = workspace.postgres(start=False)
    postgres.make_standby_of(ahead)
    assert ahead.execute("SELECT clock_timestamp()")[0][0].timestamp() > time.time() + 500
    ahead.execute("CREATE TABLE public.replayed ()")
    servers.wait_for(lambda: postgres.execute("SELECT to_regclass('public.replayed')")[0][0], 30, "the standby")
    postgres.execute("SELECT pg_promote()")
    ahead.stop("immediate")
    return postgres


@pytest.mark.full
@pytest.mark.smoke
@pytest.mark.parametrize(("live", "promoted"), [(True, False), (False, False), (False, True)])
def test_server_set_back_to_before_an_outbox_was_adopted(make_pipeline, workspace, live, promoted):
    postgres = promoted_from_one_ahead(workspace) if promoted else workspace.postgres()
    p = make_pipeline(on_postgres=postgres, config={"outboxes": [{"table": "outbox.events"}]})
    p.walpost.verb("init")
    p.execute("CREATE TABLE public.second (LIKE outbox.events INCLUDING DEFAULTS INCLUDING IDENTITY)")
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE public.second")
    row = "INSERT INTO public.second (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'Tested')"
    delivered_and_stopped(p, 1, 10)
    copy_disk = postgres.copy_disk_of_a_moment if promoted else postgres.copy_disk  # a restart would forget what it replayed
    copy = copy_disk(workspace.path / "copy")
    p.walpost.start()
    p.write_wal_past(p.wal_position() + 1_000_000)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    configuration = json.loads(p.walpost.file.read_text())
    configuration["outboxes"].append(configuration["outboxes"][0] | {"table": "public.second"})
    p.walpost.file.write_text(json.dumps(configuration))
    p.walpost.start()
    p.wait_confirmed()
    end = p.wal_position()
    if live:  # it comes again when the others have written
        p.walpost.signal(signal.SIGSTOP)
        p.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", p.name)
    else:
        assert p.walpost.stop() == 0
    postgres.put_back(copy)
    p.execute(row, p.name)
    p.write_wal_past(end)
    if live:
        p.walpost.signal(signal.SIGCONT)
        p.walpost.wait_state("halted", 60)
        assert "set back" in p.walpost.status()["halt"]["detail"]
    else:
        assert "set back" in halted(p)
    go_on_from_here(p)
    p.execute(row, p.name)
    p.wait_confirmed()
    assert len({record.id for record in p.records()}) == 12
    assert p.walpost.stop() == 0
