"""walpost dlq list, show, retry, discard: an operator's side of dead letters."""

import contextlib
import datetime
import json
import os
import signal
import subprocess
import threading

import psycopg2
import pytest
import servers
from rejecting import Rejecting

# murmur2("order-17") of four partitions.
PARTITION_OF_ORDER_17 = 1


def dlq(p, *arguments, exit_code=0):
    done = p.walpost.verb("dlq", *arguments, check=False)
    assert done.returncode == exit_code, f"dlq {arguments}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done


def listed(p, *arguments):
    return json.loads(dlq(p, "list", "--json", *arguments).stdout)


def headers_of(message):
    return {name: value.decode() for name, value in message.headers()}


def redelivered(kafka, topic):
    return [message for message in kafka.read_all(topic) if "walpost-redelivery" in headers_of(message)]


@pytest.fixture
def rejected(make_pipeline, kafka):
    """Ten rows, of which the broker has rejected two."""

    def make():
        rejecting = Rejecting(make_pipeline, kafka, on_undeliverable="dead_letter")
        rejecting.insert(1, 10, every=5)
        rejecting.pipeline.wait_confirmed()
        return rejecting

    return make


def test_dead_letters_are_listed_shown_and_sent_again_once_the_topic_takes_them(rejected, kafka):
    rejecting = rejected()
    p = rejecting.pipeline
    ids = [event for event, is_rejected in rejecting.rows() if is_rejected]

    table = dlq(p, "list").stdout
    print(table)
    assert all(event in table for event in ids) and table.endswith("2 dead letters\n")
    dead_letters = listed(p)
    assert [dead_letter["id"] for dead_letter in dead_letters] == ids
    assert {dead_letter["state"] for dead_letter in dead_letters} == {"dead_letter"}
    assert {dead_letter["topic"] for dead_letter in dead_letters} == {rejecting.topic}
    first = dead_letters[0]
    for matching in (["--id", ids[0]], ["--position", first["position"]]):
        assert [dead_letter["id"] for dead_letter in listed(p, *matching)] == ids[:1]
    for both in (["--topic", rejecting.topic], ["--reason", "record_invalid"], ["--since", "1h"],
                 ["--until", "2999-01-01T00:00:00Z"]):
        assert len(listed(p, *both)) == 2, both
    for none in (["--type", "Other"], ["--key", "key-1"], ["--reason", "row_invalid"], ["--until", "1h"]):
        assert listed(p, *none) == [], none
    assert len(listed(p, "--limit", "1")) == 1
    assert "no dead letter matches" in dlq(p, "list", "--type", "Other").stdout

    shown = dlq(p, "show", ids[0]).stdout
    print(shown)
    assert ids[0] in shown and "record_invalid" in shown and first["position"] in shown
    assert json.loads(dlq(p, "show", first["position"], "--json").stdout)["headers"] == [{"name": "id", "value": ids[0]}]
    assert dlq(p, "show", ids[0], "--payload").stdout == "5"

    output = dlq(p, "retry", "--all-undecided", "--dry-run").stdout
    print(output)
    assert output.count("would retry event") == 2 and not redelivered(kafka, rejecting.topic)
    still = dlq(p, "retry", "--all-undecided", "--wait", "90s", exit_code=75)
    assert still.stdout.count(": failed: ") == 2 and "still undecided: 2 dead letters" in still.stderr
    assert len(listed(p)) == 2

    kafka.alter_topic(rejecting.topic, {"cleanup.policy": "delete"})
    done = dlq(p, "retry", "--all-undecided").stdout
    print(done)
    again = redelivered(kafka, rejecting.topic)
    assert sorted(headers_of(message)["id"] for message in again) == sorted(ids)
    marks = headers_of(again[0])
    assert marks["walpost-redelivery"] == "dlq-retry" and "walpost-position" not in marks
    assert marks["walpost-original-position"] in {dead_letter["position"] for dead_letter in dead_letters}
    assert not any(name.startswith("walpost-dlq") for name in marks) and again[0].key() is None
    assert {message.value() for message in again} == {b"5", b"10"}
    assert dlq(p, "list").stdout == "there are no open dead letters\n"
    assert listed(p, "--all") == [], "what was sent again goes"
    assert "no open dead letter" in dlq(p, "retry", "--all-undecided").stdout


