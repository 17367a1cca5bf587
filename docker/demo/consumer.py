#!/usr/bin/env python3
"""Billing: prints each envelope, and writes an invoice for each order once, although records come again: inbox and invoice are one transaction."""

import json
import signal
import sys
import time

import psycopg
from confluent_kafka import KafkaException
from services import TOPIC, database, kafka_consumer, lsn
from walpost.v1.envelope_pb2 import Envelope

GROUP = "billing"
SHOWN_BYTES = 60


def handle(db, message):
    event = Envelope.FromString(message.value())
    new = db.execute("SELECT inbox.accept(%s, %s)", (GROUP, event.id)).fetchone()[0]
    if new:
        order = json.loads(event.payload)
        db.execute("INSERT INTO invoices (order_id, total) VALUES (%s, %s)", (order["order"], order["total"]))
    return describe(event, message) + ("" if new else "  again: dropped")


def describe(event, message):
    payload = event.payload.decode()
    if len(payload) > SHOWN_BYTES:
        payload = f"{payload[:SHOWN_BYTES]}... {len(payload)} bytes"
    redelivery = dict(message.headers() or ()).get("walpost-redelivery")
    place = f"redelivery={redelivery.decode()}" if redelivery else f"commit {lsn(event.position.commit_lsn)}"
    delay_ms = time.time() * 1000 - message.timestamp()[1]
    return (f"{event.type} {event.aggregate_id:<11} {payload}  {place}  {message.topic()}[{message.partition()}] offset {message.offset()}"
            f"  {delay_ms:.0f} ms")


def consume(consumer, db):
    messages = [message for message in consumer.consume(100, timeout=1) if not message.error()]
    if messages:
        with db.transaction():
            lines = [handle(db, message) for message in messages]
        consumer.commit(asynchronous=False)  # after the database, never before
        print("\n".join(lines))


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    while True:
        # After a failure anew, from what was committed: the inbox knows what was done.
        consumer = kafka_consumer(GROUP, **{"session.timeout.ms": 10000})
        try:
            consumer.subscribe([TOPIC])
            with database("BILLING") as db:
                while True:
                    consume(consumer, db)
        except (psycopg.Error, KafkaException) as error:
            print(f"-- {str(error).splitlines()[0]}")
        finally:
            consumer.close()


main()
