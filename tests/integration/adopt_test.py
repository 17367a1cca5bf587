"""A further outbox is added to the publication while a transaction that has written to it is open.

PostgreSQL sends some, all or none of its rows, by what it decoded before on the same connection.
"""

import signal
import time

import park_order_test
import pytest
import servers
from confluent_kafka import Producer
from rare import first

TABLE = """CREATE TABLE second (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), seq bigint GENERATED ALWAYS AS IDENTITY, aggregate_type text,
    aggregate_id text, event_type text, payload bytea, created_at timestamptz DEFAULT now())"""
ADD = "INSERT INTO second (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, 'k', %s, 'x')"
SECOND = {"table": "public.second", "topics": {"allowed": ["*"]}}


BOTH = {"outboxes": [{"table": "outbox.events"}, SECOND]}


def adopt(p):
    """walpost with the further outbox."""
    p.walpost = p.another(config=BOTH)
    p.walpost.start()


def published(make_pipeline, **options):
    """A pipeline that has delivered and streams, and a table `second` in its publication."""
    p = make_pipeline(partitions=1, **options).start()
    p.insert(1, 3)
    p.wait_confirmed()
    p.execute(TABLE)
    p.execute(f'ALTER PUBLICATION "{p.name}" ADD TABLE second')
    p.wait_confirmed()
    return p


def remembered(p):
    progress = servers.load_proto("progress").Progress
    return [progress.FromString(message.value()) for message in p.kafka.read_all(f"walpost.progress.{p.name}")]


def is_adopted(p, name="second"):
    return any(table.name == name for table in remembered(p)[-1].fingerprint.tables)


def types(p):
    return [dict(message.headers())["type"].decode() for message in p.kafka.read_all(p.name)]


@pytest.fixture(name="opened")
def fixture_opened(make_pipeline):
    """A transaction that wrote to table second before that was published."""
    p = make_pipeline(partitions=1).start()
    p.insert(1, 3)
    p.wait_confirmed()
    p.execute(TABLE)
    with p.postgres.connect(p.database, autocommit=False) as connection:
        cursor = connection.cursor()
        cursor.execute(ADD, (p.name, "BeforeAdd"))
        p.execute(f'ALTER PUBLICATION "{p.name}" ADD TABLE second')
        yield p, connection, cursor


@pytest.mark.smoke
@pytest.mark.parametrize("known", first(1, [False, True]), ids=["first row of the table", "after another row of the table"])
def test_transaction_that_was_open_when_its_table_was_published_is_left_to_replay(opened, known):
    p, connection, cursor = opened
    assert p.walpost.stop() == 0
    adopt(p)
    if known:
        p.execute(ADD, p.name, "Other")
        p.wait_confirmed()
    cursor.execute(ADD, (p.name, "AfterAdd"))
    connection.commit()
    p.execute(ADD, p.name, "Later")
    p.wait_confirmed()
    assert "BeforeAdd" not in types(p) and "AfterAdd" not in types(p) and "Later" in types(p)
    [adopted] = [line for line in p.walpost.log_events() if line["event"] == "outbox_adopted"]
    assert adopted["table"] == "public.second" and "replay --missing" in adopted["msg"]
    p.walpost.verb("replay", "--missing", "--in-place", "--table", "public.second")
    assert sorted(types(p)[-2:]) == ["AfterAdd", "BeforeAdd"]
    assert p.walpost.verb("audit", check=False).returncode == 0


# What is sent again is the same event at the same position.
@pytest.mark.full
@pytest.mark.smoke
def test_no_event_has_two_positions_after_a_crash_in_such_a_transaction(opened):
    p, connection, cursor = opened
    assert p.walpost.stop() == 0
    adopt(p)
    p.execute(ADD, p.name, "Other")
    p.wait_confirmed()
    cursor.execute("INSERT INTO second (aggregate_type, aggregate_id, event_type, payload) SELECT %s, 'k', 'AfterAdd', 'x' FROM generate_series(1, 20000)", (p.name,))
    cursor.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) SELECT %s, 'k', 'Mine', 'x' FROM generate_series(1, 20000)", (p.name,))
    delivered = p.walpost.status()["events"]["delivered"]
    connection.commit()
    p.walpost.wait_delivered(delivered + 1_000)
    p.walpost.kill9()
    p.walpost.start()
    p.wait_confirmed()
    positions = {}
    for message in p.kafka.read_all(p.name):
        headers = dict(message.headers())
        positions.setdefault(headers["id"], set()).add(headers["walpost-position"])
    assert all(len(each) == 1 for each in positions.values())
    assert types(p).count("AfterAdd") == 0 and len(positions) == 3 + 1 + 20_000


