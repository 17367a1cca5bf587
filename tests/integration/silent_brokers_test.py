"""A broker rejects a record, and then no broker says who leads its topic. That nobody contradicts is no agreement."""

import pytest
import servers
from kafka_pair import OUTBOX, KafkaPair, insert, pipeline_of

ROWS = "decode((SELECT string_agg(md5(n::text || '.' || i::text), '') FROM generate_series(1, 600) i), 'hex')"


class Silence:
    """After Kafka has been sent its `after`th large request, what connects anew gets no answer: a question has a client of its own."""

    def __init__(self, proxy, after):
        self._left, self._begun, self._over = after, False, False
        self.asked = 0  # requests without an answer
        proxy.make_filter = lambda: _Connection(self, silent=self._begun)

    def saw(self, data):
        self._left -= len(data) > 5_000
        self._begun = self._left <= 0

    def on(self):
        return not self._over

    def end(self):
        self._over = True


class _Connection:
    def __init__(self, silence, silent):
        self._silence, self._silent = silence, silent

    def up(self, data):
        if self._silent and self._silence.on():
            self._silence.asked += 1
            return b"", b""
        self._silence.saw(data)
        return data, b""

    def down(self, data):
        return data


def rejecting_topic(make_pipeline, kafka):
    """A pipeline whose topic takes no large record, which only the broker can say, since records are compressed."""
    p = make_pipeline(on_kafka=kafka, create_topic=False, config={
        "delivery": {"on_undeliverable": "skip", "unknown_topic_wait": "1s"},
        "sink": {"kafka": {"properties": {"bootstrap.servers": kafka.bootstrap, "compression.type": "gzip"}}}})
    kafka.create_topic(p.name, 1, {"max.message.bytes": "3000"})
    return p


def insert_large(p):
    p.execute("SELECT outbox.set_payload_max(100000)")
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)"
              f" SELECT gen_random_uuid(), %s, 'key-1', 'Large', {ROWS} FROM generate_series(1, 1) n", p.name)


def skipped(p):
    return [line for line in p.walpost.log_events() if line["event"] == "event_skipped"]


def test_rejection_waits_until_a_broker_says_who_leads(make_pipeline, proxied):
    kafka, proxy = proxied
    p = rejecting_topic(make_pipeline, kafka)
    silence = Silence(proxy, after=2)  # in a batch, and alone
    p.start()
    p.insert(1, 1)
    p.wait_confirmed()
    insert_large(p)
    servers.wait_for(lambda: silence.asked and (skipped(p) or "no broker has said who leads" in str(p.walpost.status())), 60, "the end")
    assert not skipped(p)
    silence.end()
    proxy.set_mode("cut")
    proxy.set_mode("pass")
    servers.wait_for(lambda: skipped(p), 60, "the decision")


@pytest.mark.full
def test_verb_ends_when_no_broker_says_who_leads(make_pipeline, proxied):
    kafka, proxy = proxied
    p = rejecting_topic(make_pipeline, kafka)
    p.start()
    insert_large(p)
    servers.wait_for(lambda: skipped(p), 60, "the decision")
    silence = Silence(proxy, after=2)  # in a batch, and alone
    sent = p.walpost.verb("replay", "--all", "--in-place", "--skip-undeliverable", check=False)
    assert silence.asked
    assert sent.returncode == 69, sent
    assert "left out" not in sent.stdout + sent.stderr, sent


# walpost reaches one of two brokers only, and Kafka has no trouble.
def test_rows_for_missing_topics_stop_the_others_no_longer_than_while_all_brokers_answer(make_pipeline, tmp_path):
    pair = KafkaPair(tmp_path, proxy_to_two=True)
    try:
        p = pipeline_of(make_pipeline, pair, config={**OUTBOX, "delivery": {
            "in_flight_bytes_max": "1MiB", "unknown_topic_wait": "3s", "on_undeliverable": "skip"}})
        known = pair.create_topic(f"outbox.event.{p.name}")
        p.start()
        insert(p, known, "k", "first")
        servers.wait_for(lambda: pair.read_all(known), 60, "the first event")
        pair.to_two.set_mode("hold")
        p.execute("INSERT INTO public.o (aggregatetype, aggregateid, type, payload) SELECT 'missing-' || n, 'k', 'T', 'x' FROM generate_series(1, 2500) n")
        insert(p, known, "k", "last")
        # Without the rule for silent brokers it takes longer than this.
        servers.wait_for(lambda: len(pair.read_all(known)) == 2, 120, "the event behind them")
    finally:
        pair.close()
