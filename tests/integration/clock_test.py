"""The wall clock jumps, and nothing waits for it."""

import threading

import servers
from fake_clock import FakeClock

HOUR_S = 3600


# Failure 29.
def test_clock_set_back_while_kafka_is_away_keeps_nothing_waiting(make_pipeline, workspace):
    """librdkafka waits until times of the wall clock: a wait that has begun would last an hour longer."""
    kafka = workspace.kafka()
    p = make_pipeline(on_kafka=kafka, partitions=1)
    clock = FakeClock(workspace.path / "clock")
    p.walpost.env = clock.env
    p.start()
    p.insert(1, 10)
    p.wait_confirmed()
    kafka.kill9()
    p.insert(11, 20)
    p.walpost.kill9()
    p.walpost.start(wait=None)  # it asks Kafka for what is remembered, and waits for an answer
    servers.wait_for(lambda: any(event["event"] == "kafka_brokers_down" for event in p.walpost.log_events()), 30, "Kafka to be missed")
    behind = 0
    for _ in range(20):  # whatever began to wait meanwhile
        behind += HOUR_S
        clock.set(-behind)
        threading.Event().wait(0.2)
    kafka.start()
    p.walpost.wait_state("streaming", 60)
    p.wait_confirmed(seconds=60)
    clock.set(HOUR_S)
    p.insert(21, 30)
    p.wait_confirmed(seconds=60)
    clock.set(0)
    p.insert(31, 40)
    p.wait_confirmed(seconds=60)
    p.judge()
