"""A real Kafka Connect worker with Debezium's PostgreSQL connector: the reference that the debezium preset is compared with.

One standalone process, several connectors by REST. Its jars are those of the test Kafka; the connector is a plugin beside
them (scripts/bootstrap --full). Use /usr/bin/python3.
"""

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import servers

DEBEZIUM_VERSION = "3.6.1.Final"


def plugin_path():
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "walpost"
    path = cache / f"debezium-{DEBEZIUM_VERSION}"
    if not (path / "complete").exists():
        raise servers.Unavailable(f"Debezium's connector in {path} (run scripts/bootstrap --full)")
    return path


class Connect:
    """A worker. `kafka` is where its connectors write to."""

    def __init__(self, path, kafka, heap_mb=768):
        self.path = Path(path)
        self.path.mkdir(parents=True)
        self.kafka = kafka
        self.heap_mb = heap_mb
        self.port = servers.free_port()
        self.log = self.path / "log"
        self.process = None
        lines = {
            "bootstrap.servers": kafka.bootstrap,
            "plugin.path": plugin_path(),
            "plugin.discovery": "service_load",
            "listeners": f"http://127.0.0.1:{self.port}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": self.path / "offsets",
            "offset.flush.interval.ms": 200,
        }
        self.properties = self.path / "worker.properties"
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in lines.items()), encoding="utf-8")

    def start(self, seconds=180):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["java", f"-Xmx{self.heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                 servers.kafka_classpath(), "org.apache.kafka.connect.cli.ConnectStandalone", str(self.properties)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

        def ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"Kafka Connect ended: {self.log_text()[-3000:]}")
            try:
                return self.get("/connectors") is not None
            except OSError:
                return False

        servers.wait_for(ready, seconds, "Kafka Connect to answer", every=0.2)
        return self

    def _request(self, method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=90) as answer:
            text = answer.read()
            return json.loads(text) if text else {}

    def get(self, path):
        return self._request("GET", path)

    def create(self, name, config, seconds=120):
        """Registers a connector and waits until it streams from its slot."""
        try:
            self._request("POST", "/connectors", {"name": name, "config": config})
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"connector {name}: {error.read().decode()}") from None
        servers.wait_for(lambda: self.state(name) == "RUNNING", seconds, f"connector {name} to run", every=0.1)

    def state(self, name):
        """Of its only task; a failed one is an error with its trace."""
        try:
            tasks = self.get(f"/connectors/{name}/status")["tasks"]
        except urllib.error.HTTPError:
            return None
        if tasks and tasks[0]["state"] == "FAILED":
            raise RuntimeError(f"connector {name} failed: {tasks[0]['trace'][:3000]}")
        return tasks[0]["state"] if tasks else None

    def delete(self, name):
        """Stops the connector; its slot stays."""
        self._request("DELETE", f"/connectors/{name}")

    def log_text(self):
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def stop(self):
        """A clean stop: what was acknowledged is in the offsets, and confirmed to the slot."""
        self.process.terminate()
        self.process.wait(timeout=120)

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def connector(postgres, database, slot, table, router=None, **more):
    """The configuration of a connector that reads one outbox table from a slot and publication of their own.

    `table` is (schema, name); `router` are options of the Event Router without their prefix; `more` goes over the rest.
    """
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": database,
        "topic.prefix": slot,
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": slot,
        "publication.autocreate.mode": "disabled",
        "table.include.list": ".".join(part.replace(" ", "\\s") for part in table),
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "false",
        "poll.interval.ms": "20",
        "status.update.interval.ms": "200",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        **{f"transforms.outbox.{name}": value for name, value in (router or {}).items()},
    }
    config.update({name.replace("__", "."): value for name, value in more.items()})
    return config
