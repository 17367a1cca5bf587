-- How much WAL is on the disk, and how fast the server writes it, by two looks. It takes 10 seconds, or what -v seconds=N says.
-- Bad: on_disk far above max_wal_size: something keeps it (slots.sql), or archiving fails. a_day says how long a free disk lasts.
-- PostgreSQL 13 to 18, any database, primary or standby; needs pg_monitor: psql -v seconds=10 -f wal.sql
SET search_path = pg_catalog, pg_temp;
\if :{?seconds} \else \set seconds 10 \endif
\set now 'CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END'
SELECT :now AS before, clock_timestamp() AS began \gset
SELECT pg_sleep(:seconds) \g /dev/null
SELECT w.files, pg_size_pretty(w.bytes) AS on_disk, current_setting('max_wal_size') AS max_wal_size,
       current_setting('wal_keep_size') AS wal_keep_size, current_setting('max_slot_wal_keep_size') AS max_slot_wal_keep_size,
       pg_size_pretty(r.rate) || '/s' AS rate, pg_size_pretty(r.rate * 86400) AS a_day
FROM (SELECT count(*) AS files, sum(size) AS bytes FROM pg_ls_waldir()) w,
     (SELECT round(pg_wal_lsn_diff(:now, :'before') / extract(epoch FROM clock_timestamp() - :'began'::timestamptz)::numeric) AS rate) r;
SELECT archived_count, failed_count, last_failed_wal, last_failed_time, last_archived_time FROM pg_stat_archiver WHERE failed_count > 0;
