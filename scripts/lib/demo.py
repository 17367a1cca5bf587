"""The shop of scripts/demo: places orders, shows what arrives in Kafka, and draws up the account."""

import argparse
import collections
import json
import random
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
import servers  # noqa: E402 - the path above makes it importable
from confluent_kafka import Consumer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient  # noqa: E402

ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, total numeric(10, 2) NOT NULL)"
INSERT_EVENT = """INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, content_type)
    VALUES (gen_random_uuid(), 'order', %s, 'OrderPlaced', %s, 'application/json')"""
PARTITIONS = 4
shown = []


def say(text):
    shown.append(text)
    print(text, flush=True)


class Shop(threading.Thread):
    """Places orders at a steady rate; every tenth is rolled back, half of those by a savepoint."""

    def __init__(self, postgres, rate, orders_max):
        super().__init__(daemon=True)
        self._connection = postgres.connect(autocommit=False)
        self._rate = rate
        self._orders_max = orders_max
        self._closed = threading.Event()
        self.committed = []  # (customer, order) in commit order
        self.rolled_back = []
        self.error = None

    def run(self):
        try:
            started = time.monotonic()
            order = 0
            while not self._closed.is_set() and (self._orders_max is None or order < self._orders_max):
                order += 1
                self._place(order, f"customer-{random.randrange(50)}")
                self._closed.wait(max(0.0, started + order / self._rate - time.monotonic()))
        except Exception as error:  # noqa: BLE001 - the main thread reports it
            self.error = error

    def _place(self, order, customer):
        total = random.randrange(100, 99999) / 100
        payload = json.dumps({"order": order, "total": total}, separators=(",", ":"))
        with self._connection.cursor() as cursor:
            if order % 20 == 10:
                cursor.execute("SAVEPOINT before")
            cursor.execute("INSERT INTO orders VALUES (%s, %s, %s)", (order, customer, total))
            cursor.execute(INSERT_EVENT, (customer, payload.encode()))
            if order % 20 == 10:
                cursor.execute("ROLLBACK TO before")
        if order % 20 == 0:
            self._connection.rollback()
        else:
            self._connection.commit()
        if order % 10 == 0:
            self.rolled_back.append(order)
        else:
            self.committed.append((customer, order))

    def close(self):
        self._closed.set()
        self.join()


class Seen:
    """What a consumer of the topic received."""

    def __init__(self, bootstrap, describe):
        self._describe = describe
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False,
                                   "fetch.wait.max.ms": 10, "log_level": 0})
        self._consumer.assign([TopicPartition("order", number, 0) for number in range(PARTITIONS)])
        self.orders = collections.Counter()
        self.by_customer = collections.defaultdict(list)
        self.delays_ms = []

    def poll(self, timeout):
        """Yields (order, description) of what arrives within the time."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is None or message.error():
                continue
            delay_ms = time.time() * 1000 - message.timestamp()[1]  # of the commit
            payload, text = self._describe(message)
            order = json.loads(payload)["order"]
            self.orders[order] += 1
            self.by_customer[message.key().decode()].append(order)
            self.delays_ms.append(delay_ms)
            yield order, f"{text} -> {message.topic()}[{message.partition()}] offset {message.offset():<3} {delay_ms:5.1f} ms"

    def close(self):
        self._consumer.close()


# Of a record: the payload, and what is shown.

def envelope(message):
    value = servers.load_envelope().FromString(message.value())
    return value.payload, (f"{value.type} {value.aggregate_id:<11} {value.payload.decode():<30} xid {value.source.xid}"
                           f" commit {lsn(value.position.commit_lsn)}")


def raw(message):
    return message.value(), headers_and_value(message, "id", "type")


def cloudevents(message):
    return message.value(), headers_and_value(message, "ce_id", "ce_type", "ce_source", "ce_subject", "ce_time", "ce_sequence")


def headers_and_value(message, *names):
    headers = {name: text.decode() for name, text in message.headers()}
    shown = " ".join(f"{name}={headers[name]}" for name in names if name in headers)
    return f"{message.key().decode():<11} {message.value().decode():<30} {shown}"


FORMATS = {"envelope": envelope, "raw": raw, "cloudevents": cloudevents}
RECORD_NAMES = {"envelope": "envelope", "raw": "record", "cloudevents": "CloudEvent"}


def lsn(number):
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def start_kafka(workspace):
    """(bootstrap servers, description, what must stay referenced)."""
    try:
        kafka = workspace.kafka()
        kafka.create_topic("order", PARTITIONS)
        return kafka.bootstrap, f"Kafka {servers.KAFKA_VERSION}", kafka
    except servers.Unavailable as error:
        print(f"no real Kafka here: missing {error}; librdkafka's mock broker stands in", file=sys.stderr)
        mock = AdminClient({"test.mock.num.brokers": 1, "log_level": 0})
        broker = next(iter(mock.list_topics("order", timeout=10).brokers.values()))
        return f"{broker.host}:{broker.port}", "librdkafka's mock broker, not a real Kafka", mock


def account(shop, seen, kafka_name, first_lsn, confirmed, last_event_lsn):
    committed = [order for _, order in shop.committed]
    delivered = sum(1 for order in committed if seen.orders[order])
    twice = sum(count - 1 for count in seen.orders.values())
    phantoms = sum(1 for order in seen.orders if order not in set(committed))
    expected = collections.defaultdict(list)
    for customer, order in shop.committed:
        expected[customer].append(order)
    ordered = all(seen.by_customer[customer] == orders for customer, orders in expected.items())
    balanced = delivered == len(committed) and phantoms == 0 and ordered and confirmed >= last_event_lsn
    delays = sorted(seen.delays_ms) or [0.0]
    say(f"""
