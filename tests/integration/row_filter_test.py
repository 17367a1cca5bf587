"""Edits of a publication with row filters and column lists, which PostgreSQL has from 15 on."""

import signal

import pytest
from edits_in_flight_test import insert
from edits_test import OUT_AND_IN, OWN, Edit, halted, insert_into, leaf_pipeline, missing, own_pipeline
from rare import first


def test_membership_with_a_row_filter_publishes_nothing_for_certain(make_pipeline):
    p = make_pipeline()
    p.walpost.verb("init", "--plain-table")  # a partitioned one must be published by its name
    p.walpost.start()
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
@pytest.mark.parametrize("streaming", first(1, [True, False]), ids=["streaming", "away"])
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


# A server that has decoded rows of its partitions goes on as before such a move until the connection ends.
def test_partitioned_table_is_published_by_its_name_also_beside_its_schema(make_pipeline):
    p = own_pipeline(make_pipeline, "orders")
    p.execute(f"CREATE SCHEMA other; {OWN.format(table='orders')} PARTITION BY LIST (event_type);"
              " CREATE TABLE other.leaf PARTITION OF app.orders DEFAULT")
    publication = f'CREATE PUBLICATION "{p.name}" FOR TABLES IN SCHEMA app WITH (publish_via_partition_root = true)'
    p.execute(publication)
    rejected = p.walpost.verb("init", check=False)
    by_name = f'ALTER PUBLICATION "{p.name}" ADD TABLE "app"."orders"'
    assert rejected.returncode != 0 and by_name in rejected.stderr, rejected
    p.execute(by_name)
    p.start()
    insert_into(p, "orders")
    p.wait_confirmed()
    p.execute("ALTER TABLE app.orders SET SCHEMA other; ANALYZE other.leaf")
    p.execute("INSERT INTO other.orders (aggregate_type, aggregate_id, event_type) VALUES (%s, 'k', 'Away')", p.name)
    p.execute("ALTER TABLE other.orders SET SCHEMA app")
    insert_into(p, "orders")
    p.walpost.wait_state("halted")  # and not a row less
    assert p.walpost.status()["halt"]["reason"] == "table_replaced"


def test_leaf_that_only_its_ancestor_publishes_is_rejected_before_it_can_get_a_filter(make_pipeline):
    p = leaf_pipeline(make_pipeline, "TABLE up.root")
    done = p.walpost.verb("init", check=False)
    assert done.returncode == 78 and "ADD TABLE" in done.stderr, done
    p.execute(f"ALTER PUBLICATION {p.name} ADD TABLE app.leaf")
    p.start()
    p.execute(f"ALTER PUBLICATION {p.name} DROP TABLE app.leaf")
    insert_into(p, "leaf")
    halted(p, Edit("", words="by its own name", fix=f"ALTER PUBLICATION {p.name} ADD TABLE app.leaf"))
    assert p.records() == []
