"""A primary is never held: it can always shut down, and its commits wait for nothing of ours, also while Kafka is away."""

import contextlib
import os
import signal
import socket
import threading
import time

import psycopg2.extensions
import pytest
import servers
from rejecting import dead_letters
from tcp_proxy import TcpProxy

STOP_LIMIT_S = 60


def stop_and_time(postgres, mode="fast"):
    begin = time.monotonic()
    postgres.stop(mode, timeout=STOP_LIMIT_S)
    return time.monotonic() - begin


def pipeline_without_kafka(make_pipeline, workspace, settings=None, **config):
    """Streaming, with a Kafka that has just gone."""
    postgres, kafka = workspace.postgres(settings=settings or {}), workspace.kafka()
    p = make_pipeline(on_postgres=postgres, on_kafka=kafka, config=config).start()
    p.insert(1, 10)
    p.wait_confirmed()
    kafka.kill9()
    return p


def goes_on_afterwards(p, took_s):
    assert took_s < STOP_LIMIT_S
    assert p.walpost.process.poll() is None
    p.kafka.start()
    p.postgres.start()
    p.walpost.wait_state("streaming", 60)
    p.insert(900_001, 900_010)
    p.wait_confirmed()
    assert p.judge() == 0


# Failure 3.
def test_fast_shutdown_completes_with_undelivered_events(make_pipeline, workspace):
    p = pipeline_without_kafka(make_pipeline, workspace)
    p.insert(11, 100)
    servers.wait_for(lambda: p.walpost.status()["events"]["in_flight"] == 90, 30, "90 events in flight")
    goes_on_afterwards(p, stop_and_time(p.postgres))


# Failure 3.
@pytest.mark.full
def test_fast_shutdown_completes_while_reading_is_paused_over_a_backlog(make_pipeline, workspace):
    p = pipeline_without_kafka(make_pipeline, workspace, delivery={"in_flight_bytes_max": "1MiB"})
    # 60 MB: more than the in-flight limit and every buffer of the connection.
    p.insert_transactions(1, 3_000, rows=20, payload_bytes=1_000)
    p.walpost.wait_state("backpressured", 30)
    goes_on_afterwards(p, stop_and_time(p.postgres))


# It reads on between short pauses, and nothing in the stream says that the server wants to stop: that comes at its very end.
# Failure 3.
@pytest.mark.full
def test_fast_shutdown_completes_while_a_slow_kafka_takes_a_backlog(make_pipeline, workspace):
    postgres, kafka = workspace.postgres(), workspace.kafka()
    p = make_pipeline(on_postgres=postgres, on_kafka=kafka)
    p.walpost.works_hard = True
    p.start()
    p.insert(1, 10)
    p.wait_confirmed()
    assert p.walpost.stop() == 0
    p.insert_transactions(1, 6_000, rows=20, payload_bytes=1_800)
    over = threading.Event()

    def slow():
        while not over.is_set():
            os.kill(kafka.process.pid, signal.SIGSTOP)
            over.wait(0.9)
            os.kill(kafka.process.pid, signal.SIGCONT)
            over.wait(0.2)

    slowly = threading.Thread(target=slow)
    slowly.start()
    try:
        p.walpost.start()
        servers.wait_for(lambda: p.walpost.status()["events"]["delivered"] > 1_000, 60, "some events")
        took_s = stop_and_time(postgres)
        delivered = p.walpost.status()["events"]["delivered"]
    finally:
        over.set()
        slowly.join()
    assert delivered < 110_000, "the server waited for the whole backlog"
    assert took_s < 20
    postgres.start()
    p.wait_confirmed(seconds=180)
    assert p.judge() == 0


