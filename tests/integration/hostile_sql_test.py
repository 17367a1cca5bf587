"""What a role can do to others in the database: with operators, functions, locks and keys of its own."""

import os
import subprocess

import psycopg2
import psycopg2.errors
import pytest
import servers

SQL = servers.ROOT / "sql"

# Operators and functions that fit better than those of pg_catalog to what somebody may have written, as anybody who may create in a schema can make
# them. Each one notes who ran it, and takes what that one has to give.
TRAPS = """
SET search_path = pg_catalog;  -- or the first ones catch who makes the others
CREATE TABLE public.caught (what text, who name);
GRANT ALL ON public.caught TO PUBLIC;
CREATE FUNCTION public.trap(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    ALTER ROLE mallory SUPERUSER;
    INSERT INTO public.caught VALUES (what, current_user);
EXCEPTION WHEN OTHERS THEN
    INSERT INTO public.caught VALUES (what, current_user);
END $$;
DO $$
DECLARE
    made record;
    name text;
    body text := 'BEGIN PERFORM public.trap(%L); RETURN NULL; END';
BEGIN
    FOR made IN
        SELECT o AS operator, l.t AS left, r.t AS right,
               CASE WHEN o = '||' THEN 'text' WHEN o IN ('+', '-', '*', '/') THEN 'bigint' ELSE 'boolean' END AS result
        FROM unnest('{=,<>,<,>=,~,||,+,-,*,/}'::text[]) AS o,
             unnest('{oid,regclass,regnamespace,regrole,integer,bigint,numeric,text,name,"\\"char\\"",jsonb,timestamptz}'::text[]) AS l (t),
             unnest('{oid,regclass,regnamespace,regrole,integer,bigint,numeric,text,name,"\\"char\\"",timestamptz}'::text[]) AS r (t)
        WHERE NOT EXISTS (
            SELECT FROM pg_operator p WHERE p.oprname = o AND p.oprleft = l.t::regtype AND p.oprright = r.t::regtype)
    LOOP
        name := 'op_' || abs(hashtext(made::text));
        EXECUTE format('CREATE OR REPLACE FUNCTION public.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', name, made.left, made.right,
                       made.result, format(body, made::text));
        EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = public.%I, LEFTARG = %s, RIGHTARG = %s)', made.operator, name, made.left, made.right);
    END LOOP;
    FOREACH name IN ARRAY '{quote_ident(name),pg_drop_replication_slot(text),to_regclass(varchar),octet_length(name),
                            quote_literal(name),array_to_string(name[]\\,text),octet_length(jsonb),pg_get_expr(pg_node_tree\\,regclass),
                            pg_create_logical_replication_slot(text\\,text)}'::text[] LOOP
        EXECUTE format('CREATE FUNCTION public.%s RETURNS text LANGUAGE plpgsql AS %L', name, format(body, name));
    END LOOP;
END $$;
"""


def versions(direction):
    return sorted(SQL.glob(f"V*.{direction}.sql"), key=lambda path: int(path.name[1:].split("__")[0]))


def psql(p, *arguments, text=None):
    done = subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *map(str, arguments)], input=text, capture_output=True, text=True, check=False, timeout=60,
                          env={**os.environ, "PGHOST": str(p.postgres.path), "PGPORT": str(p.postgres.port), "PGUSER": "postgres", "PGDATABASE": p.database})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def mallory(postgres):
    postgres.execute("CREATE ROLE mallory LOGIN")
    return "mallory"


def caught(p):
    return p.execute("SELECT * FROM public.caught LIMIT 5"), p.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'")


