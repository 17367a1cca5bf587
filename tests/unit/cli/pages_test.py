"""Completions and man pages say what the program's command line says, and are what shells and man take."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

WALPOST = os.environ["WALPOST_BIN"]
SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "lib" / "man_pages.py"

# What bash asks of the script for the line $1; prints what it proposes.
ASK = """source <("$WALPOST_BIN" completion bash)
read -ra COMP_WORDS <<<"$1"
[[ $1 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_walpost
printf '%s\\n' "${COMPREPLY[@]}"
"""


def walpost(*arguments):
    return subprocess.run([WALPOST, *arguments], capture_output=True, text=True, check=True).stdout


def proposed(line):
    done = subprocess.run(["bash", "-c", ASK, "bash", line], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def help_of(path):
    """(verbs, options) as --help of a verb names them."""
    text = walpost(*path, "--help")
    verbs = re.findall(r"^  ([a-z][a-z-]*)(?: {2,}|$)", text.split("\nSubcommands:\n")[1], re.M) if "\nSubcommands:\n" in text else []
    return verbs, re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.M)


def paths(path=()):
    yield path
    for verb in help_of(path)[0]:
        yield from paths((*path, verb))


ALL = list(paths())


def test_the_walk_finds_the_verbs():
    assert {("run",), ("slot", "list"), ("completion", "fish"), ("config", "import-debezium")} <= set(ALL) and len(ALL) > 25


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_bash_completes_every_verb_and_option_of_help(path):
    verbs, options = help_of(path)
    line = " ".join(("walpost", *path))
    assert set(verbs) <= set(proposed(line + " "))
    assert set(options) | {"--config", "--set"} == set(proposed(line + " --"))


def test_bash_knows_values_from_verbs():
    assert proposed("walpost --config run sta") == ["status"]
    assert proposed("walpost --config ") == [] and proposed("walpost replay --key ") == []
    assert "--limit" in proposed("walpost tail --payload --l")
    assert proposed("walpost slot --set x list --") == proposed("walpost slot list --")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_verb_and_option(shell):
    script = walpost("completion", shell)
    for path in ALL[1:]:
        assert f"'{' '.join(path)}'" in script
        for option in help_of(path)[1]:
            assert option in script if shell == "zsh" else f"__walpost_at \"{' '.join(path)}\"' -l '{option[2:]}'" in script


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, str(SCRIPT), WALPOST, str(folder)], check=True)
    return folder


def shown(page):
    done = subprocess.run(["man", "--warnings=all", "-l", str(page)], capture_output=True, text=True, check=False,
                          env={**os.environ, "MANWIDTH": "500", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_programs_page_has_every_verb_option_and_exit_code(pages):
    text = shown(pages / "walpost.1")
    for path in ALL[1:]:
        verbs, options = help_of(path)
        if verbs:
            continue
        section = re.search(rf"^   walpost {' '.join(path)}\n(.*?)^(?:   )?\S", text, re.M | re.S)
        assert section, path
        for option in set(options) - {"--help"}:
            assert re.search(rf"^       {option}\b", section[1], re.M), (path, option)
    for code in (0, 64, 69, 70, 75, 77, 78):
        assert re.search(rf"^       {code} ", text, re.M)


def test_the_files_page_has_every_key(pages):
    text = shown(pages / "walpost.yaml.5")
    document = (SCRIPT.parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    keys = re.findall(r"^\| `([\w.\[\]]+)` \|", document.split("\n## Keys\n")[1].split("\n### Columns\n")[0], re.M)
    assert len(keys) > 40
    assert [key for key in keys if not re.search(rf"^       {re.escape(key)}(?:\s|$)", text, re.M)] == []
    assert "`" not in text and "](" not in text and "PG* variables" in text


def test_the_tree_is_json():
    assert json.loads(walpost("completion", "json"))["verbs"]
