"""Two nodes of Kafka: the first is broker and controller, the second a broker only. Each topic has one replica, on the node
that the test names, so that one of two topics can be without a leader. The second node's way to the controller can be cut:
then it goes on answering clients with what it knew before."""

from confluent_kafka.admin import NewPartitions, NewTopic
from servers import Kafka, free_port, wait_for
from tcp_proxy import TcpProxy


class KafkaPair:
    def __init__(self, path):
        controller, first, second = free_port(), free_port(), free_port()
        self.to_controller = TcpProxy("controller", ("127.0.0.1", controller))
        self.one = Kafka(path / "one", start=False, port=first, settings={
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{first},CONTROLLER://127.0.0.1:{controller}"})
        self.two = Kafka(path / "two", start=False, port=second, settings={
            "process.roles": "broker", "node.id": 2, "controller.quorum.voters": f"1@127.0.0.1:{self.to_controller.port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{second}"})
        self.bootstrap = f"{self.one.bootstrap},{self.two.bootstrap}"
        self.one.start(wait=False)
        self.two.start(wait=False)
        self.one.wait_ready()
        wait_for(lambda: len(self.admin().list_topics(timeout=5).brokers) == 2, 60, "both nodes")

    def admin(self):
        return self.one.admin()

    def read_all(self, topic):
        return self.one.read_all(topic)

    def create_topic(self, name, partitions=1, config=None, node=1, replicas=None, seen_by=None):
        """Its first replica leads."""
        topic = NewTopic(name, partitions, replica_assignment=[replicas or [node]] * partitions, config=config or {})
        admin = self.admin()
        admin.create_topics([topic])[name].result(timeout=30)
        for each in seen_by or (self.one, self.two):
            wait_for(lambda: name in each.admin().list_topics(timeout=5).topics, 30, f"topic {name}")  # noqa: B023
        return name

    def add_partitions(self, topic, partitions):
        admin = self.admin()
        before = len(admin.list_topics(topic, timeout=5).topics[topic].partitions)
        more = NewPartitions(topic, partitions, replica_assignment=[[1]] * (partitions - before))
        admin.create_partitions([more])[topic].result(timeout=30)
        wait_for(lambda: len(admin.list_topics(topic, timeout=5).topics[topic].partitions) == partitions, 30, "partitions")

    def cut_off(self):
        """The second node from the controller. Clients that know its address still reach it."""
        self.to_controller.set_mode("hold")
        wait_for(lambda: len(self.admin().list_topics(timeout=5).brokers) == 1, 60, "the controller to notice")

    def close(self):
        self.two.close()
        self.one.close()
        self.to_controller.close()
