"""What consumers find: each value format, and each way to choose topic, partition, time and headers, record by record."""

import base64
import collections
import datetime
import json

import pytest
import servers
from rejecting import dead_letters
from confluent_kafka import TIMESTAMP_CREATE_TIME

TABLE = """CREATE TABLE public.{} (
    id uuid PRIMARY KEY, seq bigint GENERATED ALWAYS AS IDENTITY, aggregate_type text NOT NULL, aggregate_id text NOT NULL,
    event_type text NOT NULL, payload {}, content_type text, schema_name text, headers jsonb, traceparent text,
    tracestate text, baggage text, tracingspancontext text, occurred_at timestamptz, target text, part int, tenant text)"""
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CLOUDEVENTS = {"binary": "ce_binary", "structured_protobuf": "ce_protobuf", "structured_json": "ce_json"}
ENVELOPE_HEADER = "application/protobuf; proto=walpost.v1.Envelope"
Arrived = collections.namedtuple("Arrived", "topic partition key value headers timestamp_ms")


class World:
    """One walpost with a table for each format; what arrived, by event id."""

    def __init__(self, pipeline, kafka):
        self.pipeline, self.kafka, self.number = pipeline, kafka, 0

    def insert(self, table, **columns):
        self.number += 1
        row = {"id": f"00000000-0000-0000-0000-{self.number:012}", "aggregate_type": "order", "aggregate_id": "42",
               "event_type": "OrderPlaced", **columns}
        marks = ", ".join(["%s"] * len(row))
        self.pipeline.execute(f"INSERT INTO public.{table} ({', '.join(row)}) VALUES ({marks})", *row.values())
        return row["id"]

    def arrived(self, *topics):
        self.pipeline.wait_confirmed()
        found = {}
        for topic in topics:
            for message in self.kafka.read_all(f"{self.pipeline.name}.{topic}"):
                headers = [(name, value.decode()) for name, value in message.headers()]
                assert message.timestamp()[0] == TIMESTAMP_CREATE_TIME
                event = dict(headers)["id"]
                assert event not in found, "each once"
                found[event] = Arrived(topic, message.partition(), message.key(), message.value(), headers, message.timestamp()[1])
        return found

    def dead_letters(self):
        self.pipeline.wait_confirmed()
        return {row["event_id"]: row for row, _, _ in dead_letters(self.pipeline)}


@pytest.fixture
def world(make_pipeline, kafka):
    columns = {"baggage": "baggage", "tracingspancontext": "tracingspancontext"}
    # The name of the pipeline, which the topics carry, is known only when it is made.
    p = make_pipeline(create_topic=False)
    outboxes = [{"table": "public.routed", "topic": p.name + ".{aggregate_type}", "value": {"format": "raw"},
                 "columns": {**columns, "topic": "target", "partition": "part", "timestamp": "occurred_at"},
                 "topics": {"allowed": [f"{p.name}.order", f"{p.name}.special", f"{p.name}.mapped"],
                            "by_aggregate_type": {"cart": f"{p.name}.mapped"}},
                 "record_headers": {"tenant": "tenant"}, "constant_headers": {"env": "test", "empty": ""}},
                {"table": "public.enveloped", "topic": f"{p.name}.enveloped", "columns": columns},
                {"table": "public.textual", "topic": f"{p.name}.textual",
                 "value": {"format": "cloudevents", "cloudevents": {"mode": "structured_json"}}}]
    outboxes += [{"table": f"public.{table}", "topic": f"{p.name}.{table}", "columns": columns,
                  "value": {"format": "cloudevents", "cloudevents": {"mode": mode, "source": "https://shop.example/orders"}}}
                 for mode, table in CLOUDEVENTS.items()]
    for outbox in outboxes:
        table = outbox["table"].split(".")[1]
        p.execute(TABLE.format(table, "jsonb" if table == "textual" else "bytea"))
    for topic in ("order", "special", "mapped", "enveloped", "textual", *CLOUDEVENTS.values()):
        kafka.create_topic(f"{p.name}.{topic}", 4)
    p.walpost = p.another(config={"outboxes": outboxes, "delivery": {"on_undeliverable": "dead_letter"}})
    p.start()
    return World(p, kafka)


def milliseconds(time):
    return int(time.timestamp() * 1000)


