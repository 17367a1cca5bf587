"""Makes a broker answer Produce requests with errors, in a proxy before it.

An answer is changed on its way back, so the broker has the records and says that something went wrong; or, with `instead`, the
request never comes to the broker. Versions 3 to 8 of Produce, which librdkafka speaks; others pass as they are, and are counted.
"""

import collections
import struct
import threading

PRODUCE = 0
DESCRIBE_CONFIGS = 32
VERSIONS = range(3, 9)
TOPIC_AUTHORIZATION_FAILED = 29

# What a broker says when it has trouble of its own, or does not know what became of the records.
ERRORS = {
    "UNKNOWN_SERVER_ERROR": -1,
    "LEADER_NOT_AVAILABLE": 5,
    "NOT_LEADER_OR_FOLLOWER": 6,
    "REQUEST_TIMED_OUT": 7,
    "NETWORK_EXCEPTION": 13,
    "NOT_ENOUGH_REPLICAS": 19,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": 20,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": 45,
    "KAFKA_STORAGE_ERROR": 56,
    "UNKNOWN_PRODUCER_ID": 59,
}


class _Reader:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, form):
        value, = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return value

    def text(self):
        """None where there is none."""
        size = self.take("h")
        if size < 0:
            return None
        self.at += size
        return bytes(self.data[self.at - size:self.at])


def rejection(body, version, correlation, code):
    """The answer to a Produce request, whose body this is, that rejects every partition of it."""
    reader = _Reader(body)
    reader.text()  # transactional id
    reader.take("h")  # acks
    reader.take("i")  # time-out
    answer = bytearray(struct.pack(">ii", correlation, topics := reader.take("i")))
    for _ in range(topics):
        name = reader.text()
        answer += struct.pack(">h", len(name)) + name + struct.pack(">i", partitions := reader.take("i"))
        for _ in range(partitions):
            answer += struct.pack(">ihqq", reader.take("i"), code, -1, -1)
            answer += struct.pack(">q", -1) if version >= 5 else b""
            answer += struct.pack(">ih", 0, -1) if version >= 8 else b""
            size = reader.take("i")
            reader.at += max(0, size)  # the records
    answer += struct.pack(">i", 0)  # throttle time
    return struct.pack(">i", len(answer)) + bytes(answer)


def spoilt(frame, version, code):
    """The answer with this code for every partition that had none."""
    changed, reader = bytearray(frame), _Reader(frame, 8)
    for _ in range(reader.take("i")):
        reader.text()
        for _ in range(reader.take("i")):
            reader.take("i")
            at = reader.at
            if reader.take("h") == 0:
                struct.pack_into(">hq", changed, at, code, -1)
            reader.at += 16 + (8 if version >= 5 else 0)
            if version >= 8:
                for _ in range(reader.take("i")):
                    reader.take("i")
                    reader.text()
                reader.text()
    return bytes(changed)


def without_limits(frame):
    """An answer about a topic's configuration, in which a right is missing."""
    changed = bytearray(frame)
    struct.pack_into(">h", changed, 16, TOPIC_AUTHORIZATION_FAILED)  # behind size, id, throttle time and number of topics
    return bytes(changed)


class Answers:
    """For all connections of one proxy: `proxy.make_filter = answers.connection`. Any thread."""

    def __init__(self):
        self.spoilt = 0  # answers that were changed or made
        self.unknown = 0  # Produce requests in a version that is not known here
        self.unanswered = set()  # kinds of requests that get no answer
        self.limits_fail_every = 0  # each so manieth answer about a topic's configuration is an error
        self.asked = collections.Counter()  # requests of each kind
        self._lock = threading.Lock()
        self._fault = None  # (code, instead, every, larger_than)
        self._seen = 0

    def spoil(self, code, instead=False, every=1, larger_than=0):
        """From now on every `every`th Produce request of more bytes than that is answered with this code."""
        self._fault = (code, instead, every, larger_than)

    def stop(self):
        self._fault = None
        self.unanswered = set()
        self.limits_fail_every = 0

    def connection(self):
        return _Connection(self)

    def draw(self, size):
        """(code, instead) for the next request, of so many bytes; None: it goes its way."""
        fault = self._fault
        if fault is None or size <= fault[3]:
            return None
        with self._lock:
            self._seen += 1
            if self._seen % fault[2]:
                return None
            self.spoilt += 1
        return fault[:2]


class _Connection:
    """What goes through one connection. The proxy's thread only."""

    def __init__(self, answers):
        self._answers = answers
        self._up, self._down = bytearray(), bytearray()
        self._spoil = {}  # correlation id: (version, code)
        self._limits_fail = set()  # correlation ids

    def up(self, data):
        """(what goes on to the server, what goes back to the client)"""
        self._up += data
        forward, back = [], []
        for frame in _frames(self._up):
            api, version, correlation = struct.unpack_from(">hhi", frame, 4)
            unanswered = api in self._answers.unanswered
            self._answers.asked[api] += 1  # from here on a test may change what is answered
            every = self._answers.limits_fail_every
            if api == DESCRIBE_CONFIGS and every and self._answers.asked[api] % every == 0:
                self._limits_fail.add(correlation)
            if api == PRODUCE:
                answer, goes_on = self._produce(frame, version, correlation)
                back.append(answer)
                if not goes_on:
                    continue
            if unanswered:
                continue
            forward.append(frame)
        return b"".join(forward), b"".join(back)

    def _produce(self, frame, version, correlation):
        if version not in VERSIONS:
            self._answers.unknown += 1
            return b"", True
        drawn = self._answers.draw(len(frame))
        if drawn is None:
            return b"", True
        code, instead = drawn
        if not instead:
            self._spoil[correlation] = version, code
            return b"", True
        reader = _Reader(frame, 12)
        reader.text()  # client id
        return rejection(frame[reader.at:], version, correlation, code), False

    def down(self, data):
        self._down += data
        forward = []
        for frame in _frames(self._down):
            correlation, = struct.unpack_from(">i", frame, 4)
            spoil = self._spoil.pop(correlation, None)
            if correlation in self._limits_fail:
                self._limits_fail.discard(correlation)
                frame = without_limits(frame)
            forward.append(spoilt(frame, *spoil) if spoil else frame)
        return b"".join(forward)


def _frames(pending):
    """The whole frames of what has come, which are taken out of it."""
    at = 0
    while len(pending) - at >= 4:
        size, = struct.unpack_from(">i", pending, at)
        if len(pending) - at - 4 < size:
            break
        yield bytes(pending[at:at + 4 + size])
        at += 4 + size
    del pending[:at]
