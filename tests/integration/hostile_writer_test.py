"""A role that may write events, and nothing else, tries to harm those of others. docs/security.md says what it can and cannot do."""

import contextlib
import json
import time
import uuid

import psycopg2
import pytest
import servers
from confluent_kafka import Producer

TABLE = """CREATE TABLE public.{} (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text,
    payload {}, headers jsonb, occurred_at timestamptz, tenant text); GRANT INSERT ON public.{} TO outbox_writer"""
DELAY_MAX_S = 60  # from the last hostile event to the last honest one
HONEST = 40
FORGED_EPOCH = 1 << 50  # above each of walpost's, which are milliseconds


def progress(p, **fields):
    """A record of walpost.v1.Progress that says more than is so."""
    message = servers.load_proto("progress").Progress(**{"format": 1, **fields}, system_identifier=int(p.execute(
        "SELECT system_identifier FROM pg_control_system()")[0][0]), timeline=1, end_lsn=p.wal_position() + (1 << 40))
    message.recorded_at.GetCurrentTime()
    return message.SerializeToString()


class World:
    """One walpost with a table of each kind, an honest role and a hostile one, which have the same rights."""

    def __init__(self, p, kafka, **delivery):
        self.p, self.kafka = p, kafka
        self.progress_topic = f"progress-of-{p.name}"  # a name that nothing reserves
        self.dead_letter_topic = f"dead-{p.name}"
        columns = {"headers": "headers", "occurred_at": "occurred_at"}
        raw = {"table": "outbox.events", "topic": "{aggregate_type}", "topics": {"allowed": ["*"]}, "value": {"format": "raw"}}
        events = {"preset": "debezium", "columns": columns, "topics": {"allowed": ["*"]}}
        p.walpost = p.another(config={
            "source": {"conninfo": p.postgres.conninfo(p.database), "slot": p.name, "publication": p.name, "event_bytes_max": "1MiB"},
            "outboxes": [
                raw,
                {**events, "table": "public.cloud", "topic": "{aggregatetype}", "columns": {**columns, "type": "type"},
                 "value": {"format": "cloudevents"}},
                {"table": "public.expanded", "columns": columns, "topics": {"allowed": ["*"]},
                 "debezium": {"route.topic.replacement": "${routedByValue}", "table.expand.json.payload": "true",
                              "table.fields.additional.placement": "tenant:header:tenant"}}],
            "messages": {"prefixes": ["shop"], "topic": p.name + ".{type}", "value": {"format": "raw"}},
            "delivery": {"on_undeliverable": "dead_letter", "progress_topic": self.progress_topic,
                         "dead_letter_topic": self.dead_letter_topic, **delivery}})
        for name, payload in (("cloud", "bytea"), ("expanded", "text")):
            p.execute("DO $$ BEGIN IF to_regrole('outbox_writer') IS NULL THEN CREATE ROLE outbox_writer NOLOGIN; CREATE ROLE outbox_owner NOLOGIN;"
                      " GRANT outbox_owner TO CURRENT_USER; END IF; END $$")
            p.execute(TABLE.format(name, payload, name))
        p.walpost.verb("init", "--with-messages", "--with-roles")
        for role in ("honest", "hostile"):
            p.execute(f"CREATE ROLE {role}_{p.name} LOGIN IN ROLE outbox_writer")
        p.execute(f"CREATE ROLE nobody_{p.name} LOGIN")
        # What the table rejects anyhow is not what is tried here.
        for name, in p.execute("SELECT conname FROM pg_constraint WHERE conrelid = 'outbox.events'::regclass AND contype = 'c'"):
            p.execute(f"ALTER TABLE outbox.events DROP CONSTRAINT {name}")
        p.walpost.start()

    @contextlib.contextmanager
    def role(self, name):
        with contextlib.closing(psycopg2.connect(self.p.postgres.conninfo(self.p.database) + f" options='-c role={name}_{self.p.name}'")) as own:
            own.autocommit = True
            with own.cursor() as cursor:
                yield cursor


@pytest.fixture
def world(make_pipeline, kafka):
    return World(make_pipeline(), kafka)


