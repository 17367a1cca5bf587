-- Every slot of the server: who reads it, what it makes the server keep, and how much more until it is lost.
-- Bad: active is f for a slot that somebody should read. wal_status unreserved (lost at one of the next checkpoints), lost.
--   kept grows and unconfirmed does not: an old transaction holds it (long_transactions.sql). room empty: no limit but the disk.
-- PostgreSQL 13 to 18, any database, primary or standby: psql -f slots.sql. The last columns are empty where the version lacks them.
SET search_path = pg_catalog, pg_temp;
SELECT s.slot_name, s.plugin, s.database, s.active, s.active_pid AS pid, s.wal_status,
       pg_size_pretty(pg_wal_lsn_diff(l.lsn, s.restart_lsn)) AS kept,
       pg_size_pretty(pg_wal_lsn_diff(l.lsn, s.confirmed_flush_lsn)) AS unconfirmed,
       pg_size_pretty(s.safe_wal_size) AS room,
       s.restart_lsn, s.confirmed_flush_lsn,
       to_jsonb(s) ->> 'conflicting' AS conflicting,
       to_jsonb(s) ->> 'invalidation_reason' AS invalidation_reason,
       to_jsonb(s) ->> 'inactive_since' AS inactive_since,
       to_jsonb(s) ->> 'failover' AS failover,
       to_jsonb(s) ->> 'synced' AS synced
FROM pg_replication_slots s,
     (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS lsn) l
ORDER BY s.restart_lsn NULLS FIRST, s.slot_name;
