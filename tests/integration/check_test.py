"""`walpost check` on a Kafka of three brokers: what each topic keeps, and what it does not."""

import json

import pytest
from kafka_cluster import KafkaCluster


@pytest.fixture(scope="module")
def cluster(module_workspace):
    return module_workspace.add(KafkaCluster(module_workspace.path / "cluster")).start()


@pytest.fixture
def look(make_pipeline, cluster):
    """look(topics, ...): (exit code, {line: [(level, text)]}, pipeline) of `check` where these topics are allowed; name -> settings,
    None = not created."""

    def run(topics, config=None, properties=None, before_init=None):
        p = make_pipeline(
            on_kafka=cluster, create_topic=False, properties=properties,
            config={"outboxes": [{"topic": "{aggregate_type}", "topics": {"allowed": sorted(topics)}}], **(config or {})})
        for name, settings in topics.items():
            if settings is not None:
                cluster.create_topic(name, 2, settings)
        if before_init:
            before_init(p)
        p.walpost.verb("init")
        done = p.walpost.verb("check", "--json", check=False)
        lines = {}
        for line in json.loads(done.stdout):
            lines.setdefault(line["check"], []).append((line["level"], line["text"]))
        return done.returncode, lines, p

    return run


def test_topics_that_keep_what_they_acknowledge_are_ok(look):
    code, lines, p = look({"kept": {"min.insync.replicas": "2"}})
    assert code == 0
    assert lines["topic kept"] == [("ok", "2 partitions, replication factor 3, min.insync.replicas 2")]
    assert lines[f"progress topic walpost.progress.{p.name}"] == [("ok", "progress is remembered")]


def test_each_setting_that_loses_or_blocks_is_named_with_its_cure(look):
    code, lines, _ = look(
        {
            "alone": {"min.insync.replicas": "1"},
            "brittle": {"min.insync.replicas": "3"},
            "blocked": {"min.insync.replicas": "4"},
            "compacted": {"cleanup.policy": "compact"},
            "narrow": {"max.message.bytes": "5000"},
            "missing": None,
        },
        properties={"message.max.bytes": "20000"})
    assert code == 78
    topics = {name.removeprefix("topic "): found for name, found in lines.items() if name.startswith("topic ")}
    assert [level for level, _ in topics["alone"]] == ["warning"] and "set 2" in topics["alone"][0][1]
    assert [level for level, _ in topics["brittle"]] == ["warning"] and "one broker away stops delivery; set 2" in topics["brittle"][0][1]
    assert [level for level, _ in topics["blocked"]] == ["failed"] and "nothing can be written" in topics["blocked"][0][1]
    assert [level for level, _ in topics["compacted"]] == ["ok", "warning"] and "without a key is undeliverable" in topics["compacted"][1][1]
    assert [level for level, _ in topics["narrow"]] == ["ok", "warning"] and "5000, less than" in topics["narrow"][1][1]
    assert [level for level, _ in topics["missing"]] == ["failed"] and "create it" in topics["missing"][0][1]


def test_our_own_topics_with_settings_that_forget_are_warned_of(look, cluster):
    def make_ours(p):
        cluster.create_topic(f"walpost.progress.{p.name}", 1, {"cleanup.policy": "delete"})

    code, lines, p = look({"orders": {}}, before_init=make_ours)
    assert code == 0, lines
    progress = lines[f"progress topic walpost.progress.{p.name}"]
    assert [level for level, _ in progress] == ["warning", "warning"]
    assert "set cleanup.policy=compact" in progress[0][1] and "compression.type=uncompressed" in progress[1][1]
