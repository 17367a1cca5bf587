"""Whatever is wrong: one clear line that says what, where and what to do, the documented state or exit code, nothing lost."""

import json

import pytest
import servers


def halted(walpost, reason):
    walpost.start(wait="halted")
    return halt_of(walpost, reason)


def halt_of(walpost, reason):
    walpost.wait_state("halted")
    status = walpost.status()
    assert status["halt"]["reason"] == reason
    assert walpost.get("/livez")[0] == 200 and walpost.get("/readyz")[0] == 503
    lines = [line for line in walpost.log_events() if line["event"] == "halted"]
    assert lines and lines[-1]["reason"] == reason and "\n" not in lines[-1]["msg"]
    return status["halt"]["detail"]


def retrying(walpost):
    """Not connected yet, so still starting; says why, and goes on trying."""
    walpost.start(wait="starting")
    servers.wait_for(lambda: walpost.status()["reconnects"] >= 2, 30, "a second attempt")
    return walpost.status()["last_error"]


def options(p, **more):
    return {"source": {"conninfo": p.postgres.conninfo(p.database), "slot": p.name, "publication": p.name, **more}}


# -- the source ---------------------------------------------------------------------------------------------------------

def test_an_unreachable_server_is_retried_and_named(make_pipeline):
    p = make_pipeline()
    port = servers.free_port()
    error = retrying(p.another(conninfo=f"host=127.0.0.1 port={port} dbname=x"))
    assert "127.0.0.1" in error and str(port) in error


def test_an_unreadable_conninfo_ends_with_78(make_pipeline):
    p = make_pipeline()
    done = p.another(conninfo="host=x prot=5432").verb("run", check=False)
    assert done.returncode == 78
    assert "invalid connection option" in done.stderr and "source.conninfo" in done.stderr


def test_a_wrong_password_halts_auth_failed(make_pipeline, workspace):
    postgres = workspace.postgres()
    p = make_pipeline(on_postgres=postgres)
    p.walpost.init()
    postgres.execute("CREATE ROLE guest LOGIN REPLICATION PASSWORD 'right'")
    hba = postgres.data / "pg_hba.conf"
    hba.write_text("local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n", encoding="utf-8")
    postgres.execute("SELECT pg_reload_conf()")
    conninfo = postgres.conninfo(p.database, user="guest", tcp=True, password="wrong-secret")
    walpost = p.another(conninfo=conninfo)
    walpost.start(wait=None)
    walpost.wait_state("halted", 90)
    detail = halt_of(walpost, "auth_failed")
    assert "guest" in detail
    assert "wrong-secret" not in walpost.log_text() and "wrong-secret" not in walpost.get("/status")[1]


def test_a_role_without_replication_halts_auth_failed(make_pipeline, postgres):
    p = make_pipeline()
    p.walpost.init()
    postgres.execute(f"CREATE ROLE {p.name}_plain LOGIN")
    walpost = p.another(conninfo=postgres.conninfo(p.database, user=f"{p.name}_plain"))
    walpost.start(wait=None)
    walpost.wait_state("halted", 90)
    assert "REPLICATION" in halt_of(walpost, "auth_failed")


# Failure 9.
def test_a_missing_slot_halts_and_is_never_created(make_pipeline):
    p = make_pipeline()
    detail = halted(p.walpost, "slot_missing")
    assert p.name in detail and "walpost init" in detail
    assert p.slot() is None


