"""What a seed means: when which fault begins, on what, and how long it lasts. Pure: the same seed is the same plan everywhere."""

import random
from typing import NamedTuple

from kafka_answers import ERRORS

BROKERS = 3
SETTLE_S = 5  # without faults, at the begin
QUIET_S = 10  # no fault begins so shortly before the end
SCENES = [f"{walpost}, {writers}" for walpost in ("walpost is cut off", "walpost is killed") for writers in ("writers first", "walpost first")]
CLOCKS_S = (5, 90, 3_600, 10_800, 86_400, 2_592_000)

# kind: (shortest, longest) in seconds; 0 where the fault is over in a moment
KINDS = {
    "walpost kill -9": (0, 0),
    "walpost SIGTERM": (0, 0),
    "walpost SIGSTOP": (2, 20),
    "walsender kill -9": (0, 0),
    "walsender terminated": (0, 0),
    "walsender SIGSTOP": (2, 15),
    "postgres kill -9": (0, 5),
    "postgres immediate stop": (0, 5),
    "postgres fast stop": (0, 5),
    "postgres disk full": (2, 10),
    "broker kill -9": (0, 10),
    "broker disk full": (3, 15),
    "answers are errors": (2, 20),
    "kafka kill -9": (0, 10),
    "broker SIGSTOP": (2, 20),
    "network cut": (1, 10),
    "network latency": (3, 20),
    "network half-open": (2, 20),
    "network black hole": (2, 30),
    "publication edited": (0, 0),
    "clock jumps": (2, 30),
}


class Fault(NamedTuple):
    number: int
    begin_s: float
    kind: str
    target: str  # postgres, walpost, kafka, broker1..3
    seconds: float
    detail: str = ""

    def __str__(self):
        detail = f" {self.detail}" if self.detail else ""
        return f"{self.number:3} at {self.begin_s:6.1f} s: {self.kind} of {self.target}{detail}, {self.seconds:.1f} s"


class Plan(NamedTuple):
    seed: int
    seconds: float
    faults: list
    walpost: dict  # configuration that varies
    kafka: dict  # and properties
    scene: str  # how the server is set back at the end

    def __str__(self):
        lines = [f"seed {self.seed}, {self.seconds:.0f} s, {len(self.faults)} faults", f"walpost: {self.walpost} {self.kafka}"]
        return "\n".join([*lines, *map(str, self.faults), f"at the end the server is set back: {self.scene}"])


def make_plan(seed, minutes, faults=None):
    """Kinds are dealt from shuffled decks, so that their numbers differ by one at most."""
    rng = random.Random(seed)
    seconds = minutes * 60.0
    count = faults if faults is not None else max(1, round(6 * minutes))
    deck, made = [], []
    for number in range(1, count + 1):
        if not deck:
            deck = list(KINDS)
            rng.shuffle(deck)
        kind = deck.pop()
        target, detail = draw_target(rng, kind)
        room = max(0.0, seconds - SETTLE_S - QUIET_S)
        begin = SETTLE_S + room * (number - 1 + rng.random()) / count
        made.append(Fault(number, round(begin, 2), kind, target, round(rng.uniform(*KINDS[kind]), 2), detail))
    walpost = {
        "delivery": {"in_flight_bytes_max": rng.choice(["1MiB", "4MiB", "16MiB"]), "shutdown_timeout": "5s"},
    }
    source = {"reconnect_interval": rng.choice(["10s", "60s", "10min"])}
    kafka = rng.choice([{}, {"socket.timeout.ms": "6000"}, {"linger.ms": "5", "socket.timeout.ms": "10000"}])
    return Plan(seed, seconds, made, {**walpost, "source": source}, kafka, rng.choice(SCENES))


def draw_target(rng, kind):
    broker = f"broker{rng.randint(1, BROKERS)}"
    subject = kind.split()[0]
    if subject == "network":
        # Towards PostgreSQL as often as towards all brokers together.
        target = rng.choice(["postgres", broker])
        details = {"network latency": f"{rng.randint(20, 800)} ms",
                   "network half-open": rng.choice(["drop_up", "drop_down"])}
        return target, details.get(kind, "")
    target = {"walpost": "walpost", "clock": "walpost", "broker": broker, "kafka": "kafka", "answers": "kafka"}.get(subject, "postgres")
    return target, draw_detail(rng, kind)


def draw_detail(rng, kind):
    if kind == "answers are errors":
        return f"{rng.choice(list(ERRORS))} {rng.choice(['after', 'instead'])} {rng.choice([1, 1, 2, 5])}"
    if kind == "publication edited":
        return f"{rng.randint(2, 6)} times"
    if kind == "clock jumps":
        return f"{rng.choice([-1, 1]) * rng.choice(CLOCKS_S)} s"
    return ""