def test_discard_wants_a_confirmation_and_then_decides(rejected, kafka):
    rejecting = rejected()
    p = rejecting.pipeline
    first, second = (dead_letter["id"] for dead_letter in listed(p))
    asked = dlq(p, "discard", "--id", first, exit_code=64)
    assert "would discard" in asked.stdout and "--yes" in asked.stderr and len(listed(p)) == 2
    print(dlq(p, "discard", "--id", first, "--yes").stdout)
    assert [dead_letter["id"] for dead_letter in listed(p)] == [second]
    assert [dead_letter["state"] for dead_letter in listed(p, "--all")] == ["discarded", "dead_letter"]
    assert not redelivered(kafka, rejecting.topic)


def test_what_is_typed_wrongly_is_reported_with_what_is_right(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    for verb in (["list"], ["retry", "--all-undecided"], ["show", "x"]):
        assert "walpost init" in dlq(p, *verb, exit_code=78).stderr
    p.walpost.init()
    assert dlq(p, "list").stdout == "there are no open dead letters\n"
    assert "--all-undecided" in dlq(p, "retry", exit_code=64).stderr
    assert "--all-undecided" in dlq(p, "discard", "--yes", exit_code=64).stderr
    assert "record_too_large, record_invalid" in dlq(p, "list", "--reason", "too_large", exit_code=64).stderr
    assert "RFC 3339" in dlq(p, "list", "--since", "yesterday", exit_code=64).stderr
    assert "walpost-position" in dlq(p, "list", "--position", "12", exit_code=64).stderr
    assert "dlq list --all" in dlq(p, "show", "nobody", exit_code=64).stderr
    dlq(p, exit_code=64)
    dlq(p, "lst", exit_code=64)


@pytest.mark.full
def test_five_megabytes_are_sent_again_once_the_limit_is_raised(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}}).start()
    kafka.create_topic("large.orders", 4)
    p.insert_large(5_000_000, key="order-17", event_type="OrderPlaced", topic="large.orders")
    p.insert(1, 20, topic="large.orders")
    p.insert(21, 21, topic="no-such-topic")
    p.wait_confirmed()
    print(dlq(p, "list").stdout)
    (dead_letter,) = listed(p, "--type", "OrderPlaced")
    assert dead_letter["reason"] == "record_too_large" and dead_letter["key"] == "order-17" and dead_letter["value_bytes"] > 5_000_000
    print(dlq(p, "show", dead_letter["id"]).stdout)
    envelope = json.loads(dlq(p, "show", dead_letter["id"], "--payload").stdout)
    assert envelope["id"] == dead_letter["id"] and envelope["type"] == "OrderPlaced"
    still = dlq(p, "retry", "--key", "order-17", exit_code=75)
    print(still.stdout, still.stderr)
    kafka.alter_topic("large.orders", {"max.message.bytes": "10000000"})
    print(dlq(p, "retry", "--key", "order-17", "--dry-run").stdout)
    print(dlq(p, "retry", "--key", "order-17").stdout)
    (again,) = redelivered(kafka, "large.orders")
    assert again.partition() == PARTITION_OF_ORDER_17, "where Java puts its key"
    assert again.timestamp()[1] == json_time(dead_letter["event_time"], again.timestamp()[1])
    print(dlq(p, "discard", "--topic", "no-such-topic", exit_code=64))
    print(dlq(p, "discard", "--topic", "no-such-topic", "--yes").stdout)
    print(dlq(p, "list", "--all").stdout)
    assert listed(p) == []
    found = {dict(message.headers())["id"].decode() for message in kafka.read_all("large.orders")}
    assert len(found) == 21 and found < set(p.committed())


def json_time(text, milliseconds):
    """The exact time, when it is the one that was shown to the second."""
    shown = datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    return milliseconds if int(shown) == milliseconds // 1000 else text


