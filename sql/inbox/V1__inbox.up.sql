-- walpost, inbox version 1: what a consumer has processed, in the consumer's own database. `walpost init` does not apply this;
-- psql -1 -f or any migration tool does, as the role that shall own it. Needs nothing else of walpost. Safe to apply again.
--   SELECT inbox.accept('billing', '<the event's id>');    in the transaction that acts on the event: true the first time
--   SELECT * FROM inbox.maintain(keep => '30 days');       as owner, every hour or so
--   GRANT USAGE ON SCHEMA inbox TO billing_app;            is all the right that a consumer needs

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DO $$
DECLARE
    creator text;
BEGIN
    IF to_regnamespace('inbox') IS NULL THEN
        CREATE SCHEMA inbox;
        -- Whom default privileges let create in it, nobody has chosen for this schema.
        FOR creator IN SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
                       FROM pg_namespace CROSS JOIN aclexplode(nspacl) AS acl
                       WHERE nspname = 'inbox' AND acl.privilege_type = 'CREATE' AND acl.grantee <> nspowner LOOP
            EXECUTE format('REVOKE CREATE ON SCHEMA inbox FROM %s', creator);
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
    WHERE place IN ('inbox') AND owner.rolname <> 'outbox_owner' AND NOT
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

-- A table keeps what somebody has made of it who had a right on it, or was its owner. This file makes nothing of that kind but what is
-- excepted here, and the tables are for nothing else.
DO $$
DECLARE
    found_code record;
BEGIN
    WITH RECURSIVE tables AS (
        SELECT c.oid, c.oid::regclass AS name FROM pg_class c
        WHERE c.relnamespace = to_regnamespace('inbox') AND c.relname IN ('processed_events', 'position', 'one_at_a_time') AND c.relkind IN ('r', 'p')
        UNION SELECT i.inhrelid, i.inhrelid::regclass FROM tables t JOIN pg_inherits i ON i.inhparent = t.oid
    )
    SELECT * INTO found_code FROM (
        SELECT t.name, format('DROP TRIGGER %I ON %s', g.tgname, t.name) AS cure FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal
        UNION ALL SELECT t.name, format('DROP RULE %I ON %s', w.rulename, t.name) FROM tables t JOIN pg_rewrite w ON w.ev_class = t.oid
        UNION ALL SELECT t.name, format('DROP POLICY %I ON %s', p.polname, t.name) FROM tables t JOIN pg_policy p ON p.polrelid = t.oid
        UNION ALL SELECT t.name, format('DROP STATISTICS %s.%I', s.stxnamespace::regnamespace, s.stxname) FROM tables t JOIN pg_statistic_ext s ON s.stxrelid = t.oid
        UNION ALL SELECT t.name, format('ALTER TABLE %s DROP CONSTRAINT %I', t.name, k.conname) FROM tables t JOIN pg_constraint k ON k.conrelid = t.oid
                  WHERE k.contype NOT IN ('p', 'n')
        UNION ALL SELECT t.name, format('DROP INDEX %s', i.indexrelid::regclass) FROM tables t JOIN pg_index i ON i.indrelid = t.oid
                  WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL
        UNION ALL SELECT t.name, format('ALTER TABLE %s DROP COLUMN %I', t.name, c.attname) FROM tables t
                  JOIN pg_attribute c ON c.attrelid = t.oid AND c.attnum > 0 AND NOT c.attisdropped
                  LEFT JOIN pg_attrdef e ON e.adrelid = t.oid AND e.adnum = c.attnum
                  WHERE c.atttypid NOT IN ('text'::regtype, 'date'::regtype, 'timestamptz'::regtype) OR pg_get_expr(e.adbin, t.oid) <> 'now()'
        UNION ALL SELECT t.name, format('ALTER TABLE %s NO INHERIT %s', t.name, i.inhparent::regclass) FROM tables t
                  JOIN pg_inherits i ON i.inhrelid = t.oid JOIN pg_class c ON c.oid = t.oid WHERE NOT c.relispartition
        UNION ALL SELECT t.name, format('DROP TABLE %s', t.name) FROM tables t JOIN pg_partitioned_table k ON k.partrelid = t.oid AND k.partexprs IS NOT NULL
        UNION ALL SELECT c.oid::regclass, format('DROP %s %s', CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'FOREIGN TABLE' END, c.oid::regclass)
                  FROM pg_class c WHERE c.relnamespace = to_regnamespace('inbox') AND c.relkind IN ('v', 'm', 'f')
    ) AS code ORDER BY 1, 2 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% has what the inbox has not made, which may be code that runs with the rights of whoever uses the table', found_code.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = found_code.cure;
    END IF;
END
$$;

-- As walpost.revoke_default_rights, which this database may not have.
CREATE OR REPLACE FUNCTION inbox.revoke_default_rights(made regclass) RETURNS void LANGUAGE plpgsql
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

SELECT pg_catalog.set_config('walpost.inbox_is_new', (to_regclass('inbox.processed_events') IS NULL)::text, false);

-- `day` follows from the id alone, so that every repeat of it meets the first one in the same partition, whose unique index
-- decides, at every isolation level. A partition by the time of acceptance would let two through that meet at midnight.
CREATE TABLE IF NOT EXISTS inbox.processed_events (
    consumer    text        COLLATE "C" NOT NULL,
    event_id    text        COLLATE "C" NOT NULL,
    day         date        NOT NULL,
    accepted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, event_id, day)
) PARTITION BY RANGE (day);
DO $$
BEGIN
    IF to_regclass('inbox.processed_events_age') IS NULL THEN
        CREATE INDEX processed_events_age ON inbox.processed_events USING brin (accepted_at) WITH (autosummarize = on);
    END IF;
