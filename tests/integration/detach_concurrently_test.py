"""DETACH PARTITION ... CONCURRENTLY, which PostgreSQL has from 14 on."""

import threading
from contextlib import closing

import servers
from edits_in_flight_test import EVENTS, in_transaction, insert
from edits_test import missing


# PostgreSQL takes rows of transactions that were open when that began for rows of another table.
def test_partition_that_is_being_detached_concurrently_halts_and_check_warns_beforehand(make_pipeline):
    p = make_pipeline().start()
    p.execute("DROP TABLE outbox.events_default")
    p.execute("CREATE TABLE outbox.old PARTITION OF outbox.events FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')")
    assert "has no default partition" in p.walpost.verb("check", check=False).stdout
    insert(p)
    p.wait_confirmed()
    with closing(p.postgres.connect(p.database, autocommit=False)) as opened, closing(p.postgres.connect(p.database)) as other:
        in_transaction(opened, EVENTS.format(table="outbox.events", at="'2001-02-02'"), p.name, "a", 1)
        detaching = threading.Thread(target=in_transaction, args=(other, "ALTER TABLE outbox.events DETACH PARTITION outbox.old CONCURRENTLY"))
        detaching.start()
        try:
            servers.wait_for(lambda: p.execute("SELECT count(*) FROM pg_inherits WHERE inhdetachpending") == [(1,)], 20, "DETACH to wait")
            p.walpost.stop()
            p.walpost.start(wait=None)
            p.walpost.wait_state("halted")
        finally:
            opened.commit()
            detaching.join()
    assert "CONCURRENTLY" in p.walpost.status()["halt"]["detail"]
    p.walpost.stop()
    p.walpost.start()
    p.wait_confirmed()
    p.execute("ALTER TABLE outbox.events ATTACH PARTITION outbox.old FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')")
    p.walpost.verb("replay", "--missing", "--in-place")
    assert missing(p) == set()
