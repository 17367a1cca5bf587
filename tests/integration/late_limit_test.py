"""A broker rejects a record that is too large, and the topic's limits take it: its leader may hear of a change later than others."""

import random
import re
import threading
import time

import park_order_test
import pytest
import servers
from kafka_answers import DESCRIBE_CONFIGS, Answers
from messages_test import park_behind, parked_behind
from servers import Kafka, free_port
from tcp_proxy import TcpProxy

LARGE = 20_000
MSG_SIZE_TOO_LARGE = 10
UNKNOWN_SERVER_ERROR = -1
# Hexadecimal digits have half their size when they are packed.
NOT_KNOWN = [("gzip", 100 * LARGE, set()), ("gzip", 3 * LARGE, set()), ("none", 100 * LARGE, {DESCRIBE_CONFIGS})]


@pytest.fixture(name="answering")
def fixture_answering(tmp_path):
    """A Kafka, and what it answers."""
    port = free_port()
    proxy = TcpProxy("kafka", ("127.0.0.1", port))
    kafka = Kafka(tmp_path / "k", port=port, settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"})
    kafka.bootstrap = f"127.0.0.1:{proxy.port}"
    answers = Answers()
    proxy.make_filter = answers.connection
    yield kafka, answers
    kafka.close()
    proxy.close()


def pipeline_on(make_pipeline, kafka, wait, properties=None):
    p = make_pipeline(on_kafka=kafka, create_topic=False, properties=properties,
                      config={"delivery": {"on_undeliverable": "skip", "unknown_topic_wait": wait}})
    kafka.create_topic(p.name, 1)
    return p.start()


def skipped(p):
    return [line for line in p.walpost.log_events() if line["event"] == "event_skipped"]


def reject_large(answers):
    """A batch, each record of it, and so on."""
    answers.spoil(MSG_SIZE_TOO_LARGE, instead=True, larger_than=LARGE)


def delivered_although_rejected_for_a_moment(p, answers):
    reject_large(answers)
    p.insert_large(2 * LARGE)
    servers.wait_for(lambda: answers.spoilt >= 4 or skipped(p), 60, "attempts")
    answers.stop()
    p.wait_confirmed()
    assert not skipped(p)


# Failure 69.
@pytest.mark.parametrize("limits", [{}, {"compression.type": "gzip", "max.message.bytes": str(2 * LARGE + 5_000)}], ids=["far", "near"])
def test_event_that_was_too_large_for_a_moment_is_delivered(make_pipeline, answering, limits):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "60s")
    kafka.alter_topic(p.name, limits)
    delivered_although_rejected_for_a_moment(p, answers)
    assert len(kafka.read_all(p.name)) == 1


# Failure 69.
@pytest.mark.parametrize("codec, limit, unanswered", NOT_KNOWN, ids=["packed", "packed below the limit", "limit without an answer"])
def test_event_is_delivered_that_was_too_large_for_a_moment_where_its_size_or_limit_is_not_known(
        make_pipeline, answering, codec, limit, unanswered):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "60s", {"compression.codec": codec})
    kafka.alter_topic(p.name, {"max.message.bytes": str(limit)})
    answers.unanswered = unanswered
    p.insert(1, 1)
    p.wait_confirmed()
    p.execute("SELECT outbox.set_payload_max(%s)", 4 * LARGE)
    reject_large(answers)
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload) SELECT gen_random_uuid(), %s, 'key-1', 'Random',"
              " convert_to(string_agg(md5(i::text), ''), 'UTF8') FROM generate_series(1, %s) i", p.name, 4 * LARGE // 32)
    servers.wait_for(lambda: answers.spoilt >= 4 or skipped(p), 60, "attempts")
    answers.stop()
    p.wait_confirmed()
    assert not skipped(p) and len(kafka.read_all(p.name)) == 2