@pytest.mark.smoke
def test_operators_and_functions_in_public_run_with_nobodys_rights(make_pipeline, mallory):
    p = make_pipeline()
    p.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")  # as before version 15
    with p.connected(user=mallory) as cursor:
        cursor.execute(TRAPS)
    # They are traps: a superuser falls into one.
    p.execute("SELECT 1::oid = 'pg_class'::regclass")
    assert caught(p)[0] and caught(p)[1] == [(True,)]
    p.execute("ALTER ROLE mallory NOSUPERUSER; TRUNCATE public.caught")

    p.walpost.verb("init", "--with-roles")
    p.walpost.verb("init", "--with-roles")
    p.walpost.start()
    with p.connected() as cursor:
        cursor.execute("SELECT * FROM outbox.maintain(ahead => '5 days')")
        cursor.execute("SELECT outbox.set_payload_max(900000); SELECT outbox.set_ephemeral(true); SELECT outbox.set_ephemeral(false)")
        cursor.execute("SELECT outbox.emit('Tested', %s, 'k', 'x', idempotency_key => '1', headers => '{\"a\": 1}')", (p.name,))
        cursor.execute("SELECT outbox.emit('Tested', %s, 'k', 'x', idempotency_key => '1')", (p.name,))
        cursor.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'Tested')", (p.name,))
        cursor.execute("SELECT outbox.forget_keys()")
    p.wait_confirmed()
    for verb in (["check"], ["slot", "list"], ["audit"], ["replay", "--missing", "--dry-run"]):
        p.walpost.verb(*verb)
    p.walpost.stop()
    for path in (SQL / "runbook").iterdir():
        if path.stem not in ("before_transaction", "transaction", "find_commit"):  # these want a slot with something in it
            psql(p, "-v", "seconds=0.1", "-f", path)
    p.walpost.verb("slot", "drop", "--yes")
    # The files themselves, as an administrator or a migration tool applies them; the inbox, because it is there.
    for path in (*versions("up"), SQL / "R__roles.sql", SQL / "inbox/V1__inbox.up.sql", *reversed(versions("up"))):
        psql(p, "-1", "-f", path)
    psql(p, "-c", "SELECT inbox.accept('c', 'e')", "-c", "SELECT * FROM inbox.maintain('3 days')")
    for path in (SQL / "inbox/V1__inbox.down.sql", *reversed(versions("down"))):
        psql(p, "-1", "-f", path)
    assert caught(p) == ([], [(False,)])


def test_every_file_says_first_what_its_names_and_operators_mean_and_takes_it_back_last():
    for path in [*SQL.glob("*.sql"), *SQL.glob("inbox/*.sql")]:
        statements = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("--")]
        assert statements[:2] == ["SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);",
                                  "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);"], path
        assert statements[-1] == "SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);", path
    for path in SQL.glob("runbook/*.sql"):
        statements = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("--")]
        assert statements[0] == "SET search_path = pg_catalog, pg_temp;", path


