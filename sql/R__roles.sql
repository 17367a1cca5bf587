-- walpost: four roles with the least that each needs. Optional; to be applied after the versions, and again after each new one,
-- by who may create roles and owns the objects (`walpost init --with-roles`, or any migration tool, as a repeatable file).
--   outbox_owner     owns tables and functions, runs outbox.maintain
--   outbox_writer    emits events, and can do nothing else with them
--   outbox_relay     what walpost connects as; give it a password or a certificate
--   outbox_operator  decides about dead letters; it can read what is in them
-- Applications: GRANT outbox_writer TO app.
-- Managed services have no role that may hand out REPLICATION; there, after this file:
--   Amazon RDS, Aurora   GRANT rds_replication TO outbox_relay
--   Google Cloud SQL     ALTER USER outbox_relay WITH REPLICATION
--   Azure                ALTER ROLE outbox_relay WITH REPLICATION
-- Roles of these names that are there already may be somebody else's, who knows their passwords or is a member of them. So this stops,
-- unless who applies it, or a superuser, has granted outbox_owner to itself: this file does that, and so do you to take them as they are.

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

-- Roles belong to the whole cluster, and anybody who may create roles may have made these beforehand.
DO $$
DECLARE
    names constant name[] := '{outbox_owner,outbox_writer,outbox_relay,outbox_operator}';
    trusted constant oid[] := ARRAY(SELECT oid FROM pg_roles WHERE rolsuper OR rolname = current_user);
    there record;
BEGIN
    -- Who is outbox_owner can replace each function; who has the ADMIN OPTION, as who makes a role has from 16 on, gives it to whom he likes.
    SELECT r.rolname AS role, coalesce(member.rolname, m.member::text) AS member, coalesce(grantor.rolname, m.grantor::text) AS grantor
    INTO there
    FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid
    LEFT JOIN pg_roles member ON member.oid = m.member LEFT JOIN pg_roles grantor ON grantor.oid = m.grantor
    WHERE r.rolname = ANY (names) AND (m.admin_option OR r.rolname = 'outbox_owner') AND m.member <> ALL (trusted)
      AND (m.grantor <> ALL (trusted) OR m.admin_option
           AND to_jsonb(m) ->> 'inherit_option' = 'false' AND to_jsonb(m) ->> 'set_option' = 'false')
    ORDER BY 1, 2 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'role % is a member of %, which neither % nor a superuser has given to it', there.member, there.role, current_user
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('REVOKE %I FROM %I%s CASCADE; then grant it yourself, if it is to have it.', there.role, there.member,
                                CASE WHEN current_setting('server_version_num')::integer >= 160000
                                     THEN format(' GRANTED BY %I', there.grantor) ELSE '' END);
    END IF;
    SELECT string_agg(rolname, ', ' ORDER BY rolname) AS roles, bool_or(rolname = 'outbox_owner') AS owner INTO there
    FROM pg_roles WHERE rolname = ANY (names);
    IF there.roles IS NOT NULL AND NOT EXISTS (
            SELECT FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid
            WHERE r.rolname = 'outbox_owner' AND m.member = ANY (trusted) AND m.grantor = ANY (trusted)) THEN
        RAISE EXCEPTION 'there are roles already that this makes: %; whoever made them may know their passwords, or be a member', there.roles
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('DROP ROLE %s, if nothing needs them. To take them as they are: give outbox_relay a new password, look at their '
                                'members, then %sGRANT outbox_owner TO %I.',
                                there.roles, CASE WHEN there.owner THEN '' ELSE 'CREATE ROLE outbox_owner; ' END, current_user);
    END IF;
END
$$;

