"""Edits of a publication with row filters and column lists, which PostgreSQL has from 15 on."""

import signal

import pytest
from edits_in_flight_test import insert
from edits_test import OUT_AND_IN, Edit, halted, insert_into, leaf_pipeline, missing


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


ROOT_AND_LEAF = "TABLE up.root, app.leaf"
COLUMNS = "(id, created_at, aggregate_type, aggregate_id, event_type)"


# The server takes both from the partition's own row of the publication, whatever publishes it beside.
@pytest.mark.parametrize("published, meanwhile", [
    (ROOT_AND_LEAF, "TABLE up.root, app.leaf WHERE (aggregate_id = 'none')"),
    (ROOT_AND_LEAF, f"TABLE up.root, app.leaf {COLUMNS}"),
    (ROOT_AND_LEAF, "TABLE up.root"),
    ("TABLE app.leaf, TABLES IN SCHEMA up", "TABLE app.leaf WHERE (aggregate_id = 'none'), TABLES IN SCHEMA up")],
    ids=["filter", "column list", "out", "filter beside a schema"])
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "away"])
# Failure 100.
def test_leaf_whose_ancestor_stays_published_has_a_filter_or_column_list_for_a_while(make_pipeline, published, meanwhile, streaming):
    p = leaf_pipeline(make_pipeline, published).start()
    insert_into(p, "leaf")
    p.wait_confirmed()
    if streaming:
        p.walpost.signal(signal.SIGSTOP)  # or it may look meanwhile, and say what it finds then
    else:
        assert p.walpost.stop() == 0
    p.execute(f"ALTER PUBLICATION {p.name} SET {meanwhile}")
    insert_into(p, "leaf")
    p.execute(f"ALTER PUBLICATION {p.name} SET {published}")
    insert_into(p, "leaf")
    if streaming:
        p.walpost.signal(signal.SIGCONT)
    else:
        p.walpost.start(wait=None)
    halted(p, Edit("", words=OUT_AND_IN))
    assert len(p.records()) == 1


def test_leaf_that_only_its_ancestor_publishes_is_rejected_before_it_can_get_a_filter(make_pipeline):
    p = leaf_pipeline(make_pipeline, "TABLE up.root")
    done = p.walpost.verb("init", check=False)
    assert done.returncode == 78 and "ADD TABLE" in done.stderr, done
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE app.leaf")
    p.start()
    p.execute(f"ALTER PUBLICATION {p.name} DROP TABLE app.leaf")
    insert_into(p, "leaf")
    halted(p, Edit("", words="published only", fix=f"ALTER PUBLICATION {p.name} ADD TABLE app.leaf"))
    assert p.records() == []
