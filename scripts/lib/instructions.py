"""What the guards, and metrics, status and log, take of the instructions of an event, by callgrind, over a replay of recorded messages.

The program measured is the real pipeline as released, with nothing left out. What stands in the lines of KEEPER_FILES and COUNTER_FILES, or in
a statement that counts something, is theirs, with all that is called from there. Of library code that the compiler put in between it is
not known whose it is: in COUNTING_FUNCTIONS all of it goes to the counters. What is shown of them (log, snapshots, a scrape and a status each
second) is all that the replay calls from SHOWING.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPLAY = ROOT / "build" / "release" / "tests" / "bench" / "replay"
KEEPER_FILES = ("src/pipeline/progress_keeper.h", "src/pipeline/progress_keeper.cc")
COUNTER_FILES = ("src/base/figures.h", "src/base/figures.cc", "src/pipeline/counters.h", "src/pipeline/counters.cc")
COUNTING = re.compile(r"\bcounters_(->|\.)|\blast_label_\b|\blabel_by_topic_\b")
COUNTING_FUNCTIONS = ("walpost::pipeline::Dispatcher::OnDelivered(",)
REPLAYING, SHOWING = "walpost::Replay(", "walpost::Show("


def record(postgres, path, slot="walpost", publication="walpost"):
    """Writes what the slot holds, as the server sends it to walpost; returns the OID of the outbox table."""
    rows = postgres.execute(
        "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1', 'binary', 'true',"
        " 'publication_names', %s)", slot, publication)
    with open(path, "wb") as file:
        for (data,) in rows:
            file.write(len(data).to_bytes(4, "big") + bytes(data))
    return postgres.execute("SELECT 'outbox.events'::regclass::oid::bigint")[0][0]


def place(file):
    """A source of ours from src/ or tests/ on, wherever the compiler's cache has it from; anything else as it is."""
    found = re.search(r"/((?:src|tests)/[a-z]+/\w+\.(?:cc|h))$", file)
    return found[1] if found and not file.startswith("/usr/") else file


def counting_lines():
    """{file: numbers of the lines of statements that count}, of the pipeline."""
    found = {}
    for path in sorted((ROOT / "src" / "pipeline").glob("*.cc")):
        inside = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if COUNTING.search(line):
                inside = True
            if inside:
                found.setdefault(place(str(path)), set()).add(number)
                inside = not line.rstrip().endswith((";", "{", "}"))
    return found


class Costs:
    """Of one callgrind file: all, and what is the keeper's and the counters'."""

    def __init__(self, text):
        lines = {name: None for name in (*KEEPER_FILES, *COUNTER_FILES)} | counting_lines()
        self.total, self.keeper, self.counters, self.showing = 0, 0, 0, 0
        file = callee_file = function = callee = None
        call = False
        for line in text.splitlines():
            name, equals, value = line.partition("=")
            if equals and name in ("fl", "fi", "fe"):
                file = callee_file = place(value)
            elif equals and name == "fn":
                function = value
            elif equals and name == "cfn":
                callee = value
            elif equals and name in ("cfi", "cfl"):
                callee_file = place(value)
            elif name == "calls" and equals:
                call = True
            elif re.match(r"\d+ \d+$", line):
                number, cost = map(int, line.split())
                mine = file in lines and (lines[file] is None or number in lines[file])
                if not call and function.startswith(COUNTING_FUNCTIONS) and not file.startswith(("src/", "tests/")):
                    mine = True
                if call and callee_file in lines and lines[callee_file] is None:
                    mine = False  # its own lines count
                if not call:
                    self.total += cost
                elif callee.startswith(SHOWING) and function.startswith(REPLAYING):
                    self.showing += cost
                if mine and file.endswith(KEEPER_FILES):
                    self.keeper += cost
                elif mine:
                    self.counters += cost
                call, callee_file = False, file


def replay(recording, oid, folder, *more):
    """(events, costs of one replay)."""
    out = Path(folder) / "callgrind.out"
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-strings=no", "--compress-pos=no",
         "--toggle-collect=walpost::Replay(*", str(REPLAY), str(recording), str(oid), *more],
        capture_output=True, text=True, check=True)
    return int(done.stdout), Costs(out.read_text(encoding="utf-8"))


def shares(recording, oid, folder):
    """Instructions per event, and the shares of them that remembered progress and counting take."""
    events, full = replay(recording, oid, folder)
    _, without = replay(recording, oid, folder, "--without-progress")
    # Its own lines, or the difference it makes, which also has what is inlined from elsewhere: the larger.
    progress = max(full.keeper, full.total - without.total)
    return {"events": events, "per_event": full.total / events, "progress": progress / full.total,
            "counters": full.counters / full.total, "showing": full.showing / full.total}


def by_format(recording, oid, folder):
    """{format: instructions per event}, by the names of formats.py that the replay knows."""
    result = {}
    for name in ("raw", "envelope", "cloudevents-binary", "cloudevents-protobuf", "cloudevents-json"):
        events, costs = replay(recording, oid, folder, "--format", name)
        result[name] = costs.total / events
    return result
