"""How the demo's programs reach their databases and topics."""

import os
import time
from pathlib import Path

import psycopg
from confluent_kafka import Consumer

PASSWORD = Path("/run/secrets/password")
TOPIC = "order"


def database(name):
    """SHOP or BILLING; waits while the server is away."""
    while True:
        try:
            return psycopg.connect(os.environ[name], password=PASSWORD.read_text(encoding="utf-8").strip(), autocommit=True,
                                   connect_timeout=5, tcp_user_timeout=10000, options="-c statement_timeout=10s")
        except psycopg.OperationalError as error:
            print(f"-- {name.lower()}: {str(error).splitlines()[0]}", flush=True)
            time.sleep(1)


def kafka_consumer(group, **more):
    return Consumer({"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"], "group.id": group, "enable.auto.commit": False,
                     "auto.offset.reset": "earliest", "log_level": 0, "socket.keepalive.enable": True,
                     "topic.metadata.propagation.max.ms": 1000, "reconnect.backoff.max.ms": 2000, **more})


def lsn(number):
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
