-- walpost, schema version 5: partitions made ahead, and old rows that leave. Needs version 2.
--   SELECT * FROM outbox.maintain(keep => '7 days');    as owner of the table, every hour or so: pg_cron, a systemd timer, ...
-- What is streamed comes from the WAL, so nothing that is dropped here is ever missing from the stream. What the rows are kept
-- for is sending them again: after a lost slot, or by `walpost replay`. Therefore a row leaves only once every pipeline of
-- walpost.pipeline has delivered what lies before a position that was written after the row's transaction had ended, and while no
-- open dead letter needs it. Safe to apply again.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

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
    WHERE place IN ('walpost', 'outbox') AND owner.rolname <> 'outbox_owner' AND NOT
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

SELECT walpost.reject_code_of_others(ARRAY['walpost', 'outbox']::name[]);

SELECT pg_catalog.set_config('walpost.note_is_new', (to_regclass('outbox.retention_note') IS NULL)::text, false);

-- Positions, each with what was committed before it.
CREATE TABLE IF NOT EXISTS outbox.retention_note (
    noted_at          timestamptz PRIMARY KEY,
    snapshot          pg_snapshot NOT NULL,
    lsn               pg_lsn      NOT NULL,
    -- A dump brings the notes along, and what they say holds only where they were made.
    system_identifier numeric     NOT NULL
);
COMMENT ON TABLE outbox.retention_note IS 'Written and read by outbox.maintain. Not to be edited.';

-- The newest note that every pipeline has passed; nothing where that is not known, with a warning that says why. A slot alone does
-- not show it: whoever may advance it, or make it anew, moves it without notice. So what walpost itself has noted counts as well.
CREATE OR REPLACE FUNCTION outbox.delivered_note() RETURNS SETOF outbox.retention_note LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    passed pg_lsn;
    trouble text;
BEGIN
    SELECT min(least(s.confirmed_flush_lsn, p.delivered_lsn)), string_agg(CASE
               WHEN s.slot_name IS NULL THEN format('slot %I of pipeline %I is missing', p.slot, p.name)
               WHEN p.system_identifier <> c.system_identifier THEN format('pipeline %I was set up on another cluster', p.name)
               WHEN s.confirmed_flush_lsn IS NULL OR s.wal_status = 'lost' THEN format('slot %I is lost', p.slot)
               -- Whatever the slot has confirmed, it is not about these.
               WHEN NOT p.backfilled THEN format('rows from before slot %I of pipeline %I are still to be sent', p.slot, p.name)
               WHEN p.delivered_lsn IS NULL THEN
                   format('pipeline %I has not noted yet how far it has delivered: it does so when it connects next', p.name)
           END, ', ')
    INTO passed, trouble
    FROM walpost.pipeline p CROSS JOIN pg_control_system() c
    LEFT JOIN pg_replication_slots s ON s.slot_name = p.slot AND s.database = current_database();
    IF EXISTS (SELECT FROM walpost.dead_letters d WHERE d.closed_at IS NULL AND d.reason = 'transactions_skipped'
               AND d.system_identifier = (SELECT c.system_identifier FROM pg_control_system() c)) THEN
        trouble := concat_ws(', ', trouble, 'events that `walpost slot advance` or `slot recreate --leave-gap` left out may be in these rows only: `walpost replay --missing`, '
                                            'then `walpost dlq discard --reason transactions_skipped`');
    END IF;
    IF trouble IS NULL AND passed IS NULL THEN
        trouble := 'walpost.pipeline is empty';
    END IF;
    IF trouble IS NOT NULL THEN
        RAISE WARNING 'outbox.maintain: nothing is dropped, because %', trouble
            USING HINT = 'What was not delivered may have to be sent again from these rows. See docs/database.md, "Retention".';
        RETURN;
    END IF;
    RETURN QUERY SELECT n.* FROM outbox.retention_note n
        WHERE n.system_identifier = (SELECT c.system_identifier FROM pg_control_system() c) AND n.lsn <= passed
        ORDER BY n.lsn DESC LIMIT 1;
END
$$;