# The catalog shows who published a table, and not when that was over.
@pytest.mark.full
def test_transaction_that_wrote_beside_a_slow_publisher_is_left_to_replay(make_pipeline):
    p = make_pipeline(partitions=1).start()
    p.insert(1, 3)
    p.wait_confirmed()
    p.execute(TABLE)
    assert p.walpost.stop() == 0
    with p.postgres.connect(p.database, autocommit=False) as publisher, p.postgres.connect(p.database, autocommit=False) as connection:
        publisher.cursor().execute(f'ALTER PUBLICATION "{p.name}" ADD TABLE second')
        cursor = connection.cursor()
        cursor.execute(ADD, (p.name, "BeforeAdd"))
        publisher.commit()
        adopt(p)
        p.execute(ADD, p.name, "Other")
        p.wait_confirmed()
        cursor.execute(ADD, (p.name, "AfterAdd"))
        connection.commit()
    assert p.walpost.stop() == 0
    p.walpost.start()
    p.wait_confirmed()
    assert types(p)[-1] == "Other"
    p.walpost.verb("replay", "--missing", "--in-place", "--table", "public.second")
    assert sorted(types(p)[-2:]) == ["AfterAdd", "BeforeAdd"]
    assert p.walpost.verb("audit", check=False).returncode == 0


# What committed before the edit was published then, and the log still has it.
def test_backlog_of_before_an_edit_is_streamed_after_the_decision(make_pipeline):
    p = make_pipeline(partitions=1).start()
    p.insert(1, 2)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.insert_transactions(1, 100)
    p.execute("DELETE FROM outbox.events")  # an outbox that keeps no rows
    for edit in ("DROP", "ADD"):
        p.execute(f'ALTER PUBLICATION "{p.name}" {edit} TABLE outbox.events')
    p.insert(1, 5)
    p.walpost.start(wait="halted")
    assert p.walpost.verb("slot", "advance", "--yes").returncode == 0
    p.walpost.signal(signal.SIGHUP)
    p.walpost.wait_state("streaming")
    p.wait_confirmed()
    assert len(p.records()) == 2 + 100 + 5


# A record of progress may reach Kafka after its process has gone, and the next one has begun.
def test_late_record_of_the_process_before_undoes_no_adoption(make_pipeline):
    p = published(make_pipeline)
    assert p.walpost.stop() == 0
    late = remembered(p)[-1]
    adopt(p)
    servers.wait_for(lambda: is_adopted(p), 60, "the adoption")
    p.walpost.kill9()
    late.end_lsn = p.wal_position()
    producer = Producer({"bootstrap.servers": p.kafka.bootstrap})
    producer.produce(f"walpost.progress.{p.name}", late.SerializeToString(), p.name)
    assert producer.flush(30) == 0
    for n in range(5):
        p.execute(ADD, p.name, f"After{n}")
    p.walpost.start()
    p.wait_confirmed()
    assert {f"After{n}" for n in range(5)} <= set(types(p))


# A rolling deployment: the new process took over, adopted, and died before it confirmed anything.
def test_process_without_the_table_does_not_go_on_after_an_adoption(make_pipeline):
    p = published(make_pipeline)
    old, new = p.walpost, p.another(config=BOTH).start(wait="standby")
    old.signal(signal.SIGSTOP)
    p.execute("SELECT pg_terminate_backend(%s)", p.slot()["pid"])
    servers.wait_for(lambda: is_adopted(p), 60, "the adoption")
    new.kill9()
    p.execute(ADD, p.name, "Between")
    old.signal(signal.SIGCONT)
    old.wait_state("halted", 60)
    assert old.status()["halt"]["reason"] == "init_incomplete"
    assert old.stop() == 0
    p.walpost = new.start()
    p.execute(ADD, p.name, "Later")
    p.wait_confirmed()
    assert {"Between", "Later"} <= set(types(p))


