"""The runbook is walked: what concerns single events, the login and Kafka's topics is caused, seen, and fixed by the commands as they are written
there; it streams again and nothing is missing."""

import pytest
import runbook
import servers
from confluent_kafka import Producer
from mangling_proxy import ManglingProxy
from rejecting import TABLE
from runbook_stage import Scenes, Stage, kafka, stage  # noqa: F401 - fixtures
from rare import first

BOOK = runbook.Runbook()
SCENES = Scenes()


# -- columns ------------------------------------------------------------------------------------------------------------

@SCENES.of("schema_mismatch", "has no column")
def mapped_column_is_renamed(stage):
    p = stage.streamed()
    p.execute("ALTER TABLE outbox.events RENAME payload TO body")
    stage.columns = {"payload": None, "body": "'new'"}
    stage.insert()
    yield {}


@SCENES.of("schema_mismatch", "is ..., but as F it must be")
def mapped_column_gets_another_type(stage):
    p = stage.streamed()
    p.allow_bad_topics()  # the table's check does not let its columns become of other types
    p.execute("ALTER TABLE outbox.events ALTER COLUMN occurred_at TYPE text USING occurred_at::text")
    stage.insert(occurred_at="now()::text")
    yield {"COLUMN_NAME": "occurred_at", "OLD_TYPE": "timestamptz"}


# -- events that Kafka does not take ------------------------------------------------------------------------------------

@SCENES.of("undeliverable_event", "topic ... does not exist", "larger than topic ... takes")
def topic_that_is_missing_and_then_takes_less(stage):
    p = stage.streamed()
    stage.topics.append(f"{p.name}-missing")
    stage.insert(aggregate_type=f"'{p.name}-missing'")
    stage.insert()
    yield {"TOPIC": f"{p.name}-missing", "REPLICAS": 1}

    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    stage.insert(1, payload="convert_to(repeat('x', 50000), 'UTF8')")
    stage.insert()
    yield {"BYTES": 200_000}


@SCENES.of("undeliverable_event", "INVALID_RECORD")
def compacted_topic_gets_an_event_without_a_key(stage):
    p = stage.pipeline(create_topic=False, config={"outboxes": [{"table": "public.outbox", "preset": "debezium"}]})
    topic = p.kafka.create_topic(f"outbox.event.{p.name}", 4, {"cleanup.policy": "compact"})
    stage.topics, stage.table = [topic], "public.outbox"
    p.execute(f"{TABLE}; ALTER TABLE outbox ADD created_at timestamptz NOT NULL DEFAULT now()")
    p.start()
    stage.columns = {"aggregate_type": None, "aggregate_id": None, "event_type": None, "aggregatetype": f"'{p.name}'", "aggregateid": "NULL",
                     "type": "'Tested'", "payload": "to_jsonb(n)"}
    stage.insert()
    yield {"TOPIC": topic}


@SCENES.of("undeliverable_event", "column ... is NULL")
def row_without_what_every_event_needs(stage):
    p = stage.streamed()
    p.execute("ALTER TABLE outbox.events ALTER aggregate_id DROP NOT NULL")
    stage.insert(1, aggregate_id="NULL")
    bad = stage.newest()
    stage.insert()
    yield {"ID": bad, "KEY": "corrected"}


@SCENES.of("dead_letter_failed", "has no table")
def table_of_dead_letters_that_was_never_made(stage):
    p = stage.stopped()
    p.execute("DROP TABLE walpost.dead_letters")
    stage.reconfigure(config={"delivery": {"on_undeliverable": "dead_letter"}}).start(wait=None)
    yield {}


@SCENES.of("dead_letter_failed", "delivery.dead_letters_max")
def more_dead_letters_than_may_be_open(stage):
    p = stage.streamed(config={"delivery": {"on_undeliverable": "park", "dead_letters_max": 2}})
    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    for key in range(3):
        stage.insert(1, aggregate_id=f"'large-{key}'", payload="convert_to(repeat('x', 50000), 'UTF8')")
    stage.fix = lambda: p.kafka.alter_topic(p.name, {"max.message.bytes": "200000"})
    yield {}


# -- what PostgreSQL sends ----------------------------------------------------------------------------------------------

@SCENES.of("poison_wal", "commit LSN")
def row_that_postgres_cannot_convert(stage):
    p = stage.streamed(encoding="WIN1252")
    stage.insert(event_type="CASE n % 5 WHEN 3 THEN chr(129) ELSE 'Tested' END")  # a character that UTF-8 lacks
    bad = p.execute("SELECT id::text FROM outbox.events WHERE event_type = chr(129)")[0][0]
    stage.insert()
    yield {"ID": bad}


@SCENES.of("protocol_error", "Something is between")
def proxy_that_changes_what_goes_through(stage):
    p = stage.stopped()
    proxy = stage.workspace.add(ManglingProxy(p.postgres.port))
    stage.reconfigure(conninfo=f"host=127.0.0.1 port={proxy.port} dbname={p.database} user=postgres sslmode=disable gssencmode=disable")
    p.walpost.start(wait=None)
    yield {"CONNINFO": p.postgres.conninfo(p.database)}


# -- logins -------------------------------------------------------------------------------------------------------------

