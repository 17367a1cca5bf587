-- Open and prepared transactions, the oldest first. A slot's restart_lsn stays where the oldest one began that was open at its confirmed position,
-- and catalog_xmin keeps dead rows of the catalog: the server keeps WAL, and its catalog grows. One that has only read, or prepared a
-- statement, has neither xid nor xmin, and keeps its locks all the same.
-- Bad: minutes, where your transactions take milliseconds; `idle in transaction`; prepared ones that nobody ends.
--   End them: SELECT pg_terminate_backend(pid); ROLLBACK PREPARED 'gid'; in the database where they are.
-- PostgreSQL 13 to 18, any database of the primary; needs pg_monitor to see what others do: psql -f long_transactions.sql
SET search_path = pg_catalog, pg_temp;
SELECT pid, datname, usename, application_name, state, date_trunc('second', clock_timestamp() - xact_start) AS open_for,
       backend_xid, backend_xmin, left(query, 60) AS query
FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'
ORDER BY xact_start LIMIT 20;
SELECT gid, database, owner, date_trunc('second', clock_timestamp() - prepared) AS open_for, transaction FROM pg_prepared_xacts ORDER BY prepared LIMIT 20;
SELECT slot_name, active, restart_lsn, confirmed_flush_lsn, catalog_xmin, age(catalog_xmin) AS catalog_age
FROM pg_replication_slots WHERE slot_type = 'logical' ORDER BY age(catalog_xmin) DESC NULLS LAST;
