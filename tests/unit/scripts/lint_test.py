"""scripts/lint finds what it promises to find, in trees of a few files, and nothing in one that keeps the rules."""

import subprocess
import sys
from pathlib import Path

import pytest

LINT = Path(__file__).resolve().parents[3] / "scripts" / "lint"

DESIGN = """# Design

| module | purpose | may use |
|---|---|---|
| **pure** | | |
| `src/base` | `Lsn`, states; admission: two users | – |
| `src/outbox` | row → `Event` | base |
| **edges** | | |
| `src/postgres` | the only libpq | base |
| **programs** | | |
| `src/config` | YAML → options (the modules' own) | base, outbox |
| `src/runtime` | the loop | base |
| `src/operations` | every other verb | all but config, runtime |
"""

STATE = """std::string_view HaltReasonName(HaltReason reason) {
  switch (reason) {
    case HaltReason::kSlotMissing:
      return "slot_missing";
    case HaltReason::kPoisonWal:
      return "poison_wal";
  }
  return "unknown";
}
"""

RUNBOOK = """# Runbook

## slot_missing

```
# not_a_heading
```

## `poison_wal`

### What to do
"""

CLEAN = {
    "docs/design.md": DESIGN,
    "docs/runbook.md": RUNBOOK,
    "src/base/state.cc": STATE,
    "src/base/lsn.h": "#pragma once\n#include <string>\n",
    "src/base/CMakeLists.txt": "walpost_module(base\n  SOURCES state.cc\n  LIBRARIES absl::strings)\n",
    "src/outbox/mapper.cc": '#include "outbox/mapper.h"\n#include <vector>\n#include "absl/strings/str_cat.h"\n#include "base/lsn.h"\n',
    "src/outbox/CMakeLists.txt": "walpost_module(outbox\n  SOURCES mapper.cc\n  DEPENDS base  # not config\n  LIBRARIES absl::strings)\n",
    "src/postgres/connection.cc": "#include <libpq-fe.h>\n#include <poll.h>\n",
    "src/operations/init.cc": '#include "outbox/mapper.h"\n#include "postgres/connection.h"\n',
    "src/main.cc": '#include "config/config.h"\n',
    "tests/CMakeLists.txt": "add_subdirectory(unit)\n",
    "tests/unit/CMakeLists.txt": "foreach(module base)\n",
    "tests/unit/base/CMakeLists.txt": "walpost_test(base_test SOURCES lsn_test.cc)\n",
    "tests/unit/base/lsn_test.cc": "TEST(LsnTest, A) {}\n",
    "tests/unit/corpus/binary": b"\xff\xfe\x00std::endl",
    "scripts/run": "#!/usr/bin/env bash\nexit 0\n",
}


@pytest.fixture(name="tree")
def fixture_tree(tmp_path):
    tree = Tree(tmp_path / "scripts")  # a folder of this name above must not matter
    for name, content in CLEAN.items():
        tree.write(name, content)
    return tree


class Tree:
    def __init__(self, root):
        self.root = root

    def write(self, name, content):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def append(self, name, content):
        self.write(name, (self.root / name).read_text(encoding="utf-8") + content)

    def lint(self):
        """The exit code and the lines it printed."""
        result = subprocess.run([sys.executable, LINT, self.root], capture_output=True, text=True, check=False)
        assert result.stderr == ""
        return result.returncode, result.stdout.splitlines()

    def finding(self):
        """The only line it printed."""
        code, lines = self.lint()
        assert (code, len(lines)) == (1, 1), lines
        return lines[0]


def test_clean_tree_passes(tree):
    assert tree.lint() == (0, [])


# --- Directions ---


@pytest.mark.parametrize("name, line, reported", [
    ("src/outbox/new.h", '#include "postgres/connection.h"', "outbox may not use postgres"),
    ("src/base/new.cc", '#include "outbox/mapper.h"', "base may not use outbox"),
    ("src/operations/new.cc", '#include "config/config.h"', "operations may not use config"),
    ("src/operations/deep/new.cc", '#include "config/config.h"', "operations may not use config"),
    ("src/surprise/new.h", "", "module surprise is not in the table"),
])
def test_include_against_the_table_is_found(tree, name, line, reported):
    tree.write(name, "#pragma once\n" + line + "\n")
    assert reported in tree.finding()
    assert tree.finding().startswith(f"{name}:{2 if line else 1}: ")


