-- walpost, schema version 1: its record of pipelines, and its dead letters.
-- Apply with `walpost init`, or with any migration tool, in one transaction. Safe to apply again.
-- Publication and slot are not here: a slot cannot be made in a transaction that has written.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DO $$
DECLARE
    creator text;
BEGIN
    IF to_regnamespace('walpost') IS NULL THEN
        CREATE SCHEMA walpost;
        -- Whom default privileges let create in it, nobody has chosen for this schema.
        FOR creator IN SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
                       FROM pg_namespace CROSS JOIN aclexplode(nspacl) AS acl
                       WHERE nspname = 'walpost' AND acl.privilege_type = 'CREATE' AND acl.grantee <> nspowner LOOP
            EXECUTE format('REVOKE CREATE ON SCHEMA walpost FROM %s', creator);
        END LOOP;
    END IF;
END
$$;

-- As `walpost init` asks: who owns a table or function here can have code of his run with the rights of who applies this. So can who
-- may create here, by a function that fits a call better than ours does.
DO $$
DECLARE
    foreign_object record;
BEGIN
    SELECT what, owner.rolname, revoke INTO foreign_object
    FROM (SELECT 'schema ' || quote_ident(nspname) AS what, nspowner AS owner, nspname AS place, NULL AS revoke FROM pg_namespace
          UNION ALL SELECT c.oid::regclass::text, c.relowner, n.nspname, NULL FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
          UNION ALL SELECT p.oid::regprocedure::text, p.proowner, n.nspname, NULL FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
          UNION ALL SELECT 'schema ' || quote_ident(nspname), acl.grantee, nspname,
                           CASE acl.grantor WHEN nspowner THEN '' ELSE format('SET ROLE %s; ', acl.grantor::regrole) END || format(
                               'REVOKE CREATE ON SCHEMA %I FROM %s CASCADE', nspname, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END)
                    FROM pg_namespace CROSS JOIN aclexplode(nspacl) AS acl WHERE acl.privilege_type = 'CREATE' AND NOT pg_has_role(acl.grantee, nspowner, 'USAGE')
         ) AS objects JOIN (SELECT oid, rolname FROM pg_roles UNION ALL SELECT 0::oid, 'PUBLIC') AS owner ON owner.oid = objects.owner
    WHERE place IN ('walpost') AND owner.rolname <> 'outbox_owner' AND NOT
        pg_has_role(CASE owner.rolname WHEN 'pg_database_owner' THEN (SELECT datdba FROM pg_database WHERE datname = current_database())
                    ELSE owner.oid END, current_user, 'USAGE')
    ORDER BY revoke NULLS FIRST, 1 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%, whose code would run with the rights of whoever runs this',
                format(CASE WHEN foreign_object.revoke IS NULL THEN '%s belongs to role %s' ELSE '%s lets others create in it: role %s' END,
                       foreign_object.what, foreign_object.rolname)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = coalesce(foreign_object.revoke, 'Run it as that role, or DROP it. ALTER ... OWNER TO is not enough: its constraints, '
                                                         'defaults, indexes, rules and functions stay what that role has made of them.');
    END IF;
END
$$;

CREATE TABLE IF NOT EXISTS walpost.pipeline (
    name              text        PRIMARY KEY,
    slot              text        NOT NULL,
    publication       text        NOT NULL,
    system_identifier numeric     NOT NULL,
    consistent_point  pg_lsn      NOT NULL,
    snapshot          text,
    backfilled        boolean     NOT NULL DEFAULT true,
    prefixes          text[]      NOT NULL DEFAULT '{}',
    created_at        timestamptz NOT NULL DEFAULT now(),
    delivered_lsn     pg_lsn,
    backfill          jsonb
);

-- A writer may wait for a lock that a function of walpost holds, and hold one that the function waits for. The server then ends one of the
-- two, deadlock_timeout after that one began to wait. It must not be the writer, so a function that holds a lock waits less long than that.
CREATE OR REPLACE FUNCTION walpost.lock_wait_ms() RETURNS integer LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT least(500, extract(epoch FROM current_setting('deadlock_timeout')::interval) * 500)::integer
$$;

-- Called before each wait for a lock, so that all waits since `began` together take no longer than that. The setting ends with the
-- caller, which has SET lock_timeout itself.
CREATE OR REPLACE FUNCTION walpost.bound_lock_wait(began timestamptz) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('lock_timeout', greatest(
        1, walpost.lock_wait_ms() - floor(extract(epoch FROM clock_timestamp() - began) * 1000))::integer::text, true);