the account ({kafka_name})
  committed    {len(committed):6,}   = delivered {delivered:,} ({twice} twice)
  rolled back  {len(shop.rolled_back):6,}   = {phantoms} seen
  order kept   {'yes' if ordered else 'NO'}, for each of {len(expected)} customers
  confirmed    {lsn(first_lsn)} -> {lsn(confirmed)}, {'past' if confirmed >= last_event_lsn else 'NOT YET PAST'} the last order
  delay        commit to consumer: median {statistics.median(delays):.1f} ms, 99 % under {delays[int(len(delays) * 0.99)]:.1f} ms""")
    say("balanced: nothing lost, nothing invented" if balanced else "NOT BALANCED")
    return balanced


def run(arguments, workspace):
    postgres = workspace.postgres()
    postgres.execute(ORDERS)
    bootstrap, kafka_name, keep = start_kafka(workspace)
    walpost = workspace.walpost(conninfo=postgres.conninfo(), bootstrap=bootstrap,
                                config={"outboxes": [{"table": "outbox.events", "value": {"format": arguments.format}}]})
    walpost.init()
    walpost.start()
    version = postgres.execute("SHOW server_version")[0][0].split()[0]
    first_lsn = postgres.slot()["confirmed"]
    say(f"PostgreSQL {version} -> walpost -> {kafka_name}; status page http://{walpost.http}/status")
    say(f"the shop places {arguments.rate} orders a second, one in ten is rolled back"
        + (f"; one {RECORD_NAMES[arguments.format]} in {arguments.show} is shown" if arguments.show > 1 else ""))

    seen = Seen(bootstrap, FORMATS[arguments.format])
    shop = Shop(postgres, arguments.rate, arguments.orders)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    shop.start()
    count, next_status = 0, time.monotonic() + 1
    while shop.is_alive() and not stopped.is_set():
        for _, text in seen.poll(0.1):
            count += 1
            if count % arguments.show == 0:
                say(text)
        if time.monotonic() >= next_status:
            next_status += 1
            status = walpost.status()
            say(f"-- {status['state']}: delivered {status['events']['delivered']:,}, in flight"
                f" {status['events']['in_flight']}, confirmed_flush_lsn {lsn(postgres.slot()['confirmed'])}")
    shop.close()
    if shop.error:
        raise shop.error

    last_event_lsn = postgres.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")[0][0]
    deadline = time.monotonic() + 60
    while len(seen.orders) < len(shop.committed) and time.monotonic() < deadline:
        for _ in seen.poll(0.1):
            pass
    for _ in seen.poll(0.5):  # whatever should not be there
        pass
    while postgres.slot()["confirmed"] < last_event_lsn and time.monotonic() < deadline:
        time.sleep(0.1)
    balanced = account(shop, seen, kafka_name, first_lsn, postgres.slot()["confirmed"], int(last_event_lsn))
    seen.close()
    code = walpost.stop()
    if code != 0:
        print(f"walpost ended with {code}: {walpost.log_text()[-1000:]}", file=sys.stderr)
    del keep
    if arguments.write_docs:
        result = next(i for i, line in enumerate(shown) if "the account" in line)
        text = "\n".join([*shown[:6], "...", *shown[result:]])
        servers.replace_block(servers.ROOT / "README.md", "demo", f"```text\n{text}\n```")
    return 0 if balanced and code == 0 else 1


def main():
    parser = argparse.ArgumentParser(prog="scripts/demo")
    parser.add_argument("--once", action="store_true", help="1,000 orders, then the account, and the end")
    parser.add_argument("--rate", type=int, help="orders a second (20, or 200 with --once)")
    parser.add_argument("--format", choices=FORMATS, default="envelope", help="value.format (envelope)")
    parser.add_argument("--write-docs", action="store_true", help="put the beginning of what is shown, and the account, into README.md")
    arguments = parser.parse_args()
    arguments.orders = 1000 if arguments.once else None
    arguments.rate = arguments.rate or (200 if arguments.once else 20)
    arguments.show = 100 if arguments.once else 1
    # Before the servers are up, Ctrl-C raises here and the workspace still closes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with servers.Workspace("walpost-demo-") as workspace:
            return run(arguments, workspace)
    except servers.Unavailable as error:
        print(f"missing {error}", file=sys.stderr)
        return servers.EX_UNAVAILABLE
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
