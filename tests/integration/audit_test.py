"""`walpost audit`: whether tables and topics agree, event by event."""

import concurrent.futures
import contextlib
import json
import re
import time
import types

import pytest
import servers
from confluent_kafka.admin import NewPartitions
from fake_clock import FakeClock


def delivered(p, first=1, last=40):
    p.insert(first, last)
    p.wait_confirmed()


def audit(p, *arguments):
    """(exit code, what it says)"""
    done = p.walpost.verb("audit", "--json", *arguments, check=False)
    assert done.stdout, done
    return done.returncode, json.loads(done.stdout)


def event_id(message):
    return dict(message.headers())["id"].decode()


def rewritten(p, change):
    """Takes the topic's records through `change`, with walpost stopped."""
    assert p.walpost.stop() == 0
    records = p.kafka.read_all(p.name)
    p.kafka.rewrite(p.name, change(records))
    p.walpost.start()
    p.wait_confirmed()


def test_all_of_it_is_there(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    done = p.walpost.verb("audit")
    assert "\n0 missing of 40\n" in done.stdout and f"topic {p.name}: 40 records\n" in done.stdout
    code, found = audit(p)
    assert code == 0 and found["ok"] == found["rows"] == 40 and found["repeats"] == found["out_of_order"] == 0


# That one topic does not exist is believed after 3 s.
@pytest.mark.full
def test_many_topics_that_do_not_exist_cost_one_wait(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    for n in range(20):
        p.insert(1, 1, topic=f"nowhere-{p.name}-{n}")
    p.insert(1, 5)
    began = time.monotonic()
    said = p.walpost.verb("audit", "--wait", "0s", check=False).stdout
    assert said.count("does not exist") == 20, said
    audited = time.monotonic()
    done = p.walpost.verb("slot", "recreate", "--yes", "--skip-undeliverable", check=False)
    assert done.returncode == 65 and "5 events sent, 20 left out" in done.stdout, done
    recreated = time.monotonic()
    assert audited - began < 15 and recreated - audited < 15


def test_what_somebody_took_away_is_missing_and_in_the_report(make_pipeline, workspace):
    p = make_pipeline().start()
    delivered(p)
    gone = {}

    def take(records):
        gone.update({event_id(record): record for record in records[5:8]})
        return [record for record in records if event_id(record) not in gone]

    rewritten(p, take)
    report = workspace.path / "report"
    code, found = audit(p, "--report", str(report))
    assert code == 65 and found["missing"] == 3 and sorted(found["missing_ids"]) == sorted(gone)
    lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    assert sorted(line["id"] for line in lines) == sorted(gone)
    assert {(line["finding"], line["table"], line["topic"]) for line in lines} == {("missing", "outbox.events", p.name)}


# Kafka's records have the time of walpost's clock, rows that of PostgreSQL's.
def test_clocks_that_differ_make_nothing_look_missing(make_pipeline, workspace):
    p = make_pipeline()
    clock = FakeClock(workspace.path / "clock")
    clock.set(-300)
    p.walpost.env = clock.env
    p.start()
    delivered(p)
    assert audit(p)[0] == 0
    p.walpost.verb("replay", "--missing", "--in-place")
    assert len(p.records()) == 40


# As an application writes it that takes its own clock for UTC. Its records are older than the rows seem to be.
def test_rows_of_another_time_zone_are_found_in_their_topic(make_pipeline):
    p = make_pipeline()
    p.execute("CREATE TABLE public.own (seq bigint GENERATED ALWAYS AS IDENTITY, id uuid DEFAULT gen_random_uuid(), kind text, key text, payload text, created_at timestamptz)")
    columns = {"id": "id", "key": "key", "aggregate_type": "kind", "type": "kind", "payload": "payload"}
    p.walpost = p.another(config={"outboxes": [{"table": "public.own", "columns": columns, "topic": p.name}]})
    p.start()
    p.execute("INSERT INTO public.own (kind, key, payload, created_at) SELECT 'T', 'k', 'x', now() + interval '8 h' FROM generate_series(1, 2)")
    p.wait_confirmed()
    for range_ in ([], ["--from", "1h"]):
        code, found = audit(p, *range_)
        assert (code, found["missing"]) == (0, 0), found


def test_only_the_rows_of_the_range_are_looked_at(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    middle = p.execute("SELECT clock_timestamp()::text")[0][0].replace(" ", "T") + ":00"
    delivered(p, 41, 50)
    assert audit(p, "--to", middle)[1]["rows"] == 40
    code, found = audit(p, "--from", middle, "--table", "outbox.events")
    assert code == 0 and found["rows"] == found["ok"] == 10
    wrong = p.walpost.verb("audit", "--table", "outbox.other", check=False)
    assert wrong.returncode == 78 and "outbox.events" in wrong.stderr


# Nobody who reads what is committed sees it.
def test_record_of_an_aborted_transaction_is_none(make_pipeline, kafka):
    p = make_pipeline(partitions=1).start()
    p.insert(1, 3, keys=1)
    p.wait_confirmed()
    records = kafka.read_all(p.name)
    kafka.rewrite(p.name, records[:2])
    transaction = kafka.transaction(p.name, records[2:])
    kafka.produce(p.name, records[:1])  # behind it
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(audit, p)
        with pytest.raises(concurrent.futures.TimeoutError):
            waiting.result(timeout=5)
        transaction.abort_transaction(60)
        assert waiting.result()[1]["missing"] == 1
    transaction = kafka.transaction(p.name, records[2:])
    transaction.commit_transaction(60)
    assert audit(p)[1]["missing"] == 0


def test_what_is_not_confirmed_is_unknown(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    assert p.walpost.stop() == 0
    p.insert(41, 45)
    code, found = audit(p, "--wait", "1s")
    assert code == 75 and found["ok"] == 40 and found["not_confirmed"] == 5 and found["missing"] == 0
    assert "start `walpost run`" in found["notes"][0]


def test_what_kafka_deleted_by_its_age_is_unknown(make_pipeline):
    p = make_pipeline(partitions=1).start()
    delivered(p)
    delivered(p, 41, 50)
    p.kafka.delete_records(p.name, 0, before=40)
    code, found = audit(p)
    assert code == 75 and found["missing"] == 0 and found["topic_begins_later"] == 40 and found["ok"] == 10


# A dead letter that was sent again has the time of its event, and may be what retention leaves first.
def test_record_that_a_verb_sent_does_not_show_since_when_the_topic_has_the_stream(make_pipeline):
    p = make_pipeline(partitions=1, config={"delivery": {"on_undeliverable": "dead_letter", "unknown_topic_wait": "1s"}})
    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    p.start()
    p.insert_large(30_000)
    p.wait_confirmed()
    delivered(p, 1, 20)
    p.kafka.alter_topic(p.name, {"max.message.bytes": "1048588"})
    p.walpost.verb("dlq", "retry", "--all-undecided")
    p.execute("DELETE FROM outbox.events WHERE event_type = 'Large'")
    delivered(p, 21, 25)
    three_days_ago = (1, int(time.time() * 1_000) - 3 * 86_400_000)
    for older in (False, True):
        if older:
            rewritten(p, lambda records: [With(record, timestamp=three_days_ago) if "walpost-redelivery" in dict(record.headers()) else record
                                          for record in whole])
        whole = p.kafka.read_all(p.name)
        assert len(whole) == 26
        p.kafka.delete_records(p.name, 0, before=20)
        for range_ in ([], ["--from", "1h"]):
            code, found = audit(p, *range_)
            assert (code, found["missing"], found["topic_begins_later"], found["ok"]) == (75, 0, 20, 5), (older, range_, found)


def test_row_that_is_younger_than_what_kafka_deleted_is_missing(make_pipeline):
    p = make_pipeline(partitions=1).start()
    delivered(p, 1, 10)
    delivered(p, 11, 20)
    delivered(p, 21, 30)
    lost = event_id(p.kafka.read_all(p.name)[24])
    rewritten(p, lambda records: [record for record in records if event_id(record) != lost])
    p.kafka.delete_records(p.name, 0, before=10)
    for range_ in ([], ["--from", "1h"]):
        code, found = audit(p, *range_)
        assert (code, found["missing_ids"], found["topic_begins_later"], found["ok"]) == (65, [lost], 10, 19), found


# Of what is older than the range only the first record is looked at.
def test_row_of_the_range_is_missing_behind_older_records(make_pipeline):
    p = make_pipeline(partitions=1).start()
    delivered(p, 1, 30)
    ids = [event_id(record) for record in p.kafka.read_all(p.name)]
    three_days_ago = (1, int(time.time() * 1_000) - 3 * 86_400_000)
    rewritten(p, lambda records: [With(record, timestamp=three_days_ago) for record in records[:15]] + records[15:24] + records[25:])
    p.execute("DELETE FROM outbox.events WHERE id::text = ANY(%s)", ids[:15])
    p.kafka.delete_records(p.name, 0, before=10)
    code, found = audit(p, "--from", "1h")
    assert (code, found["missing_ids"], found["ok"], found["topics"][0]["records"]) == (65, [ids[24]], 14, 14), found


# Times of the writer's choice show nothing.
def test_what_kafka_deleted_is_unknown_where_rows_give_their_records_a_time(make_pipeline):
    p = make_pipeline(partitions=1)
    p.execute("CREATE TABLE public.own (id uuid DEFAULT gen_random_uuid(), kind text, key text, payload text, at timestamptz, created_at timestamptz DEFAULT now())")
    columns = {"id": "id", "key": "key", "aggregate_type": "kind", "type": "kind", "payload": "payload", "timestamp": "at"}
    p.walpost = p.another(config={"outboxes": [{"table": "public.own", "columns": columns, "topic": p.name}]})
    p.start()
    for ago in ("0", "0", "0", "1 h"):
        p.execute("INSERT INTO public.own (kind, key, payload, at) VALUES ('T', 'k', 'x', now() - %s::interval)", ago)
    p.wait_confirmed()
    p.kafka.delete_records(p.name, 0, before=3)
    code, found = audit(p)
    assert (code, found["missing"], found["topic_begins_later"], found["ok"]) == (75, 0, 3, 1), found


# Then the records that are left seem older than the rows of those before them. Where no row of them is looked at, nothing shows it.
def test_what_kafka_deleted_is_unknown_where_clocks_differ(make_pipeline, workspace):
    p = make_pipeline(partitions=1)
    clock = FakeClock(workspace.path / "clock")
    clock.set(-300)
    p.walpost.env = clock.env
    p.start()
    delivered(p)
    middle = p.execute("SELECT clock_timestamp()::text")[0][0].replace(" ", "T") + ":00"
    delivered(p, 41, 50)
    p.kafka.produce(p.name, p.kafka.read_all(p.name)[40:])  # repeats, as after a crash
    p.kafka.delete_records(p.name, 0, before=40)

    def expect(ok, *range_):
        code, found = audit(p, *range_)
        assert (code, found["missing"], found["topic_begins_later"], found["ok"]) == (75, 0, 40, ok), found

    expect(10)
    expect(0, "--to", middle)
    p.execute("DELETE FROM outbox.events WHERE seq > (SELECT min(seq) + 39 FROM outbox.events)")
    expect(0)


def with_own_table(p, **config):
    """A second outbox that sends to the same topic."""
    p.execute("CREATE TABLE public.own (id uuid DEFAULT gen_random_uuid(), kind text, key text, payload text, created_at timestamptz)")
    columns = {"id": "id", "key": "key", "aggregate_type": "kind", "type": "kind", "payload": "payload"}
    outboxes = [{"table": "outbox.events", "topic": p.name}, {"table": "public.own", "columns": columns, "topic": p.name}]
    p.walpost = p.another(config={"outboxes": outboxes, **config})


# What is left of the time before is one event, of another table.
def test_what_kafka_deleted_is_unknown_where_clocks_differed_before(make_pipeline, workspace):
    p = make_pipeline(partitions=1)
    with_own_table(p)
    clock = FakeClock(workspace.path / "clock")
    clock.set(-7_200)
    p.walpost.env = clock.env
    p.start()
    delivered(p)
    own = "INSERT INTO public.own (kind, key, payload, created_at) SELECT 'T', 'k', 'x', %s FROM generate_series(1, %s)"
    p.execute(own, "now", 1)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    clock.set(0)
    p.walpost.start()
    delivered(p, 41, 70)
    p.execute(own, None, 30)
    p.wait_confirmed()
    p.kafka.delete_records(p.name, 0, before=40)
    code, found = audit(p)
    assert (code, found["missing"], found["topic_begins_later"], found["ok"]) == (75, 0, 40, 61), found
    assert found["topics"][0]["rows_ahead_id"] == p.execute("SELECT id::text FROM public.own WHERE created_at IS NOT NULL")[0][0]


# Its row is another one of the same id.
def test_event_that_became_a_dead_letter_does_not_show_how_clocks_differ(make_pipeline):
    p = make_pipeline(partitions=1)
    with_own_table(p, delivery={"on_undeliverable": "dead_letter", "unknown_topic_wait": "1s"})
    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    p.start()
    delivered(p, 1, 10)
    again = "SELECT outbox.emit('T', %s, 'k', (SELECT string_agg(md5(n::text), '') FROM generate_series(1, %s) n), id => %s)"
    chosen = "0193e3a4-0000-7000-8000-000000000001"
    p.execute(again, p.name, 1, chosen)
    delivered(p, 11, 30)
    lost = event_id(p.kafka.read_all(p.name)[24])
    rewritten(p, lambda records: [record for record in records if event_id(record) != lost])
    p.kafka.delete_records(p.name, 0, before=10)
    assert p.walpost.stop() == 0
    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    p.walpost.start()
    p.execute("DELETE FROM outbox.events WHERE id = %s", chosen)  # by its age
    p.execute(again, p.name, 1_000, chosen)
    p.execute("INSERT INTO public.own (kind, key, payload) VALUES ('T', 'k', 'x')")
    p.wait_confirmed()
    assert p.execute("SELECT event_id::text FROM walpost.dead_letters") == [(chosen,)]
    code, found = audit(p)
    assert (code, found["missing_ids"], found["topic_begins_later"]) == (65, [lost], 10), found


# Retention leaves nothing of a partition that had no event for long.
def test_one_partition_that_is_empty_hides_no_loss_in_another(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    delivered(p, 41, 50)
    records = p.kafka.read_all(p.name)
    lost = records[-1]
    emptied = records[0].partition()
    assert emptied != lost.partition()
    rewritten(p, lambda records: [record for record in records if event_id(record) != event_id(lost)])
    deleted = [record for record in p.kafka.read_all(p.name) if record.partition() == emptied]
    p.kafka.delete_records(p.name, emptied, before=deleted[-1].offset() + 1)
    code, found = audit(p)
    assert code == 65 and found["missing_ids"] == [event_id(lost)], found
    assert found["topic_begins_later"] == len(deleted) and found["ok"] == 49 - len(deleted)


# A row's key names its partition of now, and its record was in another one.
def test_partitions_that_were_added_make_nothing_look_missing(make_pipeline):
    p = make_pipeline(partitions=1).start()
    delivered(p)
    delivered(p, 41, 50)
    admin = p.kafka.admin()
    admin.create_partitions([NewPartitions(p.name, 4)])[p.name].result(timeout=30)
    for before, kept in ((40, 10), (50, 0)):
        p.kafka.delete_records(p.name, 0, before=before)
        code, found = audit(p)
        assert code == 75 and found["topic_begins_later"] == 50 - kept and found["ok"] == kept, found


def test_compacted_topic_does_not_show_what_is_missing(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    rewritten(p, lambda records: records[1:])
    p.kafka.alter_topic(p.name, {"cleanup.policy": "compact"})
    code, found = audit(p)
    assert code == 75 and found["topic_compacted"] == 1 and found["ok"] == 39


# Whoever reads ids can write events with them: their records are not about the rows of others.
@pytest.mark.parametrize("key", ["key-1", "another"])
def test_row_of_the_same_id_stands_for_no_other(make_pipeline, key):
    p = make_pipeline().start()
    delivered(p, 1, 5)
    lost = p.execute("SELECT id::text FROM outbox.events WHERE aggregate_id = 'key-1'")
    rewritten(p, lambda records: [record for record in records if event_id(record) not in {row[0] for row in lost}])
    for event, in lost:
        p.execute("SELECT outbox.emit('T', %s, %s, 'forged'::text, id => %s)", p.name, key, event)
    p.wait_confirmed()
    code, said = audit(p)
    if key == "key-1":
        assert code == 75 and said["ids_shared"] == 2 * len(lost) and said["ok"] == 5 - len(lost), (code, said)
    else:
        assert code == 65 and said["missing"] == len(lost) and said["ok"] == 5 and not said["ids_shared"], (code, said)


class With:
    """A record with another key, or other headers."""

    def __init__(self, record, **changed):
        self.record, self.changed = record, changed

    def __getattr__(self, name):
        return (lambda: self.changed[name]) if name in self.changed else getattr(self.record, name)


# A message has no row, and one of another outbox may be deleted: what looks like a UUID proves nothing.
def test_record_with_the_id_of_a_row_and_another_key_is_not_about_it(make_pipeline):
    p = make_pipeline().start()
    delivered(p, 1, 5)
    lost = {row[0] for row in p.execute("SELECT id::text FROM outbox.events WHERE aggregate_id = 'key-1'")}
    rewritten(p, lambda records: [With(record, key=b"forged") if event_id(record) in lost else record for record in records])
    code, said = audit(p)
    assert code == 75 and said["ids_shared"] == len(lost) and said["ok"] == 5 - len(lost), (code, said)


def test_dead_letter_of_a_row_with_the_same_id_stands_for_no_other(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}}).start()
    p.allow_bad_topics()
    delivered(p, 1, 5)
    lost = p.execute("SELECT id::text FROM outbox.events WHERE aggregate_id = 'key-1'")
    rewritten(p, lambda records: [record for record in records if event_id(record) not in {row[0] for row in lost}])
    for event, in lost:
        p.execute("SELECT outbox.emit('T', 'no topic', 'key-1', 'forged'::text, id => %s)", event)
    p.wait_confirmed()
    code, said = audit(p)
    assert code == 65 and said["missing"] == said["dead_lettered"] == len(lost), (code, said)
    p.execute("DELETE FROM outbox.events WHERE aggregate_type = 'no topic'")
    code, said = audit(p)
    assert code == 75 and said["ids_shared"] == len(lost), ("about which row they are is not known any more", code, said)
    p.walpost.verb("replay", "--missing", "--in-place", "--send-unproven")
    code, said = audit(p)
    assert code == 0 and said["ok"] == 5, (code, said)


# Who may insert chooses ids.
def test_rows_of_one_id_take_no_memory_each_and_are_unknown(make_pipeline):
    p = make_pipeline(config={"outboxes": [{"table": "public.own"}]})
    p.execute("CREATE TABLE own (id uuid, aggregate_type text, aggregate_id text, event_type text, payload bytea)")
    p.walpost.init()
    p.execute("INSERT INTO own SELECT '0193e3a4-0000-7000-8000-000000000001', %s, g::text, 'T', 'x' FROM generate_series(1, 400000) g", p.name)
    command = [servers.walpost_binary(), "--config", str(p.walpost.file), "audit", "--json", "--wait", "0s"]
    code, output, peak = servers.run_and_watch_memory(command)
    said = json.loads(output)
    assert code == 75 and said["ids_shared"] == said["rows"] == 400_000, said
    assert peak < 80 * 2**20


def test_records_without_ids_cannot_be_distinguished(make_pipeline):
    p = make_pipeline().start()
    delivered(p)

    rewritten(p, lambda records: [With(records[0], headers=[header for header in records[0].headers() if header[0] != "id"]), *records[1:]])
    code, found = audit(p)
    assert code == 75 and found["records_without_id"] == 1 and found["topics"][0]["without_id"] == 1


def test_dead_letters_are_counted_apart(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}}).start()
    p.allow_bad_topics()
    delivered(p)
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('no topic', 'k1', 't'), ('no topic', 'k2', 't')")
    p.wait_confirmed()
    one = p.execute("SELECT id::text FROM outbox.events WHERE aggregate_id = 'k1'")[0][0]
    p.walpost.verb("dlq", "discard", "--id", one, "--yes")
    code, found = audit(p)
    assert code == 0 and found["dead_lettered"] == 1 and found["discarded"] == 1 and found["ok"] == 40


def test_parked_events_are_counted_apart(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "park"}}).start()
    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    delivered(p)
    p.insert_large(30_000, key="key-1")
    p.wait_confirmed()
    p.insert(101, 101, keys=1_000)  # key-101
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES (%s, 'key-1', 'Behind')", p.name)
    p.wait_confirmed()
    code, found = audit(p)
    assert code == 0 and found["parked"] == 2 and found["ok"] == 41