END
$$;
COMMENT ON TABLE inbox.processed_events IS 'Written by inbox.accept, emptied by inbox.maintain. Not to be edited.';
-- Ids without a time, and days that have no partition: here old rows are deleted one by one.
CREATE TABLE IF NOT EXISTS inbox.processed_events_untimed PARTITION OF inbox.processed_events
    FOR VALUES FROM (MINVALUE) TO ('1970-01-01');
CREATE TABLE IF NOT EXISTS inbox.processed_events_default PARTITION OF inbox.processed_events DEFAULT;

-- Empty: what one inbox.maintain holds while it runs.
CREATE TABLE IF NOT EXISTS inbox.one_at_a_time ();

-- The day, in UTC, on which a UUID of version 7 was made; -infinity for any other id.
CREATE OR REPLACE FUNCTION inbox.day_of(event_id text) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    -- Every name and operator has its schema in front: with a search_path of its own it would not become a part of what calls it.
    SELECT CASE WHEN event_id OPERATOR(pg_catalog.~) '^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-7[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}$'
        THEN '1970-01-01'::pg_catalog.date OPERATOR(pg_catalog.+)
            (('x' OPERATOR(pg_catalog.||) pg_catalog.substr(event_id, 1, 8) OPERATOR(pg_catalog.||) pg_catalog.substr(event_id, 10, 4))
                ::bit(48)::bigint OPERATOR(pg_catalog./) 86400000)::integer
        ELSE '-infinity'::pg_catalog.date END
$$;

