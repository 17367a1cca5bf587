"""docs/failures.md is what scripts/failures writes, every failure that is handled has a test, and the script notices when not."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FAILURES = ROOT / "scripts" / "failures"

DATA = """# A comment.

== Network

1. A cable is cut.
   It connects again,
   with pauses.
2. Nobody listens.
   not handled: there is nothing to say to nobody.

== Kafka

3. Kafka is away.
   It waits.
"""
CPP = """// Loses something.
// Failure 1.
TEST_F(CableTest,
       IsConnectedAgain) {}

TEST(CableTest, HasNoNumber) {}
"""
PYTHON = """import pytest


# Failures 1, 3.
@pytest.mark.parametrize("n", [1])
def test_kafka_that_is_away_is_waited_for(n):
    pass
"""
FAULTS = """STEPS = {
    # Failure 3.
    "broker kill -9": Injector._broker_kill,
}
"""
WRITTEN = """| 1 | A cable is cut. | It connects again, with pauses. | \
[kafka_test.py](../tests/integration/kafka_test.py): `test_kafka_that_is_away_is_waited_for`<br>\
[cable_test.cc](../tests/unit/net/cable_test.cc): `CableTest.IsConnectedAgain` |
| 2 | Nobody listens. | **Not handled:** there is nothing to say to nobody. |  |
"""


def run(*arguments):
    """The exit code and the lines it printed."""
    result = subprocess.run([sys.executable, FAILURES, *arguments], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return result.returncode, result.stdout.splitlines()


@pytest.fixture(name="tree")
def fixture_tree(tmp_path):
    for name, content in {"tests/failures.txt": DATA, "tests/unit/net/cable_test.cc": CPP, "tests/integration/kafka_test.py": PYTHON,
                          "tests/chaos/faults.py": FAULTS, "docs/other.md": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert run(tmp_path) == (0, [])
    return tmp_path


def change(tree, name, old, new):
    text = (tree / name).read_text(encoding="utf-8")
    assert old in text
    (tree / name).write_text(text.replace(old, new), encoding="utf-8")


def findings(tree):
    """What is said when the document is written, which it is in any case."""
    code, lines = run(tree)
    assert code == (1 if lines else 0)
    return lines


def test_repository_is_in_order():
    assert run("--check") == (0, [])


def test_document_names_the_tests_of_each_failure_and_counts_them(tree):
    text = (tree / "docs" / "failures.md").read_text(encoding="utf-8")
    assert "3 failures: 2 are handled" in text and "1 are not handled" in text
    assert WRITTEN in text
    assert text.index("## Network") < text.index("| 2 |") < text.index("## Kafka") < text.index("[faults.py](../tests/chaos/faults.py): `broker kill -9`")


def test_document_that_is_older_than_its_tests_is_found_and_left_alone(tree):
    assert run("--check", tree) == (0, [])
    change(tree, "tests/unit/net/cable_test.cc", "IsConnectedAgain", "IsMended")
    before = (tree / "docs" / "failures.md").read_text(encoding="utf-8")
    assert run("--check", tree) == (1, ["docs/failures.md:1: is not what scripts/failures writes: run it"])
    assert (tree / "docs" / "failures.md").read_text(encoding="utf-8") == before


@pytest.mark.parametrize("name, old, new, found", [
    ("tests/unit/net/cable_test.cc", "Failure 1.", "Failures 1, 4.", "tests/unit/net/cable_test.cc:2: failure 4 does not stand in tests/failures.txt"),
    ("tests/unit/net/cable_test.cc", "Failure 1.", "Failures 1, 2.",
     "tests/unit/net/cable_test.cc:2: failure 2 is shown here, but tests/failures.txt says that it is not handled"),
    ("tests/unit/net/cable_test.cc", "// Failure 1.\n", "// Failure 1.\n\n", "tests/unit/net/cable_test.cc:2: no test begins on the next line"),
    ("tests/unit/net/cable_test.cc", "Failure 1.", "Failure 1, the worst",
     "tests/unit/net/cable_test.cc:2: write it as 'Failure 12.' or 'Failures 12, 31.'"),
    ("tests/integration/kafka_test.py", "def test_kafka", "def kafka", "tests/integration/kafka_test.py:4: no test begins on the next line"),
    ("tests/failures.txt", "3. Kafka", "2. Kafka", "tests/failures.txt:13: failure 2 stands here twice"),
    ("tests/failures.txt", "3. Kafka", "4. Kafka", "tests/failures.txt:1: failure 3 is missing"),
    ("tests/failures.txt", "   It waits.\n", "", "tests/failures.txt:1: failure 3 has no answer"),
    ("tests/failures.txt", "   not handled: there", "   There", "tests/failures.txt:1: failure 2 is shown by no test: add one, or say 'not handled: ' and why"),
    ("tests/failures.txt", "2. Nobody", "Two: nobody",
     "tests/failures.txt:8: is no part (== PART), no failure (N. WHAT HAPPENS) and no answer (indented)"),
])
def test_what_does_not_fit_is_found(tree, name, old, new, found):
    change(tree, name, old, new)
    assert found in findings(tree)


def test_examples_in_the_tests_of_scripts_are_no_markers(tree):
    (tree / "tests" / "unit" / "scripts").mkdir(parents=True)
    (tree / "tests" / "unit" / "scripts" / "some_test.py").write_text("# Failure 99.\n", encoding="utf-8")
    assert findings(tree) == []