END
$$;

-- Who has locked some of these relations, in a way that conflicts with `wanted`: "events by session 4711". NULL where nobody has. pg_blocking_pids
-- says that only of who still waits.
CREATE OR REPLACE FUNCTION walpost.locked_by(relations regclass[], wanted text DEFAULT 'AccessExclusiveLock') RETURNS text LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(held.name || ' by ' || held.sessions, ', ' ORDER BY held.place) FILTER (WHERE held.place <= 5)
           || CASE WHEN count(*) > 5 THEN format(' and %s more', count(*) - 5) ELSE '' END
    FROM (SELECT row_number() OVER (ORDER BY array_position(relations, l.relation::regclass)) AS place, l.relation::regclass::text AS name,
                 string_agg(DISTINCT coalesce('session ' || l.pid, 'a prepared transaction'), ', ') AS sessions
          FROM pg_locks l
          WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() AND l.relation = ANY (relations)
                AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND l.mode <> ALL (CASE wanted WHEN 'AccessExclusiveLock' THEN '{}' WHEN 'ShareLock' THEN '{AccessShareLock,RowShareLock,ShareLock}'
                                   WHEN 'ShareUpdateExclusiveLock' THEN '{AccessShareLock,RowShareLock,RowExclusiveLock}' END::text[])
          GROUP BY l.relation) AS held
$$;

-- What a change of these tables may have to lock beside them, and LOCK TABLE cannot: indexes, sequences, TOAST. Of partitions, too.
CREATE OR REPLACE FUNCTION walpost.parts_of(targets regclass[]) RETURNS regclass[] LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE tree AS (
        SELECT t::oid AS relation FROM unnest(targets) AS t
        UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.relation
    ), tables AS (
        SELECT relation FROM tree UNION ALL SELECT c.reltoastrelid FROM tree JOIN pg_class c ON c.oid = tree.relation AND c.reltoastrelid <> 0
    )
    SELECT array_agg(parts.part::regclass ORDER BY parts.part) FROM (
        SELECT i.indexrelid AS part FROM tables t JOIN pg_index i ON i.indrelid = t.relation
        UNION ALL SELECT t.relation FROM tables t WHERE t.relation NOT IN (SELECT relation FROM tree)
        UNION ALL SELECT s.oid FROM tree t JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = t.relation
                  AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
    ) AS parts
$$;