-- Whether this transaction is the first in which this consumer accepts this event. Who comes second while the first is still in
-- its transaction waits for its end. A transaction, or savepoint, that is rolled back has accepted nothing.
CREATE OR REPLACE FUNCTION inbox.accept(consumer text, event_id text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF (octet_length(accept.consumer) BETWEEN 1 AND 255 AND octet_length(accept.event_id) BETWEEN 1 AND 1024) IS NOT TRUE THEN
        RAISE EXCEPTION 'inbox.accept: consumer must have 1 to 255 bytes, event_id 1 to 1024; they have % and %',
            coalesce(octet_length(accept.consumer)::text, 'no value'), coalesce(octet_length(accept.event_id)::text, 'no value')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO inbox.processed_events (consumer, event_id, day)
    VALUES (accept.consumer, accept.event_id, inbox.day_of(accept.event_id)) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

CREATE OR REPLACE FUNCTION inbox.accept(consumer text, event_id uuid) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT inbox.accept(consumer, event_id::text)
$$;

-- How far a consumer has come with each key of each topic: one row for a key instead of one for each event. Positions of two
-- clusters do not compare, so each cluster has a row of its own.
CREATE TABLE IF NOT EXISTS inbox.position (
    consumer          text        COLLATE "C" NOT NULL,
    topic             text        COLLATE "C" NOT NULL,
    key               text        COLLATE "C" NOT NULL,
    system_identifier text        COLLATE "C" NOT NULL,
    position          text        COLLATE "C" NOT NULL,
    accepted_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, key, system_identifier)
) WITH (fillfactor = 80);
COMMENT ON TABLE inbox.position IS 'Written by inbox.accept_position.';
DO $$
BEGIN
    IF current_setting('walpost.inbox_is_new')::boolean THEN
        PERFORM inbox.revoke_default_rights(made) FROM unnest(ARRAY['inbox.processed_events', 'inbox.processed_events_untimed',
            'inbox.processed_events_default', 'inbox.one_at_a_time', 'inbox.position']::regclass[]) AS made;
    END IF;
END
$$;

-- Whether a record is newer than all that this consumer has accepted of its key. walpost_position is the record's header
-- walpost-position, whose text sorts as the events were committed.
CREATE OR REPLACE FUNCTION inbox.accept_position(consumer text, topic text, key text, walpost_position text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF (octet_length(accept_position.consumer) BETWEEN 1 AND 255 AND octet_length(accept_position.topic) BETWEEN 1 AND 249
            AND octet_length(accept_position.key) <= 2000) IS NOT TRUE THEN
        RAISE EXCEPTION 'inbox.accept_position: consumer must have 1 to 255 bytes, topic 1 to 249, key 0 to 2000; they have %, % and %',
            coalesce(octet_length(accept_position.consumer)::text, 'no value'),
            coalesce(octet_length(accept_position.topic)::text, 'no value'),
            coalesce(octet_length(accept_position.key)::text, 'no value')
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'A record without a key has no order: accept it by its id.';
    END IF;
    IF (walpost_position ~ '^[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{16}-[0-9a-f]{8}$') IS NOT TRUE THEN
        RAISE EXCEPTION 'inbox.accept_position: this is no value of the header walpost-position: %',
            coalesce(quote_literal(left(walpost_position, 60)), 'NULL')
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'A record that was sent again on purpose has no such header: accept it by its id.';
    END IF;
    INSERT INTO inbox.position AS known (consumer, topic, key, system_identifier, position)
    VALUES (accept_position.consumer, accept_position.topic, accept_position.key, left(walpost_position, 16), walpost_position)
    ON CONFLICT (consumer, topic, key, system_identifier)
        DO UPDATE SET position = excluded.position, accepted_at = excluded.accepted_at WHERE known.position < excluded.position;
    RETURN FOUND;
END
$$;

-- The partitions that hold one day each.
CREATE OR REPLACE FUNCTION inbox.partitions() RETURNS TABLE (partition regclass, day date) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' AS $$
    SELECT c.oid::regclass, bound[1]::date
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    CROSS JOIN regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''(.+)''[)] TO [(]''(.+)''[)]') AS bound
    WHERE i.inhparent = 'inbox.processed_events'::regclass AND bound IS NOT NULL
$$;

-- Called before each wait for a lock, so that all waits since `began` together take half a second at most, and half of deadlock_timeout:
-- when a consumer and this wait for each other, the server must not end the consumer. The setting ends with the caller, which has SET
-- lock_timeout itself. (As walpost.bound_lock_wait, which this database may not have.)
CREATE OR REPLACE FUNCTION inbox.bound_lock_wait(began timestamptz) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most_ms float := least(500, extract(epoch FROM current_setting('deadlock_timeout')::interval) * 500);
BEGIN
    PERFORM set_config('lock_timeout', greatest(1, most_ms - floor(extract(epoch FROM clock_timestamp() - began) * 1000))::integer::text, true);
END
$$;

