"""The runbook is walked: what concerns the slot, the server, the publication and the table is caused, seen, and fixed by the commands as they are
written there; it streams again and nothing is missing. And: every reason and every way out with commands is walked by somebody."""

import re

import pytest
import runbook
import runbook_events_test
import servers
from runbook_stage import Scenes, Stage, kafka, stage  # noqa: F401 - fixtures
from rare import first

BOOK = runbook.Runbook()
SCENES = Scenes()
NOT_WALKED = {
    ("publication_missing", "is being detached CONCURRENTLY"): "detach_concurrently_test.py walks it",
    ("publication_missing", "arrives under the name of another table"): "the same",
    ("publication_missing", "PostgreSQL 13 and 14 send it so until the connection ends"): "the same",
    ("publication_missing", "tables inherit from"): "the same",
    ("poison_wal", "invalid memory alloc request size"): "it takes gigabytes of memory; the procedure is walked for other reasons",
    ("init_incomplete", "was never completed"): "PostgreSQL removes such a slot itself, unless its machine dies at that moment",
    ("poison_wal", "associated LSN"): "row filters could cause it, and are rejected before",
    ("publication_missing", "was sent a second time with other events"): "the same commands as of other transactions that are skipped",
    ("timeline_changed", "this pipeline wrote N rows"): "the same commands as of a server that was set back; history_test.py walks them",
    ("protocol_error", "Nothing is between"): "it would be a bug; the same commands as of other transactions that are skipped",
}


# -- the slot -----------------------------------------------------------------------------------------------------------

@SCENES.of("slot_missing", "does not exist: run", "walpost.pipeline records it")
def new_pipeline_and_then_the_slot_is_dropped(stage):
    p = stage.prepared(rows=5)
    p.walpost.start(wait=None)
    yield {}
    assert p.walpost.stop() == 0
    stage.insert()
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    p.walpost.start(wait=None)
    yield {}


@SCENES.of("slot_missing", "wal_level is")
def server_that_writes_no_logical_wal(stage):
    p = stage.prepared(rows=5, on_postgres=stage.workspace.postgres(settings={"wal_level": "replica"}))
    p.walpost.start(wait=None)
    yield {}


