"""Whatever a migration does to publication, table, partition, column or type ends in the right records, or in a halt that names it.

The rows of the tables below are those of docs/schema-changes.md. Each edit is made while walpost streams and while it is away. After the
way out that the runbook names, nothing is missing.
"""

import json
import signal

import pytest
import servers
from edits import HARMLESS
from rare import first

ADVANCE = ("slot", "advance", "--yes")
RECREATE = ("slot", "recreate", "--yes")


class Edit:
    """`make`, then rows, then `undo`, then a row: it must halt with `reason` and say `words`; `fix` and `verb` are the way out."""

    def __init__(self, make, undo="", reason="publication_missing", words="", fix="", verb=ADVANCE, since=13, config=None, smoke=False):
        self.make, self.undo, self.reason, self.words, self.fix, self.verb = make, undo, reason, words, fix, verb
        self.since, self.config, self.smoke = since, config, smoke


WHOLE = "ALTER PUBLICATION {name} DROP TABLE outbox.events; ALTER PUBLICATION {name} ADD TABLE outbox.events"
OUT_AND_IN = "was taken out of the publication and added again"
ALTERED = "the publication was altered"

HALTING = {
    "table out and in": Edit("ALTER PUBLICATION {name} DROP TABLE outbox.events", "ALTER PUBLICATION {name} ADD TABLE outbox.events",
                             words=OUT_AND_IN, smoke=True),
    "tables set and set back": Edit("CREATE TABLE IF NOT EXISTS other (id int); ALTER PUBLICATION {name} SET TABLE other",
                                    "ALTER PUBLICATION {name} SET TABLE outbox.events", words=OUT_AND_IN),
    "publish": Edit("ALTER PUBLICATION {name} SET (publish = 'update')", "ALTER PUBLICATION {name} SET (publish = 'insert')",
                    words=ALTERED, smoke=True),
    "owner of the publication": Edit("ALTER PUBLICATION {name} OWNER TO CURRENT_USER; ALTER PUBLICATION {name} SET (publish = 'insert')",
                                     words=ALTERED),
    "partitions under their own names": Edit("ALTER PUBLICATION {name} SET (publish_via_partition_root = false)",
                                             "ALTER PUBLICATION {name} SET (publish_via_partition_root = true)", verb=RECREATE, smoke=True,
                                             fix="ALTER PUBLICATION {name} SET (publish_via_partition_root = true)"),
    "row filter": Edit("ALTER PUBLICATION {name} SET TABLE outbox.events WHERE (id IS NOT NULL)", words="has a row filter", fix=WHOLE, since=15),
    "row filter and back": Edit("ALTER PUBLICATION {name} SET TABLE outbox.events WHERE (id IS NULL)",
                                "ALTER PUBLICATION {name} SET TABLE outbox.events", words=OUT_AND_IN, since=15, smoke=True),
    "column list": Edit("ALTER PUBLICATION {name} SET TABLE outbox.events (id, created_at, aggregate_type, aggregate_id, event_type, payload)",
                        words="has a column list without", fix=WHOLE, since=15, smoke=True),
    "generated columns": Edit("ALTER PUBLICATION {name} SET (publish_generated_columns = stored)",
                              "ALTER PUBLICATION {name} SET (publish_generated_columns = none)", words=ALTERED, since=18, smoke=True),
    "whole schema instead": Edit("ALTER PUBLICATION {name} SET TABLES IN SCHEMA outbox", words="by its own name", since=15,
                                 fix="ALTER PUBLICATION {name} SET TABLE outbox.events"),
    "mapped column dropped": Edit("ALTER TABLE outbox.events DROP COLUMN schema_name", reason="schema_mismatch", words="no column schema_name",
                                  fix="ALTER TABLE outbox.events ADD COLUMN schema_name text", verb=RECREATE,
                                  config={"outboxes": [{"table": "outbox.events", "columns": {"schema_name": "schema_name"}}]}),
    "column to an array": Edit("ALTER TABLE outbox.events DROP CONSTRAINT IF EXISTS events_check;"
                               " ALTER TABLE outbox.events ALTER event_type TYPE text[] USING ARRAY[event_type]",
                               reason="schema_mismatch", words="event_type", verb=RECREATE,
                               fix="ALTER TABLE outbox.events ALTER event_type TYPE text USING event_type[1]"),
    "column to a composite": Edit("CREATE TYPE public.pair AS (a text, b int); ALTER TABLE outbox.events DROP CONSTRAINT IF EXISTS events_check;"
                                  " ALTER TABLE outbox.events ALTER event_type TYPE public.pair USING ROW(event_type, 1)::public.pair",
                                  reason="schema_mismatch", words="public.pair", verb=RECREATE, smoke=True,
                                  fix="ALTER TABLE outbox.events ALTER event_type TYPE text USING (event_type).a; DROP TYPE public.pair"),
}

