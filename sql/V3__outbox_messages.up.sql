-- walpost, schema version 3: events without a table, for `messages.prefixes`. Needs version 1; calls need PostgreSQL 14.
-- Apply with `walpost init --with-messages`, which also records the prefixes. Safe to apply again.
-- The functions run with the rights of who applies this, who must be able to read walpost.pipeline and to call
-- pg_logical_emit_message. Writers need USAGE on schema outbox and EXECUTE on outbox.emit_message, as R__roles.sql gives them,
-- and no right on walpost.pipeline.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DO $$
DECLARE
    creator text;
BEGIN
    IF to_regnamespace('outbox') IS NULL THEN
        CREATE SCHEMA outbox;
        -- Whom default privileges let create in it, nobody has chosen for this schema.
        FOR creator IN SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
                       FROM pg_namespace CROSS JOIN aclexplode(nspacl) AS acl
                       WHERE nspname = 'outbox' AND acl.privilege_type = 'CREATE' AND acl.grantee <> nspowner LOOP
            EXECUTE format('REVOKE CREATE ON SCHEMA outbox FROM %s', creator);
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

-- The functions in schema walpost are called by those of emit_message, under their search_path.

-- Protobuf's wire format: a number in groups of 7 bits, the lowest first.
CREATE OR REPLACE FUNCTION walpost.wire_number(number bigint) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    bytes bytea := '';
BEGIN
    WHILE number > 127 OR number < 0 LOOP
        bytes := bytes || set_byte(decode('00', 'hex'), 0, (number & 127)::integer | 128);
        number := (number >> 7) & 144115188075855871;  -- no sign is carried in
    END LOOP;
    RETURN bytes || set_byte(decode('00', 'hex'), 0, number::integer);
END
$$;