# Each adopts what only it has, and the record of the one that has lost the slot lands last.
def test_adoption_that_lands_late_undoes_no_other_one(make_pipeline):
    p = published(make_pipeline)
    p.execute(TABLE.replace("second", "third"))
    p.execute(f'ALTER PUBLICATION "{p.name}" ADD TABLE third')
    assert p.walpost.stop() == 0
    topic = f"walpost.progress.{p.name}"
    p.kafka.alter_topic(topic, {"max.message.bytes": "10"})
    old = p.another(config=BOTH).start(wait=None)
    servers.wait_for(lambda: p.slot()["active"], 60, "the stream")
    new = p.another(config={"outboxes": [*BOTH["outboxes"], {**SECOND, "table": "public.third"}]}).start(wait="standby")
    old.signal(signal.SIGSTOP)
    p.kafka.alter_topic(topic, {"max.message.bytes": "1048588"})
    p.execute("SELECT pg_terminate_backend(%s)", p.slot()["pid"])
    servers.wait_for(lambda: is_adopted(p, "third"), 60, "the adoption")
    new.kill9()
    p.execute(ADD.replace("second", "third"), p.name, "Between")
    old.signal(signal.SIGCONT)
    old.wait_state("halted", 60)
    assert old.status()["halt"]["reason"] == "init_incomplete"
    assert old.stop() == 0
    p.walpost = new.start()
    p.wait_confirmed()
    assert "Between" in types(p)


# The commit of a transaction that only took an id is not flushed: after a crash the server gives the id again.
@pytest.mark.full
def test_rows_of_ids_that_a_crash_gives_again_are_events(make_pipeline, workspace):
    postgres = workspace.postgres()
    p = published(make_pipeline, on_postgres=postgres)
    assert p.walpost.stop() == 0
    p.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
    p.execute("SELECT pg_reload_conf()")
    new = p.walpost = p.another(config=BOTH)
    with postgres.connect(p.database) as connection:
        cursor = connection.cursor()

        def take_ids_until_adopted():
            for _ in range(20):
                cursor.execute("SELECT pg_current_xact_id()")
            return is_adopted(p)

        assert not take_ids_until_adopted()
        new.start(wait=None)
        servers.wait_for(take_ids_until_adopted, 90, "the adoption")
    postgres.kill9()
    new.signal(signal.SIGSTOP)
    postgres.start()
    for n in range(60):
        p.execute(ADD, p.name, f"New{n}")
    new.signal(signal.SIGCONT)
    new.wait_state("streaming", 60)
    p.wait_confirmed()
    assert {f"New{n}" for n in range(60)} <= set(types(p))


def use_ids(p, count):
    p.execute(f"DO $$ BEGIN FOR i IN 1..{count} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")


def write_and_pass_the_ids(p):
    """Other rows than before the server was set back, with the same ids. Then ids that it had not given either."""
    for n in range(60):
        p.execute(ADD, p.name, f"New{n}")
    use_ids(p, 300)


def adopt_and_die(p):
    use_ids(p, 200)
    p.walpost = p.another(config=BOTH)
    p.walpost.start(wait=None)
    servers.wait_for(lambda: is_adopted(p), 60, "the adoption", every=0.05)
    p.walpost.kill9()


def test_rows_of_ids_that_a_server_that_was_set_back_gives_again_are_events(make_pipeline, workspace):
    postgres = workspace.postgres()
    p = published(make_pipeline, on_postgres=postgres)
    assert p.walpost.stop() == 0
    copy = postgres.copy_disk(workspace.path / "copy")
    adopt_and_die(p)
    postgres.put_back(copy)
    write_and_pass_the_ids(p)
    p.walpost.start()
    p.wait_confirmed()
    assert {f"New{n}" for n in range(60)} <= set(types(p))


# Without the end of the log. With a transaction open, the adoption is known by an id.
@pytest.mark.parametrize("is_open", [pytest.param(False, id="nothing open"), pytest.param(True, id="one open", marks=pytest.mark.full)])
def test_rows_of_ids_that_a_promoted_standby_gives_again_are_events(make_pipeline, workspace, is_open):
    primary, standby = workspace.postgres(), workspace.postgres(start=False)
    p = published(make_pipeline, on_postgres=primary)
    assert p.walpost.stop() == 0
    standby.make_standby_of(primary)
    standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
    standby.execute("SELECT pg_reload_conf()")
    servers.wait_for(lambda: not standby.execute("SELECT 1 FROM pg_stat_wal_receiver"), 30, "the end of the replication")
    with primary.connect(p.database, autocommit=False) as connection:
        if is_open:
            connection.cursor().execute(ADD, (p.name, "Open"))
        adopt_and_die(p)
        [table] = [table for table in remembered(p)[-1].fingerprint.tables if table.name == "second"]
        assert (table.first_xid > 0) == is_open
    primary.stop("immediate")
    standby.execute("SELECT pg_promote()")
    p.postgres = standby
    write_and_pass_the_ids(p)
    p.walpost = p.another(config=BOTH)
    p.walpost.start()
    p.wait_confirmed()
    assert {f"New{n}" for n in range(60)} <= set(types(p))


