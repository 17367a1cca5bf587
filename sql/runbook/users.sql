-- Who uses the slots of the server, and which publications and tables there are in this database.
-- Bad: a slot that nobody reads and nobody knows. A pipeline without a slot, a publication that holds more than outbox tables or publishes
--   more than inserts, two pipelines that read the same table, each of which sends its events.
-- PostgreSQL 13 to 18, the database of the outbox: psql -f users.sql
SET search_path = pg_catalog, pg_temp;
SELECT s.slot_name, s.slot_type, s.plugin, s.database, s.active_pid AS pid, a.application_name, a.usename, a.client_addr,
       date_trunc('second', clock_timestamp() - a.backend_start) AS connected
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid ORDER BY s.slot_name;
SELECT p.pubname AS publication, pg_get_userbyid(p.pubowner) AS owner, p.puballtables AS all_tables, p.pubviaroot AS via_root,
       concat_ws(', ', CASE WHEN p.pubinsert THEN 'insert' END, CASE WHEN p.pubupdate THEN 'update' END,
                 CASE WHEN p.pubdelete THEN 'delete' END, CASE WHEN p.pubtruncate THEN 'truncate' END) AS publishes,
       (SELECT string_agg(t.schemaname || '.' || t.tablename, ', ' ORDER BY t.schemaname, t.tablename) FROM pg_publication_tables t WHERE t.pubname = p.pubname) AS tables
FROM pg_publication p ORDER BY p.pubname;
SELECT to_regclass('walpost.pipeline') IS NOT NULL AS recorded \gset
\if :recorded
SELECT p.name AS pipeline, p.slot, s.slot_name IS NOT NULL AS slot_is_there, p.publication,
       EXISTS (SELECT FROM pg_publication b WHERE b.pubname = p.publication) AS publication_is_there, p.backfilled, p.created_at
FROM walpost.pipeline p LEFT JOIN pg_replication_slots s ON s.slot_name = p.slot ORDER BY p.name;
\endif
