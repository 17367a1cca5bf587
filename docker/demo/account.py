#!/usr/bin/env python3
"""Is anything missing? Holds the shop's orders against the topic: account.py, once.

First the orders of now are noted, and the server's position. When that position is confirmed, everything before it must be in Kafka: it is read up to
where it ends then, and an order that is not there is lost.
"""

import json
import sys
import time
from collections import Counter

from confluent_kafka import KafkaException, TopicPartition
from services import TOPIC, database, kafka_consumer
from walpost.v1.envelope_pb2 import Envelope

WAIT_S = 120


class Account:
    def __init__(self):
        self.db = database("SHOP")
        self.billing = database("BILLING")
        self.kafka = kafka_consumer("account")
        self.committed = set()
        self.records = Counter()  # order: how often it is in Kafka
        self.lost = set()
        self._noted = None  # (orders, position): not judged yet
        self._next = {}

    def turn(self):
        """Notes what there is; or, once what was noted is confirmed, judges it. True when it has judged."""
        if self._noted is None:
            orders = {row[0] for row in self.db.execute("SELECT id FROM orders WHERE id > %s", (max(self.committed, default=0) - 1000,))}
            self._noted = orders | self.committed, self.db.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()[0]
        orders, position = self._noted
        if self.confirmed() < position:
            return False
        self._read()
        self.committed = orders
        self.lost = {order for order in orders if not self.records[order]}
        self._noted = None
        return True

    def confirmed(self):
        row = self.db.execute("SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = 'shop'").fetchone()
        return row[0] if row and row[0] is not None else -1

    def _read(self):
        """What the topic holds, up to its ends of now."""
        ends = {}
        for number in self.kafka.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions:
            low, high = self.kafka.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=20)
            if self._next.setdefault(number, low) < high:
                ends[number] = high
        self.kafka.assign([TopicPartition(TOPIC, number, self._next[number]) for number in ends])
        deadline = time.monotonic() + WAIT_S
        while any(self._next[number] < end for number, end in ends.items()):
            if time.monotonic() > deadline:
                raise KafkaException(f"{TOPIC} is not read to its end")
            for message in self.kafka.consume(1000, timeout=1):
                if not message.error():
                    self._next[message.partition()] = message.offset() + 1
                    self.records[json.loads(Envelope.FromString(message.value()).payload)["order"]] += 1

    def figures(self):
        """Of the orders that were judged last. What was rolled back is in Kafka, and in no table."""
        known = {row[0] for row in self.db.execute("SELECT id FROM orders")}
        invoices, different = self.billing.execute("SELECT count(*), count(DISTINCT order_id) FROM invoices").fetchone()
        return {"committed": len(self.committed), "delivered": len(self.committed - self.lost), "lost": len(self.lost),
                "again": sum(count - 1 for count in self.records.values()), "rolled back but seen": len(set(self.records) - known),
                "billed twice": invoices - different}

    def reconnect(self):
        for connection in (self.db, self.billing):
            connection.close()
        self.db, self.billing = database("SHOP"), database("BILLING")


def text(figures):
    return "  ".join(f"{name} {count:,}" for name, count in figures.items())


def fair(figures):
    return not (figures["lost"] or figures["rolled back but seen"] or figures["billed twice"])


def main():
    account, deadline = Account(), time.monotonic() + WAIT_S
    while not account.turn():
        if time.monotonic() > deadline:
            sys.exit(f"within {WAIT_S} s walpost has not confirmed what is committed: docker compose exec walpost walpost status")
        time.sleep(0.2)
    figures = account.figures()
    print(text(figures))
    print("balanced: nothing lost, nothing invented" if fair(figures) else "NOT BALANCED")
    sys.exit(0 if fair(figures) else 1)


if __name__ == "__main__":
    main()
