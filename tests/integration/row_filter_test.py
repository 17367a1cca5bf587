"""Edits of a publication with row filters, which PostgreSQL has from 15 on."""

from edits_in_flight_test import insert
from edits_test import missing


def test_membership_with_a_row_filter_publishes_nothing_for_certain(make_pipeline):
    p = make_pipeline().start()
    insert(p)
    for edit in ("ADD TABLES IN SCHEMA outbox", "SET TABLE outbox.events WHERE (aggregate_id = 'a'), TABLES IN SCHEMA outbox"):
        p.execute(f"ALTER PUBLICATION {p.name} {edit}")
        insert(p)
        p.wait_confirmed()
    p.execute(f"ALTER PUBLICATION {p.name} DROP TABLES IN SCHEMA outbox")
    insert(p, "b", 5)
    p.wait_confirmed()
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLES IN SCHEMA outbox")
    insert(p, "b")
    p.walpost.wait_state("halted")
    assert p.walpost.status()["halt"]["reason"] == "publication_missing"
    assert len(missing(p)) == 6, "and nothing behind it was taken"