# As a Service of Kubernetes does, or HAProxy: no ping can say that the server is stopping.
# Failure 3.
@pytest.mark.parametrize("proxy_does", ["refuse", pytest.param("not answer", marks=pytest.mark.full)])
def test_fast_shutdown_completes_behind_a_proxy_that_gives_it_no_new_connections(make_pipeline, workspace, proxy_does):
    postgres, kafka = workspace.postgres(), workspace.kafka()
    limit = {"delivery": {"in_flight_bytes_max": "1MiB"}}
    with contextlib.closing(TcpProxy("service", ("127.0.0.1", postgres.port))) as proxy, \
            socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        p = make_pipeline(on_postgres=postgres, on_kafka=kafka, config=limit)
        parts = psycopg2.extensions.parse_dsn(postgres.conninfo(p.database, tcp=True))
        parts.update(host="127.0.0.1", port=proxy.port)
        p.walpost = p.another(conninfo=psycopg2.extensions.make_dsn(**parts), config=limit)
        p.start()
        p.insert(1, 10)
        p.wait_confirmed()
        kafka.kill9()
        p.insert_transactions(1, 3_000, rows=20, payload_bytes=1_000)
        p.walpost.wait_state("backpressured", 30)
        server, nobody = proxy.target, ("127.0.0.1", servers.free_port())
        proxy.target = nobody if proxy_does == "refuse" else silent.getsockname()  # for new connections
        took_s = stop_and_time(postgres)
        proxy.target = server
        goes_on_afterwards(p, took_s)


# It waits for ordinary sessions, however long they do nothing.
# Failure 3.
@pytest.mark.full
def test_smart_shutdown_completes_beside_the_monitor(make_pipeline, workspace):
    postgres, kafka = workspace.postgres(), workspace.kafka()
    p = make_pipeline(on_postgres=postgres, on_kafka=kafka)
    p.walpost = p.another(config={"monitor": {"conninfo": postgres.conninfo(p.database), "interval": "1h"}})
    p.start()
    p.insert(1, 10)
    p.wait_confirmed()
    servers.wait_for(lambda: p.walpost.status()["monitor"]["up"], 20, "a look of the monitor")
    assert stop_and_time(postgres, "smart") < 10


# Failure 3.
@pytest.mark.full
@pytest.mark.parametrize("kafka_is", ["there", "away"])
def test_smart_shutdown_completes_while_a_dead_letter_is_open(make_pipeline, workspace, kafka_is):
    postgres, kafka = workspace.postgres(), workspace.kafka()
    p = make_pipeline(on_postgres=postgres, on_kafka=kafka, create_topic=False, config={"delivery": {"on_undeliverable": "park"}})
    kafka.create_topic(p.name, 1, {"max.message.bytes": "10000"})
    p.start()
    p.insert(1, 20)
    p.insert_large(50_000, key="large")
    servers.wait_for(lambda: p.execute("SELECT seq FROM walpost.dead_letters"), 60, "a dead letter")
    if kafka_is == "away":
        kafka.kill9()
        p.insert(21, 40)
    assert stop_and_time(postgres, "smart") < STOP_LIMIT_S
    if kafka_is == "away":
        kafka.start()
    postgres.start()
    p.insert(41, 60)
    p.wait_confirmed()
    assert len(dead_letters(p)) == 1


# Failure 80.
def test_sigterm_with_kafka_away_ends_within_the_limit_and_loses_nothing(make_pipeline, workspace):
    p = pipeline_without_kafka(make_pipeline, workspace, delivery={"shutdown_timeout": "2s"})
    p.insert(11, 100)
    servers.wait_for(lambda: p.walpost.status()["events"]["in_flight"] == 90, 30, "90 events in flight")
    begin = time.monotonic()
    code = p.walpost.stop(timeout=30)
    assert time.monotonic() - begin < 20
    assert code == 0
    p.kafka.start()
    p.walpost.start()
    p.wait_confirmed()
    p.judge()


# Only the server's settings say so: nothing in the stream does.
# Failure 30.
@pytest.mark.parametrize("in_flight", [pytest.param(True, id="with events in flight"), pytest.param(False, id="with nothing in flight", marks=pytest.mark.full)])
def test_walpost_that_becomes_a_synchronous_standby_while_kafka_is_away_leaves(make_pipeline, workspace, in_flight):
    p = pipeline_without_kafka(make_pipeline, workspace, {"wal_sender_timeout": "5s"}, delivery={"shutdown_timeout": "1s"})
    if in_flight:
        p.insert(11, 20)
    else:
        p.execute("CREATE TABLE other AS SELECT 1")  # a position that is delivered and cannot be noted
    p.execute(f"ALTER SYSTEM SET synchronous_standby_names = '\"walpost-{p.name}\"'")
    p.execute("SELECT pg_reload_conf()")
    p.walpost.wait_state("halted", 100)
    halt = p.walpost.status()["halt"]
    assert halt["reason"] == "init_incomplete" and "synchronous_standby_names" in halt["detail"]
    servers.wait_for(lambda: not p.slot()["active"], 20, "the slot to be free")
