"""What scripts/bootstrap takes from registries has to be what it was when somebody looked at it."""

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LISTS = sorted(ROOT.glob("tests/**/requirements.txt"))
PROJECTS = [ROOT / name for name in ("tests/support/kafka", "tests/readers/java", "docs/examples/java")]


def bootstrap():
    return (ROOT / "scripts/bootstrap").read_text(encoding="utf-8")


def agrees(function, *arguments):
    done = subprocess.run(["bash", "-c", '. "$0/scripts/lib/hashes.sh"; "$@"', ROOT, function, *arguments], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture
def jars(tmp_path):
    """A folder with two jars, and their list."""
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in ("B.jar", "a-1.0.jar"):
        (folder / name).write_bytes(name.encode())
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("B.jar", "a-1.0.jar")), encoding="utf-8")
    return folder, sums


def test_jars_of_the_list_are_taken(jars):
    assert agrees("jars_agree", *jars)


@pytest.mark.parametrize("change", [
    lambda folder: (folder / "B.jar").write_bytes(b"another"), lambda folder: (folder / "B.jar").unlink(),
    lambda folder: (folder / "c.jar").write_bytes(b"more"), lambda folder: (folder / "B.jar").rename(folder / "b.jar")],
    ids=["changed", "missing", "more", "another name"])
def test_other_jars_are_rejected(jars, change):
    change(jars[0])
    assert not agrees("jars_agree", *jars)


def test_file_is_taken_with_its_hash_only(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x")
    assert agrees("file_agrees", file, hashlib.sha256(b"x").hexdigest())
    assert not agrees("file_agrees", file, hashlib.sha256(b"y").hexdigest())
    assert not agrees("file_agrees", file, "")


def packages(lines):
    return dict(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==(\S+)", lines, re.M))


@pytest.mark.parametrize("requirements", LISTS, ids=lambda path: path.parent.name)
def test_python_packages_of_a_list_are_locked_with_hashes(requirements):
    lock = requirements.with_name("requirements.lock").read_text(encoding="utf-8")
    locked, named = packages(lock), packages(requirements.read_text(encoding="utf-8"))
    assert named and {name: locked.get(name) for name in named} == named, "run scripts/lib/pin_python_packages.py"
    entries = re.split(r"(?<!\\)\n", lock.strip())[1:]
    assert len(entries) == len(locked)
    for entry in entries:
        assert re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry


def test_python_packages_are_installed_from_locks_with_hashes():
    installs = re.findall(r"pip\" install(?:.*\\\n)?.*", bootstrap())
    assert len(installs) == 2
    for install in installs:
        assert "--require-hashes" in install and "--only-binary=:all:" in install, install
    used = set(re.findall(r"tests/\S+/requirements\.\w+", bootstrap()))
    assert used == {path.with_name("requirements.lock").relative_to(ROOT).as_posix() for path in LISTS}


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name)
def test_jars_that_a_project_names_have_hashes(project):
    sums = (project / "SHA256SUMS").read_text(encoding="utf-8")
    assert all(re.fullmatch(r"[0-9a-f]{64}  \S+\.jar", line) for line in sums.splitlines())
    named = re.findall(r"<dependency>.*?<artifactId>([^<]+)</artifactId>\s*<version>([^<]+)</version>",
                       (project / "pom.xml").read_text(encoding="utf-8"), re.S)
    assert named
    for artifact, version in named:
        assert f"  {artifact}-{version}.jar\n" in sums, f"{artifact} {version}: write SHA256SUMS anew with jar_hashes of scripts/lib/hashes.sh"


def test_what_maven_brings_is_compared():
    parts = bootstrap().split("mvn -q")[1:]
    assert len(parts) == 3
    for part in parts:
        assert re.search(r"(jars|file)_agrees? .*\|\|\n.*exit 69", part.split("\n}\n")[0]), part


def test_node_packages_are_installed_from_the_lock_with_hashes():
    assert "npm ci " in bootstrap() and "npm install" not in bootstrap()
    folder = ROOT / "docs/examples/node"
    lock = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert lock.pop("")["dependencies"] == json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert lock and all(each["integrity"].startswith("sha512-") for each in lock.values())
