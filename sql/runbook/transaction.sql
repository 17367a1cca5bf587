-- The rows of one transaction as they lie in the slot, also when they are no longer in the table. Not readable: what is in them is between control bytes.
-- It shows what would be skipped. xid is the column tx of outbox.events.
-- PostgreSQL 13 to 18, the database of the outbox, while nobody reads the slot:
--   psql -v slot=SLOT -v publication=PUBLICATION -v commit_lsn=LSN -f transaction.sql
SET search_path = pg_catalog, pg_temp;
SELECT getdatabaseencoding() AS encoding \gset
SET client_encoding TO :'encoding'; -- nothing is converted, so nothing can fail at that
-- One byte behind, so that the commit itself is read; 13 has no pg_lsn + 1.
SELECT pg_wal_lsn_diff(:'commit_lsn', '0/0') + 1 AS behind \gset
SELECT to_hex(div(:behind, 4294967296)::bigint) || '/' || to_hex(mod(:behind, 4294967296)::bigint) AS behind \gset
WITH changes AS MATERIALIZED (
    SELECT xid, lsn, data
    FROM pg_logical_slot_peek_binary_changes(:'slot', :'behind', NULL, 'proto_version', '1', 'publication_names', quote_ident(:'publication')))
SELECT xid, lsn, encode(data, 'escape') AS row FROM changes
WHERE get_byte(data, 0) = ascii('I')
  AND xid::text = (SELECT xid::text FROM changes WHERE get_byte(data, 0) = ascii('C') ORDER BY lsn DESC LIMIT 1);
