-- Takes version 8 away again. No drain may be under way.

DELETE FROM walpost.schema_version WHERE version = 8;
ALTER TABLE walpost.pipeline DROP COLUMN IF EXISTS drain;
