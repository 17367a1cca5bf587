"""Two nodes of Kafka: the first is broker and controller, the second a broker only. Each topic has one replica, on the node
that the test names, so that one of two topics can be without a leader. The second node's way to the controller can be cut:
then it goes on answering clients with what it knew before."""

from confluent_kafka.admin import NewPartitions, NewTopic
from servers import Kafka, free_port, wait_for
from tcp_proxy import TcpProxy

OUTBOX = {"outboxes": [{"table": "public.o", "preset": "debezium", "topics": {"allowed": ["*"]}, "columns": {"partition": "part"}}],
          "delivery": {"on_undeliverable": "skip", "unknown_topic_wait": "10s"}}


def pipeline_of(make_pipeline, pair, progress_on=1, **options):
    """With a table that names topic and partition. Its progress topic is on one node; None: the test makes it."""
    p = make_pipeline(on_kafka=pair, create_topic=False, **{"config": OUTBOX, **options})
    p.execute("CREATE TABLE public.o (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text,"
              " type text, payload text, part int, created_at timestamptz DEFAULT now())")
    if progress_on:
        pair.create_topic(f"walpost.progress.{p.name}", node=progress_on)
    return p


def insert(p, topic, key, payload, partition=None):
    p.execute("INSERT INTO public.o (aggregatetype, aggregateid, type, payload, part) VALUES (%s, %s, 'T', %s, %s)",
              topic.removeprefix("outbox.event."), key, payload, partition)


def _advertised(proxy):
    return {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"} if proxy else {}


class KafkaPair:
    def __init__(self, path, settings=None, proxy_to_one=False, proxy_to_two=False):
        """With a proxy to a node, clients find that one by asking the other."""
        controller, first, second = free_port(), free_port(), free_port()
        self.to_controller = TcpProxy("controller", ("127.0.0.1", controller))
        self.to_one = TcpProxy("one", ("127.0.0.1", first)) if proxy_to_one else None
        self.one = Kafka(path / "one", start=False, port=first, settings={
            **(settings or {}), **_advertised(self.to_one), "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{first},CONTROLLER://127.0.0.1:{controller}"})
        self.to_two = TcpProxy("two", ("127.0.0.1", second)) if proxy_to_two else None
        self.two = Kafka(path / "two", start=False, port=second, settings={
            **(settings or {}), **_advertised(self.to_two), "process.roles": "broker", "node.id": 2,
            "controller.quorum.voters": f"1@127.0.0.1:{self.to_controller.port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{second}"})
        self.bootstrap = ",".join(([] if proxy_to_one else [self.one.bootstrap]) + ([] if proxy_to_two else [self.two.bootstrap]))
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

    def leaders(self, topic):
        """Of its first partition, as each node says."""
        found = [node.admin().list_topics(timeout=5).topics.get(topic) for node in (self.one, self.two)]
        return tuple(topic and topic.partitions[0].leader for topic in found)

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
        for proxy in filter(None, (self.to_one, self.to_two)):
            proxy.close()
