#!/usr/bin/python3
"""Writes walpost.1 and walpost.yaml.5: from what the program says of its verbs and options, and from docs/configuration.md.

    scripts/lib/man_pages.py WALPOST FOLDER      WALPOST is the program, FOLDER is where they go
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SEE_ALSO = """.SH FILES
.TP
.I /etc/walpost/walpost.yaml
The configuration, see
.BR walpost.yaml (5).
.SH SEE ALSO
.BR walpost.yaml (5),
.BR pg_recvlogical (1),
.BR systemd.service (5)
"""


def plain(text):
    """Text in which no character means anything to roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\\&" + text if text.startswith(".") else text


def inline(markdown):
    """A line of Markdown: code is bold, links are their text."""
    markdown = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", markdown.strip())
    parts = re.split(r"(`[^`]*`|\*\*[^*]*\*\*)", markdown)
    text = "".join(f"\\fB{plain(part[1:-1] if part[0] == '`' else part[2:-2])}\\fR" if part[:1] == "`" or part[:2] == "**" else plain(part).removeprefix("\\&")
                   for part in parts)
    return "\\&" + text if text.startswith((".", "'")) else text


def header(name, section, what, version):
    return f'.TH {name.upper()} {section} "" "walpost {version}"\n.SH NAME\n{plain(name)} \\- {plain(what)}\n'


def options(verb, hidden=("--help",)):
    lines = []
    for option in verb["options"]:
        if option["name"] in hidden:
            continue
        value = f" \\fI{plain(option['value'])}\\fR" if option["value"] and not option["positional"] else ""
        default = f" Default: {plain(option['default'])}." if option["default"] else ""
        lines.append(f".TP\n\\fB{plain(option['name'])}\\fR{value}\n{plain(option['help'])}.{default}\n")
    return "".join(lines)


def verbs(verb):
    for below in verb["verbs"]:
        if not below["verbs"]:
            yield below
        yield from verbs(below)


def exit_codes():
    section = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8").split("\n## Exit codes\n")[1]
    return "".join(f".TP\n.B {code}\n{inline(meaning)}\n" for code, meaning in re.findall(r"^\| (\d+) \|(.*)\|$", section, re.M))


def program_page(tree, version):
    page = [header("walpost", 1, "sends a transactional outbox from PostgreSQL to Kafka", version),
            ".SH SYNOPSIS\n.B walpost\n[\\fIoptions\\fR] \\fIverb\\fR [\\fIoptions\\fR]\n",
            ".SH DESCRIPTION\nReads what was committed to outbox tables from the write\\-ahead log, through a logical replication slot,\n"
            "and publishes it to Kafka: at least once, in the order of commits for each key.\n",
            ".SH OPTIONS\n", options(tree), ".SH VERBS\n"]
    for verb in verbs(tree):
        page.append(f".SS walpost {plain(verb['path'])}\n{plain(verb['help'])}.\n{options(verb)}")
    page += [".SH EXIT STATUS\n", exit_codes(), SEE_ALSO]
    return "".join(page)


def markdown(text):
    """Headings, paragraphs, code and tables of a document, as roff."""
    page, table = [], False
    code = False
    for line in text.splitlines():
        if line.startswith("```"):
            code = not code
            page.append(".PP\n.nf\n" if code else ".fi\n")
        elif code:
            page.append((plain(line) or "\\&") + "\n")
        elif line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            page.append(f".{'SH' if level <= 2 else 'SS'} {inline(line.lstrip('# ')).upper() if level <= 2 else inline(line.lstrip('# '))}\n")
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not table or re.fullmatch(r"[|\s-]+", line):
                table = True  # its head
            elif len(cells) > 1:
                page.append(f".TP\n{inline(cells[0]) or '-'}\n{inline('; '.join(cell for cell in cells[1:] if cell))}\n")
        elif not line.strip():
            table = False
            page.append(".PP\n" if page and page[-1] != ".PP\n" and not page[-1].startswith((".SH", ".SS")) else "")
        else:
            page.append(inline(line) + "\n")
    return "".join(page)


def configuration_page(version):
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8").split("\n", 1)[1].split("\n## Exit codes\n")[0]
    return (header("walpost.yaml", 5, "configuration of walpost", version) + ".SH DESCRIPTION\n" + markdown(text.strip())
            + ".SH SEE ALSO\n.BR walpost (1)\n")


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    tree = json.loads(subprocess.run([program, "completion", "json"], capture_output=True, check=True).stdout)
    version = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout.split()[1]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "walpost.1").write_text(program_page(tree, version), encoding="utf-8")
    (folder / "walpost.yaml.5").write_text(configuration_page(version), encoding="utf-8")


if __name__ == "__main__":
    main()