# Nobody has looked at the limit all that time, and one that was set for a moment may be what the leader still goes by.
def test_event_that_was_too_large_for_a_moment_is_delivered_also_long_after_the_limit_was_read(make_pipeline, answering):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "5s")
    p.insert_large(2 * LARGE)
    p.wait_confirmed()
    began = time.monotonic()
    servers.wait_for(lambda: time.monotonic() > began + 6, 20, "more than the wait")
    delivered_although_rejected_for_a_moment(p, answers)


def test_limit_that_was_read_counts_while_nobody_answers_about_it(make_pipeline, answering):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "60s")
    p.insert_large(2 * LARGE)
    p.wait_confirmed()
    answers.unanswered = {DESCRIBE_CONFIGS}
    delivered_although_rejected_for_a_moment(p, answers)


# The time that a limit must have stood for does not begin before another limit was seen.
@pytest.mark.full
def test_limit_that_was_raised_in_between_is_believed_no_earlier_than_a_new_one(make_pipeline, kafka):
    p = pipeline_on(make_pipeline, kafka, "12s")
    kafka.alter_topic(p.name, {"max.message.bytes": "1000"})
    p.insert_large(1500)
    servers.wait_for(lambda: p.walpost.status()["events"]["in_flight"] == 1, 20, "it to wait")
    kafka.alter_topic(p.name, {"max.message.bytes": "4000"})
    p.wait_confirmed()
    began = time.monotonic()
    servers.wait_for(lambda: time.monotonic() > began + 8, 20, "most of the time to pass")
    kafka.alter_topic(p.name, {"max.message.bytes": "1000"})
    lowered = time.monotonic()
    p.insert_large(1500)
    servers.wait_for(lambda: skipped(p), 60, "the decision")
    assert time.monotonic() - lowered > 11


def test_event_that_stays_too_large_is_decided(make_pipeline, answering):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "2s")
    reject_large(answers)
    p.insert_large(2 * LARGE)
    servers.wait_for(lambda: skipped(p), 60, "the decision")


def test_verb_writes_a_record_that_was_too_large_for_a_moment(make_pipeline, answering):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "60s")
    p.insert_large(2 * LARGE)
    p.wait_confirmed()
    reject_large(answers)
    sent = []
    verb = threading.Thread(target=lambda: sent.append(p.walpost.verb("replay", "--all", "--in-place", "--skip-undeliverable", check=False)))
    verb.start()
    servers.wait_for(lambda: answers.spoilt >= 5 or sent, 60, "attempts")
    answers.stop()
    verb.join()
    assert sent[0].returncode == 0 and "left out" not in sent[0].stdout + sent[0].stderr, sent
    assert len(kafka.read_all(p.name)) == 2


# Somebody lowers the limit for a moment; or raises it while the verb sends many rows.
@pytest.mark.parametrize("wait, left_out", [("60s", 0), ("0s", 1)], ids=["within the wait", "after it"])
def test_verb_goes_by_the_limit_of_the_moment(make_pipeline, answering, wait, left_out):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, wait)
    p.insert_large(2 * LARGE)
    p.insert(1, 400)
    p.insert_large(2 * LARGE)
    p.wait_confirmed()
    kafka.alter_topic(p.name, {"max.message.bytes": str(LARGE)})
    before = answers.asked[DESCRIBE_CONFIGS]
    sent = []
    verb = threading.Thread(target=lambda: sent.append(p.walpost.verb("replay", "--all", "--in-place", "--rate", "50", "--skip-undeliverable", check=False)))
    verb.start()
    servers.wait_for(lambda: answers.asked[DESCRIBE_CONFIGS] >= before + 1 + (wait != "0s") or sent, 60, "the limit to be read")
    kafka.alter_topic(p.name, {"max.message.bytes": "1048588"})
    verb.join()
    assert sent[0].returncode == 0, sent
    assert f"{402 - left_out} events sent" in sent[0].stdout and sent[0].stderr.count("is left out") == left_out, sent


