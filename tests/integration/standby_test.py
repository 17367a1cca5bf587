"""Two walposts, one slot: the second waits and takes over."""

import signal

import pytest
import servers
from confluent_kafka import Producer


# Failure 82.
def test_a_second_instance_waits_and_takes_over(make_pipeline):
    p = make_pipeline().start()
    second = p.another().start(wait="standby")
    assert second.get("/livez")[0] == 200
    assert second.get("/readyz")[0] == 200
    p.insert_transactions(1, 2000)
    p.wait_confirmed()
    assert second.state() == "standby"
    p.walpost.kill9()
    second.wait_state("streaming", 60)
    p.walpost = second
    p.insert_transactions(2001, 3000)
    p.wait_confirmed()
    p.judge()
    assert second.stop() == 0


# Failure 82.
def test_an_orderly_stop_hands_over_without_repeats(make_pipeline):
    p = make_pipeline().start()
    second = p.another().start(wait="standby")
    p.insert_transactions(1, 5000)
    assert p.walpost.stop() == 0
    second.wait_state("streaming", 60)
    p.walpost = second
    p.insert_transactions(5001, 6000)
    p.wait_confirmed()
    assert p.judge() == 0


# Else what it writes counts for less than the record of the one in between.
def test_connection_is_made_anew_only_when_kafka_can_say_who_went_on(make_pipeline, workspace):
    p = make_pipeline(on_kafka=workspace.kafka()).start()
    p.insert(1, 5)
    p.wait_confirmed()
    read = servers.load_proto("progress").Progress.FromString
    of_another = read(p.kafka.read_all(f"walpost.progress.{p.name}")[-1].value())
    p.walpost.signal(signal.SIGSTOP)
    p.execute("SELECT pg_terminate_backend(%s)", p.slot()["pid"])
    of_another.epoch += 1_000
    producer = Producer({"bootstrap.servers": p.kafka.bootstrap})
    producer.produce(f"walpost.progress.{p.name}", of_another.SerializeToString(), p.name)
    assert producer.flush(30) == 0
    p.kafka.process.send_signal(signal.SIGSTOP)
    p.walpost.signal(signal.SIGCONT)
    servers.wait_for(lambda: "cannot be read yet" in ((p.walpost.status() or {}).get("last_error") or ""), 60, "the question")
    assert not p.slot()["active"]
    p.kafka.process.send_signal(signal.SIGCONT)
    for _ in range(2):
        p.insert(6, 10)
        p.wait_confirmed()
        pid = p.slot()["pid"]
        p.execute("SELECT pg_terminate_backend(%s)", pid)
        servers.wait_for(lambda: p.slot()["pid"] not in (None, pid), 60, "the next connection")
    assert p.walpost.status()["halt"] is None


# Each attempt gives a slow Kafka more time.
# Failure 63.
@pytest.mark.full
def test_connection_is_made_anew_where_kafka_is_slow(make_pipeline, proxied):
    kafka, proxy = proxied
    p = make_pipeline(on_kafka=kafka).start()
    p.insert(1, 5)
    p.wait_confirmed()
    proxy.set_mode("latency", 0.8)  # in each direction
    p.execute("SELECT pg_terminate_backend(%s)", p.slot()["pid"])
    p.insert(6, 10)
    p.wait_confirmed()
