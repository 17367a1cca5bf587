"""Whose things walpost uses in the database, and what `init --with-roles` takes over. Roles belong to the whole server, so each test has one."""

import os
import re
import subprocess

import psycopg2.errors
import pytest
import servers

SQL = servers.ROOT / "sql"
FILES = [*sorted(SQL.glob("V*.up.sql")), SQL / "R__roles.sql", SQL / "inbox/V1__inbox.up.sql"]


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
    with p.connected(user="admin") as cursor:
        cursor.execute("SET ROLE outbox_owner; GRANT USAGE, CREATE ON SCHEMA outbox TO app")
    with p.connected(user="app") as cursor:
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
    with p.connected(user="app") as cursor:
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
    with p.connected(user="app") as cursor:
        cursor.execute("CREATE SCHEMA outbox; CREATE FUNCTION outbox.emit_message() RETURNS void LANGUAGE sql AS ''")
    applied = psql(p, "admin", text=init(p, "admin", "--print-sql", "--revoke-emit").stdout)
    assert applied.returncode != 0 and "emit_message belongs to role app" in applied.stderr, applied.stderr


# Who has the rights of the one who runs it gains nothing by that.
@pytest.mark.smoke
def test_init_uses_what_its_own_members_the_owner_of_the_outbox_and_superusers_own(managed):
    p = managed()
    p.execute("CREATE ROLE member LOGIN IN ROLE admin")
    p.execute(f"GRANT CREATE ON DATABASE {p.database} TO member")
    with p.connected(user="member") as cursor:
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
    p.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT ALL ON SCHEMA public TO admin")
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
    # All ask the same, but for the schemas that they are about.
    blocks = {re.sub(r"place IN \(.*?\)", "", re.search(r"DO \$\$\nDECLARE\n    foreign_object.*?\$\$;\n", path.read_text(encoding="utf-8"), re.DOTALL).group(0))
              for path in FILES}
    assert len(blocks) == 1


# Whose each thing in a schema is, and who may do what with it: the schema itself first.
RIGHTS = """SELECT nspname::text, pg_get_userbyid(nspowner)::text, nspacl::text FROM pg_namespace WHERE nspname = '{0}'
UNION ALL SELECT oid::regclass::text, pg_get_userbyid(relowner), relacl::text FROM pg_class WHERE relnamespace = '{0}'::regnamespace AND relkind IN ('r', 'p', 'v', 'S')
UNION ALL SELECT oid::regprocedure::text, pg_get_userbyid(proowner), proacl::text FROM pg_proc WHERE pronamespace = '{0}'::regnamespace"""

# What an application had before, some of it by the names that walpost gives.
OWN_THINGS = """CREATE TABLE {0}.secret (x text); CREATE VIEW {0}.seen AS SELECT FROM {0}.secret; CREATE SEQUENCE {0}.numbers;
CREATE FUNCTION {0}.report() RETURNS name LANGUAGE sql SECURITY DEFINER AS 'SELECT current_user';
CREATE PROCEDURE {0}.work() LANGUAGE sql AS ''; CREATE AGGREGATE {0}.total(int) (sfunc = int4pl, stype = int);
CREATE FUNCTION {0}.emit(amount int) RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'; REVOKE ALL ON FUNCTION {0}.emit(int) FROM PUBLIC;
CREATE FUNCTION {0}.emit_message(text) RETURNS int LANGUAGE sql AS 'SELECT 1'; REVOKE ALL ON FUNCTION {0}.emit_message(text) FROM PUBLIC"""


def own_things(p, schema):
    ours = p.execute("SELECT oid::regclass::text FROM pg_class WHERE relname IN ('secret', 'seen', 'numbers')"
                     " UNION SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = %s::regnamespace", schema)
    return {row for row in p.execute(RIGHTS.format(schema)) if (row[0],) in ours}


@pytest.mark.smoke
@pytest.mark.parametrize("user", ["admin", "postgres"])
def test_schema_of_the_application_in_which_walpost_has_nothing_stays_as_it_is(managed, user):
    p = managed(config={"outboxes": [{"table": "outbox.mine", "preset": "debezium", "topics": {"allowed": ["*"]}}]})
    with p.connected(user=user) as cursor:
        cursor.execute("CREATE SCHEMA outbox; CREATE TABLE outbox.mine (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text);"
                       "CREATE TABLE outbox.events (x int); CREATE FUNCTION outbox.forget() RETURNS void LANGUAGE sql AS ''; " + OWN_THINGS.format("outbox"))
    before = p.execute(RIGHTS.format("outbox"))
    for _ in range(2):
        init(p, user, "--with-roles")
        assert p.execute(RIGHTS.format("outbox")) == before