# What brings no sign while walpost streams: seen by the next connect.
AT_CONNECT = {
    "table out": Edit("ALTER PUBLICATION {name} DROP TABLE outbox.events", words="is not in it",
                      fix="ALTER PUBLICATION {name} ADD TABLE outbox.events"),
    "unlogged partition": Edit("ALTER TABLE outbox.events_default SET UNLOGGED", words="writes no log",
                               fix="ALTER TABLE outbox.events_default SET LOGGED", smoke=True),
    "foreign partition": Edit("ALTER TABLE outbox.events DROP CONSTRAINT events_pkey; CREATE FOREIGN DATA WRAPPER w;"
                              " CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE outbox.f"
                              " PARTITION OF outbox.events FOR VALUES FROM ('2001-01-01') TO ('2002-01-01') SERVER s",
                              words="is a foreign table", fix="ALTER TABLE outbox.events DETACH PARTITION outbox.f"),
}


def cases(edits):
    return [pytest.param(name, id=name, marks=pytest.mark.smoke if edit.smoke else []) for name, edit in edits.items()]


def execute(p, sql):
    for statement in filter(None, sql.format(name=p.name, tables="outbox.events").split(";")):  # VACUUM takes no company
        p.execute(statement)


def insert(p, into_default=False):
    """Two events, in a transaction of their own."""
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, created_at) SELECT gen_random_uuid(), %s, 'k',"
              f" {event_type(p)}, {'%s' if into_default else 'now()'} FROM generate_series(1, 2)",
              p.name, *(["1999-01-01"] if into_default else []))


def event_type(p):
    kind = p.execute("SELECT typname::text FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
                     " WHERE attrelid = 'outbox.events'::regclass AND attname = 'event_type'")[0][0]
    return {"_text": "ARRAY['Tested']", "pair": "'(Tested,1)'::public.pair"}.get(kind, "'Tested'")


def missing(p):
    return {row[0] for row in p.execute("SELECT id::text FROM outbox.events")} - {record.id for record in p.records()}


def halted(p, edit):
    p.walpost.wait_state("halted", 60)
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == edit.reason and edit.words in halt["detail"], halt
    assert edit.reason != "publication_missing" or "walpost slot" in halt["detail"] or edit.fix, halt
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")


def take_the_way_out(p, edit):
    execute(p, edit.fix)
    p.walpost.verb(*edit.verb)
    p.walpost.signal(signal.SIGHUP)
    p.walpost.wait_state("streaming")
    insert(p)
    p.wait_confirmed()
    p.walpost.verb("replay", "--missing", "--in-place")
    assert missing(p) == set()


@pytest.mark.smoke
def test_harmless_edits_while_streaming_cost_a_look_and_no_connection(make_pipeline):
    p = make_pipeline(partitions=1).start()
    insert(p)
    delivered = 2
    for name, sql in HARMLESS.items():
        execute(p, sql)
        insert(p)
        delivered += 2
        p.walpost.wait_delivered(delivered)
        assert p.walpost.state() == "streaming", name
    p.wait_confirmed()
    assert missing(p) == set() and len(p.records()) == 2 * (len(HARMLESS) + 1)
    assert p.walpost.status()["reconnects"] == 0


@pytest.mark.smoke
def test_harmless_edits_while_away(make_pipeline):
    p = make_pipeline(partitions=1).start()
    insert(p)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    for sql in HARMLESS.values():
        execute(p, sql)
        insert(p)
    p.walpost.start()
    p.wait_confirmed()
    assert missing(p) == set() and len(p.records()) == 2 * (len(HARMLESS) + 1)