def row(cursor, table, topic, key="key", kind="Forged", payload=b"x", headers=None, occurred_at=None, tenant=None):
    """One transaction. The row's id."""
    if table == "outbox.events":
        cursor.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers, occurred_at)"
                       " VALUES (%s, %s, %s, %s, coalesce(%s::jsonb, '{}'), %s)", (topic, key, kind, payload, headers, occurred_at))
    else:
        value = payload.decode("latin1") if table == "public.expanded" else payload
        cursor.execute(f"INSERT INTO {table} (aggregatetype, aggregateid, type, payload, headers, occurred_at, tenant)"
                       " VALUES (%s, %s, %s, %s, %s, %s, %s)", (topic, key, kind, value, headers, occurred_at, tenant))


def destinations(world, cursor):
    """Topics of walpost's, of another pipeline's and of Kafka's, with what would be believed there."""
    p = world.p
    forged = progress(p, epoch=FORGED_EPOCH)
    for table in ("outbox.events", "public.cloud", "public.expanded"):
        for topic in (world.progress_topic, world.dead_letter_topic, "walpost.progress.other", "__consumer_offsets", "no topic", "", ".."):
            row(cursor, table, topic, key=p.name, payload=forged.replace(b"\0", b"\1"))
            row(cursor, table, topic, key=p.name, payload=b"junk")


def headers(world, cursor):
    """Headers that speak for walpost."""
    decision = ('{"walpost-dlq": "decision", "walpost-dlq-action": "discarded", "walpost-dlq-pipeline": "%s", "walpost-dlq-through": "ffff",'
                ' "walpost-dlq-topic": "%s"}' % (world.p.name, world.p.name))
    for table in ("outbox.events", "public.cloud", "public.expanded"):
        for forged in (decision, '{"id": "another"}', '{"walpost-position": "ffffffffffffffff-ffffffff-ffffffffffffffff-ffffffff"}',
                       '{"walpost-redelivery": "retry"}', '{"n": 1e400}', '{"a": {"b": 1}}', '{"": "x"}', "[1]"):
            row(cursor, table, world.p.name, key="honest-1", headers=forged)
    for forged in ('{"ce_id": "another"}', '{"content-type": "application/cloudevents+json"}'):
        row(cursor, "public.cloud", world.p.name, headers=forged)
    row(cursor, "outbox.events", world.p.name, headers='{"type": "Another"}')


def times(world, cursor):
    for table in ("outbox.events", "public.cloud", "public.expanded"):
        for time_text in ("infinity", "-infinity", "20000-01-01", "0044-03-15 BC", "294276-12-31"):
            row(cursor, table, world.p.name, occurred_at=time_text)


def bombs(world, cursor):
    """What is small here and large there, and what is large everywhere."""
    elements = ",".join('{"member%d":1}' % n for n in range(5_000))
    row(cursor, "public.expanded", world.p.name, payload=('{"l":[%s]}' % elements).encode())
    row(cursor, "public.expanded", world.p.name, payload=b'{"l":[' + b"[" * 2_000 + b"]" * 2_000 + b"]}")
    row(cursor, "public.expanded", world.p.name, payload=b'{"l":[' + b"0," * 150_000 + b"0]}")
    row(cursor, "public.expanded", world.p.name + "\n" * 9_000)
    for table in ("outbox.events", "public.cloud", "public.expanded"):
        row(cursor, table, world.p.name, payload=b"x" * 3_000_000)
        row(cursor, table, world.p.name, headers="{%s}" % ",".join('"h%d": 1' % n for n in range(30_000)))
    cursor.execute("SELECT pg_logical_emit_message(%s, 'nobody reads it', repeat('x', 30000000))", (False,))
    cursor.execute("SELECT pg_logical_emit_message(%s, 'nobody reads it', repeat('x', 30000000))", (True,))
    cursor.execute("SELECT pg_logical_emit_message(true, 'shop', repeat('x', 30000000))")


def messages(world, cursor):
    """Without any grant: what EXECUTE for PUBLIC allows."""
    message = servers.load_proto("outbox_message").OutboxMessage(id="e", type="t", aggregate_type="a", aggregate_id=world.p.name,
                                                                 payload=progress(world.p, epoch=FORGED_EPOCH))
    contents = [b"no protobuf", b"", message.SerializeToString()]
    for topic in (world.progress_topic, world.dead_letter_topic, world.p.name, "__consumer_offsets"):
        message.topic = topic
        contents.append(message.SerializeToString())
    message.topic = ""
    message.headers["walpost-dlq"] = "decision"
    contents.append(message.SerializeToString())
    for content in contents:
        cursor.execute("SELECT pg_logical_emit_message(true, 'shop', %s::bytea)", (psycopg2.Binary(content),))


