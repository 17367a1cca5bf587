"""One PostgreSQL for a file of tests, and one Kafka for all; a database, a slot and topics of its own for each test."""

import itertools
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import pipeline  # noqa: E402 - the path above makes it importable
import servers  # noqa: E402
from kafka_pair import KafkaPair  # noqa: E402
from tcp_proxy import TcpProxy  # noqa: E402

_numbers = itertools.count(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "smoke: also run on the oldest and the newest versions of PostgreSQL each time (scripts/test)")
    config.addinivalue_line("markers", "full: slow, and only one more case of what another test shows: run by scripts/test --full alone")


@pytest.fixture(scope="module")
def module_workspace():
    with servers.Workspace() as workspace:
        yield workspace


@pytest.fixture(scope="module")
def postgres(module_workspace):
    return module_workspace.postgres()


@pytest.fixture(scope="module")
def kafka(module_workspace):
    """A test that stops it, or needs it set up in another way, has one of its own: workspace.kafka()."""
    return module_workspace.shared_kafka()


@pytest.fixture
def pair(tmp_path):
    made = KafkaPair(tmp_path)
    yield made
    made.close()


@pytest.fixture
def proxied(tmp_path):
    """A Kafka that clients reach through a proxy only, and the proxy."""
    port = servers.free_port()
    proxy = TcpProxy("kafka", ("127.0.0.1", port))
    kafka = servers.Kafka(tmp_path / "k", port=port, settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"})
    kafka.bootstrap = f"127.0.0.1:{proxy.port}"
    yield kafka, proxy
    kafka.close()
    proxy.close()


@pytest.fixture
def workspace():
    with servers.Workspace() as own:
        yield own


@pytest.fixture
def make_pipeline(postgres, kafka, workspace):
    """make_pipeline(**walpost options): database, topic, slot and walpost under one new name; not yet initialised."""

    def make(on_postgres=None, on_kafka=None, partitions=4, create_topic=True, encoding="UTF8", **options):
        name = f"t{os.getpid()}x{next(_numbers)}"  # no other file has it
        made = pipeline.Pipeline(name, on_postgres or postgres, on_kafka or kafka, workspace, options, encoding)
        if create_topic:
            (on_kafka or kafka).create_topic(name, partitions)
        return made

    return make