-- For a warning: who has locked what it could not lock. Everything it locks it locks in ACCESS EXCLUSIVE mode, so any lock is in the way.
CREATE OR REPLACE FUNCTION inbox.because_locked(relations regclass[]) RETURNS text LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce('; locked: ' || string_agg(held.name || ' by ' || held.sessions, ', ' ORDER BY held.name), '')
    FROM (SELECT l.relation::regclass::text AS name,
                 string_agg(DISTINCT coalesce('session ' || l.pid, 'a prepared transaction'), ', ') AS sessions
          FROM pg_locks l
          WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() AND l.relation = ANY (relations)
                AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          GROUP BY l.relation) AS held
$$;

-- The lock that an accept takes first: until this transaction ends, every accept waits. An accept finds its partition, then waits for that
-- one's lock; where another one was made for its day meanwhile, it would fail. So it must wait before, for the table. Raises
-- lock_not_available also if somebody waits for this transaction already: a consumer who waits may hold the lock.
CREATE OR REPLACE FUNCTION inbox.lock_all(began timestamptz) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    waiter integer;
BEGIN
    IF EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
               WHERE d.datname = current_database() AND l.relation = 'inbox.processed_events'::regclass
               AND l.pid = pg_backend_pid() AND l.mode = 'AccessExclusiveLock' AND l.granted) THEN
        RETURN;
    END IF;
    -- Only the locks of who writes: for others anybody may wait again and again, before he is asked for a right. No consumer needs one_at_a_time.
    SELECT l.pid INTO waiter FROM pg_locks l
    WHERE NOT l.granted AND (l.locktype IN ('transactionid', 'tuple') OR l.mode IN ('RowShareLock', 'RowExclusiveLock'))
          AND l.relation IS DISTINCT FROM 'inbox.one_at_a_time'::regclass AND pg_backend_pid() = ANY (pg_blocking_pids(l.pid)) LIMIT 1;
    IF FOUND THEN
        RAISE lock_not_available USING MESSAGE = format('session %s waits for a lock that this transaction holds', waiter);
    END IF;
    PERFORM inbox.bound_lock_wait(began);
    LOCK TABLE ONLY inbox.processed_events IN ACCESS EXCLUSIVE MODE;
END
$$;