DO $$
DECLARE
    -- What the versions make, and nothing else changes hands: a schema may be an application's, too.
    functions constant text[] := ARRAY[
        'walpost.lock_wait_ms()', 'walpost.bound_lock_wait(timestamptz)', 'walpost.locked_by(regclass[], text)',
        'walpost.parts_of(regclass[])', 'walpost.change_tables(text[], regclass[])', 'walpost.revoke_default_rights(regclass)', 'walpost.pasteable(text)', 'walpost.other_roles()', 'walpost.tables_of(name[])',
        'walpost.code_of_others(name[])', 'walpost.rights_of_others(name[])', 'walpost.reject_code_of_others(name[])', 'walpost.decide()', 'walpost.wire_number(bigint)', 'walpost.wire_field(integer, bytea)',
        'walpost.wire_field(integer, text)', 'walpost.wire_field(integer, bigint)', 'walpost.wire_headers(integer, jsonb)',
        'walpost.wire_options(text, text, jsonb, timestamptz, text, text, text, integer)', 'walpost.message_prefix(text)',
        'outbox.emit_message(text, text, text, bytea, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid)',
        'outbox.emit_message(text, text, text, text, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid)',
        'outbox.emit_message(text, text, text, jsonb, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid)'];
    functions_of_table constant text[] := ARRAY[
        'outbox.uuid_v7()', 'outbox.check_event(text, text, text, text, text, jsonb, text, text, timestamptz)',
        'outbox.set_payload_max(integer)', 'outbox.forget_keys(interval, integer)',
        'outbox.emit(text, text, text, bytea, text, text, jsonb, timestamptz, text, text, text, uuid)',
        'outbox.emit(text, text, text, jsonb, text, text, jsonb, timestamptz, text, text, text, uuid)',
        'outbox.emit(text, text, text, text, text, text, jsonb, timestamptz, text, text, text, uuid)',
        'outbox.events_stay()', 'outbox.delivered_note()', 'outbox.partitions()', 'outbox.give_way()',
        'outbox.because_locked(regclass[], text)', 'outbox.partition_name(timestamptz)',
        'outbox.give_to_owner(text)', 'outbox.adopt_default(text)', 'outbox.make_partitions(interval, text)', 'outbox.needed_rows()',
        'outbox.needed_in(regclass)', 'outbox.age_of(outbox.retention_note)', 'outbox.kept_because(regclass, outbox.retention_note)',
        'outbox.old_partitions(timestamptz, outbox.retention_note)', 'outbox.drop_partitions(regclass[], timestamptz[])',
        'outbox.delete_rows(timestamptz, outbox.retention_note, integer)', 'outbox.committed()',
        'outbox.maintain(interval, interval, text, integer)', 'outbox.forget()', 'outbox.set_ephemeral(boolean)'];
    -- Not where outbox.events is somebody's own.
    events constant regclass := (SELECT to_regclass('outbox.events') FROM walpost.schema_version WHERE version = 2);
    our_functions oid[] := ARRAY(SELECT to_regprocedure(signature)::oid FROM unnest(functions) AS signature);
    our_tables oid[] := ARRAY['walpost.pipeline'::regclass, 'walpost.schema_version', 'walpost.dead_letters', 'walpost.dead_letter_count'];
    tables regclass[];
    commands text[];
    object record;
    lent text[] := '{}';
