"""The queries of sql/runbook, each as psql runs it, on each version of PostgreSQL: they show what is there, and the runbook names each of them."""

import contextlib
import csv
import io
import itertools
import os
import subprocess

import pytest
import servers
from runbook import RUNBOOK

pytestmark = pytest.mark.smoke
FOLDER = servers.ROOT / "sql" / "runbook"


@pytest.fixture
def p(make_pipeline):
    made = make_pipeline().start()
    made.insert(1, 20)
    made.wait_confirmed()
    return made


def ask(p, query, **variables):
    """Each answer is a list of rows, each row a dict."""
    options = [option for name, value in variables.items() for option in ("-v", f"{name}={value}")]
    done = subprocess.run(["psql", "-X", "-v", "ON_ERROR_STOP=1", "--csv", "-P", "null=-", *options, "-f", FOLDER / f"{query}.sql"],
                          capture_output=True, text=True, check=False, timeout=60,
                          env={**os.environ, "PGHOST": str(p.postgres.path), "PGPORT": str(p.postgres.port), "PGUSER": "postgres", "PGDATABASE": p.database})
    assert done.returncode == 0 and "ERROR" not in done.stderr, done.stdout + done.stderr
    return done.stdout, done.stderr


def rows(output, first_column):
    """Of the answer that begins with this column: psql prints one after the other."""
    lines = csv.reader(io.StringIO(output))
    names = next(line for line in lines if line[:1] == [first_column])
    return [dict(zip(names, line)) for line in itertools.takewhile(lambda line: len(line) == len(names), lines)]


def of_slot(output, p):
    row, = (row for row in rows(output, "slot_name") if row["slot_name"] == p.name)
    return row


def test_every_query_is_named_in_the_runbook_and_says_what_is_bad():
    runbook = RUNBOOK.read_text(encoding="utf-8")
    for path in FOLDER.iterdir():
        comment = path.read_text(encoding="utf-8").split("\n\n")[0]
        assert f"sql/runbook/{path.name}" in runbook, path.name
        assert comment.startswith("-- ") and "PostgreSQL 13 to 18" in comment, path.name
        assert "-- Bad: " in comment or "-- No line: " in comment or "-- It shows" in comment, path.name


def test_slots_show_who_reads_what_is_kept_and_what_the_version_knows(p):
    row = of_slot(ask(p, "slots")[0], p)
    assert row["active"] == "t" and int(row["pid"]) == p.slot()["pid"] and row["wal_status"] == "reserved"
    assert "bytes" in row["kept"] or "kB" in row["kept"] or "MB" in row["kept"]
    assert (row["conflicting"] != "-") == (p.postgres.major >= 16) and (row["failover"] != "-") == (p.postgres.major >= 17)


def test_rate_of_wal_and_time_to_exhaustion_follow_from_two_looks(p, workspace):
    output = ask(p, "wal", seconds=0.2)[0]
    row, = rows(output, "files")
    assert int(row["files"]) >= 1 and row["rate"].endswith("/s") and row["max_slot_wal_keep_size"] == "-1"
    limited = workspace.postgres(settings={"max_slot_wal_keep_size": "64MB"})
    limited.execute("SELECT pg_create_logical_replication_slot('limited', 'pgoutput')")

    class OnLimited:
        postgres, database, name = limited, "postgres", "limited"

    with writing(limited):
        row = of_slot(ask(OnLimited, "exhaustion", seconds=0.5)[0], OnLimited)
    assert row["room"].endswith(("MB", "kB")) and row["until_lost"] != "-" and row["until_disk_is_full"] == "-"
    with writing(p.postgres):
        row = of_slot(ask(p, "exhaustion", seconds=0.5, disk_free="100GB")[0], p)
    assert row["until_lost"] == "-" and row["until_disk_is_full"] != "-"


@contextlib.contextmanager
def writing(postgres):
    """The log grows while it is looked at."""
    writer = subprocess.Popen(["psql", "-X", "-q", "-o", "/dev/null", postgres.conninfo(), "-c",
                               "DO $$ BEGIN LOOP PERFORM pg_logical_emit_message(false, 'noise', repeat('x', 1000)); PERFORM pg_sleep(0.001); END LOOP; END $$"])
    begin = postgres.execute("SELECT pg_current_wal_insert_lsn()")[0][0]
    try:
        servers.wait_for(lambda: postgres.execute(f"SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{begin}') > 10000")[0][0], 30, "the writer to begin")
        yield
    finally:
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DO%%noise%%' AND pid <> pg_backend_pid()")
        writer.wait(30)


def test_walsenders_show_walpost_and_how_far_it_is(p):
    row, = (row for row in rows(ask(p, "walsenders")[0], "pid") if row["slot_name"] == p.name)
    assert row["application_name"] == f"walpost-{p.name}" and row["state"] == "streaming" and row["sync_state"] == "async"


