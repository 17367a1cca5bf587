#!/usr/bin/env python3
"""Has Kafka Connect run Debezium's Event Router on the outbox: PUT is the same whether the connector is new or not."""

import json
import os
import time
import urllib.error
import urllib.request

from services import PASSWORD

URL = "http://debezium:8083/connectors/shop"
CONFIG = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "postgres",
    "database.user": "postgres",
    "database.dbname": "shop",
    "topic.prefix": "debezium",
    "plugin.name": "pgoutput",
    "slot.name": "debezium",
    "publication.name": "debezium",
    "publication.autocreate.mode": "filtered",
    "publish.via.partition.root": "true",
    "table.include.list": "outbox.events",
    "snapshot.mode": "no_data",
    "tombstones.on.delete": "false",
    "binary.handling.mode": "bytes",
    "value.converter": "io.debezium.converters.BinaryDataConverter",
    "value.converter.delegate.converter.type": "org.apache.kafka.connect.json.JsonConverter",
    "transforms": "outbox",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "transforms.outbox.table.field.event.key": "aggregate_id",
    "transforms.outbox.table.field.event.type": "event_type",
    "transforms.outbox.route.by.field": "aggregate_type",
    "transforms.outbox.route.topic.replacement": "debezium.${routedByValue}",
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "3",
}


def main():
    config = {**CONFIG, "database.password": PASSWORD.read_text(encoding="utf-8").strip()}
    request = urllib.request.Request(f"{URL}/config", method="PUT", data=json.dumps(config).encode(), headers={"Content-Type": "application/json"})
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                print(f"connector {json.load(answer)['name']}: {answer.status}")
            return
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (404, 409):
                raise SystemExit(f"Kafka Connect rejects it: {error.read().decode()}") from None
        except OSError as error:
            print(f"-- Kafka Connect: {error}")
        time.sleep(2)


if __name__ == "__main__":
    main()