-- The partitions of outbox.events, but for the default one.
CREATE OR REPLACE FUNCTION outbox.partitions() RETURNS TABLE (partition regclass, starts timestamptz, ends timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
-- Bounds are printed and read again here: some styles and abbreviations are read as another time.
SET datestyle = 'ISO, YMD' SET timezone = 'UTC' AS $$
    SELECT c.oid::regclass, bound[1]::timestamptz, bound[2]::timestamptz
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    CROSS JOIN regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''(.+)''[)] TO [(]''(.+)''[)]') AS bound
    WHERE i.inhparent = 'outbox.events'::regclass AND bound IS NOT NULL
$$;

-- Called before each wait for a lock by a function that may hold locks already. It raises lock_not_available if somebody waits for one of
-- these: a writer who waits may hold the lock that is wanted next. A writer who begins to wait later waits longer than the function does.
CREATE OR REPLACE FUNCTION outbox.give_way() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began timestamptz := clock_timestamp();
    waiter integer;
BEGIN
    -- Only the locks of who writes: for others anybody may wait again and again, before he is asked for a right. No writer needs retention_note.
    SELECT l.pid INTO waiter FROM pg_locks l
    WHERE NOT l.granted AND (l.locktype IN ('transactionid', 'tuple') OR l.mode IN ('RowShareLock', 'RowExclusiveLock'))
          AND l.relation IS DISTINCT FROM 'outbox.retention_note'::regclass AND pg_backend_pid() = ANY (pg_blocking_pids(l.pid)) LIMIT 1;
    IF FOUND THEN
        RAISE lock_not_available USING MESSAGE = format('session %s waits for a lock that this transaction holds', waiter);
    END IF;
    PERFORM walpost.bound_lock_wait(began);
END
$$;

-- For a warning: who has locked what it could not lock.
CREATE OR REPLACE FUNCTION outbox.because_locked(relations regclass[], wanted text DEFAULT 'AccessExclusiveLock') RETURNS text LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce('; locked: ' || walpost.locked_by(relations, wanted), '')
$$;

-- A partition's name says when it begins; it gets a number where something else has that name.
CREATE OR REPLACE FUNCTION outbox.partition_name(starts timestamptz) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT names.name FROM generate_series(1, 100) AS numbers (number)
    CROSS JOIN LATERAL (SELECT 'events_p' || to_char(starts AT TIME ZONE 'UTC', 'YYYYMMDD_HH24MI')
                               || CASE WHEN number > 1 THEN '_' || number ELSE '' END AS name) AS names
    WHERE to_regclass('outbox.' || names.name) IS NULL ORDER BY number LIMIT 1
$$;

