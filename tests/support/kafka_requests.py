"""Requests that the tests' client library does not know: rights on topics, and the deletion of a partition's oldest records. Kafka's own
tools know them, and start a Java for each.

Source: https://kafka.apache.org/protocol, CreateAcls (30), DeleteAcls (31), DeleteRecords (21).
"""

import socket
import struct

DELETE_RECORDS, CREATE_ACLS, DELETE_ACLS = (21, 0), (30, 1), (31, 1)  # (number, version)
OPERATIONS = {"All": 2, "Read": 3, "Write": 4, "Describe": 8, "DescribeConfigs": 10}
TOPIC, LITERAL, PREFIXED, ALLOW = 2, 3, 4, 3
TIMEOUT_S = 30


def change_right(address, topic, principal, operation, add=True, prefixed=False):
    """Whether `principal` may do this with a topic, or with all whose names begin so."""
    right = struct.pack(">b", TOPIC) + _text(topic) + struct.pack(">b", PREFIXED if prefixed else LITERAL) + _text(principal)
    right += _text("*") + struct.pack(">bb", OPERATIONS[operation], ALLOW)
    answer = _ask(address, CREATE_ACLS if add else DELETE_ACLS, struct.pack(">i", 1) + right)
    code, = struct.unpack_from(">h", answer, 8)  # behind the throttle time and the number of results
    assert code == 0, f"{topic}: Kafka's error {code} for a right"


def delete_records(address, topic, partition, before):
    """`address`: of the partition's leader."""
    answer = _ask(address, DELETE_RECORDS, struct.pack(">i", 1) + _text(topic) + struct.pack(">iiqi", 1, partition, before, 1000 * TIMEOUT_S))
    code, = struct.unpack_from(">h", answer, len(answer) - 2)
    assert code == 0, f"{topic}[{partition}]: Kafka's error {code} for deleting records"


def _text(text):
    return struct.pack(">h", len(text.encode())) + text.encode()


def _ask(address, request, body):
    host, port = address.rsplit(":", 1)
    frame = struct.pack(">hhi", *request, 1) + _text("tests") + body
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection, connection.makefile("rwb") as stream:
        stream.write(struct.pack(">i", len(frame)) + frame)
        stream.flush()
        size, = struct.unpack(">i", stream.read(4))
        return stream.read(size)[4:]  # behind the number of the request
