#!/usr/bin/env python3
"""Makes random small mistakes in the core and its edges, and lists those that no test notices.

    scripts/check --mutants 100 --seed 7          all of it
    scripts/check --mutants 20 --seed 7 --only src/pipeline

A mutant is one changed line of one source file (rules of universalmutator). Mutants that do not compile, or that compile to
the same code, do not count. Each counting mutant runs the tests that are near its file, then all others that need no
server, among them the simulator, until one fails. What is left over survives: it needs a test, or a reason why it does no harm.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import queue
import random
import shutil
import subprocess
import sys
import threading
import time

from universalmutator import mutator

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORE = ("base", "pgoutput", "outbox", "envelope", "delivery", "pipeline")
EDGES = (
    "src/postgres/replication_stream.cc", "src/postgres/failure.cc", "src/kafka/held_rejections.cc", "src/kafka/producer_session.cc",
    "src/kafka/producer_session_topics.cc", "src/kafka/topic_limits.cc", "src/runtime/guard.cc", "src/runtime/loop.cc")
RULES = ["universal.rules", "c_like.rules", "cpp.rules"]
# What says nothing about behaviour: includes, name spaces, assertions (a test cannot see that one is gone), text for people.
IGNORED = [r"^\s*#", r"^\s*(namespace|using)\b", r"\bCHECK", r"StrFormat", r"^\s*\"", r"^\s*(public|private|protected):", r"^\s*static_assert"]
TEST_SECONDS_MAX = 240
PROGRAMS_NEAR = 3  # run one after the other, because they notice most
PROGRAMS_AT_ONCE = 5
SIMULATED_HISTORIES = 10_000


@dataclasses.dataclass
class Mutant:
    number: int
    path: str
    line: int
    before: str
    after: str

    def __str__(self):
        return f"{self.path}:{self.line}\n    - {self.before.strip()}\n    + {self.after.strip()}"


@dataclasses.dataclass
class Verdict:
    mutant: Mutant
    killed_by: str  # empty = survived
    seconds: float


def sources(only):
    found = []
    for folder in CORE:
        found += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "src" / folder).glob("*.cc"))
    found += [edge for edge in EDGES if (ROOT / edge).exists()]
    return [path for path in found if not only or path.startswith(only)]


def mutants_of(path):
    """All mutants of one file, as (line number, new line)."""
    lines = (ROOT / path).read_text().splitlines(keepends=True)
    with contextlib.redirect_stdout(io.StringIO()):
        made = mutator.mutants_regexp(lines, ruleFiles=RULES, ignorePatterns=IGNORED, ignoreStringOnly=True)
    # On one line: an added line changes the line numbers in the CHECKs below it, and then a mutant without any effect would count.
    made = [(number, new.rstrip("\n").replace("\n", " ") + "\n") for number, new, *_ in made]
    return [(number, new) for number, new in made if new.split("//")[0].strip() != lines[number - 1].split("//")[0].strip()]


def draw(seed, only):
    """Mutants without end, each once: files by their number of lines, then any mutant of the file."""
    chance = random.Random(seed)
    files = sources(only)
    weights = [len((ROOT / path).read_text().splitlines()) for path in files]
    of_file = {}
    taken = set()
    number = 0
    misses = 0
    while misses < 10_000:
        path = chance.choices(files, weights)[0]
        if path not in of_file:
            of_file[path] = mutants_of(path)
        if not of_file[path]:
            misses += 1
            continue
        line, new = chance.choice(of_file[path])
        if (path, line, new) in taken:
            misses += 1
            continue
        taken.add((path, line, new))
        number += 1
        misses = 0
        yield Mutant(number, path, line, (ROOT / path).read_text().splitlines()[line - 1], new)


class Bench:
    """A copy of the tree with a build folder of its own, in which one mutant at a time is tried."""

    def __init__(self, folder):
        self.folder = folder
        self.build = folder / "build" / "dev"
        self.linking = threading.Lock()  # one ninja in a build folder
        self.tree()
        self.run(["cmake", "--preset", "dev"], check=True)
        # All of it: ctest knows the command of a test only when its program is there.
        self.run(["ninja", "-C", str(self.build), f"-j{os.cpu_count()}"], check=True, timeout=7200)
        self.programs = self.find_programs()

    def tree(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        wanted = {name.decode() for name in listed.split(b"\0") if name}
        for name in wanted:
            source, target = ROOT / name, self.folder / name
            if not source.exists() or (target.exists() and target.read_bytes() == source.read_bytes()):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        for old in (self.folder / "src").rglob("*.*"):
            if old.is_file() and str(old.relative_to(self.folder)) not in wanted:
                old.unlink()

    def run(self, command, check=False, timeout=600):
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.communicate()
                return None
        if check and process.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {process.returncode}\n{output.decode(errors='replace')[-4000:]}")
        return process.returncode

    def find_programs(self):
        """Test programs that need no server, by name: (target, command)."""
        shown = subprocess.run(["ctest", "--test-dir", str(self.build), "--show-only=json-v1", "-LE", "integration|kafka|postgres"],
                               capture_output=True, check=True, text=True).stdout
        programs = {}
        for test in json.loads(shown)["tests"]:
            command = test.get("command", [])
            if not command or test["name"] == "simulation_seeded_bugs" or not command[0].startswith(str(self.build)):
                continue
            programs[test["name"]] = command
        programs["simulation"] = [str(self.build / "tests/simulation/simulation"), "--histories", str(SIMULATED_HISTORIES), "--jobs", "1"]
        return programs

    def order(self, path):
        """Names of the programs, those of the file's module first, the simulator after the unit tests of the core."""
        module = path.split("/")[1]

        def distance(name):
            if name == f"{module}_test":
                return 0
            if name.startswith(module):
                return 1
            if name == "pipeline_test":
                return 2
            if name == "runtime_test" or "contract" in name:
                return 3
            return 4 if name == "simulation" and module in CORE else 5

        return sorted(self.programs, key=lambda name: (distance(name), name))

    def object_of(self, path):
        parts = path.split("/")
        return f"src/{parts[1]}/CMakeFiles/walpost_{parts[1]}.dir/{parts[2]}.o"

    def digest(self, path):
        # Without line numbers, which differ also where a mutant only adds a line that is never reached.
        stripped = self.build / "stripped.o"
        self.run(["objcopy", "--strip-debug", str(self.build / self.object_of(path)), str(stripped)], check=True)
        return hashlib.sha256(stripped.read_bytes()).hexdigest()

    def try_out(self, mutant):
        """A Verdict; None for a mutant that does not count."""
        file = self.folder / mutant.path
        original = file.read_text()
        lines = original.splitlines(keepends=True)
        begin = time.monotonic()
        before = self.digest(mutant.path)
        lines[mutant.line - 1] = mutant.after
        try:
            file.write_text("".join(lines))
            if self.run(["ninja", "-C", str(self.build), "-j1", self.object_of(mutant.path)]) != 0:
                return None
            if self.digest(mutant.path) == before:
                return None
            return Verdict(mutant, self.killer(mutant), time.monotonic() - begin)
        finally:
            file.write_text(original)
            self.run(["ninja", "-C", str(self.build), "-j1", self.object_of(mutant.path)], check=True)

    def killer(self, mutant):
        """The program that notices the mutant, or an empty text."""
        order = self.order(mutant.path)
        near, others = order[:PROGRAMS_NEAR], order[PROGRAMS_NEAR:]
        for name in near:
            if killer := self.verdict(name):
                return killer
        # Most of these wait for something most of the time.
        with concurrent.futures.ThreadPoolExecutor(PROGRAMS_AT_ONCE) as pool:
            answers = [pool.submit(self.verdict, name) for name in others]
            for answer in concurrent.futures.as_completed(answers):
                if answer.result():
                    pool.shutdown(cancel_futures=True)
                    return answer.result()
        return ""

    def verdict(self, name):
        """What `name` says of the mutant; an empty text when all of it passes."""
        program = pathlib.Path(self.programs[name][0])
        before = program.stat().st_mtime_ns
        with self.linking:
            if self.run(["ninja", "-C", str(self.build), "-j1", program.name]) != 0:
                return "the linker"
        if program.stat().st_mtime_ns == before:
            return ""  # nothing of the mutant is in it
        code = self.run(self.programs[name], timeout=TEST_SECONDS_MAX)
        if code is None:
            return f"{name} (no end)"
        return name if code != 0 else ""


