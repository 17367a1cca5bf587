"""What is in the log of a run in which everything fails once, at the level debug: as documented, and neither a password nor a payload."""

import datetime
import re
import signal

import log_table
import pytest
import servers
from mock_registry import MockRegistry

PAYLOAD = "payload-9f3c71"
SECRETS = {"source": "src-word-41ab", "wrong source": "src-wrong-77c0", "kafka": "sasl-word-5d2e", "wrong kafka": "sasl-wrong-e1a9",
           "registry": "reg-word-c83f", "key": "pem-word-0b6d"}
# What is written, for each cause, at most three times at once, and once more for each 10 s since.
REPEATED = {"source_error", "kafka_brokers_down", "kafka_delivery_failed", "kafka_producer_failed", "kafka_log", "schema_registry_unavailable"}
TABLE = """CREATE TABLE public.events (
    id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload bytea,
    seq bigint GENERATED ALWAYS AS IDENTITY)"""


@pytest.fixture(scope="module")
def guarded_kafka(module_workspace):
    """(a Kafka, where it wants a password of whoever comes)"""
    plain, guarded, controller = (servers.free_port() for _ in range(3))
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_walpost="{SECRETS["kafka"]}";'
    kafka = module_workspace.kafka(port=plain, settings={
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{guarded},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{guarded}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}", "sasl.enabled.mechanisms": "PLAIN",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login})
    return kafka, f"127.0.0.1:{guarded}"


def sasl(password):
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "walpost", "sasl.password": password,
            "debug": "all"}


@pytest.fixture
def registry():
    mock = MockRegistry().start()
    yield mock
    mock.close()


def assert_discreet(text):
    for secret in (PAYLOAD, PAYLOAD.encode().hex(), *SECRETS.values()):
        assert secret not in text, [line for line in text.splitlines() if secret in line][:3]


def wait_for_line(walpost, event, words="", **fields):
    def logged():
        return [line for line in walpost.log_events()
                if line["event"] == event and words in line["msg"] and fields.items() <= line.items()]

    return servers.wait_for(logged, 60, f"{event} {words} {fields}")[0]


def assert_not_repeated(lines):
    logged = {}
    for line in lines:
        cause = line["event"], line["msg"].split(" (after ")[0]
        at = datetime.datetime.fromisoformat(line["ts"].replace("Z", "+00:00"))
        if line["event"] in REPEATED and line["level"] != "debug":
            times = logged.setdefault(cause, [])
            assert len(times) < 3 or (at - times[-3]).total_seconds() > 9.9, line
            times.append(at)


def insert(p, number, topic):
    p.execute("INSERT INTO public.events (id, aggregate_type, aggregate_id, event_type, payload) VALUES (%s, %s, 'key-7', 'Tested', %s)",
              f"00000000-0000-0000-0000-{number:012}", topic, PAYLOAD.encode())


def test_everything_that_fails_is_logged_with_its_event_and_without_payload_or_secret(make_pipeline, guarded_kafka, registry):
    kafka, address = guarded_kafka
    p = make_pipeline(on_kafka=kafka)
    p.execute(TABLE)
    for topic in (p.name, "no-such-topic"):
        registry.register(f"{topic}-value", '{"type": "string"}', "JSON")
    credentials = {**registry.config(), "password": SECRETS["registry"]}  # a wrong one
    p.walpost = p.another(
        conninfo=p.postgres.conninfo(p.database, password=SECRETS["source"]), bootstrap=address, properties=sasl(SECRETS["kafka"]),
        config={"outboxes": [{"table": "public.events", "topic": "{aggregate_type}",
                              "value": {"format": "raw", "schema_registry": {"framing": "payload", "subject": "topic", "type": "json"}}}],
                "schema_registry": credentials,
                "delivery": {"on_undeliverable": "park"}})
    p.start()
    insert(p, 1, p.name)
    wait_for_line(p.walpost, "schema_registry_unavailable", "401")
    p.walpost.file.write_text(p.walpost.file.read_text().replace(SECRETS["registry"], registry.config()["password"]))
    p.walpost.signal(signal.SIGHUP)
    wait_for_line(p.walpost, "schema_registry_back")

    insert(p, 2, "no-such-topic")
    parked = wait_for_line(p.walpost, "event_parked")
    assert parked["event_id"].endswith("2") and parked["aggregate_id"] == "key-7" and parked["topic"] == "no-such-topic"
    assert (parked["event_type"], parked["attempt"], parked["reason"]) == ("Tested", "1", "topic_unknown")

    p.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", p.name)
    back = wait_for_line(p.walpost, "source_back")
    assert float(back["seconds"]) >= 0 and int(back["lag_bytes"]) >= 0

    insert(p, 3, p.name)
    p.wait_confirmed()  # what is parked has been read again
    kafka.kill9()
    wait_for_line(p.walpost, "kafka_brokers_down")
    insert(p, 4, p.name)
    servers.wait_for(lambda: p.walpost.status()["events"]["in_flight"] == 1, 60, "the event to be in flight")
    assert p.walpost.status()["sink"]["last_error"], "it stays to be seen"
    kafka.start()
    back = wait_for_line(p.walpost, "kafka_brokers_back")
    assert float(back["seconds"]) > 0 and int(back["lag_bytes"]) > 0
    assert back["in_flight_events"] == "1" and int(back["in_flight_bytes"]) > len(PAYLOAD)
    p.wait_confirmed()

    p.walpost.file.write_text("name: [")
    p.walpost.signal(signal.SIGHUP)
    wait_for_line(p.walpost, "reload_rejected")
    assert p.walpost.stop() == 0
    lines = p.walpost.log_events()
    assert_discreet(p.walpost.log_text())
    log_table.assert_documented(lines)
    assert_not_repeated(lines)


