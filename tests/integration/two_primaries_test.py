"""conninfo names both hosts with target_session_attrs=read-write, as the runbook advises. After a failover the old primary comes back."""

import servers
from tcp_proxy import TcpProxy

ROWS = "SELECT event_id, position FROM walpost.dead_letters"


def failed_over(make_pipeline, workspace, elsewhere=False):
    """walpost streams from the new primary; the old one is down. `elsewhere`: its dead letters have a conninfo of their own."""
    old, new = workspace.postgres(settings={"autovacuum": "off"}), workspace.postgres(start=False)
    p = make_pipeline(on_postgres=old, config={"delivery": {"on_undeliverable": "park"}})
    p.start()
    p.insert(1, 5)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    new.make_standby_of(old)
    both = f"host={old.path},{new.path} port={old.port},{new.port} user=postgres dbname={p.database} target_session_attrs=read-write"
    delivery = {"on_undeliverable": "park", **({"dead_letter_conninfo": both} if elsewhere else {})}
    p.walpost = p.another(conninfo=both, config={"delivery": delivery})
    p.walpost.start()
    position = p.wal_position()
    servers.wait_for(lambda: new.execute("SELECT pg_last_wal_replay_lsn() - '0/0' >= %s", position)[0][0], 30, "the standby")
    old.stop("immediate")
    new.execute("SELECT pg_promote()")
    servers.wait_for(lambda: not new.execute("SELECT pg_is_in_recovery()")[0][0], 30, "the promotion")
    p.postgres = new
    p.insert(6, 8)
    p.wait_confirmed()
    return p, old, new


def rows(server, p):
    return server.execute(ROWS, database=p.database)


def test_dead_letter_goes_to_the_server_that_is_streamed_from(make_pipeline, workspace):
    p, old, new = failed_over(make_pipeline, workspace)
    old.start()
    p.insert_large(5_000_000)
    p.wait_confirmed()
    assert (len(rows(new, p)), len(rows(old, p))) == (1, 0)


def test_dead_letter_that_is_elsewhere_waits_for_a_primary_that_was_not_replaced(make_pipeline, workspace):
    p, old, new = failed_over(make_pipeline, workspace, elsewhere=True)
    old.start()
    p.insert_large(5_000_000)
    servers.wait_for(lambda: "on timeline 1, and timeline 2" in str(p.walpost.status()), 30, "the reason")
    assert (len(rows(new, p)), len(rows(old, p))) == (0, 0)
    old.stop("immediate")
    p.wait_confirmed()
    assert len(rows(new, p)) == 1


def test_dead_letter_goes_to_the_server_that_the_address_leads_to_by_now(make_pipeline, workspace):
    """Behind one address there is another server after a failover. The one before runs on, and a connection to it is still open."""
    old, new = workspace.postgres(settings={"autovacuum": "off"}), workspace.postgres(start=False)
    proxy = workspace.add(TcpProxy("postgres", ("127.0.0.1", old.port)))
    p = make_pipeline(on_postgres=old, config={"delivery": {"on_undeliverable": "park"}})
    p.walpost = p.another(conninfo=f"host=127.0.0.1 port={proxy.port} user=postgres dbname={p.database}")
    p.start()
    p.insert_large(5_000_000)  # its row is open, so walpost looks for decisions
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    new.make_standby_of(old)
    p.walpost.start()
    position = p.wal_position()
    servers.wait_for(lambda: new.execute("SELECT pg_last_wal_replay_lsn() - '0/0' >= %s", position)[0][0], 30, "the standby")
    new.execute("SELECT pg_promote()")
    servers.wait_for(lambda: not new.execute("SELECT pg_is_in_recovery()")[0][0], 30, "the promotion")
    proxy.target = ("127.0.0.1", new.port)
    old.execute("SELECT pg_terminate_backend(%s)", old.slot(p.name, p.database)["pid"])
    p.postgres = new
    p.insert_large(5_000_000)
    p.wait_confirmed()
    assert (len(rows(new, p)), len(rows(old, p))) == (2, 1)
