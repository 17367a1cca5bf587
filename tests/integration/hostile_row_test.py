"""One row with an odd id, time or transaction: the verbs that compare rows with Kafka go on, and tell the truth about it."""

import json

import pytest
from rare import first

TABLE = """CREATE TABLE public.own (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text,
    seq bigint GENERATED ALWAYS AS IDENTITY, tx xid8 DEFAULT pg_current_xact_id(), created_at timestamptz DEFAULT now())"""
COLUMNS = {"id": "id", "key": "aggregateid", "aggregate_type": "aggregatetype", "type": "type", "payload": "payload"}
LENGTHS = (1_025, 1_500, 70_000)


@pytest.fixture
def p(make_pipeline):
    made = make_pipeline()
    made.execute(TABLE)
    made.walpost = made.another(config={
        "outboxes": [{"table": "public.own", "columns": COLUMNS, "topic": "{aggregate_type}", "topics": {"allowed": [made.name]}}],
        "delivery": {"on_undeliverable": "dead_letter"}})
    return made.start()


def insert(p, *ids, created="now"):
    p.execute("INSERT INTO own (id, aggregatetype, aggregateid, type, payload, created_at)"
              " SELECT id, %s, 'k', 'T', 'x', %s::timestamptz FROM unnest(%s) id", p.name, created, list(ids))


def audit(p, *arguments):
    return json.loads(p.walpost.verb("audit", "--json", *arguments, check=False).stdout)


def lose_slot(p):
    assert p.walpost.stop() == 0
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)


def sent(p):
    return sorted(dict(message.headers())["id"].decode() for message in p.kafka.read_all(p.name))


def test_id_that_is_too_long_then_its_event_is_a_dead_letter_and_the_verbs_go_on(p):
    longest = "a" * 1_024
    insert(p, longest, *("b" * length for length in LENGTHS))
    p.wait_confirmed()
    assert sent(p) == [longest]
    rows = p.execute("SELECT reason, event_id, topic, key FROM walpost.dead_letters ORDER BY seq")
    assert [(row[0], row[1], row[2], bytes(row[3])) for row in rows] == [("id_too_long", "b" * 1_024, p.name, b"k")] * 3
    retried = p.walpost.verb("dlq", "retry", "--reason", "id_too_long", check=False)
    assert retried.returncode != 0 and "give its row another one" in retried.stdout + retried.stderr
    found = audit(p)
    assert found["missing"] == 0 and found["ok"] == 1 and found["dead_lettered"] == 3, found
    p.walpost.verb("dlq", "discard", "--reason", "id_too_long", "--yes")
    p.wait_confirmed()
    assert audit(p)["discarded"] == 3
    assert "own: 0 events missing" in p.walpost.verb("replay", "--missing", "--in-place").stdout
    lose_slot(p)
    insert(p, "c" * 2_000, "late")
    rejected = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 78 and "its id has 2000 bytes" in rejected.stderr and len(rejected.stderr) < 5_000, rejected
    assert "1 event sent, 1 left out" in p.walpost.verb("slot", "recreate", "--yes", "--skip-undeliverable").stdout
    assert sent(p) == [longest, "late"]


class WithId:
    """A record with another id."""

    def __init__(self, record, id_):
        self.record, self.id = record, id_

    def headers(self):
        return [(name, self.id if name == "id" else value) for name, value in self.record.headers()]

    def __getattr__(self, name):
        return getattr(self.record, name)


# As a walpost of before sent them, or another writer.
def test_record_with_a_long_id_then_only_the_row_with_all_of_that_id_is_in_kafka(p):
    insert(p, "short")
    p.wait_confirmed()
    message, = p.kafka.read_all(p.name)
    p.kafka.produce(p.name, [WithId(message, b"d" * length) for length in LENGTHS])
    insert(p, *("d" * length for length in LENGTHS[1:]), "d" * 70_001)
    p.wait_confirmed()
    found = audit(p)
    assert found["ok"] == 3 and found["dead_lettered"] == 1 and found["other_ids"] == 1, found
    assert found["repeats"] == 0 and found["missing"] == 0, found


@pytest.mark.parametrize("created", first(2, ["infinity", "294276-12-31", "-infinity", "4713-01-01 BC", "9000-01-01"]))
def test_time_that_cannot_be_true_then_the_row_counts_as_one_without_a_time(p, created):
    insert(p, "even")
    now = p.execute("SELECT clock_timestamp()::text")[0][0].replace(" ", "T") + ":00"
    insert(p, "odd", created=created)
    p.wait_confirmed()
    for arguments in ([], ["--from", now]):
        found = audit(p, *arguments)
        assert found["ok"] == found["rows"] and found["missing"] == 0, found
        assert "own: 0 events missing" in p.walpost.verb("replay", "--missing", "--in-place", *arguments).stdout
    # Since when there are rows, the other one tells.
    rejected = p.walpost.verb("replay", "--from", "2026-01-01T00:00:00Z", "--in-place", check=False)
    assert rejected.returncode == 78 and "is not in the table" in rejected.stderr, rejected
    lose_slot(p)
    insert(p, "late", created=created)
    assert "1 event sent, 2 are in Kafka already" in p.walpost.verb("slot", "recreate", "--yes").stdout
    assert sent(p) == ["even", "late", "odd"]
    p.walpost.start()


def test_transaction_that_is_no_number_of_ours_then_an_interrupted_backfill_begins_anew(p):
    lose_slot(p)
    insert(p, "odd", "even")
    p.execute("UPDATE own SET tx = '18446744073709551615' WHERE id = 'odd'")
    p.execute("UPDATE own SET aggregatetype = 'nowhere' WHERE id = 'even'")
    assert p.walpost.verb("slot", "recreate", "--yes", check=False).returncode == 78
    p.execute("UPDATE own SET aggregatetype = %s", p.name)
    again = p.walpost.verb("init", "--backfill", check=False)
    assert again.returncode == 78 and "slot recreate --yes" in again.stderr, again
    p.walpost.verb("slot", "recreate", "--yes")
    assert sent(p) == ["even", "odd"]


# The stream is binary from 14 on, and verbs read text.
def test_placed_date_before_christ_then_the_verbs_read_what_the_stream_did(make_pipeline):
    p = make_pipeline()
    p.execute("CREATE TABLE public.placed (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text, d date, t timestamp)")
    p.walpost = p.another(config={"outboxes": [{"table": "public.placed", "debezium": {
        "route.topic.replacement": p.name, "table.fields.additional.placement": "d:header:day,t:header:at"}}]})
    p.start()
    insert_odd = "INSERT INTO placed VALUES (%s, 'a', 'k', 'T', '{}', '0044-03-15 BC', '0044-03-15 12:00:00.5 BC')"
    p.execute(insert_odd, "odd")
    p.wait_confirmed()
    found = audit(p)
    assert found["ok"] == found["rows"] == 1, found
    assert "placed: 0 events missing" in p.walpost.verb("replay", "--missing", "--in-place").stdout
    lose_slot(p)
    p.execute(insert_odd, "late")
    assert "1 event sent, 1 are in Kafka already" in p.walpost.verb("slot", "recreate", "--yes").stdout
    by_stream, by_verb = sorted((dict(message.headers()) for message in p.kafka.read_all(p.name)), key=lambda headers: headers["id"] == b"late")
    assert [(by_stream[name], by_verb[name]) for name in ("day", "at")] == [(b"-735160",) * 2, (b"-63517780799500000",) * 2]
