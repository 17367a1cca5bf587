"""Whose things walpost uses in the database, and what `init --with-roles` takes over. Roles belong to the whole server, so each test has one."""

import contextlib
import os
import re
import subprocess

import pytest
import servers

SQL = servers.ROOT / "sql"
FILES = [*sorted(SQL.glob("V*.up.sql")), SQL / "R__roles.sql", SQL / "inbox/V1__inbox.up.sql"]


@contextlib.contextmanager
def connected(p, autocommit=True, **more):
    with contextlib.closing(p.postgres.connect(p.database, autocommit=autocommit, **more)) as connection:
        with connection.cursor() as cursor:
            yield cursor


def psql(p, user, *arguments, text=None):
    return subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *map(str, arguments)], input=text, capture_output=True, text=True, check=False,
                          timeout=60, env={**os.environ, "PGHOST": str(p.postgres.path), "PGPORT": str(p.postgres.port), "PGUSER": user, "PGDATABASE": p.database})


def init(p, user, *arguments, check=True):
    return p.another(conninfo=p.postgres.conninfo(p.database, user=user)).verb("init", *arguments, check=check)


@pytest.fixture
def managed(make_pipeline, workspace):
    """As on a managed service: the administrator is no superuser, and is a member of the application's role to manage what that one owns."""

    def make(**options):
        p = make_pipeline(on_postgres=workspace.postgres(), **options)
        p.execute("CREATE ROLE app LOGIN; CREATE ROLE admin LOGIN REPLICATION CREATEROLE; GRANT app TO admin")
        p.execute(f"GRANT CREATE ON DATABASE {p.database} TO admin, app")
        return p

    return make


def owner(p, routine):
    return p.execute("SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE oid = %s::regprocedure", routine)[0][0]


@pytest.mark.smoke
def test_function_of_a_role_that_the_administrator_is_a_member_of_does_not_become_the_outbox_owners(managed):
    p = managed()
    init(p, "admin", "--with-roles")
    with connected(p, user="admin") as cursor:
        cursor.execute("SET ROLE outbox_owner; GRANT USAGE, CREATE ON SCHEMA outbox TO app")
    with connected(p, user="app") as cursor:
        cursor.execute("CREATE FUNCTION outbox.helper() RETURNS name LANGUAGE sql SECURITY DEFINER AS 'SELECT current_user'")
    assert init(p, "admin", "--with-roles", check=False).returncode == 78
    assert owner(p, "outbox.helper()") == "app"
    assert p.execute("SELECT outbox.helper()") == [("app",)]


TRAP = """CREATE SCHEMA {0}; GRANT ALL ON SCHEMA {0} TO PUBLIC;
CREATE TABLE {0}.schema_version (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());
CREATE FUNCTION {0}.trap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN ALTER ROLE app CREATEROLE; RETURN NEW; END';
CREATE TRIGGER trap BEFORE INSERT ON {0}.schema_version FOR EACH ROW EXECUTE FUNCTION {0}.trap()"""


@pytest.mark.smoke
def test_trigger_of_a_role_that_the_administrator_is_a_member_of_does_not_run_as_the_administrator(managed):
    p = managed()
    with connected(p, user="app") as cursor:
        for schema in ("walpost", "outbox", "inbox"):
            cursor.execute(TRAP.format(schema))
    assert init(p, "admin", check=False).returncode == 78
    for path in FILES:
        applied = psql(p, "admin", "-1", "-f", path)
        assert applied.returncode != 0 and "belongs to role app" in applied.stderr, (path, applied.stderr)
    assert p.execute("SELECT rolcreaterole FROM pg_roles WHERE rolname = 'app'") == [(False,)]


def test_right_to_emit_is_not_given_to_a_role_that_the_administrator_is_a_member_of(managed):
    p = managed(config={"outboxes": [{"table": "public.own", "preset": "debezium", "topics": {"allowed": ["*"]}}]})
    p.execute("CREATE TABLE public.own (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text); ALTER TABLE public.own OWNER TO admin")
    with connected(p, user="app") as cursor:
        cursor.execute("CREATE SCHEMA outbox; CREATE FUNCTION outbox.emit_message() RETURNS void LANGUAGE sql AS ''")
    applied = psql(p, "admin", text=init(p, "admin", "--print-sql", "--revoke-emit").stdout)
    assert applied.returncode != 0 and "emit_message belongs to role app" in applied.stderr, applied.stderr


# Who has the rights of the one who runs it gains nothing by that.
@pytest.mark.smoke
def test_init_uses_what_its_own_members_the_owner_of_the_outbox_and_superusers_own(managed):
    p = managed()
    p.execute("CREATE ROLE member LOGIN IN ROLE admin")
    p.execute(f"GRANT CREATE ON DATABASE {p.database} TO member")
    with connected(p, user="member") as cursor:
        cursor.execute("CREATE SCHEMA walpost; GRANT ALL ON SCHEMA walpost TO admin")
    p.execute("CREATE SCHEMA outbox; GRANT ALL ON SCHEMA outbox TO admin")
    init(p, "admin")
    p.execute("ALTER SCHEMA walpost OWNER TO admin; ALTER SCHEMA outbox OWNER TO admin")
    init(p, "admin", "--with-roles")
    p.execute("CREATE ROLE second LOGIN REPLICATION IN ROLE outbox_owner")
    for user in ("admin", "second", "postgres"):
        init(p, user)


# From 15 on schema public belongs to pg_database_owner, whose one member is the database's owner.
@pytest.mark.smoke
def test_schema_public_is_trusted_as_the_owner_of_the_database_is(managed):
    p = managed(config={"outboxes": [{"table": "public.events", "topic": "{aggregate_type}", "topics": {"allowed": ["*"]}}]})
    p.execute("GRANT ALL ON SCHEMA public TO PUBLIC")
    p.execute(f"ALTER DATABASE {p.database} OWNER TO app")
    if p.postgres.major >= 15:
        assert init(p, "admin", "--schema", "public", check=False).returncode == 78
        assert init(p, "postgres", "--schema", "public", check=False).returncode == 78
    p.execute(f"ALTER DATABASE {p.database} OWNER TO admin")
    for user in ("admin", "admin"):
        init(p, user, "--schema", "public")


def test_every_file_asks_as_the_verbs_do_who_is_trusted():
    header = (servers.ROOT / "src/operations/trusted_owner.h").read_text(encoding="utf-8")
    constant = re.search(r"kOwnerIsForeign =\s*((?:\".*\"\s*)+);", header).group(1)
    foreign = " ".join("".join(re.findall(r"\"(.*)\"", constant)).removeprefix("(").removesuffix(")").split())
    for path in FILES:
        assert foreign in " ".join(path.read_text(encoding="utf-8").split()), path