# One look that nobody answers, and the limit is raised: then the broker decides, and not what was read before.
@pytest.mark.full
def test_verb_leaves_nothing_out_by_a_limit_that_nobody_confirms(make_pipeline, answering):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "2s")
    rows = 20
    for _ in range(rows):
        p.insert_large(2 * LARGE)
    p.wait_confirmed()
    kafka.alter_topic(p.name, {"max.message.bytes": str(LARGE)})
    before = answers.asked[DESCRIBE_CONFIGS]
    sent = []
    verb = threading.Thread(target=lambda: sent.append(p.walpost.verb("replay", "--all", "--in-place", "--rate", "1", "--skip-undeliverable", check=False)))
    verb.start()
    servers.wait_for(lambda: answers.asked[DESCRIBE_CONFIGS] >= before + 1 or sent, 60, "the limit to be read")
    answers.unanswered = {DESCRIBE_CONFIGS}
    servers.wait_for(lambda: answers.asked[DESCRIBE_CONFIGS] >= before + 2 or sent, 60, "the limit to be asked for again")
    answers.stop()
    kafka.alter_topic(p.name, {"max.message.bytes": "1048588"})
    verb.join()
    assert sent[0].returncode == 0 and sent[0].stderr.count("is left out") < rows / 2, sent


def insert_packed(p, rows=1):
    """Hexadecimal digits."""
    p.execute("SELECT outbox.set_payload_max(%s)", 4 * LARGE)
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) SELECT %s, 'key-1', 'Random',"
              " convert_to(string_agg(md5(i::text), ''), 'UTF8') FROM generate_series(1, %s) i, generate_series(1, %s) n GROUP BY n",
              p.name, 4 * LARGE // 32, rows)


# The time that passed by the limit of before does not count for this one.
@pytest.mark.full
def test_limit_that_is_raised_while_records_wait_gives_the_leader_the_whole_time_again(make_pipeline, answering):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "12s", {"compression.codec": "gzip"})
    kafka.alter_topic(p.name, {"max.message.bytes": str(LARGE)})
    p.insert(1, 1)
    p.wait_confirmed()
    reject_large(answers)
    insert_packed(p, rows=5)
    servers.wait_for(lambda: answers.spoilt >= 1, 60, "the first answer")
    first = time.monotonic()
    servers.wait_for(lambda: time.monotonic() > first + 9, 60, "most of the time")
    kafka.alter_topic(p.name, {"max.message.bytes": str(100 * LARGE)})
    raised = time.monotonic()
    servers.wait_for(lambda: skipped(p) or time.monotonic() > raised + 9, 60, "most of the time again")
    answers.stop()
    p.wait_confirmed()
    assert not skipped(p) and len(kafka.read_all(p.name)) == 6


# The limit was read, lowered, and nobody answers about it any more.
@pytest.mark.full
def test_rows_that_are_larger_than_a_limit_that_nobody_answers_about_hold_their_topic_once(make_pipeline, answering):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "6s")
    p.insert_large(2 * LARGE)
    p.wait_confirmed()
    kafka.alter_topic(p.name, {"max.message.bytes": str(LARGE)})
    answers.unanswered = {DESCRIBE_CONFIGS}
    waits = []
    for number in range(3):
        began = time.monotonic()
        p.insert_large(2 * LARGE)
        p.insert(10 * number + 1, 10 * number + 3)
        p.wait_confirmed()
        waits.append(time.monotonic() - began)
    assert len(skipped(p)) == 3 and waits[0] > 5 and max(waits[1:]) < 5, waits


