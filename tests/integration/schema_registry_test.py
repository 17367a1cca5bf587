"""Values with schemas of a Schema Registry: what goes out, and what happens while the registry is away, rejects or babbles."""

import base64
import json
import signal
import subprocess
import time

import pytest
import servers
from rejecting import dead_letters
from mock_registry import MockRegistry

TABLE = """CREATE TABLE public.{} (
    id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload bytea,
    schema_name text, seq bigint GENERATED ALWAYS AS IDENTITY)"""
PROTO = """syntax = "proto3";
package shop.v1;
message OrderPlaced { string order_id = 1; }
message OrderShipped {
  message Parcel { string number = 1; }
  string order_id = 1;
}
"""
PLACED, SHIPPED, PARCEL = "shop.v1.OrderPlaced", "shop.v1.OrderShipped", "shop.v1.OrderShipped.Parcel"
HEADER = "__value_schema_id"
# Zig-zag varints, with their number before them.
INDEXES = {PLACED: b"\x00", SHIPPED: b"\x02\x02", PARCEL: b"\x04\x02\x00"}


@pytest.fixture
def registry():
    mock = MockRegistry().start()
    yield mock
    mock.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """(path of the descriptor set, its file as a registry gets it, the same as text)"""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.proto").write_text(PROTO)
    subprocess.run(["protoc", f"-I{folder}", "--include_imports", f"--descriptor_set_out={folder}/shop.pb", "shop.proto"], check=True)
    folder.chmod(0o755)
    return f"{folder}/shop.pb", exact(f"{folder}/shop.pb"), PROTO


def exact(path):
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorSet.FromString(open(path, "rb").read()).file[0]
    for message in file.message_type:
        for each in (message, *message.nested_type):
            for field in each.field:
                field.ClearField("json_name")
    return base64.b64encode(file.SerializeToString()).decode()


class World:
    """A table for each value given as schema_registry, and its topic."""

    def __init__(self, make_pipeline, kafka, registry, tables, **delivery):
        self.kafka, self.registry, self.number = kafka, registry, 0
        self.p = make_pipeline(create_topic=False)
        outboxes = []
        for table, (value_format, framing) in tables.items():
            self.p.execute(TABLE.format(table))
            kafka.create_topic(self.topic(table), 2)
            outboxes.append({"table": f"public.{table}", "topic": self.topic(table),
                             "value": {"format": value_format, "schema_registry": framing}})
        self.p.walpost = self.p.another(config={"outboxes": outboxes, "schema_registry": registry.config(),
                                                "delivery": delivery})

    def topic(self, table):
        return f"{self.p.name}.{table}"

    def insert(self, table, schema_name=None, payload=b"payload", key="42"):
        self.number += 1
        event = f"00000000-0000-0000-0000-{self.number:012}"
        self.p.execute(f"INSERT INTO public.{table} (id, aggregate_type, aggregate_id, event_type, payload, schema_name)"
                       " VALUES (%s, 'order', %s, 'Tested', %s, %s)", event, key, payload, schema_name)
        return event

    def read(self, topic):
        return self.kafka.read_all(topic)

    def values(self, table):
        return [message.value() for message in self.read(self.topic(table))]

    def dead_letters(self):
        return [(value, row) for row, _, value in dead_letters(self.p)]

    def wait_reported(self, event, words="", count=1):
        servers.wait_for(lambda: len([line for line in self.logged(event) if words in line]) >= count, 60, f"{event}: {words}")

    def logged(self, event):
        return [line["msg"] for line in self.p.walpost.log_events() if line["event"] == event]

    def wait_dead_letters(self, count):
        servers.wait_for(lambda: self.p.walpost.status()["events"]["dead_lettered"] + self.p.walpost.status()["events"]["parked"] >= count,
                         60, f"{count} dead letters")


def payload_frame(schema_id, record=None):
    return b"\x00" + schema_id.to_bytes(4, "big") + (INDEXES[record] if record else b"")