@SCENES.of("auth_failed", "may not read walpost.pipeline", "[42501]", "[28P01]", "[28000]", "[3D000]")
def login_that_is_rejected(stage):
    postgres = stage.workspace.postgres()
    p = stage.stopped(on_postgres=postgres)
    p.execute("SET password_encryption = 'scram-sha-256'; CREATE ROLE relay LOGIN REPLICATION PASSWORD 'right';"
              " GRANT USAGE ON SCHEMA outbox TO relay; GRANT SELECT ON ALL TABLES IN SCHEMA outbox TO relay;"
              " GRANT SELECT ON walpost.dead_letters, walpost.schema_version TO relay")
    hba = postgres.data / "pg_hba.conf"
    hba.write_text("local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n", encoding="utf-8")
    p.execute("SELECT pg_reload_conf()")

    def conninfo(database=p.database, password="right"):
        return postgres.conninfo(database, user="relay", tcp=True, password=password)

    stage.reconfigure(conninfo=conninfo()).start(wait=None)
    yield {"ROLE_NAME": "relay"}

    p.walpost.stop()
    p.execute("ALTER ROLE relay NOREPLICATION")
    stage.insert()
    p.walpost.start(wait=None)
    yield {"ROLE_NAME": "relay"}

    p.walpost.stop()
    stage.insert()
    stage.reconfigure(conninfo=conninfo(password="wrong")).start(wait=None)
    yield {"CONNINFO": conninfo()}

    p.walpost.stop()
    hba.write_text("local all postgres trust\n", encoding="utf-8")
    p.execute("SELECT pg_reload_conf()")
    stage.insert()
    p.walpost.start(wait=None)
    yield {"DATABASE": p.database, "ROLE_NAME": "relay", "ADDRESS": "127.0.0.1/32"}

    p.walpost.stop()
    hba.write_text("local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n", encoding="utf-8")
    p.execute("SELECT pg_reload_conf()")
    stage.insert()
    stage.reconfigure(conninfo=conninfo("nobody-made-this")).start(wait=None)
    yield {"CONNINFO": conninfo()}


# -- progress, and the set-up -------------------------------------------------------------------------------------------

def delete_topic(p, topic):
    admin = p.kafka.admin()
    admin.delete_topics([topic])[topic].result(timeout=30)
    servers.wait_for(lambda: topic not in admin.list_topics(timeout=10).topics, 30, "the topic to be gone")


@SCENES.of("progress_unreadable", "which does not exist", "which does not exist", "has n partitions")
def progress_topic_that_is_deleted_emptied_or_another(stage):
    p = stage.streamed()
    topic = f"walpost.progress.{p.name}"
    for partitions in (0, 1, 2):
        assert p.walpost.stop() == 0
        stage.insert()
        delete_topic(p, topic)
        if partitions:
            p.kafka.create_topic(topic, partitions)
        p.walpost.start(wait=None)
        yield {}


@SCENES.of("progress_unreadable", "is not a walpost.v1.Progress message")
def progress_topic_that_somebody_else_wrote_to(stage):
    p = stage.stopped()
    topic = f"walpost.progress.{p.name}"
    delete_topic(p, topic)
    p.kafka.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": p.kafka.bootstrap})
    producer.produce(topic, b"no message of walpost's", p.name)
    assert producer.flush(30) == 0
    p.walpost.start(wait=None)
    yield {}


@SCENES.of("init_incomplete", "synchronous_standby_names")
def synchronous_standby(stage):
    p = stage.stopped(on_postgres=stage.workspace.postgres())
    p.execute(f"ALTER SYSTEM SET synchronous_standby_names = '\"walpost-{p.name}\"'")
    p.execute("SELECT pg_reload_conf()")
    servers.wait_for(lambda: p.execute("SHOW synchronous_standby_names") != [("",)], 20, "the setting")
    p.walpost.start(wait=None)
    yield {"STANDBYS": ""}


@SCENES.of("init_incomplete", "records the message prefix", since=14)
def prefix_that_is_not_listed_any_more(stage):
    p = stage.pipeline(config={"messages": {"prefixes": ["shop"]}})
    p.walpost.verb("init", "--with-messages")
    emitted = p.execute("SELECT outbox.emit_message('Tested', %s, 'key', 'x', prefix => 'shop')::text", p.name)[0][0]
    stage.insert()
    stage.committed = lambda: Stage.committed(stage) | {emitted}
    p.walpost = p.another(config={})
    p.walpost.start(wait=None)
    yield {"PREFIX": "shop"}


@SCENES.of("init_incomplete", "backfilled = false")
def backfill_that_was_interrupted(stage):
    p = stage.prepared(rows=20)
    stage.insert(1, aggregate_type="'nobody-made-this-topic'")
    bad = stage.newest()
    stage.insert()
    assert p.walpost.verb("init", "--backfill", check=False).returncode == 78
    p.walpost.start(wait=None)
    stage.fix = lambda: p.execute("UPDATE outbox.events SET aggregate_type = %s WHERE id = %s", p.name, bad)
    yield {}


@pytest.mark.parametrize("name", first(5, SCENES.playable()))
def test_halt_is_led_out_of_by_the_runbook_and_nothing_is_missing(stage, name):
    stage.play(SCENES[name], BOOK)