@pytest.mark.parametrize("depends", ["DEPENDS base postgres", "DEPENDS postgres base", "DEPENDS\n    base\n    postgres"])
def test_depends_against_the_table_is_found(tree, depends):
    tree.write("src/outbox/CMakeLists.txt", f"walpost_module(outbox\n  SOURCES mapper.cc\n  {depends}\n  LIBRARIES glog::glog)\n")
    assert "outbox may not depend on postgres" in tree.finding()


@pytest.mark.parametrize("build", [
    "walpost_module(outbox SOURCES mapper.cc DEPENDS postgres)\n",
    "walpost_module(outbox SOURCES mapper.cc LIBRARIES walpost_postgres)\n",
    "walpost_module(outbox SOURCES mapper.cc)\ntarget_link_libraries(walpost_outbox PUBLIC walpost_postgres)\n",
])
def test_module_linked_past_depends_is_found(tree, build):
    tree.write("src/outbox/CMakeLists.txt", build)
    assert "outbox may not depend on postgres" in tree.finding()


@pytest.mark.parametrize("row, reported", [
    ("| `src/outbox` | row → `Event` | base, postgres |", "outbox may use postgres, which does not stand above it"),
    ("| `src/outbox` | row → `Event` | base, envelop |", "outbox may use envelop, which is no module"),
])
def test_table_that_contradicts_itself_is_found(tree, row, reported):
    tree.write("docs/design.md", DESIGN.replace("| `src/outbox` | row → `Event` | base |", row))
    assert reported in tree.finding()
    assert tree.finding().startswith("docs/design.md:7: ")