def test_each_kind_of_value_has_its_frame(make_pipeline, kafka, registry, shop):
    path, file, text = shop
    world = World(make_pipeline, kafka, registry, {
        "exact": ("raw", {"framing": "payload", "descriptor_set": path}),
        "headers": ("raw", {"framing": "header", "descriptor_set": path, "subject": "record"}),
        "newest": ("raw", {"framing": "payload", "subject": "topic"}),
        "json": ("raw", {"framing": "payload", "subject": "topic", "type": "json"}),
        "events": ("cloudevents", {"framing": "header", "subject": "x/{record}"}),
        "enveloped": ("envelope", {"framing": "payload", "auto_register": True}),
    })
    for record in (PLACED, SHIPPED, PARCEL):
        registry.register(f"{world.topic('exact')}-{record}", file)
        registry.register(record, file)
        registry.register(f"x/{record}", text)
    registry.register(f"{world.topic('newest')}-value", text)
    registry.register(f"{world.topic('json')}-value", '{"type": "object"}', "JSON")
    world.p.start()
    for record in (PLACED, SHIPPED, PARCEL):
        for table in ("exact", "headers", "newest", "events"):
            world.insert(table, record, record.encode())
    world.insert("exact", PLACED, None)
    world.insert("json", None, b"{}")
    world.insert("enveloped", None, b"x")
    world.p.wait_confirmed()

    ids = registry.id_of
    records = (PLACED, SHIPPED, PARCEL)
    assert world.values("exact") == [payload_frame(ids(f"{world.topic('exact')}-{r}"), r) + r.encode() for r in records] + [None]
    assert world.values("newest") == [payload_frame(ids(f"{world.topic('newest')}-value"), r) + r.encode() for r in records]
    assert world.values("json") == [payload_frame(ids(f"{world.topic('json')}-value")) + b"{}"]
    for table, prefix in (("headers", ""), ("events", "x/")):
        messages = world.read(world.topic(table))
        assert [message.value() for message in messages] == [r.encode() for r in records], "as it is"
        for record, message in zip(records, messages):
            assert message.headers()[-1] == (HEADER, b"\x01" + registry.guid(ids(prefix + record)).bytes + INDEXES[record])
    (enveloped,) = world.values("enveloped")
    assert enveloped[:6] == payload_frame(ids(f"{world.topic('enveloped')}-walpost.v1.Envelope")) + b"\x00"
    assert servers.load_envelope().FromString(enveloped[6:]).payload == b"x"
    registered = [line for line in registry.asked if line.startswith("POST /subjects/") and line.endswith("/versions")]
    assert registered == [f"POST /subjects/{world.topic('enveloped')}-walpost.v1.Envelope/versions"], "nothing else"
    metrics = world.p.walpost.get("/metrics")[1]
    assert 'walpost_schema_lookups_total{pipeline="' in metrics and world.p.walpost.status()["schemas"]["failures"] == 0


