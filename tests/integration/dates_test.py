"""A topic deletes what is dated too far back, at once and for good: a late record gets a date that the topic keeps."""

import math
import time

import pytest
import servers
from rejecting import ACLS, permit

OUTBOX = {"outboxes": [{"table": "public.o", "preset": "debezium", "topics": {"allowed": ["*"]}, "columns": {"timestamp": "happened"}}]}
HOUR = 3600


class Dated:
    """A pipeline whose rows choose their records' times."""

    def __init__(self, make_pipeline, kafka):
        self.kafka = kafka
        self.pipeline = make_pipeline(on_kafka=kafka, create_topic=False, config=OUTBOX)
        self.pipeline.execute("CREATE TABLE public.o (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text,"
                              " type text, payload text, happened timestamptz)")
        self.topic = f"outbox.event.{self.pipeline.name}"

    def insert(self, seconds_ago=0):
        self.pipeline.execute("INSERT INTO public.o (aggregatetype, aggregateid, type, payload, happened)"
                              " VALUES (%s, 'k', 'T', 'x', now() - make_interval(secs => %s))", self.pipeline.name, seconds_ago)

    def age(self):
        """Of the newest record, in seconds. Without end when Kafka has deleted it."""
        records = self.kafka.read_all(self.topic)
        return time.time() - records[-1].timestamp()[1] / 1000 if records else math.inf


def test_late_event_is_kept_where_the_topic_may_not_be_described(make_pipeline, workspace):
    dated = Dated(make_pipeline, workspace.kafka(settings=ACLS))
    dated.kafka.create_topic(dated.topic, 1)
    permit(dated.kafka, dated.topic, "Describe", "Write", "Read")
    dated.pipeline.start()
    dated.insert(seconds_ago=30 * 24 * HOUR)
    dated.pipeline.wait_confirmed()
    assert dated.age() < 60
    assert "kafka_topic_limits_unknown" in dated.pipeline.walpost.log_text()


@pytest.mark.full
def test_late_event_is_dated_by_the_retention_of_now(make_pipeline, workspace):
    dated = Dated(make_pipeline, workspace.kafka())
    dated.kafka.create_topic(dated.topic, 1)
    dated.pipeline.start()
    dated.insert(seconds_ago=2 * HOUR)
    dated.pipeline.wait_confirmed()
    assert dated.age() > HOUR
    dated.kafka.alter_topic(dated.topic, {"retention.ms": str(HOUR * 1000)})

    def dated_anew():
        dated.insert(seconds_ago=2 * HOUR)
        dated.pipeline.wait_confirmed()
        return dated.age() < HOUR

    servers.wait_for(dated_anew, 90, "the new retention")


@pytest.mark.full
def test_event_that_waits_for_kafka_for_as_long_as_its_topic_keeps_it_is_dated_anew(make_pipeline, proxied):
    kafka, proxy = proxied
    dated = Dated(make_pipeline, kafka)
    kafka.create_topic(dated.topic, 1, {"retention.ms": "24000"})
    dated.pipeline.start()
    dated.insert()
    dated.pipeline.wait_confirmed()
    proxy.set_mode("cut")
    dated.insert()
    inserted = time.time()
    servers.wait_for(lambda: time.time() > inserted + 30, 60, "the time to pass")
    proxy.set_mode("pass")
    dated.pipeline.wait_confirmed()
    assert dated.age() < 24