# From 14 on values come in their binary form, and the server fails where a type has none.
def test_column_whose_type_has_no_binary_form_costs_a_connection(make_pipeline):
    p = make_pipeline(partitions=1).start()
    insert(p)
    p.execute("ALTER TABLE outbox.events ADD COLUMN rights aclitem[] DEFAULT ARRAY['postgres=r/postgres'::aclitem]")
    insert(p)
    p.wait_confirmed()
    before = p.walpost.status()["reconnects"]
    assert before == (0 if p.postgres.major < 14 else 1)
    insert(p)
    p.wait_confirmed()
    assert p.walpost.status()["reconnects"] == before and missing(p) == set() and len(p.records()) == 6
    p.execute("ALTER TABLE outbox.events ALTER rights DROP DEFAULT; SELECT pg_terminate_backend(%s)", p.slot()["pid"])
    insert(p)
    p.wait_confirmed()
    assert p.walpost.status()["reconnects"] == before + 1 and missing(p) == set() and len(p.records()) == 8
    assert p.walpost.stop() == 0
    insert(p)
    assert p.walpost.verb("tail", "--limit", "2").stdout.count("\n") == 2
    p.walpost.start()
    p.wait_confirmed()
    assert missing(p) == set() and len(p.records()) == 10


@pytest.mark.parametrize("case", first(4, cases(HALTING)))
def test_edit_halts_at_the_first_sign_and_nothing_is_missing_after_the_way_out(make_pipeline, case, postgres):
    """While walpost streams, and then while it is away."""
    edit = HALTING[case]
    if postgres.major < edit.since:
        return rejected_by_the_server(make_pipeline, edit)
    p = make_pipeline(config=edit.config, partitions=1).start()
    for streaming in (True, False):
        insert(p)
        p.wait_confirmed()
        before = len(p.records())
        if not streaming:
            assert p.walpost.stop() == 0
        execute(p, edit.make)
        insert(p)
        if edit.undo:
            execute(p, edit.undo)
            insert(p)
        if not streaming:
            p.walpost.start(wait=None)
        halted(p, edit)
        assert len(p.records()) == before, "what comes after the sign waits for the decision"
        take_the_way_out(p, edit)


def rejected_by_the_server(make_pipeline, edit):
    """What a version does not know cannot be done to it."""
    p = make_pipeline(create_topic=False)
    p.walpost.init()
    with pytest.raises(Exception, match="syntax error|unrecognized publication parameter"):
        execute(p, edit.make)


@pytest.mark.parametrize("case", first(1, cases(AT_CONNECT)))
def test_edit_without_a_sign_halts_at_the_planned_reconnect(make_pipeline, case):
    edit = AT_CONNECT[case]
    p = make_pipeline(config={"source": {"reconnect_interval": "1s"}}, partitions=1).start()
    insert(p)
    execute(p, edit.make)
    insert(p, into_default=edit.words == "writes no log")
    halted(p, edit)
    done = p.walpost.verb("check", check=False)
    assert done.returncode == 78 and edit.words in done.stdout, done
    take_the_way_out(p, edit)


# Where it does not, the rows before the next connect are delivered. 14 and 16 were not tried.
@pytest.mark.smoke
@pytest.mark.parametrize("edit, silent", [
    ("CREATE ROLE {name}_owner SUPERUSER; ALTER PUBLICATION {name} OWNER TO {name}_owner", (13, 18)),
    ("ALTER PUBLICATION {name} RENAME TO {name}_other; ALTER PUBLICATION {name}_other RENAME TO {name}", (13,))], ids=["owner", "renamed and back"])
def test_edit_that_not_every_version_announces_halts_at_the_next_connect(make_pipeline, postgres, edit, silent):
    p = make_pipeline(partitions=1).start()
    insert(p)
    p.wait_confirmed()
    execute(p, edit)
    insert(p)
    servers.wait_for(lambda: p.walpost.state() == "halted" or not missing(p), 60, "a halt, or the rows")
    announced = p.walpost.state() == "halted"
    assert announced == (postgres.major not in silent) or postgres.major in (14, 16)
    if not announced:
        assert p.walpost.stop() == 0
        p.walpost.start(wait=None)
    halted(p, Edit(edit, words=ALTERED))
    take_the_way_out(p, Edit(edit))


def test_an_update_cannot_move_an_event_to_another_partition(make_pipeline):
    p = make_pipeline(partitions=1).start()
    insert(p)
    with pytest.raises(Exception, match="created_at of an event does not change"):
        p.execute("UPDATE outbox.events SET created_at = '1999-01-01'")
    p.execute("UPDATE outbox.events SET payload = 'x'")
    p.wait_confirmed()
    assert len(p.records()) == 2
    assert "moves a row" not in p.walpost.verb("check", check=False).stdout
    p.execute("DROP TRIGGER events_stay ON outbox.events")
    assert "moves a row" in p.walpost.verb("check", check=False).stdout


