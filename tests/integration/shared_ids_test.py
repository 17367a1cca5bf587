"""Tables whose ids are numbers of their own, in one topic: a record with a row's id may be about a row of the other table."""

import json

import pytest

BOTH = "public.a and public.b may have the same ids in the same topic"


def outbox(table, allowed="*", **more):
    return {"table": f"public.{table}", "preset": "debezium", "topics": {"allowed": [allowed]}, **more}


def make_tables(p, a="bigserial", b="bigserial"):
    for table, kind in (("a", a), ("b", b)):
        default = " DEFAULT gen_random_uuid()" if kind == "uuid" else ""
        p.execute(f"CREATE TABLE public.{table} (id {kind} PRIMARY KEY{default}, aggregatetype text, aggregateid text, type text, payload text,"
                  " n bigint GENERATED ALWAYS AS IDENTITY, tx xid8 DEFAULT pg_current_xact_id())")


def fill(p, table, first, last, kind=None, key="k"):
    p.execute(f"INSERT INTO public.{table} (aggregatetype, aggregateid, type, payload)"
              f" SELECT %s, '{key}' || n %% 3, 'T', '{table}' || n FROM generate_series(%s, %s) n", kind or p.name, first, last)


def delivered(p, table, first, last):
    fill(p, table, first, last)
    p.wait_confirmed()


def values(p, topic=None):
    return sorted(message.value().decode() for message in p.kafka.read_all(topic or f"outbox.event.{p.name}"))


def named(table, first, last):
    return sorted(f"{table}{n}" for n in range(first, last + 1))


@pytest.fixture(name="p")
def fixture_p(make_pipeline, kafka):
    """Of table a everything is delivered, of b nothing, and the stream will not bring it."""
    p = make_pipeline(create_topic=False, config={"outboxes": [outbox("a"), outbox("b")]})
    kafka.create_topic(f"outbox.event.{p.name}", 1)
    make_tables(p)
    p.start()
    delivered(p, "a", 1, 10)
    assert p.walpost.stop() == 0
    fill(p, "b", 1, 10)
    return p


def lose_slot(p):
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)


def pass_over(p):
    """Somebody moves the slot behind the rows of table b."""
    p.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", p.name)
    p.walpost.verb("slot", "advance", "--yes")
    p.walpost.start()
    p.wait_confirmed()


def test_lost_slot_is_not_made_anew_until_rows_may_be_sent_again_and_then_none_is_lost(p):
    lose_slot(p)
    record = p.execute("SELECT p::text FROM walpost.pipeline p")
    for yes in ([], ["--yes"]):
        rejected = p.walpost.verb("slot", "recreate", *yes, check=False)
        assert rejected.returncode == 78 and BOTH in rejected.stderr and "--send-unproven" in rejected.stderr, rejected
    assert not p.slot() and p.execute("SELECT p::text FROM walpost.pipeline p") == record and values(p) == named("a", 1, 10), "nothing was changed"
    done = p.walpost.verb("slot", "recreate", "--yes", "--send-unproven").stdout
    assert "public.b: 10 events sent, of 10 it is not known whether Kafka has them" in done, done
    assert set(values(p)) == {*named("a", 1, 10), *named("b", 1, 10)}
    p.walpost.start()
    delivered(p, "b", 11, 12)
    assert set(named("b", 1, 12)) < set(values(p))


def test_audit_cannot_tell_what_is_delivered(p):
    pass_over(p)
    found = p.walpost.verb("audit", "--json", check=False)
    counts = json.loads(found.stdout)
    assert found.returncode == 75 and counts["ids_shared"] == 20 and counts["ok"] == counts["missing"] == 0, counts
    assert any(BOTH in note for note in counts["notes"])
    # An id that no record has is of a row that is nowhere.
    assert p.walpost.stop() == 0
    fill(p, "b", 11, 12)
    pass_over(p)
    found = p.walpost.verb("audit", "--json", check=False)
    assert found.returncode == 65 and sorted(json.loads(found.stdout)["missing_ids"]) == ["11", "12"]


def test_missing_rows_are_not_sent_until_others_may_be_sent_again(p):
    pass_over(p)
    for table in ([], ["--table", "public.b"]):
        rejected = p.walpost.verb("replay", "--missing", "--in-place", *table, check=False)
        assert rejected.returncode == 78 and BOTH in rejected.stderr, rejected
    asked = p.walpost.verb("replay", "--missing", "--dry-run").stdout
    assert f"warning: {BOTH}" in asked
    assert "public.b: 0 events missing in Kafka, of 10 it is not known whether Kafka has them\n" in asked, asked
    assert values(p) == named("a", 1, 10), "nothing was sent"
    p.walpost.verb("replay", "--missing", "--in-place", "--table", "public.b", "--send-unproven")
    assert values(p) == sorted(named("a", 1, 10) + named("b", 1, 10))