def test_truncated_one_is_made_whole_from_its_row(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}}).start()
    p.allow_bad_topics()
    for number in range(1, 4):
        p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, content_type) VALUES"
                  f" ('00000000-0000-0000-0000-00000000000{number}', 'no such/topic', 'key-1', 'Created', '\\x00ff01', 'x/y')")
    p.wait_confirmed()
    one, two, three = (dead_letter["id"] for dead_letter in listed(p, "--reason", "row_invalid"))
    still = dlq(p, "retry", "--id", one, exit_code=75).stdout
    assert "still no event" in still and "no such/topic" in still
    p.execute("UPDATE outbox.events SET aggregate_type = %s WHERE id IN (%s, %s)", p.name, one, two)
    dlq(p, "retry", "--id", one)
    p.execute("DELETE FROM outbox.events WHERE id = %s", three)
    gone = dlq(p, "retry", "--all-undecided", exit_code=75)
    assert "no longer in table outbox.events" in gone.stdout and "1 dead letter" in gone.stderr
    records = {record.id: record for record in p.records()}
    assert set(records) == {one, two}
    for record in records.values():
        assert record.key == "key-1" and record.envelope.payload == b"\x00\xff\x01"
        assert record.envelope.content_type == "x/y" and record.envelope.position.commit_lsn > 0
        assert record.headers["walpost-redelivery"] == b"dlq-retry"
    dlq(p, "discard", "--id", three, "--yes")
    assert listed(p) == []


@pytest.mark.smoke
def test_event_of_an_ephemeral_table_is_sent_again_from_the_row_that_its_dead_letter_keeps(make_pipeline, kafka):
    def allowing(*topics):
        return {"outboxes": [{"topic": "{aggregate_type}", "topics": {"allowed": list(topics)}}],
                "delivery": {"on_undeliverable": "dead_letter", "dead_letter_topic": f"dead-{made.name}"}}

    made = p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    other = f"other-{p.name}"
    kafka.create_topic(other, partitions=1)
    p.walpost = p.another(config=allowing(p.name))
    p.walpost.init()
    p.walpost.start()
    p.execute("SELECT outbox.set_ephemeral(true)")
    insert = ("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, content_type, headers)"
              " VALUES (%s, 'key-1', 'Created', %s, 'x/y', '{\"tenant\": \"t\"}') RETURNING id::text")
    payload = b"\x00\xffsecret payload"
    (sent,), = p.execute(insert, other, payload)
    p.execute("SELECT outbox.set_payload_max(20000000)")
    (huge,), = p.execute(insert, other, b"x" * (9 << 20))
    p.wait_confirmed()
    assert p.execute("SELECT count(*) FROM outbox.events") == [(0,)]
    assert [dead_letter["reason"] for dead_letter in listed(p)] == ["topic_not_allowed"] * 2

    assert "secret" not in dlq(p, "show", sent).stdout
    assert json.loads(dlq(p, "show", sent, "--json").stdout)["value_bytes"] is None
    shown = json.loads(dlq(p, "show", sent, "--payload").stdout)
    assert shown["id"] == sent and shown["aggregate_type"] == other and shown["payload"] == "\\x" + payload.hex()
    assert all(message.value() is None for message in kafka.read_all(f"dead-{p.name}"))  # others may read that topic

    still = dlq(p, "retry", "--id", sent, exit_code=75).stdout
    assert "no longer in table outbox.events" in still and "still no event" in still and "topics.allowed" in still
    p.walpost.stop()
    p.walpost = p.another(config=allowing(p.name, other))
    p.walpost.start()
    dlq(p, "retry", "--id", sent)
    (message,) = kafka.read_all(other)
    envelope = servers.load_envelope().FromString(message.value())
    assert envelope.id == sent and envelope.payload == payload and envelope.content_type == "x/y"
    assert message.key() == b"key-1" and headers_of(message)["walpost-redelivery"] == "dlq-retry"
    assert "only `walpost dlq discard` is left" in dlq(p, "retry", "--id", huge, exit_code=75).stdout


def test_row_in_its_table_comes_before_the_one_that_its_dead_letter_keeps(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}}).start()
    p.allow_bad_topics()
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)"
              " VALUES ('no such/topic', 'key-1', 'Created', 'as it was')")
    p.wait_confirmed()
    (dead_letter,) = listed(p)
    p.execute("UPDATE outbox.events SET aggregate_type = %s, payload = 'corrected'", p.name)
    dlq(p, "retry", "--id", dead_letter["id"])
    (record,) = p.records()
    assert record.envelope.payload == b"corrected"


