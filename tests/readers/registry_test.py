"""What Confluent's deserializers read from what walpost wrote, with the schemas of a real registry.

Apicurio has no GUIDs, so `framing: header` is read with the registry that Confluent's client brings for tests.
"""

import base64
import json
import struct
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
import pipeline  # noqa: E402 - the path above makes it importable
import registry  # noqa: E402
import rows  # noqa: E402
import servers  # noqa: E402
import tools  # noqa: E402

NAME = "registry"
PLACED, LINE, SHIPPED, ENVELOPE = ("shop.v1.OrderPlaced", "shop.v1.OrderPlaced.Line", "shop.v1.OrderShipped", "walpost.v1.Envelope")
# The path to the message as zig-zag varints, with their number before them.
PATHS = {PLACED: b"\x00", LINE: b"\x04\x00\x00", SHIPPED: b"\x02\x02", ENVELOPE: b"\x00", "json": b"", "avro": b""}
JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Cart", "type": "object",
               "properties": {"cart": {"type": "string"}, "total": {"type": "number"}}, "required": ["cart"]}
AVRO_SCHEMA = {"type": "record", "name": "Login", "namespace": "shop.v1",
               "fields": [{"name": "user", "type": "string"}, {"name": "tries", "type": "int"}]}
DESCRIPTORS = "of shop.proto"
# By topic: kind of deserializer, value, and options of value.schema_registry.
TOPICS = {
    "own": ("protobuf", {"format": "raw"}, {"auto_register": True, "descriptor_set": DESCRIPTORS}),
    "theirs": ("protobuf", {"format": "raw"}, {"descriptor_set": DESCRIPTORS}),
    "text": ("generated", {"format": "raw"}, {"subject": "topic"}),
    "binary": ("protobuf", {"format": "cloudevents"}, {"subject": "record", "auto_register": True, "descriptor_set": DESCRIPTORS}),
    "envelope": ("protobuf", {"format": "envelope"}, {"auto_register": True}),
    "json": ("json", {"format": "raw"}, {"subject": "topic", "type": "json"}),
    "avro": ("avro", {"format": "raw"}, {"subject": "topic", "type": "avro"}),
}


def messages(generated):
    """{name: (bytes, what a reader shall see)}, by the classes that protoc generates."""
    shop = tools.load(generated / "shop_pb2.py")
    placed = shop.OrderPlaced(order="ä-1", lines=[shop.OrderPlaced.Line(article="tea ☃", pieces=3)])
    placed.at.FromJsonString("2024-02-29T12:00:00.123456Z")
    line = shop.OrderPlaced.Line(article="cup", pieces=-1)
    return {
        PLACED: (placed.SerializeToString(), {"order": "ä-1", "lines": [{"article": "tea ☃", "pieces": 3}], "at": "2024-02-29T12:00:00.123456Z"}),
        LINE: (line.SerializeToString(), {"article": "cup", "pieces": -1}),
        SHIPPED: (shop.OrderShipped(order="2", weight_g=2**60).SerializeToString(), {"order": "2", "weight_g": str(2**60)}),
    }


def avro_login(user, tries):
    """Lengths and numbers are zig-zag varints; these are small."""
    return bytes([len(user.encode()) * 2]) + user.encode() + bytes([tries * 2])


