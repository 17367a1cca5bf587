"""What scripts/release rejects before it makes anything, and what the packages are called."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-22\n\n### Added\n\n- All.\n\n## [0.0.1] - 2026-01-01\n\n- Old.\n"


class Checkout:
    """A repository with the scripts and what they look at."""

    def __init__(self, path):
        self.path = path
        (path / "scripts").mkdir(parents=True)
        for name in ("release", "package"):
            shutil.copy(ROOT / "scripts" / name, path / "scripts" / name)
        self.write("CMakeLists.txt", "project(walpost VERSION 0.1.0 LANGUAGES CXX)\n")
        self.write("CHANGELOG.md", CHANGELOG)
        self.git("init", "-q")
        self.commit()

    def write(self, name, content):
        (self.path / name).write_text(content, encoding="utf-8")

    def git(self, *arguments):
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=self.path, check=True, capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")

    def release(self, *arguments):
        return subprocess.run([self.path / "scripts" / "release", *arguments], cwd="/", capture_output=True, text=True, check=False)

    def shell(self, function):
        """What a function of scripts/package prints."""
        functions = (self.path / "scripts" / "package").read_text(encoding="utf-8").split("\n\nin_checkout()", 1)[1].split("\n\nbuild() {", 1)[0]
        return subprocess.run(["bash", "-euc", f"in_checkout(){functions}\nSOURCE_DATE_EPOCH=1800000000\n{function}"], cwd=self.path,
                              capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path / "walpost")


def test_complete_state_passes(checkout):
    done = checkout.release("--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"release: 0\.1\.0 of [0-9a-f]{8}\n", done.stdout)


def test_uncommitted_change_is_rejected(checkout):
    checkout.write("new", "")
    done = checkout.release()
    assert (done.returncode, done.stderr) == (1, "scripts/release: there are changes that are not committed\n")
    assert not (checkout.path / "build").exists()


@pytest.mark.parametrize(("changelog", "reported"), [
    (CHANGELOG.replace("[0.1.0] - 2026-11-22", "[0.1.0]"), 'has no heading "## [0.1.0] - DATE"'),
    (CHANGELOG.replace("[0.1.0]", "[0x1.0]"), 'has no heading "## [0.1.0] - DATE"'),
    (CHANGELOG.replace("[Unreleased]\n", "[Unreleased]\n\n- More.\n"), "has unreleased changes: move them to [0.1.0]"),
])
def test_changelog_without_the_version_is_rejected(checkout, changelog, reported):
    checkout.write("CHANGELOG.md", changelog)
    checkout.commit()
    done = checkout.release("--check")
    assert done.returncode == 1 and reported in done.stderr


def test_version_that_was_released_is_rejected_from_another_commit(checkout):
    checkout.git("tag", "-a", "v0.1.0", "-m", "x")
    assert checkout.release("--check").returncode == 0
    checkout.commit()
    done = checkout.release("--check")
    assert done.returncode == 1 and "the tag v0.1.0 is another commit" in done.stderr


def test_package_has_the_version_of_its_tag_and_sorts_before_it_without_one(checkout):
    before = checkout.shell("package_version")
    assert re.fullmatch(r"0\.1\.0~20270115080000\.[0-9a-f]{8}", before)
    subprocess.run(["dpkg", "--compare-versions", before, "lt", "0.1.0"], check=True)
    checkout.git("tag", "-a", "v0.1.0", "-m", "x")
    assert checkout.shell("package_version") == "0.1.0"


def test_what_is_published_is_made_where_no_test_runs():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]

    def runs(job):
        return "\n".join(step.get("run", "") for step in job["steps"])

    makers = {name for name, job in jobs.items() if any("upload-artifact" in step.get("uses", "") for step in job["steps"])}
    testers = {name for name, job in jobs.items() if re.search(r"scripts/(test|check)|scripts/release(?! --without-tests)", runs(job))}
    assert makers and testers and not makers & testers
    assert makers | testers <= set(jobs["draft"]["needs"])