@pytest.mark.smoke
def test_every_function_looks_in_pg_catalog_first(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    for path in (SQL / "V3__outbox_messages.up.sql", SQL / "inbox/V1__inbox.up.sql"):
        psql(p, "-1", "-f", path)
    found = {row[0] for row in p.execute(
        "SELECT DISTINCT p.oid::regproc::text FROM pg_proc p WHERE p.pronamespace IN ('walpost'::regnamespace, 'outbox'::regnamespace, 'inbox'::regnamespace)"
        " AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)")}
    # The first two name each operator's schema; the others run under the search_path of outbox.emit_message.
    assert found <= {"outbox.uuid_v7", "inbox.day_of", "walpost.message_prefix", "walpost.wire_number", "walpost.wire_field", "walpost.wire_headers",
                     "walpost.wire_options"}


@pytest.mark.smoke
def test_roles_file_does_the_same_under_any_search_path(make_pipeline):
    p = make_pipeline()
    p.walpost.init()
    with p.connected(autocommit=False) as cursor:
        cursor.execute("SET search_path = outbox, walpost, public")
        cursor.execute((SQL / "R__roles.sql").read_text(encoding="utf-8"))
        cursor.connection.commit()
        cursor.execute("SHOW search_path")
        assert cursor.fetchone() == ("outbox, walpost, public",)
    emit = "SELECT count(*), bool_and(proowner = 'outbox_owner'::regrole), bool_and(has_function_privilege('outbox_writer', oid, 'EXECUTE')) FROM pg_proc"
    assert p.execute(f"{emit} WHERE pronamespace = 'outbox'::regnamespace AND proname = 'emit'") == [(3, True, True)]
    assert p.execute("SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace IN ('outbox'::regnamespace, 'walpost'::regnamespace)") == [
        ("outbox_owner",)]
    assert p.execute("SELECT has_function_privilege('public', p.oid, 'EXECUTE') FROM pg_proc p WHERE proname = 'forget'") == [(False,)]


def test_init_by_a_superuser_does_not_build_on_what_others_own(make_pipeline, mallory):
    p = make_pipeline()
    p.execute(f"GRANT CREATE ON DATABASE {p.database} TO mallory")
    with p.connected(user=mallory) as cursor:
        cursor.execute("CREATE SCHEMA walpost; CREATE TABLE walpost.schema_version (version integer PRIMARY KEY)")
    rejected = p.walpost.verb("init", check=False)
    assert rejected.returncode == 78 and "schema walpost belongs to role mallory" in rejected.stderr
    p.execute("ALTER SCHEMA walpost OWNER TO postgres")
    rejected = p.walpost.verb("init", check=False)
    assert rejected.returncode == 78 and "walpost.schema_version belongs to role mallory" in rejected.stderr
    p.execute("DROP TABLE walpost.schema_version")
    p.walpost.init()


# Its owner may take the outbox out of it, and then no event is in the stream.
def test_publication_of_another_is_not_built_on(make_pipeline, mallory):
    p = make_pipeline()
    p.execute(f"GRANT CREATE ON DATABASE {p.database} TO mallory")
    with p.connected(user=mallory) as cursor:
        cursor.execute(f"CREATE PUBLICATION {p.name} WITH (publish = 'insert', publish_via_partition_root = true)")
    assert p.walpost.verb("init", check=False).returncode == 78  # it lacks the table
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE outbox.events")
    rejected = p.walpost.verb("init", check=False)
    assert rejected.returncode == 78 and "belongs to role mallory" in rejected.stderr
    assert "publication owner" in p.walpost.verb("check", check=False).stdout
    p.execute(f"ALTER PUBLICATION {p.name} OWNER TO postgres")
    p.walpost.init()
    assert "publication owner" not in p.walpost.verb("check").stdout


# Of a table of its own it may take away more than that.
def test_publication_of_the_owner_of_the_outbox_is_as_good_as_the_outbox(make_pipeline, mallory):
    p = make_pipeline(config={"outboxes": [{"table": "app.events"}]})
    p.execute(f"GRANT CREATE ON DATABASE {p.database} TO mallory")
    with p.connected(user=mallory) as cursor:
        cursor.execute("CREATE SCHEMA app; CREATE TABLE app.events (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload bytea)")
        cursor.execute(f"CREATE PUBLICATION {p.name} FOR TABLE app.events WITH (publish = 'insert', publish_via_partition_root = true)")
    p.walpost.init()
    assert "publication owner" not in p.walpost.verb("check").stdout


# As a migration tool or a DBA applies them: a table that is there already keeps its triggers, and who owns the schema may replace what is in it.
@pytest.mark.smoke
def test_files_that_a_superuser_applies_do_not_build_on_what_others_own(make_pipeline, mallory):
    p = make_pipeline()
    p.execute(f"GRANT CREATE ON DATABASE {p.database} TO mallory")
    with p.connected(user=mallory) as cursor:
        cursor.execute("CREATE SCHEMA walpost; CREATE SCHEMA outbox; CREATE SCHEMA inbox")
        cursor.execute("CREATE TABLE walpost.schema_version (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())")
        cursor.execute("CREATE FUNCTION walpost.change_tables(text[], VARIADIC regclass[]) RETURNS void LANGUAGE plpgsql AS 'BEGIN ALTER ROLE mallory SUPERUSER; END'")
        cursor.execute("CREATE FUNCTION walpost.trap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN ALTER ROLE mallory SUPERUSER; RETURN NEW; END'")
        cursor.execute("CREATE TRIGGER trap BEFORE INSERT ON walpost.schema_version FOR EACH ROW EXECUTE FUNCTION walpost.trap()")
    everything = [*versions("up"), SQL / "R__roles.sql", SQL / "inbox/V1__inbox.up.sql"]
    for path in everything:
        with pytest.raises(AssertionError, match="schema (walpost|outbox|inbox) belongs to role mallory"):
            psql(p, "-1", "-f", path)
    # Nor does a psql that goes on after an error.
    psql(p, "-v", "ON_ERROR_STOP=0", text="".join(f"BEGIN;\n\\i {path}\nCOMMIT;\n" for path in everything))
    p.execute("ALTER SCHEMA walpost OWNER TO postgres; ALTER SCHEMA outbox OWNER TO postgres; ALTER SCHEMA inbox OWNER TO postgres")
    with pytest.raises(AssertionError, match="walpost.change_tables.* belongs to role mallory"):
        psql(p, "-1", "-f", everything[0])
    assert p.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'") == [(False,)]
    p.execute("DROP TABLE walpost.schema_version; DROP FUNCTION walpost.change_tables, walpost.trap")
    for path in everything:
        psql(p, "-1", "-f", path)


@pytest.mark.smoke
def test_owner_who_is_no_superuser_can_do_all_but_roles(make_pipeline):
    p = make_pipeline()
    p.execute("CREATE ROLE shop_owner LOGIN REPLICATION")
    p.execute(f"ALTER DATABASE {p.database} OWNER TO shop_owner")
    own = p.another(conninfo=p.postgres.conninfo(p.database, user="shop_owner"))
    own.verb("init")
    own.verb("init")
    with p.connected(user="shop_owner") as cursor:
        cursor.execute("SELECT * FROM outbox.maintain(ahead => '5 days')")
        assert len(cursor.fetchall()) == 2
        cursor.execute("SELECT outbox.set_payload_max(900000); SELECT outbox.emit('Tested', %s, 'k', 'x')", (p.name,))
    own.start()
    own.stop()


@pytest.mark.smoke
def test_idempotency_key_of_one_writer_is_nothing_to_another(make_pipeline, mallory):
    p = make_pipeline()
    p.walpost.verb("init", "--with-roles")
    p.execute("CREATE ROLE honest LOGIN IN ROLE outbox_writer; CREATE ROLE tenant IN ROLE outbox_writer; GRANT tenant TO honest; GRANT outbox_writer TO mallory")
    emit = "SELECT outbox.emit('Tested', 'a', 'k', 'x', idempotency_key => 'payment-1')"
    ids = {}
    for name, user, role in [("guessed", mallory, "NONE"), ("first", "honest", "NONE"), ("again", "honest", "NONE"), ("as tenant", "honest", "tenant")]:
        with p.connected(user=user) as cursor:
            cursor.execute(f"SET ROLE {role}; {emit}")
            ids[name] = cursor.fetchone()[0]
    assert ids["first"] == ids["again"] and len(set(ids.values())) == 3
    assert p.execute("SELECT array_agg(writer ORDER BY writer) FROM outbox.idempotency") == [(["honest", "mallory", "tenant"],)]
    assert p.execute("SELECT count(*) FROM outbox.events") == [(3,)]


def test_writer_can_hold_up_maintenance_by_no_lock_of_his(make_pipeline, mallory):
    p = make_pipeline()
    p.walpost.init()
    with p.connected(user=mallory) as cursor:
        cursor.execute("SELECT pg_advisory_lock_shared(n::bigint << 32 | k) FROM generate_series(1, 2) n, generate_series(1, 2) k")
        cursor.execute("SELECT pg_advisory_lock(%s, k) FROM generate_series(0, 10) k", (p.execute("SELECT 'outbox.events'::regclass::oid::integer")[0][0],))
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute("BEGIN; LOCK TABLE outbox.retention_note IN ACCESS SHARE MODE")
        made = p.execute("SELECT action FROM outbox.maintain(ahead => '5 days')")
    assert made == [("made",), ("made",)]


OWN_COLUMNS = {"key": "aggregateid", "aggregate_type": "aggregatetype", "type": "type"}


def own_config(p, table, user="postgres"):
    return {"source": {"conninfo": p.postgres.conninfo(p.database, user=user), "slot": p.name, "publication": p.name},
            "outboxes": [{"table": table, "columns": OWN_COLUMNS}]}


def lose_slot(p):
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)


