"""The tour of docker/README.md, command by command, in its order."""

import json
import os
import re

import tour
from conftest import note

CHAOS_MINUTES = float(os.environ.get("WALPOST_CHAOS_MINUTES", "1"))
CONSUMED = re.compile(r"^OrderPlaced (\S+) +(\{.*)  (commit \S+|redelivery=\S+)  order\[\d\] offset \d+", re.M)
done = set()


def section(demo, heading):
    done.add(heading)
    return tour.Section(heading, demo.shell)


def consumed(demo):
    """(customer, beginning of the event, commit or redelivery) of what billing has printed."""
    return CONSUMED.findall(demo.shell("docker compose logs --no-log-prefix consumer").stdout.replace("\x1b[2K", ""))


def status(demo):
    return json.loads(demo.get("http://127.0.0.1:9464/status"))


def orders(demo):
    return int(demo.sql("SELECT count(*) FROM orders"))


def balanced(text):
    figures = dict(re.findall(r"(lost|rolled back but seen|billed twice) (\d+)", text))
    return "balanced" in text and set(figures.values()) == {"0"} and len(figures) == 3


def test_starts_in_order_until_all_is_healthy(demo):
    with section(demo, "A tour in ten minutes") as part:
        part.next("docker compose up --wait")
    states = {line.split()[0]: line for line in demo.compose("ps", "-a", "--format", "'{{.Service}} {{.State}} {{.Health}} {{.ExitCode}}'").splitlines()}
    assert states["postgres"] == "postgres running healthy 0" and states["walpost"] == "walpost running healthy 0"
    assert states["topics"].split()[1:] == ["exited", "0"] and states["init"].split()[1:] == ["exited", "0"]
    ports = demo.compose("--profile '*'", "config", "--format", "json")
    hosts = {port["host_ip"] for service in json.loads(ports)["services"].values() for port in service.get("ports", ())}
    assert hosts == {"127.0.0.1"}


def test_an_order_is_seen(demo):
    with section(demo, "Place an order, see it") as part:
        order = re.fullmatch(r"order (\d+) is placed\n", part.next("docker compose exec shop place-order.py"))[1]
        demo.wait_for(lambda: any(customer == "customer-7" and f'"order": {order},' in event for customer, event, _ in consumed(demo)), 30, "the order")
        assert "OrderPlaced" in part.next("docker compose logs")
        assert "shop: streaming" in part.next("docker compose exec walpost walpost status")
        assert balanced(part.next("docker compose exec shop account.py"))
    assert status(demo)["state"] == "streaming"


def test_the_account_sees_what_is_missing(demo):
    demo.sql("INSERT INTO orders (customer, total) VALUES ('without event', 1)")
    demo.sql("INSERT INTO invoices VALUES (1, 1), (1, 1)", "billing")
    account = demo.shell("docker compose exec shop account.py")
    assert account.returncode == 1 and "NOT BALANCED" in account.stdout
    assert re.search(r"lost 1 .*billed twice [12]\n", account.stdout), account.stdout
    demo.sql("DELETE FROM orders WHERE customer = 'without event'")
    demo.sql("DELETE FROM invoices a USING invoices b WHERE a.order_id = b.order_id AND a.ctid > b.ctid", "billing")
    assert balanced(demo.shell("docker compose exec shop account.py").stdout)


def test_nothing_is_lost_while_kafka_is_away(demo):
    with section(demo, "Stop Kafka") as part:
        part.next("docker compose stop kafka")
        demo.wait_for(lambda: not status(demo)["sink"]["connected"], 60, "Kafka to be missed")
        first = status(demo)["source"]["lag_bytes"]
        demo.wait_for(lambda: status(demo)["source"]["lag_bytes"] > first, 30, "the lag to grow")
        assert "not connected" in part.next("docker compose exec walpost walpost status")
        part.next("docker compose start kafka")
        part.next("docker compose exec walpost walpost status")
        assert balanced(part.next("docker compose exec shop account.py"))


def test_nothing_is_lost_when_walpost_is_killed(demo):
    with section(demo, "Kill walpost") as part:
        part.next("docker compose kill walpost")
        placed = orders(demo)
        demo.wait_for(lambda: orders(demo) > placed, 30, "another order")
        assert re.search(r"shop +\| f +\| \d+ bytes", part.next("docker compose exec postgres psql"))
        part.next("docker compose restart walpost")
        assert balanced(part.next("docker compose exec shop account.py"))


def test_a_poisoned_event_is_found_and_sent_again(demo):
    with section(demo, "Poison an event") as part:
        order = re.search(r"order (\d+) is placed", part.next("docker compose exec shop place-order.py"))[1]
        demo.wait_for(lambda: "1 dead letter" in demo.shell("docker compose exec walpost walpost dlq list").stdout, 30, "the dead letter")
        assert "record_too_large" in part.next("docker compose exec walpost walpost dlq list")
        assert "failed: topic 'order' does not take this record" in part.next("docker compose exec walpost walpost dlq retry", exit_code=75)
        part.next("docker compose exec kafka /opt/kafka/bin/kafka-configs.sh")
        assert "delivered to topic 'order'" in part.next("docker compose exec walpost walpost dlq retry")
        demo.wait_for(lambda: any(place == "redelivery=dlq-retry" for _, _, place in consumed(demo)), 30, "the event")
        assert balanced(part.next("docker compose exec shop account.py"))
    demo.wait_for(lambda: demo.sql(f"SELECT count(*) FROM invoices WHERE order_id = {order}", "billing") == "1", 30, "its invoice")


