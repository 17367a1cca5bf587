"""The commands of docker/README.md, section by section: a test runs what a reader would type."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "docker" / "README.md"


def sections():
    """{heading: its commands}, of the blocks marked sh."""
    found = {}
    for part in re.split(r"^##+ ", README.read_text(encoding="utf-8"), flags=re.M)[1:]:
        heading, body = part.split("\n", 1)
        commands = [line for block in re.findall(r"^```sh\n(.*?)^```", body, re.M | re.S) for line in block.splitlines() if line]
        if commands:
            found[heading] = commands
    return found


class Section:
    """Its commands one after the other. Leaving it with commands that were not run is a failure: a reader would run them."""

    def __init__(self, heading, run):
        self._commands = sections()[heading]
        self._run = run

    def next(self, begins, exit_code=0, **options):
        """Runs the next command, which must begin so; what it printed."""
        command = self._commands.pop(0)
        assert command.startswith(begins), f"the page has {command!r} here"
        done = self._run(command, **options)
        assert done.returncode == exit_code, f"{command}: exit {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def skip(self, begins):
        """The next command is run otherwise."""
        assert self._commands.pop(0).startswith(begins)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            assert self._commands == [], "not run"