def recreated(p):
    """What it says; by then every row is in Kafka."""
    text = p.walpost.verb("slot", "recreate", "--yes").stdout
    assert len({record.id for record in p.records()}) == p.execute(f"SELECT count(*) FROM {p.walpost.table}")[0][0], text
    return text


# Which rows need not be looked at after a lost slot, a note says; where everybody may create tables, so can everybody.
@pytest.mark.smoke
@pytest.mark.parametrize("by", ["mallory", "mallory, beside an outbox", "mallory, as a view"])
def test_note_of_one_who_is_not_trusted_leaves_no_row_out(make_pipeline, mallory, by):
    p = make_pipeline()
    table = "public.events" if "beside" in by else "public.own"
    p.execute(f"CREATE TABLE {table} (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload text,"
              " tx xid8 NOT NULL DEFAULT pg_current_xact_id()); GRANT CREATE ON SCHEMA public TO PUBLIC")  # as before version 15
    p.walpost = p.another(config=own_config(p, table))
    p.walpost.table = table
    p.walpost.init()
    p.walpost.start()
    fill = f"INSERT INTO {table} (aggregatetype, aggregateid, type, payload) SELECT %s, 'k', 'Tested', 'x' FROM generate_series(1, %s)"
    p.execute(fill, p.name, 1)
    p.wait_confirmed()
    p.walpost.stop()
    with p.connected(user=mallory) as cursor:
        note = "SELECT now() AS noted_at, '4000000000:4000000000:'::pg_snapshot AS snapshot, '0/1'::pg_lsn AS lsn, system_identifier::numeric FROM pg_control_system()"
        cursor.execute(f"CREATE {'VIEW' if 'view' in by else 'TABLE'} public.retention_note AS {note}; GRANT SELECT ON public.retention_note TO PUBLIC")
        cursor.execute("CREATE FUNCTION public.maintain() RETURNS void LANGUAGE sql AS ''")
    p.execute(fill, p.name, 10)
    lose_slot(p)
    text = recreated(p)
    assert "warning      what public.retention_note says, a relation of role mallory, does not count" in text, text
    assert "10 events sent, 1 are in Kafka already" in text, text


