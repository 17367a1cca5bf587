"""Where the roots of other Debians come from: what apt uses here, without what is not Debian's."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))
import debian_root  # noqa: E402 - the path above makes it importable

EX_USAGE = 64
STANZAS = """Types: deb
# the archive
URIs: http://a.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://a.example/sources
Suites: bookworm
Components: main

Types: deb
URIs: http://b.example/security
Suites: bookworm-security
Components: main
"""


@pytest.fixture
def etc(tmp_path, monkeypatch):
    monkeypatch.delenv("WALPOST_DEBIAN_MIRROR", raising=False)
    (tmp_path / "apt" / "sources.list.d").mkdir(parents=True)
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n', encoding="utf-8")
    return tmp_path


def test_sources_of_the_host_in_both_forms_serve_another_suite(etc):
    (etc / "apt" / "sources.list.d" / "debian.sources").write_text(STANZAS, encoding="utf-8")
    (etc / "apt" / "sources.list").write_text("# deb http://old.example bookworm main\ndeb [arch=amd64] http://c.example bookworm main\n",
                                              encoding="utf-8")
    assert debian_root.host_sources("trixie", etc).splitlines() == [
        "deb http://c.example trixie main", "deb http://a.example/debian trixie main", "deb http://a.example/debian trixie-updates main",
        "deb http://b.example/security trixie-security main"]


def test_archives_that_are_not_debians_are_left_out(etc):
    (etc / "apt" / "sources.list.d" / "others.list").write_text(
        "deb http://pg.example bookworm-pgdg main\ndeb http://docker.example bookworm stable\ndeb http://d.example bookworm main\n", encoding="utf-8")
    assert debian_root.host_sources("bookworm", etc) == "deb http://d.example bookworm main\n"


def test_mirror_that_is_named_is_used(etc, monkeypatch):
    monkeypatch.setenv("WALPOST_DEBIAN_MIRROR", "http://m.example/debian")
    assert debian_root.host_sources("trixie", etc) == (
        "deb http://m.example/debian trixie main\ndeb http://m.example/debian trixie-updates main\n")


def test_host_that_is_no_debian_gets_debians_own_address(etc):
    (etc / "os-release").write_text("ID=ubuntu\n", encoding="utf-8")
    assert debian_root.host_sources("bookworm", etc).startswith("deb http://deb.debian.org/debian bookworm main\n")


@pytest.mark.parametrize(("given", "means"), [("all", ["12", "13"]), ("13", ["13"]), ("13,12", ["13", "12"])])
def test_versions_are_listed(given, means):
    assert debian_root.versions_of(given) == means


@pytest.mark.parametrize("given", ["", "11", "12,", "12 13", "bookworm"])
def test_version_that_is_none_is_wrong_usage(given, capsys):
    with pytest.raises(SystemExit) as ended:
        debian_root.versions_of(given)
    assert ended.value.code == EX_USAGE
    assert "there are 12, 13, and all" in capsys.readouterr().err
