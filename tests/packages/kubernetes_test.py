"""The manifests of docs/kubernetes, without a cluster: valid for each version of Kubernetes that they are for."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "kubernetes"
PYTHON = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "walpost" / "kubernetes-validator" / "bin" / "python"
KINDS = ["ConfigMap", "Deployment", "Namespace", "NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "PrometheusRule"]


def validate(version, *files):
    return subprocess.run([PYTHON, Path(__file__).with_name("manifests.py"), version, *files], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("version", ["1.27", "1.31", "1.37"])
def test_every_manifest_is_valid(version):
    done = validate(version, *sorted(FOLDER.rglob("*.yaml")))
    assert (done.returncode, sorted(done.stdout.splitlines()), done.stderr) == (0, KINDS, "")


@pytest.mark.parametrize(("name", "right", "wrong"), [
    ("deployment.yaml", "enableServiceLinks", "enableServiceLink"),
    ("deployment.yaml", "periodSeconds: 10", "periodSeconds: often"),
    ("poddisruptionbudget.yaml", "unhealthyPodEvictionPolicy", "unhealthyPodEviction"),
    ("monitoring/podmonitor.yaml", "scrapeTimeout: 10s", "scrapeTimeout: 10"),
    ("monitoring/prometheusrule.yaml", "expr:", "expression:"),
])
def test_what_is_wrong_is_seen(name, right, wrong, tmp_path):
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert right in text
    broken = tmp_path / "broken.yaml"
    broken.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    assert validate("1.37", broken).returncode == 1