-- Whoever calls outbox.maintain: what it makes is the outbox's owner's, who shall be able to drop it, and nobody else writes to it.
CREATE OR REPLACE FUNCTION outbox.give_to_owner(name text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner text := (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'outbox.events'::regclass);
BEGIN
    PERFORM walpost.revoke_default_rights(format('outbox.%I', name)::regclass);
    IF owner <> current_user THEN
        EXECUTE format('ALTER TABLE outbox.%I OWNER TO %I', name, owner);
    END IF;
END
$$;

-- Makes the default partition, with all its rows, the one of their time, and an empty one in its place. No row is moved: the
-- walsender of PostgreSQL 13 and 14 would leave out what is inserted into a table that had rows before it was attached.
CREATE OR REPLACE FUNCTION outbox.adopt_default(every text) RETURNS TABLE (action text, what text, detail text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET lock_timeout = '500ms' AS $$
DECLARE
    name text;
    first timestamptz;
    last timestamptz;
    low timestamptz;
    high timestamptz;
    began timestamptz;
BEGIN
    IF NOT EXISTS (SELECT FROM outbox.events_default) THEN
        RETURN;
    END IF;
    began := clock_timestamp();
    PERFORM outbox.give_way();
    -- As an insert takes them.
    LOCK TABLE ONLY outbox.events IN ACCESS EXCLUSIVE MODE;
    PERFORM walpost.bound_lock_wait(began);
    LOCK TABLE ONLY outbox.events_default IN ACCESS EXCLUSIVE MODE;
    SELECT min(d.created_at), max(d.created_at) INTO first, last FROM outbox.events_default d;
    low := date_trunc(every, first AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    high := (date_trunc(every, last AT TIME ZONE 'UTC') + ('1 ' || every)::interval) AT TIME ZONE 'UTC';
    -- Where the change from days to hours, or back, left no whole one.
    SELECT greatest(low, max(p.ends) FILTER (WHERE p.starts <= low)), least(high, min(p.starts) FILTER (WHERE p.starts > low))
    INTO low, high FROM outbox.partitions() p;
    IF first < low OR last >= high THEN
        RAISE WARNING 'outbox.maintain: the default partition has rows from before and after other partitions, and keeps them'
            USING HINT = 'Somebody sets created_at. See docs/database.md, "Partitions".';
        RETURN;
    END IF;
    name := outbox.partition_name(low);
    ALTER TABLE outbox.events DETACH PARTITION outbox.events_default;
    EXECUTE format('ALTER TABLE outbox.events_default RENAME TO %I', name);
    EXECUTE format('ALTER TABLE outbox.events ATTACH PARTITION outbox.%I FOR VALUES FROM (%L) TO (%L)', name, low, high);
    CREATE TABLE outbox.events_default PARTITION OF outbox.events DEFAULT;
    PERFORM outbox.give_to_owner('events_default'::text);
    RAISE WARNING 'outbox.maintain: rows were in the default partition, because it had not run in time; now they are in %', name;
    RETURN QUERY SELECT 'made'::text, name, format('of the rows in the default partition, up to %s', high);
EXCEPTION WHEN lock_not_available THEN
    RAISE WARNING 'outbox.maintain: no lock in time (% ms at most), so the default partition is left to the next call%', walpost.lock_wait_ms(),
        outbox.because_locked(ARRAY['outbox.events', 'outbox.events_default']::regclass[]);
WHEN OTHERS THEN
    RAISE WARNING 'outbox.maintain: the default partition stays as it is: %', SQLERRM;
END
$$;

-- Partitions for the rows of the default one, for now, and for the time ahead.
CREATE OR REPLACE FUNCTION outbox.make_partitions(ahead interval, every text)
RETURNS TABLE (action text, what text, detail text) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET lock_timeout = '500ms' AS $$
DECLARE
    step interval := ('1 ' || every)::interval;
    wanted record;
    name text;
    most int;  -- NULL = all of them
    all_wait boolean := false;  -- all who insert, for this transaction
    began timestamptz;
    is_present boolean;
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = 'outbox.events'::regclass) <> 'p' THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM outbox.adopt_default(every);
    IF FOUND THEN
        all_wait := true;
        most := 24;  -- the next call makes the others
    END IF;
    FOR wanted IN
        -- In UTC, so that no clock change makes two of one name.
        SELECT greatest(t AT TIME ZONE 'UTC', (SELECT max(p.ends) FROM outbox.partitions() p
                                               WHERE p.starts <= t AT TIME ZONE 'UTC')) AS starts,
               least((t + step) AT TIME ZONE 'UTC', (SELECT min(p.starts) FROM outbox.partitions() p
                                                     WHERE p.starts > t AT TIME ZONE 'UTC')) AS ends
        FROM generate_series(date_trunc(every, now() AT TIME ZONE 'UTC'), (now() + ahead) AT TIME ZONE 'UTC', step) AS times (t)
        ORDER BY 1
    LOOP
        CONTINUE WHEN wanted.starts >= wanted.ends;
        EXIT WHEN most = 0;
        most := most - 1;
        name := outbox.partition_name(wanted.starts);
        began := clock_timestamp();
        -- Rows may come for it before this transaction ends.
        is_present := wanted.starts <= began + interval '1 minute';
        BEGIN
            IF NOT all_wait THEN  -- else it has all these locks
                PERFORM outbox.give_way();
            END IF;
            IF is_present AND NOT all_wait THEN
                -- An insert finds its partition, then waits for that one's lock. The default one, which this locks as it attaches another,
                -- may no longer have the row then, and the insert would fail. So it waits before, for the table.
                LOCK TABLE ONLY outbox.events IN ACCESS EXCLUSIVE MODE;
                PERFORM walpost.bound_lock_wait(began);
            END IF;
            EXECUTE format('CREATE TABLE outbox.%I (LIKE outbox.events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)',
                           name);
            PERFORM outbox.give_to_owner(name);
            EXECUTE format('ALTER TABLE outbox.events ATTACH PARTITION outbox.%I FOR VALUES FROM (%L) TO (%L)',
                           name, wanted.starts, wanted.ends);
            IF is_present AND NOT all_wait THEN
                all_wait := true;
                most := 24;
            END IF;
            RETURN QUERY SELECT 'made'::text, name, NULL::text;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            RAISE WARNING 'outbox.maintain: no lock in time (% ms at most), so % is left to the next call%', walpost.lock_wait_ms(), name,
                CASE WHEN is_present THEN outbox.because_locked(ARRAY['outbox.events', 'outbox.events_default']::regclass[])
                     ELSE ', with later ones' || outbox.because_locked(ARRAY['outbox.events_default']::regclass[])
                          || outbox.because_locked(ARRAY['outbox.events']::regclass[], 'ShareUpdateExclusiveLock') END;
            EXIT WHEN NOT is_present;  -- they need the same locks; those ahead need fewer than a present one
        WHEN OTHERS THEN
            -- Rows of that time are in the default partition, which could not be adopted, or it is in somebody's way.
            RAISE WARNING 'outbox.maintain: % is left to the next call: %', name, SQLERRM;
        END;
    END LOOP;
END
$$;

-- The rows that an open dead letter needs: it has no record, so `walpost dlq retry` makes it from the row, which may be corrected until then.
CREATE OR REPLACE FUNCTION outbox.needed_rows() RETURNS uuid[] LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(d.event_id::uuid), '{}') FROM walpost.dead_letters d
    WHERE d.closed_at IS NULL AND d.truncated_bytes IS NOT NULL AND d.source = 'outbox.events'
      AND d.event_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
$$;

CREATE OR REPLACE FUNCTION outbox.needed_in(partition regclass) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    needed uuid;
BEGIN
    EXECUTE format('SELECT e.id FROM unnest($1) AS n (id) JOIN %s e ON e.id = n.id LIMIT 1', partition)
        INTO needed USING outbox.needed_rows();
    RETURN 'an open dead letter needs its row: event ' || needed;
END
$$;

-- A row is settled by a note when the transaction that wrote it had ended by then. Its tx says which that was, if xmin is the same: what
-- a dump or a subscription brings along has the tx it had elsewhere. Then only xmin is of this cluster. It may be a subtransaction, which no
-- snapshot lists, so it must be older than all that the note knew to be running. This is the age of the oldest of those; more than any,
-- where age() cannot compare it.
CREATE OR REPLACE FUNCTION outbox.age_of(note outbox.retention_note) RETURNS integer LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN pg_snapshot_xmax(pg_current_snapshot())::text::bigint - oldest::text::bigint < 2000000000 THEN age(oldest::xid)
           ELSE 2147483647 END
    FROM pg_snapshot_xmin(note.snapshot) AS oldest
$$;

-- Why a partition is not to be dropped; NULL where nothing is in the way.
CREATE OR REPLACE FUNCTION outbox.kept_because(partition regclass, note outbox.retention_note) RETURNS text LANGUAGE plpgsql
-- By its index: what has no statistics yet would be read as a whole.
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    kept text;
    is_late boolean;
BEGIN
    -- A transaction that began before the partition ended may have committed after the note.
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE tx::text::bigint >= $1 AND NOT pg_visible_in_snapshot(tx, $2) AND age(xmin) <= $3)',
                   partition)
        INTO is_late USING pg_snapshot_xmin(note.snapshot)::text::bigint, note.snapshot, outbox.age_of(note);
    IF is_late THEN
        RETURN 'not delivered yet: a long transaction has added to it';
    END IF;
    kept := outbox.needed_in(partition);
    IF kept IS NOT NULL THEN
        RETURN kept;
    END IF;
    -- This reads all rows, so it comes last.
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE xmin <> tx::xid AND age(xmin) <= $1)', partition)
        INTO is_late USING outbox.age_of(note);
    RETURN CASE WHEN is_late THEN 'not known to be delivered yet: it has rows that were written or changed after the time of their tx' END;
