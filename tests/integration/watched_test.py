"""Many who look at once, while events flow: all are answered, and delivery does not notice."""

import socket

from watchers import Watchers, get

PAGES = 50
ROUNDS = 4


# Failure 87.
def test_fifty_open_pages_and_ten_scrapes_a_second_are_answered_while_events_are_delivered(make_pipeline):
    p = make_pipeline().start()
    watchers = Watchers(p.walpost.http, PAGES)
    first = 1
    while watchers.complaint is None and (min(watchers.rounds) < ROUNDS or watchers.answers.get("/metrics", 0) < 10 * ROUNDS):
        p.insert_transactions(first, first + 199, rows=3)
        first += 200
        assert first < 2_000_000, f"some are not answered: {watchers.rounds}, {watchers.answers}"
    answers = watchers.finish()
    assert answers["/status"] >= PAGES * ROUNDS and answers["/page.js"] == PAGES and answers["/history"] >= PAGES
    p.wait_confirmed()
    assert p.judge() == 0
    assert p.walpost.status()["reconnects"] == 0


# Failure 87.
def test_connections_that_ask_nothing_do_not_keep_probes_waiting(make_pipeline):
    """A browser opens some ahead of need; an orchestrator that gets no answer kills the process."""
    p = make_pipeline().start()
    address = ("127.0.0.1", int(p.walpost.http.rsplit(":", 1)[1]))
    silent = [socket.create_connection(address) for _ in range(12)]
    try:
        assert get(address, "/livez") == (200, b"ok\n")
        for connection in silent:
            connection.setblocking(False)
            try:
                assert connection.recv(1) != b"", "answered only after it had given up those before"
            except BlockingIOError:
                pass  # still open
    finally:
        for connection in silent:
            connection.close()
    p.walpost.wait_state("streaming", 30)
