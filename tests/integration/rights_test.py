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


def lines(p, words):
    """What `check` says with these."""
    return [line for line in p.walpost.verb("check", check=False).stdout.splitlines() if words in line]


@pytest.fixture
def hostile(make_pipeline, workspace):
    p = make_pipeline(on_postgres=workspace.postgres())
    p.execute("CREATE ROLE mallory LOGIN; CREATE ROLE shop LOGIN; CREATE ROLE app LOGIN")
    return p


OVERLOAD = """CREATE FUNCTION walpost.change_tables(text) RETURNS void LANGUAGE plpgsql AS
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


# (what, role, rights) that let a role other than the owner do more than read.
TOO_MUCH = """SELECT c.relname, acl.grantee::regrole::text, acl.privilege_type FROM pg_class c CROSS JOIN aclexplode(c.relacl) AS acl
    WHERE c.relnamespace::regnamespace::text IN ('walpost', 'outbox', 'inbox') AND c.relkind IN ('r', 'p', 'S') AND acl.grantee <> c.relowner
    AND acl.grantee::regrole::text NOT LIKE 'outbox_%%' AND acl.privilege_type <> 'SELECT'"""


@pytest.mark.smoke
@pytest.mark.parametrize("arguments", [[], ["--with-roles"]])
def test_default_rights_on_tables_let_nobody_change_what_walpost_makes(hostile, arguments):
    p = hostile
    p.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app, PUBLIC; ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO app")
    p.walpost.verb("init", *arguments)
    assert psql(p, "postgres", FILES[-1]).returncode == 0
    assert p.execute(TOO_MUCH) == []
    assert p.execute("SELECT relkind FROM pg_class WHERE oid = 'outbox.events'::regclass") == [("p",)], "in partitions all the same"
    assert p.execute("SELECT has_table_privilege('app', 'outbox.events', 'INSERT'), has_table_privilege('app', 'walpost.pipeline', 'SELECT')") == [(False, True)]
    assert lines(p, "may change") == []
    p.walpost.verb("init", *arguments)


@pytest.mark.smoke
@pytest.mark.parametrize("arguments", [[], ["--plain-table"]])
def test_default_rights_let_nobody_change_what_a_second_schema_gets(hostile, arguments):
    p = hostile
    p.walpost.verb("init")
    p.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app, PUBLIC; ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO app")
    other = p.another(name="other", config={"outboxes": [{"table": "second.events"}]})
    other.verb("init", "--schema", "second", *arguments)
    assert p.execute(TOO_MUCH.replace("'inbox'", "'second'")) == []
    assert p.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'second'::regnamespace AND relacl::text LIKE '%%app=r%%'")[0][0] >= 3


@pytest.mark.smoke
def test_default_rights_on_tables_let_nobody_change_new_partitions(hostile):
    p = hostile
    apply_all(p)
    p.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app")
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at) VALUES ('t', 'k', 'T', now() - interval '9 days')")
    p.execute("SELECT * FROM outbox.maintain(ahead => '9 days'); SELECT * FROM inbox.maintain('7 days', '9 days')")
    assert p.execute("SELECT count(*) FROM pg_class WHERE relacl::text LIKE '%%app=r%%'")[0][0] > 10, "there are new ones"
    assert p.execute(TOO_MUCH) == []


GRANTS = {"outbox.retention_note": "UPDATE", "walpost.pipeline": "UPDATE (delivered_lsn)", "outbox.events": "DELETE", "walpost.dead_letters": "TRIGGER",
          "walpost.dead_letter_count": "TRUNCATE", "walpost.schema_version": "REFERENCES"}


@pytest.mark.smoke
@pytest.mark.parametrize("to", ["app", "PUBLIC"])
def test_who_may_change_a_table_is_named_and_gets_no_roles_made(hostile, to):
    p = hostile
    p.walpost.init()
    assert lines(p, "may change") == []
    grants = GRANTS | ({"outbox.idempotency": "MAINTAIN"} if p.postgres.major >= 17 else {})
    for table, right in grants.items():
        p.execute(f"GRANT SELECT ON {table} TO {to}; GRANT {right} ON {table} TO {to}")
    said = lines(p, "may change")
    for table, right in grants.items():
        revoke = f"REVOKE {right} ON {table} FROM {to} CASCADE"
        assert any(line.startswith("!") and revoke in line for line in said), (revoke, said)
    assert len(said) == len(grants), said
    for _ in grants:
        error = rejected_init(p, "--with-roles")
        p.execute(next(revoke for table, right in grants.items() if (revoke := f"REVOKE {right} ON {table} FROM {to} CASCADE") in error))
    p.walpost.verb("init", "--with-roles")


def take_away_as_said(p, said):
    """Does what `init --with-roles` asks for, one by one; `check` has said all of it before."""
    cures = {line.split("forged: ")[1].split("; a walpost")[0] for line in said if line.startswith("!")}
    while cures:
        error = rejected_init(p, "--with-roles")
        cure = next((cure for cure in cures if cure in error), None)
        assert cure, (cures, error)
        p.execute(cure)
        cures.remove(cure)
    assert lines(p, "may change") == []
    p.walpost.verb("init", "--with-roles")


# By a sequence nobody may write any more; by created_at no partition ends any more.
@pytest.mark.smoke
def test_rights_on_sequences_and_on_what_the_table_fills_in_are_named(hostile):
    p = hostile
    p.walpost.init()
    p.execute("GRANT USAGE ON SCHEMA outbox TO app; GRANT INSERT (id, aggregate_type, aggregate_id, event_type, payload) ON outbox.events TO shop")
    assert lines(p, "may change") == [], "to insert events is another thing"
    p.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA outbox, walpost TO app; GRANT INSERT ON outbox.events TO app; GRANT INSERT (created_at) ON outbox.events TO shop")
    said = lines(p, "may change")
    for sequence, in p.execute("SELECT oid::regclass::text FROM pg_class WHERE relkind = 'S' AND relnamespace::regnamespace::text IN ('outbox', 'walpost')"):
        assert any(f"REVOKE UPDATE, USAGE ON SEQUENCE {sequence} FROM app CASCADE" in line for line in said), (sequence, said)
    for right in ("INSERT ON outbox.events FROM app", "INSERT (created_at) ON outbox.events FROM shop"):
        assert any(f"REVOKE {right} CASCADE" in line for line in said), (right, said)
    take_away_as_said(p, said)


# A REVOKE takes the right, and leaves what was built by it.
@pytest.mark.smoke
def test_what_others_have_built_on_a_table_is_named(hostile):
    p = hostile
    p.walpost.init()
    partition = p.execute("SELECT min(partition::text) FROM outbox.partitions()")[0][0]
    p.execute(f"GRANT USAGE ON SCHEMA outbox TO app; GRANT ALL ON outbox.retention_note, {partition} TO app; CREATE SCHEMA app AUTHORIZATION app")
    with p.connected(user="app") as cursor:
        cursor.execute("CREATE FUNCTION app.become() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN ALTER ROLE app SUPERUSER; RETURN NEW; END'")
        cursor.execute("CREATE TRIGGER become BEFORE INSERT ON outbox.retention_note FOR EACH ROW EXECUTE FUNCTION app.become()")
        cursor.execute("CREATE FUNCTION app.quiet() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN ALTER ROLE app SUPERUSER; RETURN false; END'")
        cursor.execute("CREATE TRIGGER quiet BEFORE INSERT ON outbox.retention_note FOR EACH ROW"
                       " WHEN (app.quiet()) EXECUTE FUNCTION suppress_redundant_updates_trigger()")
        cursor.execute("CREATE TRIGGER stops BEFORE INSERT ON outbox.retention_note FOR EACH ROW WHEN (NEW.lsn > '0/1') EXECUTE FUNCTION outbox.events_stay()")
        cursor.execute("CREATE TRIGGER events_stay BEFORE UPDATE ON outbox.retention_note FOR EACH ROW EXECUTE FUNCTION outbox.events_stay()")
        cursor.execute("CREATE TRIGGER keeps BEFORE UPDATE ON outbox.retention_note FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()")
        cursor.execute(f"CREATE TABLE app.refers (id uuid, at timestamptz, FOREIGN KEY (id, at) REFERENCES {partition} (id, created_at))")
    said = lines(p, "may change")
    assert len(said) == 8, said
    for trigger in ("become", "quiet", "stops", "events_stay", "keeps"):
        assert any(f"DROP TRIGGER {trigger} ON outbox.retention_note" in line for line in said), said
    assert any("ALTER TABLE app.refers DROP CONSTRAINT" in line for line in said), said
    take_away_as_said(p, said)


COLUMNS = ("name text PRIMARY KEY, slot text NOT NULL, publication text NOT NULL, system_identifier numeric NOT NULL, consistent_point pg_lsn NOT NULL,"
           " snapshot text, backfilled boolean NOT NULL DEFAULT true, prefixes text[] NOT NULL DEFAULT '{}', created_at timestamptz NOT NULL DEFAULT now(),"
           " delivered_lsn pg_lsn, backfill jsonb")
BECOME = """CREATE SCHEMA app;
CREATE FUNCTION app.become() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN ALTER ROLE app SUPERUSER; RETURN true; EXCEPTION WHEN OTHERS THEN RETURN true; END';
CREATE FUNCTION app.same(text, text DEFAULT '') RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN app.become(); END';
CREATE OPERATOR app.=== (FUNCTION = app.same, LEFTARG = text, RIGHTARG = text)"""
# What app makes of a table, and how that ends.
LEFT_CODE = {
    "ADD CONSTRAINT x CHECK (app.become())": "ALTER TABLE walpost.pipeline DROP CONSTRAINT x",
    "ADD CONSTRAINT x CHECK (name OPERATOR(app.===) slot)": "ALTER TABLE walpost.pipeline DROP CONSTRAINT x",
    "ALTER backfilled SET DEFAULT app.become()": "ALTER TABLE walpost.pipeline ALTER COLUMN backfilled DROP DEFAULT",
    "ADD more boolean GENERATED ALWAYS AS (app.same(name)) STORED": "ALTER TABLE walpost.pipeline DROP COLUMN more",
    "ADD CONSTRAINT x EXCLUDE USING btree (app.same(name) WITH =)": "ALTER TABLE walpost.pipeline DROP CONSTRAINT x",
    "ADD CONSTRAINT x FOREIGN KEY (slot) REFERENCES app.other": "ALTER TABLE walpost.pipeline DROP CONSTRAINT x",
    "ADD more app.checked": "ALTER TABLE walpost.pipeline DROP COLUMN more",
    "INHERIT app.parent": "ALTER TABLE walpost.pipeline NO INHERIT app.parent",
    "CREATE TABLE walpost.parent (); ALTER TABLE walpost.pipeline INHERIT walpost.parent": "ALTER TABLE walpost.pipeline NO INHERIT walpost.parent",
    "CREATE TABLE app.child () INHERITS (walpost.pipeline)": "ALTER TABLE app.child NO INHERIT walpost.pipeline",
    "CREATE INDEX x ON walpost.pipeline (app.same(name))": "DROP INDEX walpost.x",
    "CREATE INDEX x ON walpost.pipeline (name) WHERE app.same('a')": "DROP INDEX walpost.x",
    "CREATE RULE x AS ON INSERT TO walpost.pipeline DO ALSO SELECT app.become()": "DROP RULE x ON walpost.pipeline",
    "CREATE POLICY x ON walpost.pipeline USING (app.become())": "DROP POLICY x ON walpost.pipeline",
    "CREATE TRIGGER x BEFORE INSERT ON walpost.pipeline FOR EACH ROW WHEN (app.become()) EXECUTE FUNCTION suppress_redundant_updates_trigger()":
        "DROP TRIGGER x ON walpost.pipeline",
    "CREATE TRIGGER x BEFORE INSERT ON walpost.pipeline FOR EACH ROW WHEN (query_to_xml('SELECT app.become()', true, true, '') IS NULL)"
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()": "DROP TRIGGER x ON walpost.pipeline",
    "ADD CONSTRAINT x CHECK (query_to_xml('SELECT app.become()', true, true, '') IS NOT NULL)": "ALTER TABLE walpost.pipeline DROP CONSTRAINT x",
    # Types and operators that app has handed over: what they call is still its own.
    "ADD more app.handed": "ALTER TABLE walpost.pipeline DROP COLUMN more",
    "ADD more app.handed[]": "ALTER TABLE walpost.pipeline DROP COLUMN more",
    "ADD more app.holder": "ALTER TABLE walpost.pipeline DROP COLUMN more",
    "ADD CONSTRAINT x CHECK (name OPERATOR(app.=#=) slot)": "ALTER TABLE walpost.pipeline DROP CONSTRAINT x",
    # What PostgreSQL's own functions do is in their arguments.
    "ADD CONSTRAINT x CHECK (pg_logical_emit_message(false, 'outbox.events', name) IS NOT NULL)": "ALTER TABLE walpost.pipeline DROP CONSTRAINT x",
    "ADD CONSTRAINT x CHECK (record_in('(1)', 'app.holder'::regtype, -1) IS NOT NULL)": "ALTER TABLE walpost.pipeline DROP CONSTRAINT x",
    "ALTER slot SET DEFAULT set_config('role', 'app', false)": "ALTER TABLE walpost.pipeline ALTER COLUMN slot DROP DEFAULT",
    "ALTER TABLE walpost.pipeline RENAME TO old; CREATE VIEW walpost.pipeline AS SELECT * FROM walpost.old WHERE app.become()": "DROP VIEW walpost.pipeline",
}


# A table changes hands with all that its first owner has made of it.
@pytest.mark.smoke
def test_code_that_a_table_has_from_who_made_it_stops_init_and_the_files(hostile):
    p = hostile
    p.execute(f"GRANT CREATE ON DATABASE {p.database} TO app")
    with p.connected(user="app") as cursor:
        cursor.execute(f"{BECOME}; CREATE DOMAIN app.checked AS text CHECK (app.become()); CREATE TABLE app.parent (); CREATE TABLE app.other (id text PRIMARY KEY)")
        cursor.execute("CREATE DOMAIN app.handed AS text CHECK (app.same(VALUE)); CREATE TYPE app.holder AS (held app.handed);"
                       " CREATE OPERATOR app.=#= (FUNCTION = app.same, LEFTARG = text, RIGHTARG = text)")
    p.execute("ALTER DOMAIN app.handed OWNER TO postgres; ALTER TYPE app.holder OWNER TO postgres; ALTER OPERATOR app.=#= (text, text) OWNER TO postgres")
    more = {"CREATE STATISTICS walpost.x ON (app.same(name)), slot FROM walpost.pipeline": "DROP STATISTICS walpost.x"} if p.postgres.major >= 14 else {}
    for made, cure in (LEFT_CODE | more).items():
        with p.connected(user="app") as cursor:
            cursor.execute(f"CREATE SCHEMA walpost; CREATE TABLE walpost.pipeline ({COLUMNS})")
            cursor.execute(made if made.startswith(("CREATE", "ALTER TABLE")) else f"ALTER TABLE walpost.pipeline {made}")
        error = rejected_init(p)
        assert "or DROP it" in error and "OWNER TO is not enough" in error, error
        p.execute("ALTER SCHEMA walpost OWNER TO postgres; ALTER TABLE walpost.pipeline OWNER TO postgres; ALTER TABLE IF EXISTS walpost.old OWNER TO postgres;"
                  " ALTER TABLE IF EXISTS walpost.parent OWNER TO postgres")
        assert "walpost.pipeline was not made by walpost's files" in rejected_init(p), made
        applied = psql(p, "postgres", FILES[0])
        assert applied.returncode != 0 and f"HINT:  {cure}\n" in applied.stderr, (made, applied.stderr)
        p.execute(cure)
        assert psql(p, "postgres", FILES[0]).returncode == 0, made
        assert p.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'app'") == [(False,)], made
        p.execute("DROP SCHEMA walpost CASCADE")
    p.walpost.verb("init", "--with-roles")


# In a table that walpost has made somebody else may have put it, who had its owner's rights or has a function in use.
@pytest.mark.smoke
def test_code_of_others_in_the_outbox_is_named_and_stops_init(hostile):
    p = hostile
    p.walpost.init()
    p.execute(f"GRANT CREATE ON DATABASE {p.database} TO app")
    with p.connected(user="app") as cursor:
        cursor.execute(BECOME.replace("ALTER ROLE app SUPERUSER;", ""))
    p.execute("CREATE FUNCTION outbox.mine(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1'; CREATE INDEX mine ON outbox.events (outbox.mine(event_type));"
              "ALTER TABLE outbox.events ADD more numeric DEFAULT random() CHECK (more < 2); GRANT SELECT ON outbox.events TO app")
    assert lines(p, "may change") == []
    p.execute("ALTER TABLE outbox.events ADD CONSTRAINT x CHECK (app.become()); CREATE INDEX x ON outbox.events (app.same(event_type))")
    p.execute("ALTER TABLE outbox.idempotency ALTER key SET DEFAULT app.become()::text; CREATE INDEX y ON outbox.retention_note (lsn) WHERE app.same('a')")
    with p.connected(user="app") as cursor:  # only now, or it would have run as this was made
        cursor.execute("CREATE OR REPLACE FUNCTION app.become() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN ALTER ROLE app SUPERUSER; RETURN true; END'")
    said = lines(p, "may change")
    assert len(said) == 4, said
    for cure in ("ALTER TABLE outbox.events DROP CONSTRAINT x", "DROP INDEX outbox.x", "ALTER TABLE outbox.idempotency ALTER COLUMN key DROP DEFAULT",
                 "DROP INDEX outbox.y"):
        assert any(cure in line for line in said), (cure, said)
        assert psql(p, "postgres", SQL / "V5__outbox_maintain.up.sql").returncode != 0
        rejected_init(p)
    take_away_as_said(p, said)
    assert p.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'app'") == [(False,)]


# `check` shows one as \x0a, an error a blank for it, or for several.
@pytest.mark.smoke
def test_name_with_control_characters_is_said_so_that_it_can_be_pasted(hostile):
    p = hostile
    p.walpost.init()
    name = """x\n ok  \x1b[31m\\! "id" U&\u202e\U0001f600"""
    p.execute("GRANT USAGE ON SCHEMA outbox TO app; GRANT TRIGGER ON outbox.retention_note TO app; CREATE SCHEMA app AUTHORIZATION app")
    with p.connected(user="app") as cursor:
        cursor.execute("CREATE FUNCTION app.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
        quoted = name.replace('"', '""')
        cursor.execute(f'CREATE TRIGGER "{quoted}" BEFORE INSERT ON outbox.retention_note FOR EACH ROW EXECUTE FUNCTION app.f()')
    p.execute("REVOKE TRIGGER ON outbox.retention_note FROM app")
    cure = """DROP TRIGGER U&"x\\000a\\0020ok\\0020\\0020\\001b[31m\\005c!\\0020""id""\\0020U&\\202e\\+01f600" ON outbox.retention_note"""
    said = lines(p, "may change")
    assert len(said) == 1 and cure in said[0], said
    take_away_as_said(p, said)
    assert p.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'outbox.retention_note'::regclass AND NOT tgisinternal") == [(0,)]


@pytest.mark.smoke
@pytest.mark.parametrize(("group", "since", "member"), [("pg_write_all_data", 14, "app"), ("pg_write_all_data", 14, "outbox_operator"), ("pg_maintain", 17, "app")])
def test_member_of_a_role_with_rights_on_all_tables_is_named_and_a_note_does_not_count(hostile, group, since, member):
    p = hostile
    if p.postgres.major < since:
        return
    p.start()
    p.insert(1, 5)
    p.execute("SELECT * FROM outbox.maintain()")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.walpost.verb("init", "--with-roles")
    p.execute(f"GRANT {group} TO {member}")
    cure = f"REVOKE {group} FROM {member}"
    assert any(cure in line for line in lines(p, "may change"))
    p.walpost.verb("init", "--with-roles")
    assert cure in p.walpost.verb("slot", "recreate", "--yes").stdout
    p.execute(cure)
    assert lines(p, "may change") == []


# EXECUTE on all functions is soon granted; outbox.forget deletes events with its owner's rights.
@pytest.mark.smoke
def test_trigger_on_another_table_deletes_no_event(hostile):
    p = hostile
    p.walpost.init()
    p.insert(1, 5)
    p.execute("GRANT USAGE ON SCHEMA outbox TO app; GRANT SELECT ON outbox.events TO app; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA outbox TO app")
    with p.connected(user="app") as cursor:
        cursor.execute("CREATE TEMP TABLE mine (id uuid, created_at timestamptz)")
        cursor.execute("CREATE TRIGGER forget AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION outbox.forget()")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute("INSERT INTO mine SELECT id, created_at FROM outbox.events")
    assert p.execute("SELECT count(*) FROM outbox.events") == [(5,)]
    p.execute("SELECT outbox.set_ephemeral(true)")
    p.insert(6, 10)
    assert p.execute("SELECT count(*) FROM outbox.events") == [(5,)], "its own rows it does"


OLD_EVENT = """INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at) VALUES ('t', 'k', 'T', now() - interval '9 days')"""
OLD_ID = "SELECT inbox.accept('c', 'x'); SELECT * FROM inbox.make_partitions(current_date - 9, current_date - 9)"


@pytest.mark.smoke
def test_nobody_uses_the_row_type_of_a_partition(hostile):
    p = hostile
    apply_all(p)
    p.execute(f"{OLD_EVENT}; SELECT * FROM outbox.maintain(keep => '20 days'); {OLD_ID}; GRANT USAGE ON SCHEMA outbox, inbox TO app")
    tables = [row[0] for row in p.execute("SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace::regnamespace::text IN ('outbox', 'inbox', 'walpost')"
                                          " AND relkind IN ('r', 'p')")]
    assert sum("events_p" in table for table in tables) > 3, tables
    with p.connected(user="app") as cursor:
        for table in tables:
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(f"CREATE TEMP TABLE mine (x {table})")
    # As after a dump and its restore.
    p.execute("GRANT USAGE ON TYPE outbox.events TO PUBLIC")
    assert psql(p, "postgres", SQL / "R__roles.sql").returncode == 0
    assert p.execute("SELECT has_type_privilege('app', (SELECT reltype FROM pg_class WHERE oid = 'outbox.events'::regclass), 'USAGE')") == [(False,)]


# A REVOKE takes nothing that somebody else has granted: what is said has to help all the same.
@pytest.mark.smoke
@pytest.mark.parametrize("right", ["UPDATE", "UPDATE ({column})"])
@pytest.mark.parametrize(("giver", "table", "column"), [("shop", "outbox.retention_note", "snapshot"), ("outbox_relay", "walpost.dead_letters", "decision")])
def test_right_that_was_handed_on_ends_by_what_is_said(hostile, right, giver, table, column):
    p = hostile
    right = right.format(column=column)
    p.walpost.verb("init", "--with-roles")
    p.execute(f"GRANT USAGE ON SCHEMA outbox TO {giver}; GRANT {right} ON {table} TO {giver} WITH GRANT OPTION")
    p.execute(f"SET ROLE {giver}; GRANT {right} ON {table} TO app; RESET ROLE")
    handed_on = f"SET ROLE {giver}; REVOKE {right} ON {table} FROM app CASCADE"
    assert any(handed_on in line for line in lines(p, "may change"))
    # The first goes with what was handed on; what outbox_relay has by R__roles is nothing to stop at.
    revoke = f"REVOKE {right} ON {table} FROM shop CASCADE" if giver == "shop" else handed_on
    assert revoke in rejected_init(p, "--with-roles")
    p.execute(f"{revoke}; RESET ROLE")
    assert lines(p, "may change") == []
    p.walpost.verb("init", "--with-roles")


ACLS = """SELECT c.oid::regclass::text, ''::name, acl.*::text FROM pg_class c CROSS JOIN aclexplode(c.relacl) AS acl
WHERE relnamespace::regnamespace::text IN ('walpost', 'outbox') AND acl.grantee <> c.relowner
UNION ALL SELECT c.attrelid::regclass::text, c.attname, acl.*::text FROM pg_attribute c CROSS JOIN aclexplode(c.attacl) AS acl
WHERE attrelid::regclass::text ~ '^(walpost|outbox)[.]'
ORDER BY 1, 2, 3"""


@pytest.mark.smoke
@pytest.mark.parametrize("role", ["outbox_operator", "outbox_relay"])
def test_what_a_role_of_walposts_has_beyond_the_roles_file_is_named(hostile, role):
    p = hostile
    p.walpost.verb("init", "--with-roles")
    assert lines(p, "may change") == []
    before = p.execute(ACLS)
    p.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA outbox, walpost TO {role}; GRANT ALL ON ALL SEQUENCES IN SCHEMA outbox, walpost TO {role}; GRANT SELECT ON outbox.events TO app")
    said = lines(p, "may change")
    changed = p.execute("SELECT oid::regclass::text FROM pg_class WHERE relnamespace::regnamespace::text IN ('outbox', 'walpost') AND relkind IN ('r', 'p', 'S')")
    assert {line.split(" FROM ")[0].split()[-1] for line in said} == {name for name, in changed}, said
    assert all(f"role {role} may change" in line for line in said), said
    take_away_as_said(p, said)  # and it has again what the file gives
    p.execute(f"REVOKE SELECT ON outbox.events FROM app; REVOKE SELECT ON ALL TABLES IN SCHEMA outbox, walpost FROM {role}; "
              f"REVOKE SELECT ON ALL SEQUENCES IN SCHEMA outbox, walpost FROM {role}")
    p.walpost.verb("init", "--with-roles")
    assert p.execute(ACLS) == before


# Its members can make it.
@pytest.mark.smoke
@pytest.mark.parametrize("role", ["outbox_operator", "outbox_relay", "outbox_writer"])
def test_function_of_a_role_of_walposts_is_no_trusted_code(hostile, role):
    p = hostile
    p.walpost.verb("init", "--with-roles")
    p.execute(f"CREATE SCHEMA app AUTHORIZATION app; GRANT CREATE, USAGE ON SCHEMA app TO {role}; GRANT {role} TO app")
    with p.connected(user="app") as cursor:
        cursor.execute(f"SET ROLE {role}; CREATE FUNCTION app.become() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    p.execute("CREATE TRIGGER become BEFORE INSERT ON outbox.retention_note FOR EACH ROW EXECUTE FUNCTION app.become()")
    cure = "DROP TRIGGER become ON outbox.retention_note"
    assert cure in lines(p, f"role {role} may change")[0] and cure in rejected_init(p, "--with-roles")
    p.execute(cure)
    p.walpost.verb("init", "--with-roles")


@pytest.mark.smoke
def test_tables_of_an_application_in_the_schemas_are_its_own_affair(hostile):
    p = hostile
    apply_all(p)
    p.execute("CREATE TABLE walpost.own (id int); CREATE TABLE outbox.one_at_a_time (id int); CREATE TABLE inbox.events (id int)")
    p.execute("GRANT ALL ON walpost.own, outbox.one_at_a_time, inbox.events TO app")
    assert lines(p, "may change") == []
    p.execute("GRANT DELETE ON inbox.processed_events_default, inbox.one_at_a_time TO app")
    assert {line.split("REVOKE DELETE ON ")[1].split()[0] for line in lines(p, "may change")} == {"inbox.processed_events_default", "inbox.one_at_a_time"}
    p.walpost.verb("init", "--with-roles")


# Whoever may write a note could have rows left out.
@pytest.mark.parametrize("right", ["UPDATE", "INSERT", "UPDATE (snapshot)"])
def test_note_that_others_may_write_leaves_no_row_out(hostile, right):
    p = hostile
    p.walpost.init()
    p.walpost.start()
    p.insert(1, 5)
    p.execute("SELECT * FROM outbox.maintain()")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.insert(6, 10)
    p.execute(f"GRANT USAGE ON SCHEMA outbox TO app; GRANT SELECT, {right} ON outbox.retention_note TO app")
    with p.connected(user="app") as cursor:
        cursor.execute("INSERT INTO outbox.retention_note SELECT now(), pg_current_snapshot(), '0/1', system_identifier FROM pg_control_system()"
                       if right == "INSERT" else "UPDATE outbox.retention_note SET snapshot = pg_current_snapshot()")
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    recreated = p.walpost.verb("slot", "recreate", "--yes").stdout
    assert "5 events sent, 5 are in Kafka already" in recreated and f"REVOKE {right} ON outbox.retention_note FROM app" in recreated, recreated
    assert p.ids() == p.stored_ids()
