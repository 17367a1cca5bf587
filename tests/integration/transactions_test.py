"""Transactions that stay open, are prepared, or are published twice: each event once, when it commits, and the slot goes on meanwhile."""

INSERT = """INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type)
    VALUES (gen_random_uuid(), '{topic}', '{key}', 'Late') RETURNING id::text"""


def last_record(p):
    return max(p.records(), key=lambda record: record.position)


# Failures 25, 47.
def test_an_old_transaction_holds_up_no_other_and_arrives_when_it_commits(make_pipeline):
    p = make_pipeline().start()
    old = p.postgres.connect(p.database, autocommit=False)
    with old.cursor() as cursor:
        cursor.execute(INSERT.format(topic=p.name, key="old"))
        event = cursor.fetchone()[0]
    p.insert_transactions(1, 500)
    p.wait_confirmed()
    assert p.judge() == 0
    assert event not in p.committed()
    old.commit()
    old.close()
    p.wait_confirmed()
    assert p.judge() == 0
    assert last_record(p).id == event


# Failures 26, 48.
def test_a_prepared_transaction_holds_up_no_other_and_arrives_when_it_is_committed(make_pipeline, workspace):
    postgres = workspace.postgres(settings={"max_prepared_transactions": "2"})
    p = make_pipeline(on_postgres=postgres).start()
    for end, key in (("committed", "kept"), ("rolled back", "dropped")):
        p.execute(f"BEGIN; {INSERT.format(topic=p.name, key=key)}; PREPARE TRANSACTION '{end}'")
    p.insert_transactions(1, 500)
    p.wait_confirmed()
    assert p.judge() == 0
    assert not {record.key for record in p.records()} & {"kept", "dropped"}
    p.execute("COMMIT PREPARED 'committed'")
    p.execute("ROLLBACK PREPARED 'rolled back'")
    p.wait_confirmed()
    assert p.judge() == 0
    assert last_record(p).key == "kept"


# Failure 52.
def test_another_publication_of_the_table_doubles_nothing(make_pipeline):
    p = make_pipeline().start()
    p.execute("CREATE PUBLICATION another FOR TABLE outbox.events")
    p.insert(1, 20)
    p.wait_confirmed()
    assert p.judge() == 0
    assert len(p.records()) == 20