def test_analyze_without_end_lets_events_through(make_pipeline):
    """Each is a sign; all that a look has seen counts for those before it."""
    p = make_pipeline(partitions=1).start()
    for _ in range(30):
        p.execute("ANALYZE outbox.events")
        insert(p)
    p.wait_confirmed(seconds=30)
    assert missing(p) == set() and len(p.records()) == 60 and p.walpost.status()["reconnects"] == 0


OWN = """CREATE TABLE app.{table} (id uuid DEFAULT gen_random_uuid(), created_at timestamptz DEFAULT now(), aggregate_type text, aggregate_id text,
    event_type text, payload bytea)"""


def own_pipeline(make_pipeline, *tables):
    p = make_pipeline(partitions=1, config={"outboxes": [{"table": f"app.{table}"} for table in tables]})
    p.execute("CREATE SCHEMA app")
    return p


def insert_into(p, table):
    p.execute(f"INSERT INTO app.{table} (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'Tested')", p.name)


def list_tables(p, *tables):
    configuration = json.loads(p.walpost.file.read_text())
    configuration["outboxes"] = [configuration["outboxes"][0] | {"table": f"app.{table}"} for table in tables]
    p.walpost.file.write_text(json.dumps(configuration))


def leaf_pipeline(make_pipeline, published):
    """Outbox app.leaf is a partition of up.root, and both are published one by one under their own names."""
    p = own_pipeline(make_pipeline, "leaf")
    p.execute("CREATE SCHEMA up")
    p.execute(f"{OWN.format(table='root')} PARTITION BY LIST (event_type); ALTER TABLE app.root SET SCHEMA up")
    p.execute("CREATE TABLE app.leaf PARTITION OF up.root FOR VALUES IN ('Tested')")
    p.execute(f"CREATE PUBLICATION {p.name} FOR {published} WITH (publish = 'insert')")
    return p


@pytest.mark.smoke
def test_leaf_that_is_published_by_its_ancestor_is_detached_for_a_while(make_pipeline, postgres):
    """From 15 on it must be published by its own name, too, and then it is so meanwhile."""
    p = leaf_pipeline(make_pipeline, "TABLE up.root" if postgres.major < 15 else "TABLE up.root, app.leaf").start()
    insert_into(p, "leaf")
    p.wait_confirmed()
    p.walpost.signal(signal.SIGSTOP)  # or it may look while the leaf is detached: 13 still sends its rows then
    p.execute("ALTER TABLE up.root DETACH PARTITION app.leaf")
    insert_into(p, "leaf")
    p.execute("ALTER TABLE up.root ATTACH PARTITION app.leaf FOR VALUES IN ('Tested')")
    insert_into(p, "leaf")
    p.walpost.signal(signal.SIGCONT)
    if postgres.major >= 15:
        p.wait_confirmed()
        assert len(p.records()) == 3
        return
    halted(p, Edit("", words=OUT_AND_IN))
    assert len(p.records()) == 1


def test_table_that_is_renamed_with_its_configuration_is_compared_all_the_same(make_pipeline):
    p = own_pipeline(make_pipeline, "events")
    p.execute(OWN.format(table="events"))
    p.start()
    insert_into(p, "events")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.execute(f"ALTER PUBLICATION {p.name} DROP TABLE app.events")
    insert_into(p, "events")
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE app.events")
    p.execute("ALTER TABLE app.events RENAME TO renamed")
    list_tables(p, "renamed")
    p.walpost.start(wait=None)
    halted(p, Edit("", words=OUT_AND_IN))


def test_table_that_is_not_listed_any_more_halts_until_it_is_or_is_given_up(make_pipeline):
    p = own_pipeline(make_pipeline, "events", "others")
    p.execute(OWN.format(table="events"))
    p.execute(OWN.format(table="others"))
    p.start()
    insert_into(p, "events")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    insert_into(p, "events")
    list_tables(p, "others")
    p.walpost.start(wait=None)
    halted(p, Edit("", reason="init_incomplete", words="rows of table app.events were events until"))
    assert p.walpost.stop() == 0
    list_tables(p, "events", "others")
    p.walpost.start()
    p.wait_confirmed()
    assert len(p.records()) == 2
    assert p.walpost.stop() == 0
    list_tables(p, "others")
    p.walpost.verb(*ADVANCE)
    p.walpost.start()