-- Partitions for these days. Ids of a day that the default partition holds already go there, where their repeats will be looked for. All
-- consumers wait from its first lock until this transaction ends, so it goes on for a quarter of a second and one day: first the days
-- from today on, then past ones of which there are ids, then, while the default partition is empty and so nothing is to be looked through,
-- the other past ones.
CREATE OR REPLACE FUNCTION inbox.make_partitions(first date, last date) RETURNS TABLE (action text, what text, detail text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' SET lock_timeout = '500ms' AS $$
DECLARE
    most_ids constant integer := 10000;  -- of one day: to move them takes time, too
    today date := now() AT TIME ZONE 'UTC';
    days date[];
    ids bigint[];
    wanted date;
    name text;
    owner text;
    began timestamptz;
    locked timestamptz;
BEGIN
    -- Read once, and before the lock.
    WITH held AS (SELECT d.day, count(*) AS ids FROM inbox.processed_events_default d GROUP BY d.day)
    SELECT array_agg(times::date ORDER BY times::date < today, held.ids IS NULL, times),
           array_agg(coalesce(held.ids, 0) ORDER BY times::date < today, held.ids IS NULL, times) INTO days, ids
    FROM generate_series(first::timestamp, last::timestamp, '1 day') AS times LEFT JOIN held ON held.day = times::date
    WHERE times::date NOT IN (SELECT p.day FROM inbox.partitions() p)
          AND (times::date >= today OR held.ids > 0 OR NOT EXISTS (SELECT FROM held));
    FOR i IN 1..coalesce(cardinality(days), 0) LOOP
        wanted := days[i];
        began := clock_timestamp();
        name := 'processed_events_p' || to_char(wanted, 'YYYYMMDD');
        IF ids[i] > most_ids THEN
            RETURN QUERY SELECT 'kept'::text, 'inbox.processed_events_default'::text,
                format('%s ids of %s: too many to move while consumers wait', ids[i], wanted);
            CONTINUE;
        ELSIF began > locked + interval '250 ms' THEN
            RETURN QUERY SELECT 'kept'::text, 'inbox.processed_events_default'::text,
                format('%s, with later ones, is left to the next call: all consumers wait for this one', wanted);
            RETURN;
        END IF;
        BEGIN
            PERFORM inbox.lock_all(began);
            PERFORM inbox.bound_lock_wait(began);
            EXECUTE format('CREATE TABLE inbox.%I (LIKE inbox.processed_events INCLUDING DEFAULTS INCLUDING STORAGE)', name);
            PERFORM inbox.revoke_default_rights(format('inbox.%I', name)::regclass);
            owner := (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'inbox.processed_events'::regclass);
            IF owner <> current_user THEN
                EXECUTE format('ALTER TABLE inbox.%I OWNER TO %I', name, owner);
            END IF;
            IF ids[i] > 0 THEN
                EXECUTE format('WITH moved AS (DELETE FROM inbox.processed_events_default WHERE day = %L RETURNING *) '
                               'INSERT INTO inbox.%I SELECT * FROM moved', wanted, name);
            END IF;
            EXECUTE format('ALTER TABLE inbox.processed_events ATTACH PARTITION inbox.%I FOR VALUES FROM (%L) TO (%L)',
                           name, wanted, wanted + 1);
            locked := coalesce(locked, clock_timestamp());
            RETURN QUERY SELECT 'made'::text, name, NULL::text;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            RAISE WARNING 'inbox.maintain: % is left to the next call, with later ones: %', name, SQLERRM ||
                inbox.because_locked(ARRAY['inbox.processed_events', 'inbox.processed_events_default']::regclass[]);
            RETURN;  -- consumers wait while this does, so not once more for the next day
        WHEN OTHERS THEN
            -- Ids of that day came meanwhile, or something of that name is in the way: they stay in the default partition.
            RAISE WARNING 'inbox.maintain: % is left to the next call: %', name, SQLERRM;
        END;
    END LOOP;
END
$$;

-- Whether the partition has an id that was accepted then or later. Who writes events can choose an old day.
CREATE OR REPLACE FUNCTION inbox.accepted_since(partition regclass, since timestamptz) RETURNS boolean LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
-- The index answers at once that there is none, while consumers wait.
SET enable_seqscan = off AS $$
DECLARE
    found boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE accepted_at >= $1)', partition) INTO found USING since;
    RETURN found;
END
$$;

