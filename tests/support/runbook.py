"""The runbook as an operator follows it: the section of a reason, in it the way out that a message's words choose, and its commands.

What is followed in docs/runbook.md, in the order in which it is written:
- fenced blocks marked `do` (```sh do, ```sql do, ```yaml do): typed as they are, and must succeed;
- fenced blocks marked `look` (```sh look, ```sql look): typed as they are, and may say that something is wrong;
- a link after an arrow (→ [Title](#heading)): the blocks of that section come here.
Everything else is read only.
"""

import collections
import contextlib
import json
import os
import re
import socketserver
import subprocess
import threading
from pathlib import Path

import servers
import yaml

RUNBOOK = servers.ROOT / "docs" / "runbook.md"
PARTS = ("Meaning", "Impact", "Diagnosis", "Mitigation", "Verify")
# What a verb may answer where it is only asked: fine, usage (says what it would do), something missing, not there, not yet, not right.
ANSWERS = (0, 1, 2, 64, 65, 69, 75, 78)

Step = collections.namedtuple("Step", "kind language text where")
Way = collections.namedtuple("Way", "title quotes text")

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.M | re.S)
FOLLOWED = re.compile(r"→\s+\[[^]]*\]\(\s*#([a-z0-9_-]+)\)")


def anchor(heading):
    """As forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def without_fences(text):
    """The same length, so that positions hold."""
    return FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), text)


class Runbook:
    def __init__(self, path=RUNBOOK):
        self.text = path.read_text(encoding="utf-8")
        self.sections = {}  # anchor: its text, without the heading and without deeper or later ones
        heads = list(re.finditer(r"^#{1,4} (.+)$", without_fences(self.text), re.M))
        for head, after in zip(heads, [*heads[1:], None]):
            name = anchor(head[1])
            assert name not in self.sections, f"two headings make the anchor {name}"
            self.sections[name] = self.text[head.end():after.start() if after else None]

    def parts(self, name):
        """{Meaning: text, ...} of a section in five parts, in their order."""
        text = self.sections[name]
        marks = list(re.finditer(r"^(?:- )?\*\*(\w+)\.\*\*", without_fences(text), re.M))
        return {mark[1]: text[mark.end():after.start() if after else None] for mark, after in zip(marks, [*marks[1:], None])}

    def ways(self, name):
        """The items of a mitigation that begin in bold: each a way out, chosen by what the message says or by what happened. What stands before
        and behind them is for all; without items there is one way."""
        text = self.parts(name)["Mitigation"]
        plain = without_fences(text)
        items = []
        for item in re.finditer(r"^- \*\*(.+?)\*\*", plain, re.M | re.S):
            end = re.compile(r"^\S", re.M).search(plain, item.end())
            items.append((" ".join(item[1].split()).lstrip('"'), item.start(), end.start() if end else len(text)))
        if not items:
            return [Way("", [], text)]
        before, behind = text[:items[0][1]], text[items[-1][2]:]
        return [Way(title, quotes_of(title), before + text[start:end] + "\n" + behind) for title, start, end in items]

    def way(self, name, detail, title):
        """The one that begins with this title; where it quotes messages, it must be the one for this message."""
        ways = self.ways(name)
        quoting = [way for way in ways if any(says(detail, quote) for quote in way.quotes)]
        chosen = [way for way in ways if way.title.startswith(title)]
        assert len(chosen) == 1, f"{name}: {title}: {[way.title for way in ways]}"
        assert not chosen[0].quotes or quoting == chosen, f"{name}: {[way.title for way in quoting]}, not {title}, for: {detail}"
        return chosen[0]

    def steps(self, text, where, followed=()):
        """The blocks to be typed, with those of the sections that are followed."""
        found = []
        marks = [*FENCE.finditer(text), *FOLLOWED.finditer(without_fences(text))]
        for mark in sorted(marks, key=lambda m: m.start()):
            if mark.re is FOLLOWED:
                assert mark[1] in self.sections, f"{where} leads to #{mark[1]}, which is no heading"
                assert mark[1] not in followed, f"{where} leads to itself"
                found += self.steps(self.sections[mark[1]], mark[1], (*followed, mark[1]))
                continue
            words = mark["info"].split()
            if len(words) == 2 and words[1] in ("do", "look"):
                body = re.sub(rf"^{mark['indent']}", "", mark["body"], flags=re.M)
                found.append(Step(words[1], words[0], body, where))
        return found


def quotes_of(title):
    """A title is of quotes only, whose first mark is off; or it says what happened, and quotes nothing."""
    return [quote.rstrip('"') for quote in re.split(r'" or "|", "', title)] if '"' in title else []


def says(detail, quote):
    """Whether the message has the words of the quote; `...` and single capitals stand for anything."""
    pattern = re.escape(quote).replace(r"\.\.\.", ".*")
    return re.search(re.sub(r"\b[A-Z]\b|\bn\b", r"\\S+", pattern), detail) is not None


class Operator:
    """Types what the runbook says, with its capitals replaced: on a machine where `walpost`, `systemctl` and Kafka's tools are found."""

    def __init__(self, p, folder, words):
        self.p = p
        self.words = {"NAME": p.name, "SLOT": p.name, "TOPIC": p.name, "PUBLICATION": p.name, "BROKER:9092": p.kafka.bootstrap, **words}
        self.answers = ""
        self.bin = Path(folder)
        self.bin.mkdir()
        self.services = Services(p)
        self._tool("walpost", f'exec "{servers.walpost_binary()}" --config "{{config}}" "$@"')
        self._tool("systemctl", f'exec 3<>/dev/tcp/127.0.0.1/{self.services.port}; echo "$@" >&3; read -r answer <&3; '
                                'echo "$answer" >&2; [ "$answer" = done ]')
        for tool, java in (("kafka-topics.sh", "TopicCommand"), ("kafka-configs.sh", "ConfigCommand")):
            name = f"org.apache.kafka.tools.{java}" if java == "TopicCommand" else f"kafka.admin.{java}"
            self._tool(tool, f'exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "{p.kafka.classpath}" {name} "$@"')

    def _tool(self, name, line):
        path = self.bin / name
        path.write_text("#!/bin/bash\n" + line.format(config=self.p.walpost.file) + "\n", encoding="utf-8")
        path.chmod(0o755)

    def close(self):
        self.services.close()

    def follow(self, steps):
        for step in steps:
            self.type(step)

    def type(self, step):
        text = self.fill(step.text)
        if step.language == "yaml":
            self._configure(yaml.safe_load(text))
            return
        command = ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        if step.language == "sh":  # what is only asked goes on after an answer that is no success
            command = ["bash", "-euo" if step.kind == "do" else "-uo", "pipefail", "-c", text]
        try:
            done = subprocess.run(command, input=text if step.language == "sql" else "", capture_output=True, text=True, check=False, timeout=60,
                                  cwd=servers.ROOT, env=self.environment())
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{step.where}: no end of\n{text}\n{self.answers}\n{self.p.walpost.status()}") from error
        self.answers += done.stdout
        outcome = f"{step.where}: exit {done.returncode} of\n{text}\n{done.stdout}{done.stderr}"
        if step.kind == "do":
            assert done.returncode == 0, outcome
        wrong = re.search(r"syntax error|command not found|nknown verb|not expected|column .* does not exist|No such file",
                          done.stderr)
        assert not wrong and (done.returncode in ANSWERS or step.language == "sql"), outcome

    def environment(self):
        p = self.p
        return {**os.environ, "PATH": f"{self.bin}:{p.postgres.bindir}:{os.environ['PATH']}", "PGHOST": str(p.postgres.path),
                "PGPORT": str(p.postgres.port), "PGUSER": "postgres", "PGDATABASE": p.database, "PGDATA": str(p.postgres.data)}

    def fill(self, text):
        """PUBLICATION is also a word of SQL: only in quotes is it a name."""
        for word, value in self.words.items():
            pattern = rf"(?<=[\"']){word}(?=[\"'])" if word == "PUBLICATION" else rf"(?<![A-Z_0-9]){re.escape(word)}(?![A-Z_0-9])"
            text = re.sub(pattern, lambda _: str(value(self) if callable(value) else value), text)  # noqa: B023
        return text

    def _configure(self, changes):
        file = self.p.walpost.file
        content = json.loads(file.read_text(encoding="utf-8"))
        merge(content, changes)
        servers.allow_any_topic(content)
        file.write_text(json.dumps(content), encoding="utf-8")


def merge(content, changes):
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(content.get(key), dict):
            merge(content[key], value)
        else:
            content[key] = value


class Services:
    """What systemctl asks for is done to the walpost and the PostgreSQL of a pipeline."""

    def __init__(self, p):
        self.p = p
        services = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                self.wfile.write((services.answer(self.rfile.readline().decode().split()) + "\n").encode())

        self._server = socketserver.TCPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def answer(self, words):
        try:
            action, unit = words
            getattr(self, f"{action}_{unit}")()
            return "done"
        except Exception as error:  # noqa: BLE001 - whoever typed it gets it
            return f"{' '.join(words)}: {error!r}"

    def reload_walpost(self):
        self.p.walpost.signal(1)

    def stop_walpost(self):
        if self.p.walpost.process.poll() is None:
            self.p.walpost.stop()

    def start_walpost(self):
        self.p.walpost.start(wait=None)

    def restart_walpost(self):
        self.stop_walpost()
        self.start_walpost()

    def restart_postgresql(self):
        self.p.postgres.restart()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextlib.contextmanager
def operator(p, folder, words):
    made = Operator(p, folder, words)
    try:
        yield made
    finally:
        made.close()
