"""The operators' documents name exactly what the program has: metrics, keys, rejected properties, log events, halt reasons, verbs."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import log_table  # noqa: E402 - the path above makes it importable


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def sources(pattern="*.cc", folder="src"):
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob(pattern)))


def first_cells(document):
    """The names in backticks in the first cell of each row of a document's tables."""
    cells = re.findall(r"^\|([^|\n]*)\|", text(document), re.M)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def only_in_one(documented, real):
    return {"not in the document": sorted(real - documented), "not in the program": sorted(documented - real)}


NOTHING = {"not in the document": [], "not in the program": []}


def test_every_metric_is_documented_and_every_documented_one_exists():
    real = set(re.findall(r'"((?:walpost|process)_[a-z0-9_]+)"', text("src/observe/metrics.cc")))
    assert len(real) > 30, "the pattern no longer finds the names"
    documented = {name for name in first_cells("docs/metrics.md") if re.fullmatch(r"(walpost|process)_[a-z0-9_]+", name)}
    assert only_in_one(documented, real) == NOTHING


def test_every_metric_an_alert_or_the_runbook_uses_exists():
    real = set(re.findall(r'"((?:walpost|process)_[a-z0-9_]+)"', text("src/observe/metrics.cc")))
    used = set(re.findall(r"\bwalpost_[a-z0-9_]+", text("docs/metrics.md") + text("docs/runbook.md")
                          + text("docs/monitoring/alerts.yml") + text("docs/monitoring/grafana-dashboard.json")))
    used = {re.sub("(_seconds|_events)_(?:bucket|sum|count)$", r"\1", name) for name in used}
    assert used - real == set()


def log_events():
    """{enumerator: name}"""
    names = dict(re.findall(r'case LogEvent::(k\w+):\s*return "(\w+)";', text("src/base/log_event.cc")))
    assert set(names) == set(re.findall(r"^  (k\w+),$", text("src/base/log_event.h"), re.M)) and len(names) > 30
    return names


def test_every_log_event_is_documented_and_every_documented_one_exists():
    assert only_in_one(set(log_table.rows()), set(log_events().values())) == NOTHING


def test_every_log_event_is_written_somewhere_and_at_the_levels_of_the_document():
    code = sources().replace(text("src/base/log_event.cc"), "")
    assert {enumerator for enumerator in log_events() if f"LogEvent::{enumerator}" not in code} == set()
    rows, found = log_table.rows(), set()
    for level, enumerator in re.findall(r"Severity::k(\w+),\s*(?:observe::)?LogEvent::(k\w+)", code):
        found.add(enumerator)
        assert level.lower() in rows[log_events()[enumerator]][0], (level, enumerator)
    assert len(found) > 25, "the pattern no longer finds the levels"


def test_a_name_of_a_log_event_in_a_document_is_one():
    documents = text("docs/runbook.md") + text("docs/failures-kafka.md") + text("docs/operations.md")
    named = set()
    for listed in re.findall(r"log events? (`\w+`(?:(?:, | and | or )`\w+`)*)", documents):
        named |= set(re.findall(r"`(\w+)`", listed))
    assert len(named) >= 6 and named - set(log_table.rows()) == set()


# Where a reading function's `reader` stands in the file; other readers are named after their map.
PLACES = {"ReadSource": "source", "ReadDelivery": "delivery", "ReadProgressTopic": "delivery", "ReadTable": "outboxes[]", "ReadOutbox": "outboxes[]",
          "ReadColumns": "outboxes[].columns", "ReadTopics": "outboxes[].topics", "ReadValue": "outboxes[].value",
          "ReadCloudEvents": "outboxes[].value.cloudevents", "ReadMessages": "messages",
          "ReadSchemaRegistry": "schema_registry", "ReadUrls": "schema_registry", "ReadFraming": "outboxes[].value.schema_registry",
          "ReadSubject": "outboxes[].value.schema_registry", "ReadMonitor": "monitor", "ReadHttp": "http",
          "ReadSecurity": "security", "ReadLog": "log"}
MAPS = {"root": "", "sink": "sink", "kafka": "sink.kafka"}


def configuration_keys():
    """The paths of all keys that the reader asks for, without those of the maps they are in."""
    paths = {f"outboxes[].columns.{field}" for field in re.findall(r"\{\"(\w+)\", &outbox::ColumnMapping::", text("src/config/outboxes.h"))}
    for function in re.split(r"\n(?=\S.*\) \{\n)", text("src/config/config.cc") + text("src/config/outboxes.cc")
                             + text("src/config/schema_registry.cc")):
        name = re.match(r"[^(]*?(\w+)\(", function)
        asked = re.findall(r"(\w+)(?:\.|->)(?:Text|Duration|Size|Count|Names|Choice|Child|Map)\(\s*\"(\w+)\"", function)
        for reader, key in asked:
            if reader == "topics":  # one function reads it for tables and for messages
                paths |= {f"{owner}.topics.{key}" for owner in ("outboxes[]", "messages")}
                continue
            place = PLACES[name[1]] if reader == "reader" else MAPS[reader]
            paths.add(f"{place}.{key}".lstrip("."))
    maps = {path for path in paths if any(other.startswith(path + ".") for other in paths)}
    return paths - maps


