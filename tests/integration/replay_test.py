"""`walpost replay`: rows once more, marked, and never before their first time."""

import time

import pipeline
import pytest
import servers


@pytest.fixture
def p(make_pipeline):
    made = make_pipeline().start()
    made.insert(1, 40)
    made.wait_confirmed()
    made.kafka.create_topic(made.name + "-again", 4)
    return made


def again(p):
    return [pipeline.Record(message) for message in p.kafka.read_all(p.name + "-again")]


def replay(p, *arguments, check=True):
    return p.walpost.verb("replay", *arguments, "--to-topic", p.name + "-again", check=check)


def test_all_rows_come_once_marked_and_in_order(p):
    assert replay(p, "--all", "--dry-run").stdout == "outbox.events: 40 events\n"
    assert again(p) == []
    assert f"outbox.events to topic {p.name}-again: 40 events sent\n" in replay(p, "--all").stdout
    records = again(p)
    assert {record.id for record in records} == set(p.committed()) and len(records) == 40
    for record in records:
        assert record.headers["walpost-redelivery"] == b"replay" and "walpost-position" not in record.headers
        assert record.envelope.payload.startswith(b"event ")
    order = p.committed()
    for key in {record.key for record in records}:
        sequence = [order[record.id][1] for record in records if record.key == key]
        assert sequence == sorted(sequence)
    assert len(p.records()) == 40, "nothing in the events' own topic"


def test_filters_choose(p):
    one = p.execute("SELECT id::text FROM outbox.events WHERE payload = 'event 7'::bytea")[0][0]
    two = p.execute("SELECT id::text FROM outbox.events WHERE payload = 'event 8'::bytea")[0][0]
    replay(p, "--id", one, "--id", two)
    assert sorted(record.id for record in again(p)) == sorted([one, two])
    assert ": 4 events sent" in replay(p, "--key", "key-3").stdout
    assert ": 0 events sent" in replay(p, "--type", "Other").stdout
    assert ": 40 events sent" in replay(p, "--type", "Tested", "--table", "outbox.events", "--to", "0s").stdout
    assert ": 0 events sent" in replay(p, "--to", "1h").stdout
    unknown = replay(p, "--id", one, "--id", "00000000-0000-0000-0000-000000000000", check=False)
    assert unknown.returncode == 78 and "00000000-0000-0000-0000-000000000000" in unknown.stderr and one not in unknown.stderr


OWN = """CREATE TABLE own (id uuid, aggregatetype text, aggregateid text, type text, payload text,
    seq bigint GENERATED ALWAYS AS IDENTITY, tx xid8 DEFAULT pg_current_xact_id(), created_at timestamptz DEFAULT now())"""
OWN_COLUMNS = {"id": "id", "key": "aggregateid", "aggregate_type": "aggregatetype", "type": "type", "payload": "payload"}


# The rows of all tables were counted: an id that two of them have stood for one that none has.
def test_id_in_two_tables_does_not_hide_one_that_is_in_none(p):
    both, = p.execute("SELECT id::text FROM outbox.events WHERE payload = 'event 7'::bytea")[0]
    p.walpost.stop()
    p.execute(OWN)
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE own")
    p.walpost = p.another(config={"outboxes": [{"table": "outbox.events"},
                                               {"table": "public.own", "columns": OWN_COLUMNS, "topic": p.name}]})
    p.start()
    p.execute("INSERT INTO own (id, aggregatetype, aggregateid, type, payload) VALUES (%s, 'T', 'k', 'Tested', 'x')", both)
    p.wait_confirmed()
    nowhere = "00000000-0000-0000-0000-000000000000"
    unknown = replay(p, "--id", both, "--id", nowhere, check=False)
    assert unknown.returncode == 78 and nowhere in unknown.stderr and again(p) == []
    replay(p, "--id", both, "--id", both.upper())
    assert [record.id for record in again(p)] == [both, both], "one of each table, although it was named twice"