@SCENES.of("slot_invalidated")
def slot_that_kept_too_much(stage):
    p = stage.stopped(on_postgres=stage.workspace.postgres(
        settings={"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}))

    def lost():
        p.execute("SELECT pg_switch_wal(), txid_current()")
        p.execute("CHECKPOINT")
        return p.slot()["wal_status"] == "lost"

    servers.wait_for(lost, 60, "the slot to be lost")
    p.walpost.start(wait=None)
    yield {}


@SCENES.of("slot_moved")
def slot_that_was_advanced_by_hand(stage):
    p = stage.stopped()
    p.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", p.name)
    p.walpost.start(wait=None)
    yield {}


@SCENES.of("slot_foreign", "belongs to database")
def wrong_database(stage):
    p = stage.stopped()
    stage.reconfigure(conninfo=p.postgres.conninfo()).start(wait=None)
    yield {"CONNINFO": p.postgres.conninfo(p.database)}


@SCENES.of("slot_foreign", "uses the plugin")
def slot_of_another_plugin(stage):
    p = stage.prepared(rows=5)
    p.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", p.name)
    p.walpost.start(wait="halted")
    p.slot = lambda: p.postgres.slot(f"{p.name}_own", p.database)
    yield {"NEW_NAME": f"{p.name}_own", "NEW_SLOT": f"{p.name}_own"}


# -- the server ---------------------------------------------------------------------------------------------------------

def restored(stage, p, server, with_slot):
    """What a dump of the database brings to another cluster: tables, rows, the record of the pipeline, the publication."""
    columns = "id, aggregate_type, aggregate_id, event_type, payload, created_at"
    rows = p.execute(f"SELECT {columns} FROM outbox.events ORDER BY seq")
    record = p.execute("SELECT name, slot, publication, system_identifier, consistent_point, backfilled FROM walpost.pipeline")[0]
    p.postgres = server
    server.create_database(p.database)
    stage.reconfigure()
    stage.make_tables(p)
    for row in rows:
        p.execute(f"INSERT INTO outbox.events ({columns}) VALUES (%s, %s, %s, %s, %s, %s)", *row)
    p.execute("INSERT INTO walpost.pipeline (name, slot, publication, system_identifier, consistent_point, backfilled) VALUES (%s, %s, %s, %s, %s, %s)",
              *record)
    p.execute(f"CREATE PUBLICATION {p.name} FOR TABLE outbox.events WITH (publish = 'insert', publish_via_partition_root = true)")
    if with_slot:
        p.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", p.name)


@pytest.fixture(scope="module")
def other_server(module_workspace):
    return module_workspace.postgres()


@SCENES.of("cluster_changed", "The address is wrong")
def address_of_another_server(stage):
    p = stage.stopped()
    stage.other_server.create_database(p.database)
    conninfo = stage.other_server.conninfo(p.database)
    stage.reconfigure(conninfo=conninfo).init()
    p.walpost.start(wait="halted")
    yield {"CONNINFO": p.postgres.conninfo(p.database)}


@SCENES.of("cluster_changed", "This is production now")
def restored_with_a_slot(stage):
    p = stage.stopped()
    restored(stage, p, stage.other_server, with_slot=True)
    p.walpost.start(wait=None)
    yield {}


@SCENES.of("slot_missing", "walpost.pipeline records it")
def restored_without_a_slot(stage):
    p = stage.stopped()
    restored(stage, p, stage.other_server, with_slot=False)
    p.walpost.start(wait=None)
    yield {}


@SCENES.of("cluster_changed", "This is a copy")
def copy_that_must_not_publish_as_the_original(stage):
    p = stage.stopped()
    restored(stage, p, stage.other_server, with_slot=True)
    p.walpost.start(wait="halted")
    production, sent = stage.kafka, stage.delivered()
    p.slot = lambda: p.postgres.slot(f"{p.name}_copy", p.database)
    stage.kafka = stage.workspace.kafka()
    stage.kafka.create_topic(p.name)
    yield {"NEW_NAME": f"{p.name}_copy", "NEW_SLOT": f"{p.name}_copy", "OTHER_BROKER:9092": stage.kafka.bootstrap}
    stage.kafka = production
    assert stage.delivered() == sent, "nothing was published as the original"


@SCENES.of("timeline_changed", "timeline n ended at X", "TIMELINE_HISTORY n", "which is not in its history")
def standby_is_promoted_that_lacks_what_is_in_kafka(stage):
    primary, standby = stage.workspace.postgres(), stage.workspace.postgres(start=False)
    p = stage.streamed(on_postgres=primary)
    assert p.walpost.stop() == 0
    standby.make_standby_of(primary)
    standby.stop()
    p.walpost.start()
    stage.insert()
    p.wait_confirmed()  # in Kafka, and not on the standby
    assert p.walpost.stop() == 0
    primary.stop()
    standby.start()
    standby._run("pg_ctl", "-D", standby.data, "-w", "promote")
    p.postgres = standby
    stage.insert()
    stage.reconfigure().start(wait=None)
    yield {}

    assert p.walpost.stop() == 0
    history, archive = standby.data / "pg_wal" / "00000002.history", stage.workspace.path / "archive"
    archive.mkdir()
    (archive / history.name).write_bytes(history.read_bytes())
    history.unlink()
    stage.insert()
    p.walpost.start(wait=None)
    yield {"ARCHIVE": archive, "HISTORY": history.name}

    assert p.walpost.stop() == 0
    primary.start()
    stage.insert()
    stage.reconfigure(conninfo=primary.conninfo(p.database)).start(wait=None)
    yield {"CONNINFO": standby.conninfo(p.database)}


@SCENES.of("timeline_changed", "the server was set back")
def disk_is_put_back_and_writers_come_first(stage):
    postgres = stage.workspace.postgres()
    p = stage.streamed(on_postgres=postgres)
    assert p.walpost.stop() == 0
    copy = postgres.copy_disk(stage.workspace.path / "copy")
    p.walpost.start()
    stage.insert()
    p.wait_confirmed()  # in Kafka, and not in the copy
    assert p.walpost.stop() == 0
    end = p.wal_position()
    postgres.put_back(copy)
    stage.insert()
    p.write_wal_past(end)
    p.walpost.start(wait=None)
    yield {}


# -- the publication ----------------------------------------------------------------------------------------------------

CREATE_PUBLICATION = "CREATE PUBLICATION {} FOR TABLE outbox.events WITH (publish = 'insert', publish_via_partition_root = true)"


@SCENES.of("publication_missing", *["publication ... does not exist"] * 3)
def publication_that_is_dropped_or_made_anew(stage):
    p = stage.streamed()
    p.execute(f"DROP PUBLICATION {p.name}")  # while streaming
    stage.insert()
    yield {}

    assert p.walpost.stop() == 0
    p.execute(f"DROP PUBLICATION {p.name}")
    stage.insert()
    p.walpost.start(wait=None)
    yield {}

    assert p.walpost.stop() == 0
    p.execute(f"DROP PUBLICATION {p.name}")
    stage.insert()
    p.execute(CREATE_PUBLICATION.format(p.name))
    p.walpost.start(wait=None)
    yield {}


@SCENES.of("publication_missing", "does not publish inserts", "is not in it", "is partitioned, and")
def publication_that_was_edited(stage):
    p = stage.streamed()
    for change in ("SET (publish = 'update')", "DROP TABLE outbox.events", "SET (publish_via_partition_root = false)"):
        assert p.walpost.stop() == 0
        p.execute(f"ALTER PUBLICATION {p.name} {change}")
        stage.insert()
        p.walpost.start(wait=None)
        yield {}


@SCENES.of("publication_missing", "was taken out of the publication", "is partitioned, and", "partition ... writes no log")
def publication_and_partition_edited_while_it_streams(stage):
    p = stage.streamed()
    for how in ("DROP", "ADD"):
        p.execute(f"ALTER PUBLICATION {p.name} {how} TABLE outbox.events")
        stage.insert()
    yield {}

    p.execute(f"ALTER PUBLICATION {p.name} SET (publish_via_partition_root = false)")
    stage.insert()
    yield {}

    assert p.walpost.stop() == 0
    partition = p.execute("SELECT tableoid::regclass::text FROM outbox.events ORDER BY seq DESC LIMIT 1")[0][0]
    p.execute(f"ALTER TABLE {partition} SET UNLOGGED")
    stage.insert()
    p.walpost.start(wait=None)
    yield {"PARTITION_NAME": partition}


@SCENES.of("publication_missing", "has a row filter", since=15)
def publication_with_a_row_filter(stage):
    p = stage.streamed()
    p.execute(f"ALTER PUBLICATION {p.name} SET TABLE outbox.events WHERE (id IS NOT NULL)")
    stage.insert()
    yield {}


# -- the table ----------------------------------------------------------------------------------------------------------

def replace_table(p):
    p.execute("CREATE TABLE outbox.copy (LIKE outbox.events INCLUDING ALL); DROP TABLE outbox.events; ALTER TABLE outbox.copy RENAME TO events")


@SCENES.of("table_replaced", "is OID A but was OID B")
def table_dropped_and_created_while_walpost_is_down(stage):
    p = stage.streamed()
    assert p.walpost.stop() == 0
    replace_table(p)
    stage.insert()
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE outbox.events")
    stage.insert()
    p.walpost.start(wait=None)
    yield {}


@SCENES.of("table_replaced", "is OID A in the stream but was OID B", "is called A.B in the stream")
def table_dropped_and_created_while_it_streams_and_then_renamed(stage):
    p = stage.streamed()
    replace_table(p)
    stage.insert()
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE outbox.events")
    stage.insert()
    yield {}

    stage.table = "outbox.happenings"
    p.execute("ALTER TABLE outbox.events RENAME TO happenings")
    stage.insert()
    yield {"NEW_TABLE": stage.table}


# -- all of them --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", first(6, SCENES.playable()))
def test_halt_is_led_out_of_by_the_runbook_and_nothing_is_missing(stage, other_server, name):
    stage.other_server = other_server
    stage.play(SCENES[name], BOOK)


def reasons():
    """As src/base/state.cc names them."""
    text = (servers.ROOT / "src" / "base" / "state.cc").read_text(encoding="utf-8")
    found = set(re.findall(r'case HaltReason::\w+:\s*return "(\w+)"', text))
    assert len(found) > 10
    return found


def test_every_reason_has_a_section_in_five_parts_and_is_walked():
    for reason in reasons():
        assert tuple(BOOK.parts(reason)) == runbook.PARTS, reason
        assert BOOK.steps(BOOK.parts(reason)["Diagnosis"], reason), f"{reason}: nothing to look at"
        assert BOOK.steps(BOOK.parts(reason)["Verify"], reason), f"{reason}: nothing to verify by"
    scenes = [*SCENES.values(), *runbook_events_test.SCENES.values()]
    assert {scene.reason for scene in scenes} == reasons()


def test_every_link_to_a_heading_finds_it():
    """Those within the runbook, and those of other documents and of the alerts that lead into it."""
    docs = [*(servers.ROOT / "docs").rglob("*.md"), servers.ROOT / "README.md", servers.ROOT / "docs" / "monitoring" / "alerts.yml"]
    links = re.findall(r"\]\(#([^)]+)\)", runbook.without_fences(BOOK.text))
    for path in docs:
        links += re.findall(r"runbook\.md#([\w-]+)", path.read_text(encoding="utf-8"))
    assert len(links) > 100 and sorted(set(links) - set(BOOK.sections)) == []


def test_every_way_out_with_commands_is_walked():
    scenes = [*SCENES.values(), *runbook_events_test.SCENES.values()]
    walked = {(scene.reason, way) for scene in scenes for way in scene.ways}
    for reason in reasons():
        for way in BOOK.ways(reason):
            if BOOK.steps(way.text, reason):
                assert any(reason == of and way.title.startswith(title) for of, title in walked | set(NOT_WALKED)), f"{reason}: {way.title}"
    for reason, title in [*walked, *NOT_WALKED]:
        assert any(way.title.startswith(title) for way in BOOK.ways(reason)), f"{reason} has no way {title}"
