-- Takes version 2 away again, with every event still in the table.

-- What follows means what pg_catalog has, whoever may create operators or functions elsewhere. The last line takes this back.
SELECT pg_catalog.set_config('walpost.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

DELETE FROM walpost.schema_version WHERE version = 2;
DROP TABLE IF EXISTS outbox.events;
DROP SCHEMA IF EXISTS outbox;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('walpost.search_path'), false);