@pytest.mark.parametrize("design", ["# Design\n\nNo table.\n", None])
def test_missing_table_is_reported(tree, design):
    if design is None:
        (tree.root / "docs/design.md").unlink()
    else:
        tree.write("docs/design.md", design)
    result = subprocess.run([sys.executable, LINT, tree.root], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "docs/design.md: no module table found\n"


# --- What a module may touch ---


@pytest.mark.parametrize("header, owner", [
    ("<libpq-fe.h>", "postgres"),
    ("<librdkafka/rdkafka.h>", "kafka"),
    ("<microhttpd.h>", "observe"),
    ("<prometheus/counter.h>", "observe"),
    ("<yaml-cpp/yaml.h>", "config"),
    ('"yaml-cpp/yaml.h"', "config"),
    ("<CLI/CLI.hpp>", "cli"),
    ("<google/protobuf/message.h>", "envelope, registry"),
    ("<curl/curl.h>", "observe, registry"),
])
def test_library_in_the_wrong_module_is_found(tree, header, owner):
    tree.append("src/operations/init.cc", f"#include {header}\n")
    assert f"init.cc:3: only {owner} may use" in tree.finding()


@pytest.mark.parametrize("line", [
    "#include <thread>", "#include <mutex>", "#include <condition_variable>", "#include <future>", "#include <iostream>",
    "#include <fstream>", "#include <filesystem>", "#include <sys/socket.h>", "#include <poll.h>", "#include <unistd.h>",
    "#include <signal.h>", "#include <fcntl.h>", "#include <absl/time/clock.h>", '#include "absl/time/clock.h"',
    "auto t = std::chrono::steady_clock::now();", "auto t = std::chrono::system_clock::now();", "auto t = absl::Now();",
    "std::random_device device;", 'const char* home = std::getenv("HOME");',
])
def test_impure_line_in_a_pure_module_is_found(tree, line):
    tree.write("src/outbox/impure.cc", line + "\n")
    assert "impure.cc:1: outbox is pure" in tree.finding()
    tree.write("src/outbox/impure.cc", "// Not here: " + line + "\n")
    assert tree.lint() == (0, [])


def test_edge_may_do_what_a_pure_module_may_not(tree):
    tree.write("src/postgres/wait.cc", "#include <thread>\n#include <poll.h>\nauto t = std::chrono::steady_clock::now();\n")
    assert tree.lint() == (0, [])


# --- Names ---


@pytest.mark.parametrize("first, second, name", [
    ("constexpr int kLimit = 1;\n", "constexpr long kLimit{2};\n", "kLimit"),
    ("using Level = A::Level;\n", "using Level = B::Level;\n", "Level"),
    ("struct Part {\n", "class Part : public Base {\n", "Part"),
    ("bool Binary(const Value& value) { return true; }\n", "bool Binary(const Value& value) {\n", "Binary(const Value& value)"),
])
def test_name_that_two_files_of_a_module_define_is_found(tree, first, second, name):
    tree.write("src/base/first.cc", first)
    tree.write("src/outbox/first.cc", first)  # another module: they meet nowhere
    assert tree.lint() == (0, [])
    tree.write("src/base/second.cc", second)
    assert tree.finding() == f"src/base/second.cc:1: {name} is also defined in src/base/first.cc"


@pytest.mark.parametrize("first, second", [
    ("using Clock = std::chrono::steady_clock;\n", "using Clock = std::chrono::steady_clock;\n"),
    ("int Add(int a) {\n", "int Add(long a) {\n"),
    ("void First::Run() {\n", "void Second::Run() {\n"),
    ("struct Part;\n", "struct Part {\n"),
])
def test_names_that_differ_or_mean_the_same_are_not(tree, first, second):
    tree.write("src/base/first.cc", first)
    tree.write("src/base/second.cc", second)
    assert tree.lint() == (0, [])


# --- Sizes ---


@pytest.mark.parametrize("name, limit", [
    ("src/base/long.cc", 500), ("src/base/long.h", 250), ("scripts/lib/long.py", 500), ("scripts/long", 500),
    ("tests/support/long.h", 600), ("tests/support/long.cc", 600), ("tests/support/long.py", 600),
])
def test_file_is_as_long_as_allowed_and_no_longer(tree, name, limit):
    lines = "#!/usr/bin/env bash\n" + "x\n" * (limit - 1)
    tree.write(name, lines)
    assert tree.lint() == (0, [])
    tree.write(name, lines + "x\n")
    assert tree.finding() == f"{name}:{limit + 1}: {limit + 1} lines, at most {limit}"


# --- Words ---


@pytest.mark.parametrize("name, line, word", [
    ("src/base/w.cc", "std::cout << std::endl;", "std::endl"),
    ("src/base/w.cc", "absl::Mutex mutex;", "absl::Mutex"),
    ("src/base/w.cc", "int i;  // TODO later", "TODO"),
    ("src/base/w.cc", "int i;  // FIXME", "FIXME"),
    ("src/base/w.cc", "int i;  // XXX", "XXX"),
    ("scripts/tool.py", "# TODO later", "TODO"),
    ("scripts/tool", "#!/usr/bin/env bash\n# TODO later", "TODO"),
    ("src/base/w.cc", "auto* p = new Thing(1);", "new Thing"),
    ("src/base/w.cc", "auto* p = new Thing{};", "new Thing"),
    ("src/base/w.cc", "auto* p = new other::Thing;", "new other::Thing"),
    ("tests/support/w.cc", "TEST(A, DISABLED_B) {}", "DISABLED_B"),
    ("tests/support/w.cc", "GTEST_SKIP();", "GTEST_SKIP"),
    ("tests/support/w.py", 'pytest.skip("no")', "pytest.skip"),
    ("tests/support/w.py", 'pytest.importorskip("no")', "pytest.importorskip"),
    ("tests/support/w.py", "@pytest.mark.skip", "mark.skip"),
    ("tests/support/w.py", "@pytest.mark.skipif(True)", "mark.skipif"),
    ("tests/support/w.py", "@pytest.mark.xfail", "mark.xfail"),
    ("tests/support/w.cc", "std::this_thread::sleep_for(1s);", "sleep_for"),
    ("tests/support/w.cc", "std::this_thread::sleep_until(t);", "sleep_until"),
    ("src/base/w.cc", "usleep(10);", "usleep("),
    ("src/base/w.cc", "nanosleep(&pause, nullptr);", "nanosleep("),
    ("src/base/w.cc", "return json.dump(2);", ".dump("),
    ("src/base/w.cc", "return json->dump();", "->dump("),
])
def test_banned_word_is_found(tree, name, line, word):
    tree.write(name, line + "\n")
    assert tree.finding().startswith(f"{name}:{line.count(chr(10)) + 1}: '{word}': ")


@pytest.mark.parametrize("name, line", [
    ("src/base/w.cc", "// Not std::endl, which flushes; no sleep_for, no absl::Mutex."),
    ("src/base/w.cc", "std::unique_ptr<Thing> thing(new Thing(1));  // its constructor is private"),
    ("src/base/w.cc", "thing_.reset(new Thing(1));"),
    ("src/base/w.cc", "static auto* const sink = new Sink;"),
    ("src/base/w.cc", "auto* header = ::new (memory) RecordHeader();"),
    ("src/base/w.cc", "int renew = new_size; // a new Thing"),
    ("src/runtime/loop.cc", "nanosleep(&pause, nullptr);"),
    ("src/base/w.cc", "return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);"),
    ("tests/support/w.cc", "return json.dump();"),
    ("tests/support/w.cc", "::testing::AddGlobalTestEnvironment(new ServerEnvironment());"),
    ("tests/support/w.py", "time.sleep(0.02)"),
    ("tests/bench/relay.cc", "std::cout << std::endl;"),
    ("tests/unit/scripts/lint_test.py", "GTEST_SKIP TODO"),
    ("docs/notes.md", "TODO"),
])
def test_what_only_looks_like_a_banned_word_is_not(tree, name, line):
    tree.write(name, line + "\n")
    assert tree.lint() == (0, [])


def test_prose_is_wrapped_and_tables_code_and_single_words_are_not(tree):
    wide = "word " * 21
    tree.write("docs/w.md", f"| {wide} |\n```\n{wide}\n```\n- {'x' * 101}\n<!-- bench:begin -->\n{wide}\n<!-- bench:end -->\n")
    assert tree.lint() == (0, [])
    tree.write("docs/w.md", f"```\n{wide}\n```\n{wide}\n")
    assert tree.finding().startswith("docs/w.md:4: 105 columns")


def test_comments_are_wrapped_and_code_and_single_words_are_not(tree):
    wide = "word " * 21
    tree.write("tests/unit/base/w_test.cc", f"// {'x' * 101}\nint {'x' * 101};  // {wide}\n")
    assert not [line for line in tree.lint()[1] if "columns" in line]
    tree.write("tests/unit/base/w_test.cc", f"  // {wide}\n")
    assert [line for line in tree.lint()[1] if "columns, at most" in line]


@pytest.mark.parametrize("name, line, word, instead", [
    ("src/base/w.cc", "// What it tells of a row.", "tells", "report"),
    ("src/base/w.h", "int told = 0;", "told", "report"),
    ("src/base/w.cc", 'Fail("this cannot be told");', "told", "report"),
    ("src/base/w.cc", "void Job::TellTopic() {", "TellTopic", "Report"),
    ("src/base/w.cc", "bool TellsTimes();", "TellsTimes", "Report"),
    ("src/base/w.cc", "++not_told_;", "not_told_", "Report"),
    ("src/base/w.cc", 'fields.push_back({"not_told", text});', "not_told", "Report"),
    ("src/base/w.cc", "untold_.pop_front();", "untold_", "Report"),
    ("src/observe/page/w.js", "// Telling it again.", "Telling", "report"),
    ("sql/V1__w.up.sql", "-- Tells how many.", "Tells", "report"),
    ("docs/w.md", "The log tells why.", "tells", "report"),
    ("docs/monitoring/w.yml", "- name: told by the monitor", "told", "report"),
    ("README.md", "The log tells why.", "tells", "report"),
    ("src/base/w.cc", "// One line, for letters.", "letters", "dead letter"),
    ("docs/w.md", "The letter is open.", "letter", "dead letter"),
    ("docs/w.md", "A retry of stubs", "stubs", "truncated dead letter"),
    ("src/operations/w.cc", "const bool verdict = true;", "verdict", "decided"),
    ("src/operations/w.cc", "PresenceOptions options;", "PresenceOptions", "SettledRows"),
    ("src/operations/w.cc", '#include "operations/presence.h"', "operations/presence", "SettledRows"),
    ("src/operations/w.cc", 'add_option("--spill-dir", help);', "spill-dir", "--temp-dir"),
    ("docs/w.md", "It waits, and looks again.", "looks again", "resume"),
    ("docs/w.md", "Kafka refuses it.", "refuses", "reject"),
    ("src/base/w.h", "void OnRefused();", "OnRefused", "reject"),
    ("src/base/w.h", "int refused_topics_ = 0;", "refused_topics_", "reject"),
    ("docs/w.md", "There is nothing to mend.", "mend", "fix"),
    ("src/base/w.h", "struct ProgressPlace {", "struct ProgressPlace", "source"),
])
def test_retired_word_is_found_with_the_one_to_use(tree, name, line, word, instead):
    tree.write(name, line + "\n")
    found = tree.finding()
    assert found.startswith(f"{name}:1: '{word}': ") and instead in found


@pytest.mark.parametrize("name, line", [
    ("src/base/w.cc", "// A teller, foretelling; intellect."),
    ("src/base/w.cc", "// A dead letter, dead letters, a dead-letter topic."),
    ("src/base/w.cc", '"at most 249 letters, digits and more"'),
    ("src/base/w.h", "// Fields without presence are left out."),
    ("src/postgres/w.cc", '"t.spill_txns, t.spill_bytes"'),
    ("docs/w.md", "`MonitorTest.WhatIsTold` and `test_what_is_told`, names of tests"),
    ("docs/w.md", "sql/runbook/spill.sql shows what the server spills."),
    ("tests/support/w.cc", "// It is told to stop, and looks again."),
    ("docs/w.md", "connection refused; it refuses to start; amended"),
    ("docs/w.png", "told"),
])
def test_what_only_looks_like_a_retired_word_is_not(tree, name, line):
    tree.write(name, line + "\n")
    assert tree.lint() == (0, [])


# --- Tests that nobody runs ---


@pytest.mark.parametrize("build", [
    "walpost_test(base_test SOURCES lsn_test.cc)\n",
    "walpost_test(base_test SOURCES lsn_test.cc other_forgotten_test.cc)\n",
    "walpost_test(base_test SOURCES lsn_test.cc)\n# forgotten_test.cc\n",
])
def test_test_that_is_not_registered_is_found(tree, build):
    tree.write("tests/unit/base/CMakeLists.txt", build)
    tree.write("tests/unit/base/forgotten_test.cc", "")
    assert tree.finding() == "tests/unit/base/forgotten_test.cc:1: not named in tests/unit/base/CMakeLists.txt"


def test_python_test_and_fuzz_target_are_registered_without_their_ending(tree):
    tree.write("tests/unit/base/CMakeLists.txt", "walpost_test(base_test SOURCES lsn_test.cc)\nwalpost_python(crash 60)\nwalpost_fuzz(frames)\n")
    tree.write("tests/unit/base/crash_test.py", "")
    tree.write("tests/unit/base/frames_fuzz.cc", "")
    assert tree.lint() == (0, [])
    tree.write("tests/unit/base/CMakeLists.txt", "walpost_test(base_test SOURCES lsn_test.cc)\nwalpost_fuzz(frames)\n")
    assert "crash_test.py:1: not named" in tree.finding()
    tree.write("tests/unit/base/CMakeLists.txt", "walpost_test(base_test SOURCES lsn_test.cc)\nwalpost_python(crash 60)\n")
    assert "frames_fuzz.cc:1: not named" in tree.finding()


def test_test_in_a_folder_that_is_not_built_is_found(tree):
    tree.write("tests/unit/outbox/CMakeLists.txt", "walpost_test(outbox_test SOURCES mapper_test.cc)\n")
    tree.write("tests/unit/outbox/mapper_test.cc", "")
    assert tree.finding() == "tests/unit/outbox:1: not named in tests/unit/CMakeLists.txt"


def test_tests_of_scripts_need_no_registration(tree):
    tree.write("tests/unit/scripts/other_test.py", "")
    assert tree.lint() == (0, [])


# --- Runbook ---


def test_missing_runbook_heading_is_found(tree):
    tree.write("docs/runbook.md", RUNBOOK.replace("## slot_missing", "## Slot missing"))
    assert tree.finding() == "docs/runbook.md:1: no heading for halt reason slot_missing"


def test_surplus_runbook_heading_is_found(tree):
    tree.append("docs/runbook.md", "\n## slot_gone\n")
    assert tree.finding() == "docs/runbook.md:1: heading slot_gone is no halt reason"


def test_missing_runbook_lacks_every_heading(tree):
    (tree.root / "docs/runbook.md").unlink()
    code, lines = tree.lint()
    assert code == 1
    assert lines == [f"docs/runbook.md:1: no heading for halt reason {reason}" for reason in ("poison_wal", "slot_missing")]
