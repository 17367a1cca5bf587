"""What a migration does to table and publication that leaves no row out: one after the other, with events in between.

`{name}` is the publication, `{tables}` what it holds.
"""

HARMLESS = {
    "analyze": "ANALYZE outbox.events",
    "vacuum": "VACUUM outbox.events",
    "vacuum full": "VACUUM FULL outbox.events",
    "create index": "CREATE INDEX i ON outbox.events (event_type)",
    "reindex": "REINDEX TABLE outbox.events_default",
    "drop index": "DROP INDEX outbox.i",
    "grant": "GRANT SELECT ON outbox.events TO pg_monitor",
    "revoke": "REVOKE SELECT ON outbox.events FROM pg_monitor",
    "owner": "ALTER TABLE outbox.events OWNER TO CURRENT_USER",
    "comment": "COMMENT ON TABLE outbox.events IS 'edited'",
    "statistics": "ALTER TABLE outbox.events ALTER payload SET STATISTICS 10",
    "storage": "ALTER TABLE outbox.events_default ALTER payload SET STORAGE EXTERNAL",
    "storage parameters": "ALTER TABLE outbox.events_default SET (fillfactor = 90)",
    "row security": "ALTER TABLE outbox.events ENABLE ROW LEVEL SECURITY; ALTER TABLE outbox.events DISABLE ROW LEVEL SECURITY",
    "replica identity": "ALTER TABLE outbox.events REPLICA IDENTITY FULL",
    "add constraint": "ALTER TABLE outbox.events ADD CONSTRAINT c CHECK (event_type <> '')",
    "drop constraint": "ALTER TABLE outbox.events DROP CONSTRAINT c",
    "add column": "ALTER TABLE outbox.events ADD COLUMN extra text DEFAULT 'x'",
    "rename column": "ALTER TABLE outbox.events RENAME extra TO further",
    "drop column": "ALTER TABLE outbox.events DROP COLUMN further",
    "column default": "ALTER TABLE outbox.events ALTER event_type SET DEFAULT 'Tested'",
    "column to another text type": "ALTER TABLE outbox.events ALTER event_type TYPE varchar(100)",
    "column to a domain": "CREATE DOMAIN public.event_name AS text; ALTER TABLE outbox.events ALTER event_type TYPE public.event_name",
    "column to an enum": "ALTER TABLE outbox.events DROP CONSTRAINT IF EXISTS events_check; ALTER TABLE outbox.events ALTER event_type DROP DEFAULT;"
                         " CREATE TYPE public.event_kind AS ENUM ('Tested');"
                         " ALTER TABLE outbox.events ALTER event_type TYPE public.event_kind USING event_type::text::public.event_kind",
    "column back to text": "ALTER TABLE outbox.events ALTER event_type TYPE text",
    "create partition": "CREATE TABLE outbox.p PARTITION OF outbox.events FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')",
    "detach partition": "ALTER TABLE outbox.events DETACH PARTITION outbox.p",
    "attach partition": "ALTER TABLE outbox.events ATTACH PARTITION outbox.p FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')",
    "truncate partition": "TRUNCATE outbox.p",
    "drop partition": "DROP TABLE outbox.p",
    "maintain": "SELECT outbox.maintain(ahead => '10 days')",
    "trigger": "ALTER TABLE outbox.events DISABLE TRIGGER USER; ALTER TABLE outbox.events ENABLE TRIGGER USER",
    "add another table": "CREATE TABLE other (id int PRIMARY KEY); ALTER PUBLICATION {name} ADD TABLE other",
    "set the same tables": "ALTER PUBLICATION {name} SET TABLE {tables}, other",
    "drop another table": "ALTER PUBLICATION {name} DROP TABLE other",
    "another publication": "CREATE PUBLICATION {name}_other FOR TABLE other; DROP PUBLICATION {name}_other",
    "comment on the publication": "COMMENT ON PUBLICATION {name} IS 'edited'",
}

# Those that write the whole table anew, or read it all while nobody may write.
LONG = {"vacuum full", "column to an enum", "column back to text"}

# After all of them: they can be made once more.
ANEW = ("DROP TABLE IF EXISTS other; ALTER TABLE outbox.events REPLICA IDENTITY DEFAULT; ALTER TABLE outbox.events ALTER event_type TYPE text;"
        " DROP DOMAIN IF EXISTS public.event_name")
