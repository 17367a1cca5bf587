"""The manifests of docs/kubernetes against what they are made from and what they must agree with."""

import configparser
import fnmatch
import re
import sys
from pathlib import Path

import yaml

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


def test_only_prometheus_comes_in_and_only_look_ups_and_the_servers_go_out():
    policy = yaml.safe_load(text("docs/kubernetes/networkpolicy.yaml"))["spec"]
    pods = yaml.safe_load(text("docs/kubernetes/deployment.yaml"))["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": pods["app.kubernetes.io/name"]}}
    assert sorted(policy["policyTypes"]) == ["Egress", "Ingress"], "what neither list allows is rejected"

    def ports(rule):
        return {(port["protocol"], port["port"]) for port in rule["ports"]}

    (incoming,) = policy["ingress"]
    assert ports(incoming) == {("TCP", "http")}
    (peer,) = incoming["from"]  # one with both selectors: a pod there, not any pod and any there
    assert peer == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
                    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}
    names, servers = policy["egress"]
    assert ports(names) == {("UDP", 53), ("TCP", 53)}
    assert names["to"] == [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}]
    assert ports(servers) == {("TCP", port) for port in (5432, 9092, 9093, 8081)} and "to" not in servers


# Whether systemd keeps to it is seen on a real one; a line that is gone is not.
def test_the_service_leaves_no_core_file_and_gives_no_rights():
    unit = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    unit.optionxform = str
    unit.read_string(text("packaging/systemd/walpost.service"))
    service = unit["Service"]
    assert service["User"] == service["Group"] == "walpost"
    facts = {"LimitCORE": "0", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "UMask": "0077", "ProtectSystem": "strict",
             "ProtectProc": "invisible", "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX", "DevicePolicy": "closed"}
    facts |= dict.fromkeys(("NoNewPrivileges", "ProtectHome", "PrivateDevices", "PrivateTmp", "PrivateUsers", "MemoryDenyWriteExecute"), "yes")
    assert {name: service.get(name) for name in facts} == facts


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


def test_the_image_is_built_with_every_file_that_bootstrap_reads():
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", text("docker/Dockerfile"), re.M) for name in line.split()]
    kept = [line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")]
    read = re.findall(r"^\. (\S+)$", text("scripts/bootstrap"), re.M)
    assert read
    for name in ["scripts/bootstrap", *read]:
        for patterns in (copied, kept):
            assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), f"{name}: {patterns}"
