-- Transactions that did not fit into logical_decoding_work_mem while they were decoded, and went to the server's disk.
-- Bad: spilled_bytes grows from one look to the next, and is a large part of all: raise logical_decoding_work_mem, or make transactions smaller.
--   Transactions without events count, too. The counters begin at stats_reset.
-- PostgreSQL 13 to 18, any database; 13 does not count it, and shows to a superuser what lies on the disk now: psql -f spill.sql
SET search_path = pg_catalog, pg_temp;
SHOW logical_decoding_work_mem;
SELECT current_setting('server_version_num')::int >= 140000 AS counted \gset
\if :counted
SELECT slot_name, spill_txns AS spilled_transactions, spill_count AS times, pg_size_pretty(spill_bytes) AS spilled_bytes,
       total_txns AS all_transactions, pg_size_pretty(total_bytes) AS all_bytes, stats_reset
FROM pg_stat_replication_slots ORDER BY spill_bytes DESC;
\else
SELECT s.slot_name, count(f.name) AS files, pg_size_pretty(coalesce(sum((pg_stat_file('pg_replslot/' || s.slot_name || '/' || f.name)).size), 0)) AS on_disk
FROM pg_replication_slots s LEFT JOIN LATERAL pg_ls_dir('pg_replslot/' || s.slot_name) AS f (name) ON f.name LIKE 'xid-%'
GROUP BY s.slot_name ORDER BY s.slot_name;
\endif