def test_a_lost_slot_is_made_anew_without_a_gap(demo):
    with section(demo, "Fill the slot") as part:
        part.next("docker compose stop walpost")
        placed = orders(demo)
        demo.wait_for(lambda: orders(demo) > placed + 3, 30, "orders that the slot loses")
        part.next("docker compose exec postgres psql")
        assert re.search(r"shop +\| lost", part.next("docker compose exec postgres psql"))
        part.next("docker compose restart walpost")
        demo.wait_for(lambda: demo.state() == "halted", 60, "the halt")
        assert "halted (slot_invalidated)" in part.next("docker compose exec walpost walpost status")
        assert "add --yes" in part.next("docker compose run --rm init slot recreate", exit_code=64)
        assert re.search(r"gap +outbox.events: [1-9]\d* events sent", part.next("docker compose run --rm init slot recreate --yes"))
        part.next("docker compose kill --signal HUP walpost")
        demo.wait_for(lambda: demo.state() == "streaming", 60, "the stream")
        assert "shop: streaming" in part.next("docker compose exec walpost walpost status")
        assert balanced(part.next("docker compose exec shop account.py"))


def test_the_second_takes_over_when_the_first_is_killed(demo):
    with section(demo, "Two of them") as part:
        part.next("docker compose --profile ha up --wait walpost-standby")
        demo.wait_for(lambda: demo.state("walpost-standby") == "standby", 60, "the standby")
        assert "shop: standby" in part.next("docker compose exec walpost-standby walpost status")
        part.next("docker compose kill walpost")
        demo.wait_for(lambda: demo.state("walpost-standby") == "streaming", 60, "the standby to take over")
        assert "shop: streaming" in part.next("docker compose exec walpost-standby walpost status")
        part.next("docker compose restart walpost")
        demo.wait_for(lambda: demo.state() == "standby", 60, "the first to wait in its turn")


def test_nothing_is_lost_in_the_chaos(demo):
    with section(demo, "Chaos") as part:
        part.next("docker compose --profile chaos up --detach chaos", env={"CHAOS_MINUTES": str(CHAOS_MINUTES)})
        log = part.next("docker compose logs --no-log-prefix --follow chaos", timeout=CHAOS_MINUTES * 60 + 600).replace("\x1b[2K", "")
    lines = re.findall(r"^\d\d:\d\d:\d\d  .*", log, re.M)
    for line in (lines[0], *lines[-2:]):
        note(f"chaos: {line}")
    assert balanced(" ".join(lines[-2:])), log
    assert int(re.search(r"faults (\d+)", lines[-2])[1]) >= CHAOS_MINUTES * 2, log
    assert not re.search(r"(lost|rolled back but seen|billed twice) [1-9]", log), log
    assert demo.shell("docker compose ps -a --format '{{.ExitCode}}' chaos").stdout.strip() == "0"


def prometheus(demo, path):
    answer = demo.get(f"http://127.0.0.1:9090/api/v1/{path}")
    return json.loads(answer)["data"] if answer.startswith("{") else None


def test_prometheus_watches_both_with_our_alerts(demo, images):
    with section(demo, "Metrics and alerts") as part:
        if any(image.startswith("grafana/") for image in images.absent):
            part.skip("docker compose --profile monitoring up --detach")
            demo.compose("--profile", "monitoring", "up", "--detach", "--no-deps", "prometheus")
        else:
            part.next("docker compose --profile monitoring up --detach")
            demo.wait_for(lambda: "walpost" in demo.get("http://127.0.0.1:3000/api/dashboards/uid/walpost"), 120, "the dashboard")
    demo.wait_for(lambda: (prometheus(demo, "query?query=sum(walpost_up)") or {}).get("result"), 120, "the first scrape")
    up = demo.wait_for(lambda: [sample for sample in prometheus(demo, "query?query=walpost_up")["result"] if len(sample) == 2], 60, "samples")
    assert {sample["metric"]["instance"] for sample in up} <= {"walpost:9464", "walpost-standby:9464"}
    rules = [rule["name"] for group in prometheus(demo, "rules")["groups"] for rule in group["rules"]]
    assert "WalpostHalted" in rules and len(set(rules)) > 10


def test_a_second_pipeline_registers_its_schema(demo):
    with section(demo, "Values that say their schema") as part:
        part.next("docker compose --profile registry up --detach")
        demo.wait_for(lambda: demo.state("walpost-registry") == "streaming", 120, "the second pipeline")
        subjects = "http://127.0.0.1:8081/apis/ccompat/v7/subjects"
        demo.wait_for(lambda: "walpost.v1.Envelope" in demo.get(subjects), 120, "the schema")
        assert "shop-registry: streaming" in part.next("docker compose exec walpost-registry walpost status")
        assert json.loads(part.next("curl -s")) == ["registry.order-walpost.v1.Envelope"]
    demo.wait_for(lambda: '"delivered":0' not in demo.get("http://127.0.0.1:9466/status").replace(" ", ""), 60, "an event")


def test_debezium_has_the_same_events_in_the_same_order(demo):
    with section(demo, "Beside Debezium") as part:
        part.next("docker compose --profile debezium up --detach")
        compare = "docker compose exec consumer compare.py"
        demo.wait_for(lambda: re.search(r"Debezium [1-9]\d* events", demo.shell(compare).stdout), 240, "Debezium's events")
        assert "order of each key the same" in part.next(compare)


def test_nothing_is_left_at_the_end(demo):
    with section(demo, "The end") as part:
        part.next("docker compose --profile '*' down --volumes")
    for kind in ("container ls -a -q", "volume ls -q", "network ls -q"):
        assert demo.shell(f"docker {kind} --filter label=com.docker.compose.project=walpost-demo").stdout == ""


def test_every_section_of_the_tour_was_gone_through():
    page = {heading for heading in tour.sections() if heading not in ("Build it", "Run it")}
    assert page == done