@pytest.mark.smoke
@pytest.mark.parametrize("user", ["admin", "postgres"])
def test_schema_of_the_application_keeps_its_owner_and_the_outbox_in_it_works(managed, user):
    p = managed(config={"outboxes": [{"table": "shop.events", "topic": "{aggregate_type}", "topics": {"allowed": ["*"]}}]})
    with p.connected(user=user) as cursor:
        cursor.execute("CREATE SCHEMA shop; " + OWN_THINGS.format("shop"))
    before = own_things(p, "shop")
    for _ in range(2):
        init(p, user, "--schema", "shop", "--with-roles")
        assert before <= own_things(p, "shop") and p.execute("SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'shop'") == [(user,)]
    assert p.execute("SELECT shop.report()") == [(user,)]
    others = p.execute(RIGHTS.format("shop"))
    assert {row[1] for row in others if row not in before and row[0] != "shop"} == {"outbox_owner"}, others
    p.execute("CREATE ROLE writer LOGIN IN ROLE outbox_writer; CREATE ROLE maintainer LOGIN IN ROLE outbox_owner")
    with p.connected(user="writer") as cursor:
        cursor.execute("SELECT shop.emit('Tested', %s, 'k', 'x', idempotency_key => '1')", (p.name,))
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute("SELECT shop.emit(1)")
    with p.connected(user="maintainer") as cursor:
        cursor.execute("SET ROLE outbox_owner; SELECT action FROM shop.maintain(ahead => '5 days')")
        assert cursor.fetchall() == [("made",), ("made",)]
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute("DROP TABLE shop.secret")


# Whatever else it is: who owns the schema may drop it.
@pytest.mark.smoke
def test_schema_changes_hands_where_nothing_but_walposts_is_in_it(managed):
    p = managed()
    init(p, "admin")
    owners = "SELECT nspname::text, nspowner::regrole::text FROM pg_namespace WHERE nspname IN ('outbox', 'walpost') ORDER BY 1"
    for made, dropped in (("TABLE outbox.x ()", "TABLE outbox.x"), ("FUNCTION walpost.x() RETURNS int LANGUAGE sql AS 'SELECT 1'", "FUNCTION walpost.x()"),
                          ("TYPE outbox.x AS ENUM ()", "TYPE outbox.x"), ("SEQUENCE walpost.x", "SEQUENCE walpost.x")):
        with p.connected(user="admin") as cursor:
            cursor.execute("CREATE " + made)
        init(p, "admin", "--with-roles")
        stays = made.split()[1].split(".")[0]
        assert dict(p.execute(owners)) == {"outbox": "outbox_owner", "walpost": "outbox_owner", stays: "admin"}, made
        p.execute(f"DROP {dropped}; ALTER SCHEMA outbox OWNER TO admin; ALTER SCHEMA walpost OWNER TO admin")
    # Part of the table, and no thing in the schema.
    p.execute("CREATE INDEX mine ON outbox.events (aggregate_id); ALTER DEFAULT PRIVILEGES IN SCHEMA outbox GRANT SELECT ON TABLES TO app")
    init(p, "admin", "--with-roles")
    assert p.execute(owners) == [("outbox", "outbox_owner"), ("walpost", "outbox_owner")]


@pytest.mark.smoke
def test_owner_of_functions_alone_may_use_the_schema_and_create_nothing_in_it(managed):
    p = managed()
    with p.connected(user="admin") as cursor:
        cursor.execute("CREATE SCHEMA outbox; " + OWN_THINGS.format("outbox"))
    may = "SELECT has_schema_privilege('outbox_owner', 'outbox', 'USAGE'), has_schema_privilege('outbox_owner', 'outbox', 'CREATE')"
    for given in (False, True):
        for path in (SQL / "V1__walpost.up.sql", SQL / "V3__outbox_messages.up.sql", SQL / "R__roles.sql"):
            applied = psql(p, "admin", "-1", "-f", path)
            assert applied.returncode == 0, applied.stderr
        assert p.execute(may) == [(True, given)]
        p.execute("GRANT CREATE ON SCHEMA outbox TO outbox_owner")
    mine = p.execute("SELECT count(*) FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace AND proowner = 'outbox_owner'::regrole AND proname = 'emit_message'"
                     " AND has_function_privilege('outbox_writer', oid, 'EXECUTE')")
    assert mine == [(3,)] and not p.execute("SELECT has_function_privilege('outbox_writer', 'outbox.emit_message(text)', 'EXECUTE')")[0][0]


@pytest.mark.smoke
def test_roles_file_names_exactly_the_functions_and_tables_that_the_versions_make(managed):
    p = managed()
    for path in FILES[:-1]:
        applied = psql(p, "postgres", "-1", "-f", path)
        assert applied.returncode == 0, applied.stderr
    made = p.execute("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace IN ('walpost'::regnamespace, 'outbox'::regnamespace)")
    text = (SQL / "R__roles.sql").read_text(encoding="utf-8")
    named = p.execute("SELECT signature::regprocedure::text FROM unnest(%s::text[]) AS signature", re.findall(r"'((?:walpost|outbox)\.\w+\(.*?\))'", text))
    assert sorted(named) == sorted(made) and len(made) > 30
    for schema in ("walpost", "outbox"):
        rights = p.execute(RIGHTS.format(schema))
        assert {row[1] for row in rights} == {"outbox_owner"}, rights