-- A field of bytes or text; nothing where the value is NULL. Each call costs as much as its expressions, so the sizes that are
-- usual take one.
CREATE OR REPLACE FUNCTION walpost.wire_field(field integer, value bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF value IS NULL THEN
        RETURN '';
    END IF;
    IF field < 16 AND length(value) < 128 THEN
        RETURN set_byte(set_byte(decode('0000', 'hex'), 0, field * 8 + 2), 1, length(value)) || value;
    END IF;
    IF field < 16 AND length(value) < 16384 THEN
        RETURN set_byte(set_byte(set_byte(decode('000000', 'hex'), 0, field * 8 + 2), 1, length(value) & 127 | 128), 2,
                        length(value) >> 7) || value;
    END IF;
    RETURN walpost.wire_number(field * 8 + 2) || walpost.wire_number(length(value)) || value;
END
$$;

CREATE OR REPLACE FUNCTION walpost.wire_field(field integer, value text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN walpost.wire_field(field, convert_to(value, 'UTF8'));
END
$$;

-- A field of a number; nothing where the value is NULL.
CREATE OR REPLACE FUNCTION walpost.wire_field(field integer, value bigint) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF value IS NULL THEN
        RETURN '';
    END IF;
    RETURN walpost.wire_number(field * 8) || walpost.wire_number(value);
END
$$;

-- A headers map, from a flat JSON object; members that are null are left out.
CREATE OR REPLACE FUNCTION walpost.wire_headers(field integer, headers jsonb) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    bytes bytea := '';
    header record;
BEGIN
    IF headers IS NULL OR headers = 'null' THEN
        RETURN bytes;
    END IF;
    IF jsonb_typeof(headers) <> 'object' THEN
        RAISE EXCEPTION 'outbox.emit_message: headers must be a JSON object' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(headers)) > 1000 THEN
        RAISE EXCEPTION 'outbox.emit_message: headers must have at most 1000 members' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR header IN SELECT key, value FROM jsonb_each(headers) LOOP
        IF header.key = '' OR jsonb_typeof(header.value) IN ('object', 'array') THEN
            RAISE EXCEPTION 'outbox.emit_message: header "%" must have a name, and be text, a number or a boolean', header.key
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        -- As outbox.check_event has them, of version 2.
        IF header.key ~* ('^(id|type|content-type|walpost-.*|__value_schema_id|(ce[_-]|cloudevents[:_])(id|source|specversion|type|time|'
                          'datacontenttype|data|data_base64|dataschema|subject|partitionkey|recordedtime|sequence|sequencetype|traceparent|tracestate))$') THEN
            RAISE EXCEPTION 'outbox.emit_message: header "%" is one that walpost writes itself, in whatever case', header.key
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF header.key ~ '[^\u0020-\u007e]|^ | $' THEN
            RAISE EXCEPTION 'outbox.emit_message: a header has a name that is not of printable ASCII, or with a space at its ends'
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF jsonb_typeof(header.value) <> 'null' THEN
            bytes := bytes || walpost.wire_field(field, walpost.wire_field(1, header.key)
                                                     || walpost.wire_field(2, header.value #>> '{}'));
        END IF;
    END LOOP;
    RETURN bytes;
END
$$;

-- What an event may have besides. What could not be delivered in every format is rejected here, where it can still be corrected.
CREATE OR REPLACE FUNCTION walpost.wire_options(
    content_type text, schema_name text, headers jsonb, occurred_at timestamptz, traceparent text, tracestate text, topic text,
    partition integer) RETURNS bytea
LANGUAGE plpgsql STABLE AS $$
DECLARE
    seconds numeric;
    bytes bytea;
BEGIN
    IF topic IN ('.', '..') OR topic !~ '^[A-Za-z0-9._-]+$' OR char_length(topic) > 249 THEN
        RAISE EXCEPTION 'outbox.emit_message: Kafka does not allow topic %', quote_literal(left(topic, 300))
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF starts_with(topic, '__') OR starts_with(topic, 'walpost.') THEN
        RAISE EXCEPTION 'outbox.emit_message: topic % belongs to walpost or to Kafka itself: no event goes there', quote_literal(topic)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF content_type COLLATE "C" ~* '^ *application/cloudevents|[^\u0020-\u007e]' THEN
        RAISE EXCEPTION 'outbox.emit_message: content_type must be of printable ASCII, and not begin with application/cloudevents: what walpost sends says that itself'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF partition < 0 THEN
        RAISE EXCEPTION 'outbox.emit_message: partition % is negative', partition USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF occurred_at < '0001-01-01 00:00:00+00' OR occurred_at >= '10000-01-01 00:00:00+00' THEN
        RAISE EXCEPTION 'outbox.emit_message: occurred_at is no time between the years 1 and 9999'
            USING ERRCODE = 'datetime_field_overflow';
    END IF;
    IF traceparent <> '' AND headers @? 'strict $.keyvalue() ? (@.key like_regex "^traceparent$" flag "i" && @.value != null)'
       OR tracestate <> '' AND headers @? 'strict $.keyvalue() ? (@.key like_regex "^tracestate$" flag "i" && @.value != null)' THEN
        RAISE EXCEPTION 'outbox.emit_message: traceparent and tracestate are given once: as an argument or in headers'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    bytes := walpost.wire_field(6, content_type) || walpost.wire_field(7, schema_name) || walpost.wire_headers(8, headers);
    IF occurred_at IS NOT NULL THEN
        seconds := floor(extract(epoch FROM occurred_at));
        bytes := bytes || walpost.wire_field(9, walpost.wire_field(1, seconds::bigint)
            || walpost.wire_field(2, ((extract(epoch FROM occurred_at) - seconds) * 1000000000)::bigint));
    END IF;
    RETURN bytes || walpost.wire_field(11, traceparent) || walpost.wire_field(12, tracestate) || walpost.wire_field(15, topic)
        || walpost.wire_field(16, partition::bigint);
END
$$;

-- A prefix that walpost reads: the one given, or the only one there is.
CREATE OR REPLACE FUNCTION walpost.message_prefix(wanted text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    recorded text[];
BEGIN
    IF current_setting('server_version_num')::integer < 140000 THEN
        RAISE EXCEPTION 'outbox.emit_message needs PostgreSQL 14 or newer: before, no logical message reaches walpost'
            USING ERRCODE = 'feature_not_supported', HINT = 'Insert into an outbox table instead.';
    END IF;
    recorded := ARRAY(SELECT unnest(p.prefixes) FROM walpost.pipeline p);
    IF wanted = ANY (recorded) THEN
        RETURN wanted;
    END IF;
    IF wanted IS NULL AND recorded <> '{}' AND recorded[1] = ALL (recorded) THEN
        RETURN recorded[1];
    END IF;
    RAISE EXCEPTION 'outbox.emit_message: walpost does not read %',
            CASE WHEN recorded = '{}' THEN 'messages here' WHEN wanted IS NULL THEN 'messages without prefix'
                 ELSE 'messages with prefix ' || quote_literal(wanted) END
        USING ERRCODE = 'object_not_in_prerequisite_state',
              HINT = CASE WHEN wanted IS NULL AND recorded <> '{}' THEN 'Say which: prefix => ...'
                          ELSE 'List it in messages.prefixes, then run: walpost init --with-messages' END;
END
$$;

-- Emits one event in this transaction, a walpost.v1.OutboxMessage, and returns its id.
CREATE OR REPLACE FUNCTION outbox.emit_message(
    type text, aggregate_type text, aggregate_id text, payload bytea,
    content_type text DEFAULT NULL, schema_name text DEFAULT NULL, headers jsonb DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL, traceparent text DEFAULT NULL, tracestate text DEFAULT NULL,
    topic text DEFAULT NULL, partition integer DEFAULT NULL, prefix text DEFAULT NULL, id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    event uuid := coalesce(id, gen_random_uuid());
    read_prefix text := walpost.message_prefix(prefix);
    bytes bytea;
BEGIN
    IF coalesce(type, '') = '' OR coalesce(aggregate_type, '') = '' THEN
        RAISE EXCEPTION 'outbox.emit_message: type and aggregate_type must have a value'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Field 1 has 36 bytes, those of a UUID in text.
    bytes := decode('0a24', 'hex') || convert_to(event::text, 'UTF8') || walpost.wire_field(2, convert_to(type, 'UTF8'))
        || walpost.wire_field(3, convert_to(aggregate_type, 'UTF8')) || walpost.wire_field(4, convert_to(aggregate_id, 'UTF8'));
    IF num_nonnulls(content_type, schema_name, headers, occurred_at, traceparent, tracestate, topic, partition) > 0 THEN
        bytes := bytes || walpost.wire_options(content_type, schema_name, headers, occurred_at, traceparent, tracestate, topic, partition);
    END IF;
    -- Before 16 PostgreSQL writes a message of up to 1 GB and can never read it back, which stops every logical slot of the database.
    IF octet_length(bytes) + coalesce(octet_length(payload), 0) > 64 * 1024 * 1024 THEN
        RAISE EXCEPTION 'outbox.emit_message: an event may have 67108864 bytes, this one has more' USING ERRCODE = 'program_limit_exceeded';
    END IF;
    -- Last, so that a large one is copied once.
    PERFORM pg_logical_emit_message(true, read_prefix, bytes || walpost.wire_field(5, payload));
    RETURN event;
END
$$;

CREATE OR REPLACE FUNCTION outbox.emit_message(
    type text, aggregate_type text, aggregate_id text, payload text,
    content_type text DEFAULT NULL, schema_name text DEFAULT NULL, headers jsonb DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL, traceparent text DEFAULT NULL, tracestate text DEFAULT NULL,
    topic text DEFAULT NULL, partition integer DEFAULT NULL, prefix text DEFAULT NULL, id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN outbox.emit_message(type, aggregate_type, aggregate_id, convert_to(payload, 'UTF8'), content_type, schema_name,
                               headers, occurred_at, traceparent, tracestate, topic, partition, prefix, id);
END
$$;

CREATE OR REPLACE FUNCTION outbox.emit_message(
    type text, aggregate_type text, aggregate_id text, payload jsonb,
    content_type text DEFAULT 'application/json', schema_name text DEFAULT NULL, headers jsonb DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL, traceparent text DEFAULT NULL, tracestate text DEFAULT NULL,
    topic text DEFAULT NULL, partition integer DEFAULT NULL, prefix text DEFAULT NULL, id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN outbox.emit_message(type, aggregate_type, aggregate_id, convert_to(payload::text, 'UTF8'), content_type, schema_name,
                               headers, occurred_at, traceparent, tracestate, topic, partition, prefix, id);
END
$$;

-- To PUBLIC a new function is open. Grant it to roles: this line takes it from PUBLIC each time it is applied.
REVOKE ALL ON FUNCTION
    outbox.emit_message(text, text, text, bytea, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid),
    outbox.emit_message(text, text, text, text, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid),
    outbox.emit_message(text, text, text, jsonb, text, text, jsonb, timestamptz, text, text, text, integer, text, uuid)
    FROM PUBLIC;

INSERT INTO walpost.schema_version (version) VALUES (3) ON CONFLICT DO NOTHING;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
