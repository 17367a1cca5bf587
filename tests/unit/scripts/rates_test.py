"""The formulas of docs/capacity.md, as scripts/bench docs works them out."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "lib"))
import rates  # noqa: E402 - the path above makes it importable


def figure(median):
    return {"median": median, "min": median, "max": median}


CODEC = {"topic_bytes": figure(1300), "events_per_s": figure(20_000), "cpu_us_per_event": figure(5)}
MEASURED = {"drain_size": 1000, "topics": {"none": CODEC, "zstd": {**CODEC, "topic_bytes": figure(300)}},
            "bytes": {"emit": {"json": {"1000": {"wal": 1200, "stored": 1250}}}, "emit_message": {"json": {"1000": {"wal": 1100, "stored": 0}}}}}
WRITERS = {"loads": {"1": {"none": {"wal_bytes": figure(800)}}}}


def rows():
    table = rates.table(MEASURED, WRITERS).split("\n\n")[1].splitlines()[2:]
    return {cells[1]: cells[3:5] for line in table for cells in [[cell.strip() for cell in line.split("|")]]}


@pytest.mark.parametrize("what, values", [
    ("payload", ["10 MB/s, 864 GB a day", "100 MB/s, 8.64 TB a day"]),
    ("a partition of an hour", ["45 GB", "450 GB"]),
    ("WAL that the slot keeps, walpost away for 1 h", ["72 GB", "720 GB"]),
    ("`max_slot_wal_keep_size` for an outage of 24 h", ["2.59 TB", "25.9 TB"]),
    ("Kafka's disks, 7 days, 3 replicas, zstd", ["5.44 TB", "54.4 TB"]),
    ("cores that walpost uses", ["0.05", "0.50"]),
    ("share of what one walpost drains here", ["50 %", "500 %"]),
    ("caught up after an outage of 8 h in", ["8.0 h", "never"]),
])
def test_what_follows_for_each_rate(what, values):
    assert rows()[what] == values


def test_amounts_and_times_have_units_that_can_be_read():
    assert [rates.human(n) for n in (999, 1000, 123_456, 7e15)] == ["999 B", "1 kB", "123 kB", "7 PB"]
    assert [rates.duration(n) for n in (59, 60, 5400, 200_000)] == ["59 s", "1.0 min", "1.5 h", "2.3 days"]
