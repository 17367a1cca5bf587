"""The shipped alerts and dashboard against a real Prometheus that scrapes a real walpost."""

import json
import re

import prometheus
import pytest
import servers

FOLDER = servers.ROOT / "docs" / "monitoring"
RULES = FOLDER / "alerts.yml"
# What Grafana fills in.
VARIABLES = {"$__rate_interval": "1m", "$__range": "1h", "$job": ".*", "$pipeline": ".*"}
# Queries that rightly find nothing here: nothing waits, nothing is throttled, no rate of WAL is known so soon.
MAY_BE_EMPTY = ("walpost_oldest_undelivered_commit_timestamp_seconds", "walpost_kafka_broker_throttle_max_seconds", "walpost_slot_wal_exhaustion_seconds",
                "walpost_outbox_", "walpost_slot_spilled", "walpost_events_failed_total")


@pytest.fixture(scope="module")
def scraped(module_workspace, kafka):
    """A pipeline with a monitor, with events delivered, and a Prometheus that has seen some of them twice."""
    import pipeline
    postgres = module_workspace.postgres(settings={"max_slot_wal_keep_size": "1GB"})
    p = pipeline.Pipeline("shop", postgres, kafka, module_workspace, {"properties": {"statistics.interval.ms": "200"}})
    p.walpost = p.another(config={"monitor": {"conninfo": postgres.conninfo(p.database), "interval": "1s"}})
    kafka.create_topic("shop", 4)
    p.start()
    seen = module_workspace.add(prometheus.Prometheus(module_workspace.path / "prometheus", [p.walpost.http], RULES))
    servers.wait_for(lambda: seen.query("walpost_up == 1"), 60, "the first scrape")
    p.insert(1, 50)
    p.wait_confirmed()
    servers.wait_for(lambda: seen.query("sum(walpost_events_delivered_total) == 50"), 60, "a scrape of the events")
    for rate in ("rate(walpost_events_delivered_total[1m])", "rate(walpost_delivery_delay_seconds_bucket[1m])", "walpost_kafka_broker_up",
                 "walpost_slot_wal_status"):
        servers.wait_for(lambda: seen.query(rate), 60, rate)  # noqa: B023
    return seen


def dashboard():
    return json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))


def queries():
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            assert "$" not in expression, target["expr"]
            yield panel["title"], expression


def test_every_query_of_the_dashboard_is_answered(scraped):
    asked = list(queries())
    assert len(asked) > 40
    empty = [f"{title}: {query}" for title, query in asked if not scraped.query(query) and not any(name in query for name in MAY_BE_EMPTY)]
    assert empty == []


def test_every_rule_is_evaluated_without_an_error_and_none_fires(scraped):
    def evaluated():
        rules = [rule for group in scraped.get("/api/v1/rules")["groups"] for rule in group["rules"]]
        return rules if all(rule["health"] != "unknown" for rule in rules) else None

    rules = servers.wait_for(evaluated, 60, "the rules to be evaluated")
    assert {rule["name"] for rule in rules} == set(re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")))
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


def test_every_metric_of_the_rules_and_the_dashboard_is_in_what_was_scraped(scraped):
    names = set(scraped.get("/api/v1/label/__name__/values"))
    text = "\n".join(query for _, query in queries()) + RULES.read_text(encoding="utf-8")
    used = set(re.findall(r"\b(?:walpost|process)_[a-z0-9_]+", text)) - {"walpost_slot_wal_exhaustion_seconds", "walpost_events_failed_total"}
    if not any("spilled" in name for name in names):
        used -= {name for name in used if "spilled" in name}  # not counted before PostgreSQL 14
    assert used - names == set()


def test_no_datasource_is_fixed(scraped):
    text = json.dumps(dashboard())
    assert "__inputs" not in text and "DS_PROMETHEUS" not in text
    assert set(re.findall(r'"uid": "([^"]*)"', text)) == {"walpost", "${datasource}"}
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])


def test_each_rule_fires_and_does_not_fire_too_early():
    for command in (("check", "rules", RULES), ("test", "rules", FOLDER / "alerts_test.yml")):
        done = prometheus.promtool(*command)
        assert done.returncode == 0, done.stdout + done.stderr
