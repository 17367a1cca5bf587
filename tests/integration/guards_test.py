"""someone else on slot, table, publication or progress is noticed, named, and passed by the way out that the message names."""

import contextlib
import re
import signal

import pipeline
import psycopg2
import pytest
import servers
from rejecting import dead_letters


def started(p, events=20):
    """Streaming, with `events` delivered, confirmed and remembered; then stopped."""
    p.start()
    p.insert(1, events)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    return p


def halted(p, reason):
    """Starts walpost; the halt's message."""
    p.walpost.start(wait="halted")
    status = p.walpost.status()
    assert status["halt"]["reason"] == reason, status["halt"]
    assert status["gap_guard"] == "on"
    assert f"docs/runbook.md, {reason}" in status["halt"]["detail"]
    servers.wait_for(lambda: not (p.slot() or {"active": False})["active"], 20, "the slot to be free")
    return status["halt"]["detail"]


def look_again(p):
    p.walpost.signal(signal.SIGHUP)
    p.walpost.wait_state("streaming")


def rejected_without_yes(p, *verb):
    """Says what would be left out, and changes nothing."""
    before = (p.slot(), len(p.kafka.read_all(f"walpost.progress.{p.name}")) if has_topic(p) else 0)
    done = p.walpost.verb(*verb, check=False)
    assert done.returncode == 64 and "--yes" in done.stderr, done
    assert any(words in done.stdout for words in ("not sent", "sent again", "skipped", "Kafka does not hold")), done.stdout
    assert (p.slot(), len(p.kafka.read_all(f"walpost.progress.{p.name}")) if has_topic(p) else 0) == before
    return done.stdout


def has_topic(p):
    return f"walpost.progress.{p.name}" in p.kafka.admin().list_topics(timeout=10).topics


def goes_on(p, first=1001, count=20):
    """New events arrive, and the slot follows."""
    before = {record.id for record in p.records()}
    p.insert(first, first + count - 1)
    p.wait_confirmed()
    new = [record for record in p.records() if record.id not in before]
    assert len(new) == count
    return new


@pytest.mark.smoke
def test_slot_advanced_by_a_foreign_hand_while_walpost_is_down(make_pipeline):
    p = started(make_pipeline())
    p.insert(101, 105)
    p.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", p.name)
    assert "`walpost slot advance --yes`" in halted(p, "slot_moved")
    rejected_without_yes(p, "slot", "advance")
    p.walpost.verb("slot", "advance", "--yes")
    look_again(p)
    goes_on(p)
    assert len(p.records()) == 40, "the five are left out, and nothing said otherwise"
    assert p.walpost.stop() == 0
    p.walpost.start()  # what was adopted is remembered


def test_slot_dropped_and_made_anew_by_a_foreign_hand(make_pipeline):
    p = started(make_pipeline())
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    p.insert(101, 105)
    p.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", p.name)
    halted(p, "slot_moved")
    p.walpost.verb("slot", "advance", "--yes")
    look_again(p)
    goes_on(p)


# Failure 9.
@pytest.mark.smoke
def test_slot_that_is_gone_is_made_anew_by_recreate(make_pipeline):
    p = started(make_pipeline())
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    halted(p, "slot_missing")
    assert p.walpost.verb("slot", "advance", "--yes", check=False).returncode == 78
    assert "new slot" in rejected_without_yes(p, "slot", "recreate")
    p.walpost.verb("slot", "recreate", "--yes")
    look_again(p)
    goes_on(p)


@pytest.mark.smoke
def test_publication_dropped_and_made_anew(make_pipeline):
    p = started(make_pipeline())
    p.execute(f"DROP PUBLICATION {p.name}")
    p.execute(f"CREATE PUBLICATION {p.name} FOR TABLE outbox.events"
              " WITH (publish = 'insert', publish_via_partition_root = true)")
    halted(p, "publication_missing")
    p.walpost.verb("slot", "recreate", "--yes")
    look_again(p)
    goes_on(p)