@pytest.mark.smoke
def test_note_about_transactions_that_have_not_begun_leaves_no_row_out(make_pipeline):
    p = make_pipeline().start()
    p.walpost.table = "outbox.events"
    p.insert(1, 5)
    p.wait_confirmed()
    p.walpost.stop()
    p.execute("INSERT INTO outbox.retention_note SELECT now(), '4000000000:4000000000:', '0/1', system_identifier FROM pg_control_system()")
    p.insert(6, 15)
    lose_slot(p)
    text = recreated(p)
    assert "its newest note is about transactions that have not begun" in text and "10 events sent, 5 are in Kafka already" in text, text


# As TRAPS: it notes who ran it, or says so where nothing can be written.
def make_trap(cursor, schema):
    cursor.execute(f"CREATE TABLE {schema}.caught (who name); GRANT USAGE ON SCHEMA {schema} TO PUBLIC; GRANT INSERT ON {schema}.caught TO PUBLIC;"
                   f" CREATE FUNCTION {schema}.trap() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO {schema}.caught VALUES (current_user);"
                   " RETURN true; EXCEPTION WHEN read_only_sql_transaction THEN RAISE 'trapped %', current_user; END $$")


def trapped(p, schema):
    return p.execute(f"SELECT DISTINCT who FROM {schema}.caught")


PARTITIONS = ("CREATE FUNCTION {0}.maintain() RETURNS void LANGUAGE sql AS ''; CREATE FUNCTION {0}.partitions() RETURNS TABLE (partition regclass, ends timestamptz)"
              " LANGUAGE plpgsql AS $$ BEGIN PERFORM {0}.trap(); RETURN QUERY SELECT '{0}.events'::regclass, now() + interval '1 year'; END $$")


# Beside whosever table: that of the one who made the functions, or of another, in whose schema anybody may create.
@pytest.mark.smoke
@pytest.mark.parametrize("owner", ["mallory", "postgres"])
def test_check_runs_no_function_that_somebody_put_beside_the_table(make_pipeline, mallory, owner):
    p = make_pipeline()
    p.execute("CREATE SCHEMA app AUTHORIZATION mallory; GRANT USAGE ON SCHEMA app TO PUBLIC; SET ROLE " + owner)
    p.execute("GRANT CREATE ON SCHEMA app TO postgres; CREATE TABLE app.events (id uuid DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text,"
              " type text, payload text, created_at timestamptz DEFAULT now()) PARTITION BY RANGE (created_at);"
              " CREATE TABLE app.events_2000 PARTITION OF app.events FOR VALUES FROM ('2000-01-01') TO ('2000-01-02');"
              f" ALTER TABLE app.events OWNER TO {owner}; GRANT SELECT ON app.events, app.events_2000 TO PUBLIC")
    with p.connected(user=mallory) as cursor:
        make_trap(cursor, "app")
        cursor.execute(PARTITIONS.format("app"))
        cursor.execute("CREATE VIEW app.events_default AS SELECT WHERE app.trap(); GRANT SELECT ON app.events_default TO PUBLIC")
    p.walpost = p.another(config=own_config(p, "app.events"))
    p.walpost.init()
    text = p.walpost.verb("check", check=False).stdout
    assert trapped(p, "app") == [], text
    # What the catalog tells needs nobody's function; but who is not its owner is not told to run it.
    assert ("the time of its last partition is nearly over" in text) == (owner == "mallory"), text


@pytest.mark.smoke
def test_tables_of_walpost_that_are_views_of_another_are_not_read(make_pipeline, mallory):
    p = make_pipeline()
    p.execute(f"GRANT CREATE ON DATABASE {p.database} TO mallory")
    with p.connected(user=mallory) as cursor:
        cursor.execute("CREATE SCHEMA walpost")
        make_trap(cursor, "walpost")
        for name in ("pipeline", "schema_version", "dead_letters", "dead_letter_count"):
            columns = ("name", "slot", "publication", "system_identifier", "consistent_point", "snapshot", "version", "pipeline", "prefixes")
            cursor.execute(f"CREATE VIEW walpost.{name} AS SELECT {', '.join('t::text AS ' + c for c in columns)}, t AS backfilled"
                           " FROM (SELECT walpost.trap() AS t OFFSET 0) AS trapped WHERE t;"
                           f" GRANT SELECT ON walpost.{name} TO PUBLIC")
    p.walpost = p.another(config={"delivery": {"on_undeliverable": "dead_letter"}})
    for verb in (["init"], ["check"], ["slot", "create"], ["slot", "recreate"], ["dlq", "list"], ["emit", "--type", "t", "--key", "k", "--payload", "x"]):
        p.walpost.verb(*verb, check=False)
    assert trapped(p, "walpost") == []