def test_row_that_row_security_hides_is_not_taken_for_deleted(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.verb("init", "--with-roles")
    p.allow_bad_topics()
    p.execute("ALTER TABLE outbox.events ENABLE ROW LEVEL SECURITY")
    p.walpost = p.another(conninfo=p.postgres.conninfo(p.database, user="outbox_relay"))
    p.walpost.start()
    p.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('no such/topic', 'key-1', 'Created')")
    p.wait_confirmed()
    (dead_letter,) = listed(p)
    hidden = p.walpost.verb("dlq", "retry", "--id", dead_letter["id"], check=False)
    said = hidden.stdout + hidden.stderr
    assert hidden.returncode != 0 and "row-level security" in said and "no longer in table" not in said
    p.execute("CREATE POLICY emit ON outbox.events FOR INSERT TO outbox_writer WITH CHECK (aggregate_type <> 'hidden')")
    p.execute("CREATE POLICY emitted ON outbox.events FOR SELECT TO outbox_writer USING (true)")
    p.execute(f"CREATE ROLE emitter_{p.name} LOGIN IN ROLE outbox_writer")
    writer = p.another(conninfo=p.postgres.conninfo(p.database, user=f"emitter_{p.name}"))
    p.execute(f"GRANT SELECT ON outbox.events TO emitter_{p.name}")  # of `walpost emit`, which prints the id
    assert writer.verb("emit", "--aggregate-type", p.name).returncode == 0
    rejected = writer.verb("emit", "--aggregate-type", "hidden", check=False)
    assert rejected.returncode != 0 and "row-level security" in rejected.stdout + rejected.stderr


POSITION = "00000000000000ff-00000001-00000000000000%02x-00000000"


def add(p, number, key, **columns):
    """Writes what `run` writes."""
    row = {"pipeline": p.name, "position": POSITION % number, "event_id": f"e{number}", "event_type": "Made", "source": "outbox.events",
           "topic": "orders", "event_time_ms": 0, "key": key, "value": b"v", "header_names": [], "header_values": [], "value_schema": "",
           "reason": "key_parked", "detail": "", "attempts": 0, "parked": True, **columns}
    p.execute(f"INSERT INTO walpost.dead_letters ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))})", *row.values())


@pytest.fixture
def parked(make_pipeline, kafka):
    """Two parked events of key k and one of key l; nobody runs."""
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.init()
    for number, key in enumerate([b"k", b"k", b"l"]):
        add(p, number, key)
    return p


def test_decisions_about_parked_keys_stay_without_run(parked, kafka):
    p = parked
    assert "3 parked events of 2 keys" in dlq(p, "list").stdout
    asked = dlq(p, "retry", "--id", "e1", "--wait", "1s", exit_code=75)
    assert "the decision stays" in asked.stdout and "the whole of it" in asked.stdout
    assert "2 decisions that `walpost run` has not carried out" in dlq(p, "list").stdout
    dlq(p, "discard", "--id", "e1", "--yes", "--wait", "1s", exit_code=75)
    assert [row["decision"] for row in listed(p)] == ["retry", "discard", None]
    assert "not parked" in dlq(p, "retry", "--key", "k", "--to-topic", "x", exit_code=78).stderr


def test_nothing_that_a_writer_chose_is_obeyed_by_the_terminal(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.init()
    evil = "\x1b[2J\u009b1m\nall is well"
    add(p, 1, evil.encode(), event_id=evil + "1", event_type=evil, topic=evil, detail=evil)
    add(p, 2, None, event_id=evil + "2", parked=False, topic=evil, detail=evil)
    printed = dlq(p, "list").stdout + dlq(p, "show", evil + "1").stdout
    printed += dlq(p, "retry", "--all-undecided", "--dry-run").stdout
    printed += dlq(p, "retry", "--all-undecided", "--wait", "1s", exit_code=75).stdout
    printed += dlq(p, "show", evil + "3", exit_code=64).stderr
    assert "\\x1b[2J" in printed and "\nall is well" not in printed
    assert not [c for c in printed if c != "\n" and (ord(c) < 0x20 or 0x7f <= ord(c) < 0xa0)], printed


def test_run_carries_out_what_was_decided_before_it_started(parked, kafka):
    p = parked
    kafka.create_topic("orders", 4)
    dlq(p, "retry", "--id", "e1", "--wait", "1s", exit_code=75)
    p.walpost.start()
    servers.wait_for(lambda: [row["id"] for row in listed(p)] == ["e2"], 60, "the key to be sent")


def test_rows_of_another_cluster_do_not_count_and_are_named(parked, kafka):
    p = parked
    p.execute("UPDATE walpost.dead_letters SET system_identifier = 1")
    assert "3 rows of another cluster" in dlq(p, "list").stdout
    p.walpost.start()
    assert p.walpost.status()["events"]["parked_keys"] == 0


@pytest.mark.parametrize("verb", [["audit"], ["replay", "--missing", "--in-place"]], ids=lambda verb: verb[0])
def test_event_that_is_released_while_a_verb_looks_for_it_is_not_missing(make_pipeline, kafka, verb):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "park", "unknown_topic_wait": "100ms"}}).start()
    late = p.name + ".late"
    p.insert(1, 3)
    p.insert(4, 4, topic=late)
    p.wait_confirmed()
    kafka.create_topic(late, 1)
    with contextlib.closing(p.postgres.connect(p.database, autocommit=False)) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE walpost.dead_letters IN ACCESS EXCLUSIVE MODE")
        looking = subprocess.Popen([servers.walpost_binary(), "--config", str(p.walpost.file), *verb],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # `run` asks for open rows, too.
        servers.wait_for(lambda: p.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                                           " AND datname = current_database()")[0][0] == 2, 60, "both to wait for the lock")
        os.kill(looking.pid, signal.SIGSTOP)
        connection.rollback()
    try:
        dlq(p, "retry", "--all-undecided")
        assert len(kafka.read_all(late)) == 1 and p.execute("SELECT count(*) FROM walpost.dead_letters") == [(0,)]
    finally:
        os.kill(looking.pid, signal.SIGCONT)
    out, err = looking.communicate(timeout=60)
    assert looking.returncode == 0, (out, err)
    assert len(kafka.read_all(late)) == 1, "not sent a second time"