def test_events_of_others_arrive_unchanged_in_order_and_in_time(world):
    p, sent = world.p, []
    tricks = [("hostile", destinations), ("hostile", headers), ("hostile", times), ("hostile", bombs), ("nobody", messages)]
    with world.role("honest") as honest:
        for role, trick in tricks:
            for n in range(HONEST):
                text = f"{trick.__name__} {n}"
                row(honest, "outbox.events", p.name, key=f"honest-{n % 4}", kind="Honest", payload=text.encode())
                sent.append((f"honest-{n % 4}", text))
                if n == HONEST // 2:
                    with world.role(role) as hostile:
                        trick(world, hostile)
    done = time.monotonic()
    p.wait_confirmed(seconds=DELAY_MAX_S)
    assert time.monotonic() - done < DELAY_MAX_S
    assert p.walpost.status()["state"] == "streaming"

    def arrived():
        """What a consumer takes that believes the last header of a name, and drops what is not above the last position of its key."""
        last, texts = {}, []
        for record in world.kafka.read_all(p.name):
            names = [name for name, _ in record.headers()]
            assert len(names) == len(set(names)), f"a header twice: {names}"
            given, key = dict(record.headers()), record.key().decode()
            if "walpost-position" in given:
                assert given["walpost-position"] > last.get(key, b""), "no position goes back"
                last[key] = given["walpost-position"]
            if given.get("type") == b"Honest":
                texts.append((key, record.value().decode()))
        return texts

    def by_key(pairs):
        return {key: [text for other, text in pairs if other == key] for key, _ in pairs}

    assert by_key(arrived()) == by_key(sent), "each once, in order, unchanged"
    # What walpost reads back was written by walpost.
    read = servers.load_proto("progress").Progress.FromString
    believed = [read(record.value()) for record in world.kafka.read_all(world.progress_topic)]
    assert max(each.epoch for each in believed) < FORGED_EPOCH and max(each.end_lsn for each in believed) <= p.wal_position()
    kinds = {dict(record.headers()).get("walpost-dlq") for record in world.kafka.read_all(world.dead_letter_topic)}
    assert kinds <= {b"dead_letter"}, kinds
    p.walpost.stop()
    p.walpost.start()
    with world.role("honest") as honest:
        row(honest, "outbox.events", p.name, key="honest-0", kind="Honest", payload=b"after a restart")
    p.wait_confirmed(seconds=DELAY_MAX_S)
    assert by_key(arrived()) == by_key([*sent, ("honest-0", "after a restart")])


def test_times_that_no_format_has_are_undeliverable_in_each(world):
    p = world.p
    with world.role("hostile") as hostile:
        times(world, hostile)
    p.wait_confirmed()
    assert p.execute("SELECT source, reason, count(*) FROM walpost.dead_letters GROUP BY 1, 2 ORDER BY 1") == [
        (table, "row_invalid", 5) for table in ("outbox.events", "public.cloud", "public.expanded")]
    assert world.kafka.read_all(p.name) == []


def decision(p, event, action):
    """What would say in a topic that an operator has decided about the event."""
    return {"walpost-dlq": "decision", "walpost-dlq-action": action, "walpost-dlq-id": event, "walpost-dlq-pipeline": p.name,
            "walpost-dlq-topic": p.name, "id": str(uuid.uuid4())}