def test_message_is_not_emitted_by_a_function_of_another(make_pipeline, mallory):
    p = make_pipeline(config={"messages": {"prefixes": ["shop"]}})
    p.execute(f"GRANT CREATE ON DATABASE {p.database} TO mallory")
    with p.connected(user=mallory) as cursor:
        cursor.execute("CREATE SCHEMA outbox")
        make_trap(cursor, "outbox")
        cursor.execute("CREATE FUNCTION outbox.emit_message(text, text, text, text, content_type text, prefix text) RETURNS uuid LANGUAGE sql"
                       " AS 'SELECT gen_random_uuid() WHERE outbox.trap()'")
    emitted = p.walpost.verb("emit", "--message", "--type", "t", "--key", "k", "--aggregate-type", "a", "--payload", "x", check=False)
    assert trapped(p, "outbox") == [] and emitted.returncode == 78 and "belongs to role mallory" in emitted.stderr, emitted.stderr


OWN_TABLE = ("CREATE TABLE app.own (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload text,"
             " tx xid8 NOT NULL DEFAULT pg_current_xact_id())")
STUB = ("INSERT INTO walpost.dead_letters (pipeline, position, event_id, event_type, source, topic, event_time_ms, header_names, header_values, value_schema,"
        " reason, detail, attempts, parked, truncated_bytes) SELECT %s, '', id::text, 'Tested', 'app.own', %s, 1, '{}', '{}', '', 'row_invalid', '', 1, false, 1"
        " FROM app.own LIMIT 1")
READING = (["replay", "--all", "--dry-run"], ["replay", "--missing", "--dry-run"], ["audit", "--wait", "1s"], ["dlq", "retry", "--reason", "row_invalid"])


def start_own(p):
    """An outbox of mallory's own, with a row, and a dead letter that needs it; a trap beside it."""
    p.execute("CREATE SCHEMA app AUTHORIZATION mallory")
    with p.connected(user="mallory") as cursor:
        make_trap(cursor, "app")
        cursor.execute(OWN_TABLE)
        cursor.execute("INSERT INTO app.own (aggregatetype, aggregateid, type, payload) VALUES (%s, 'k', 'Tested', 'x')", (p.name,))
    p.walpost = p.another(config=own_config(p, "app.own"))
    p.walpost.init()
    p.execute(STUB, p.name, p.name)


def rejected_everywhere(p, why):
    for verb in READING:
        done = p.walpost.verb(*verb, check=False)
        assert trapped(p, "app") == [] and "trapped" not in done.stdout + done.stderr, (verb, done)
        assert done.returncode in (75, 78) and why in done.stdout + done.stderr, (verb, done)


@pytest.mark.smoke
def test_view_in_the_place_of_a_table_is_not_read(make_pipeline, mallory):
    p = make_pipeline()
    start_own(p)
    with p.connected(user=mallory) as cursor:
        cursor.execute("ALTER TABLE app.own RENAME TO own_real;"
                       " CREATE VIEW app.own AS SELECT id, aggregatetype, aggregateid, type, payload, tx FROM app.own_real WHERE app.trap()")
    rejected_everywhere(p, "app.own is a view: rows are read from tables only")


@pytest.mark.parametrize("kind", ["PARTITION OF app.own DEFAULT", "INHERITS (app.own)"])
def test_foreign_table_below_a_table_is_not_read(make_pipeline, mallory, kind):
    p = make_pipeline()
    p.execute("CREATE FOREIGN DATA WRAPPER far; CREATE SERVER far FOREIGN DATA WRAPPER far; GRANT USAGE ON FOREIGN SERVER far TO mallory")
    start_own(p)
    with p.connected(user=mallory) as cursor:
        if "PARTITION" in kind:
            cursor.execute("DROP TABLE app.own; CREATE TABLE app.own (id uuid, aggregatetype text, aggregateid text, type text, payload text) PARTITION BY RANGE (id)")
            kind = kind.replace("DEFAULT", "FOR VALUES FROM (MINVALUE) TO (MAXVALUE)")
        cursor.execute(f"CREATE FOREIGN TABLE app.far {'' if 'PARTITION' in kind else '()'} {kind} SERVER far")
    for verb in READING[:3]:
        done = p.walpost.verb(*verb, check=False)
        assert done.returncode == 78 and "app.far is a foreign table: rows are read from tables only" in done.stderr, done


