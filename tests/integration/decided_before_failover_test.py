"""An operator decided on the old primary, after others had written to the new one."""

import servers

NEW_EVENTS = """INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
    SELECT %s, 'k', 'T', convert_to('new ' || n, 'UTF8') FROM generate_series(1, 3) n"""


# Failure 21.
def test_decision_on_the_old_primary_passes_over_nothing_of_the_new_one(make_pipeline, workspace):
    old, new = workspace.postgres(settings={"autovacuum": "off"}), workspace.postgres(start=False)
    p = make_pipeline(on_postgres=old).start()
    p.insert(1, 5)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    new.make_standby_of(old)  # file by file, so it has the slot, too
    p.walpost.start()
    position = p.wal_position()
    servers.wait_for(lambda: new.execute("SELECT pg_last_wal_replay_lsn() - '0/0' >= %s", position)[0][0], 30, "replay")
    new.execute("SELECT pg_promote()")
    servers.wait_for(lambda: not new.execute("SELECT pg_is_in_recovery()")[0][0], 30, "the promotion")
    new.execute(NEW_EVENTS, p.name, database=p.database)
    p.execute("CREATE TABLE noise AS SELECT n FROM generate_series(1, 100000) n")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.walpost.verb("slot", "advance", "--yes")  # behind all that is on the new one
    old.stop("immediate")
    p.walpost, p.postgres = p.another(conninfo=new.conninfo(p.database)), new
    p.walpost.start(wait="halted")
    assert p.walpost.status()["halt"]["reason"] == "timeline_changed"
    assert p.walpost.stop() == 0
    p.walpost.verb("slot", "advance", "--yes")
    p.walpost.start()
    p.insert(6, 6)
    p.wait_confirmed()
    stored = {row[0] for row in p.execute("SELECT id::text FROM outbox.events")}
    assert stored <= {record.id for record in p.records()}