END
$$;

-- What ended before `until`, and why it is kept. Where that is NULL nobody can write to the partition until this transaction ends, so
-- it stays so; to one that is kept everybody can again. Nobody else waits here, however long it takes: those who insert now do so
-- elsewhere. What is kept takes none of the time for which the others are locked: those behind it would never have their turn.
CREATE OR REPLACE FUNCTION outbox.old_partitions(until timestamptz, note outbox.retention_note)
RETURNS TABLE (partition regclass, ends timestamptz, kept text) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    locked timestamptz;  -- since then a partition that is not kept is
BEGIN
    FOR partition, ends IN SELECT p.partition, p.ends FROM outbox.partitions() p WHERE p.ends <= until ORDER BY p.ends LOOP
        IF ends > note.noted_at THEN
            kept := 'not delivered yet, as far as is known';
            RETURN NEXT;
            CONTINUE;
        ELSIF clock_timestamp() > locked + interval '1 second' THEN
            kept := 'left to the next call';
            RETURN NEXT;
            CONTINUE;
        END IF;
        BEGIN
            -- Without the lock, so that the question below is answered at once.
            PERFORM outbox.give_way();
            PERFORM brin_summarize_new_values(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
            JOIN pg_am a ON a.oid = c.relam WHERE i.indrelid = partition AND a.amname = 'brin';
            PERFORM outbox.give_way();
            EXECUTE format('LOCK TABLE ONLY %s IN SHARE MODE', partition);
            kept := outbox.kept_because(partition, note);
            IF kept IS NOT NULL THEN
                RAISE SQLSTATE 'WALP1';  -- gives the lock back
            END IF;
            locked := coalesce(locked, clock_timestamp());
            RETURN NEXT;
        EXCEPTION WHEN SQLSTATE 'WALP1' THEN
            RETURN NEXT;
        WHEN lock_not_available OR deadlock_detected THEN
            RAISE WARNING 'outbox.maintain: no lock in time (% ms at most), so % is left to the next call%', walpost.lock_wait_ms(), partition,
                outbox.because_locked(ARRAY[partition], 'ShareLock');
        WHEN OTHERS THEN
            RAISE WARNING 'outbox.maintain: % stays as it is: %', partition, SQLERRM;
        END;
    END LOOP;
END
$$;

-- Drops what old_partitions has found to be old enough, or empties it. All writers wait from its first lock until this transaction ends, so nothing is
-- looked for here: half a second at most for the locks, then a quarter of a second and one partition.
CREATE OR REPLACE FUNCTION outbox.drop_partitions(targets regclass[], ends timestamptz[])
RETURNS TABLE (action text, what text, detail text) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    began timestamptz;
    locked timestamptz;
    built text;
BEGIN
    IF cardinality(targets) = 0 THEN
        RETURN;
    END IF;
    began := clock_timestamp();
    BEGIN
        PERFORM outbox.give_way();
        -- In the order in which an insert takes them.
        LOCK TABLE ONLY outbox.events IN ACCESS EXCLUSIVE MODE;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        RAISE WARNING 'outbox.maintain: no lock in time (% ms at most), so % partitions are left to the next call%',
            walpost.lock_wait_ms(), cardinality(targets), outbox.because_locked(ARRAY['outbox.events']::regclass[]);
        RETURN;
    END;
    locked := clock_timestamp();
    -- A pipeline that came since has all rows still to send, and held the lock that was waited for until it was recorded.
    IF NOT EXISTS (SELECT FROM outbox.delivered_note()) THEN
        RETURN;
    END IF;
    FOR i IN 1..cardinality(targets) LOOP
        action := 'kept';
        what := targets[i]::text;
        built := NULL;
        detail := 'left to the next call: all writers wait for this one';
        IF clock_timestamp() > locked + interval '250 ms' THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        BEGIN
            PERFORM walpost.bound_lock_wait(began);
            EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', targets[i]);
            -- A verb that was reading it may have written a dead letter.
            detail := outbox.needed_in(targets[i]);
            IF detail IS NULL THEN
                action := 'dropped';
                detail := format('it ended at %s', ends[i]);
                BEGIN
                    EXECUTE format('DROP TABLE %s', targets[i]);
                EXCEPTION WHEN dependent_objects_still_exist THEN
                    -- Everybody may build on a table, without a right on it. Rows and space go all the same; first the rows, since a
                    -- publication of all tables could send the TRUNCATE of a table that is no partition.
                    GET STACKED DIAGNOSTICS built = PG_EXCEPTION_DETAIL;
                    EXECUTE format('TRUNCATE TABLE %s', targets[i]);
                    EXECUTE format('ALTER TABLE outbox.events DETACH PARTITION %s', targets[i]);
                    action := 'emptied';
                    detail := format('it ended at %s; an empty table of this name stays for what was built on it', ends[i]);
                    RAISE WARNING 'outbox.maintain: % is empty and no partition any more, but stays until you drop it, for what was built on it: %',
                        targets[i], built;
                END;
            END IF;
            RETURN NEXT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            RAISE WARNING 'outbox.maintain: no lock in time (% ms at most), so % is left to the next call%', walpost.lock_wait_ms(), targets[i],
                outbox.because_locked(ARRAY[targets[i], 'outbox.events_default'] || walpost.parts_of(ARRAY[targets[i]]));
        WHEN OTHERS THEN
            RAISE WARNING 'outbox.maintain: % stays as it is: %', targets[i], concat_ws(': ', SQLERRM, built);
        END;
    END LOOP;
END
$$;

-- Of a plain table: at most `rows` old ones.
CREATE OR REPLACE FUNCTION outbox.delete_rows(until timestamptz, note outbox.retention_note, rows integer)
RETURNS TABLE (action text, what text, detail text) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    deleted bigint;
    needed uuid[] := outbox.needed_rows();
    oldest_age integer := outbox.age_of(note);
BEGIN
    -- A pipeline that came since has all rows still to send.
    IF NOT EXISTS (SELECT FROM outbox.delivered_note()) THEN
        RETURN;
    END IF;
    DELETE FROM outbox.events WHERE ctid = ANY (ARRAY(
        SELECT e.ctid FROM outbox.events e
        WHERE e.created_at < until AND (e.xmin = e.tx::xid AND pg_visible_in_snapshot(e.tx, note.snapshot) OR age(e.xmin) > oldest_age)
          AND e.id NOT IN (SELECT unnest(needed))
        LIMIT rows FOR UPDATE SKIP LOCKED));  -- one that somebody holds is left to a later call
    GET DIAGNOSTICS deleted = ROW_COUNT;
    IF deleted > 0 THEN
        RETURN QUERY SELECT 'deleted'::text, 'outbox.events'::text, deleted || ' rows';
    END IF;
    RETURN QUERY SELECT 'kept'::text, 'outbox.events'::text, 'open dead letters need their rows: ' || count(*)
        FROM outbox.events e WHERE e.id = ANY (needed) AND e.created_at < until HAVING count(*) > 0;
END
$$;

-- What is committed. A snapshot never lists its own transaction, which later ones may have overtaken: it looks committed then, and what
-- it inserts would look delivered.
CREATE OR REPLACE FUNCTION outbox.committed() RETURNS pg_snapshot LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s:%s:%s', least(pg_snapshot_xmin(s.now), own.xid), pg_snapshot_xmax(s.now),
                  (SELECT string_agg(open.xid::text, ',' ORDER BY open.xid)
                   FROM (SELECT pg_snapshot_xip(s.now) UNION SELECT own.xid WHERE own.xid < pg_snapshot_xmax(s.now)) AS open (xid)))::pg_snapshot
    FROM (SELECT pg_current_xact_id()) AS own (xid) CROSS JOIN (SELECT pg_current_snapshot()) AS s (now)
