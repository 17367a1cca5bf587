"""What is scraped of a real walpost: it adds up at each moment, promtool has nothing to say, and the monitor reports what SQL shows."""

import re
import socket
import threading

import prometheus
import pytest
import servers

SCRAPED = {"statistics.interval.ms": "200"}


def documented():
    text = (servers.ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `((?:walpost|process)_[a-z0-9_]+)` \|", text, re.M))


def monitored(make_pipeline, postgres=None, monitor=None, **options):
    """Streaming, with a monitor on the same server that looks every second."""
    p = make_pipeline(on_postgres=postgres, properties=SCRAPED)
    conninfo = monitor or p.postgres.conninfo(p.database)
    p.walpost = p.another(config={"monitor": {"conninfo": conninfo, "interval": "1s"}, **options})
    return p.start()


def wait_for_value(p, name, accept, seconds=60, **labels):
    def seen():
        found = prometheus.scrape(p.walpost)
        value = found and found.value(name, **labels)
        return found if value is not None and accept(value) else None

    return servers.wait_for(seen, seconds, f"an accepted {name}")


class Scraper(threading.Thread):
    """Scrapes without a pause until it has to stop; keeps the first complaint."""

    def __init__(self, walpost):
        super().__init__()
        self.walpost = walpost
        self.over = threading.Event()
        self.complaint = None
        self.scrapes = 0
        self.in_flight = 0

    def run(self):
        before = {}
        try:
            while not self.over.is_set():
                now = prometheus.scrape(self.walpost)
                if now is None:
                    continue
                now.assert_adds_up()
                for name in ("walpost_events_received_total", "walpost_events_delivered_total"):
                    assert now.total(name) >= before.get(name, 0), f"{name} went back"
                    before[name] = now.total(name)
                self.scrapes += 1
                self.in_flight = max(self.in_flight, now.total("walpost_inflight_events"))
        except Exception as error:  # noqa: BLE001 - reported by the test's own thread
            self.complaint = repr(error)

    def finish(self):
        self.over.set()
        self.join()
        assert self.complaint is None, self.complaint
        return self


@pytest.mark.full
def test_every_scrape_adds_up_while_kafka_goes_and_comes_back(make_pipeline, workspace):
    kafka = workspace.kafka()
    p = make_pipeline(on_kafka=kafka, properties=SCRAPED).start()
    scraper = Scraper(p.walpost)
    scraper.start()
    p.insert_transactions(1, 2000, rows=3)
    kafka.kill9()
    p.insert_transactions(2001, 2100)
    servers.wait_for(lambda: prometheus.scrape(p.walpost).total("walpost_inflight_events") > 0, 60, "events in flight")
    kafka.start()
    p.insert_transactions(3001, 4000, rows=2, rolled_back_every=7)
    p.wait_confirmed()
    scraper.finish()
    assert scraper.scrapes > 0 and scraper.in_flight > 0
    last = prometheus.scrape(p.walpost)
    assert last.total("walpost_events_delivered_total") == len(p.committed()) == last.total("walpost_events_received_total")
    p.judge()


def test_every_scrape_adds_up_with_dead_letters_and_a_lost_connection(make_pipeline):
    p = make_pipeline(config={"delivery": {"on_undeliverable": "park"}})
    p.walpost.init()
    p.allow_bad_topics()
    p.walpost.start()
    scraper = Scraper(p.walpost)
    scraper.start()
    for first in (1, 101, 201):
        p.insert(first, first + 49)
        p.insert(first + 50, first + 59, keys=3, topic="no such topic")
        p.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", p.name)
    p.wait_confirmed()
    scraper.finish()
    last = prometheus.scrape(p.walpost)
    dead_letters = last.total("walpost_events_dead_lettered_total") + last.total("walpost_events_parked_total")
    assert dead_letters >= 30 and last.total("walpost_events_received_total") == len(p.committed())


def test_promtool_finds_nothing_and_every_documented_metric_is_there(make_pipeline, workspace):
    p = monitored(make_pipeline, workspace.postgres(settings={"max_slot_wal_keep_size": "64MB"}), delivery={"on_undeliverable": "skip"})
    p.insert(1, 20)
    p.insert(21, 21, topic="nobody-made-this-topic")
    p.wait_confirmed()
    def complete():
        found = prometheus.scrape(p.walpost)
        late = {"walpost_kafka_broker_up", "walpost_slot_wal_status", "walpost_slot_wal_exhaustion_seconds"}
        return found if found and late <= found.families() else None

    # How long the room lasts is known after a minute.
    seen = servers.wait_for(complete, 180, "the last of the metrics", every=0.5)
    # Not counted before 14.
    absent = set() if p.postgres.major >= 14 else {name for name in documented() if re.search("_slot_(spilled|decoded)_", name)}
    assert seen.families() == documented() - absent
    checked = prometheus.promtool("check", "metrics", stdin=seen.text)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_monitor_reports_what_the_server_shows(make_pipeline, workspace):
    p = monitored(make_pipeline, workspace.postgres(settings={"max_slot_wal_keep_size": "64MB"}))
    seen = wait_for_value(p, "walpost_slot_safe_wal_bytes", lambda value: 0 < value <= 80 << 20)
    assert seen.value("walpost_monitor_up") == 1 and seen.value("walpost_monitor_in_recovery") == 0
    assert seen.value("walpost_slot_wal_limit_bytes") == 64 << 20
    seen = wait_for_value(p, "walpost_slot_active", lambda value: value == 1)
    assert seen.value("walpost_slot_wal_status", status="reserved") == 1
    assert seen.total("walpost_slot_wal_status") == 1 and seen.value("walpost_slot_invalidated") == 0
    assert seen.value("walpost_outbox_partitions", table="outbox.events") == p.execute("SELECT count(*) FROM pg_inherits"
                                                                                       " WHERE inhparent = 'outbox.events'::regclass")[0][0]
    oldest, newest = p.execute("SELECT extract(epoch FROM min(ends)), extract(epoch FROM max(ends)) FROM outbox.partitions()")[0]
    assert seen.value("walpost_outbox_oldest_partition_end_timestamp_seconds") == oldest
    assert seen.value("walpost_outbox_newest_partition_end_timestamp_seconds") == newest
    retained = seen.value("walpost_slot_retained_bytes")
    connection = p.postgres.connect(p.database, autocommit=False)  # holds what the server must keep
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE held (n int)")
        p.execute("CREATE TABLE noise AS SELECT n, repeat('x', 100) AS t FROM generate_series(1, 20000) n")
        p.execute("CHECKPOINT")
        p.wait_confirmed()
        seen = wait_for_value(p, "walpost_slot_retained_bytes", lambda value: value > retained + 1_000_000)
    connection.close()
    assert seen.value("walpost_slot_safe_wal_bytes") < 80 << 20


def test_monitor_that_reports_a_lost_slot(make_pipeline, workspace):
    p = monitored(make_pipeline, workspace.postgres(settings={"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}),
                  delivery={"shutdown_timeout": "1s"})
    wait_for_value(p, "walpost_slot_active", lambda value: value == 1)
    p.insert(1, 1, topic="nobody-made-this-topic")
    p.walpost.wait_state("halted")  # and reads no more
    def lose():
        p.execute("CREATE TABLE IF NOT EXISTS noise (t text); INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 20000);"
                  " SELECT pg_switch_wal()")
        p.execute("CHECKPOINT")
        return p.slot()["wal_status"] == "lost"

    servers.wait_for(lose, 120, "the slot to be lost")
    seen = wait_for_value(p, "walpost_slot_invalidated", lambda value: value == 1)
    assert seen.value("walpost_slot_safe_wal_bytes") == 0 and seen.value("walpost_slot_wal_exhaustion_seconds") == 0
    assert seen.value("walpost_slot_wal_status", status="lost") == 1


def test_monitor_on_a_standby_reports_all_but_the_slot(make_pipeline, workspace):
    primary, standby = workspace.postgres(), workspace.postgres(start=False)
    standby.make_standby_of(primary)
    p = make_pipeline(on_postgres=primary, properties=SCRAPED)
    p.walpost = p.another(config={"monitor": {"conninfo": standby.conninfo(p.database), "interval": "1s"}})
    p.start()
    seen = wait_for_value(p, "walpost_monitor_in_recovery", lambda value: value == 1)
    wait_for_value(p, "walpost_outbox_partitions", lambda value: value > 0)
    seen = wait_for_value(p, "walpost_slot_safe_wal_bytes", lambda value: value == float("inf"))  # by the stream: no limit is set
    assert "walpost_slot_wal_status" not in seen.families() and "walpost_slot_retained_bytes" not in seen.families()


def test_monitor_of_another_cluster_is_not_believed(make_pipeline, workspace):
    other = workspace.postgres()
    p = monitored(make_pipeline, monitor=other.conninfo())
    seen = wait_for_value(p, "walpost_monitor_up", lambda value: value == 0)
    assert "walpost_slot_wal_status" not in seen.families()


def test_monitor_that_never_answers_holds_up_nothing(make_pipeline):
    with socket.create_server(("127.0.0.1", 0), backlog=5) as silent:
        p = monitored(make_pipeline, monitor=f"host=127.0.0.1 port={silent.getsockname()[1]} connect_timeout=2")
        p.insert_transactions(1, 300)
        p.wait_confirmed()
        seen = wait_for_value(p, "walpost_monitor_up", lambda value: value == 0)
        assert seen.value("walpost_monitor_last_success_timestamp_seconds") == 0
        assert p.judge() == 0
        assert p.walpost.stop() == 0


def test_nothing_is_asked_by_sql_unless_a_monitor_is_configured(make_pipeline):
    p = make_pipeline(properties=SCRAPED).start()
    servers.wait_for(lambda: p.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s", f"walpost-{p.name}%")[0][0] == 1,
                     30, "the stream alone")
    seen = prometheus.scrape(p.walpost)
    assert not [name for name in seen.families() if "monitor" in name or "partition" in name]


def test_brokers_are_listed_while_kafka_is_there_and_while_it_is_not(make_pipeline, workspace):
    kafka = workspace.kafka()
    p = make_pipeline(on_kafka=kafka, properties=SCRAPED).start()
    p.insert(1, 5)
    seen = wait_for_value(p, "walpost_kafka_broker_up", lambda value: value == 1, broker=kafka.bootstrap)
    wait_for_value(p, "walpost_kafka_broker_round_trip_p99_seconds", lambda value: 0 < value < 60, broker=kafka.bootstrap)
    assert len(seen.samples["walpost_kafka_broker_up"]) == 1, "what was only bootstrapped with is none"
    kafka.kill9()
    wait_for_value(p, "walpost_kafka_broker_up", lambda value: value == 0, broker=kafka.bootstrap)
    wait_for_value(p, "walpost_kafka_broker_disconnects_total", lambda value: value >= 1, broker=kafka.bootstrap)