# Failures 89, 90.
def test_registry_that_is_away_or_babbles_is_waited_for_and_what_is_known_goes_on(make_pipeline, kafka, registry, shop):
    path, file, _ = shop
    world = World(make_pipeline, kafka, registry, {"exact": ("raw", {"framing": "payload", "descriptor_set": path})},
                  on_undeliverable="dead_letter")
    subject = world.topic("exact")
    for record in (PLACED, SHIPPED):
        registry.register(f"{subject}-{record}", file)
    registry.close()
    world.p.walpost.init()
    before = world.p.slot()["confirmed"]
    world.p.walpost.start()
    world.insert("exact", PLACED, b"1")
    lsn = world.p.wal_position()
    world.wait_reported("schema_registry_unavailable", "cannot be reached")
    servers.wait_for(lambda: "cannot be reached" in (world.p.walpost.status()["last_error"] or ""), 30, "last_error")

    for fault, words in (("unauthorized", "lets walpost not in (HTTP 401)"), ("garbage", "is no Schema Registry"), ("error", "answers 500")):
        registry.fault = fault
        if registry.server is None:
            registry.start()
        world.wait_reported("schema_registry_unavailable", words)
    assert world.values("exact") == [] and world.p.slot()["confirmed"] < lsn and world.dead_letters() == []
    assert before <= world.p.slot()["confirmed"]

    registry.fault = None
    world.wait_reported("schema_registry_back")
    world.p.wait_confirmed()
    one = payload_frame(registry.id_of(f"{subject}-{PLACED}"), PLACED)
    assert world.values("exact") == [one + b"1"]

    registry.close()
    world.insert("exact", PLACED, b"2")
    world.p.wait_confirmed()
    assert world.values("exact") == [one + b"1", one + b"2"], "known already"
    world.insert("exact", SHIPPED, b"3")
    world.insert("exact", PLACED, b"4")
    world.wait_reported("schema_registry_unavailable", "cannot be reached", 2)
    assert world.values("exact") == [one + b"1", one + b"2"], "the line stops"
    registry.start()
    world.p.wait_confirmed()
    two = payload_frame(registry.id_of(f"{subject}-{SHIPPED}"), SHIPPED)
    assert world.values("exact") == [one + b"1", one + b"2", two + b"3", one + b"4"], "in order"
    assert "s3cret" not in world.p.walpost.log_text()
    assert world.p.walpost.stop() == 0


# Failure 91.
def test_rejected_schemas_become_dead_letters_and_go_out_framed_once_they_are_registered(make_pipeline, kafka, registry, shop):
    path, file, _ = shop
    world = World(make_pipeline, kafka, registry, {
        "exact": ("raw", {"framing": "payload", "descriptor_set": path}),
        "auto": ("raw", {"framing": "header", "descriptor_set": path, "auto_register": True})}, on_undeliverable="dead_letter")
    missing, incompatible = f"{world.topic('exact')}-{SHIPPED}", f"{world.topic('auto')}-{SHIPPED}"
    registry.register(incompatible, "an older one")
    registry.incompatible.add(incompatible)
    world.p.start()
    events = [world.insert("exact", SHIPPED, b"one"), world.insert("auto", SHIPPED, b"two"),
              world.insert("exact", "shop.v1.Typo", b"three"), world.insert("exact", None, b"four")]
    world.wait_dead_letters(4)
    world.p.wait_confirmed()
    # What is no record at all is decided at once, while the others wait for the registry.
    by_event = {row["event_id"]: (value, row) for value, row in world.dead_letters()}
    assert {event: by_event[event][1]["reason"] for event in events} == dict(
        zip(events, ["schema_rejected", "schema_rejected", "schema_rejected", "schema_name_invalid"]))
    value, row = by_event[events[0]]
    assert value == b"one", "as the application wrote it"
    assert row["value_schema"] == f"payload protobuf {SHIPPED} {missing}"
    assert f"Subject '{missing}' not found" in row["detail"] and "register it" in row["detail"]
    assert "the field 'total' was removed" in by_event[events[1]][1]["detail"]
    assert by_event[events[1]][0] == b"two"
    assert "declares no message shop.v1.Typo" in by_event[events[2]][1]["detail"]
    assert "its schema_name is empty" in by_event[events[3]][1]["detail"]
    assert f"payload protobuf {SHIPPED}" in world.p.walpost.verb("dlq", "show", events[0]).stdout

    registry.close()
    retried = world.p.walpost.verb("dlq", "retry", "--id", events[0], "--wait", "2s", check=False)
    assert retried.returncode == 75 and "the decision stays" in retried.stdout, "while the registry is away it waits"
    registry.start()
    retried = world.p.walpost.verb("dlq", "retry", "--id", events[0], check=False)
    assert retried.returncode == 75 and "register it" in retried.stdout
    registry.register(missing, file)
    world.p.walpost.verb("dlq", "retry", "--id", events[0])
    (message,) = world.read(world.topic("exact"))
    assert message.value() == payload_frame(registry.id_of(missing), SHIPPED) + b"one"
    assert dict(message.headers())["walpost-redelivery"] == b"dlq-retry"
    registry.incompatible.clear()
    world.p.walpost.verb("dlq", "retry", "--id", events[1])
    (message,) = world.read(world.topic("auto"))
    assert message.value() == b"two"
    assert dict(message.headers())[HEADER] == b"\x01" + registry.guid(registry.id_of(incompatible)).bytes + INDEXES[SHIPPED]
    # From its row, which was fixed.
    world.p.execute("UPDATE public.exact SET schema_name = %s WHERE id = %s", SHIPPED, events[3])
    world.p.walpost.verb("dlq", "retry", "--id", events[3])
    assert world.values("exact") == [payload_frame(registry.id_of(missing), SHIPPED) + value for value in (b"one", b"four")]