class World:
    """One registry, one walpost with a table and a topic for each way to use it, and rows in them."""

    def __init__(self, workspace, reader, framing):
        self.url, self.messages = reader.url, reader.messages
        self.kafka = workspace.kafka()
        descriptors = workspace.path / "shop.pb"
        subprocess.run(["protoc", f"-I{HERE}", "--include_imports", f"--descriptor_set_out={descriptors}", "shop.proto"], check=True)
        self.register("text-value", (HERE / "shop.proto").read_text(encoding="utf-8"), "PROTOBUF")
        self.register("json-value", json.dumps(JSON_SCHEMA), "JSON")
        self.register("avro-value", json.dumps(AVRO_SCHEMA), "AVRO")
        outboxes = []
        for topic, (_, value, options) in TOPICS.items():
            schema = {"framing": framing, **options}
            if "descriptor_set" in schema:
                schema["descriptor_set"] = str(descriptors)
            outboxes.append({"table": f"public.{topic}", "topic": topic, "value": {**value, "schema_registry": schema}})
            self.kafka.create_topic(topic, 2)
        self.pipeline = pipeline.Pipeline(NAME, workspace.postgres(), self.kafka, workspace,
                                          {"config": {"outboxes": outboxes, "schema_registry": {"url": self.url}}})
        for topic in TOPICS:
            self.pipeline.execute(rows.TABLE.format(topic, "bytea"))
        self.pipeline.start()
        self.expected = {}
        for topic in TOPICS:
            self.fill(topic)
        self.pipeline.wait_confirmed()

    def send(self, method, path, body):
        request = urllib.request.Request(self.url + path, method=method, data=json.dumps(body).encode(),
                                         headers={"Content-Type": "application/vnd.schemaregistry.v1+json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def register(self, subject, schema, schema_type):
        self.send("POST", f"/subjects/{subject}/versions", {"schema": schema, "schemaType": schema_type})

    def latest(self, subject):
        with urllib.request.urlopen(f"{self.url}/subjects/{subject}/versions/latest", timeout=30) as answer:
            return json.loads(answer.read())

    def fill(self, topic):
        if topic == "json":
            self.insert(topic, "json", b'{"cart": "\xc3\xa4", "total": 1.5}', {"cart": "ä", "total": 1.5})
            self.insert(topic, "json", b'{"cart": "2"}', {"cart": "2"})
        elif topic == "avro":
            self.insert(topic, "avro", avro_login("zoë", 3), {"user": "zoë", "tries": 3})
        else:
            for name, (payload, value) in self.messages.items():
                self.insert(topic, name, payload, value)
        if topic != "envelope":
            self.insert(topic, topic if topic in PATHS else PLACED, None, None)  # a tombstone

    def insert(self, topic, name, payload, value):
        # The header `type` says which class the reader uses; an envelope is one whatever is in it.
        event_type = ENVELOPE if topic == "envelope" else name
        event, = self.pipeline.execute(f"INSERT INTO public.{topic} (event_type, schema_name, payload, content_type) VALUES (%s, %s, %s, %s)"
                                       " RETURNING id::text", event_type, name if "." in name else None, payload, "application/protobuf")[0]
        self.expected[topic, event] = (event_type, payload, value)

    def subject(self, topic, event_type):
        template = TOPICS[topic][2].get("subject", "topic_record")
        return {"topic": f"{topic}-value", "record": event_type, "topic_record": f"{topic}-{event_type}"}[template]


class Reader:
    """read_registry.py, which has registered the schemas of the topic `theirs`."""

    def __init__(self, workspace, url):
        generated = tools.generate("python", workspace.path / "python")
        self.messages = messages(generated)
        self.process = subprocess.Popen([str(tools.python()), str(HERE / "read_registry.py"), str(generated), url],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        payloads = {name: base64.b64encode(payload).decode() for name, (payload, _) in self.messages.items()}
        self.process.stdin.write(json.dumps(payloads) + "\n")
        self.process.stdin.flush()
        first = self.process.stdout.readline()
        assert first, self.process.stderr.read()[-3000:]
        self.url = json.loads(first)["url"]
        self.serialized = {name: base64.b64decode(content) for name, content in json.loads(first)["serialized"].items()}

    def read(self, kafka):
        """{(topic, event id): record} of all topics."""
        topics = " ".join(f"{kind}={topic}" for topic, (kind, _, _) in TOPICS.items())
        stdout, stderr = self.process.communicate(f"{kafka.bootstrap} {topics}\n", timeout=120)
        assert self.process.returncode == 0, stderr[-3000:]
        found = {}
        for line in stdout.splitlines():
            record = json.loads(line)
            assert (record["topic"], record["id"]) not in found, "each once"
            record["headers"] = {name: base64.b64decode(value) for name, value in record["headers"]}
            record["raw"] = None if record["raw"] is None else base64.b64decode(record["raw"])
            found[record["topic"], record["id"]] = record
        return found

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def with_apicurio():
    with servers.Workspace() as workspace:
        server = workspace.add(registry.Registry(workspace.path / "registry")).start()
        reader = workspace.add(Reader(workspace, server.url))
        world = World(workspace, reader, "payload")
        yield world, reader.read(world.kafka), reader.serialized


@pytest.fixture(scope="module")
def with_confluents():
    with servers.Workspace() as workspace:
        reader = workspace.add(Reader(workspace, "confluent"))
        world = World(workspace, reader, "header")
        schemas = {place: world.latest(world.subject(place[0], event_type)) for place, (event_type, _, _) in world.expected.items()}
        yield world, reader.read(world.kafka), schemas


def judge_values(world, found):
    """What the deserializers make of the records is what was written in the table."""
    assert set(found) == set(world.expected)
    for place, (event_type, payload, value) in world.expected.items():
        if event_type == ENVELOPE:
            inner = found[place]["value"]
            assert inner["id"] == place[1] and base64.b64decode(inner["payload"]) == payload
        else:
            assert found[place]["value"] == value, place


def test_framing_payload_is_read_with_the_schemas_of_apicurio(with_apicurio):
    world, found, _ = with_apicurio
    judge_values(world, found)


def test_framing_payload_is_the_id_of_the_subject_and_the_path_before_the_value(with_apicurio):
    world, found, _ = with_apicurio
    for (topic, event), (event_type, payload, _) in world.expected.items():
        raw = found[topic, event]["raw"]
        if payload is None:
            assert raw is None
            continue
        prefix = b"\x00" + struct.pack(">i", world.latest(world.subject(topic, event_type))["id"]) + PATHS[event_type]
        assert raw.startswith(prefix), (topic, event_type, raw[:10])
        assert topic == "envelope" or raw == prefix + payload
        assert "__value_schema_id" not in found[topic, event]["headers"]


def test_framing_payload_is_what_confluents_serializer_writes(with_apicurio):
    world, found, serialized = with_apicurio
    compared = {event_type: found[place]["raw"] for place, (event_type, payload, _) in world.expected.items()
                if place[0] == "theirs" and payload is not None}
    assert compared == serialized and len(serialized) == 3


def test_check_says_what_apicurio_would_reject(with_apicurio, tmp_path):
    world, _, _ = with_apicurio
    world.send("PUT", f"/config/own-{PLACED}", {"compatibility": "BACKWARD"})
    text = (HERE / "shop.proto").read_text(encoding="utf-8")
    for field, code, verdict in (("string order = 1; string note = 9;", 0, "not registered yet, and compatible"),
                                 ("int32 order = 1;", 78, "not compatible with the newest version")):
        (tmp_path / "shop.proto").write_text(text.replace("string order = 1;", field), encoding="utf-8")
        subprocess.run(["protoc", f"-I{tmp_path}", "--include_imports", f"--descriptor_set_out={tmp_path}/shop.pb", "shop.proto"], check=True)
        outbox = {"table": "public.own", "topic": "own", "value": {"format": "raw", "schema_registry": {
            "framing": "payload", "descriptor_set": f"{tmp_path}/shop.pb"}}}
        done = world.pipeline.another(config={"outboxes": [outbox], "schema_registry": {"url": world.url}}).verb(
            "check", "--schemas", check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert f"own-{PLACED}, {PLACED}: {verdict}" in done.stdout
    assert world.latest(f"own-{PLACED}")["version"] == 1, "nothing was registered"


def test_framing_header_is_read_with_the_schemas_of_confluents_registry(with_confluents):
    world, found, _ = with_confluents
    judge_values(world, found)


def test_framing_header_is_the_guid_of_the_schema_and_the_value_stays_as_it_is(with_confluents):
    world, found, schemas = with_confluents
    for (topic, event), (event_type, payload, _) in world.expected.items():
        record = found[topic, event]
        if topic != "envelope":
            assert record["raw"] == payload
        header = record["headers"].get("__value_schema_id")
        guid = bytes.fromhex(schemas[topic, event]["guid"].replace("-", ""))
        assert header == (None if payload is None else b"\x01" + guid + PATHS[event_type])