def test_every_key_is_documented_and_every_documented_one_is_read():
    real = configuration_keys()
    assert {"name", "source.conninfo", "outboxes[].columns.seq", "sink.kafka.properties", "log.format"} <= real, "the patterns miss keys"
    keys, columns = text("docs/configuration.md").split("\n## Keys\n")[1].split("\n### Presets\n")[0].split("\n### Columns\n")
    documented = set(re.findall(r"^\| `([\w.\[\]]+)` \|", keys, re.M))
    documented |= {f"outboxes[].columns.{field}" for field in re.findall(r"^\| `(\w+)` \|", columns, re.M)}
    assert only_in_one(documented - {"outboxes", "outboxes[].columns"}, real - {"outboxes"}) == NOTHING


def kafka_table(name):
    """The initialiser of an array, without its comments."""
    table = text("src/kafka/properties.cc").split(f"{name}[] = {{")[1].split("};")[0]
    return re.sub(r"//.*", "", table)


def test_every_rejected_property_is_documented_with_what_is_accepted_and_why():
    guarded = re.findall(r'\{"([\w.]+)",\s*"([^"]*)",\s*"([^"]+)"\}', kafka_table("kGuarded"))
    assert len(guarded) >= 18, "the pattern misses properties"
    section = text("docs/configuration.md").split("Any value but the one given is rejected")[1].split("\n\n|")[1]
    rows = {}
    for names, accepted, why in re.findall(r"^\|?([^|\n]+)\|([^|\n]+)\|([^|\n]+)\|$", section.split("\n\n")[0], re.M):
        for name in re.findall(r"`([^`]+)`", names):
            rows[name] = (accepted.strip(), why.strip())
    assert set(rows) == {name for name, _, _ in guarded}
    for name, safe, why in guarded:
        accepted, documented_why = rows[name]
        assert accepted == ("all, -1" if safe == "all" else safe or "none"), name
        assert documented_why == why, name


def test_every_property_walpost_sets_is_documented():
    defaults = text("src/kafka/properties.cc").split("PropertyList Defaults(")[1].split("\n}")[0]
    real = set(re.findall(r'\{"([\w.]+)", ', defaults))
    section = text("docs/configuration.md").split("walpost sets these unless you do")[1].split("\n\n|")[1].split("\n\n")[0]
    assert only_in_one(set(re.findall(r"^\| `([\w.]+)` \|", section, re.M)), real) == NOTHING


def test_every_answer_of_kafka_has_its_kind_in_the_document():
    switch = text("src/kafka/held_rejections.cc")
    real = {}
    for cases, kind in re.findall(r"((?:\s*(?://[^\n]*|case RD_KAFKA_RESP_ERR_\w+:))+)\s*return FailureKind::(\w+);", switch):
        real.update({name: kind for name in re.findall(r"case RD_KAFKA_RESP_ERR_(\w+):", cases)})
    assert real.pop("NO_ERROR") == "kNone" and len(real) == len(re.findall(r"\bcase ", switch)) - 1
    documented = {}
    for kind, answers in re.findall(r"^\| `(k\w+)` \|([^|\n]*)\|", text("docs/failures-kafka.md"), re.M):
        documented.update({name: kind for name in re.findall(r"`(\w+)`", answers)})
    assert documented == real


def test_every_hidden_property_is_documented():
    words = re.findall(r'"([\w.]+)"', text("src/base/text.cc").split("kWords[] = {")[1].split("};")[0])
    assert len(words) >= 6
    assert [word for word in words if f"`{word}" not in text("docs/security.md")] == []


def test_every_halt_reason_is_a_section_of_the_runbook():
    function = text("src/base/state.cc").split("HaltReasonName", 1)[1].split("\n}", 1)[0]
    real = set(re.findall(r'return "(\w+_\w+)"', function))
    assert len(real) == 16
    assert only_in_one(set(re.findall(r"^### (\w+_\w+)$", text("docs/runbook.md"), re.M)), real) == NOTHING


