-- Takes version 2 away again, with every event still in the table.

DELETE FROM walpost.schema_version WHERE version = 2;
DROP TABLE IF EXISTS outbox.events;
DROP SCHEMA IF EXISTS outbox;
