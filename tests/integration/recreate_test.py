"""`walpost slot recreate`: a slot that is gone is made anew, and what Kafka lacks by then is sent from the tables."""

import contextlib
import json
import subprocess

import pytest
import servers
from rejecting import ACLS, permit, start_parking
from table_writers import Writers


def delivered(p, first=1, last=20):
    p.insert(first, last)
    p.wait_confirmed()


def lose_slot(p):
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)


def stored(p):
    return sorted(row[0] for row in p.execute("SELECT id::text FROM outbox.events"))


def ids(records):
    return sorted(record.id for record in records)


def recreate(p, *more):
    return p.walpost.verb("slot", "recreate", "--yes", *more).stdout


def gap_line(text):
    line, = (line for line in text.splitlines() if line.startswith("gap "))
    return line


# The table is complete in Kafka again, and the audit says so, and also what somebody takes away by hand.
@pytest.mark.smoke
def test_slot_dropped_under_load_is_made_anew_and_nothing_is_missing(make_pipeline):
    p = make_pipeline().start()
    with Writers(p, 4):
        servers.wait_for(lambda: len(stored(p)) > 500, 60, "some rows")
        p.walpost.kill9()
        written = len(stored(p))
        servers.wait_for(lambda: len(stored(p)) > written + 300, 60, "rows that are not delivered")
        lose_slot(p)
        p.walpost.start(wait="halted")
        assert p.walpost.status()["halt"]["reason"] == "slot_missing"
        assert p.walpost.stop() == 0
        made = recreate(p)
        assert "done" in made and int(gap_line(made).split()[2]) >= 300, made
        p.walpost.start()
        more = len(stored(p))
        servers.wait_for(lambda: len(stored(p)) > more + 100, 60, "rows for the new slot")
    p.wait_confirmed()
    records = p.records()
    assert sorted(set(ids(records))) == stored(p)
    for record in records:
        assert record.headers.get("walpost-redelivery", b"gap") == b"gap"
    audit = p.walpost.verb("audit").stdout
    assert f"\n0 missing of {len(stored(p)):,}\n" in audit, audit
    taken = p.kafka.read_all(p.name)
    gone = taken.pop(len(taken) // 2)
    p.kafka.rewrite(p.name, [record for record in taken if record_id(record) != record_id(gone)])
    found = p.walpost.verb("audit", "--json", check=False)
    assert found.returncode == 65 and json.loads(found.stdout)["missing_ids"] == [record_id(gone)]


def record_id(message):
    return dict(message.headers())["id"].decode()


def test_rows_that_a_note_proves_delivered_are_not_even_looked_at(make_pipeline):
    p = make_pipeline().start()
    delivered(p, 1, 50)
    p.execute("SELECT * FROM outbox.maintain()")
    delivered(p, 51, 60)
    # The connect notes how far was delivered.
    assert p.walpost.stop() == 0
    p.walpost.start()
    assert p.walpost.stop() == 0
    p.insert(61, 65)
    lose_slot(p)
    dry = p.walpost.verb("slot", "recreate", check=False)
    assert dry.returncode == 64 and "committed after" in dry.stdout and "--yes" in dry.stderr
    assert gap_line(recreate(p)) == "gap          outbox.events: 5 events sent, 10 are in Kafka already"
    p.walpost.start()
    delivered(p, 66, 70)
    assert ids(p.records()) == stored(p), "each once"


# As a dump brings rows along, or a subscription: with the number of a transaction that was another's here.
@pytest.mark.parametrize("tx", ["700", "4000000000"])
def test_note_proves_nothing_about_newer_rows_with_a_tx_of_another_cluster(make_pipeline, tx):
    p = make_pipeline().start()
    delivered(p, 1, 20)
    p.execute("SELECT * FROM outbox.maintain()")
    delivered(p, 21, 25)
    assert p.walpost.stop() == 0
    p.walpost.start()  # notes how far was delivered
    assert p.walpost.stop() == 0
    p.execute("INSERT INTO outbox.events (id, tx, aggregate_type, aggregate_id, event_type, payload)"
              " VALUES (gen_random_uuid(), %s, %s, 'k', 'Restored', 'x')", tx, p.name)
    lose_slot(p)
    assert gap_line(recreate(p)) == "gap          outbox.events: 1 event sent, 5 are in Kafka already"
    assert ids(p.records()) == stored(p)


# A snapshot does not list its own transaction as open.
@pytest.mark.parametrize("emits", ["before", "after"])
def test_note_proves_nothing_about_the_transaction_that_made_it(make_pipeline, emits):
    p = make_pipeline().start()
    delivered(p, 1, 5)
    with contextlib.closing(p.postgres.connect(p.database, autocommit=False)) as connection, connection.cursor() as cursor:
        steps = [lambda: cursor.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)"
                                        " VALUES (gen_random_uuid(), %s, 'k', 'Late', 'x')", (p.name,)),
                 lambda: cursor.execute("SELECT pg_current_xact_id()"),
                 lambda: p.insert(6, 10),  # has a later id
                 lambda: cursor.execute("SELECT * FROM outbox.maintain()")]
        for step in steps if emits == "before" else [*steps[1:], steps[0]]:
            step()
        delivered(p, 11, 15)
        assert p.walpost.stop() == 0
        p.walpost.start()
        p.wait_confirmed()
        p.walpost.kill9()
        connection.commit()
    lose_slot(p)
    assert gap_line(recreate(p)).startswith("gap          outbox.events: 1 event sent")
    assert ids(p.records()) == stored(p)


