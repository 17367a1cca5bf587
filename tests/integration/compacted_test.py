"""Compacted topics whose keys get events from elsewhere, too: which is newer, a row that is not there or what is there, is not known."""

import pytest
import servers
from confluent_kafka import Producer
from rare import first


def lose_slot(p):
    assert p.walpost.stop() == 0
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)


def values(p, topic):
    messages = sorted(p.kafka.read_all(topic), key=lambda message: message.offset())
    return [message.value().decode() for message in messages]


def outbox(table):
    return {"table": f"public.{table}", "preset": "debezium", "topics": {"allowed": ["*"]},
            "columns": {"seq": "n", "timestamp": "happened"}}


TABLE = """CREATE TABLE {table} (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload text,
    n bigint GENERATED ALWAYS AS IDENTITY, happened timestamptz DEFAULT now(), created_at timestamptz DEFAULT now())"""


@pytest.fixture(name="tables")
def fixture_tables(make_pipeline, kafka):
    """Two of them, that send to one topic."""
    p = make_pipeline(create_topic=False, config={"outboxes": [outbox("a"), outbox("b")]})
    kafka.create_topic(f"outbox.event.{p.name}", 1)
    for table in "ab":
        p.execute(TABLE.format(table=table))
    return p


@pytest.fixture(name="two")
def fixture_two(tables):
    return tables.start()


def add(p, table, value, happened="now()"):
    p.execute(f"INSERT INTO {table} (aggregatetype, aggregateid, type, payload, happened) VALUES (%s, 'k', 'T', %s, {happened})", p.name, value)


def delivered(p, table, value, happened="now()"):
    add(p, table, value, happened)
    p.wait_confirmed()


def test_newest_event_of_a_key_is_another_tables_then_no_older_one_is_sent(two):
    p, topic = two, f"outbox.event.{two.name}"
    delivered(p, "a", "old")
    delivered(p, "b", "new")
    lose_slot(p)
    p.kafka.compact(topic)
    assert values(p, topic) == ["new"]
    rejected = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 78 and topic in rejected.stderr and "--send-unproven" in rejected.stderr, rejected
    assert values(p, topic) == ["new"]
    done = p.walpost.verb("slot", "recreate", "--yes", "--send-unproven").stdout
    assert "public.a: 1 event sent" in done and values(p, topic) == ["new", "old"], done


def test_newest_event_of_a_key_is_another_tables_then_replay_sends_no_older_one(two):
    p, topic = two, f"outbox.event.{two.name}"
    delivered(p, "a", "old")
    delivered(p, "b", "new")
    p.kafka.compact(topic)
    dry = p.walpost.verb("replay", "--missing", "--dry-run").stdout
    assert "public.a: 0 events missing" in dry and "1 it is not known" in dry, dry
    rejected = p.walpost.verb("replay", "--missing", "--in-place", check=False)
    assert rejected.returncode == 78 and topic in rejected.stderr, rejected
    assert values(p, topic) == ["new"]
    p.walpost.verb("replay", "--missing", "--in-place", "--send-unproven")
    assert values(p, topic) == ["new", "old"]


# What deleted the key goes, too.
def test_key_that_was_deleted_is_not_brought_back(two):
    p, topic = two, f"outbox.event.{two.name}"
    delivered(p, "a", "old")
    delivered(p, "b", None)
    p.kafka.clean(topic)
    assert "old" not in values(p, topic)
    dry = p.walpost.verb("replay", "--missing", "--dry-run").stdout
    assert "public.a: 0 events missing" in dry and "1 it is not known" in dry and "delete.retention.ms" in dry, dry
    rejected = p.walpost.verb("replay", "--missing", "--in-place", check=False)
    assert rejected.returncode == 78 and "--send-unproven" in rejected.stderr, rejected
    lose_slot(p)
    rejected = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 78 and "--send-unproven" in rejected.stderr, rejected
    assert "old" not in values(p, topic)


AHEAD = """INSERT INTO {table} (aggregatetype, aggregateid, type, payload, created_at, happened)
    VALUES (%s, %s, 'T', %s, now() + interval '{ahead}', now() + interval '{ahead}')"""