$$;

-- Everything above, once. What it did comes back, what it could not do is a WARNING as well.
CREATE OR REPLACE FUNCTION outbox.maintain(
    ahead interval DEFAULT '3 days', keep interval DEFAULT '7 days', every text DEFAULT 'day', rows integer DEFAULT 100000)
RETURNS TABLE (action text, what text, detail text) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' SET timezone = 'UTC'
-- A row that a policy hides is an error: it must not be taken for none.
SET row_security = off
-- Writers wait as long as this does.
SET lock_timeout = '500ms' AS $$
DECLARE
    partitioned boolean := (SELECT relkind = 'p' FROM pg_class WHERE oid = 'outbox.events'::regclass);
    cluster numeric := (SELECT system_identifier FROM pg_control_system());
    note outbox.retention_note;
    old record;
    targets regclass[] := '{}';
    ends timestamptz[] := '{}';
BEGIN
    IF every NOT IN ('day', 'hour') OR ahead < '0' OR keep < '0' OR rows < 1 OR ahead IS NULL OR keep IS NULL OR every IS NULL THEN
        RAISE EXCEPTION 'outbox.maintain: every is day or hour, ahead and keep are not negative, rows is at least 1'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF current_setting('transaction_isolation') NOT LIKE 'read%' THEN
        RAISE EXCEPTION 'outbox.maintain: an older snapshot does not see what was inserted last; run it in READ COMMITTED'
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    -- The commit of the caller keeps the locks: it must not wait for a standby. What it did is done again when it is lost.
    IF current_setting('synchronous_commit') NOT IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'local', true);
    END IF;
    -- One at a time, and until the transaction ends: a pipeline that comes to need rows takes it as well, and so waits for what was
    -- asked before it came. By a lock that only its owner can take: an advisory one anybody could hold for ever.
    BEGIN
        LOCK TABLE outbox.retention_note IN SHARE ROW EXCLUSIVE MODE;
    EXCEPTION WHEN lock_not_available THEN
        RAISE WARNING 'outbox.maintain is running already, walpost is just making a slot whose rows it must not drop, or outbox.retention_note is being vacuumed';
        RETURN;
    END;
    SELECT * INTO note FROM outbox.delivered_note();
    IF note.lsn IS NOT NULL AND partitioned THEN
        -- What takes long comes before the first lock that all writers wait for: that is held until the transaction ends.
        FOR old IN SELECT * FROM outbox.old_partitions(now() - keep, note) LOOP
            IF old.kept IS NULL THEN
                targets := targets || old.partition;
                ends := ends || old.ends;
            ELSE
                RETURN QUERY SELECT 'kept'::text, old.partition::text, old.kept;
            END IF;
        END LOOP;
    END IF;
    RETURN QUERY SELECT * FROM outbox.make_partitions(ahead, every);
    IF note.lsn IS NOT NULL THEN
        DELETE FROM outbox.retention_note n WHERE n.lsn < note.lsn OR n.system_identifier <> cluster;
        IF partitioned THEN
            RETURN QUERY SELECT * FROM outbox.drop_partitions(targets, ends);
        ELSE
            RETURN QUERY SELECT * FROM outbox.delete_rows(now() - keep, note, rows);
        END IF;
    END IF;
    -- A statement's snapshot is older than what it does: all that the snapshot sees lies before the position.
    INSERT INTO outbox.retention_note (noted_at, snapshot, lsn, system_identifier)
    VALUES (now(), outbox.committed(), pg_current_wal_insert_lsn(), cluster) ON CONFLICT DO NOTHING;