def test_parked_key_is_sent_in_order_by_run_while_it_receives_more(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "park"}}).start()
    p.insert_large(2_000_000)
    p.insert(1, 30, keys=3)
    p.wait_confirmed()
    assert "11 parked events of 1 key" in dlq(p, "list").stdout
    assert len(listed(p, "--reason", "key_parked")) == 10
    still = dlq(p, "retry", "--key", "key-1", exit_code=75)
    assert "failed: " in still.stdout and len(listed(p)) == 11
    kafka.alter_topic(p.name, {"max.message.bytes": "10000000"})
    p.insert(31, 60, keys=3)
    answers = []

    def delivered():
        answers.append(p.walpost.verb("dlq", "retry", "--type", "Large", check=False))
        return answers[-1].returncode == 0

    servers.wait_for(delivered, 90, "run to see the new limit")
    print([answer.stdout for answer in answers])
    assert "the whole of it" in answers[-1].stdout and ": delivered" in answers[-1].stdout
    assert listed(p) == []
    p.insert(61, 90, keys=3)
    p.wait_confirmed()
    order = [record.id for record in p.records() if record.key == "key-1"]
    expected = [row[0] for row in p.execute("SELECT id::text FROM outbox.events WHERE aggregate_id = 'key-1' ORDER BY seq")]
    assert list(dict.fromkeys(order)) == expected, "each in commit order; repeats only after a crash or a failed retry"


