"""A Kafka of several nodes, each broker and controller, whose clients under test take a way of their own.

Every node has two addresses: a direct one, which the brokers and whoever checks use, and one for the program under test,
which each broker gives out as the other end of a TcpProxy. So all traffic of that program, to all brokers, passes the proxies.
"""

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from servers import Kafka, free_port, wait_for
from tcp_proxy import TcpProxy


class KafkaCluster:
    def __init__(self, path, nodes=3, heap_mb=320, settings=None, log_dirs=()):
        """log_dirs: a folder for each node's records, instead of one beside its settings."""
        self.path = Path(path)
        self.path.mkdir(parents=True)
        ports = [(free_port(), free_port(), free_port()) for _ in range(nodes)]
        voters = ",".join(f"{n}@127.0.0.1:{controller}" for n, (_, _, controller) in enumerate(ports, 1))
        self.bootstrap = ",".join(f"127.0.0.1:{direct}" for direct, _, _ in ports)
        self.proxies = [TcpProxy(f"broker{n}", ("127.0.0.1", proxied)) for n, (_, proxied, _) in enumerate(ports, 1)]
        self.proxied_bootstrap = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)
        self.nodes = []
        for n, ((direct, proxied, controller), proxy) in enumerate(zip(ports, self.proxies), 1):
            self.nodes.append(Kafka(self.path / f"node{n}", start=False, port=direct, heap_mb=heap_mb, settings={
                "node.id": n,
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{direct},PROXIED://127.0.0.1:{proxied},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{direct},PROXIED://127.0.0.1:{proxy.port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "offsets.topic.replication.factor": nodes,
                "default.replication.factor": nodes,
                "min.insync.replicas": nodes - 1,
                **({"log.dirs": log_dirs[n - 1]} if log_dirs else {}),
                **(settings or {}),
            }))

    def start(self):
        for node in self.nodes:
            node.start(wait=False)  # one alone is no quorum and never becomes ready
        for node in self.nodes:
            node.wait_ready(120)
        wait_for(lambda: len(self.admin().list_topics(timeout=5).brokers) == len(self.nodes), 60, "all brokers to be there")
        return self

    def admin(self):
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(self, name, partitions=4, config=None):
        admin = self.admin()
        topic = NewTopic(name, partitions, len(self.nodes), config=config or {})
        admin.create_topics([topic])[name].result(timeout=60)

        def led():
            found = admin.list_topics(name, timeout=5).topics[name].partitions
            return len(found) == partitions and all(partition.leader > 0 for partition in found.values())

        wait_for(led, 60, f"topic {name}")
        return name

    def close(self):
        for node in self.nodes:
            node.close()
        for proxy in self.proxies:
            proxy.close()