def test_note_beyond_what_the_database_knows_to_be_delivered_proves_nothing(make_pipeline):
    p = make_pipeline().start()
    delivered(p, 1, 50)
    p.execute("SELECT * FROM outbox.maintain()")
    delivered(p, 51, 60)
    assert p.walpost.stop() == 0
    lose_slot(p)
    p.execute("UPDATE walpost.pipeline SET delivered_lsn = NULL")
    assert "the database has not noted" in p.walpost.verb("slot", "recreate", check=False).stdout
    assert gap_line(recreate(p)).endswith("0 events sent, 60 are in Kafka already")


# They stand at positions of another log, and see transactions that this one has not delivered.
@pytest.mark.smoke
def test_notes_that_came_with_a_dump_prove_nothing_delivered(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    assert p.walpost.stop() == 0
    p.insert(21, 22)
    p.execute("INSERT INTO outbox.retention_note SELECT now(), pg_current_snapshot(), delivered_lsn, c.system_identifier - 1"
              " FROM walpost.pipeline, pg_control_system() c")
    lose_slot(p)
    assert gap_line(recreate(p)).startswith("gap          outbox.events: 2 events sent")
    assert ids(p.records()) == stored(p) and len(stored(p)) == 22


def test_rows_without_any_note_are_all_compared(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    assert p.walpost.stop() == 0
    p.insert(21, 25)
    lose_slot(p)
    assert gap_line(recreate(p)) == "gap          outbox.events: 5 events sent, 20 are in Kafka already"
    assert ids(p.records()) == stored(p)


OWN = {"outboxes": [{"table": "public.own"}]}


def test_id_that_a_writer_uses_twice_leaves_doubt_about_its_rows_alone(make_pipeline):
    """One of the two is in Kafka. It is said before there is a new slot, with the way out."""
    p = make_pipeline().start()
    p.insert(1, 5)
    twice = "SELECT outbox.emit('T', %s, %s, 'x'::text, id => '0193e3a4-0000-7000-8000-000000000001')"
    p.execute(twice, p.name, "app")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.execute(twice, p.name, "app")
    p.insert(6, 10)
    lose_slot(p)
    rejected = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 78 and "0193e3a4-0000-7000-8000-000000000001" in rejected.stderr, rejected
    assert "--send-unproven" in rejected.stderr and p.slot() is None, rejected
    done = p.walpost.verb("slot", "recreate", "--yes", "--send-unproven").stdout
    assert "7 events sent, 5 are in Kafka already, of 2 it is not known whether Kafka has them" in done, done
    p.walpost.start()
    p.wait_confirmed()
    assert p.walpost.verb("audit").returncode == 0


def test_id_that_a_writer_uses_with_another_key_leaves_no_doubt(make_pipeline):
    p = make_pipeline().start()
    p.insert(1, 5)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.insert(6, 10)
    lost, = p.execute("SELECT id::text FROM outbox.events ORDER BY seq DESC LIMIT 1")
    lose_slot(p)
    p.walpost.verb("slot", "recreate", "--yes", "--leave-gap")
    p.execute("SELECT outbox.emit('T', %s, 'another', 'x'::text, id => %s)", p.name, lost[0])
    p.walpost.start()
    p.wait_confirmed()
    done = p.walpost.verb("replay", "--missing", "--in-place").stdout
    assert "outbox.events: 5 events sent" in done and "not known" not in done, done
    assert p.walpost.verb("audit").returncode == 0


def test_table_of_ones_own_without_order_time_or_transaction(make_pipeline):
    p = make_pipeline(config=OWN)
    p.execute("CREATE TABLE own (id uuid DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text, event_type text,"
              " payload bytea)")
    p.start()
    fill = "INSERT INTO own (aggregate_type, aggregate_id, event_type) SELECT %s, 'k', 'Tested' FROM generate_series(1, %s)"
    p.execute(fill, p.name, 30)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.execute(fill, p.name, 7)
    lose_slot(p)
    assert gap_line(recreate(p)) == "gap          public.own: 7 events sent, 30 are in Kafka already"
    assert ids(p.records()) == sorted(row[0] for row in p.execute("SELECT id::text FROM own"))


@pytest.mark.full
def test_interrupted_closing_is_finished_before_anything_is_streamed(make_pipeline):
    p = make_pipeline()
    p.walpost.verb("init", "--plain-table")
    p.walpost.start()
    delivered(p)
    assert p.walpost.stop() == 0
    p.insert(21, 30)
    # The first that is missing cannot be sent, so the new slot is there, and the gap is open.
    bad, = p.execute("UPDATE outbox.events SET aggregate_type = 'nowhere' WHERE seq = (SELECT min(seq) + 25 FROM outbox.events)"
                     " RETURNING id::text")[0]
    lose_slot(p)
    p.execute("SELECT * FROM outbox.maintain(keep => '0')")  # notes a position below that of the new slot
    stopped = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert stopped.returncode == 78 and "nowhere" in stopped.stderr
    p.insert(31, 35)
    p.walpost.start(wait="halted")
    assert p.walpost.status()["halt"]["reason"] == "init_incomplete"
    assert p.walpost.stop() == 0
    # What is still to be sent may stand nowhere else.
    p.execute("SELECT * FROM outbox.maintain(keep => '0')")
    assert len(stored(p)) == 35
    p.execute("UPDATE outbox.events SET aggregate_type = %s WHERE id = %s", p.name, bad)
    finish = p.walpost.verb("init", "--backfill").stdout
    assert "5 events sent" in gap_line(finish), finish
    p.walpost.start()
    p.wait_confirmed()
    assert ids(p.records()) == stored(p), "each once"


# The slot is there, and the snapshot on record is that of the slot before, which saw none of these rows.
@pytest.mark.parametrize("progress", ["", None])
def test_slot_that_was_made_anew_but_not_recorded_is_made_once_more(make_pipeline, progress):
    p = make_pipeline(config={} if progress is None else {"delivery": {"progress_topic": progress}})
    p.start()
    delivered(p)
    assert p.walpost.stop() == 0
    p.insert(21, 30)
    lose_slot(p)
    p.execute("CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;"
              " CREATE TRIGGER reject BEFORE INSERT ON walpost.pipeline FOR EACH ROW EXECUTE FUNCTION reject()")
    assert p.walpost.verb("slot", "recreate", "--yes", check=False).returncode != 0
    assert p.slot(), "it was made"
    p.execute("DROP TRIGGER reject ON walpost.pipeline")
    assert p.walpost.verb("init", "--backfill", check=False).returncode == 78
    p.insert(31, 35)
    p.walpost.start(wait="halted")
    assert p.walpost.status()["halt"]["reason"] == "init_incomplete"
    assert p.walpost.stop() == 0
    recreate(p)
    p.walpost.start()
    p.wait_confirmed()
    assert ids(p.records()) == stored(p) and len(stored(p)) == 35


def test_streaming_can_begin_at_a_slot_whose_gap_was_closed_by_another_attempt(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    assert p.walpost.stop() == 0
    p.insert(21, 30)
    lose_slot(p)
    p.kafka.alter_topic(f"walpost.progress.{p.name}", {"max.message.bytes": "20"})
    assert p.walpost.verb("slot", "recreate", "--yes", check=False).returncode != 0
    p.kafka.alter_topic(f"walpost.progress.{p.name}", {"max.message.bytes": "1048588"})
    if p.walpost.verb("init", "--backfill", check=False).returncode != 0:
        recreate(p)
    p.walpost.start()
    p.wait_confirmed()
    assert ids(p.records()) == stored(p)


def test_what_compression_makes_small_enough_is_sent(make_pipeline, kafka):
    p = make_pipeline(create_topic=False, properties={"compression.type": "zstd"})
    kafka.create_topic(p.name, 1, {"max.message.bytes": "100000"})
    p.start()
    p.insert_large(300_000)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.insert_large(300_000)
    p.insert(1, 5)
    lose_slot(p)
    recreate(p)
    assert ids(p.records()) == stored(p) and len(stored(p)) == 7
    p.walpost.start()
    p.wait_confirmed()


# A broker rejects a whole batch for one record, where nobody could know it beforehand.
@pytest.mark.parametrize("described", [True, False])
def test_row_that_its_topic_does_not_take_is_the_one_that_is_named(make_pipeline, workspace, described):
    kafka = workspace.kafka(settings=ACLS)
    p = make_pipeline(on_kafka=kafka, config={"outboxes": [{"preset": "debezium", "table": "public.own", "topic": "{aggregatetype}", "topics": {"allowed": ["*"]}}]}, create_topic=False)
    p.execute("CREATE TABLE own (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload jsonb,"
              " n integer, seq bigint GENERATED ALWAYS AS IDENTITY, tx xid8 DEFAULT pg_current_xact_id())")
    p.execute("INSERT INTO own (aggregatetype, aggregateid, type, n) SELECT %s, CASE WHEN n <> 7 THEN 'key-' || n END, 'Tested', n"
              " FROM generate_series(1, 10) n", p.name)
    bad, = p.execute("SELECT id::text FROM own WHERE n = 7")[0]
    kafka.create_topic(p.name, 1, {"cleanup.policy": "compact"})
    if not described:
        permit(kafka, p.name, "Describe", "Write", "Read")
    stopped = p.walpost.verb("init", "--backfill", check=False)
    assert stopped.returncode == 78 and bad in stopped.stderr
    assert not any(other in stopped.stderr for other, in p.execute("SELECT id::text FROM own WHERE n <> 7"))
    unproven = [] if described else ["--send-unproven"]
    done = p.walpost.verb("init", "--backfill", "--skip-undeliverable", *unproven)
    assert "1 left out" in done.stdout and bad in done.stderr
    assert sorted({dict(message.headers())["id"].decode() for message in kafka.read_all(p.name)}) == sorted(
        other for other, in p.execute("SELECT id::text FROM own WHERE n <> 7"))


def test_row_that_is_larger_than_the_users_limit_is_left_out_on_request(make_pipeline):
    p = make_pipeline(properties={"message.max.bytes": "200000"}).start()
    delivered(p)
    assert p.walpost.stop() == 0
    p.insert(21, 25)
    large = p.insert_large(500_000)
    lose_slot(p)
    stopped = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert stopped.returncode == 78 and "message.max.bytes" in stopped.stderr
    assert "1 left out" in p.walpost.verb("init", "--backfill", "--skip-undeliverable").stdout
    assert len(p.records()) == 25, large


@pytest.mark.full
def test_dead_letter_of_one_table_is_none_of_another_whose_ids_are_the_same(make_pipeline, kafka):
    allowed = {"a": ["t*", "nowhere"], "b": ["b-*"]}
    p = make_pipeline(config={"outboxes": [{"table": f"public.{table}", "topics": {"allowed": allowed[table]}} for table in "ab"],
                              "delivery": {"on_undeliverable": "dead_letter", "unknown_topic_wait": "100ms"}})
    other = "b-" + p.name
    kafka.create_topic(other, 1)

    def add(table, topic):
        p.execute(f"INSERT INTO {table} (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'T')", topic)

    for table in "ab":
        p.execute(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, seq bigint GENERATED ALWAYS AS IDENTITY, aggregate_type text, aggregate_id text,"
                  " event_type text, payload bytea, tx xid8 DEFAULT pg_current_xact_id(), created_at timestamptz DEFAULT now())")
    p.start()
    for topic in (p.name, "nowhere", p.name):
        add("a", topic)
    add("b", other)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    for _ in range(2):
        add("b", other)  # the first of them has the id of the dead letter
    lose_slot(p)
    recreate(p)
    assert sorted(dict(message.headers())["id"] for message in kafka.read_all(other)) == [b"1", b"2", b"3"]
    p.walpost.start()
    p.wait_confirmed()
    found = json.loads(p.walpost.verb("audit", "--json").stdout)
    assert found["missing"] == 0 and found["dead_lettered"] == 1 and found["repeats"] == 0, found


@pytest.mark.full
def test_interrupted_closing_goes_on_among_rows_of_the_same_order(make_pipeline):
    p = make_pipeline(config={"outboxes": [{"table": "public.own", "columns": {"seq": "n"}}]})
    p.execute("CREATE TABLE own (id uuid DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text, event_type text, payload bytea,"
              " n integer, tx xid8 DEFAULT pg_current_xact_id())")
    p.start()
    fill = "INSERT INTO own (n, aggregate_type, aggregate_id, event_type) SELECT %s, %s, 'k', 'Tested' FROM generate_series(1, %s)"
    p.execute(fill, 1, p.name, 500)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.execute(fill, 1, p.name, 10_000)
    p.execute(fill, 1, "nowhere", 1)
    p.execute(fill, 1, p.name, 1_000)
    p.execute(fill, None, p.name, 500)
    lose_slot(p)
    assert p.walpost.verb("slot", "recreate", "--yes", check=False).returncode == 78
    assert p.execute("SELECT backfill -> 'public.own' ->> 'seq' FROM walpost.pipeline") == [("1",)], "noted"
    p.execute("DELETE FROM own WHERE aggregate_type = 'nowhere'")
    p.walpost.verb("init", "--backfill")
    assert ids(p.records()) == sorted(row[0] for row in p.execute("SELECT id::text FROM own")), "each once"


@pytest.mark.full
def test_closing_that_is_begun_again_with_another_slot_still_knows_where_the_gap_begins(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    assert p.walpost.stop() == 0
    p.insert(21, 30)
    bad, = p.execute("UPDATE outbox.events SET aggregate_type = 'nowhere' WHERE seq = (SELECT min(seq) + 25 FROM outbox.events)"
                     " RETURNING id::text")[0]
    lose_slot(p)
    p.execute("SELECT * FROM outbox.maintain()")  # by the position of the next slot all ten would be taken for delivered
    assert p.walpost.verb("slot", "recreate", "--yes", check=False).returncode == 78
    p.insert(31, 35)
    p.execute("UPDATE outbox.events SET aggregate_type = %s WHERE id = %s", p.name, bad)
    assert "10 events sent" in gap_line(recreate(p))
    p.walpost.start()
    p.wait_confirmed()
    assert ids(p.records()) == stored(p), "each once"


def test_gap_is_left_on_request(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    assert p.walpost.stop() == 0
    p.insert(21, 25)
    lose_slot(p)
    assert "are not sent" in p.walpost.verb("slot", "recreate", "--leave-gap", check=False).stdout
    assert "gap " not in recreate(p, "--leave-gap")
    p.walpost.start()
    delivered(p, 31, 35)
    assert len(p.records()) == 25
    assert "5 missing" not in p.walpost.verb("audit", "--from", "0s").stdout
    audit = p.walpost.verb("audit", check=False)
    assert audit.returncode == 65 and "\n5 missing of 30\n" in audit.stdout


def test_what_stands_in_no_table_is_reported(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.execute("SELECT outbox.set_ephemeral(true)")
    p.walpost.start()
    delivered(p)
    assert p.walpost.stop() == 0
    lose_slot(p)
    assert "outbox.events keeps no rows" in recreate(p)


def test_dead_letters_are_not_sent_again(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}}).start()
    p.allow_bad_topics()
    delivered(p)
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('no topic', 'k', 't')")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.insert(21, 25)
    lose_slot(p)
    line = gap_line(recreate(p))
    assert line == "gap          outbox.events: 5 events sent, 20 are in Kafka already, 1 are dead letters"


def test_compacted_topic_keeps_the_newest_value_of_each_key(make_pipeline):
    p = make_pipeline().start()
    for version in range(5):
        delivered(p, version * 10 + 1, version * 10 + 10)
    assert p.walpost.stop() == 0
    p.kafka.compact(p.name)
    p.insert(51, 55)
    lose_slot(p)
    line = gap_line(recreate(p))
    assert line == "gap          outbox.events: 5 events sent, 10 are in Kafka already, 40 superseded by newer ones, compacted"
    newest = {key: event for event, (key, _) in sorted(p.committed().items(), key=lambda item: item[1][1])}
    assert {record.key: record.id for record in p.records()} == newest


def test_two_at_once_are_rejected_and_nothing_is_changed(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    assert p.walpost.stop() == 0
    with contextlib.closing(p.postgres.connect(p.database)) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN; LOCK TABLE walpost.pipeline IN SHARE UPDATE EXCLUSIVE MODE")
        second = subprocess.run([servers.walpost_binary(), "--config", str(p.walpost.file), "slot", "recreate", "--yes"],
                                capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 78 and "another walpost" in second.stderr
        assert p.slot(), "nothing was changed"
        cursor.execute("ROLLBACK; BEGIN; ANALYZE walpost.pipeline")
        with subprocess.Popen([servers.walpost_binary(), "--config", str(p.walpost.file), "slot", "recreate", "--yes"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as waits:
            servers.wait_for(lambda: p.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"),
                             60, "it to wait for what takes no longer than a moment")
            cursor.execute("ROLLBACK")
            error = waits.communicate(timeout=60)[1]
        assert waits.returncode == 0, error
        # A lock that anybody may take stops nobody.
        cursor.execute("SELECT pg_advisory_lock(2002874224, k) FROM generate_series(0, 10) k")
        recreate(p)


# What stands between its look and the drop of the slot may take minutes.
@pytest.mark.smoke
def test_slot_that_is_in_use_again_before_it_is_dropped_keeps_its_record_and_is_streamed_from(make_pipeline):
    p = make_pipeline().start()
    delivered(p, 1, 10)
    assert p.walpost.stop() == 0
    recorded = "SELECT backfilled, snapshot, backfill FROM walpost.pipeline"
    before = p.execute(recorded)
    with contextlib.ExitStack() as stack:
        connection = p.postgres.connect(p.database, autocommit=False)
        connection.cursor().execute("SELECT pg_current_xact_id()")
        recreating = stack.enter_context(subprocess.Popen([servers.walpost_binary(), "--config", str(p.walpost.file), "slot", "recreate", "--yes"],
                                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        stack.callback(connection.close)  # before it is waited for
        servers.wait_for(lambda: p.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"), 60, "it to wait for the transaction")
        p.walpost.start()
        connection.rollback()
        error = recreating.communicate(timeout=60)[1]
    assert recreating.returncode == 78 and "is active" in error, error
    assert p.execute(recorded) == before
    assert p.walpost.stop() == 0
    p.walpost.start()
    delivered(p, 11, 12)
    assert ids(p.records()) == stored(p), "each once"


# As after pg_upgrade: the rows name the cluster before, and what is in them is nowhere else.
@pytest.mark.full
def test_open_dead_letters_are_taken_over_on_a_new_cluster(make_pipeline, kafka):
    p = start_parking(make_pipeline, kafka, 200_000)
    p.insert_large(300_000, key="key-0")
    p.insert(1, 4, keys=1)
    p.insert(5, 5, topic=p.name + ".gone")
    p.wait_confirmed()
    p.walpost.verb("dlq", "discard", "--topic", p.name + ".gone", "--yes")
    assert p.walpost.stop() == 0
    parked = [row[0] for row in p.execute("SELECT event_id FROM walpost.dead_letters WHERE closed_at IS NULL ORDER BY seq")]
    assert len(parked) == 5
    p.execute("DELETE FROM outbox.events WHERE id::text = ANY (%s)", parked)
    discarded = stored(p)
    p.execute("UPDATE walpost.dead_letters SET system_identifier = 1, position = 'ffffffffffffffff' || substr(position, 17)")
    p.execute("UPDATE walpost.pipeline SET system_identifier = 1")
    lose_slot(p)
    made = recreate(p)
    assert "5 open ones of cluster 1 taken over" in made, made
    p.walpost.start()
    servers.wait_for(lambda: p.walpost.status()["events"]["parked_keys"] == 1, 20, "the parked key")
    kafka.alter_topic(p.name, {"max.message.bytes": "10000000"})
    p.insert(11, 13, keys=1)
    p.wait_confirmed()
    p.walpost.verb("dlq", "retry", "--all-undecided")
    p.wait_confirmed()
    later = [row[0] for row in p.execute("SELECT id::text FROM outbox.events WHERE id::text <> ALL (%s) ORDER BY seq", discarded)]
    assert len(discarded) == 1 and [record.id for record in p.records()] == parked + later, "the discarded one stays discarded"
