"""A consumer in Python: reads topics to their ends and prints what it sees, one line of JSON for each record.

    read.py GENERATED BOOTSTRAP KIND=TOPIC...

GENERATED is where protoc wrote the classes; KIND is envelope, protobuf (CloudEvent), binary or structured (CloudEvents SDK).
Runs with the packages of requirements.lock, not with Debian's.
"""

import base64
import datetime
import importlib.util
import json
import sys
from pathlib import Path

from cloudevents.core.bindings import kafka
from confluent_kafka import Consumer, KafkaException, TopicPartition
from google.protobuf import unknown_fields


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def load(path):
    """A generated module by its path: a package called io is Python's own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def records(bootstrap, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "python", "enable.auto.commit": False})
    try:
        ends = {}
        for number in consumer.list_topics(topic, timeout=20).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
            if high > low:
                ends[number] = high
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        while ends:
            for message in consumer.consume(500, timeout=1):
                if message.error():
                    raise KafkaException(message.error())
                yield message
                if message.offset() + 1 >= ends[message.partition()]:
                    del ends[message.partition()]
    finally:
        consumer.close()


def coded(data):
    return None if data is None else base64.b64encode(data).decode()


def micros(time):
    return time.seconds * 1_000_000 + time.nanos // 1_000


def envelope(generated):
    envelope_class = load(generated / "walpost" / "v1" / "envelope_pb2.py").Envelope

    def read(message):
        one = envelope_class.FromString(message.value())
        return {
            "id": one.id, "type": one.type, "aggregate_type": one.aggregate_type,
            "aggregate_id": one.aggregate_id if one.HasField("aggregate_id") else None,
            "payload": coded(one.payload) if one.HasField("payload") else None,
            "content_type": one.content_type, "schema_name": one.schema_name, "headers": dict(one.headers),
            "occurred_at": micros(one.occurred_at) if one.HasField("occurred_at") else None,
            "committed_at": micros(one.committed_at) if one.HasField("committed_at") else None,
            "traceparent": one.traceparent, "tracestate": one.tracestate,
            "database": one.source.database, "schema": one.source.schema, "table": one.source.table,
            "system_identifier": str(one.source.system_identifier), "timeline": one.source.timeline, "xid": one.source.xid,
            "commit_lsn": str(one.position.commit_lsn), "ordinal": one.position.ordinal,
            "unknown_fields": len(unknown_fields.UnknownFieldSet(one)),
        }

    return read


def protobuf(generated):
    event_class = load(generated / "io" / "cloudevents" / "v1" / "cloudevents_pb2.py").CloudEvent

    def read(message):
        one = event_class.FromString(message.value())
        line = {"id": one.id, "source": one.source, "type": one.type, "specversion": one.spec_version, "time": None, "data": None}
        extensions = {}
        for name, value in one.attributes.items():
            kind = value.WhichOneof("attr")
            content = f"micros {micros(value.ce_timestamp)}" if kind == "ce_timestamp" else getattr(value, kind)
            if name == "time":
                line["time"] = micros(value.ce_timestamp)
            elif name in ("subject", "datacontenttype", "dataschema"):
                line[name] = content
            else:
                extensions[name] = content
        line["extensions"] = extensions
        kind = one.WhichOneof("data")
        if kind == "proto_data":
            line.update(type_url=one.proto_data.type_url, data=coded(one.proto_data.value))
        elif kind is not None:
            data = getattr(one, kind)
            line["data"] = coded(data.encode() if isinstance(data, str) else data)
        return line

    return read


def sdk(message):
    """By the record's content-type the SDK knows the mode itself. Where there is no time it says the present one."""
    event = kafka.from_kafka_event(kafka.KafkaMessage(headers=dict(message.headers()), key=message.key(), value=message.value()))
    time, data = event.get_time(), event.get_data()
    line = {"id": event.get_id(), "source": event.get_source(), "type": event.get_type(), "specversion": event.get_specversion(),
            "time": (time - EPOCH) // datetime.timedelta(microseconds=1), "fills_in_time": True}
    optional = {"subject": event.get_subject(), "datacontenttype": event.get_datacontenttype(), "dataschema": event.get_dataschema()}
    line.update({name: value for name, value in optional.items() if value is not None})
    known = {*line, *optional}
    line["extensions"] = {name: value for name, value in event.get_attributes().items() if name not in known}
    if isinstance(data, (bytes, bytearray)) or data is None:
        line["data"] = coded(data)
    elif isinstance(data, str) and "json" not in line.get("datacontenttype", ""):
        line["data"] = coded(data.encode())
    else:  # also bytes without a content type, where they can be read as JSON
        line["json"] = data
    return line


def main():
    generated, bootstrap = Path(sys.argv[1]), sys.argv[2]
    readers = {"envelope": envelope(generated), "protobuf": protobuf(generated), "binary": sdk, "structured": sdk}
    for argument in sys.argv[3:]:
        kind, topic = argument.split("=", 1)
        read = readers[kind]
        for message in records(bootstrap, topic):
            line = {"topic": topic, "key": None if message.key() is None else message.key().decode(),
                    "partition": message.partition(), "offset": message.offset(), "timestamp_ms": message.timestamp()[1],
                    "record_headers": [[name, value.decode()] for name, value in message.headers()]}
            line.update({"tombstone": True} if message.value() is None else read(message))
            print(json.dumps(line))


if __name__ == "__main__":
    main()