@pytest.mark.full
def test_publication_that_is_gone_is_made_by_recreate(make_pipeline):
    p = started(make_pipeline())
    p.execute(f"DROP PUBLICATION {p.name}")
    p.walpost.verb("slot", "recreate", "--yes")
    p.walpost.start()
    goes_on(p)


# Failure 33.
def test_table_dropped_and_created(make_pipeline):
    p = started(make_pipeline())
    p.execute("ALTER TABLE outbox.events RENAME TO old_events")
    p.execute("CREATE TABLE outbox.events (LIKE outbox.old_events INCLUDING ALL)")
    p.execute("DROP TABLE outbox.old_events")
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE outbox.events")
    halted(p, "table_replaced")
    p.walpost.verb("slot", "advance", "--yes")
    look_again(p)
    goes_on(p)


# Failure 74.
def test_progress_topic_deleted_while_walpost_is_down(make_pipeline):
    p = started(make_pipeline())
    topic = f"walpost.progress.{p.name}"
    admin = p.kafka.admin()
    admin.delete_topics([topic])[topic].result(timeout=30)
    servers.wait_for(lambda: not has_topic(p), 30, "the topic to be gone")
    assert "walpost init" in halted(p, "progress_unreadable")
    p.walpost.verb("init")
    p.walpost.signal(signal.SIGHUP)
    # Made anew and empty, it still says nothing about a slot that has moved.
    servers.wait_for(lambda: (s := p.walpost.status()) and s["state"] == "halted" and "no progress" in s["halt"]["detail"],
                     30, "the second halt")
    p.walpost.verb("slot", "advance", "--yes")
    look_again(p)
    goes_on(p)
    p.judge()


def test_transaction_is_skipped_by_advance_to(make_pipeline):
    p = started(make_pipeline())
    p.insert(101, 101, topic="nobody-made-this-topic")
    p.insert(201, 205)
    p.walpost.start(wait="halted")
    detail = p.walpost.status()["halt"]["detail"]
    commit_lsn = detail.split("commit LSN ")[1].split(",")[0]
    assert "skipped" in rejected_without_yes(p, "slot", "advance", "--to", commit_lsn)
    p.walpost.verb("slot", "advance", "--to", commit_lsn, "--yes")
    look_again(p)
    p.wait_confirmed()
    assert len({record.id for record in p.records()}) == 25, "all but the one"
    back = p.walpost.verb("slot", "advance", "--to", "0/1", "--yes", check=False)
    assert back.returncode == 78
    assert_recorded_by_a_dead_letter(p, commit_lsn)


def assert_recorded_by_a_dead_letter(p, commit_lsn):
    (row, _, _), = dead_letters(p)
    assert row["reason"] == "transactions_skipped" and commit_lsn in row["detail"]
    assert int(row["position"].split("-")[2], 16) == servers.lsn(commit_lsn)


# Failure 53.
@pytest.mark.smoke
def test_poison_in_the_log_halts_and_is_passed_by_advance_to(make_pipeline):
    """A character that UTF-8 lacks, in one of five rows: the server ends the stream at the same place for ever."""
    p = started(make_pipeline(encoding="WIN1252"))
    p.insert(101, 101)
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) SELECT gen_random_uuid(), %s, 'key-1',"
              " CASE n WHEN 2 THEN chr(129) ELSE 'Tested' END FROM generate_series(1, 5) n", p.name)
    p.insert(301, 305)
    detail = halted(p, "poison_wal")
    assert "has no equivalent in encoding" in detail
    commit_lsn = re.search(r"commit LSN ([0-9A-F]+/[0-9A-F]+)", detail)[1]
    p.walpost.verb("slot", "advance", "--to", commit_lsn, "--yes")
    look_again(p)
    p.wait_confirmed()
    assert len({record.id for record in p.records()} & set(p.committed())) >= 26, "all but the transaction, of which a part may be there"
    assert_recorded_by_a_dead_letter(p, commit_lsn)
    goes_on(p)


