"""What was written, and how it ended: the truth that Kafka's content is held against.

A writer numbers its rows, over all tables. One transaction is one line of its history: which numbers went to which topic, which of
them a savepoint took back, and whether it was committed. Keys belong to one writer, which commits one transaction after the other, so
a key's order is that of the numbers. Shared keys are ordered by a counter in the database that the transaction holds
locked until it is committed.
"""

import collections
import json
import threading
import time
from typing import NamedTuple

KEYS = 200  # of each writer
TOPICS = ("chaos.orders", "chaos.payments", "chaos.messages")
WRITER_SHIFT = 48


def event_number(writer, number):
    return writer << WRITER_SHIFT | number


def event_id(event):
    """The UUID of an event, as Postgres prints it."""
    return f"{event >> WRITER_SHIFT:08x}-0000-4000-8000-{event & (1 << WRITER_SHIFT) - 1:012x}"


def parse_id(text):
    """The event of an id, None if it is none of ours."""
    try:
        event = event_number(int(text[:8], 16), int(text[24:], 16))
    except ValueError:
        return None
    return event if event_id(event) == text else None


def key_of(writer, number):
    return f"w{writer}-k{number * 7919 % KEYS}"


class Part(NamedTuple):
    """Rows first..last of one topic."""

    topic: str
    first: int
    last: int
    kept: bool = True  # not taken back by a savepoint
    deleted: bool = False  # in the same transaction; published nevertheless
    key: str = ""  # shared key; empty: key_of
    turn: int = 0  # the shared key's counter


class History:
    """Filled by the writers; everything about a transaction is known before it is added."""

    def __init__(self, folder):
        self._file = open(folder / "history.jsonl", "w", encoding="utf-8")
        self._lock = threading.Lock()
        self.transactions = []  # (writer, number, committed, parts)
        self.committed = self.rolled_back = self.commits = self.resolved = 0
        self.largest = 0
        self.longest_idle_s = 0.0  # without a commit of events
        self._last_commit = time.monotonic()

    def add(self, writer, number, committed, parts, resolved=False):
        line = json.dumps({"writer": writer, "transaction": number, "committed": committed, "resolved": resolved, "parts": parts})
        kept = sum(part.last - part.first + 1 for part in parts if part.kept) if committed else 0
        everything = sum(part.last - part.first + 1 for part in parts)
        with self._lock:
            self._file.write(line + "\n")
            self.transactions.append((writer, number, committed, parts))
            self.committed += kept
            self.rolled_back += everything - kept
            self.commits += committed
            self.resolved += resolved
            self.largest = max(self.largest, kept)
            if kept:
                self.longest_idle_s = max(self.longest_idle_s, time.monotonic() - self._last_commit)
                self._last_commit = time.monotonic()

    def end_load(self):
        """No writer is left; a load that had gone quiet before must not look like one that was balanced."""
        self.longest_idle_s = max(self.longest_idle_s, time.monotonic() - self._last_commit)

    def close(self):
        self._file.close()

    def expected(self):
        """{(topic, key): its events in commit order}, and the set of those that were rolled back."""
        order, rolled_back, shared = collections.defaultdict(list), set(), collections.defaultdict(list)
        for writer, _, committed, parts in sorted(self.transactions, key=lambda t: t[:2]):
            for part in parts:
                numbers = range(part.first, part.last + 1)
                if not committed or not part.kept:
                    rolled_back.update(event_number(writer, number) for number in numbers)
                elif part.key:
                    shared[part.topic, part.key].append((part.turn, event_number(writer, part.first)))
                else:
                    for number in numbers:
                        order[part.topic, key_of(writer, number)].append(event_number(writer, number))
        for place, turns in shared.items():
            order[place] = [event for _, event in sorted(turns)]
        return dict(order), rolled_back