BEGIN
    IF events IS NOT NULL THEN
        our_functions := our_functions || ARRAY(SELECT to_regprocedure(signature)::oid FROM unnest(functions_of_table) AS signature);
        our_tables := our_tables || ARRAY[events, 'outbox.retention_note', 'outbox.idempotency']::regclass[]::oid[]
                      || ARRAY(SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = events);
    END IF;
    our_functions := array_remove(our_functions, NULL);

    -- Who may write to these tables decides which events are sent. Who may write to all tables of the cluster is another thing.
    SELECT * INTO object FROM walpost.rights_of_others(ARRAY['walpost', 'outbox']::name[]) AS r WHERE r.what <> 'every table' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% lets role % change what walpost goes by', object.what, object.role
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('%s; what a role needs it gets as a member of the roles that this makes.', object.cure);
    END IF;

    FOR object IN SELECT name FROM unnest(ARRAY['outbox_owner', 'outbox_writer', 'outbox_relay', 'outbox_operator']) AS name
                  WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) LOOP
        EXECUTE format('CREATE ROLE %I NOLOGIN', object.name);
    END LOOP;
    ALTER ROLE outbox_relay LOGIN;
    BEGIN
        ALTER ROLE outbox_relay REPLICATION;
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE WARNING 'outbox_relay needs the right to replicate, and you may not give it: see the head of R__roles.sql';
    END;

    -- Also by a superuser, who needs it for nothing: it shows the next time that these roles are ours.
    IF NOT pg_has_role(current_user, 'outbox_owner', 'USAGE') OR NOT EXISTS (
            SELECT FROM pg_auth_members m WHERE m.roleid = 'outbox_owner'::regrole AND m.member = current_user::regrole
            AND (m.grantor = current_user::regrole OR (SELECT rolsuper FROM pg_roles WHERE oid = m.grantor))) THEN
        EXECUTE format('GRANT outbox_owner TO %I', current_user);
    END IF;

    -- Ownership, so that maintenance needs no superuser: of what is another's, so that running this again holds up nobody.
    -- Schemas first: who owns a table must be allowed there. Who owns a schema may drop what is in it, so one with anything else in it stays.
    FOR object IN
        SELECT n.nspname AS name, EXISTS (
            SELECT FROM pg_depend d WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid AND d.deptype = 'n'
            AND NOT (d.classid = 'pg_proc'::regclass AND d.objid = ANY (our_functions))
            AND NOT (d.classid = 'pg_class'::regclass AND (d.objid = ANY (our_tables) OR EXISTS (
                SELECT FROM pg_depend s WHERE s.classid = 'pg_class'::regclass AND s.objid = d.objid AND s.deptype = 'i'  -- an identity's sequence
                AND s.refclassid = 'pg_class'::regclass AND s.refobjid = ANY (our_tables))))) AS shared
        FROM pg_namespace n
        WHERE n.nspowner <> 'outbox_owner'::regrole
          AND n.oid IN (SELECT relnamespace FROM pg_class WHERE oid = ANY (our_tables)
                        UNION SELECT pronamespace FROM pg_proc WHERE oid = ANY (our_functions))
          AND n.nspname IN ('walpost', 'outbox')
    LOOP
        IF NOT object.shared THEN
            EXECUTE format('ALTER SCHEMA %I OWNER TO outbox_owner', object.name);
            CONTINUE;
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO outbox_owner', object.name);
        IF NOT has_schema_privilege('outbox_owner', object.name, 'CREATE') THEN
            EXECUTE format('GRANT CREATE ON SCHEMA %I TO outbox_owner', object.name);
            lent := lent || object.name::text;
        END IF;
    END LOOP;
    FOR object IN
        SELECT format('ALTER FUNCTION %s OWNER TO outbox_owner', p.oid::regprocedure) AS command FROM pg_proc p
        WHERE p.oid = ANY (our_functions) AND p.proowner <> 'outbox_owner'::regrole
        -- A dump does not bring this along.
        UNION ALL SELECT format('REVOKE USAGE ON TYPE %s FROM PUBLIC', c.oid::regclass) FROM pg_class c JOIN pg_type t ON t.oid = c.reltype
                  WHERE c.oid = ANY (our_tables)
                  AND EXISTS (SELECT FROM aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) AS acl WHERE acl.grantee = 0)
    LOOP
        EXECUTE object.command;
    END LOOP;

    -- Not where the outbox is a table of one's own.
    IF EXISTS (SELECT FROM pg_proc p WHERE p.oid = ANY (our_functions) AND p.pronamespace = to_regnamespace('outbox')) THEN
        GRANT USAGE ON SCHEMA outbox TO outbox_writer, outbox_relay;
    END IF;
    GRANT USAGE ON SCHEMA walpost TO outbox_relay, outbox_operator;
    GRANT SELECT ON walpost.pipeline, walpost.schema_version TO outbox_relay;
    GRANT UPDATE (delivered_lsn) ON walpost.pipeline TO outbox_relay;
    GRANT SELECT, INSERT, UPDATE, DELETE ON walpost.dead_letters TO outbox_relay;
    GRANT SELECT, INSERT, UPDATE ON walpost.dead_letter_count TO outbox_relay;
    -- It decides whether a record is sent, and cannot change what is sent.
    GRANT SELECT, UPDATE (decision, of_key, send_to) ON walpost.dead_letters TO outbox_operator;
    FOR object IN SELECT p.oid::regprocedure::text AS emit FROM pg_proc p
                  WHERE p.oid = ANY (our_functions) AND p.proname IN ('emit', 'emit_message') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO outbox_writer', object.emit);
    END LOOP;
    -- Its owner's rights are those that it emits with, also where everybody else has lost this one (docs/messages.md).
    IF EXISTS (SELECT FROM pg_proc p WHERE p.oid = ANY (our_functions) AND p.proname = 'emit_message') THEN
        FOR object IN SELECT p.oid::regprocedure::text AS emit FROM pg_proc p
                      WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = 'pg_logical_emit_message'
                      AND NOT has_function_privilege('outbox_owner', p.oid, 'EXECUTE') LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO outbox_owner', object.emit);
        END LOOP;
    END IF;
    IF events IS NOT NULL THEN
        -- To send rows again, and to know which ones. Plain INSERTs are possible too, but not of what the table fills in itself.
        GRANT SELECT ON outbox.events, outbox.retention_note TO outbox_relay;
        GRANT INSERT (id, aggregate_type, aggregate_id, event_type, payload, content_type, schema_name, headers, traceparent,
                      tracestate, occurred_at) ON outbox.events TO outbox_writer;
        GRANT EXECUTE ON FUNCTION outbox.uuid_v7(),
            outbox.check_event(text, text, text, text, text, jsonb, text, text, timestamptz) TO outbox_writer;
    END IF;

    -- Tables last: writers wait from here to the end of the transaction, so nothing else is done meanwhile.
    -- In the order in which outbox.emit locks them; what writers do not write comes first.
    tables := ARRAY(
        SELECT c.oid::regclass FROM pg_class c
        WHERE c.oid = ANY (our_tables) AND c.relowner <> 'outbox_owner'::regrole
        ORDER BY CASE WHEN c.oid = to_regclass('outbox.idempotency') THEN 1 WHEN c.oid = events THEN 2
                      WHEN c.relispartition THEN 3 ELSE 0 END, c.oid);
    -- Partitions are made and renamed later, too.
    commands := ARRAY(SELECT format('ALTER TABLE %s OWNER TO outbox_owner', target) FROM unnest(tables) AS target)
                || ARRAY(SELECT format('REVOKE CREATE ON SCHEMA %I FROM outbox_owner', name) FROM unnest(lent) AS name
                         WHERE events IS NULL OR name <> 'outbox');
    IF commands <> '{}' THEN
        PERFORM walpost.change_tables(commands, VARIADIC tables);
    END IF;
END
$$;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
