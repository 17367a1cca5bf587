"""A consumer with Confluent's deserializers: reads topics to their ends and prints what it sees, one line of JSON for each record.

    read_registry.py GENERATED URL        reads with the registry at URL
    read_registry.py GENERATED confluent  is a registry itself, Confluent's own for tests

The first line on stdin are messages, as JSON {name: base64}. Confluent's serializer writes them as records of the topic `theirs`,
and so registers their schemas; printed is {"url", "serialized"}, with the bytes that it made. The second line says what to read: BOOTSTRAP KIND=TOPIC..., where KIND is protobuf, generated, json or avro. The message of a
protobuf record is that of its header `type`; `generated` reads it by its class alone, because the client understands no schema
that was registered as .proto text. Runs with the packages of requirements.lock.
"""

import base64
import http.server
import json
import sys
import threading
import urllib.parse
from pathlib import Path

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, topic_record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.json_format import MessageToDict
from read import load, records


class Apicurio(SchemaRegistryClient):
    """Apicurio 3.3.3 does not know the form that the deserializer of protobuf asks for; the one that was registered will do."""

    def get_schema(self, schema_id, subject_name=None, fmt=None, reference_format=None):
        return super().get_schema(schema_id, subject_name)


class Confluents:
    """Confluent's registry for tests, behind the calls that walpost makes."""

    def __init__(self):
        self.client = SchemaRegistryClient.new_client({"url": "mock://"})
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply(None)

            def do_POST(self):
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def reply(self, body):
                path = [urllib.parse.unquote(part) for part in urllib.parse.urlsplit(self.path).path.split("/")[1:]]
                try:
                    code, content = 200, registry.answer(path, body)
                except SchemaRegistryError as error:
                    code, content = error.http_status_code, {"error_code": error.error_code, "message": error.error_message}
                text = json.dumps(content).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, path, body):
        if path == ["schemas", "types"]:
            return ["AVRO", "JSON", "PROTOBUF"]
        if path[0] != "subjects":
            raise SchemaRegistryError(404, 404, "no such path")
        if body is None:
            found = self.client.get_latest_version(path[1])
            if found is None:
                raise SchemaRegistryError(404, 40401, "no such subject")
        else:
            schema = Schema(body["schema"], body["schemaType"])
            find = self.client.lookup_schema if len(path) == 2 else self.client.register_schema_full_response
            found = find(path[1], schema)
        return {"subject": found.subject, "version": found.version, "id": found.schema_id, "guid": found.guid,
                "schemaType": found.schema.schema_type, "schema": found.schema.schema_str}


def message_classes(generated):
    shop = load(generated / "shop_pb2.py")
    envelope = load(generated / "walpost" / "v1" / "envelope_pb2.py").Envelope
    found = (shop.OrderPlaced, shop.OrderPlaced.Line, shop.OrderShipped, envelope)
    return {one.DESCRIPTOR.full_name: one for one in found}


def read(message, kind, client, classes):
    """As an application does it: the record's headers and its value go to the deserializer, and nothing else."""
    context = SerializationContext(message.topic(), MessageField.VALUE, message.headers())
    if kind == "json":
        return JSONDeserializer(None, schema_registry_client=client)(message.value(), context)
    if kind == "avro":
        return AvroDeserializer(client)(message.value(), context)
    name = dict(message.headers())["type"].decode()
    deserialize = ProtobufDeserializer(classes[name], {"use.deprecated.format": False}, client if kind == "protobuf" else None)
    value = deserialize(message.value(), context)
    return None if value is None else MessageToDict(value, preserving_proto_field_name=True)


def serialized(messages, client, classes):
    settings = {"use.deprecated.format": False, "subject.name.strategy": topic_record_subject_name_strategy}
    for name, content in messages.items():
        message = classes[name].FromString(base64.b64decode(content))
        serialize = ProtobufSerializer(classes[name], client, settings)
        yield name, base64.b64encode(serialize(message, SerializationContext("theirs", MessageField.VALUE))).decode()


def main():
    classes = message_classes(Path(sys.argv[1]))
    if sys.argv[2] == "confluent":
        registry = Confluents()
        client, url = registry.client, registry.address
    else:
        client, url = Apicurio({"url": sys.argv[2]}), sys.argv[2]
    theirs = dict(serialized(json.loads(sys.stdin.readline()), client, classes))
    print(json.dumps({"url": url, "serialized": theirs}), flush=True)
    bootstrap, *topics = sys.stdin.readline().split()
    for kind, topic in (topic.split("=") for topic in topics):
        for message in records(bootstrap, topic):
            value = message.value()
            print(json.dumps({"topic": topic, "id": dict(message.headers())["id"].decode(),
                              "headers": [[name, base64.b64encode(content).decode()] for name, content in message.headers()],
                              "raw": None if value is None else base64.b64encode(value).decode(),
                              "value": read(message, kind, client, classes)}))


if __name__ == "__main__":
    main()
