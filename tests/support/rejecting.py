"""Events that a topic does not take, and topics where only the broker knows that."""

import kafka_requests

TABLE = """CREATE TABLE outbox (seq bigserial, id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255),
    type varchar(255), payload jsonb)"""

# A compacted topic takes no record without a key, so every `every`th row is rejected.
INSERT = """INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
    SELECT gen_random_uuid(), %s, CASE WHEN n %% %s = 0 THEN NULL ELSE 'key-' || (n %% 50) END, 'Tested', to_jsonb(n)
    FROM generate_series(%s, %s) n"""

ACLS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "allow.everyone.if.no.acl.found": "true"}


def permit(kafka, topic, *operations, change="--add", prefixed=False, principal="User:ANONYMOUS"):
    """Once a topic has any, only what its ACLs name is permitted."""
    for operation in operations:
        kafka_requests.change_right(kafka.bootstrap, topic, principal, operation, add=change == "--add", prefixed=prefixed)


class Rejecting:
    """A pipeline of preset debezium whose topic is compacted. Not `described` (a Kafka with ACLS), only the broker knows."""

    def __init__(self, make_pipeline, kafka, described=True, **delivery):
        self.pipeline = make_pipeline(on_kafka=kafka, create_topic=False, config={
            "outboxes": [{"table": "public.outbox", "preset": "debezium"}], "delivery": delivery})
        self.topic = kafka.create_topic(f"outbox.event.{self.pipeline.name}", 4, {"cleanup.policy": "compact"})
        if not described:
            permit(kafka, self.topic, "Describe", "Write", "Read")
        self.pipeline.execute(TABLE)
        self.pipeline.start()

    def insert(self, first, last, every=10**9):
        """Rows first..last in one transaction."""
        self.pipeline.execute(INSERT, self.pipeline.name, every, first, last)

    def rows(self):
        """[(id, whether it is rejected)] in commit order."""
        return self.pipeline.execute("SELECT id::text, aggregateid IS NULL FROM outbox ORDER BY seq")

    def delivered(self):
        """The ids that are in Kafka, by partition and offset."""
        return [dict(message.headers())["id"].decode() for message in self.pipeline.kafka.read_all(self.topic)]


def start_parking(make_pipeline, kafka, bytes_max, on_postgres=None, **config):
    """A running pipeline that parks keys, and whose topic has one partition and takes no record of more than `bytes_max`."""
    pipeline = make_pipeline(on_postgres=on_postgres, create_topic=False, config={**config, "delivery": {"on_undeliverable": "park"}})
    kafka.create_topic(pipeline.name, 1, {"max.message.bytes": str(bytes_max)})
    return pipeline.start()


def dead_letters(pipeline, topic=None):
    """The rows of a pipeline in walpost.dead_letters, in their order: [(columns, key, value)]."""
    columns = ("state", "position", "event_id", "event_type", "source", "topic", "reason", "detail", "attempts", "value_schema",
               "truncated_bytes")
    rows = pipeline.execute(
        "SELECT CASE WHEN closed_at IS NOT NULL THEN 'closed' WHEN parked THEN 'parked' ELSE 'dead_letter' END, position, event_id,"
        " event_type, source, topic, reason, detail, attempts, value_schema, truncated_bytes, key, value FROM walpost.dead_letters"
        " WHERE pipeline = %s ORDER BY seq", pipeline.name)
    found = [(dict(zip(columns, row)), *(None if cell is None else bytes(cell) for cell in row[len(columns):])) for row in rows]
    return [each for each in found if topic is None or each[0]["topic"] == topic]
