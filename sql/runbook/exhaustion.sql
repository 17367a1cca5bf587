-- For each slot: how long until it may be lost, at the rate at which the server writes WAL now. It takes 10 seconds, or what -v seconds=N
-- says; take a longer time where the load comes in waves. -v disk_free=100GB, what is free on the disk of pg_wal, is for slots without a limit.
-- Bad: until_lost, or until_disk_is_full, shorter than it takes to fix the reader.
-- PostgreSQL 13 to 18, any database of the primary: psql -v seconds=60 -v disk_free=100GB -f exhaustion.sql
SET search_path = pg_catalog, pg_temp;
\if :{?seconds} \else \set seconds 10 \endif
\if :{?disk_free} \else \set disk_free '' \endif
SELECT pg_current_wal_lsn() AS before, clock_timestamp() AS began \gset
SELECT pg_sleep(:seconds) \g /dev/null
SELECT s.slot_name, s.active, s.wal_status, pg_size_pretty(r.rate) || '/s' AS rate, pg_size_pretty(s.safe_wal_size) AS room,
       date_trunc('second', make_interval(secs => s.safe_wal_size / nullif(r.rate, 0)::float8)) AS until_lost,
       CASE WHEN s.safe_wal_size IS NULL AND s.wal_status <> 'lost' THEN
           date_trunc('second', make_interval(secs => pg_size_bytes(nullif(:'disk_free', '')) / nullif(r.rate, 0)::float8))
       END AS until_disk_is_full
FROM pg_replication_slots s,
     (SELECT round(pg_wal_lsn_diff(pg_current_wal_lsn(), :'before') / extract(epoch FROM clock_timestamp() - :'began'::timestamptz)::numeric) AS rate) r
ORDER BY s.safe_wal_size NULLS LAST, s.slot_name;