def test_own_topic_is_only_sent_to_on_request(p):
    rejected = p.walpost.verb("replay", "--all", "--to-topic", p.name, check=False)
    assert rejected.returncode == 78 and "--in-place" in rejected.stderr
    assert len(p.records()) == 40
    p.walpost.verb("replay", "--key", "key-1", "--in-place")
    records = p.records()
    assert len(records) == 44 and sum(record.headers.get("walpost-redelivery") == b"replay" for record in records) == 4
    audit = p.walpost.verb("audit").stdout
    assert "4 of them by a verb, beside the stream" in audit and "\n0 missing of 40\n" in audit


def test_question_that_is_not_whole_is_rejected(p):
    for arguments in (["--all"], ["--all", "--in-place", "--to-topic", "x"], ["--to-topic", "x"], ["--from", "yesterday", "--in-place"],
                      ["--all", "--to-topic", f"walpost.progress.{p.name}"]):
        done = p.walpost.verb("replay", *arguments, check=False)
        assert done.returncode == 64, (arguments, done)
    table = replay(p, "--table", "outbox.other", check=False)
    assert table.returncode == 78 and "outbox.events" in table.stderr


def test_what_was_left_out_is_found_and_sent(p):
    assert p.walpost.stop() == 0
    p.insert(41, 45)
    p.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", p.name)  # someone else
    p.walpost.verb("slot", "advance", "--yes")
    p.walpost.start()
    p.insert(51, 55)
    p.wait_confirmed()
    assert "outbox.events: 5 events missing in Kafka\n" in p.walpost.verb("replay", "--missing", "--dry-run").stdout
    assert len(p.records()) == 45
    assert "outbox.events: 5 events sent\n" in p.walpost.verb("replay", "--missing", "--in-place").stdout
    assert {record.id for record in p.records()} == set(p.committed()) and len(p.records()) == 50
    assert "0 events missing" in p.walpost.verb("replay", "--missing", "--dry-run").stdout


def test_what_compaction_removed_is_not_missing(p):
    assert p.walpost.stop() == 0
    p.kafka.compact(p.name)
    p.kafka.alter_topic(p.name, {"cleanup.policy": "delete"})
    p.walpost.start()
    assert "outbox.events: 30 events missing in Kafka\n" in p.walpost.verb("replay", "--missing", "--dry-run").stdout
    p.kafka.alter_topic(p.name, {"cleanup.policy": "compact"})
    done = p.walpost.verb("replay", "--missing", "--in-place").stdout
    assert "outbox.events: 0 events missing in Kafka, 30 superseded by newer ones, compacted\n" in done
    assert "outbox.events: 0 events sent\n" in done and len(p.records()) == 10
    # The newer ones are not among the rows that are looked at.
    cut = p.execute("SELECT clock_timestamp()::text")[0][0].replace(" ", "T") + ":00"
    p.insert(41, 50)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.kafka.compact(p.name)
    p.walpost.start()
    oldest = min(p.committed().items(), key=lambda item: item[1][1])[0]
    for choice in (["--to", cut], ["--type", "Tested", "--to", cut], ["--id", oldest]):
        assert "warning: " in p.walpost.verb("replay", "--missing", "--dry-run", *choice).stdout
        rejected = p.walpost.verb("replay", "--missing", "--in-place", *choice, check=False)
        assert rejected.returncode == 78 and "compaction" in rejected.stderr, rejected
    assert "outbox.events: 0 events sent\n" in p.walpost.verb("replay", "--missing", "--in-place", "--key", "key-1").stdout
    assert len(p.records()) == 10


# Else a consumer of both topics would see an event before it happened.
def test_nothing_is_sent_before_the_slot_has_confirmed_it(p):
    assert p.walpost.stop() == 0
    p.insert(41, 50)
    early = replay(p, "--all", "--wait", "500ms", check=False)
    assert early.returncode == 69 and "start `walpost run`" in early.stderr
    assert again(p) == []
    p.walpost.start()
    assert "50 events sent" in replay(p, "--all").stdout