def test_skipped_events_are_counted_apart(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "skip"}}).start()
    p.allow_bad_topics()
    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    delivered(p)
    p.insert_large(30_000)
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('no topic', 'k', 't')")
    p.wait_confirmed()
    code, found = audit(p)
    assert code == 0 and found["undeliverable"] == 2 and found["ok"] == 40
    assert "skipped: can be no record" in p.walpost.verb("audit").stdout


# With the policy `halt` nobody has left it out: it was delivered, and then the topic was made anew for less.
def test_what_the_topic_takes_no_more_is_missing(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    p.insert_large(30_000)
    p.wait_confirmed()
    rewritten(p, lambda records: [record for record in records if len(record.value()) < 20_000])
    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    code, found = audit(p)
    assert code == 65 and found["missing"] == 1 and found["undeliverable"] == 0


def test_repeats_are_counted_and_what_is_out_of_order_is_named(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    p.kafka.produce(p.name, p.kafka.read_all(p.name)[:3])
    code, found = audit(p)
    assert code == 0 and found["repeats"] == found["repeated_ids"] == 3 and found["out_of_order"] == 0
    late = {}

    def swap(records):
        """The first two events of a key change places."""
        first = records[0]
        second = next(record for record in records[1:] if record.key() == first.key() and event_id(record) != event_id(first))
        late["id"] = event_id(first)
        order = {event_id(first): second, event_id(second): first}
        return [order.get(event_id(record), record) for record in records[:40]]

    rewritten(p, lambda records: swap(sorted(records, key=lambda record: record.offset() > 1_000)))
    code, found = audit(p)
    assert code == 65 and found["out_of_order_ids"] == [late["id"]], found


def delivered_with_standby(make_pipeline, workspace):
    primary, standby = workspace.postgres(), workspace.postgres(start=False)
    p = make_pipeline(on_postgres=primary)
    standby.make_standby_of(primary)
    p.start()
    delivered(p)
    servers.wait_for(lambda: standby.execute("SELECT count(*) FROM outbox.events", database=p.database)[0][0] == 40, 60, "the standby")
    return p, standby


def test_rows_are_read_from_a_standby(make_pipeline, workspace):
    p, standby = delivered_with_standby(make_pipeline, workspace)
    code, found = audit(p, "--standby", standby.conninfo(p.database))
    assert code == 0 and found["ok"] == 40


def test_standby_that_lags_is_waited_for_and_not_taken_for_all_there_is(make_pipeline, workspace):
    p, standby = delivered_with_standby(make_pipeline, workspace)
    there = ("--standby", standby.conninfo(p.database))
    standby.execute("SELECT pg_wal_replay_pause()")
    delivered(p, 41, 45)
    for verb in (("audit",), ("replay", "--missing", "--dry-run"), ("replay", "--all", "--dry-run")):
        behind = p.walpost.verb(*verb, *there, "--wait", "1s", check=False)
        assert behind.returncode == 75 and "missing" not in behind.stdout, behind
        assert re.search(r"bytes behind [0-9A-F]+/[0-9A-F]+", behind.stderr), behind
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(audit, p, *there)
        servers.wait_for(lambda: standby.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'walpost%'")[0][0], 60, "the verb")
        standby.execute("SELECT pg_wal_replay_resume()")
        code, found = waiting.result()
    assert code == 0 and found["ok"] == 45


# What the primary has beyond it, nobody could have streamed from there.
def test_source_that_is_a_standby_is_the_measure_for_another(make_pipeline, workspace):
    p, standby = delivered_with_standby(make_pipeline, workspace)
    standby.execute("SELECT pg_wal_replay_pause()")
    delivered(p, 41, 45)
    there = standby.conninfo(p.database)
    assert audit(types.SimpleNamespace(walpost=p.another(conninfo=there)), "--standby", there, "--wait", "0s")[1]["rows"] == 40


def beside_a_rewrite(p, run, at=None):
    """What run() gives when the table is made anew, by a transaction that ends once run() waits for it (`at` a server)."""
    with contextlib.closing(p.postgres.connect(p.database, autocommit=False)) as rewrite, rewrite.cursor() as cursor, \
            concurrent.futures.ThreadPoolExecutor() as pool:
        cursor.execute("ALTER TABLE outbox.events ALTER COLUMN event_type TYPE text USING event_type || ''")
        running = pool.submit(run)
        servers.wait_for(lambda: (at or p.postgres).execute("SELECT pid FROM pg_locks WHERE NOT granted AND relation = 'outbox.events'::regclass",
                                                            database=p.database), 60, "the verb to wait for the table")
        rewrite.commit()
        return running.result()


# To a snapshot from before, such a table is empty.
def test_rows_of_a_table_that_is_made_anew_meanwhile_are_seen(make_pipeline):
    p = make_pipeline().start()
    delivered(p)
    rewritten(p, lambda records: [])
    code, found = beside_a_rewrite(p, lambda: audit(p))
    assert code == 65 and found["missing"] == 40, found
    would = beside_a_rewrite(p, lambda: p.walpost.verb("replay", "--missing", "--in-place", "--dry-run", check=False))
    assert "40 events missing in Kafka" in would.stdout, would
    sent = beside_a_rewrite(p, lambda: p.walpost.verb("replay", "--missing", "--in-place"))
    assert "40 events sent" in sent.stdout, sent
    assert audit(p)[0] == 0


@pytest.mark.full
def test_rows_of_a_table_that_is_made_anew_meanwhile_are_seen_on_a_standby(make_pipeline, workspace):
    p, standby = delivered_with_standby(make_pipeline, workspace)
    code, found = beside_a_rewrite(p, lambda: audit(p, "--standby", standby.conninfo(p.database)), at=standby)
    assert code == 0 and found["ok"] == 40, found


def test_folder_that_cannot_be_written_to_is_named(make_pipeline):
    p = make_pipeline().start()
    failed = p.walpost.verb("audit", "--temp-dir", "/nowhere", check=False)
    assert failed.returncode == 69 and "/nowhere" in failed.stderr
    failed = p.walpost.verb("audit", "--report", "/nowhere/report", check=False)
    assert failed.returncode == 69 and "/nowhere/report" in failed.stderr