-- For a change that writers must not see half: locks the tables, then runs the commands. Commands wait for more locks: on indexes and
-- sequences, which LOCK TABLE cannot take, on TOAST, functions and rows of the catalog. Anybody can keep some of these locked. So locks and
-- commands are one attempt, and every command that needs such a lock belongs in here: no wait is without a limit while writers wait for
-- this. It gives all locks back and lets writers pass between its attempts. The server gives up its own vacuum only for one who waits longer
-- than deadlock_timeout: for that this waits for each table alone, up to 1.2 s. `targets` are in the order in which writers lock.
CREATE OR REPLACE FUNCTION walpost.change_tables(commands text[], VARIADIC targets regclass[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    began timestamptz;
    target regclass;
    command text;
    wanted text;  -- what is waited for
BEGIN
    FOR try IN 1..8 LOOP
        BEGIN
            began := clock_timestamp();
            command := NULL;
            FOREACH target IN ARRAY targets LOOP
                PERFORM walpost.bound_lock_wait(began);
                EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', target);
            END LOOP;
            -- One by one, since lock_timeout counts for each lock.
            FOR target IN WITH RECURSIVE tree AS (
                              SELECT t::oid AS relation FROM unnest(targets) AS t
                              UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.relation)
                          SELECT c.oid::regclass FROM tree JOIN pg_class c ON c.oid = tree.relation
                          WHERE has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE') LOOP
                PERFORM walpost.bound_lock_wait(began);
                EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', target);
            END LOOP;
            -- A partition of somebody else can be locked through its table only.
            FOREACH target IN ARRAY targets LOOP
                PERFORM walpost.bound_lock_wait(began);
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', target);
            END LOOP;
            IF cardinality(commands) > 0 THEN
                -- No writer has a lock now, so these are the ones that a command will wait for.
                wanted := walpost.locked_by(walpost.parts_of(targets));
            END IF;
            FOREACH command IN ARRAY commands LOOP
                PERFORM walpost.bound_lock_wait(began);
                EXECUTE command;
            END LOOP;
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            IF command IS NULL THEN
                wanted := coalesce(walpost.locked_by(ARRAY[target]), target::text);
            END IF;
            EXIT WHEN try = 8;
        END;
        PERFORM pg_sleep(0.5);
        PERFORM set_config('lock_timeout', '1200ms', true);
        FOR target IN WITH RECURSIVE tree AS (
                          SELECT t::oid AS relation FROM unnest(targets) AS t
                          UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.relation)
                      SELECT c.oid::regclass FROM tree JOIN pg_class c ON c.oid = tree.relation LOOP
            BEGIN
                EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', target);
                RAISE SQLSTATE 'WALP1';  -- gives the lock back
            EXCEPTION
                WHEN SQLSTATE 'WALP1' OR undefined_table OR syntax_error THEN  -- or the table has gone
                WHEN lock_not_available OR deadlock_detected THEN
                    PERFORM pg_sleep(0.5);
                    EXIT;
            END;
        END LOOP;
    END LOOP;
    RAISE EXCEPTION 'walpost: no lock on % within 8 attempts, which take up to 20 s', coalesce(wanted, 'what this changes: ' || left(command, 200))
        USING ERRCODE = 'lock_not_available',
              HINT = 'A transaction that uses it stays open: see sql/runbook/long_transactions.sql, then run this again.';
END
$$;

-- Default privileges may have given others rights on a table that was made just now. Nobody has chosen them for this table, and what is in it
-- decides which events are sent. Reading does no harm. Whoever may use its row type could build on it, so that it cannot be dropped.
CREATE OR REPLACE FUNCTION walpost.revoke_default_rights(made regclass) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    command text;
BEGIN
    FOR command IN
        SELECT format('REVOKE %s ON %s %s FROM %s CASCADE', acl.privilege_type, CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
                      c.oid::regclass, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END)
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) AS acl
        WHERE (c.oid = made OR c.relkind = 'S' AND EXISTS (
                  SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i'  -- an identity's sequence
                  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = made))
              AND acl.privilege_type <> 'SELECT' AND acl.grantee <> c.relowner
    LOOP
        EXECUTE command;
    END LOOP;
    EXECUTE format('REVOKE USAGE ON TYPE %s FROM PUBLIC', made);
END
$$;

-- The same statement to be pasted, where a name in it has blanks in a row or what is not printable ASCII, which may not be shown as it is:
-- as U&"...".
CREATE OR REPLACE FUNCTION walpost.pasteable(statement text) RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(CASE WHEN part[1] COLLATE "C" !~ '^".*([^ -~]|  )' THEN part[1] ELSE 'U&' || (
               SELECT string_agg(CASE WHEN sign COLLATE "C" ~ '[^!-~]' OR sign = chr(92)
                                      THEN chr(92) || CASE WHEN ascii(sign) > 65535 THEN '+' || lpad(to_hex(ascii(sign)), 6, '0') ELSE lpad(to_hex(ascii(sign)), 4, '0') END
                                      ELSE sign END, '' ORDER BY place)
               FROM regexp_split_to_table(part[1], '') WITH ORDINALITY AS signs (sign, place)) END, '' ORDER BY number)
    FROM regexp_matches(statement, '"(?:[^"]|"")*"|[^"]+', 'g') WITH ORDINALITY AS parts (part, number)
$$;

-- Others: who neither has the rights of who asks, nor is outbox_owner; the other roles of R__roles.sql are others but for what it gives them.
CREATE OR REPLACE FUNCTION walpost.other_roles() RETURNS TABLE (role oid, name text, quoted text) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT oid, rolname::text, oid::regrole::text FROM pg_roles
    WHERE rolname IN ('outbox_writer', 'outbox_relay', 'outbox_operator') OR rolname <> 'outbox_owner' AND NOT pg_has_role(
        CASE rolname WHEN 'pg_database_owner' THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) ELSE oid END, current_user, 'USAGE')
    UNION ALL SELECT 0, 'PUBLIC', 'PUBLIC'
$$;