-- Drops what is of days before `first`, and was accepted before `until`, or empties it.
CREATE OR REPLACE FUNCTION inbox.drop_partitions(first date, until timestamptz) RETURNS TABLE (action text, what text, detail text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    old record;
    late boolean;
    targets regclass[] := '{}';
    target regclass;
    began timestamptz;
    locked timestamptz;
    built text;
BEGIN
    -- First without a lock that consumers wait for, and for all days: the first such lock is held to the end.
    FOR old IN SELECT * FROM inbox.partitions() p WHERE p.day < first ORDER BY p.day LOOP
        BEGIN
            PERFORM brin_summarize_new_values(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
            JOIN pg_am a ON a.oid = c.relam WHERE i.indrelid = old.partition AND a.amname = 'brin';
            late := inbox.accepted_since(old.partition, until);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'inbox.maintain: % stays as it is: %', old.partition, SQLERRM;
            CONTINUE;
        END;
        IF late THEN
            RETURN QUERY SELECT 'kept'::text, old.partition::text, 'events of that day were accepted not long ago'::text;
        ELSE
            targets := targets || old.partition;
        END IF;
    END LOOP;
    FOREACH target IN ARRAY targets LOOP
        action := 'dropped';
        what := target::text;
        detail := NULL;
        built := NULL;
        began := clock_timestamp();
        IF began > locked + interval '250 ms' THEN
            action := 'kept';
            detail := 'left to the next call: all consumers wait for this one';
            RETURN NEXT;
            CONTINUE;
        END IF;
        BEGIN
            -- In the order in which an accept takes them.
            PERFORM inbox.lock_all(began);
            PERFORM inbox.bound_lock_wait(began);
            EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', target);
            late := inbox.accepted_since(target, until);
            IF late THEN
                action := 'kept';
                detail := 'events of that day were accepted not long ago';
            ELSE
                BEGIN
                    EXECUTE format('DROP TABLE %s', target);
                EXCEPTION WHEN dependent_objects_still_exist THEN
                    -- Everybody may build on a table, without a right on it. Ids and space go all the same.
                    GET STACKED DIAGNOSTICS built = PG_EXCEPTION_DETAIL;
                    EXECUTE format('TRUNCATE TABLE %s', target);
                    EXECUTE format('ALTER TABLE inbox.processed_events DETACH PARTITION %s', target);
                    action := 'emptied';
                    detail := 'an empty table of this name stays for what was built on it';
                    RAISE WARNING 'inbox.maintain: % is empty and no partition any more, but stays until you drop it, for what was built on it: %',
                        target, built;
                END;
            END IF;
            locked := coalesce(locked, clock_timestamp());
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            RAISE WARNING 'inbox.maintain: no lock in time, so % is left to the next call: %', target, SQLERRM ||
                inbox.because_locked(ARRAY[target, 'inbox.processed_events', 'inbox.processed_events_default']
                                     || ARRAY(SELECT i.indexrelid::regclass FROM pg_index i WHERE i.indrelid = target));
            RETURN;
        WHEN OTHERS THEN
            RAISE WARNING 'inbox.maintain: % stays as it is: %', target, concat_ws(': ', SQLERRM, built);
            CONTINUE;
        END;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Makes partitions for the days that events come from, and forgets what was accepted longer than `keep` ago: whole days, and row by
-- row, at most `rows` of each partition a call, what is in no partition of its day or stands beside an id that was accepted later.
CREATE OR REPLACE FUNCTION inbox.maintain(keep interval, ahead interval DEFAULT '3 days', rows integer DEFAULT 100000)
RETURNS TABLE (action text, what text, detail text) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD'
-- Consumers wait as long as this does.
SET lock_timeout = '500ms' AS $$
DECLARE
    first date := (now() - keep) AT TIME ZONE 'UTC';
    place regclass;
    forgotten bigint;
BEGIN
    IF (keep BETWEEN '0' AND '400 days' AND ahead BETWEEN '0' AND '400 days' AND rows >= 1) IS NOT TRUE THEN
        RAISE EXCEPTION 'inbox.maintain: keep and ahead must be from 0 to 400 days, rows at least 1'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF current_setting('transaction_isolation') NOT LIKE 'read%' THEN
        RAISE EXCEPTION 'inbox.maintain: an older snapshot does not see what was accepted last; run it in READ COMMITTED'
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    -- One at a time. By a lock that only its owner can take: an advisory one anybody could hold for ever.
    BEGIN
        LOCK TABLE inbox.one_at_a_time IN SHARE ROW EXCLUSIVE MODE;
    EXCEPTION WHEN lock_not_available THEN
        RAISE WARNING 'inbox.maintain is running already, or inbox.one_at_a_time is being vacuumed';
        RETURN;
    END;
    -- What takes time comes before what takes strong locks, which are held to the end.
    FOREACH place IN ARRAY ARRAY['inbox.processed_events_untimed', 'inbox.processed_events_default']::regclass[]
            || ARRAY(SELECT p.partition FROM inbox.partitions() p WHERE p.day < first AND inbox.accepted_since(p.partition, now() - keep)) LOOP
        EXECUTE format('DELETE FROM %s WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM %s o WHERE o.accepted_at < now() - $1 LIMIT $2))',
                       place, place) USING keep, rows;
        GET DIAGNOSTICS forgotten = ROW_COUNT;
        IF forgotten > 0 THEN
            RETURN QUERY SELECT 'deleted'::text, place::text, forgotten || ' rows';
        END IF;
    END LOOP;
    RETURN QUERY SELECT * FROM inbox.make_partitions(first, ((now() + ahead) AT TIME ZONE 'UTC')::date);
    RETURN QUERY SELECT * FROM inbox.drop_partitions(first, now() - keep);
END
$$;

-- The first ones.
DO $$
BEGIN
    PERFORM inbox.make_partitions((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + 3);
END
$$;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