# The type's owner decides what a cast of it does.
@pytest.mark.smoke
@pytest.mark.parametrize("implicit", [False, True])
def test_cast_of_another_runs_with_nobodys_rights(make_pipeline, mallory, implicit):
    p = make_pipeline()
    start_own(p)
    with p.connected(user=mallory) as cursor:
        cursor.execute("CREATE TYPE app.choice AS ENUM ('x', 'y'); ALTER TABLE app.own ALTER payload TYPE app.choice USING payload::app.choice;"
                       " ALTER TABLE app.own DROP COLUMN id; ALTER TABLE app.own ADD COLUMN id app.choice DEFAULT 'x';"
                       " CREATE FUNCTION app.show(app.choice) RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM app.trap(); RETURN ''z''; END';"
                       f" CREATE CAST (app.choice AS text) WITH FUNCTION app.show {'AS IMPLICIT' if implicit else ''}")
    for more in ([], ["--id", "x"]):
        done = p.walpost.verb("replay", "--all", "--dry-run", *more, check=False)
        assert trapped(p, "app") == [] and "trapped" not in done.stdout + done.stderr, done
        assert ("app.show(app.choice) belongs to role mallory" in done.stderr) if implicit else "app.own: 1 event" in done.stdout, done


@pytest.fixture
def own_server(workspace):
    """Roles belong to the whole server."""
    return workspace.postgres()


def init_roles(p, user="postgres", check=False):
    p.walpost = p.another(conninfo=p.postgres.conninfo(p.database, user=user))
    return p.walpost.verb("init", "--with-roles", check=check)


# Who may create roles knows their passwords, or is a member of them, when a superuser gives them rights.
@pytest.mark.smoke
@pytest.mark.parametrize("prepared", ["CREATE ROLE outbox_relay LOGIN PASSWORD 'known'", "CREATE ROLE outbox_owner ROLE mallory", "CREATE ROLE outbox_operator"])
def test_roles_that_somebody_prepared_get_no_rights_until_they_are_dropped(make_pipeline, own_server, prepared):
    p = make_pipeline(on_postgres=own_server)
    p.execute("CREATE ROLE mallory LOGIN CREATEROLE")
    with p.connected(user="mallory") as cursor:
        cursor.execute(prepared)
    role = prepared.split()[2]
    rejected = init_roles(p)
    assert rejected.returncode == 78 and role in rejected.stderr and ("DROP ROLE" in rejected.stderr or "REVOKE" in rejected.stderr), rejected.stderr
    assert p.execute("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'outbox%%' AND (rolreplication OR rolname <> %s)", role) == [(0,)]
    p.execute(f"DROP ROLE {role}")
    init_roles(p, check=True)
    init_roles(p, check=True)


@pytest.mark.smoke
def test_roles_that_are_there_are_taken_when_their_administrator_says_so(make_pipeline, own_server):
    p = make_pipeline(on_postgres=own_server)
    p.execute("CREATE ROLE mallory LOGIN CREATEROLE; CREATE ROLE app LOGIN; CREATE ROLE outbox_relay LOGIN; CREATE ROLE outbox_writer ROLE app")
    rejected = init_roles(p)
    assert rejected.returncode == 78 and "outbox_relay, outbox_writer" in rejected.stderr and "CREATE ROLE outbox_owner; GRANT outbox_owner TO postgres" in rejected.stderr
    # What mallory gives to itself, or to the administrator, says nothing.
    with p.connected(user="mallory") as cursor:
        cursor.execute("CREATE ROLE outbox_owner; GRANT outbox_owner TO postgres; GRANT outbox_owner TO mallory")
    assert "REVOKE outbox_owner FROM mallory" in init_roles(p).stderr
    p.execute("DROP ROLE outbox_owner; CREATE ROLE outbox_owner; GRANT outbox_owner TO postgres")
    init_roles(p, check=True)
    # Another administrator, another database, and who was given a role since by those who may.
    p.execute("CREATE ROLE second LOGIN SUPERUSER; CREATE ROLE deploy LOGIN; GRANT outbox_writer TO deploy WITH ADMIN OPTION")
    with p.connected(user="deploy") as cursor:
        cursor.execute("GRANT outbox_writer TO mallory")
    init_roles(p, user="second", check=True)
    init_roles(make_pipeline(on_postgres=own_server), check=True)