def test_routing_headers_and_rejections(world):
    now = datetime.datetime.now(datetime.timezone.utc)
    occurred = now - datetime.timedelta(hours=1)
    plain = world.insert("routed", payload=b"\x00\xff", occurred_at=occurred, tenant="a", content_type="application/x-own",
                         headers='{"n": 1.50, "b": true, "none": null}', traceparent=TRACE, tracestate="x=y", baggage="k=v,l=w")
    special = world.insert("routed", payload=b"x", target=f"{world.pipeline.name}.special", part=3,
                           tracingspancontext=f"#of Java\ntraceparent={TRACE}\n")
    mapped = world.insert("routed", payload=None, aggregate_type="cart")
    typo = world.insert("routed", payload=b"x", aggregate_type="ordr")
    nowhere = world.insert("routed", payload=b"x", part=99)
    negative = world.insert("routed", payload=b"x", part=-1)
    illegal = world.insert("routed", payload=b"x", aggregate_type="or der")
    ancient = world.insert("routed", payload=b"x", occurred_at=datetime.datetime(1960, 1, 1, tzinfo=datetime.timezone.utc))
    found = world.arrived("order", "special", "mapped")

    one = found[plain]
    assert (one.topic, one.key, one.value) == ("order", b"42", b"\x00\xff")
    assert one.timestamp_ms == milliseconds(occurred)
    headers = dict(one.headers)
    assert len(headers["walpost-position"]) == 51
    assert [pair for pair in one.headers if pair[0] != "walpost-position"] == [
        ("id", plain), ("type", "OrderPlaced"), ("content-type", "application/x-own"), ("traceparent", TRACE),
        ("tracestate", "x=y"), ("baggage", "k=v,l=w"), ("env", "test"), ("empty", ""), ("tenant", "a"), ("b", "true"), ("n", "1.50")]

    assert (found[special].topic, found[special].partition) == ("special", 3)
    headers = dict(found[special].headers)
    assert headers["traceparent"] == TRACE and headers["tracingspancontext"] == f"#of Java\ntraceparent={TRACE}\n"
    assert "tenant" not in headers and "baggage" not in headers

    assert found[mapped].topic == "mapped" and found[mapped].value is None, "a tombstone"
    assert milliseconds(now) - 60_000 <= found[mapped].timestamp_ms, "of the commit, since occurred_at is NULL"
    # Not before 1970, and not so old that retention deletes it at once.
    assert found[ancient].timestamp_ms >= 1

    rows = world.dead_letters()
    assert {event: row["reason"] for event, row in rows.items()} == {
        typo: "topic_not_allowed", nowhere: "partition_unknown", negative: "row_invalid", illegal: "row_invalid"}
    assert f"'{world.pipeline.name}.ordr'" in rows[typo]["detail"]
    assert "has no partition 99, only 4" in rows[nowhere]["detail"]
    assert set(found) == {plain, special, mapped, ancient}


def insert_all_kinds(world, table):
    """One event of each kind of payload: {kind: (id, payload)}."""
    inner = servers.load_envelope()(id="inner", type="ä").SerializeToString()
    occurred = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=datetime.timezone.utc)
    kinds = {
        "json": (b'{"total": 1.50, "b": [1, null], "a": "\xc3\xa4\\n"}',
                 {"content_type": "application/json", "schema_name": "https://shop.example/order.json", "occurred_at": occurred,
                  "traceparent": TRACE, "tracestate": "x=y", "headers": '{"own": "1"}'}),
        "text": ('"Grüße"\n'.encode(), {"content_type": "text/plain; charset=UTF-8"}),
        "protobuf": (inner, {"content_type": "application/protobuf", "schema_name": "walpost.v1.Envelope"}),
        "bytes": (b"\x00\xff", {"content_type": "image/x-own"}),
        "null": (None, {"content_type": "application/json"}),
    }
    return {kind: (world.insert(table, payload=payload, **columns), payload) for kind, (payload, columns) in kinds.items()}


def attributes_expected(kind, event, record):
    headers = dict(record.headers)
    expected = {"specversion": "1.0", "id": event, "source": "https://shop.example/orders", "type": "OrderPlaced",
                "subject": "42", "partitionkey": "42", "sequence": headers["walpost-position"]}
    content_type = {"json": "application/json", "null": "application/json", "text": "text/plain; charset=UTF-8",
                    "protobuf": "application/protobuf", "bytes": "image/x-own"}
    expected["datacontenttype"] = content_type[kind]
    if kind == "json":
        expected.update(dataschema="https://shop.example/order.json", time="2024-02-29T12:00:00.123456Z", traceparent=TRACE,
                        tracestate="x=y")
    return expected


