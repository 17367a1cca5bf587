"""Generated columns that are mapped. From 18 on a publication may send stored ones, and then all of walpost reads them."""

import signal

import pytest
from edits_test import ADVANCE, Edit, execute, halted

COLUMNS = "id, created_at, aggregate_type, aggregate_id, event_type, payload, tx"
GENERATED = "small_id, content_type"
STORED = "publish_generated_columns = stored"


def own_pipeline(make_pipeline, publication, options=""):
    """Outbox app.events, whose key and type of content are generated."""
    p = make_pipeline(partitions=1, config={"outboxes": [{"table": "app.events", "columns": {"key": "small_id"}}]})
    p.execute("CREATE SCHEMA app")
    p.execute("CREATE TABLE app.events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), created_at timestamptz DEFAULT now(), aggregate_type text,"
              " aggregate_id text, event_type text, payload bytea DEFAULT 'x', tx xid8 DEFAULT pg_current_xact_id(),"
              " small_id text GENERATED ALWAYS AS (lower(aggregate_id)) STORED,"
              " content_type text GENERATED ALWAYS AS ('application/' || event_type) STORED)")
    p.execute(f"CREATE PUBLICATION {p.name} FOR {publication} WITH (publish = 'insert'{', ' * bool(options)}{options})")
    return p


def insert(p):
    p.execute("INSERT INTO app.events (aggregate_type, aggregate_id, event_type) VALUES (%s, 'KEY', 'Tested')", p.name)


def seen(record):
    return record.key, record.envelope.content_type, record.id


def expect_not_sent(p):
    """A mandatory field that is not sent is named before the first row."""
    done = p.walpost.verb("check", check=False)
    assert done.returncode == 78 and "no column small_id" in done.stdout, done
    insert(p)
    halted(p, Edit("", reason="schema_mismatch", words="no column small_id"))
    assert p.records() == []


@pytest.mark.smoke
@pytest.mark.parametrize("publication, options", [
    ("TABLE app.events", STORED), (f"TABLE app.events ({COLUMNS}, {GENERATED})", ""), ("ALL TABLES", STORED)],
    ids=["option", "column list", "all tables"])
# Failure 55.
def test_generated_columns_that_are_sent_are_read_by_every_verb(make_pipeline, postgres, publication, options):
    if postgres.major < 18:
        with pytest.raises(Exception, match="unrecognized publication parameter|generated column|syntax error"):
            own_pipeline(make_pipeline, publication, options)
        return
    p = own_pipeline(make_pipeline, publication, options)
    insert(p)
    p.walpost.verb("init", "--backfill")
    p.walpost.start()
    insert(p)
    p.wait_confirmed()
    assert "columns of app.events: fit the mapping" in p.walpost.verb("check").stdout
    assert "\n0 missing of 2\n" in p.walpost.verb("audit").stdout
    p.walpost.verb("replay", "--all", "--in-place")
    assert p.walpost.stop() == 0
    insert(p)
    p.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", p.name)  # someone else
    p.walpost.verb(*ADVANCE)
    p.walpost.start()
    p.walpost.verb("replay", "--missing", "--in-place")
    ids = [row[0] for row in p.execute("SELECT id::text FROM app.events ORDER BY created_at")]
    assert [seen(record) for record in p.records()] == [("key", "application/Tested", ids[n]) for n in (0, 1, 0, 1, 2)]


# Failure 55.
@pytest.mark.smoke
def test_generated_columns_that_are_not_sent_are_named_before_the_first_row(make_pipeline, postgres):
    p = own_pipeline(make_pipeline, "TABLE app.events").start()
    expect_not_sent(p)
    if postgres.major < 18:
        return
    # A virtual one is never sent.
    p = own_pipeline(make_pipeline, "TABLE app.events", STORED)
    p.execute("ALTER TABLE app.events DROP COLUMN small_id")
    p.execute("ALTER TABLE app.events ADD COLUMN small_id text GENERATED ALWAYS AS (lower(aggregate_id)) VIRTUAL")
    expect_not_sent(p.start())


LEFT_OUT = Edit("", words="has a column list without content_type",  # its way out is that of the message
                fix="ALTER PUBLICATION {name} DROP TABLE app.events; ALTER PUBLICATION {name} ADD TABLE app.events;"
                    " ALTER PUBLICATION {name} SET (publish_generated_columns = stored)")


# Before 18 no list can name it.
@pytest.mark.smoke
@pytest.mark.parametrize("options", ["", STORED], ids=["none", "stored"])
def test_column_list_without_a_mapped_generated_column_halts_until_it_is_published(make_pipeline, postgres, options):
    if postgres.major < 18:
        with pytest.raises(Exception, match="generated column|syntax error"):
            own_pipeline(make_pipeline, f"TABLE app.events ({COLUMNS}, {GENERATED})")
        return
    p = own_pipeline(make_pipeline, f"TABLE app.events ({COLUMNS}, small_id)", options)
    for verb in ("init", "check"):
        done = p.walpost.verb(verb, check=False)
        assert done.returncode == 78 and LEFT_OUT.words in done.stdout + done.stderr, done
    p.walpost.start(wait=None)
    halted(p, LEFT_OUT)
    execute(p, LEFT_OUT.fix)
    p.walpost.signal(signal.SIGHUP)
    p.walpost.wait_state("streaming")
    insert(p)
    p.wait_confirmed()
    assert [seen(record)[:2] for record in p.records()] == [("key", "application/Tested")]
    p.execute(f"ALTER PUBLICATION {p.name} SET TABLE app.events ({COLUMNS}, small_id)")
    insert(p)
    halted(p, LEFT_OUT)
    assert len(p.records()) == 1