def with_and_without_second(make_pipeline, kafka):
    """A pipeline that parks, and walpost with outbox.events alone and with both."""
    p = park_order_test.parking(make_pipeline, kafka, unknown_topic_wait="10min", shutdown_timeout="1s")
    p.execute(TABLE)
    p.execute(f'ALTER PUBLICATION "{p.name}" ADD TABLE second')
    p.walpost.stop()
    delivery = {"delivery": {"on_undeliverable": "park", "unknown_topic_wait": "10min", "shutdown_timeout": "1s"}}
    return p, p.another(config=delivery), p.another(config={**BOTH, **delivery})


def discard_what_comes_again(p, walpost):
    """It streams until an event is discarded that stands behind one that waits for its topic."""
    p.walpost = walpost
    walpost.start()
    p.insert(1, 1)
    p.wait_confirmed()
    p.insert(1, 1, topic=f"missing-{p.name}")
    park_order_test.insert(p, "e1", bad=True)
    servers.wait_for(lambda: park_order_test.open_rows(p) == 1, 60, "the row")
    walpost.verb("dlq", "discard", "--key", "k", "--yes", "--wait", "60s")
    walpost.stop()


@pytest.mark.parametrize("added", first(1, [True, False]))
def test_advance_takes_no_other_outboxes_while_events_with_dead_letters_come_again(make_pipeline, kafka, added):
    """Their ordinals would count its rows: a discarded event would be sent."""
    p, one, both = with_and_without_second(make_pipeline, kafka)
    before, after = (one, both) if added else (both, one)
    discard_what_comes_again(p, before)
    advance = after.verb("slot", "advance", "--yes", check=False)
    assert advance.returncode == 78 and "walpost.dead_letters has 1 rows" in advance.stderr, advance.stderr
    before.verb("slot", "advance", "--yes")


@pytest.mark.full
def test_dropped_outbox_is_given_up_while_events_with_dead_letters_come_again(make_pipeline, kafka):
    """walpost cannot start with the earlier configuration any more."""
    p, one, both = with_and_without_second(make_pipeline, kafka)
    discard_what_comes_again(p, both)
    p.execute("DROP TABLE second")
    advance = one.verb("slot", "advance", "--yes", check=False)
    assert advance.returncode == 78 and "slot recreate" in advance.stderr, advance.stderr
    p.kafka.create_topic(f"missing-{p.name}", 1)  # what waits for it is sent
    one.verb("slot", "recreate", "--yes")
    p.walpost = one
    one.start()
    park_order_test.insert(p, "e2")
    servers.wait_for(lambda: park_order_test.types(p), 60, "a new one")
    assert park_order_test.types(p) == ["e2"] and len(p.kafka.read_all(f"missing-{p.name}")) == 1


@pytest.mark.full
def test_adoption_is_reported_once_it_is_remembered(make_pipeline, workspace):
    """From then on people let the application write. A process that begins anew has forgotten it."""
    postgres = workspace.postgres(settings={"wal_sender_timeout": "'2s'"})
    p = published(make_pipeline, on_postgres=postgres)
    assert p.walpost.stop() == 0
    topic = f"walpost.progress.{p.name}"
    p.kafka.alter_topic(topic, {"max.message.bytes": "10"})
    p.walpost = p.another(config=BOTH)
    p.walpost.start(wait=None)
    servers.wait_for(lambda: p.slot()["active"], 60, "the stream")
    postgres.stop("immediate")
    began = time.monotonic()
    servers.wait_for(lambda: time.monotonic() > began + 5, 30, "another instance to be possible")
    postgres.start()
    servers.wait_for(lambda: p.slot()["active"], 60, "the stream")
    assert "outbox_adopted" not in p.walpost.log_text() and not is_adopted(p)
    p.kafka.alter_topic(topic, {"max.message.bytes": "1048588"})
    servers.wait_for(lambda: "outbox_adopted" in p.walpost.log_text(), 60, "the adoption")
    assert is_adopted(p)
