"""What scripts/test and tests/support/with_kafka.py say and end with before they begin any work."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EX_USAGE, EX_UNAVAILABLE = 64, 69


def run(*command, **environment):
    return subprocess.run([str(word) for word in command], cwd="/", env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=60, check=False)


@pytest.mark.parametrize("script", ["test", "check", "package", "release"])
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_argument_and_does_nothing(script, flag):
    result = run(ROOT / "scripts" / script, flag)
    assert (result.returncode, result.stderr) == (0, "")
    arguments = {"test": ["--without-kafka", "--without-chaos", "--postgres LIST", "--full", "--packages", "--containers", "-R REGEX"],
                 "check": ["--style", "--full"], "package": ["--install", "--debian LIST"], "release": ["--check", "--without-tests"]}[script]
    for argument in arguments:
        assert f"scripts/{script} {argument}" in result.stdout
    assert "set -euo" not in result.stdout
    assert "==" not in result.stdout, "a stage was begun"


@pytest.mark.parametrize("script", ["test", "check", "package", "release"])
def test_unknown_argument_is_wrong_usage(script):
    result = run(ROOT / "scripts" / script, "--no-such-argument")
    assert (result.returncode, result.stdout) == (EX_USAGE, "")
    assert result.stderr == f"scripts/{script}: unknown argument --no-such-argument (see --help)\n"


def test_second_argument_is_looked_at_before_anything_runs():
    result = run(ROOT / "scripts" / "test", "--without-kafka", "extra")
    assert (result.returncode, result.stdout) == (EX_USAGE, "")


def test_filter_of_what_is_one_test_is_wrong_usage():
    result = run(ROOT / "scripts" / "test", "--containers", "-R", "image")
    assert (result.returncode, result.stdout) == (EX_USAGE, "")
    assert "-R has no part in it" in result.stderr


def test_filter_without_its_expression_is_rejected():
    result = run(ROOT / "scripts" / "test", "-R")
    assert result.returncode != 0
    assert "-R needs a regular expression" in result.stderr


@pytest.mark.parametrize("versions", [["12"], ["13,99"], []])
@pytest.mark.parametrize("script", ["test", "bootstrap"])
def test_postgres_without_a_version_that_there_is_is_rejected(script, versions):
    result = run(ROOT / "scripts" / script, "--postgres", *versions)
    assert result.returncode != 0 and result.stdout == ""
    assert "13 14 15 16 17 18" in result.stderr or "--postgres needs versions, or all" in result.stderr


def test_without_kafka_the_command_is_not_run_and_what_is_missing_is_named(tmp_path):
    marker = tmp_path / "ran"
    result = run(ROOT / "tests" / "support" / "with_kafka.py", "touch", marker, KAFKA_HOME="/nonexistent", TMPDIR=str(tmp_path))
    assert (result.returncode, result.stdout) == (EX_UNAVAILABLE, "")
    assert "/nonexistent" in result.stderr
    assert "KAFKA_HOME" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == [], "the command was run, or its folder was left behind"