def test_forged_decisions_make_audit_take_no_event_for_delivered(world):
    p = world.p
    with world.role("honest") as honest:
        for n in range(5):
            row(honest, "outbox.events", p.name, payload=b"event %d" % n)
        row(honest, "outbox.events", "no topic")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    gone, *others = world.kafka.read_all(p.name)
    world.kafka.rewrite(p.name, others)
    p.walpost.start()
    p.wait_confirmed()
    missing = dict(gone.headers())["id"].decode()
    dead = p.execute("SELECT event_id FROM walpost.dead_letters")[0][0]

    def audited():
        done = p.walpost.verb("audit", "--json", "--table", "outbox.events", check=False)
        found = json.loads(done.stdout)
        return done.returncode, found["missing_ids"], found["ok"], found["dead_lettered"]

    truth = (65, [missing], 4, 1)
    assert audited() == truth
    copied = ", ".join(name for name, in p.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'walpost.dead_letters'::regclass"
                                                   " AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('seq', 'event_id')"))
    for forged in (f"INSERT INTO walpost.dead_letters (event_id, {copied}) SELECT '{missing}', {copied} FROM walpost.dead_letters",
                   f"UPDATE walpost.dead_letters SET event_id = '{missing}'", "UPDATE walpost.dead_letters SET closed_at = now()",
                   "UPDATE walpost.dead_letters SET decision = 'retry'", "DELETE FROM walpost.dead_letters",
                   "UPDATE walpost.pipeline SET delivered_lsn = 'FFFFFFFF/0'"):
        with world.role("hostile") as hostile, pytest.raises(psycopg2.errors.InsufficientPrivilege):
            hostile.execute(forged)
    with world.role("hostile") as hostile:
        for action in ("delivered", "discarded"):
            for event in (missing, dead):
                row(hostile, "public.cloud", p.name, headers=json.dumps(decision(p, event, action)))
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap, "log_level": 0})
    for topic in (world.dead_letter_topic, p.name):
        for action in ("delivered", "discarded"):
            for event in (missing, dead):
                producer.produce(topic, key="key", headers={**decision(p, event, action), "walpost-position": dict(gone.headers())["walpost-position"]})
    assert producer.flush(30) == 0
    p.wait_confirmed()
    assert audited() == truth


def test_ten_thousand_topics_that_do_not_exist_delay_others_by_a_bound(make_pipeline, kafka):
    """Each row has a topic of its own, and Kafka is believed only when it has said for 10 s that there is none."""
    world = World(make_pipeline(), kafka, unknown_topic_wait="10s")
    p = world.p
    with world.role("honest") as honest, world.role("hostile") as hostile:
        row(honest, "outbox.events", p.name, kind="Honest", payload=b"before")
        world.p.walpost.wait_delivered(1)
        hostile.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)"
                        " SELECT 'missing-' || n, 'key', 'Forged', 'x' FROM generate_series(1, 10000) n")
        for n in range(HONEST):
            row(honest, "outbox.events", p.name, kind="Honest", payload=b"behind %d" % n)
    done = time.monotonic()
    servers.wait_for(lambda: len(kafka.read_all(p.name)) == HONEST + 1, 20, "events behind 10,000 that nobody can deliver")
    assert [record.value() for record in kafka.read_all(p.name)] == [b"before", *(b"behind %d" % n for n in range(HONEST))]
    p.wait_confirmed(seconds=2 * DELAY_MAX_S)
    assert time.monotonic() - done < 2 * DELAY_MAX_S
    assert p.walpost.status()["state"] == "streaming"
    assert len(kafka.read_all(world.dead_letter_topic)) == 10_000
    assert p.walpost.peak_rss_bytes() < 150 * 1024 * 1024


def test_messages_of_a_parked_key_that_any_role_emits_stop_nobody(make_pipeline):
    p = make_pipeline(config={"messages": {"prefixes": ["shop"], "topic": "{aggregate_type}", "topics": {"allowed": ["*"]}},
                              "delivery": {"on_undeliverable": "park", "dead_letters_max": 100}})
    p.walpost.verb("init", "--with-messages")
    p.walpost.start()
    p.execute(f"CREATE ROLE nobody_{p.name} LOGIN")
    p.insert_large(3_000_000, key="parked")
    servers.wait_for(lambda: p.walpost.status()["events"]["parked_keys"] == 1, 30, "a key to be parked")
    message = servers.load_proto("outbox_message").OutboxMessage(id="m", type="T", aggregate_type=p.name, aggregate_id="parked")
    with contextlib.closing(psycopg2.connect(p.postgres.conninfo(p.database, user=f"nobody_{p.name}"))) as connection:
        connection.autocommit = True
        connection.cursor().execute("SELECT count(pg_logical_emit_message(true, 'shop', %s::bytea)) FROM generate_series(1, 1000)",
                                    (psycopg2.Binary(message.SerializeToString()),))
    p.insert(1, 20)
    p.wait_confirmed()
    assert p.walpost.status()["state"] == "streaming" and len(p.records()) == 20
    assert p.execute("SELECT count(*) FROM walpost.dead_letters WHERE closed_at IS NULL") == [(25,)]


