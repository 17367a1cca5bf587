"""The proxy's errors in a broker's name: the bytes of Kafka's protocol, and nothing that was not asked for."""

import struct
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from kafka_answers import PRODUCE, VERSIONS, Answers  # noqa: E402 - the path above makes it importable

METADATA = 3
NOT_LEADER = 6


def text(value):
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value


def framed(body):
    return struct.pack(">i", len(body)) + body


def request(correlation, api=PRODUCE, version=7, partitions=(0, 2), body=None):
    if body is None:
        places = b"".join(struct.pack(">ii", n, 3) + b"abc" for n in partitions)
        body = text(None) + struct.pack(">hi", -1, 30_000) + struct.pack(">i", 1) + text(b"topic") + struct.pack(">i", len(partitions)) + places
    return framed(struct.pack(">hhi", api, version, correlation) + text(b"client") + body)


def response(correlation, version=7, partitions=((0, 0), (2, 0)), offset=41):
    """partitions: (number, code)"""
    places = b""
    for number, code in partitions:
        places += struct.pack(">ihqq", number, code, offset if code == 0 else -1, -1)
        places += struct.pack(">q", 0 if code == 0 else -1) if version >= 5 else b""
        places += struct.pack(">i", 0) + text(None) if version >= 8 else b""
    return framed(struct.pack(">ii", correlation, 1) + text(b"topic") + struct.pack(">i", len(partitions)) + places + struct.pack(">i", 0))


def codes(frame, version):
    """[(partition, code, offset)] of an answer, to its last byte."""
    at = 8
    topics, = struct.unpack_from(">i", frame, at)
    assert topics == 1
    at += 4
    size, = struct.unpack_from(">h", frame, at)
    at += 2 + size
    found = []
    count, = struct.unpack_from(">i", frame, at)
    at += 4
    for _ in range(count):
        found.append(struct.unpack_from(">ihq", frame, at))
        at += 22 + (8 if version >= 5 else 0) + (6 if version >= 8 else 0)
    assert at + 4 == len(frame) == struct.unpack_from(">i", frame)[0] + 4
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_changed_on_its_way_back(version):
    answers = Answers()
    connection = answers.connection()
    answers.spoil(NOT_LEADER)
    sent = request(1, version=version)
    assert connection.up(sent) == (sent, b"")
    changed = connection.down(response(1, version=version, partitions=((0, 0), (2, 19))))
    assert codes(changed, version) == [(0, NOT_LEADER, -1), (2, 19, -1)], "what failed anyhow says why itself"
    assert answers.spoilt == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_with_instead_the_broker_never_sees_the_request(version):
    answers = Answers()
    connection = answers.connection()
    answers.spoil(-1, instead=True)
    forward, back = connection.up(request(7, version=version))
    assert forward == b""
    assert struct.unpack_from(">i", back, 4) == (7,)
    assert codes(back, version) == [(0, -1, -1), (2, -1, -1)]


def test_without_a_fault_and_of_other_requests_nothing_changes():
    answers = Answers()
    connection = answers.connection()
    frames = request(1) + request(2, METADATA, body=b"anything")
    assert connection.up(frames) == (frames, b"")
    back = response(1) + framed(struct.pack(">i", 2) + b"metadata")
    assert connection.down(back) == back
    answers.spoil(NOT_LEADER)
    other = request(3, METADATA, body=b"anything")
    assert connection.up(other) == (other, b"")
    answers.stop()
    assert connection.up(request(4)) == (request(4), b"")
    assert answers.spoilt == 0


def test_frames_that_come_in_pieces_go_on_as_a_whole():
    answers = Answers()
    connection = answers.connection()
    answers.spoil(NOT_LEADER, every=2)
    sent = request(1) + request(2)
    pieces = [connection.up(sent[n:n + 1])[0] for n in range(len(sent))]
    assert b"".join(pieces) == sent
    back = response(1) + response(2)
    got = b"".join(connection.down(back[n:n + 3]) for n in range(0, len(back), 3))
    assert len(got) == len(back)
    half = len(back) // 2
    assert codes(got[:half], 7)[0][1] == 0 and codes(got[half:], 7)[0][1] == NOT_LEADER, "every second one"


def test_a_version_that_is_not_known_passes_and_is_counted():
    answers = Answers()
    connection = answers.connection()
    answers.spoil(NOT_LEADER, instead=True)
    sent = request(1, version=9)
    assert connection.up(sent) == (sent, b"")
    assert (answers.unknown, answers.spoilt) == (1, 0)
