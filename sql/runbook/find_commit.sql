-- The commit of the transaction to which a change belongs: what `walpost slot advance --to` needs, where PostgreSQL's error names only the change.
-- No line: test_decoding fails at the same place, or the slot is past it.
-- PostgreSQL 13 to 18, the database of the outbox, as a role with REPLICATION; makes a temporary copy of the slot, which is gone with the session:
--   psql -v slot=SLOT -v change_lsn=LSN -f find_commit.sql
SET search_path = pg_catalog, pg_temp;
SELECT 'walpost_look_' || pg_backend_pid() AS copy \gset
SELECT FROM pg_copy_logical_replication_slot(:'slot', :'copy', true, 'test_decoding') \g /dev/null
-- The end of one commit is where the next change begins.
WITH changes AS MATERIALIZED (SELECT lsn, xid, left(data, 6) AS what FROM pg_logical_slot_peek_changes(:'copy', NULL, NULL)),
     commits AS (
         SELECT xid::text AS xid, pg_wal_lsn_diff(max(lsn) FILTER (WHERE what = 'COMMIT'), '0/0') - 1 AS at
         FROM changes GROUP BY xid::text HAVING bool_or(what <> 'COMMIT' AND lsn = :'change_lsn'))
SELECT xid, upper(to_hex(div(at, 4294967296)::bigint) || '/' || to_hex(mod(at, 4294967296)::bigint)) AS commit_lsn FROM commits;
