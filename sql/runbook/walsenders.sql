-- Every connection that reads the log: standbys, walpost, others; how far each is, and when it last answered.
-- Bad: to_send large and state streaming: the reader does not take it (Kafka is slow), or decoding is slow. to_confirm large and to_send
--   small: it has taken, and not confirmed. answered long ago: a dead connection, gone after wal_sender_timeout. sync_state not async for walpost.
-- PostgreSQL 13 to 18, any database of the primary; needs pg_monitor to see other roles' connections: psql -f walsenders.sql
SET search_path = pg_catalog, pg_temp;
SELECT w.pid, w.application_name, w.usename, w.client_addr, s.slot_name, w.state, w.sync_state,
       pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), w.sent_lsn)) AS to_send,
       pg_size_pretty(pg_wal_lsn_diff(w.sent_lsn, w.flush_lsn)) AS to_confirm,
       w.flush_lag, date_trunc('second', clock_timestamp() - w.reply_time) AS answered, date_trunc('second', clock_timestamp() - w.backend_start) AS connected
FROM pg_stat_replication w LEFT JOIN pg_replication_slots s ON s.active_pid = w.pid
ORDER BY w.backend_start;
