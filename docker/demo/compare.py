#!/usr/bin/env python3
"""Holds the topic that Debezium writes against walpost's: the same events, in the same order for each key?"""

import sys
import time
from collections import defaultdict

from confluent_kafka import TopicPartition
from services import TOPIC, kafka_consumer

WAIT_S = 60


def read(topic):
    """{key: ids of its events, in order, each where it came first}"""
    consumer = kafka_consumer("compare")
    ends, found = {}, defaultdict(dict)
    for number in consumer.list_topics(topic, timeout=20).topics[topic].partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
        if low < high:
            ends[number] = high
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    deadline = time.monotonic() + WAIT_S
    while ends and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=1):
            if not message.error():
                event = dict(message.headers())["id"].decode()
                found[message.key().decode()].setdefault(event)
                if message.offset() + 1 >= ends.get(message.partition(), 0):
                    ends.pop(message.partition(), None)
    consumer.close()
    return {key: list(events) for key, events in found.items()}


def main():
    # Debezium's first: what it has, walpost must have.
    theirs = read(f"debezium.{TOPIC}")
    ours = read(TOPIC)
    count = missing = 0
    ordered = True
    for key, events in theirs.items():
        count += len(events)
        known = {event: place for place, event in enumerate(ours.get(key, ()))}
        places = [known[event] for event in events if event in known]
        missing += len(events) - len(places)
        ordered = ordered and places == sorted(places)
    print(f"Debezium {count:,} events, of them walpost has {count - missing:,}; order of each key {'the same' if ordered else 'NOT THE SAME'}")
    sys.exit(0 if count and not missing and ordered else 1)


if __name__ == "__main__":
    main()
