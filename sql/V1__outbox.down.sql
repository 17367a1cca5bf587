-- Takes version 1 away again, with every event still in the table. Drop slot and publication first:
--   walpost slot drop --yes; DROP PUBLICATION walpost;

DROP TABLE IF EXISTS walpost.schema_version;
DROP TABLE IF EXISTS walpost.pipeline;
DROP SCHEMA IF EXISTS walpost;
DROP TABLE IF EXISTS outbox.events;
DROP SCHEMA IF EXISTS outbox;