def judge_attributes(kind, event, record, attributes):
    attributes = dict(attributes)
    recorded = datetime.datetime.fromisoformat(attributes.pop("recordedtime").replace("Z", "+00:00"))
    assert milliseconds(recorded) == record.timestamp_ms, "both are the time of the commit"
    assert attributes == attributes_expected(kind, event, record)
    headers = dict(record.headers)
    assert record.key == b"42" and headers["id"] == event and headers["type"] == "OrderPlaced"
    assert headers.get("own") == ("1" if kind == "json" else None)
    assert headers.get("traceparent") == (TRACE if kind == "json" else None)


def test_cloudevents_binary(world):
    kinds = insert_all_kinds(world, "ce_binary")
    found = world.arrived("ce_binary")
    for kind, (event, payload) in kinds.items():
        record = found.pop(event)
        assert record.value == payload
        attributes = {name[3:]: value for name, value in record.headers if name.startswith("ce_")}
        attributes["datacontenttype"] = dict(record.headers)["content-type"]
        judge_attributes(kind, event, record, attributes)
    assert not found


def value_text(value):
    which = value.WhichOneof("attr")
    if which == "ce_timestamp":
        return value.ce_timestamp.ToJsonString()
    assert which in ("ce_string", "ce_uri")
    return getattr(value, which)


def test_cloudevents_protobuf(world):
    kinds = insert_all_kinds(world, "ce_protobuf")
    found = world.arrived("ce_protobuf")
    for kind, (event, payload) in kinds.items():
        record = found.pop(event)
        assert dict(record.headers)["content-type"] == "application/cloudevents+protobuf"
        cloud_event = servers.load_cloud_event().FromString(record.value)
        attributes = {name: value_text(value) for name, value in cloud_event.attributes.items()}
        attributes.update(id=cloud_event.id, source=cloud_event.source, type=cloud_event.type, specversion=cloud_event.spec_version)
        assert "dataschema" not in attributes or cloud_event.attributes["dataschema"].ce_uri
        assert cloud_event.attributes["recordedtime"].HasField("ce_timestamp")
        attributes["recordedtime"] = cloud_event.attributes["recordedtime"].ce_timestamp.ToJsonString()
        judge_attributes(kind, event, record, attributes)
        assert cloud_event.WhichOneof("data") == {"json": "text_data", "text": "text_data", "protobuf": "proto_data",
                                                  "bytes": "binary_data", "null": None}[kind]
        if kind == "protobuf":
            inner = servers.load_envelope()()
            assert cloud_event.proto_data.type_url == "type.googleapis.com/walpost.v1.Envelope"
            assert cloud_event.proto_data.Unpack(inner) and inner.id == "inner"
        elif kind != "null":
            data = getattr(cloud_event, cloud_event.WhichOneof("data"))
            assert (data.encode() if isinstance(data, str) else data) == payload
    assert not found


def test_cloudevents_json(world):
    kinds = insert_all_kinds(world, "ce_json")
    broken = world.insert("ce_json", payload=b"{", content_type="application/json")
    nameless = world.insert("ce_json", payload=b"{}", content_type="application/json", event_type="")
    column = world.insert("textual", payload='{"a": 1.50}')
    found = world.arrived("ce_json", "textual")
    assert world.dead_letters()[broken]["reason"] == "payload_invalid"
    row = world.dead_letters()[nameless]
    assert row["reason"] == "cloudevent_invalid" and "it has no type" in row["detail"]

    record = found.pop(column)
    content = json.loads(record.value)
    assert content["datacontenttype"] == "application/json" and content["data"] == {"a": 1.5}
    assert content["source"] == f"/{world.pipeline.database}/public/textual", "the default"
    for kind, (event, payload) in kinds.items():
        record = found.pop(event)
        assert dict(record.headers)["content-type"] == "application/cloudevents+json; charset=UTF-8"
        attributes = json.loads(record.value)
        data, coded = attributes.pop("data", None), attributes.pop("data_base64", None)
        judge_attributes(kind, event, record, attributes)
        if kind == "json":
            assert data == json.loads(payload) and payload in record.value, "as it is, digit by digit"
        elif kind == "text":
            assert data == payload.decode() and coded is None
        elif kind == "null":
            assert data is None and coded is None
        else:
            assert data is None and base64.b64decode(coded) == payload
    assert not found


def test_envelope(world):
    kinds = insert_all_kinds(world, "enveloped")
    found = world.arrived("enveloped")
    for kind, (event, payload) in kinds.items():
        record = found.pop(event)
        envelope = servers.load_envelope().FromString(record.value)
        assert envelope.id == event and envelope.HasField("payload") == (payload is not None)
        assert envelope.payload == (payload or b"")
        assert dict(record.headers)["content-type"] == ENVELOPE_HEADER
        assert dict(envelope.headers) == ({"own": "1"} if kind == "json" else {})
    assert not found