# Somebody writes records that grow beyond the limit, and are rejected for it. One that is half as large is not.
@pytest.mark.full
def test_record_far_below_the_limit_waits_for_its_own_time(make_pipeline, answering):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "6s")

    def insert(size):
        p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, 'k', 'Grows', %s)",
                  p.name, random.Random(size).randbytes(size))

    kafka.alter_topic(p.name, {"compression.type": "gzip", "max.message.bytes": str(LARGE)})
    for size in range(LARGE - 400, LARGE):  # the first that grows beyond it
        insert(size)
        p.wait_confirmed()
        if skipped(p):
            break
    before = len(skipped(p))
    answers.spoil(MSG_SIZE_TOO_LARGE, instead=True, larger_than=LARGE // 4)
    insert(LARGE // 2)
    servers.wait_for(lambda: answers.spoilt >= 5 or len(skipped(p)) > before, 60, "attempts")
    answers.stop()
    p.wait_confirmed()
    assert before and len(skipped(p)) == before


# What was said of the message of one key says nothing of another one's, since the limit was raised.
@pytest.mark.full
def test_message_of_another_key_waits_anew_after_the_limit_was_raised(make_pipeline, answering):
    kafka, answers = answering
    p = parked_behind(make_pipeline, kafka, unknown_topic_wait="10s", payload=random.Random(1).randbytes(2 * LARGE))
    park_behind(p, "l", payload=random.Random(2).randbytes(2 * LARGE))
    park_order_test.correct(p)
    kafka.alter_topic(p.name, {"compression.type": "gzip", "max.message.bytes": str(2 * LARGE + 5_000)})
    reject_large(answers)
    p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "60s", check=False)
    servers.wait_for(lambda: park_order_test.types(p) == ["e1", "e2"], 60, "the events before and behind the first message")
    kafka.alter_topic(p.name, {"compression.type": "gzip", "max.message.bytes": str(100 * LARGE)})
    before = answers.spoilt
    verb = threading.Thread(target=lambda: p.walpost.verb("dlq", "retry", "--key", "l", "--wait", "60s", check=False))
    verb.start()
    servers.wait_for(lambda: answers.spoilt >= before + 2, 60, "a late answer in company, and one alone")
    answers.stop()
    verb.join()
    assert park_order_test.types(p, "l") == ["e1", "m", "e2"]


# A broker that does not let walpost read the limits says nothing about partitions.
def test_row_that_names_a_missing_partition_is_decided_while_limits_are_answered_in_turn(make_pipeline, answering):
    kafka, answers = answering
    p = make_pipeline(on_kafka=kafka, create_topic=False, config={
        "outboxes": [{"table": "public.own", "preset": "debezium", "topic": "{aggregatetype}", "topics": {"allowed": ["*"]},
                      "columns": {"partition": "part"}}],
        "delivery": {"on_undeliverable": "skip", "unknown_topic_wait": "3s"}})
    kafka.create_topic(p.name, 1)
    p.execute("CREATE TABLE public.own (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text,"
              " payload text, part int, seq bigserial)")
    p.start()
    answers.limits_fail_every = 2
    p.execute("INSERT INTO public.own (aggregatetype, aggregateid, type, payload, part) VALUES (%s, 'k', 'T', 'x', 99)", p.name)
    servers.wait_for(lambda: skipped(p), 30, "the decision, which takes 3 s")


# Who writes rows that no topic takes holds up a verb for a bounded time.
@pytest.mark.parametrize("unanswered", [set(), {DESCRIBE_CONFIGS}], ids=["answered", "unanswered"])
def test_rows_that_are_rejected_for_reasons_that_take_turns_cost_a_verb_one_wait_each(make_pipeline, answering, unanswered):
    kafka, answers = answering
    p = make_pipeline(on_kafka=kafka, create_topic=False, config={
        "outboxes": [{"table": "public.own", "preset": "debezium", "topic": "{aggregatetype}", "topics": {"allowed": ["*"]},
                      "columns": {"partition": "part"}}],
        "delivery": {"on_undeliverable": "skip", "unknown_topic_wait": "2s"}})
    kafka.create_topic(p.name, 1, {"max.message.bytes": str(LARGE)})
    p.execute("CREATE TABLE public.own (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text,"
              " payload text, part int, seq bigserial)")
    p.start()
    p.execute("INSERT INTO public.own (aggregatetype, aggregateid, type, payload, part) SELECT %s, 'k', 'Taken by none',"
              " CASE n %% 2 WHEN 0 THEN repeat('x', %s) END, CASE n %% 2 WHEN 1 THEN 99 END FROM generate_series(1, 30) n", p.name, 2 * LARGE)
    p.wait_confirmed()
    answers.unanswered = unanswered
    began = time.monotonic()
    sent = p.walpost.verb("replay", "--all", "--in-place", "--table", "public.own", "--skip-undeliverable", check=False)
    assert "30 left out" in sent.stdout or unanswered, sent
    assert time.monotonic() - began < 30, "two waits of 2 s, each with a look that may take 5 s"


def test_verb_leaves_out_a_record_that_stays_too_large(make_pipeline, answering):
    kafka, answers = answering
    p = pipeline_on(make_pipeline, kafka, "2s")
    p.insert_large(2 * LARGE)
    p.wait_confirmed()
    reject_large(answers)
    sent = p.walpost.verb("replay", "--all", "--in-place", "--skip-undeliverable", check=False)
    assert sent.returncode == 0 and "left out" in sent.stdout + sent.stderr, sent
    assert answers.spoilt > 5


def test_message_is_not_overtaken_after_an_answer_that_is_not_about_it(make_pipeline, answering):
    kafka, answers = answering
    p = parked_behind(make_pipeline, kafka, payload=b"x" * LARGE)
    park_order_test.correct(p)
    answers.spoil(UNKNOWN_SERVER_ERROR, instead=True, larger_than=LARGE)
    failed = p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "60s", check=False)
    assert failed.returncode != 0, failed.stdout
    answers.stop()
    assert p.execute("SELECT event_type, parked FROM walpost.dead_letters WHERE closed_at IS NULL ORDER BY seq") == [("m", True), ("e2", True)]
    p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "60s")
    assert park_order_test.types(p) == ["e1", "m", "e2"]


