"""The procedures of the runbook, with their commands as they are written there, on real servers."""

import re

import pytest
import runbook
import servers
from runbook_stage import kafka, postgres_major, stage  # noqa: F401 - fixtures

BOOK = runbook.Runbook()


def follow(stage, heading, **words):
    """Types everything that the procedure says; what it answered."""
    steps = BOOK.steps(BOOK.sections[heading], heading)
    assert steps, heading
    with runbook.operator(stage.p, stage.workspace.path / heading, words) as op:
        op.follow(steps)
    return op.answers


@pytest.mark.smoke
def test_first_start_with_existing_rows(stage):
    stage.prepared(rows=10)
    follow(stage, "first-start-with-existing-rows")
    stage.judge()


def test_backfill_sends_all_to_a_topic_of_the_consumers(stage):
    p = stage.streamed()
    answers = follow(stage, "backfill", BACKFILL=f"{p.name}-again", REPLICAS=1)
    counts = re.findall(r"(\d+) events", answers)
    assert counts == ["20"] * 3, answers
    stage.topics = [f"{p.name}-again"]
    stage.judge()


def test_decommission_leaves_no_slot_and_no_record(stage):
    p = stage.streamed()
    answers = follow(stage, "decommission")
    assert p.slot() is None and f"progress.{p.name}" not in " ".join(p.kafka.admin().list_topics(timeout=10).topics)
    assert p.execute("SELECT count(*) FROM walpost.pipeline") == [(0,)] and p.execute("SELECT count(*) FROM pg_publication") == [(0,)]
    assert p.name not in answers.split("slot_name")[-1], "the last answer lists what slots are left"


def test_major_upgrade_begins_with_a_new_slot_and_nothing_is_missing(stage):
    """Without the upgrade itself: the slot goes, and another one comes back behind what was written meanwhile."""
    p = stage.streamed()
    steps = BOOK.steps(BOOK.sections["major-upgrade-of-postgresql"], "major-upgrade-of-postgresql")
    with runbook.operator(p, stage.workspace.path / "bin", {}) as op:
        op.follow(steps[:1])
        assert p.slot() is None
        stage.insert()  # writers that were not stopped, or came back early
        op.follow(steps[1:])
    stage.judge()


def test_event_goes_to_the_dead_letter_topic_once_the_policy_says_so(stage):
    p = stage.streamed()
    p.allow_bad_topics()
    stage.insert(1, aggregate_type="'no such topic'")
    bad = stage.newest()
    stage.insert()
    p.walpost.wait_state("halted")
    follow(stage, "poison-event")
    p.wait_confirmed()
    assert bad in p.walpost.verb("dlq", "list").stdout
    assert stage.committed() - stage.delivered() == {bad}


def test_database_is_saved_by_giving_the_stream_up(stage):
    p = stage.stopped()
    follow(stage, "wal-grows-on-the-primary")
    assert p.slot() is None
    follow(stage, "start-over-with-a-new-slot")
    p.walpost.wait_state("streaming")
    stage.judge()


@pytest.mark.parametrize("heading", ["how-to-look", "kafka-is-down-for-hours", "long-or-huge-transactions", "too-slow"])
def test_what_is_only_looked_at_is_answered(stage, heading):
    stage.streamed()
    follow(stage, heading)


def test_second_walpost_takes_over_when_the_first_is_stopped(stage):
    p = stage.streamed()
    second = p.another().start(wait="standby")
    assert p.walpost.stop() == 0
    second.wait_state("streaming", 20)
    p.walpost = second
    stage.insert()
    p.wait_confirmed()
    assert p.judge() == 0, "nothing was repeated"


def slot_follows_a_failover_and_nothing_is_missing(stage):
    primary, standby = stage.workspace.postgres(), stage.workspace.postgres(start=False)
    standby.make_standby_of(primary)
    primary.execute("SELECT pg_create_physical_replication_slot('of_standby')")
    for setting in ("primary_slot_name = 'of_standby'", "sync_replication_slots = on"):
        standby.execute(f"ALTER SYSTEM SET {setting}")
    standby.execute("SELECT pg_reload_conf()")
    p = stage.streamed(on_postgres=primary)
    both = f"host={primary.path},{standby.path} port={primary.port},{standby.port} dbname={p.database} user=postgres target_session_attrs=read-write"
    p.walpost.stop()
    stage.reconfigure(conninfo=both).start()
    follow(stage, "failover", SLOT_OF_STANDBY="of_standby")

    def synced():
        return standby.execute("SELECT synced AND NOT temporary AND invalidation_reason IS NULL FROM pg_replication_slots WHERE slot_name = %s",
                               p.name) == [(True,)]

    servers.wait_for(synced, 90, "the slot to be on the standby", every=0.5)
    stage.insert(100)
    p.wait_confirmed()
    stage.insert(100)
    primary.stop("immediate")
    standby._run("pg_ctl", "-D", standby.data, "-w", "promote")
    p.postgres = standby
    p.walpost.wait_state("streaming", 90)
    stage.insert()
    p.wait_confirmed()
    delivered = stage.delivered()
    assert not stage.committed() - delivered, "what the standby has is in Kafka"
    assert not delivered - stage.committed(), "Kafka got nothing that the standby does not have"


if postgres_major() >= 17:  # before, no slot follows: slot_missing

    @pytest.mark.smoke
    def test_slot_follows_a_failover_and_nothing_is_missing(stage):
        slot_follows_a_failover_and_nothing_is_missing(stage)