def test_range_that_has_left_the_table_is_reported(p):
    gone = replay(p, "--from", "2020-01-01T00:00:00Z", check=False)
    assert gone.returncode == 78 and "--from" in gone.stderr and again(p) == []
    assert "warning: what is older" in replay(p, "--from", "2020-01-01T00:00:00Z", "--dry-run").stdout
    begin = gone.stderr.split("--from ")[-1].strip()
    assert "40 events sent" in replay(p, "--from", begin).stdout


def test_rate_is_kept(p):
    begin = time.monotonic()
    replay(p, "--all", "--rate", "40")
    assert time.monotonic() - begin >= 39 / 40


def test_row_that_cannot_be_sent_is_named(p):
    p.kafka.alter_topic(p.name + "-again", {"max.message.bytes": "20000"})
    p.insert_large(30_000, key="big")
    p.wait_confirmed()
    large = p.execute("SELECT id::text FROM outbox.events WHERE aggregate_id = 'big'")[0][0]
    stopped = replay(p, "--all", check=False)
    assert stopped.returncode == 78 and large in stopped.stderr and "40 events sent" in stopped.stdout
    assert len(again(p)) == 40
    done = replay(p, "--all", "--skip-undeliverable")
    assert "40 events sent, 1 left out, since they can be no records, or their topics do not take them\n" in done.stdout and large in done.stderr


def test_rows_are_read_from_a_standby(make_pipeline, workspace):
    primary = workspace.postgres()
    standby = workspace.postgres(start=False)
    p = make_pipeline(on_postgres=primary)
    standby.make_standby_of(primary)
    p.start()
    p.kafka.create_topic(p.name + "-again", 1)
    p.insert(1, 40)
    p.wait_confirmed()
    servers.wait_for(lambda: standby.execute("SELECT count(*) FROM outbox.events", database=p.database)[0][0] == 40, 60, "the standby")
    assert "40 events sent" in replay(p, "--all", "--standby", standby.conninfo(p.database)).stdout
    assert len(again(p)) == 40


def test_topics_of_the_pipeline_itself_take_no_replay(make_pipeline):
    p = make_pipeline(config={"delivery": {"progress_topic": "remembered"}})
    p.walpost.init()
    rejected = p.walpost.verb("replay", "--all", "--to-topic", "remembered", check=False)
    assert rejected.returncode == 64 and "remembered" in rejected.stderr, rejected


# What such a row has stood in several messages, whole, and took many times its memory.
def test_rows_with_long_texts_are_left_out_in_few_words_and_what_was_delivered_is_found_whatever_its_size(make_pipeline):
    p = make_pipeline()
    p.execute(OWN.replace("id uuid", "id text, headers json, wide numeric[]"))
    p.execute("CREATE PUBLICATION " + p.name + " FOR TABLE own WITH (publish = 'insert')")
    p.walpost = p.another(config={"source": {"event_bytes_max": "1MiB"}, "delivery": {"on_undeliverable": "skip"}, "outboxes": [
        {"table": "public.own", "columns": {**OWN_COLUMNS, "headers": "headers"}, "topic": p.name}]})
    p.start()
    nested = '{"%s": {}}' % ("x" * 900_000)
    # As text the last one is larger than the limit. The server sends less, and so the stream takes it.
    for key, headers, wide in ((None, None, None), ("k", nested, None), ("k", None, ["1e131071"] * 10)):
        p.execute("INSERT INTO own (id, aggregatetype, aggregateid, type, payload, headers, wide) VALUES"
                  " (CASE WHEN %s::text IS NULL THEN repeat(E'\\x01', 900000) ELSE gen_random_uuid()::text END, 'T', %s, 'Tested', 'x', %s,"
                  " %s::numeric[])", key, key, headers, wide)
    p.wait_confirmed()
    assert len(p.records()) == 1
    done = p.walpost.verb("replay", "--all", "--in-place", "--skip-undeliverable")
    assert "1 event sent, 2 left out" in done.stdout and len(done.stderr) < 50_000
    assert len(p.records()) == 2
    assert "\n0 missing of 3\n" in p.walpost.verb("audit").stdout