def test_event_that_halts_is_named_and_its_payload_is_not(make_pipeline):
    p = make_pipeline(create_topic=False)
    p.execute(TABLE)
    p.walpost = p.another(config={"outboxes": [{"table": "public.events", "topic": "{aggregate_type}", "value": {"format": "raw"}}]},
                          properties={"debug": "all"})
    p.start()
    insert(p, 1, "no-such-topic")
    halted = wait_for_line(p.walpost, "halted", reason="undeliverable_event", cause="topic_unknown")
    assert halted["event_id"].endswith("1") and halted["event_type"] == "Tested" and halted["aggregate_id"] == "key-7"
    assert halted["topic"] == "no-such-topic" and halted["attempt"] == "1" and halted["table"] == "public.events"
    assert_discreet(p.walpost.log_text())
    log_table.assert_documented(p.walpost.log_events())


def test_rejected_logins_show_no_password(make_pipeline, workspace, guarded_kafka):
    postgres = workspace.postgres()
    p = make_pipeline(on_postgres=postgres, on_kafka=guarded_kafka[0])
    p.walpost.init()
    postgres.execute(f"CREATE ROLE guest LOGIN REPLICATION PASSWORD '{SECRETS['source']}'")
    hba = postgres.data / "pg_hba.conf"
    hba.write_text("local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n", encoding="utf-8")
    postgres.execute("SELECT pg_reload_conf()")
    rejected = p.another(conninfo=postgres.conninfo(p.database, user="guest", tcp=True, password=SECRETS["wrong source"]))
    rejected.start(wait=None)
    wait_for_line(rejected, "halted", reason="auth_failed")

    p.walpost = p.another(bootstrap=guarded_kafka[1], properties=sasl(SECRETS["wrong kafka"]), config={"delivery": {"progress_topic": ""}})
    p.walpost.start()
    p.insert(1, 3)
    wait_for_line(p.walpost, "kafka_log", "Authentication failed")
    p.walpost.kill9()
    for walpost in (rejected, p.walpost):
        assert_discreet(walpost.log_text())
        log_table.assert_documented(walpost.log_events())
        assert_not_repeated(walpost.log_events())


@pytest.mark.parametrize("conninfo", (
    "host=127.0.0.1 password={} {}",  # a password with a space
    "host=127.0.0.1 password='{}",
    "postgresql://walpost:x@{}@127.0.0.1:1/shop",  # with an @
    "postgresql://walpost:{}:1:2@127.0.0.1:1/shop?{}"))
def test_malformed_conninfo_shows_no_part_of_its_password(make_pipeline, conninfo):
    p = make_pipeline(create_topic=False)
    walpost = p.another(conninfo=conninfo.replace("{}", SECRETS["source"]))
    done = walpost.verb("run", check=False)
    assert done.returncode == 78 and "config_invalid" in done.stderr, done
    assert_discreet(done.stdout + done.stderr)


def test_rejected_properties_show_no_secret(make_pipeline):
    p = make_pipeline(create_topic=False)
    for properties in ({"security.protocol": "SSL", "ssl.key.pem": SECRETS["key"], "ssl.certificate.pem": SECRETS["key"]},
                       {**sasl(SECRETS["kafka"]), "sasl.mechanism": "NONSENSE"}, {**sasl(SECRETS["kafka"]), "security.protocol": "nonsense"}):
        done = p.another(properties=properties).verb("run", check=False)
        assert done.returncode == 78 and re.search("config_invalid|sink.kafka.properties", done.stderr), (properties, done)
        assert_discreet(done.stdout + done.stderr)