def verbs():
    verbs_cc = text("src/cli/verbs.cc")
    code = text("src/cli/cli.cc") + verbs_cc + text("src/cli/completion.cc")
    top = set(re.findall(r'add_subcommand\(\s*"(\w+)"', code)) | set(re.findall(r'AddVerb\(\s*app,\s*"(\w+)"', code))
    below = {group: set(re.findall(rf'AddVerb\(\s*{group},\s*"(\w+)"', code)) for group in ("slot", "config")}
    below["config"] |= set(re.findall(r'\bconfig\s*->add_subcommand\("([a-z-]+)"', code))
    others, dlq = verbs_cc.split("AddDlqVerbs(")
    below["dlq"] = set(re.findall(r'\badd\("(\w+)"', dlq))
    top |= set(re.findall(r'\badd\("(\w+)"', others))
    return top, below


def test_every_verb_that_a_document_or_a_message_names_exists():
    top, below = verbs()
    assert {"run", "init", "check", "emit", "version", "slot", "config", "replay", "audit", "status", "healthcheck", "tail"} <= top and {"list", "create", "drop", "advance", "recreate"} == below["slot"]
    assert {"list", "show", "retry", "discard"} == below["dlq"]
    code = re.sub(r'"\s*\n\s*"', "", "\n".join(re.sub(r"//.*", "", line) for line in sources().splitlines()))
    documents = "".join(text(name) for name in ("docs/runbook.md", "docs/configuration.md", "docs/dead-letters.md", "docs/metrics.md", "docs/operations.md", "SECURITY.md", "README.md"))
    named = re.findall(r"`walpost (?:--\w+ \w+ )?([a-z]+)(?: ([a-z-]+))?", code + documents)
    for block in re.findall(r"^ *```.*?^ *```", documents, re.M | re.S):
        named += re.findall(r"^(?:\$ )?walpost ([a-z]+)(?: ([a-z-]+))?", block, re.M)
    unknown = {f"{verb} {second}".strip() for verb, second in named
               if verb not in top or (verb in below and second and second not in below[verb])}
    assert unknown == set()


def test_every_link_between_documents_leads_somewhere():
    broken = []
    for path in [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "kubernetes").glob("*.md")), ROOT / "SECURITY.md"]:
        content = re.sub(r"^```.*?^ *```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", content):
            if target.startswith("http"):
                continue
            name, _, anchor = target.partition("#")
            linked = (path.parent / name).resolve() if name else path
            anchors = {anchor_of(heading) for heading in headings(linked)} if linked.suffix == ".md" and linked.exists() else set()
            if not linked.exists() or (anchor and anchor not in anchors):
                broken.append(f"{path.name}: {target}")
    assert broken == []


def headings(path):
    return re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.M)


def anchor_of(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_no_example_is_longer_than_it_says():
    folder = ROOT / "docs" / "examples"
    built = set(re.findall(r"(\w+)/$", text(folder / ".gitignore"), re.M))
    programs = [path for path in sorted(folder.rglob("*"))
                if path.suffix in (".py", ".java", ".go", ".js") and not built & set(path.relative_to(folder).parts)]
    assert len(programs) == 8 and "No file has more than 40 lines" in " ".join(text(folder / "README.md").split())
    assert [path.name for path in programs if len(text(path).splitlines()) > 40] == []


def test_every_alert_has_its_section_of_the_runbook_and_tests_of_both_kinds():
    rules = text("docs/monitoring/alerts.yml")
    alerts = re.findall(r"^ +- alert: (\w+)$(.*?)(?=^ +- alert:|\Z)", rules, re.M | re.S)
    assert len(alerts) == rules.count("alert:") >= 18
    sections = dict(re.findall(r"^### (Walpost\w+)\n(.*?)(?=^##)", text("docs/runbook.md"), re.M | re.S))
    assert only_in_one(set(sections), {name for name, _ in alerts}) == NOTHING
    for name, rule in alerts:
        for part in ("expr:", "severity: ", "summary: ", "description: ", f"runbook_url: docs/runbook.md#{name.lower()}\n"):
            assert part in rule, (name, part)
        severity = re.search(r"severity: (\w+)", rule)[1]
        fires = f'alertname="{name}", severity="{severity}"'
        assert fires in text("docs/monitoring/alerts_test.yml"), f"{name} is never seen to fire"
    for name, section in sections.items():
        assert re.findall(r"^- \*\*(\w+)\.\*\*", section, re.M) == ["Meaning", "Impact", "Diagnosis", "Mitigation", "Verify"], name


def test_every_test_that_a_document_names_exists():
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
    named = {name for path in documents for name in re.findall(r"`(\w+_test\.(?:cc|py))`", path.read_text(encoding="utf-8"))}
    real = {path.name for path in (ROOT / "tests").rglob("*_test.*")}
    assert len(named) > 20 and named - real == set()
