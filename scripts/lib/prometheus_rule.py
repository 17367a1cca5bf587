#!/usr/bin/python3
"""Writes docs/kubernetes/monitoring/prometheusrule.yaml: docs/monitoring/alerts.yml as the Prometheus Operator takes it.

    scripts/lib/prometheus_rule.py
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "docs" / "monitoring" / "alerts.yml"
MANIFEST = ROOT / "docs" / "kubernetes" / "monitoring" / "prometheusrule.yaml"

HEAD = """# The alerts of docs/monitoring/alerts.yml, for the Prometheus Operator. Written by scripts/lib/prometheus_rule.py: change them there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: walpost
  namespace: walpost
  labels: {app.kubernetes.io/name: walpost}
spec:
"""


def manifest():
    """The groups as they are, indented: nothing is read and written anew, so nothing can change its meaning."""
    groups = RULES.read_text(encoding="utf-8").split("\ngroups:\n", 1)[1]
    return HEAD + re.sub(r"^(?=.)", "  ", "groups:\n" + groups, flags=re.M)


if __name__ == "__main__":
    MANIFEST.write_text(manifest(), encoding="utf-8")
