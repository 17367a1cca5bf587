"""Events of which only the broker can tell that it does not take them."""

TABLE = """CREATE TABLE outbox (seq bigserial, id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255),
    type varchar(255), payload jsonb)"""

# A compacted topic takes no record without a key, so every `every`th row is one that only the broker refuses.
INSERT = """INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
    SELECT gen_random_uuid(), %s, CASE WHEN n %% %s = 0 THEN NULL ELSE 'key-' || (n %% 50) END, 'Tested', to_jsonb(n)
    FROM generate_series(%s, %s) n"""


class Refusing:
    """A pipeline of preset debezium whose topic is compacted."""

    def __init__(self, make_pipeline, kafka, **delivery):
        self.pipeline = make_pipeline(create_topic=False, config={
            "outboxes": [{"table": "public.outbox", "preset": "debezium"}], "delivery": delivery})
        self.topic = kafka.create_topic(f"outbox.event.{self.pipeline.name}", 4, {"cleanup.policy": "compact"})
        self.pipeline.execute(TABLE)
        self.pipeline.start()

    def insert(self, first, last, every=10**9):
        """Rows first..last in one transaction."""
        self.pipeline.execute(INSERT, self.pipeline.name, every, first, last)

    def rows(self):
        """[(id, whether it is refused)] in commit order."""
        return self.pipeline.execute("SELECT id::text, aggregateid IS NULL FROM outbox ORDER BY seq")

    def delivered(self):
        """The ids that are in Kafka, by partition and offset."""
        return [dict(message.headers())["id"].decode() for message in self.pipeline.kafka.read_all(self.topic)]


def letters(kafka, topic, pipeline):
    """The dead-letter topic's records of a pipeline: [(headers, key, value)]."""
    found = []
    for message in kafka.read_all(topic):
        headers = {name: value.decode() for name, value in message.headers()}
        if headers.get("walpost-dlq-pipeline") == pipeline:
            found.append((headers, message.key(), message.value()))
    return found
