-- How old the oldest row of outbox.events is that may not be delivered: everything older is in Kafka, or in the dead-letter topic. By the newest note of
-- outbox.maintain that walpost, when it connected last, knew to be delivered, so at most; `walpost status` shows what waits in a running walpost,
-- `walpost audit` each single row.
-- Bad: waits much longer than the time between two calls of outbox.maintain and source.reconnect_interval together; a warning, or no answer: nothing can be said to be delivered.
-- PostgreSQL 13 to 18, the database of the outbox, as owner of its tables: psql -f undelivered.sql
SET search_path = pg_catalog, pg_temp;
SELECT to_regprocedure('outbox.delivered_note()') IS NOT NULL AS noted \gset
\if :noted
SELECT n.noted_at AS delivered_up_to_note_of, count(e.id) AS rows_at_most, min(e.created_at) AS oldest,
       date_trunc('second', clock_timestamp() - min(e.created_at)) AS waits
FROM outbox.delivered_note() n LEFT JOIN outbox.events e
  ON NOT (e.xmin = e.tx::xid AND pg_visible_in_snapshot(e.tx, n.snapshot) OR age(e.xmin) > outbox.age_of(n))
GROUP BY n.noted_at;
\else
\echo this database has no outbox.maintain: walpost audit --from 24h shows what is not in Kafka
\endif
