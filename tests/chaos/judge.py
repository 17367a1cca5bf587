"""Holds what Kafka has against what was committed. Pure: records and looks in, a verdict out.

Records of a partition are given in the order of their offsets.
"""

import array
import bisect
import collections
from typing import NamedTuple

EXAMPLES_MAX = 10
LATE_MS = 30_000


class Seen(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: str
    event: int  # None: not an id of ours
    position: str  # the header, which sorts as text in commit order
    checksum: int  # of the whole value
    appended_ms: int
    committed_ms: int


class Look(NamedTuple):
    """confirmed_flush_lsn, and the high watermarks that were asked for afterwards."""

    confirmed: int
    high: dict  # (topic, partition): offset


def commit_lsn(position):
    return int(position.split("-")[2], 16)


class _Partition:
    def __init__(self):
        self.index = {}  # event: its place among the first occurrences
        self.last_position = ""
        self.previous = -1  # place of the record before
        self.commits, self.offsets = array.array("Q"), array.array("q")  # of first occurrences


class Judge:
    def __init__(self, expected, rolled_back):
        self._place = {event: (where, n) for where, events in expected.items() for n, event in enumerate(events)}
        self._expected, self._rolled_back = expected, rolled_back
        self._partitions = collections.defaultdict(_Partition)
        self._first = {}  # event: (position, checksum)
        self._last = {}  # (topic, key): last position a consumer has taken
        self._next = collections.Counter()  # (topic, key): which expected event that consumer takes next
        self._appended = array.array("q")
        self._delays = array.array("q")
        self.late = []  # (committed_ms, appended_ms) of those that took longer than LATE_MS
        self.counts = collections.Counter(
            {name: 0 for name in ("records", "lost", "phantoms", "order violations", "changed repeats", "confirmed too early",
                                  "repeats", "replays", "stale repeats")})
        self.examples = collections.defaultdict(list)

    def _note(self, name, text):
        self.counts[name] += 1
        if len(self.examples[name]) < EXAMPLES_MAX:
            self.examples[name].append(text)

    def see(self, seen):
        self.counts["records"] += 1
        where = (seen.topic, seen.key)
        if self._place.get(seen.event, (None, 0))[0] != where:
            kind = "rolled back" if seen.event in self._rolled_back else "never committed so"
            self._note("phantoms", f"{kind}: {seen}")
            return
        self._appended.append(seen.appended_ms)
        partition = self._partitions[seen.topic, seen.partition]
        if seen.event in self._first:
            self._see_repeat(partition, seen)
        else:
            self._see_first(partition, seen)
        if seen.position > self._last.get(where, ""):
            self._last[where] = seen.position
            self._take(where, seen)

    def _see_first(self, partition, seen):
        self._first[seen.event] = (seen.position, seen.checksum)
        self._delays.append(seen.appended_ms - seen.committed_ms)
        if self._delays[-1] > LATE_MS:
            self.late.append((seen.committed_ms, seen.appended_ms))
        if seen.position <= partition.last_position:
            self._note("order violations", f"first seen after a later one of its partition: {seen}")
        partition.last_position = max(seen.position, partition.last_position)
        place = partition.index[seen.event] = len(partition.index)
        if place != partition.previous + 1:
            self._note("stale repeats", f"a repeat ended before the newest record, before {seen}")
        partition.previous = place
        partition.commits.append(commit_lsn(seen.position))
        partition.offsets.append(seen.offset)

    def _see_repeat(self, partition, seen):
        self.counts["repeats"] += 1
        if self._first[seen.event] != (seen.position, seen.checksum):
            self._note("changed repeats", f"not what it was at first: {seen}")
        place = partition.index.get(seen.event)
        if place is None:
            self._note("order violations", f"repeated in another partition: {seen}")
            return
        if place <= partition.previous:
            self.counts["replays"] += 1
        elif place > partition.previous + 1:
            self._note("stale repeats", f"a repeat goes on with a hole before {seen}")
        partition.previous = place

    def _take(self, where, seen):
        """A consumer that drops what is not above the last position of the key takes this one."""
        _, place = self._place[seen.event]
        if place != self._next[where]:
            wanted = self._expected[where][self._next[where]:][:1]
            self._note("order violations", f"key {where}: a consumer that drops by position expects {wanted}, takes {seen}")
        self._next[where] = place + 1

    def finish(self, looks):
        for event, (where, _) in self._place.items():
            if event not in self._first:
                self._note("lost", f"event {event:x} of {where}")
        self._judge_looks(looks)
        return self.counts

    def _judge_looks(self, looks):
        """Everything before the position that was confirmed then lay below the high watermarks of then."""
        ordered = {}
        for where, partition in self._partitions.items():
            pairs = sorted(zip(partition.commits, partition.offsets))
            highest, offsets = -1, []
            for _, offset in pairs:
                highest = max(highest, offset)
                offsets.append(highest)
            ordered[where] = ([commit for commit, _ in pairs], offsets)
        for look in looks:
            for where, high in look.high.items():
                commits, offsets = ordered.get(where, ([], []))
                before = bisect.bisect_left(commits, look.confirmed)
                if before and offsets[before - 1] >= high:
                    self._note("confirmed too early", f"{look.confirmed:X} confirmed, but {where} ended at {high} and an"
                                                      f" event before it lies at {offsets[before - 1]}")

    def longest_undisturbed_s(self, disturbed, held=(), held_s=0):
        """The longest that an event took while nothing was broken: its delay, without the part in which anything was. Begin and end of those
        times in seconds. `held`: when hostile events were committed that hold up what is behind them for `held_s`, as docs/security.md says
        (topics that do not exist); those in front of an event, not delivered when it was committed, do so one after the other."""
        times = joined(sorted((begin * 1000, end * 1000) for begin, end in disturbed))
        begins = [begin for begin, _ in times]
        held_ms = sorted(at * 1000 for at in held)
        by_append = sorted(set(self.late), key=lambda late: late[1], reverse=True)
        appended_after, oldest = [late[1] for late in reversed(by_append)], []  # oldest[n]: of the last n + 1 appended, the first committed
        for committed, _ in by_append:
            oldest.append(min(committed, oldest[-1] if oldest else committed))

        def held_before_ms(committed):
            later = len(appended_after) - bisect.bisect_left(appended_after, committed)
            front = min(oldest[later - 1] if later else committed, committed - LATE_MS)
            return 1000 * held_s * (bisect.bisect_right(held_ms, committed) - bisect.bisect_left(held_ms, front))

        def calm_ms(committed, appended):
            first = max(0, bisect.bisect_right(begins, committed) - 1)
            last = bisect.bisect_left(begins, appended)
            broken_ms = sum(max(0, min(end, appended) - max(begin, committed)) for begin, end in times[first:last])
            return max(0, appended - committed - broken_ms - held_before_ms(committed))

        return max((calm_ms(*late) for late in set(self.late)), default=0) / 1000

    # -- figures -----------------------------------------------------------------------------------------------------

    def longest_gap_s(self):
        """The longest time in which no record came to any partition, by the brokers' clock."""
        times = sorted(self._appended)
        return max((after - before for before, after in zip(times, times[1:])), default=0) / 1000

    def delays_s(self):
        """(median, longest) from commit to append, of first occurrences."""
        delays = sorted(self._delays)
        return (delays[len(delays) // 2] / 1000, delays[-1] / 1000) if delays else (0.0, 0.0)


def joined(times):
    """The same times, which begin one after the other, without overlap."""
    result = []
    for begin, end in times:
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


FATAL = ("lost", "phantoms", "order violations", "changed repeats", "confirmed too early")