END
$$;

-- For who never sends again: rows leave in the transaction that made them, and the table stays empty. They are streamed all the
-- same. SELECT outbox.set_ephemeral(true), or false to keep rows from then on.
CREATE OR REPLACE FUNCTION outbox.forget() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- By a trigger on another table anybody could delete events.
    IF TG_RELID <> 'outbox.events'::regclass
       AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = TG_RELID AND i.inhparent = 'outbox.events'::regclass) THEN
        RAISE EXCEPTION 'outbox.forget is for outbox.events, and not for %.%', quote_ident(TG_TABLE_SCHEMA), quote_ident(TG_TABLE_NAME)
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    DELETE FROM outbox.events WHERE id = NEW.id AND created_at = NEW.created_at;
    RETURN NULL;
END
$$;

REVOKE ALL ON FUNCTION outbox.forget() FROM PUBLIC;

CREATE OR REPLACE FUNCTION outbox.set_ephemeral(ephemeral boolean) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF ephemeral IS NULL
       OR ephemeral = EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'outbox.events'::regclass AND tgname = 'events_ephemeral') THEN
        RETURN;
    END IF;
    PERFORM walpost.change_tables(ARRAY['DROP TRIGGER IF EXISTS events_ephemeral ON outbox.events']
        || CASE WHEN ephemeral THEN ARRAY['CREATE TRIGGER events_ephemeral AFTER INSERT ON outbox.events FOR EACH ROW '
                                          'EXECUTE FUNCTION outbox.forget()'] END,
        'outbox.events');
END
$$;

DO $$
BEGIN
    IF current_setting('walpost.note_is_new')::boolean THEN
        PERFORM walpost.revoke_default_rights('outbox.retention_note'::regclass);
    END IF;
END
$$;

INSERT INTO walpost.schema_version (version) VALUES (5) ON CONFLICT DO NOTHING;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