# As on a managed service, whose administrator may not give REPLICATION either.
@pytest.mark.smoke
def test_administrator_who_is_no_superuser_applies_roles_again_and_nobody_elses(make_pipeline, own_server):
    p = make_pipeline(on_postgres=own_server)
    p.execute("CREATE ROLE admin LOGIN REPLICATION CREATEROLE; CREATE ROLE mallory LOGIN CREATEROLE")
    p.execute(f"ALTER DATABASE {p.database} OWNER TO admin")
    with p.connected(user="mallory") as cursor:
        cursor.execute("CREATE ROLE outbox_owner ROLE mallory")
    assert "REVOKE outbox_owner FROM mallory" in init_roles(p, user="admin").stderr
    p.execute("DROP ROLE outbox_owner")
    for _ in range(2):
        init_roles(p, user="admin", check=True)
    # Who may create roles can grant them before 16, and is found.
    if p.postgres.major < 16:
        with p.connected(user="mallory") as cursor:
            cursor.execute("GRANT outbox_owner TO mallory")
        assert "REVOKE outbox_owner FROM mallory" in init_roles(p, user="admin").stderr


@pytest.mark.smoke
def test_roles_are_made_beside_a_table_of_ones_own_alone(make_pipeline, own_server):
    p = make_pipeline(on_postgres=own_server)
    p.execute("CREATE SCHEMA app; " + OWN_TABLE)
    p.walpost = p.another(config=own_config(p, "app.own"))
    for _ in range(2):
        p.walpost.verb("init", "--with-roles")
    assert p.execute("SELECT has_table_privilege('outbox_relay', 'walpost.pipeline', 'SELECT'), to_regnamespace('outbox')") == [(True, None)]


@pytest.mark.smoke
def test_functions_work_in_a_session_in_which_a_backslash_escapes(make_pipeline):
    p = make_pipeline().start()
    with p.connected() as cursor:
        cursor.execute("SET standard_conforming_strings = off; SET escape_string_warning = off")
        cursor.execute("SELECT outbox.emit('Tested', %s, 'k', 'text', headers => '{\"h\": \"v\"}')", (p.name,))
        for _ in range(2):
            cursor.execute("SELECT outbox.set_payload_max(1000000)::text")
        cursor.execute("SELECT * FROM outbox.maintain()")
        for rejected in ("{\"id\": \"x\"}", "{\"a\\u0001\": \"x\"}"):
            with pytest.raises(psycopg2.Error, match="header"):
                cursor.execute("SELECT outbox.emit('Tested', %s, 'k', 'text', headers => %s::jsonb)", (p.name, rejected))
    p.wait_confirmed()
    assert len(p.records()) == 1


@pytest.mark.smoke
@pytest.mark.parametrize("more", [[], ["--with-roles"], ["--with-messages", "--revoke-emit"]])
def test_printed_sql_runs_nothing_of_what_stands_in_public(make_pipeline, workspace, more):
    p = make_pipeline(on_postgres=workspace.postgres(), config={"messages": {"prefixes": ["shop"]}} if "--with-messages" in more else None)
    p.execute("CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO PUBLIC")
    with p.connected(user="mallory") as cursor:
        cursor.execute(TRAPS)
    printed = p.walpost.verb("init", "--print-sql", *more).stdout
    psql(p, text=printed + "SELECT current_setting('search_path') = '\"$user\", public' AS same \\gset\nSELECT 1 / (:'same' = 't')::int;\n")
    assert caught(p) == ([], [(False,)])
    assert p.execute("SELECT count(*) FROM walpost.pipeline") == [(1,)]


def test_right_to_emit_is_given_to_nobody_who_made_a_function_of_that_name(make_pipeline):
    p = make_pipeline()
    stranger = f"stranger_{p.name}"
    p.execute(f"CREATE ROLE {stranger} LOGIN; GRANT CREATE ON DATABASE {p.database} TO {stranger}")
    p.execute("CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)")
    p.walpost = p.another(config={"outboxes": [{"preset": "debezium", "topics": {"allowed": ["*"]}}]})
    with p.connected(user=stranger) as cursor:
        cursor.execute("CREATE SCHEMA outbox; CREATE FUNCTION outbox.emit_message() RETURNS void LANGUAGE sql AS ''")
    printed = p.walpost.verb("init", "--print-sql", "--revoke-emit").stdout
    with pytest.raises(AssertionError, match=f"emit_message belongs to role {stranger}"):
        psql(p, text=printed)
    assert p.execute("SELECT count(*) FROM pg_proc p, aclexplode(p.proacl) a WHERE p.proname = 'pg_logical_emit_message' AND a.grantee = %s::regrole", stranger) == [(0,)]