-- The tables that walpost's files make in these schemas, with their partitions, and what else has the name of one.
CREATE OR REPLACE FUNCTION walpost.tables_of(schemas name[]) RETURNS TABLE (oid oid, relkind "char", relowner oid) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE tables AS (
        SELECT c.oid, c.relkind, c.relowner FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = ANY (schemas) AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname = ANY (
            CASE WHEN n.nspname = 'walpost' THEN '{pipeline,schema_version,dead_letters,dead_letter_count}'
                 WHEN n.nspname = 'inbox' THEN '{processed_events,position,one_at_a_time}'
                 WHEN EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = n.oid AND p.proname = 'check_event')
                     THEN '{events,retention_note,idempotency}'
                 ELSE '{}' END::name[])
        UNION SELECT c.oid, c.relkind, c.relowner FROM tables t JOIN pg_inherits i ON i.inhparent = t.oid
              JOIN pg_class c ON c.oid = i.inhrelid AND c.relkind IN ('r', 'p')
    )
    SELECT * FROM tables
$$;

-- Code that runs when somebody uses such a table, where a role without the owner's rights may have written it; and the statement that
-- takes it away. This looks at the owner of each object that the code uses, and of each object that these use in turn.
CREATE OR REPLACE FUNCTION walpost.code_of_others(schemas name[]) RETURNS TABLE (what text, role text, cure text) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE tables AS (
        SELECT * FROM walpost.tables_of(schemas) AS t WHERE t.relkind IN ('r', 'p')
    ), code AS (
        -- What of a table has expressions, or a type, in it; what a parent has given goes with the parent's.
        SELECT t.oid, 'pg_trigger'::regclass::oid AS catalog, g.oid AS object, 0 AS part, format('DROP TRIGGER %I ON %s', g.tgname, t.oid::regclass) AS cure
        FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal AND g.tgparentid = 0
        UNION ALL SELECT t.oid, 'pg_attrdef'::regclass, e.oid, 0, CASE c.attgenerated WHEN '' THEN format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT', t.oid::regclass, c.attname)
                                                                  ELSE format('ALTER TABLE %s DROP COLUMN %I', t.oid::regclass, c.attname) END
                  FROM tables t JOIN pg_attrdef e ON e.adrelid = t.oid
                  JOIN pg_attribute c ON c.attrelid = t.oid AND c.attnum = e.adnum AND (c.attgenerated = '' OR c.attinhcount = 0)
        UNION ALL SELECT t.oid, 'pg_class'::regclass, t.oid, c.attnum, format('ALTER TABLE %s DROP COLUMN %I', t.oid::regclass, c.attname)
                  FROM tables t JOIN pg_attribute c ON c.attrelid = t.oid AND c.attnum > 0 AND NOT c.attisdropped AND c.attinhcount = 0
        UNION ALL SELECT t.oid, 'pg_class'::regclass, t.oid, 0, format('DROP TABLE %s', t.oid::regclass) FROM tables t WHERE t.relkind = 'p'
        UNION ALL SELECT t.oid, 'pg_constraint'::regclass, k.oid, 0, format('ALTER TABLE %s DROP CONSTRAINT %I', t.oid::regclass, k.conname)
                  FROM tables t JOIN pg_constraint k ON k.conrelid = t.oid AND k.coninhcount = 0
        UNION ALL SELECT t.oid, 'pg_class'::regclass, i.indexrelid, 0,
                         coalesce((SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', t.oid::regclass, k.conname) FROM pg_constraint k
                                   WHERE k.conrelid = t.oid AND k.conindid = i.indexrelid), format('DROP INDEX %s', i.indexrelid::regclass))
                  FROM tables t JOIN pg_index i ON i.indrelid = t.oid AND NOT EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = i.indexrelid)
        UNION ALL SELECT t.oid, 'pg_policy'::regclass, p.oid, 0, format('DROP POLICY %I ON %s', p.polname, t.oid::regclass)
                  FROM tables t JOIN pg_policy p ON p.polrelid = t.oid
    ), uses (oid, cure, catalog, object) AS (
        -- A type does not depend on its constraints, nor on its columns: they depend on it.
        SELECT c.oid, c.cure, c.catalog, c.object FROM code c WHERE c.part = 0
        UNION SELECT c.oid, c.cure, d.refclassid, d.refobjid FROM code c
              JOIN pg_depend d ON d.classid = c.catalog AND d.objid = c.object AND d.objsubid = c.part WHERE d.refobjid <> c.oid
        UNION SELECT u.oid, u.cure, n.catalog, n.object FROM uses u CROSS JOIN LATERAL (
                  SELECT d.refclassid, d.refobjid FROM pg_depend d WHERE d.classid = u.catalog AND d.objid = u.object AND u.object <> u.oid
                  UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k WHERE u.catalog = 'pg_type'::regclass AND k.contypid = u.object
                  UNION ALL SELECT 'pg_class'::regclass, y.typrelid FROM pg_type y WHERE u.catalog = 'pg_type'::regclass AND y.oid = u.object AND y.typrelid <> 0
              ) AS n (catalog, object)
              WHERE n.object <> u.oid AND n.catalog IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass, 'pg_class'::regclass,
                                                        'pg_constraint'::regclass)
    ), calls AS (
        -- The catalog lists no dependency on a function of PostgreSQL's own, so this reads the expressions.
        SELECT u.oid, u.cure, call[1]::oid AS function FROM uses u CROSS JOIN LATERAL (
            SELECT adbin::text FROM pg_attrdef WHERE u.catalog = 'pg_attrdef'::regclass AND oid = u.object
            UNION ALL SELECT conbin::text FROM pg_constraint WHERE u.catalog = 'pg_constraint'::regclass AND oid = u.object
            UNION ALL SELECT typdefaultbin::text FROM pg_type WHERE u.catalog = 'pg_type'::regclass AND oid = u.object
            UNION ALL SELECT concat(polqual, polwithcheck) FROM pg_policy WHERE u.catalog = 'pg_policy'::regclass AND oid = u.object
            UNION ALL SELECT concat(indexprs, indpred) FROM pg_index WHERE u.catalog = 'pg_class'::regclass AND indexrelid = u.object
            UNION ALL SELECT partexprs::text FROM pg_partitioned_table WHERE u.catalog = 'pg_class'::regclass AND partrelid = u.object
        ) AS expressions (tree) CROSS JOIN regexp_matches(tree, ':(?:op)?funcid (\d+)', 'g') AS call
    )
    SELECT found.what, min(found.role), walpost.pasteable(found.cure) FROM (
        SELECT t.oid::regclass::text AS what, roles.name AS role, u.cure
        FROM tables t JOIN uses u ON u.oid = t.oid
        LEFT JOIN pg_proc p ON u.catalog = 'pg_proc'::regclass AND p.oid = u.object
        LEFT JOIN pg_operator o ON u.catalog = 'pg_operator'::regclass AND o.oid = u.object
        LEFT JOIN pg_type y ON u.catalog = 'pg_type'::regclass AND y.oid = u.object
        LEFT JOIN pg_class c ON u.catalog = 'pg_class'::regclass AND c.oid = u.object
        JOIN walpost.other_roles() AS roles ON roles.role = coalesce(p.proowner, o.oprowner, y.typowner, c.relowner)
        WHERE NOT pg_has_role(roles.role, t.relowner, 'USAGE')
        -- A function of PostgreSQL's or an extension's may run what its arguments say: SQL, or the checks of a type. Who wrote the
        -- arguments is not known.
        UNION ALL SELECT calls.oid::regclass::text, 'that made it', calls.cure
        FROM calls JOIN pg_proc p ON p.oid = calls.function
        WHERE (p.pronamespace = 'pg_catalog'::regnamespace
               OR EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'))
              AND (p.provolatile = 'v' AND p.pronargs > 0 AND p.proname NOT IN ('nextval', 'random', 'random_normal', 'uuidv7', 'gen_random_bytes', 'gen_salt')
                   OR 'cstring'::regtype = ANY (p.proargtypes) OR p.proname ~ '^((table|schema|database)_to_xml|pg_input_)')
        -- Nobody answers for what a trigger does with a function of PostgreSQL's or walpost's own. So but for those of the files one has
        -- only a function of its own, without arguments, whose owner is judged above.
        UNION ALL SELECT t.oid::regclass::text, 'that made it', format('DROP TRIGGER %I ON %s', g.tgname, t.oid::regclass)
        FROM tables t JOIN pg_class c ON c.oid = t.oid JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal AND g.tgparentid = 0
        JOIN pg_proc p ON p.oid = g.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE (g.tgqual IS NOT NULL OR g.tgnargs > 0 OR n.nspname = 'pg_catalog'
               OR (n.nspname = 'walpost' OR n.nspname = ANY (schemas)) AND p.proname IN ('decide', 'events_stay', 'forget'))
              AND pg_get_triggerdef(g.oid) NOT IN (
                  'CREATE TRIGGER dead_letters_decide BEFORE UPDATE OF decision, of_key, send_to ON walpost.dead_letters FOR EACH ROW EXECUTE FUNCTION walpost.decide()',
                  format('CREATE TRIGGER events_stay BEFORE UPDATE ON %1$s.events FOR EACH ROW WHEN ((old.created_at IS DISTINCT FROM new.created_at)) '
                         'EXECUTE FUNCTION %1$s.events_stay()', c.relnamespace::regnamespace),
                  format('CREATE TRIGGER events_ephemeral AFTER INSERT ON %1$s.events FOR EACH ROW EXECUTE FUNCTION %1$s.forget()', c.relnamespace::regnamespace))
        -- No file of walpost's makes expressions in statistics, a rule, or anything but a table.
        UNION ALL SELECT t.oid::regclass::text, 'that made it', format('DROP STATISTICS %s.%I', s.stxnamespace::regnamespace, s.stxname)
        FROM tables t JOIN pg_statistic_ext s ON s.stxrelid = t.oid AND pg_get_statisticsobjdef(s.oid) ~ ' ON .*[(]'
        UNION ALL SELECT t.oid::regclass::text, 'that made it', format('DROP RULE %I ON %s', w.rulename, t.oid::regclass)
        FROM tables t JOIN pg_rewrite w ON w.ev_class = t.oid
        UNION ALL SELECT v.oid::regclass::text, 'that made it', format('DROP %s %s', CASE v.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW'
                                                                                   ELSE 'FOREIGN TABLE' END, v.oid::regclass)
        FROM walpost.tables_of(schemas) AS v WHERE v.relkind IN ('v', 'm', 'f')
        -- Who owns a parent changes the rows through it; whose child it is has code and rows of its own read with the table.
        UNION ALL SELECT t.oid::regclass::text, roles.name, CASE WHEN child.relispartition THEN format('ALTER TABLE %s DETACH PARTITION %s', i.inhparent::regclass, child.oid::regclass)
                                                            ELSE format('ALTER TABLE %s NO INHERIT %s', child.oid::regclass, i.inhparent::regclass) END
        FROM tables t JOIN pg_inherits i ON t.oid IN (i.inhrelid, i.inhparent) JOIN pg_class child ON child.oid = i.inhrelid JOIN pg_class parent ON parent.oid = i.inhparent
        JOIN walpost.other_roles() AS roles ON roles.role IN (child.relowner, parent.relowner) AND NOT pg_has_role(roles.role, t.relowner, 'USAGE')
        -- What a parent gives is not looked at, and no table of the files has one.
        UNION ALL SELECT t.oid::regclass::text, 'that made it', format('ALTER TABLE %s NO INHERIT %s', t.oid::regclass, i.inhparent::regclass)
        FROM tables t JOIN pg_inherits i ON i.inhrelid = t.oid JOIN pg_class c ON c.oid = t.oid AND NOT c.relispartition
    ) AS found GROUP BY found.what, found.cure ORDER BY 1, 2, 3
$$;

-- What others may do with the tables that walpost's files make in these schemas, beside reading them, and what they have built on them; and
-- how that ends. A right ends by who has given it; what the owner has given comes first, as it may have been handed on.
CREATE OR REPLACE FUNCTION walpost.rights_of_others(schemas name[]) RETURNS TABLE (what text, role text, cure text) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    WITH given (role, relation, kind, of_column) AS (
        VALUES ('outbox_relay', 'pipeline', 'UPDATE', 'delivered_lsn'), ('outbox_relay', 'dead_letters', 'INSERT', NULL),
               ('outbox_relay', 'dead_letters', 'UPDATE', NULL), ('outbox_relay', 'dead_letters', 'DELETE', NULL),
               ('outbox_relay', 'dead_letter_count', 'INSERT', NULL), ('outbox_relay', 'dead_letter_count', 'UPDATE', NULL),
               ('outbox_operator', 'dead_letters', 'UPDATE', 'decision'), ('outbox_operator', 'dead_letters', 'UPDATE', 'of_key'),
               ('outbox_operator', 'dead_letters', 'UPDATE', 'send_to')
    ), tables AS (
        SELECT * FROM walpost.tables_of(schemas) AS t WHERE t.relkind IN ('r', 'p')
    ), relations AS (
        SELECT oid, relkind, relowner FROM tables
        UNION ALL SELECT s.oid, s.relkind, s.relowner FROM tables t JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid
                  AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
    ), rights AS (
        SELECT r.oid, r.relkind, r.relowner, a.privilege_type AS kind, NULL::name AS of_column, a.grantor, a.grantee
        FROM relations r JOIN pg_class c ON c.oid = r.oid CROSS JOIN aclexplode(c.relacl) AS a
        UNION ALL SELECT t.oid, t.relkind, t.relowner, a.privilege_type, c.attname, a.grantor, a.grantee
                  FROM tables t JOIN pg_attribute c ON c.attrelid = t.oid AND NOT c.attisdropped CROSS JOIN aclexplode(c.attacl) AS a
    ), granted AS (
        SELECT r.oid::regclass::text AS what, roles.name AS role,
               CASE r.grantor WHEN r.relowner THEN '' ELSE format('SET ROLE %s; ', r.grantor::regrole) END || format(
                   'REVOKE %s ON %s%s FROM %s CASCADE', string_agg(r.kind || coalesce(' (' || quote_ident(r.of_column) || ')', ''), ', ' ORDER BY r.kind, r.of_column),
                   CASE r.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END, r.oid::regclass, roles.quoted) AS cure,
               r.grantor <> r.relowner AS handed_on
        FROM rights r JOIN walpost.other_roles() AS roles ON roles.role = r.grantee
        WHERE r.kind <> 'SELECT' AND NOT pg_has_role(roles.role, r.relowner, 'USAGE')
              -- To insert events is another thing, but not to say when, and in which order.
              AND NOT (r.kind = 'INSERT' AND r.of_column IS NOT NULL AND r.of_column NOT IN ('seq', 'tx', 'created_at')
                       AND EXISTS (SELECT FROM pg_class c WHERE c.oid = r.oid AND c.relname = 'events'))
              AND NOT EXISTS (SELECT FROM given g WHERE g.role = roles.name AND r.oid = to_regclass('walpost.' || g.relation) AND g.kind = r.kind
                              AND (g.of_column IS NULL OR g.of_column = r.of_column))
        GROUP BY r.oid, r.relkind, r.relowner, roles.name, roles.quoted, r.grantor
        UNION ALL SELECT t.oid::regclass::text, roles.name, format('ALTER TABLE %s DROP CONSTRAINT %I', f.conrelid::regclass, f.conname), false
        FROM tables t JOIN pg_constraint f ON f.confrelid = t.oid AND f.contype = 'f' AND f.conparentid = 0 AND f.conrelid <> f.confrelid
        JOIN pg_class c ON c.oid = f.conrelid JOIN walpost.other_roles() AS roles ON roles.role = c.relowner AND NOT pg_has_role(roles.role, t.relowner, 'USAGE')
        UNION ALL SELECT 'every table', roles.name, format('REVOKE %I FROM %s', g.rolname, roles.quoted), true
        FROM pg_auth_members m JOIN walpost.other_roles() AS roles ON roles.role = m.member
        JOIN pg_roles g ON g.oid = m.roleid AND g.rolname IN ('pg_write_all_data', 'pg_maintain')
    )
    SELECT found.what, found.role, found.cure FROM (
        SELECT c.what, c.role, c.cure, false AS handed_on FROM walpost.code_of_others(schemas) AS c
        UNION ALL SELECT g.what, g.role, walpost.pasteable(g.cure), g.handed_on FROM granted g
    ) AS found ORDER BY found.handed_on, 1, 2, 3
$$;

-- Before anything is read from a table that was there: to plan a query of it can be enough to run the code.
CREATE OR REPLACE FUNCTION walpost.reject_code_of_others(schemas name[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_code record;
BEGIN
    SELECT * INTO found_code FROM walpost.code_of_others(schemas) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% has code of role %, which would run with the rights of whoever uses the table', found_code.what, found_code.role
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = found_code.cure;
    END IF;
END
$$;

SELECT walpost.reject_code_of_others('{walpost}'::name[]);

COMMENT ON TABLE walpost.pipeline IS 'Written by walpost init, read before streaming. Not to be edited.';
COMMENT ON COLUMN walpost.pipeline.delivered_lsn IS
    'Everything before it is in Kafka. It lies here so that it goes back with a database that is set back. Written at each connect.';
COMMENT ON COLUMN walpost.pipeline.backfill IS 'How far walpost init --backfill has come.';

-- Who decided, and when, is not for the one who decides to say. What has no order is closed at once; of a parked key `run` must know.
CREATE OR REPLACE FUNCTION walpost.decide() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF OLD.closed_at IS NOT NULL THEN
        RAISE EXCEPTION 'dead letter % was closed at %', OLD.seq, OLD.closed_at;
    END IF;
    IF NEW.parked AND NEW.send_to IS NOT NULL AND NEW.send_to IS DISTINCT FROM OLD.send_to THEN
        RAISE EXCEPTION 'dead letter % waits with others of its key, and is sent to its own topic', OLD.seq;
    END IF;
    IF OLD.decision IS NOT NULL OR NEW.decision IS NOT NULL THEN
        NEW.decided_by := session_user;
        NEW.decided_at := clock_timestamp();  -- also of a decision that is taken back
    END IF;
    IF NEW.decision = 'discard' AND NOT NEW.parked THEN
        NEW.closed_at := clock_timestamp();
    END IF;
    RETURN NEW;
END
$$;

-- Events that could not be delivered, and later ones of their keys. Open = closed_at is null.
DO $$
BEGIN
    -- CREATE INDEX IF NOT EXISTS would wait for writers each time.
    IF to_regclass('walpost.dead_letters') IS NULL THEN
        CREATE TABLE walpost.dead_letters (
            seq               bigint      GENERATED ALWAYS AS IDENTITY,
            pipeline          text        NOT NULL,
            position          text        NOT NULL,
            event_id          text        NOT NULL,
            behind            text,
            event_type        text        NOT NULL,
            source            text        NOT NULL,
            topic             text        NOT NULL,
            partition         integer,
            event_time_ms     bigint      NOT NULL,
            key               bytea,
            value             bytea,
            header_names      bytea[]     NOT NULL,
            header_values     bytea[]     NOT NULL,
            value_schema      text        NOT NULL,
            reason            text        NOT NULL,
            detail            text        NOT NULL,
            attempts          integer     NOT NULL,
            parked            boolean     NOT NULL,
            truncated_bytes   bigint,
            system_identifier bigint      NOT NULL DEFAULT (pg_control_system()).system_identifier,
            written_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
            decision          text        CHECK (decision IN ('retry', 'discard')),
            of_key            boolean     NOT NULL DEFAULT false,
            send_to           text        CHECK (octet_length(send_to) <= 249),
            decided_by        text,
            decided_at        timestamptz,
            closed_at         timestamptz,
            PRIMARY KEY (seq),
            CHECK (NOT parked OR key IS NOT NULL),
            CHECK (parked OR NOT of_key)
        );
        -- What came with the stream comes again after a crash. What verbs send beside it has no place there.
        CREATE UNIQUE INDEX dead_letters_place ON walpost.dead_letters (pipeline, position, event_id) WHERE position <> '';
        -- Where its event commits: what comes again is looked for at each connect.
        CREATE INDEX dead_letters_commit ON walpost.dead_letters (pipeline, (substr(position, 27, 16) COLLATE "C"), seq) WHERE position <> '';
        CREATE INDEX dead_letters_sent ON walpost.dead_letters (pipeline, (substr(position, 27, 16) COLLATE "C"), (position COLLATE "C"))
            WHERE position <> '' AND closed_at IS NOT NULL AND decision IS DISTINCT FROM 'discard' AND send_to IS NULL;
        CREATE INDEX dead_letters_open ON walpost.dead_letters (pipeline, seq) WHERE closed_at IS NULL;
        CREATE INDEX dead_letters_decided ON walpost.dead_letters (pipeline, decided_at, seq)
            WHERE closed_at IS NULL AND decision IS NOT NULL;
        -- A key may be too large for an index.
        CREATE INDEX dead_letters_key ON walpost.dead_letters (pipeline, sha256(key), seq) WHERE closed_at IS NULL AND parked;
        COMMENT ON TABLE walpost.dead_letters IS
            'Written by walpost run, decided about with walpost dlq. Open rows must not be deleted; closed ones may be once their events cannot come again: docs/dead-letters.md, "The table".';
        CREATE TRIGGER dead_letters_decide BEFORE UPDATE OF decision, of_key, send_to ON walpost.dead_letters
            FOR EACH ROW EXECUTE FUNCTION walpost.decide();
    END IF;
END
$$;

-- How many rows each pipeline ever wrote there. Progress in Kafka has the same number: a server that was set back has fewer.
CREATE TABLE IF NOT EXISTS walpost.dead_letter_count (
    pipeline text   PRIMARY KEY,
    written  bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS walpost.schema_version (
    version    integer     PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM walpost.schema_version WHERE version = 1) THEN
        PERFORM walpost.revoke_default_rights(made)
        FROM unnest(ARRAY['walpost.pipeline', 'walpost.dead_letters', 'walpost.dead_letter_count', 'walpost.schema_version']::regclass[]) AS made;
    END IF;
END
$$;

INSERT INTO walpost.schema_version (version) VALUES (1) ON CONFLICT DO NOTHING;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