def test_schema_that_is_too_deep_or_too_large_is_rejected_and_walpost_goes_on(make_pipeline, kafka, registry):
    world = World(make_pipeline, kafka, registry, {"newest": ("raw", {"framing": "payload", "subject": "{record}"})},
                  on_undeliverable="dead_letter")
    deep = 16_000
    texts = {"deep.Comment": "message A{/*}*/" * deep + "}" * deep, "deep.Error": "}" * deep + "message A{" * deep,
             "deep.Option": "option (o) = {" + "m<" * deep + ">" * deep + "};", "large.One": PROTO + " " * 300_000}
    for record, text in (*texts.items(), (PLACED, PROTO)):
        registry.register(record, text)
    world.p.start()
    events = [world.insert("newest", record, b"x") for record in texts]
    world.insert("newest", PLACED, b"1")
    world.wait_dead_letters(len(texts))
    world.p.wait_confirmed()
    assert {row["event_id"]: row["reason"] for _, row in world.dead_letters()} == dict.fromkeys(events, "schema_rejected")
    assert world.values("newest") == [payload_frame(registry.id_of(PLACED), PLACED) + b"1"]
    assert world.p.walpost.stop() == 0


# As `run` does it.
def test_verbs_leave_out_rows_whose_schema_is_rejected(make_pipeline, kafka, registry):
    world = World(make_pipeline, kafka, registry, {"exact": ("raw", {"framing": "payload", "type": "json", "subject": "{record}"})},
                  on_undeliverable="skip")
    registry.register("known.One", "{}", "JSON")
    registry.register("other.Type", PROTO)
    world.p.start()
    world.insert("exact", "known.One", b"1")
    bad = [world.insert("exact", name, b"x") for name in ("..", "not.Registered", "other.Type")]
    world.insert("exact", "known.One", b"2")
    world.p.wait_confirmed()
    replayed = world.p.walpost.verb("replay", "--all", "--in-place", check=False)
    assert replayed.returncode != 0 and bad[0] in replayed.stderr and "--skip-undeliverable" in replayed.stderr
    registry.asked.clear()
    replayed = world.p.walpost.verb("replay", "--all", "--in-place", "--skip-undeliverable", check=False)
    assert replayed.returncode == 65 and all(event in replayed.stderr for event in bad), replayed
    assert "2 events sent, 1 left out, since they can be no records" in replayed.stdout, replayed
    assert "2 left out, since there was no schema for them" in replayed.stdout, replayed
    assert sum("not.Registered" in line for line in registry.asked) == 1, "asked once"
    assert world.p.walpost.stop() == 0
    recreated = world.p.walpost.verb("slot", "recreate", "--yes", "--skip-undeliverable", "--send-unproven", check=False)
    assert recreated.returncode == 65 and "2 left out, since there was no schema" in recreated.stdout, recreated
    world.p.walpost.start()
    world.insert("exact", "known.One", b"3")
    world.p.wait_confirmed()
    assert world.p.walpost.stop() == 0