def test_guessed_idempotency_keys_keep_no_event_of_others_out(world):
    p = world.p
    with world.role("hostile") as hostile, world.role("honest") as honest:
        for n in range(20):
            hostile.execute("SELECT outbox.emit('Forged', %s, 'key', 'forged', idempotency_key => %s)", (p.name, f"payment-{n}"))
        for n in range(20):
            for _ in range(2):
                honest.execute("SELECT outbox.emit('Honest', %s, 'key', %s, idempotency_key => %s)", (p.name, f"payment {n}", f"payment-{n}"))
    p.wait_confirmed(seconds=DELAY_MAX_S)
    arrived = [record.value().decode() for record in world.kafka.read_all(p.name)]
    assert [text for text in arrived if text != "forged"] == [f"payment {n}" for n in range(20)], "each once, whoever came first"


def test_progress_that_somebody_else_wrote_neither_counts_nor_stands_in_the_way(make_pipeline, kafka):
    def write(topic, value):
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        producer.produce(topic, key=p.name, value=value, partition=0)
        assert producer.flush(30) == 0

    p = make_pipeline()
    p.start()
    p.insert(1, 5)
    p.wait_confirmed()
    p.walpost.stop()
    junk = [b"junk", progress(p, epoch=(1 << 64) - 1), b""]
    for value in junk:
        write(f"walpost.progress.{p.name}", value)
    p.walpost.start()  # a good record stands beside them
    p.insert(6, 10)
    p.wait_confirmed()
    p.walpost.stop()

    # Nothing else is there: a halt by name, and the way out of the runbook.
    topic = kafka.create_topic(f"only-junk-{p.name}", 1, {"cleanup.policy": "compact"})
    for value in junk:
        write(topic, value)
    p.walpost = p.another(config={"delivery": {"progress_topic": topic}})
    p.walpost.start(wait="halted")
    assert p.walpost.status()["halt"]["reason"] == "progress_unreadable"
    output = p.walpost.verb("slot", "advance", "--yes").stdout
    assert "3 record(s) in the progress topic cannot be read" in output
    p.walpost.signal(1)
    p.insert(11, 15)
    p.wait_confirmed()

    # One of a newer walpost halts. The decision overrules it, also where the newer one's server had a clock that was ahead.
    p.walpost.stop()
    write(topic, progress(p, format=2, epoch=(1 << 64) - 1))  # no walpost's
    write(topic, progress(p, format=2, epoch=FORGED_EPOCH))
    p.walpost.start(wait="halted")
    assert p.walpost.status()["halt"]["reason"] == "progress_unreadable"
    assert p.walpost.verb("check", check=False).returncode != 0
    p.walpost.verb("slot", "advance", "--yes")
    p.walpost.signal(1)
    p.insert(16, 20)
    p.wait_confirmed()

    # One that is ahead of the server is not believed either.
    p.walpost.stop()
    write(topic, progress(p, epoch=2 * FORGED_EPOCH))
    p.walpost.start(wait="halted")
    assert p.walpost.status()["halt"]["reason"] == "timeline_changed"
    p.walpost.verb("slot", "advance", "--yes")
    p.walpost.signal(1)
    p.insert(21, 25)
    p.wait_confirmed()
    p.judge()


def test_event_in_the_progress_topic_of_another_pipeline_is_no_progress(make_pipeline):
    victim = make_pipeline()
    topic = f"shop.progress-{victim.name}"  # nothing reserves this name
    victim.walpost = victim.another(config={"delivery": {"progress_topic": topic}})
    victim.start()
    victim.insert(1, 5)
    victim.wait_confirmed()
    victim.walpost.stop()
    victim.insert(6, 15)  # waits in its slot
    other = make_pipeline(config={"outboxes": [{"table": "outbox.events", "topic": "{aggregate_type}", "topics": {"allowed": ["shop.*"]},
                                                "value": {"format": "raw"}}]})
    other.start()
    forged = servers.load_proto("progress").Progress.FromString(victim.kafka.read_all(topic)[-1].value())
    forged.end_lsn = victim.wal_position()
    other.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, %s, 'Forged', %s)",
                  topic, victim.name, forged.SerializeToString())
    other.wait_confirmed()
    assert victim.kafka.read_all(topic)[-1].value() == forged.SerializeToString()
    victim.walpost.start()
    victim.wait_confirmed()
    assert victim.judge() == 0 and len(victim.records()) == 15