def work(bench, drawn, verdicts, wanted, lock):
    while True:
        with lock:
            if verdicts.qsize() >= wanted:
                return
            mutant = next(drawn, None)
        if mutant is None:
            return
        verdict = bench.try_out(mutant)
        if verdict is None:
            continue
        with lock:
            if verdicts.qsize() >= wanted:
                return
            verdicts.put(verdict)
            fate = f"killed by {verdict.killed_by}" if verdict.killed_by else "SURVIVED"
            print(f"{verdicts.qsize():4}  {fate}, {verdict.seconds:.0f} s: {mutant}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, help="how many mutants that count")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1_000_000))
    parser.add_argument("--only", default="", help="only files whose path begins so")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if not sources(arguments.only):
        sys.exit(f"mutants: no file begins with {arguments.only}")
    print(f"mutants: seed {arguments.seed}", flush=True)
    benches = [Bench(ROOT / "build" / "mutants" / str(number)) for number in range(arguments.jobs)]
    drawn, verdicts, lock = draw(arguments.seed, arguments.only), queue.Queue(), threading.Lock()
    threads = [threading.Thread(target=work, args=(bench, drawn, verdicts, arguments.count, lock)) for bench in benches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = list(verdicts.queue)
    survivors = [verdict.mutant for verdict in results if not verdict.killed_by]
    if survivors:
        print("\nsurvivors")
        for mutant in survivors:
            print(mutant)
    killed = len(results) - len(survivors)
    print(f"mutants: seed {arguments.seed}, {killed} of {len(results)} killed ({100 * killed / max(1, len(results)):.0f} %)")


if __name__ == "__main__":
    main()