def test_backfill_that_goes_on_ends_as_one_that_left_out_rows_before(make_pipeline, kafka, registry):
    framing = ("raw", {"framing": "payload", "type": "json", "subject": "{record}"})
    world = World(make_pipeline, kafka, registry, {"aone": framing, "btwo": framing})
    for table in ("aone", "btwo"):
        world.p.execute(f"ALTER TABLE public.{table} ADD tx xid8 NOT NULL DEFAULT pg_current_xact_id()")
    registry.forbidden.add("secret.One")
    world.insert("aone", "not.Registered")
    world.insert("btwo", "secret.One")

    def backfill():
        made = world.p.execute("SELECT to_regclass('walpost.pipeline')")[0][0]
        return str(world.p.execute("SELECT backfill FROM walpost.pipeline")) if made else ""

    command = [servers.walpost_binary(), "--config", str(world.p.walpost.file), "init", "--backfill", "--skip-undeliverable"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as waits:
        servers.wait_for(lambda: "done" in backfill(), 60, "the first table")
        waits.kill()
    registry.forbidden.clear()
    registry.register("secret.One", "{}", "JSON")
    done = world.p.walpost.verb("init", "--backfill", "--skip-undeliverable", check=False)
    assert done.returncode == 65 and "public.aone was sent before, 1 left out then" in done.stdout, done
    assert "public.btwo: 1 event sent" in done.stdout and len(world.values("btwo")) == 1, done


# It says nothing about a row.
def test_verbs_reject_a_descriptor_set_that_cannot_be_read_and_change_nothing(make_pipeline, kafka, registry, shop, tmp_path):
    path, file, _ = shop
    used = tmp_path / "used.pb"
    used.write_bytes(open(path, "rb").read())
    world = World(make_pipeline, kafka, registry, {"exact": ("raw", {"framing": "payload", "descriptor_set": str(used)})})
    registry.register(f"{world.topic('exact')}-{PLACED}", file)
    world.p.start()
    world.insert("exact", PLACED, b"1")
    world.p.wait_confirmed()
    used.write_bytes(b"")

    def rejects(*verb):
        done = world.p.walpost.verb(*verb, "--skip-undeliverable", check=False)
        assert done.returncode not in (0, 65) and str(used) in done.stderr, done

    rejects("replay", "--all", "--in-place")
    assert world.p.walpost.stop() == 0
    world.insert("exact", PLACED, b"2")
    before = world.p.slot()
    rejects("slot", "recreate", "--yes", "--send-unproven")
    assert world.p.slot() == before and len(world.values("exact")) == 1


# Whoever writes events chooses the subject, and must not stop the others without end.
@pytest.mark.full
def test_subject_that_may_not_be_read_holds_up_the_line_for_a_minute_at_most(make_pipeline, kafka, registry, shop):
    world = World(make_pipeline, kafka, registry, {"exact": ("raw", {"framing": "payload", "type": "json", "subject": "{record}"})},
                  on_undeliverable="dead_letter")
    registry.register("known.One", "{}", "JSON")
    registry.forbidden |= {"secret.One", "secret.Two"}
    world.p.start()
    world.insert("exact", "known.One", b"1")
    events = [world.insert("exact", name, b"x") for name in ("..", "secret.One", "secret.Two")]
    world.insert("exact", "known.One", b"2")
    lsn = world.p.wal_position()
    world.wait_reported("schema_registry_unavailable", "not about subject 'secret.One'")
    servers.wait_for(lambda: len(world.values("exact")) == 2, 120, "the event behind them")
    world.wait_dead_letters(3)
    assert {row["event_id"]: row["reason"] for _, row in world.dead_letters()} == dict.fromkeys(events, "schema_rejected")
    servers.wait_for(lambda: world.p.slot()["confirmed"] >= lsn, 30, "confirmed")
    rejected = world.p.walpost.verb("replay", "--id", events[1], "--in-place", check=False)
    assert rejected.returncode == 75 and "secret.One" in rejected.stderr, "says nothing about the row"
    began = time.monotonic()
    replayed = world.p.walpost.verb("replay", "--all", "--in-place", "--skip-undeliverable", check=False)
    assert replayed.returncode == 65 and "2 events sent" in replayed.stdout, replayed
    assert "2 left out, since there was no schema for them" in replayed.stdout, replayed
    assert 60 < time.monotonic() - began < 90, "a minute once for both"
    assert not any("/versions/latest" in line and "subjects" not in line for line in registry.asked), "'..' was asked for"


# They fill the window, so that all wait for them.
@pytest.mark.full
def test_many_subjects_that_may_not_be_read_delay_others_by_little_more_than_one(make_pipeline, kafka, registry):
    world = World(make_pipeline, kafka, registry, {"exact": ("raw", {"framing": "payload", "type": "json", "subject": "{record}"}),
                                                   "other": ("raw", {"framing": "none"})},
                  on_undeliverable="skip", in_flight_bytes_max="100KiB")
    names, others = 200, 500
    registry.forbidden |= {f"secret.N{n}" for n in range(names)}
    world.p.start()
    into = "INSERT INTO public.{} (id, aggregate_type, aggregate_id, event_type, payload, schema_name) SELECT gen_random_uuid(), 'o', 'k', 'T', 'x', 'secret.N' || n FROM generate_series(0, %s) n"
    world.p.execute(into.format("exact"), names - 1)
    world.p.execute(into.format("other"), others - 1)
    servers.wait_for(lambda: world.p.walpost.status()["events"]["skipped"] == names, 300, "less than 5 s for each")
    servers.wait_for(lambda: len(world.values("other")) == others, 60, "the other outbox's")


def test_parked_key_waits_for_its_schema_and_is_released_framed(make_pipeline, kafka, registry, shop):
    path, file, _ = shop
    world = World(make_pipeline, kafka, registry, {"exact": ("raw", {"framing": "payload", "descriptor_set": path})},
                  on_undeliverable="park")
    subject = world.topic("exact")
    registry.register(f"{subject}-{PLACED}", file)
    world.p.start()
    world.insert("exact", SHIPPED, b"1")
    world.insert("exact", PLACED, b"2")
    world.insert("exact", PLACED, b"other", key="other")
    world.wait_dead_letters(2)
    world.p.wait_confirmed()
    placed = payload_frame(registry.id_of(f"{subject}-{PLACED}"), PLACED)
    assert world.values("exact") == [placed + b"other"]
    assert [value for value, _ in world.dead_letters()] == [b"1", b"2"]
    registry.register(f"{subject}-{SHIPPED}", file)
    done = world.p.walpost.verb("dlq", "retry", "--key", "42", "--wait", "60s")
    print(done.stdout)
    shipped = payload_frame(registry.id_of(f"{subject}-{SHIPPED}"), SHIPPED)
    of_key = [message.value() for message in world.read(subject) if message.key() == b"42"]
    assert of_key == [shipped + b"1", placed + b"2"]


def test_halt_is_looked_at_again_on_sighup(make_pipeline, kafka, registry, shop):
    path, file, _ = shop
    world = World(make_pipeline, kafka, registry, {"exact": ("raw", {"framing": "payload", "descriptor_set": path})})
    world.p.start()
    world.insert("exact", PLACED, b"1")
    world.p.walpost.wait_state("halted")
    halt = world.p.walpost.status()["halt"]
    assert halt["reason"] == "undeliverable_event" and f"Subject '{world.topic('exact')}-{PLACED}' not found" in halt["detail"]
    registry.register(f"{world.topic('exact')}-{PLACED}", file)
    world.p.walpost.signal(signal.SIGHUP)
    world.p.wait_confirmed()
    assert world.values("exact") == [payload_frame(registry.id_of(f"{world.topic('exact')}-{PLACED}"), PLACED) + b"1"]


def test_check_shows_what_the_registry_says(make_pipeline, kafka, registry, shop):
    path, file, _ = shop
    world = World(make_pipeline, kafka, registry, {"exact": ("raw", {"framing": "payload", "descriptor_set": path}),
                                                   "newest": ("raw", {"framing": "payload"})})
    world.p.walpost.init()
    assert "✓ schema registry: answers at " in world.p.walpost.verb("check").stdout

    def check(exit_code=0):
        done = world.p.walpost.verb("check", "--schemas", "--json", check=False)
        assert done.returncode == exit_code, done.stdout + done.stderr
        return {line["check"]: (line["level"], line["text"]) for line in json.loads(done.stdout)}

    subject = world.topic("exact")
    lines = check()
    assert lines["schemas of public.exact"][0] == "warning" and f"{subject}-{PLACED}" in lines["schemas of public.exact"][1]
    assert lines["schemas of public.newest"][1].startswith("not checked: rows name the messages")
    registry.register(f"{subject}-{PLACED}", file)
    registry.register(f"{subject}-{SHIPPED}", "an older one")
    lines = check()
    assert lines[f"subject {subject}-{PLACED}, {PLACED}"][0] == "ok"
    assert lines[f"subject {subject}-{SHIPPED}, {SHIPPED}"][0] == "warning"
    assert "not registered yet, and compatible" in lines[f"subject {subject}-{SHIPPED}, {SHIPPED}"][1]
    registry.incompatible.add(f"{subject}-{SHIPPED}")
    lines = check(exit_code=78)
    assert "the field 'total' was removed" in lines[f"subject {subject}-{SHIPPED}, {SHIPPED}"][1]
    assert not [line for line in registry.asked if line.endswith("/versions")], "it registers nothing"
    registry.fault = "unauthorized"
    assert "lets walpost not in" in check(exit_code=69)["schema registry"][1]
    registry.close()
    assert "cannot be reached" in check(exit_code=69)["schema registry"][1]


def make_certificates(folder):
    """Of 127.0.0.1 and of a client, signed by one authority; and another authority, which signed nothing."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for authority in ("ca", "stranger"):
        openssl(*new, "-subj", f"/CN={authority}", "-keyout", f"{authority}.key", "-out", f"{authority}.pem")
    for name in ("server", "client"):
        openssl(*new, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
                "-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    folder.chmod(0o755)
    for key in folder.glob("*.key"):
        key.chmod(0o644)


def test_tls_client_certificates_and_token_are_used_and_a_stranger_is_distinguished(make_pipeline, kafka, shop, tmp_path):
    make_certificates(tmp_path)
    registry = MockRegistry(tls=(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.pem")).start()
    try:
        path, file, _ = shop
        ours = {"certificate_file": f"{tmp_path}/client.pem", "key_file": f"{tmp_path}/client.key"}
        registry.config = lambda plain=registry.config: plain(ca_file=f"{tmp_path}/ca.pem", **ours)
        world = World(make_pipeline, kafka, registry, {"exact": ("raw", {"framing": "payload", "descriptor_set": path})})
        subject = f"{world.topic('exact')}-{PLACED}"
        registry.register(subject, file)
        world.p.start()
        world.insert("exact", PLACED, b"1")
        world.p.wait_confirmed()
        assert world.values("exact") == [payload_frame(registry.id_of(subject), PLACED) + b"1"]

        def rejected(**other):
            config = {**registry.config(), **other}
            done = world.p.another(config={"schema_registry": config}).verb("check", "--json", check=False)
            assert done.returncode == 69, done.stdout + done.stderr
            return {line["check"]: line["text"] for line in json.loads(done.stdout)}["schema registry"]

        assert "certificate" in rejected(ca_file=f"{tmp_path}/stranger.pem")
        assert "cannot be reached" in rejected(certificate_file="", key_file="")
        assert "lets walpost not in (HTTP 401)" in rejected(token="other")
        assert "t0ken" not in world.p.walpost.log_text()
    finally:
        registry.close()