# Their times are ahead of the clock, whatever another event shows.
@pytest.mark.parametrize("ahead, others", [("3 h", ""), ("90 min", ""), ("3 h", "a"), ("3 h", "b")], ids=["far", "near", "own", "other"])
def test_deleted_key_whose_row_is_ahead_of_the_clock_is_not_brought_back(two, ahead, others):
    p, topic = two, f"outbox.event.{two.name}"
    p.execute(AHEAD.format(table="a", ahead=ahead), p.name, "k", "old")
    for table in others:
        p.execute(AHEAD.format(table=table, ahead="0"), p.name, "another", "stays")
    p.wait_confirmed()
    delivered(p, "b", None)
    p.kafka.clean(topic, others=len(others))
    assert "old" not in values(p, topic)
    p.execute("DELETE FROM b WHERE payload IS NULL")
    rejected = p.walpost.verb("replay", "--missing", "--in-place", check=False)
    assert rejected.returncode == 78 and "ahead of the clock" in rejected.stderr, rejected
    assert "old" not in values(p, topic)


# Nothing has been removed there, so what is not there was never sent.
def test_compacted_topic_from_which_nothing_has_gone_is_filled(two):
    p, topic = two, f"outbox.event.{two.name}"
    p.kafka.alter_topic(topic, {"cleanup.policy": "compact", "delete.retention.ms": "0"})
    delivered(p, "b", "other")
    p.execute("DELETE FROM b")
    lose_slot(p)
    p.execute("INSERT INTO a (aggregatetype, aggregateid, type, payload, created_at) VALUES (%s, 'k2', 'T', 'missed', now() - interval '9 days')", p.name)
    done = p.walpost.verb("slot", "recreate", "--yes").stdout
    assert "public.a: 1 event sent" in done and values(p, topic) == ["other", "missed"], done


# Whoever writes the row chooses that time.
def test_other_tables_event_with_a_time_of_before_is_not_believed_to_be_older(two):
    p, topic = two, f"outbox.event.{two.name}"
    delivered(p, "a", "old")
    delivered(p, "b", "new", "now() - interval '3 h'")
    lose_slot(p)
    p.kafka.compact(topic)
    rejected = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 78 and topic in rejected.stderr and "--send-unproven" in rejected.stderr, rejected
    assert values(p, topic) == ["new"]


# The stream would bring the row in its order; a verb cannot know it.
def test_slot_that_has_the_row_in_its_order_stays(two):
    p, topic = two, f"outbox.event.{two.name}"
    p.kafka.alter_topic(topic, {"cleanup.policy": "compact"})
    delivered(p, "a", "first")
    assert p.walpost.stop() == 0
    add(p, "b", "next")
    for arguments in ([], ["--yes"]):
        rejected = p.walpost.verb("slot", "recreate", *arguments, check=False)
        assert rejected.returncode == 78 and "--send-unproven" in rejected.stderr, rejected
    assert p.slot() and p.execute("SELECT backfilled FROM walpost.pipeline") == [(True,)]
    p.walpost.start()
    p.wait_confirmed()
    assert values(p, topic) == ["first", "next"]


# Nothing puts rows of two tables in an order.
@pytest.mark.parametrize("verb", [("slot", "recreate", "--yes"), ("init", "--backfill"), ("replay", "--missing", "--in-place")], ids=lambda verb: verb[0])
def test_key_that_two_tables_have_rows_of_is_not_sent_table_by_table(tables, verb):
    p, topic = tables, f"outbox.event.{tables.name}"
    if verb[0] != "init":
        p.walpost.init()
    add(p, "b", "old")
    add(p, "a", "new")
    if verb[0] == "replay":
        p.walpost.verb("slot", "recreate", "--yes", "--leave-gap")
        p.walpost.start()
    rejected = p.walpost.verb(*verb, check=False)
    assert rejected.returncode == 78 and "--send-unproven" in rejected.stderr and topic in rejected.stderr, rejected
    assert values(p, topic) == [] and bool(p.slot()) == (verb[0] != "init")
    p.walpost.verb(*verb, "--send-unproven")
    assert values(p, topic) == ["new", "old"]


def test_tables_whose_keys_differ_are_sent(two):
    p, topic = two, f"outbox.event.{two.name}"
    assert p.walpost.stop() == 0
    add(p, "b", "one")
    p.execute("UPDATE b SET aggregateid = 'other'")
    add(p, "a", "two")
    p.walpost.verb("slot", "recreate", "--yes")
    assert values(p, topic) == ["two", "one"]


