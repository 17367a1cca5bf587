"""The status page in a real browser, through the states that somebody who is called at night may find. WALPOST_SCREENSHOTS names a folder
for what it looks like."""

import os
from pathlib import Path

import pytest
import servers
from browser import ENTER, Browser

WIDTHS = {1280: 1700, 390: 4400}


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


class Page:
    def __init__(self, browser, walpost):
        self.browser = browser
        self.host = walpost.http
        browser.resize(1280, 1500)
        browser.open(f"http://{walpost.http}/")

    def shows(self, selector, *texts, seconds=40):
        try:
            servers.wait_for(lambda: all(text in self.browser.text(selector) for text in texts), seconds, "the page", every=0.2)
        except TimeoutError:
            raise AssertionError(f"{selector} has {self.browser.text(selector)!r} and not {texts}") from None

    def is_readable(self, name):
        """Nothing stands beside the page, wide or narrow, in light and dark, and nothing was rejected or failed."""
        for width, height in WIDTHS.items():
            self.browser.resize(width, height)
            for dark in (False, True):
                self.browser.dark(dark)
                assert self.browser.run("return document.documentElement.scrollWidth") <= width, f"{name} at {width}"
                back = self.browser.run("return getComputedStyle(document.body).backgroundColor")
                assert (back == "rgb(255, 255, 255)") != dark, back
                if os.environ.get("WALPOST_SCREENSHOTS"):
                    folder = Path(os.environ["WALPOST_SCREENSHOTS"])
                    self.browser.screenshot(folder / f"{name}-{width}-{'dark' if dark else 'light'}.png")
        assert [line for line in self.browser.log() if self.host in line] == []


def test_streaming_and_a_standby(make_pipeline, browser):
    p = make_pipeline().start()
    p.insert(1, 40)
    p.wait_confirmed()
    page = Page(browser, p.walpost)
    page.shows("header", p.name, "streaming")
    page.shows("#words", "Everything that was received is in Kafka.")
    page.shows("#way", f"Slot {p.name}", "40 events", "40 delivered", "0 B behind")
    page.shows("#tables", "outbox.events", p.name)
    page.shows("#charts", "events delivered", "behind the server")
    p.insert(41, 60)
    page.shows("#way", "60 delivered")  # by itself
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)"
              " VALUES (gen_random_uuid(), %s, 'private-key', 'Refunded', 'private payload')", p.name)
    newest = p.execute("SELECT id::text FROM outbox.events WHERE event_type = 'Refunded'")[0][0]
    page.shows("#events tbody tr", newest, "Refunded", p.name, "ms")
    assert browser.run("return document.querySelectorAll('#events tbody tr').length") == 20
    page.shows("#tables", "Broker", p.kafka.bootstrap.split(":")[1], "connected", seconds=60)
    assert "private" not in browser.text() and "private" not in p.walpost.get("/status")[1]
    page.is_readable("streaming")
    second = p.another().start(wait="standby")
    page = Page(browser, second)
    page.shows("header", "standby")
    page.shows("#words", "takes over")
    page.is_readable("standby")
    assert second.stop() == 0


def test_room_for_the_slot_and_what_the_monitor_reports(make_pipeline, browser, workspace):
    p = make_pipeline(on_postgres=workspace.postgres(settings={"max_slot_wal_keep_size": "64MB"}))
    p.walpost = p.another(config={"monitor": {"conninfo": p.postgres.conninfo(p.database), "interval": "1s"}})
    p.start()
    p.insert(1, 10)
    p.wait_confirmed()
    page = Page(browser, p.walpost)
    page.shows("#figures", "room for the slot", "would be full in", "WAL kept for the slot", "reserved")
    page.shows("#tables", "Partitions of", "outbox.events")
    page.is_readable("monitored")
    p.postgres.stop("immediate")
    page.shows("#monitor", "What is shown of the slot comes from the stream alone")
    page.shows("header", "reconnecting")


def test_configuration_is_opened_with_the_keyboard_and_shows_no_secret(make_pipeline, browser):
    p = make_pipeline(properties={"ssl.key.password": "do-not-show-me"}).start()
    page = Page(browser, p.walpost)
    page.shows("header", "streaming")
    browser.run("document.querySelector('summary').focus()")
    browser.type("summary", ENTER)
    page.shows("#configuration-text", f"slot: {p.name}", "ssl.key.password")
    shown = browser.text("#configuration-text")
    assert "***" in next(line for line in shown.splitlines() if "ssl.key.password" in line)
    assert "do-not-show-me" not in browser.text()
    assert b"do-not-show-me" not in p.walpost.get("/configuration")[1].encode()


def test_kafka_down_and_back_pressure(make_pipeline, browser, workspace):
    kafka = workspace.kafka()
    p = make_pipeline(on_kafka=kafka, config={"delivery": {"in_flight_bytes_max": "64KiB"}}).start()
    p.insert(1, 10)
    p.wait_confirmed()
    page = Page(browser, p.walpost)
    page.shows("header", "streaming")
    kafka.stop()
    p.insert(11, 15)
    page.shows("#way", "5 events", "oldest")
    page.shows("#way", "not connected", seconds=90)
    page.shows("#words", "Kafka is out of reach. 5 events wait in memory")
    page.is_readable("kafka-down")
    p.insert(1001, 3000)
    page.shows("header", "backpressured")
    page.shows("#words", "Kafka is out of reach.", "later ones in the slot")
    page.is_readable("backpressured")
    kafka.start()
    page.shows("#words", "Everything that was received is in Kafka.", seconds=120)


def test_halted_and_gone(make_pipeline, browser):
    p = make_pipeline()
    p.walpost.init()
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    p.walpost.start(wait="halted")
    page = Page(browser, p.walpost)
    page.shows("header", "halted")
    page.shows("#halt", "slot_missing", "docs/runbook.md", "walpost.pipeline records it")
    page.shows("#words", "keep the rows")
    page.is_readable("halted")
    assert p.walpost.stop() == 0
    page.shows("header", "not reachable")


def test_page_takes_nothing_from_elsewhere(make_pipeline):
    p = make_pipeline().start()
    for path in ("/", "/page.css", "/page.js"):
        code, body = p.walpost.get(path)
        assert code == 200 and "//" not in body.replace("http://www.w3.org/2000/svg", "").replace("// ", ""), path
