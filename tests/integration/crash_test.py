"""kill -9 in the middle of 100,000 events: none lost, none invented, order kept, nothing confirmed too early."""

import os
import signal
import threading

import pipeline
import pytest
import servers

EVENTS = 100_000
KEYS = 500


class Writer(threading.Thread):
    """Commits single-row transactions, one in fifty rolled back."""

    def __init__(self, p):
        super().__init__(daemon=True)
        self.p = p
        self.error = None

    def run(self):
        try:
            for first in range(1, EVENTS, 10_000):
                self.p.insert_transactions(first, first + 9_999, keys=KEYS, rolled_back_every=50)
        except Exception as error:  # noqa: BLE001 - join() raises it
            self.error = error

    def done(self):
        self.join()
        if self.error:
            raise self.error


def started_writer(p):
    writer = Writer(p)
    writer.start()
    return writer


def delivered(p):
    status = p.walpost.status()
    return status["events"]["delivered"] if status else 0


def wait_delivered(p, count):
    servers.wait_for(lambda: delivered(p) >= count, 120, f"{count} events delivered")


def look(p):
    """What was confirmed, and then what was in Kafka: everything confirmed must be among it."""
    confirmed = p.slot()["confirmed"]
    return confirmed, p.records()


# Failure 81.
def test_walpost_killed_three_times(make_pipeline):
    p = make_pipeline().start()
    writer = started_writer(p)
    looks = []
    for count in (8_000, 20_000, 5_000):  # since its own start
        wait_delivered(p, count)
        p.walpost.kill9()
        looks.append(look(p))
        p.walpost.start()
    writer.done()
    p.wait_confirmed()
    records = p.records()
    repeats = pipeline.judge(p.committed(), records)
    for confirmed, then in looks:
        pipeline.assert_nothing_confirmed_too_early(confirmed, then, records)
    assert len(p.committed()) == EVENTS * 49 // 50
    assert repeats < 200_000  # three times what was in flight at most, not everything again


@pytest.mark.full
def test_walsender_killed(make_pipeline, workspace):
    postgres = workspace.postgres()  # the server restarts all its backends when one is killed
    p = make_pipeline(on_postgres=postgres, config={"delivery": {"in_flight_bytes_max": "1MiB"}})
    p.walpost.init()
    Writer(p).run()
    p.walpost.start()
    for count in (20_000, 60_000):
        wait_delivered(p, count)
        pid = servers.wait_for(lambda: (s := p.slot()) and s["pid"], 60, "an active walsender")
        os.kill(pid, signal.SIGKILL)
        confirmed, then = look_after_recovery(p)
        p.walpost.wait_state("streaming", 60)
        assert p.walpost.process.poll() is None
        pipeline.assert_nothing_confirmed_too_early(confirmed, then, p.records())
    p.wait_confirmed()
    records = p.records()
    # What was taken before the connection broke is not sent a second time: rows at or before it are dropped.
    assert pipeline.judge(p.committed(), records) == 0
    assert p.walpost.status()["reconnects"] >= 2


def look_after_recovery(p):
    def answer():
        try:
            return look(p)
        except Exception:  # noqa: BLE001 - the server is in recovery
            return None

    return servers.wait_for(answer, 60, "PostgreSQL to recover")


# Failure 62.
@pytest.mark.full
def test_kafka_broker_killed(make_pipeline, workspace):
    kafka = workspace.kafka()
    p = make_pipeline(on_kafka=kafka, config={"delivery": {"in_flight_bytes_max": "2MiB"}}).start()
    writer = started_writer(p)
    looks = []
    for count in (15_000, 50_000):
        wait_delivered(p, count)
        kafka.kill9()
        p.walpost.wait_state("backpressured", 60)
        # Held still, so that the look at Kafka shows what it had when it died and nothing later.
        p.walpost.signal(signal.SIGSTOP)
        kafka.start()
        looks.append(look(p))
        p.walpost.signal(signal.SIGCONT)
        p.walpost.wait_state("streaming", 120)
    writer.done()
    p.wait_confirmed()
    records = p.records()
    pipeline.judge(p.committed(), records)
    for confirmed, then in looks:
        pipeline.assert_nothing_confirmed_too_early(confirmed, then, records)