def test_skipped_transactions_are_no_event_to_send(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.init()
    add(p, 1, None, reason="transactions_skipped", truncated_bytes=0, source="", topic="", event_id="", parked=False)
    assert len(listed(p, "--reason", "transactions_skipped")) == 1
    assert "about no single event" in dlq(p, "retry", "--reason", "transactions_skipped", exit_code=75).stdout
    for verb in (["retry"], ["discard", "--yes"]):
        for chosen in (["--all-undecided"], ["--since", "1h"]):
            assert "left as it is, transactions_skipped" in dlq(p, *verb, *chosen, exit_code=0).stdout
    assert len(listed(p)) == 1


def test_operator_decides_and_cannot_change_what_is_sent_nor_send_it_where_no_event_goes(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.verb("init", "--with-roles")
    for number in range(3):
        add(p, number, b"k", parked=False, topic=p.name)
    p.execute("DO $$ BEGIN CREATE ROLE undeliverables LOGIN IN ROLE outbox_operator; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    conninfo = p.postgres.conninfo(p.database, user="undeliverables")
    with contextlib.closing(psycopg2.connect(conninfo)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        for change in ("UPDATE walpost.dead_letters SET value = 'forged'", "UPDATE walpost.dead_letters SET topic = 'elsewhere'",
                       "UPDATE walpost.dead_letters SET parked = true", "UPDATE walpost.dead_letters SET decided_by = 'another'",
                       "UPDATE walpost.dead_letters SET closed_at = now()", "DELETE FROM walpost.dead_letters",
                       "INSERT INTO walpost.dead_letters SELECT FROM walpost.dead_letters"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(change)
        with pytest.raises(psycopg2.errors.CheckViolation):
            cursor.execute("UPDATE walpost.dead_letters SET send_to = repeat('a', 250)")
        cursor.execute("UPDATE walpost.dead_letters SET send_to = repeat('a', 249)")
    p.walpost.start()
    operator = p.another(conninfo=conninfo)

    def decide(*arguments):
        return operator.verb("dlq", *arguments, check=False)

    progress = f"walpost.progress.{p.name}"
    before = len(kafka.read_all(progress))
    rejected = decide("retry", "--id", "e0", "--to-topic", progress)
    assert rejected.returncode == 75 and progress in rejected.stdout
    assert decide("retry", "--id", "e1").returncode == 0
    assert decide("discard", "--id", "e2", "--yes").returncode == 0
    assert p.execute("SELECT decided_by FROM walpost.dead_letters WHERE event_id = 'e2'") == [("undeliverables",)]
    with contextlib.closing(psycopg2.connect(conninfo)) as connection, connection.cursor() as cursor:
        with pytest.raises(psycopg2.errors.RaiseException, match="was closed"):
            cursor.execute("UPDATE walpost.dead_letters SET decision = 'retry' WHERE event_id = 'e2'")
    assert [row["id"] for row in listed(p)] == ["e0"] and len(kafka.read_all(p.name)) == 1
    assert all(message.value() != b"v" for message in kafka.read_all(progress)[before:])


def verb_that_waits(p, *arguments):
    """A decision that nobody has carried out yet."""
    verb = subprocess.Popen([servers.walpost_binary(), "--config", str(p.walpost.file), "dlq", *arguments, "--wait", "60s"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    servers.wait_for(lambda: p.execute("SELECT 1 FROM walpost.dead_letters WHERE decision = %s AND closed_at IS NULL", arguments[0]), 60,
                     "the decision")
    return verb


def answer_of(verb):
    out, err = verb.communicate(timeout=60)
    return verb.returncode, out + err


def test_verb_answers_for_no_other_decision_than_its_own(parked, kafka):
    p = parked
    retry = verb_that_waits(p, "retry", "--key", "l")
    p.execute("UPDATE walpost.dead_letters SET decision = 'discard', closed_at = now() WHERE event_id = 'e2'")
    code, text = answer_of(retry)
    assert code == 75 and "discarded meanwhile by postgres" in text and ": delivered" not in text, text
    discard = verb_that_waits(p, "discard", "--key", "k", "--yes")
    # As `run` does with what it has just sent.
    p.execute("DELETE FROM walpost.dead_letters WHERE event_id = 'e0'")
    p.execute("UPDATE walpost.dead_letters SET closed_at = now() WHERE event_id = 'e1'")
    code, text = answer_of(discard)
    assert code == 75 and "not discarded: 1 of 2 " in text and "decided otherwise meanwhile" in text, text


# Nobody who decided has seen them, and nothing is wrong with them.
def test_discard_of_a_key_is_not_about_events_that_come_later(make_pipeline, kafka):
    p = make_pipeline(create_topic=False, config={"delivery": {"on_undeliverable": "park"}})
    kafka.create_topic(p.name, 1, {"max.message.bytes": "200000"})
    p.start()
    p.insert_large(300_000, key="key-0")
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    assert p.walpost.verb("dlq", "discard", "--key", "key-0", "--yes", "--wait", "0s", check=False).returncode == 75
    p.insert(1, 500, keys=1)
    p.walpost.start()
    p.wait_confirmed()
    servers.wait_for(lambda: p.execute("SELECT count(*) FROM walpost.dead_letters WHERE closed_at IS NULL") == [(0,)], 60, "open rows")
    later = [row[0] for row in p.execute("SELECT id::text FROM outbox.events WHERE event_type <> 'Large' ORDER BY seq")]
    assert [record.id for record in p.records()] == later


def park_a_key(p, topic):
    """Five events of one key, whose topic is missing."""
    p.start()
    p.insert(1, 5, keys=1, topic=topic)
    p.wait_confirmed()
    assert {letter["state"] for letter in listed(p)} == {"parked"}
    return [letter["id"] for letter in listed(p)]


def retry_and_let_it_begin(p, topic):
    """`run` looks for decisions once a second."""
    dlq(p, "retry", "--topic", topic, "--wait", "0s", exit_code=75)
    servers.wait_for(lambda: p.execute("SELECT bool_and(decided_at < now() - interval '3 s') FROM walpost.dead_letters"
                                       " WHERE topic = %s AND closed_at IS NULL", topic) == [(True,)], 20, "the retry to have begun")


@pytest.mark.full
def test_key_that_is_discarded_while_its_retry_waits_for_kafka_is_not_sent(make_pipeline, workspace):
    kafka = workspace.kafka()
    p = make_pipeline(on_kafka=kafka, config={"delivery": {"on_undeliverable": "park", "unknown_topic_wait": "100ms"}})
    missing = p.name + ".missing"
    ids = park_a_key(p, missing)
    kafka.create_topic(missing, 1)
    # The sink believes for some seconds that it is missing.
    servers.wait_for(lambda: p.execute("SELECT max(written_at) < now() - interval '7 s' FROM walpost.dead_letters") == [(True,)], 20, "it")
    kafka.kill9()
    retry_and_let_it_begin(p, missing)
    p.walpost.verb("dlq", "discard", "--topic", missing, "--yes", "--wait", "0s", check=False)
    kafka.start()
    servers.wait_for(lambda: listed(p) == [], 60, "the decisions to be carried out")
    sent = [headers_of(message)["id"] for message in kafka.read_all(missing)]
    assert set(sent) <= set(ids[:1]), "the first one may have been on its way"
    discarded = [letter["id"] for letter in listed(p, "--all") if letter["state"] == "discarded"]
    assert discarded in (ids, ids[1:])
    p.insert(6, 6, keys=1, topic=missing)
    p.wait_confirmed()
    assert len(kafka.read_all(missing)) == len(sent) + 1


def test_discard_of_a_key_whose_retry_just_fails_discards_all_of_it(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "park", "unknown_topic_wait": "100ms"}})
    missing = p.name + ".missing"
    ids = park_a_key(p, missing)
    retry_and_let_it_begin(p, missing)
    assert dlq(p, "discard", "--topic", missing, "--yes").stdout.endswith(": discarded\n")
    assert [letter["id"] for letter in listed(p, "--all") if letter["state"] == "discarded"] == ids
    kafka.create_topic(missing, 1)
    p.insert(1, 1)
    p.wait_confirmed()
    assert kafka.read_all(missing) == [] and p.walpost.status()["events"]["parked_keys"] == 0


def test_letter_whose_partition_is_nowhere_is_sent_to_another_topic_by_its_key(make_pipeline, kafka):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.init()
    kafka.create_topic(p.name + ".quarantine", 1)
    add(p, 1, b"k", parked=False, topic=p.name, partition=7, reason="partition_unknown")
    p.walpost.start()
    assert "has no partition 7" in dlq(p, "retry", "--all-undecided", exit_code=75).stdout
    dlq(p, "retry", "--all-undecided", "--to-topic", p.name + ".quarantine")
    assert len(kafka.read_all(p.name + ".quarantine")) == 1


@pytest.mark.full
def test_hundred_large_keys_are_read_a_few_at_a_time(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "dead_letter"}})
    p.walpost.init()
    for number in range(60):
        add(p, number, b"%02d" % number + b"k" * 5_000_000, parked=number % 2 == 0)
    for verb in (["list"], ["retry", "--type", "none"], ["discard", "--all-undecided", "--dry-run"]):
        assert peak_of(p, "dlq", *verb) < 200 * 2**20, verb
    assert peak_of(p, "audit") < 200 * 2**20


def peak_of(p, *arguments):
    """The memory of a verb, in bytes."""
    code, _, peak = servers.run_and_watch_memory([servers.walpost_binary(), "--config", str(p.walpost.file), *arguments])
    assert code == 0, (arguments, code)
    return peak
