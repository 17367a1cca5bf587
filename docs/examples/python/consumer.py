"""Writes an invoice for each order, once, although records come again: inbox and invoice are one transaction."""

import os
import signal
import sys

import psycopg
from confluent_kafka import Consumer, KafkaException
from walpost.v1.envelope_pb2 import Envelope  # protoc --python_out

GROUP = os.environ["GROUP"]


def handle(db, message):
    if message.error():
        raise KafkaException(message.error())
    event = Envelope.FromString(message.value())
    if event.type == "OrderPlaced" and db.execute("SELECT inbox.accept(%s, %s)", (GROUP, event.id)).fetchone()[0]:
        db.execute("INSERT INTO invoices (order_id, total) VALUES (%s, (%s::jsonb ->> 'total')::numeric)",
                   (event.aggregate_id, event.payload.decode()))


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    consumer = Consumer({"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"], "group.id": GROUP,
                         "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["order"])
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
            while True:
                if messages := consumer.consume(100, timeout=1):
                    with db.transaction():
                        for message in messages:
                            handle(db, message)
                    consumer.commit(asynchronous=False)  # after the database, never before
    finally:
        consumer.close()


main()
