-- Takes version 1 away again. Stop walpost and drop slot and publication first:
--   walpost slot drop --yes; DROP PUBLICATION walpost;

DROP TABLE IF EXISTS walpost.schema_version;
DROP TABLE IF EXISTS walpost.pipeline;
DROP SCHEMA IF EXISTS walpost;