# What is newer goes by retention.ms, long before what deletes a key goes by delete.retention.ms.
def test_topic_that_also_deletes_by_age_does_not_show_what_was_newer(make_pipeline, workspace):
    kafka = workspace.kafka(settings={"log.retention.check.interval.ms": 300, "log.initial.task.delay.ms": 100, "log.segment.delete.delay.ms": 100})
    p = make_pipeline(on_kafka=kafka, config={"outboxes": [outbox("a")]}, create_topic=False)
    topic = f"outbox.event.{p.name}"
    kafka.create_topic(topic, 1, {"cleanup.policy": "compact,delete", "retention.ms": "3000"})
    p.execute(TABLE.format(table="a"))
    p.start()
    delivered(p, "a", "old")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, key="k", value="corrected")
    producer.flush()
    servers.wait_for(lambda: values(p, topic) == [], 90, "retention to take both")
    rejected = p.walpost.verb("replay", "--missing", "--in-place", check=False)
    assert rejected.returncode == 78 and "--send-unproven" in rejected.stderr and values(p, topic) == [], rejected


@pytest.mark.parametrize("order", first(1, [None, "NULL", "7"]), ids=["no_column", "null", "equal"])
def test_row_that_no_order_puts_behind_the_one_that_is_there_is_not_passed_over(make_pipeline, kafka, order):
    table = outbox("a") if order else {key: value for key, value in outbox("a").items() if key != "columns"}
    p = make_pipeline(create_topic=False, config={"outboxes": [table]})
    topic = kafka.create_topic(f"outbox.event.{p.name}", 1)
    kafka.alter_topic(topic, {"cleanup.policy": "compact"})
    p.execute("CREATE TABLE a (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload text,"
              f" n bigint DEFAULT {order or 'NULL'}, happened timestamptz DEFAULT now())")
    p.start()
    delivered(p, "a", "first")
    delivered(p, "a", "old")
    p.execute("DELETE FROM a WHERE payload = 'first'")
    lose_slot(p)
    p.execute("VACUUM a")
    add(p, "a", "new")  # where the first one lay
    assert p.execute("SELECT payload FROM a") == [("new",), ("old",)]
    rejected = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 78 and topic in rejected.stderr and "--send-unproven" in rejected.stderr, rejected
    p.walpost.verb("slot", "recreate", "--yes", "--send-unproven")
    assert values(p, topic)[-1] == "new"


# One of them names its partition, the other one came to the same by its key.
def test_row_is_compared_with_all_of_its_key_in_its_partition(make_pipeline, kafka):
    p = make_pipeline(create_topic=False, config={"outboxes": [{**outbox("a"), "columns": {"seq": "n", "partition": "part"}}]})
    topic = kafka.create_topic(f"outbox.event.{p.name}", 1)
    p.execute("CREATE TABLE a (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload text,"
              " n bigint GENERATED ALWAYS AS IDENTITY, part int, happened timestamptz DEFAULT now())")
    p.start()
    for value, part in (("old", None), ("new", 0)):
        p.execute("INSERT INTO a (aggregatetype, aggregateid, type, payload, part) VALUES (%s, 'k', 'T', %s, %s)", p.name, value, part)
    p.wait_confirmed()
    kafka.compact(topic)
    assert "0 events" in p.walpost.verb("replay", "--missing", "--in-place", check=False).stdout
    lose_slot(p)
    assert "0 events sent" in p.walpost.verb("slot", "recreate", "--yes").stdout
    assert values(p, topic) == ["new"]


# Of another producer, without any header: whether the row is older is not known.
@pytest.mark.parametrize("value", [b"corrected", None], ids=["value", "tombstone"])
def test_record_without_an_id_is_about_no_row(make_pipeline, kafka, value):
    p = make_pipeline(create_topic=False, config={"outboxes": [outbox("a")]})
    topic = kafka.create_topic(f"outbox.event.{p.name}", 1)
    p.execute("CREATE TABLE a (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload text,"
              " n bigint GENERATED ALWAYS AS IDENTITY, happened timestamptz DEFAULT now())")
    p.start()
    delivered(p, "a", "old")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, value, b"k", 0)
    assert producer.flush(60) == 0
    kafka.compact(topic)
    replayed = p.walpost.verb("replay", "--missing", "--in-place", check=False)
    assert "--send-unproven" in replayed.stdout + replayed.stderr, replayed
    lose_slot(p)
    rejected = p.walpost.verb("slot", "recreate", "--yes", check=False)
    assert rejected.returncode == 78 and "--send-unproven" in rejected.stderr, rejected
    assert [message.value() for message in kafka.read_all(topic)] == [value]
