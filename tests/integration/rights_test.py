"""Rights on what walpost made that other roles have from elsewhere. Roles belong to the whole server, so each test has one."""

import os
import subprocess

import psycopg2.errors
import pytest
import servers

SQL = servers.ROOT / "sql"
FILES = [*sorted(SQL.glob("V*.up.sql")), SQL / "R__roles.sql", SQL / "inbox/V1__inbox.up.sql"]
SCHEMAS = ("walpost", "outbox", "inbox")


def psql(p, user, path):
    return subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-1", "-f", str(path)], capture_output=True, text=True, check=False, timeout=60,
                          env={**os.environ, "PGHOST": str(p.postgres.path), "PGPORT": str(p.postgres.port), "PGUSER": user, "PGDATABASE": p.database})


def apply_all(p, user="postgres"):
    for path in FILES:
        applied = psql(p, user, path)
        assert applied.returncode == 0, (path, applied.stderr)


def rejected_init(p, *arguments):
    done = p.walpost.verb("init", *arguments, check=False)
    assert done.returncode == 78, (done.stdout, done.stderr)
    return done.stderr


def lines(p, role):
    """What `check` says about this role."""
    return [line for line in p.walpost.verb("check", check=False).stdout.splitlines() if role in line]


@pytest.fixture
def hostile(make_pipeline, workspace):
    p = make_pipeline(on_postgres=workspace.postgres())
    p.execute("CREATE ROLE mallory LOGIN; CREATE ROLE shop LOGIN; CREATE ROLE app LOGIN")
    return p


OVERLOAD = """CREATE FUNCTION walpost.lock_tables(text) RETURNS void LANGUAGE plpgsql AS
'BEGIN ALTER ROLE mallory SUPERUSER; EXCEPTION WHEN OTHERS THEN NULL; END'"""


# A function that fits a call better than walpost's own is taken instead of it.
@pytest.mark.smoke
@pytest.mark.parametrize("to", ["mallory", "PUBLIC"])
def test_who_may_create_in_the_schemas_stops_init_and_each_file_until_that_is_revoked(hostile, to):
    p = hostile
    p.execute(f"CREATE SCHEMA walpost; CREATE SCHEMA outbox; CREATE SCHEMA inbox; GRANT ALL ON SCHEMA walpost, outbox, inbox TO {to}")
    for path in FILES:
        applied = psql(p, "postgres", path)
        assert applied.returncode != 0 and f"lets others create in it: role {to}" in applied.stderr, (path, applied.stderr)
    for schema in ("outbox", "walpost"):
        revoke = f"REVOKE CREATE ON SCHEMA {schema} FROM {to} CASCADE"
        assert revoke in rejected_init(p, "--with-roles")
        p.execute(revoke)
    p.walpost.verb("init", "--with-roles")
    assert f"REVOKE CREATE ON SCHEMA inbox FROM {to} CASCADE" in psql(p, "postgres", FILES[-1]).stderr


@pytest.mark.smoke
def test_check_names_who_may_create_in_the_schemas(hostile):
    p = hostile
    apply_all(p)
    p.walpost.init()
    p.execute("CREATE ROLE dba NOLOGIN; GRANT ALL ON SCHEMA inbox TO dba WITH GRANT OPTION; SET ROLE dba; GRANT CREATE ON SCHEMA inbox TO mallory")
    p.execute("GRANT CREATE ON SCHEMA walpost, outbox TO mallory")
    said = lines(p, "mallory")
    assert len(said) == 3, said
    for schema in SCHEMAS:
        line = next(line for line in said if f"schema {schema}" in line)
        assert line.startswith("!") and f"REVOKE CREATE ON SCHEMA {schema} FROM mallory CASCADE" in line, line
        p.execute(line[line.index("SET ROLE" if schema == "inbox" else "REVOKE"):])
    assert lines(p, "mallory") == []
    p.walpost.init()


@pytest.mark.smoke
def test_default_rights_let_nobody_create_in_the_schemas_that_walpost_makes(hostile):
    p = hostile
    p.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO mallory, PUBLIC")
    p.walpost.verb("init", "--with-roles")
    p.walpost.verb("init", "--with-roles")
    apply_all(p)
    assert p.execute("SELECT count(*), bool_or(has_schema_privilege('mallory', oid, 'CREATE')) FROM pg_namespace"
                     " WHERE nspname IN ('walpost', 'outbox', 'inbox')") == [(3, False)]
    with p.connected(user="mallory") as cursor, pytest.raises(psycopg2.errors.InsufficientPrivilege):
        cursor.execute(OVERLOAD)


# Should a right be given all the same: a call inside walpost's functions fits none but walpost's own.
@pytest.mark.smoke
def test_overload_of_a_function_that_walpost_calls_is_not_called(hostile):
    p = hostile
    p.walpost.init()
    p.execute("GRANT ALL ON SCHEMA walpost, outbox TO mallory")
    with p.connected(user="mallory") as cursor:
        cursor.execute(OVERLOAD)
    p.execute("SELECT outbox.set_payload_max(900000); SELECT outbox.set_ephemeral(true); SELECT outbox.set_ephemeral(false)")
    assert p.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'") == [(False,)]
