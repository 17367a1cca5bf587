"""An outbox is published by its name and with its schema, which begin and end independently."""


# It was published all the time.
def test_table_that_goes_from_one_way_of_being_published_to_another_loses_nothing(make_pipeline):
    p = make_pipeline(partitions=1)
    p.walpost.verb("init", "--plain-table")  # a partitioned one must be published by its name
    p.walpost.start()
    p.insert(1, 2)
    p.wait_confirmed()
    with p.postgres.connect(p.database, autocommit=False) as connection:
        cursor = connection.cursor()
        cursor.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'Old')", (p.name,))
        for edit in ("ADD TABLES IN SCHEMA outbox", "DROP TABLE outbox.events"):
            p.execute(f'ALTER PUBLICATION "{p.name}" {edit}')
            p.insert(1, 2)
            p.wait_confirmed()
        connection.commit()
    p.insert(1, 2)
    p.wait_confirmed()
    assert [record.headers["type"] for record in p.records()].count(b"Old") == 1
    assert p.walpost.verb("audit", check=False).returncode == 0