# The broker packs a batch anew before it looks at its size, and what cannot be compressed grows. Its answer counts when it has
# lasted for unknown_topic_wait.
def test_message_that_grows_in_its_topic_keeps_no_key_parked(make_pipeline, kafka):
    p = parked_behind(make_pipeline, kafka, unknown_topic_wait="2s", payload=random.Random(1).randbytes(LARGE - 335))
    park_order_test.correct(p)
    kafka.alter_topic(p.name, {"compression.type": "gzip", "max.message.bytes": str(LARGE)})
    p.walpost.verb("dlq", "retry", "--key", "k", "--wait", "60s", check=False)
    servers.wait_for(lambda: park_order_test.types(p) == ["e1", "e2"], 60, "the events before and behind it")
    detail = p.execute("SELECT detail FROM walpost.dead_letters WHERE closed_at IS NULL")[0][0]
    assert "MSG_SIZE_TOO_LARGE" in detail, detail


# A writer of such events would hold up the topic again and again.
@pytest.mark.full
def test_events_that_grow_hold_up_their_topic_once(make_pipeline, kafka):
    p = pipeline_on(make_pipeline, kafka, "6s")

    def insert(number):
        p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, 'k', 'Grows', %s)",
                  p.name, random.Random(number).randbytes(LARGE))
        servers.wait_for(lambda: len(skipped(p)) == number + 1, 60, "the decision")

    kafka.alter_topic(p.name, {"max.message.bytes": "1000"})
    insert(0)
    size = int(re.search(r"the record of (\d+) bytes", skipped(p)[0]["msg"])[1])
    kafka.alter_topic(p.name, {"compression.type": "gzip", "max.message.bytes": str(size + 3)})
    number = 1
    insert(number)
    while "MSG_SIZE_TOO_LARGE" not in skipped(p)[-1]["msg"]:  # by the limit of before, which was read a moment ago
        number += 1
        insert(number)
    for later in range(number + 1, number + 4):
        p.insert(10 * later, 10 * later + 5)
        p.wait_confirmed()
        began = time.monotonic()
        insert(later)
        assert time.monotonic() - began < 5
