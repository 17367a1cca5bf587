-- Takes the inbox away again, with all that it remembers: records that come again are then new.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

-- First, since this may have to be repeated. Consumers wait while this does, and anybody may keep an index locked.
DO $$
BEGIN
    IF to_regprocedure('inbox.bound_lock_wait(timestamptz)') IS NOT NULL THEN
        PERFORM inbox.bound_lock_wait(clock_timestamp());
        DROP TABLE IF EXISTS inbox.processed_events, inbox.position, inbox.one_at_a_time;
        PERFORM set_config('lock_timeout', '0', true);
    END IF;
END
$$;
DROP FUNCTION IF EXISTS
    inbox.accept(text, text), inbox.accept(text, uuid), inbox.accept_position(text, text, text, text),
    inbox.maintain(interval, interval, integer), inbox.drop_partitions(date, timestamptz), inbox.make_partitions(date, date),
    inbox.accepted_since(regclass, timestamptz), inbox.lock_all(timestamptz), inbox.bound_lock_wait(timestamptz), inbox.because_locked(regclass[]), inbox.partitions(), inbox.day_of(text),
    inbox.revoke_default_rights(regclass);
DROP SCHEMA IF EXISTS inbox;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
