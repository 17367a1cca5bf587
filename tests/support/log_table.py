"""What docs/logging.md says of each log event."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "logging.md"
ALWAYS = {"ts", "level", "event", "msg"}


def rows():
    """{event: (levels, fields)}"""
    found, fields = {}, set()
    for event, levels, named in re.findall(r"^\| `(\w+)` \| ([^|]*) \| [^|]* \| ([^|]*?) ?\|", DOCUMENT.read_text(encoding="utf-8"), re.M):
        fields = fields if named == "the same" else set(re.findall(r"`(\w+)`", named))
        found[event] = (set(levels.split(", ")), fields)
    return found


def assert_documented(lines):
    table = rows()
    for line in lines:
        levels, fields = table[line["event"]]
        assert line["level"] in levels and set(line) - ALWAYS <= fields, line