# The verb keeps others from the slot meanwhile, by a stream of its own.
@pytest.mark.smoke
def test_advance_goes_on_where_what_follows_is_poison_too(make_pipeline):
    p = started(make_pipeline(encoding="WIN1252"))
    for _ in range(2):
        p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES (gen_random_uuid(), %s, 'key-1', chr(129))", p.name)
    first = re.search(r"commit LSN ([0-9A-F]+/[0-9A-F]+)", halted(p, "poison_wal"))[1]
    p.walpost.verb("slot", "advance", "--to", first, "--yes")
    p.walpost.signal(signal.SIGHUP)
    servers.wait_for(lambda: (p.walpost.status()["halt"] or {}).get("detail", first).count(first) == 0, 60, "the next one")
    p.walpost.verb("slot", "advance", "--to", re.search(r"commit LSN ([0-9A-F]+/[0-9A-F]+)", p.walpost.status()["halt"]["detail"])[1], "--yes")
    look_again(p)
    goes_on(p)


# Failure 53.
def test_poison_behind_a_type_without_a_binary_form_halts_too(make_pipeline):
    """Binary values fail at the first of them, text at the second."""
    p = make_pipeline(encoding="WIN1252")
    p.execute(f"CREATE PUBLICATION {p.name} FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)")
    started(p).execute("CREATE TABLE public.rights (acl aclitem[])")
    p.execute("INSERT INTO public.rights VALUES (ARRAY['postgres=r/postgres'::aclitem])")
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES (gen_random_uuid(), %s, 'key-1', chr(129))", p.name)
    assert "has no equivalent in encoding" in halted(p, "poison_wal")


# Nothing is confirmed, and the next connection waits for Kafka.
@pytest.mark.full
def test_type_without_a_binary_form_is_no_poison_while_kafka_is_away(make_pipeline, workspace):
    p = make_pipeline(on_kafka=workspace.kafka())
    p.execute(f"CREATE PUBLICATION {p.name} FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)")
    p.start()
    p.insert(1, 5)
    p.wait_confirmed()
    p.kafka.process.send_signal(signal.SIGSTOP)
    p.insert(6, 10)
    p.execute("CREATE TABLE public.rights (acl aclitem[])")
    p.execute("INSERT INTO public.rights VALUES (ARRAY['postgres=r/postgres'::aclitem])")
    p.insert(11, 15)
    p.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")  # the first version that sends binary values is 14
    servers.wait_for(lambda: "cannot be read yet" in (p.walpost.status()["last_error"] or ""), 60, "an attempt without Kafka")
    assert p.walpost.status()["halt"] is None
    p.kafka.process.send_signal(signal.SIGCONT)
    p.wait_confirmed()
    assert set(p.ids()) == set(p.stored_ids())


def publishing_all_tables(p):
    p.execute(f"CREATE PUBLICATION {p.name} FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)")
    p.start()
    p.execute("CREATE TABLE public.rights (acl aclitem[])")
    return p


NO_BINARY_FORM = "INSERT INTO public.rights VALUES (ARRAY['postgres=r/postgres'::aclitem]);"


# The slot falls back then, and the row comes again.
@pytest.mark.full
def test_crashes_of_an_idle_server_behind_a_type_without_a_binary_form_are_no_poison(make_pipeline, workspace):
    postgres = workspace.postgres()
    p = publishing_all_tables(make_pipeline(on_postgres=postgres))
    p.insert(1, 5)
    p.execute(NO_BINARY_FORM)
    p.wait_confirmed()
    for _ in range(4):
        postgres.kill9()
        postgres.start()
        servers.wait_for(lambda: p.walpost.status()["halt"] or (p.walpost.state() == "streaming" and p.slot()["active"]), 60, "it to stream again")
        p.wait_confirmed()
        assert p.walpost.status()["halt"] is None
    goes_on(p)


def test_bytea_that_comes_as_text_is_not_larger_for_that(make_pipeline):
    p = publishing_all_tables(make_pipeline(config={"source": {"event_bytes_max": "1MiB"}}))
    p.execute("SELECT outbox.set_payload_max(10000000)")
    p.execute(NO_BINARY_FORM + "INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)"
              " VALUES (gen_random_uuid(), %s, 'key-1', 'Large', convert_to(repeat('x', 700000), 'UTF8'))", p.name)
    p.wait_confirmed()
    assert p.ids() == p.stored_ids() and len(p.ids()) == 1


