"""The manifests of docs/kubernetes against what they are made from and what they must agree with."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))
import prometheus_rule  # noqa: E402 - the path above makes it importable

FOLDER = ROOT / "docs" / "kubernetes"


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def number(pattern, document):
    (found,) = re.findall(pattern, document)
    return int(found)


def test_the_operators_rules_are_the_alerts():
    assert prometheus_rule.MANIFEST.read_text(encoding="utf-8") == prometheus_rule.manifest(), "run scripts/lib/prometheus_rule.py"
    assert prometheus_rule.manifest().count("- alert: ") == text("docs/monitoring/alerts.yml").count("- alert: ") >= 18


def test_a_pod_has_twenty_seconds_more_than_what_is_in_flight():
    grace_s = number(r"terminationGracePeriodSeconds: (\d+)", text("docs/kubernetes/deployment.yaml"))
    assert grace_s == number(r"shutdown_timeout: (\d+)s", text("docs/kubernetes/configmap.yaml")) + 20
    assert grace_s == number(r"`delivery.shutdown_timeout` \| `(\d+)s`", text("docs/configuration.md")) + 20


def test_ports_agree():
    port = number(r"listen: 0\.0\.0\.0:(\d+)", text("docs/kubernetes/configmap.yaml"))
    assert port == number(r"\{name: http, containerPort: (\d+)\}", text("docs/kubernetes/deployment.yaml"))


def test_every_secret_file_that_the_configuration_names_is_in_the_command_that_makes_the_secret():
    named = set(re.findall(r"/run/secrets/walpost/([\w.-]+)", text("docs/kubernetes/configmap.yaml")))
    assert named == set(re.findall(r"--from-file=([\w.-]+)", text("docs/kubernetes/README.md")))
    assert "mountPath: /run/secrets/walpost," in text("docs/kubernetes/deployment.yaml")


def test_the_readme_lists_every_manifest():
    listed = set(re.findall(r"\]\(([\w/]+\.yaml)\)", text("docs/kubernetes/README.md")))
    assert listed == {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.yaml")}


def test_the_image_has_the_version_of_the_project():
    version = re.search(r"project\(walpost VERSION ([\d.]+)", text("CMakeLists.txt"))[1]
    assert f"image: walpost:{version}\n" in text("docs/kubernetes/deployment.yaml")


def test_beside_a_root_that_is_read_only_there_is_a_place_for_what_verbs_sort():
    for name, place in (("docs/kubernetes/deployment.yaml", "mountPath: /tmp}"), ("docker/compose.yaml", "tmpfs: [/tmp]")):
        assert re.search(r"readOnlyRootFilesystem: true|read_only: true", text(name)) and place in text(name), name