def test_spill_is_counted_from_14_and_looked_up_before(p):
    output = ask(p, "spill")[0]
    row = of_slot(output, p)
    assert ("spilled_bytes" in row) == (p.postgres.major >= 14) and "logical_decoding_work_mem" in output


def test_long_transactions_are_shown_also_prepared_ones(p, workspace):
    with contextlib.closing(p.postgres.connect(p.database, autocommit=False)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT txid_current(), pg_backend_pid()")
        pid = cursor.fetchone()[1]
        output = ask(p, "long_transactions")[0]
        row, = (row for row in rows(output, "pid") if row["pid"] == str(pid))
        assert row["state"] == "idle in transaction" and row["backend_xid"] != "-"
        assert any(row["slot_name"] == p.name for row in rows(output, "slot_name")) and "gid,database" in output


# It keeps outbox.maintain and changes of the table waiting.
def test_transaction_that_has_only_prepared_a_statement_is_shown(p):
    with contextlib.closing(p.postgres.connect(p.database, autocommit=False)) as connection, connection.cursor() as cursor:
        cursor.execute("PREPARE x AS DELETE FROM outbox.events")
        pid = connection.info.backend_pid
        row, = (row for row in rows(ask(p, "long_transactions")[0], "pid") if row["pid"] == str(pid))
        assert row["state"] == "idle in transaction" and row["backend_xid"] == "-"


def test_users_show_slots_publications_and_pipelines(p):
    output = ask(p, "users")[0]
    assert of_slot(output, p)["application_name"] == f"walpost-{p.name}"
    publication, = rows(output, "publication")
    assert publication["tables"] == "outbox.events" and publication["publishes"] == "insert" and publication["via_root"] == "t"
    pipeline, = rows(output, "pipeline")
    assert pipeline["pipeline"] == p.name and pipeline["slot_is_there"] == pipeline["publication_is_there"] == "t"


def test_undelivered_rows_are_those_behind_the_note_that_is_known_to_be_delivered(p):
    p.execute("SELECT * FROM outbox.maintain()")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.walpost.start()  # which notes how far was delivered
    row, = rows(ask(p, "undelivered")[0], "delivered_up_to_note_of")
    assert row["rows_at_most"] == "0" and row["waits"] == "-"
    assert p.walpost.stop() == 0
    p.insert(21, 25)
    row, = rows(ask(p, "undelivered")[0], "delivered_up_to_note_of")
    assert row["rows_at_most"] == "5" and row["waits"] != "-"
    p.execute("DROP FUNCTION outbox.delivered_note() CASCADE")
    assert "walpost audit" in ask(p, "undelivered")[0]


def test_transaction_that_is_to_be_skipped_is_shown_with_what_lies_before_it(p):
    assert p.walpost.stop() == 0
    safe = p.execute("SELECT pg_current_wal_lsn()::text")[0][0]
    p.insert(101, 102)
    p.insert(201, 203)
    p.insert(301, 301)
    commits = p.execute("SELECT xid::text, lsn::text, lsn - '0/0'::pg_lsn FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
                        " 'publication_names', %s) WHERE get_byte(data, 0) = ascii('C') AND lsn > %s ORDER BY lsn", p.name, p.name, safe)
    xid, change = p.execute("SELECT xid::text, min(lsn)::text FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
                            " 'publication_names', %s) WHERE get_byte(data, 0) = ascii('I') AND lsn > %s GROUP BY 1 ORDER BY 2 OFFSET 1 LIMIT 1",
                            p.name, p.name, safe)[0]
    found, = rows(ask(p, "find_commit", slot=p.name, change_lsn=change)[0], "xid")
    assert found["xid"] == xid and servers.lsn(found["commit_lsn"]) < next(end for of, _, end in commits if of == xid)
    before = rows(ask(p, "before_transaction", slot=p.name, publication=p.name, commit_lsn=found["commit_lsn"], safe_lsn=safe)[0], "xid")
    assert [row["rows"] for row in before if row["rows"] != "0"] == ["2"]
    output = ask(p, "transaction", slot=p.name, publication=p.name, commit_lsn=found["commit_lsn"])[0]
    assert output.count("Tested") == 3 and all(row["xid"] == xid for row in rows(output, "xid"))
    assert p.walpost.verb("slot", "advance", "--to", found["commit_lsn"], "--yes").returncode == 0
    p.walpost.start()
    p.wait_confirmed()
    assert len(p.records()) == 21, "the transaction is skipped with what was before it, and nothing behind it"


def test_rows_that_cannot_be_sent_as_utf8_are_named(make_pipeline):
    p = make_pipeline(encoding="WIN1252")
    p.walpost.init()
    p.insert(1, 3)
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('t', 'k', chr(129))")
    bad = p.execute("SELECT id::text FROM outbox.events WHERE event_type = chr(129)")[0][0]
    output = ask(p, "unreadable_rows")[1]
    assert output.count("WARNING") == 1 and f"row {bad}: " in output