def test_verbs_reject_while_walpost_streams(make_pipeline):
    p = make_pipeline().start()
    for verb in ("advance", "recreate"):
        done = p.walpost.verb("slot", verb, "--yes", check=False)
        assert done.returncode == 78 and "in use" in done.stderr, done
    goes_on(p)


# Failure 4.
@pytest.mark.smoke
def test_crash_of_postgres_repeats_nothing(make_pipeline, workspace):
    postgres = workspace.postgres()
    p = make_pipeline(on_postgres=postgres).start()
    p.insert_transactions(1, 2000)
    p.wait_confirmed()
    confirmed = p.slot()["confirmed"]
    p.walpost.kill9()
    postgres.kill9()
    postgres.start()
    assert p.slot()["confirmed"] < confirmed, "the case this test is about"
    p.walpost.start()
    p.insert_transactions(2001, 2100)
    p.wait_confirmed()
    assert pipeline.judge(p.committed(), p.records()) == 0


@pytest.mark.full
@pytest.mark.smoke
def test_walpost_killed_loses_nothing(make_pipeline):
    p = make_pipeline().start()
    for first in (1, 3001, 6001):
        p.insert_transactions(first, first + 2999)
        p.walpost.kill9()
        p.insert_transactions(first + 10_000, first + 10_099)
        p.walpost.start()
    p.wait_confirmed()
    p.judge()


def test_first_start_and_stop_without_events_are_remembered(make_pipeline):
    p = make_pipeline().start()
    assert p.walpost.stop() == 0
    p.walpost.start()
    goes_on(p)


def test_without_a_progress_topic_the_guard_is_off(make_pipeline):
    p = make_pipeline(config={"delivery": {"progress_topic": ""}}).start()
    assert p.walpost.status()["gap_guard"] == "off"
    assert "walpost_gap_guard{" in p.walpost.get("/metrics")[1]
    assert not has_topic(p)
    goes_on(p)


def test_skip_that_failed_and_was_discarded_is_noted_again(make_pipeline):
    p = started(make_pipeline())
    p.insert(101, 101, topic="nobody-made-this-topic")
    p.walpost.start(wait="halted")
    commit_lsn = p.walpost.status()["halt"]["detail"].split("commit LSN ")[1].split(",")[0]
    p.execute("CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pid) FROM"
              " pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() AND application_name LIKE 'walpost%%';"
              " RETURN NULL; END $$")
    p.execute("CREATE TRIGGER cut AFTER INSERT ON walpost.dead_letters FOR EACH ROW EXECUTE FUNCTION cut()")
    assert p.walpost.verb("slot", "advance", "--to", commit_lsn, "--yes", check=False).returncode != 0
    p.execute("DROP TRIGGER cut ON walpost.dead_letters")
    p.walpost.verb("dlq", "discard", "--reason", "transactions_skipped", "--yes")
    p.walpost.verb("slot", "advance", "--to", commit_lsn, "--yes")
    assert p.execute("SELECT closed_at IS NULL FROM walpost.dead_letters ORDER BY seq") == [(False,), (True,)]


@pytest.mark.full
def test_applications_that_take_every_ordinary_connection_do_not_keep_walpost_away(make_pipeline, workspace):
    p = started(make_pipeline(on_postgres=workspace.postgres(settings={"max_connections": "12"})))
    with contextlib.ExitStack() as others:
        cursor = others.enter_context(contextlib.closing(p.postgres.connect())).cursor()
        with pytest.raises(psycopg2.OperationalError, match="too many clients"):
            while True:
                others.enter_context(contextlib.closing(p.postgres.connect()))
        p.walpost.start()
        cursor.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", (p.name,))
        servers.wait_for(lambda: p.walpost.status()["reconnects"] and p.walpost.state() == "streaming", 30, "walpost to connect again")
    goes_on(p)
