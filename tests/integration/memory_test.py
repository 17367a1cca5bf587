"""Memory stays bounded whatever the size of a transaction or the length of an outage.

The limit asserted here is for the build under test; scripts/bench memory reports what the release build needs.
"""

import servers

LIMIT_BYTES = 64 * 1024 * 1024


# Failures 45, 84.
def test_one_transaction_of_a_million_rows_streams_through(make_pipeline):
    p = make_pipeline().start()
    p.insert(1, 1_000_000, keys=1000)
    p.wait_confirmed(seconds=300)
    assert p.walpost.status()["events"]["delivered"] == 1_000_000
    assert p.walpost.peak_rss_bytes() <= LIMIT_BYTES


# Failures 62, 84.
def test_an_outage_of_kafka_under_load_fills_no_memory(make_pipeline, workspace):
    kafka = workspace.kafka()
    p = make_pipeline(on_kafka=kafka).start()
    p.insert_transactions(1, 1000)
    p.wait_confirmed()
    kafka.process.send_signal(19)  # SIGSTOP
    p.insert_transactions(1001, 11_000, rows=20, payload_bytes=250)
    servers.wait_for(lambda: p.walpost.state() == "backpressured", 60, "the in-flight limit to be reached")
    kafka.process.send_signal(18)
    p.wait_confirmed()
    p.judge()
    assert p.walpost.peak_rss_bytes() <= LIMIT_BYTES