# Failure 9.
def test_a_dropped_slot_is_not_created_again_by_init(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    done = p.walpost.verb("init", check=False)
    assert done.returncode == 78 and "slot_missing" in done.stderr
    assert p.slot() is None
    halted(p.walpost, "slot_missing")


def test_a_missing_publication_halts(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.execute(f"DROP PUBLICATION {p.name}")
    detail = halted(p.walpost, "publication_missing")
    assert p.name in detail


def test_a_publication_without_the_table_halts(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.execute(f"ALTER PUBLICATION {p.name} DROP TABLE outbox.events")
    detail = halted(p.walpost, "publication_missing")
    assert "outbox.events" in detail and "ALTER PUBLICATION" in detail


def test_a_slot_of_another_plugin_halts(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    p.execute("SELECT pg_create_logical_replication_slot('foreign_plugin', 'test_decoding')")
    walpost = p.another(config=options(p, slot="foreign_plugin"))
    assert "test_decoding" in halted(walpost, "slot_foreign")


def test_a_slot_of_another_database_halts(make_pipeline):
    p, other = make_pipeline(), make_pipeline()
    p.walpost.init()
    other.walpost.init()
    walpost = p.another(config=options(p, slot=other.name))
    assert other.database in halted(walpost, "slot_foreign")


# Failure 13.
def test_wal_level_replica_is_named_by_init_and_check(make_pipeline, workspace):
    postgres = workspace.postgres(settings={"wal_level": "replica"})
    p = make_pipeline(on_postgres=postgres)
    for verb in ("init", "check"):
        done = p.walpost.verb(verb, check=False)
        assert done.returncode == 78, done
        assert "wal_level" in done.stdout + done.stderr and "logical" in done.stdout + done.stderr


# Failure 33.
def test_a_publication_edited_while_streaming_is_noticed_by_the_planned_reconnect(make_pipeline):
    p = make_pipeline(config={"source": {"reconnect_interval": "1s"}}).start()
    p.insert(1, 5)
    p.execute(f"ALTER PUBLICATION {p.name} DROP TABLE outbox.events")
    p.walpost.wait_state("halted", 60)
    assert "ALTER PUBLICATION" in halt_of(p.walpost, "publication_missing")


# -- rows ---------------------------------------------------------------------------------------------------------------

# Failure 35.
def test_a_missing_column_halts_and_nothing_is_lost_once_it_is_back(make_pipeline):
    p = make_pipeline().start()
    p.insert(1, 5)
    p.wait_confirmed()
    p.execute("ALTER TABLE outbox.events RENAME payload TO body")
    p.execute(f"INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES (gen_random_uuid(), '{p.name}', 'k', 'T')")
    before = p.slot()["confirmed"]
    detail = halt_of(p.walpost, "schema_mismatch")
    assert "outbox.events" in detail and "payload" in detail
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
    assert p.slot()["confirmed"] <= p.wal_position() and p.slot()["confirmed"] >= before
    # The way out that the message names: map what the table has.
    p.walpost.kill9()
    fixed = p.another(config={"outboxes": [{"table": "outbox.events", "columns": {"payload": ["payload", "body"]}}]})
    fixed.start()
    p.walpost = fixed
    p.wait_confirmed()
    p.judge()


# Failure 55.
def test_a_generated_column_is_named_by_check_and_halts_before_its_first_row(make_pipeline):
    p = make_pipeline(config={"outboxes": [{"table": "outbox.events", "columns": {"payload": "shout"}}]})
    p.walpost.init()
    p.execute("ALTER TABLE outbox.events ADD COLUMN shout text GENERATED ALWAYS AS (event_type || '!') STORED")
    done = p.walpost.verb("check", check=False)
    assert done.returncode == 78 and "no column shout" in done.stdout
    p.walpost.start()
    before = p.wal_position()
    p.insert(1, 5)
    assert "no column shout" in halt_of(p.walpost, "schema_mismatch")
    assert p.records() == [] and p.slot()["confirmed"] <= before


ROWS = {
    "a bad topic name": ("gen_random_uuid(), 'no spaces allowed', 'k', 'T'", "no spaces allowed", 5),
    # A topic may be about to be made: meanwhile those of other topics go on, and nothing is confirmed past it.
    "an unknown topic": ("gen_random_uuid(), 'nobody-made-this-topic', 'k', 'T'", "nobody-made-this-topic", 10),
}


# Failures 67, 68.
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_a_row_that_cannot_be_sent_halts_exactly_there(make_pipeline, case):
    row, named, delivered = ROWS[case]
    p = make_pipeline().start()
    p.insert(1, 5)
    p.allow_bad_topics()
    p.execute(f"INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES ({row})")
    behind_it = p.wal_position()
    bad = p.execute("SELECT id::text FROM outbox.events ORDER BY seq DESC LIMIT 1")[0][0]
    p.insert(6, 10)
    p.walpost.wait_state("halted", 60)
    detail = halt_of(p.walpost, "undeliverable_event")
    assert named in detail and bad in detail
    assert len(p.records()) == delivered
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
    assert p.slot()["confirmed"] < behind_it
    if case == "an unknown topic":  # the operator makes it, and nothing is lost
        p.kafka.create_topic(named, 1)
        p.walpost.signal(1)  # SIGHUP: resume
        p.walpost.wait_state("streaming", 30)
        p.wait_confirmed()
        assert {r.id for r in p.records()} | {bad} == set(p.committed())


# Failure 39.
def test_a_null_key_halts_and_names_the_event(make_pipeline):
    p = make_pipeline().start()
    p.execute("ALTER TABLE outbox.events ALTER aggregate_id DROP NOT NULL")
    p.insert(1, 5)
    p.execute(f"INSERT INTO outbox.events (id, aggregate_type, event_type) VALUES (gen_random_uuid(), '{p.name}', 'T')")
    bad = p.execute("SELECT id::text FROM outbox.events ORDER BY seq DESC LIMIT 1")[0][0]
    p.walpost.wait_state("halted", 60)
    detail = halt_of(p.walpost, "undeliverable_event")
    assert "aggregate_id" in detail and bad in detail
    assert len(p.records()) == 5


# Failure 33.
def test_a_replaced_table_halts(make_pipeline):
    p = make_pipeline().start()
    p.insert(1, 5)
    p.wait_confirmed()
    definition = "CREATE TABLE outbox.copy (LIKE outbox.events INCLUDING ALL); DROP TABLE outbox.events"
    p.execute(definition + "; ALTER TABLE outbox.copy RENAME TO events")
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE outbox.events")
    p.insert(6, 10)
    p.walpost.wait_state("halted", 60)
    assert "outbox.events" in halt_of(p.walpost, "table_replaced")


# Failure 69.
def test_a_message_larger_than_the_topic_allows_halts_and_is_named(make_pipeline):
    p = make_pipeline().start()
    p.kafka.alter_topic(p.name, {"max.message.bytes": "20000"})
    p.insert(1, 5)
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)"
              f" VALUES (gen_random_uuid(), '{p.name}', 'k', 'T', convert_to(repeat('x', 50000), 'UTF8'))")
    bad = p.execute("SELECT id::text FROM outbox.events ORDER BY seq DESC LIMIT 1")[0][0]
    p.insert(6, 10)
    p.walpost.wait_state("halted", 90)
    detail = halt_of(p.walpost, "undeliverable_event")
    assert bad in detail
    assert bad not in {record.id for record in p.records()}
    p.kafka.alter_topic(p.name, {"max.message.bytes": "200000"})
    p.walpost.signal(1)
    p.wait_confirmed()
    p.judge()


# -- Kafka --------------------------------------------------------------------------------------------------------------

# Failure 61.
@pytest.mark.full
def test_kafka_down_at_start_waits_and_loses_nothing(make_pipeline, workspace):
    kafka = workspace.kafka()
    p = make_pipeline(on_kafka=kafka)
    p.walpost.init()
    kafka.kill9()
    p.insert(1, 10)
    p.walpost.start(wait=None)
    # What is remembered must be read before anything is streamed.
    servers.wait_for(lambda: (s := p.walpost.status()) and "remembered progress cannot be read yet" in (s["last_error"] or ""), 60,
                     "walpost to say what it waits for")
    assert p.walpost.state() == "starting"
    assert p.walpost.get("/livez")[0] == 200
    kafka.start()
    p.wait_confirmed()
    assert p.judge() == 0


# -- the file -----------------------------------------------------------------------------------------------------------

def test_an_unknown_key_ends_with_78_and_suggests(make_pipeline):
    p = make_pipeline()
    done = p.another(config={"sorce": {"slot": "x"}}).verb("run", check=False)
    assert done.returncode == 78
    assert "sorce" in done.stderr and "source" in done.stderr


def test_an_unsafe_producer_property_ends_with_78_and_says_why(make_pipeline):
    p = make_pipeline()
    done = p.another(properties={"acks": "1"}).verb("run", check=False)
    assert done.returncode == 78
    assert "acks" in done.stderr


def test_a_missing_file_ends_with_78(make_pipeline):
    p = make_pipeline()
    p.walpost.file.unlink()
    done = p.walpost.verb("run", check=False)
    assert done.returncode == 78 and "walpost.yaml" in done.stderr


def test_a_wrong_verb_ends_with_64(make_pipeline):
    assert make_pipeline().walpost.verb("rum", check=False).returncode == 64


def test_on_halt_exit_ends_with_the_documented_code(make_pipeline):
    p = make_pipeline()
    done = p.another(config={"delivery": {"on_halt": "exit"}}).verb("run", check=False)
    assert done.returncode == 78 and "slot_missing" in done.stderr


# Progress, dead letters and parked keys go by the name: a walpost with another one would deliver behind a parked event.
@pytest.mark.parametrize("guard", ["remembered", "not remembered"])
@pytest.mark.parametrize("edited", ["name", "slot"])
def test_name_or_slot_that_was_edited_halts(make_pipeline, edited, guard):
    p = make_pipeline(config={"delivery": {"progress_topic": ""}} if guard == "not remembered" else None).start()
    p.insert(1, 2)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.insert(3, 4)
    right = p.walpost.file.read_text()
    config = json.loads(right)
    if edited == "name":
        config["name"] = "renamed"
    else:
        config["name"] = config.get("name", p.name)
        config["source"]["slot"] = f"{p.name}_elsewhere"
        p.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", f"{p.name}_elsewhere")
    p.walpost.file.write_text(json.dumps(config))
    assert "records pipeline" in halted(p.walpost, "slot_foreign")
    p.walpost.stop()
    assert p.walpost.verb("check", check=False).returncode == 78
    for verb in ("advance", "recreate"):
        rejected = p.walpost.verb("slot", verb, "--yes", check=False)
        assert rejected.returncode == 78 and "records pipeline" in rejected.stderr
    for verb in (["dlq", "list"], ["replay", "--missing", "--in-place"], ["slot", "create"]):
        rejected = p.walpost.verb(*verb, check=False)
        assert rejected.returncode == 78 and "records pipeline" in rejected.stderr, (verb, rejected)
    p.walpost.file.write_text(right)
    p.walpost.start()
    p.wait_confirmed()
    assert p.ids() == p.stored_ids()
