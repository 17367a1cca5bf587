-- walpost, schema version 4: outbox.events in partitions by created_at, so that old rows leave without a DELETE. Needs version 2.
-- Only a table that is empty, in no publication yet, and without policies, triggers, or rights but the default ones is made anew, since these
-- would not come along. Any other stays as it is, and outbox.maintain (version 5) deletes from it in chunks. Leave this file out for a plain
-- table. Safe to apply again.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere; and rows that a policy of row-level
-- security hides are an error, not no rows. The last lines take this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
SELECT pg_catalog.set_config('walpost.row_security', pg_catalog.current_setting('row_security'), false);
SELECT pg_catalog.set_config('row_security', 'off', false);

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

-- Makes the table anew, or says that it stays: called once without a lock, so that writers wait for nothing where nothing is to be done,
-- then with it, since a row may have come. `wanted_rights` are those that the table gets again.
CREATE OR REPLACE FUNCTION outbox.make_anew(wanted_rights aclitem[], locked boolean) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = 'outbox.events'::regclass) = 'p' THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM pg_class c WHERE c.oid = 'outbox.events'::regclass
               AND (c.relacl IS DISTINCT FROM wanted_rights OR c.relrowsecurity
                    OR EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid)
                    OR EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attacl IS NOT NULL)
                    OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal))) THEN
        RAISE NOTICE 'outbox.events stays one plain table: rights, policies or triggers of it would be lost';
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM outbox.events)
       OR EXISTS (SELECT FROM pg_publication_tables
                  WHERE schemaname = 'outbox' AND tablename = 'events') THEN
        RAISE NOTICE 'outbox.events stays one plain table: it has rows, or is published already';
        RETURN false;
    END IF;
    IF NOT locked THEN
        RETURN true;
    END IF;
    ALTER TABLE outbox.events RENAME TO events_plain;
    CREATE TABLE outbox.events (LIKE outbox.events_plain INCLUDING ALL EXCLUDING INDEXES) PARTITION BY RANGE (created_at);
    DROP TABLE outbox.events_plain;
    -- A unique index of a partitioned table must hold the partition's key.
    ALTER TABLE outbox.events ADD CONSTRAINT events_pkey PRIMARY KEY (id, created_at);
    CREATE INDEX events_order ON outbox.events USING brin (seq, (tx::text::bigint)) WITH (autosummarize = on);
    COMMENT ON TABLE outbox.events IS
        'Events to be published by walpost; insert in the transaction that makes them true. created_at is not to be set.';
    -- No insert fails because nobody made a partition: what lands here outbox.maintain sees to.
    CREATE TABLE outbox.events_default PARTITION OF outbox.events DEFAULT;
    PERFORM walpost.revoke_default_rights('outbox.events'::regclass);
    PERFORM walpost.revoke_default_rights('outbox.events_default'::regclass);
    RETURN true;
END
$$;

DO $$
DECLARE
    default_rights aclitem[];
BEGIN
    IF current_setting('transaction_isolation') NOT LIKE 'read%' THEN
        RAISE EXCEPTION 'an older snapshot does not see what was inserted last: apply this in READ COMMITTED'
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    IF (SELECT relkind FROM pg_class WHERE oid = 'outbox.events'::regclass) = 'p' THEN
        RETURN;
    END IF;
    CREATE TABLE outbox.events_rights ();
    PERFORM walpost.revoke_default_rights('outbox.events_rights'::regclass);
    default_rights := (SELECT relacl FROM pg_class WHERE oid = 'outbox.events_rights'::regclass);
    DROP TABLE outbox.events_rights;
    IF outbox.make_anew(default_rights, locked => false) THEN
        PERFORM walpost.change_tables(ARRAY[format('SELECT outbox.make_anew(%L, locked => true)', default_rights)], 'outbox.events');
    END IF;
END
$$;

DROP FUNCTION outbox.make_anew(aclitem[], boolean);

-- An UPDATE that moves a row to another partition is an INSERT to the stream: the event would be published once more, as a new one.
CREATE OR REPLACE FUNCTION outbox.events_stay() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'created_at of an event does not change: the row would move to another partition and be published again'
        USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = 'events', CONSTRAINT = 'events_stay';
END
$$;

DO $$
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = 'outbox.events'::regclass) = 'p'
       AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'outbox.events'::regclass AND tgname = 'events_stay') THEN
        PERFORM walpost.change_tables(ARRAY[
            'CREATE TRIGGER events_stay BEFORE UPDATE ON outbox.events FOR EACH ROW '
            'WHEN (OLD.created_at IS DISTINCT FROM NEW.created_at) EXECUTE FUNCTION outbox.events_stay()'], 'outbox.events');
    END IF;
END
$$;

INSERT INTO walpost.schema_version (version) VALUES (4) ON CONFLICT DO NOTHING;

SELECT pg_catalog.set_config('row_security', pg_catalog.current_setting('walpost.row_security'), false);
SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