def test_backfill_that_goes_on_stops_until_rows_may_be_sent_again(make_pipeline, kafka):
    p = make_pipeline(create_topic=False, config={"outboxes": [outbox("a", columns={"seq": "n"}), outbox("b", columns={"seq": "n"})]})
    kafka.create_topic(f"outbox.event.{p.name}", 1)
    make_tables(p)
    fill(p, "a", 1, 10)
    fill(p, "b", 1, 5, key="b")
    fill(p, "b", 6, 6, kind=f"{p.name}.gone", key="b")
    assert p.walpost.verb("init", "--backfill", check=False).returncode == 78
    before = values(p)
    assert before == sorted(named("a", 1, 10) + named("b", 1, 5))
    p.execute("UPDATE public.b SET aggregatetype = %s", p.name)
    fill(p, "b", 7, 8, key="b")
    rejected = p.walpost.verb("init", "--backfill", check=False)
    assert rejected.returncode == 78 and BOTH in rejected.stderr and values(p) == before, rejected
    p.walpost.verb("init", "--backfill", "--send-unproven")
    p.walpost.start()
    p.wait_confirmed()
    assert set(values(p)) == {*named("a", 1, 10), *named("b", 1, 8)}


def test_check_names_both_tables_and_the_cure(p):
    line, = (line for line in p.walpost.verb("check", check=False).stdout.splitlines() if line.startswith("! ids of "))
    assert BOTH in line and "uuid" in line and "topic" in line


def test_dead_letter_names_its_table_so_its_row_is_not_sent_again(make_pipeline, kafka):
    p = make_pipeline(create_topic=False, config={"outboxes": [outbox("a"), outbox("b")],
                                                  "delivery": {"on_undeliverable": "dead_letter", "unknown_topic_wait": "100ms"}})
    topic = kafka.create_topic(f"outbox.event.{p.name}", 1)
    make_tables(p)
    p.start()
    delivered(p, "b", 1, 3)
    fill(p, "a", 1, 1, kind=f"{p.name}.gone")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    lose_slot(p)
    kafka.create_topic(f"{topic}.gone", 1)
    done = p.walpost.verb("slot", "recreate", "--yes", "--send-unproven").stdout
    assert "public.a: 0 events sent, 1 are dead letters\n" in done, done
    assert values(p, f"{topic}.gone") == []


@pytest.mark.parametrize("kinds, topics", [(("uuid", "bigserial"), ("*", "*")), (("bigserial", "bigserial"), ("outbox.event.a*", "outbox.event.b*"))])
def test_ids_or_topics_that_cannot_be_the_same_prove_what_is_delivered(make_pipeline, kafka, kinds, topics):
    p = make_pipeline(create_topic=False, config={"outboxes": [outbox("a", topics[0]), outbox("b", topics[1])]})
    for table in "ab":
        kafka.create_topic(f"outbox.event.{table}.{p.name}", 1)
    make_tables(p, *kinds)
    p.start()
    fill(p, "a", 1, 10, kind=f"a.{p.name}")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    fill(p, "b", 1, 10, kind=f"b.{p.name}")
    lose_slot(p)
    done = p.walpost.verb("slot", "recreate", "--yes").stdout
    assert "public.a: 0 events sent, 10 are in Kafka already\n" in done and "public.b: 10 events sent\n" in done, done
    p.walpost.start()
    p.wait_confirmed()
    assert p.walpost.verb("audit").returncode == 0
    assert "ids of " not in p.walpost.verb("check", check=False).stdout


def test_record_of_another_pipeline_with_the_id_of_a_row_does_not_count(make_pipeline, kafka):
    p, q = (make_pipeline(create_topic=False, config={"outboxes": [outbox("a")]}) for _ in range(2))
    topic = kafka.create_topic(f"outbox.event.{p.name}", 1)
    for each in (p, q):
        make_tables(each)
        each.start()
    delivered(p, "a", 1, 10)
    more = "INSERT INTO a (aggregatetype, aggregateid, type, payload) SELECT %s, 'q', 'T', 'q' || n FROM generate_series(%s, %s) n"
    q.execute(more, p.name, 1, 4)
    q.wait_confirmed()
    assert q.walpost.stop() == 0
    q.execute(more, p.name, 5, 8)
    lose_slot(q)
    rejected = q.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 78 and topic in rejected.stderr and "--send-unproven" in rejected.stderr, rejected
    assert values(p) == sorted(named("a", 1, 10) + named("q", 1, 4)), "nothing was sent"
    done = q.walpost.verb("slot", "recreate", "--yes", "--send-unproven").stdout
    assert "public.a: 4 events sent, 4 are in Kafka already, of 4 it is not known" in done, done
    assert values(p) == sorted(named("a", 1, 10) + named("q", 1, 8))
