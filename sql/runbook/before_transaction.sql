-- What lies in the slot between what is in Kafka and a transaction that is to be skipped: skipping that one skips these, too.
-- Bad: any line with rows.
-- PostgreSQL 13 to 18, the database of the outbox, while nobody reads the slot:
--   psql -v slot=SLOT -v publication=PUBLICATION -v commit_lsn=LSN -v safe_lsn=LSN -f before_transaction.sql
SET search_path = pg_catalog, pg_temp;
SELECT getdatabaseencoding() AS encoding \gset
SET client_encoding TO :'encoding'; -- nothing is converted, so nothing can fail at that
SELECT xid, max(lsn) FILTER (WHERE get_byte(data, 0) = ascii('C')) AS commit_end, count(*) FILTER (WHERE get_byte(data, 0) = ascii('I')) AS rows
FROM pg_logical_slot_peek_binary_changes(:'slot', :'commit_lsn', NULL, 'proto_version', '1', 'publication_names', quote_ident(:'publication'))
GROUP BY xid
HAVING max(lsn) FILTER (WHERE get_byte(data, 0) = ascii('C')) > :'safe_lsn' AND max(lsn) FILTER (WHERE get_byte(data, 0) = ascii('C')) <= :'commit_lsn'
ORDER BY 2;
