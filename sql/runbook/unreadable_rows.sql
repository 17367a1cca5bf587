-- Rows of the last week in outbox.events with text that cannot be sent, because the database's encoding has characters that UTF-8 lacks: a warning for each,
-- with its id. Correct them: UPDATE outbox.events SET ... WHERE id = '...';
-- Bad: any warning. Other columns can be read: SELECT id, created_at FROM outbox.events WHERE id = '...';
-- PostgreSQL 13 to 18, the database of the outbox: psql -f unreadable_rows.sql
SET search_path = pg_catalog, pg_temp;
DO $$
DECLARE
    event record;
BEGIN
    FOR event IN SELECT e.id, e::text AS content FROM outbox.events e WHERE e.created_at > now() - interval '7 days' LOOP
        BEGIN
            PERFORM convert_to(event.content, 'UTF8');
        EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
            RAISE WARNING 'row %: %', event.id, SQLERRM;
        END;
    END LOOP;
END
$$;
