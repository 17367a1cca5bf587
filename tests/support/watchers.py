"""Open status pages and a scraper, as walpost's HTTP server sees them. Plain sockets, so that what asks costs little beside what answers.

    watchers.py HOST:PORT    until its standard input ends; then prints what was answered, as JSON
"""

import json
import socket
import sys
import threading
import time

PAGE_FILES = ("/", "/page.css", "/page.js")
STATUS_EVERY_S = 1.0
HISTORY_EVERY_S = 15.0
PATIENCE_S = 30.0


def get(address, path, token=None):
    """(code, body)."""
    login = f"Authorization: Bearer {token}\r\n" if token else ""
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: walpost\r\n{login}\r\n".encode())
        answer = bytearray()
        while part := connection.recv(65536):
            answer += part
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    if f"content-length: {len(body)}".encode() not in head.lower():
        raise ConnectionError(f"{path}: cut off after {len(answer)} bytes")
    return int(head.split()[1]), body


class Watchers:
    """`pages` open pages that poll as page.js does, and `scrapes_per_s` scrapes; keeps what was answered, and the first complaint."""

    def __init__(self, host, pages=50, scrapes_per_s=10, token=None):
        name, port = host.rsplit(":", 1)
        self.address = (name, int(port))
        self.token = token
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.answers = {}  # by path
        self.rounds = [0] * pages
        self.complaint = None
        self.threads = [threading.Thread(target=self._guarded, args=(self._page, number)) for number in range(pages)]
        if scrapes_per_s:
            self.threads.append(threading.Thread(target=self._guarded, args=(self._scrape, 1 / scrapes_per_s)))
        for thread in self.threads:
            thread.start()

    def _guarded(self, work, argument):
        try:
            work(argument)
        except Exception as error:  # noqa: BLE001 - reported by finish()
            self.complaint = self.complaint or repr(error)

    def _ask(self, path):
        code, body = get(self.address, path, self.token)
        if code != 200 or not body:
            raise ConnectionError(f"{path}: {code}, {len(body)} bytes")
        with self.lock:
            self.answers[path] = self.answers.get(path, 0) + 1
        return body

    def _page(self, number):
        for path in PAGE_FILES:
            self._ask(path)
        next_history = time.monotonic()
        while not self.over.is_set():
            json.loads(self._ask("/status"))
            self.rounds[number] += 1
            if time.monotonic() >= next_history:
                json.loads(self._ask("/history"))
                next_history += HISTORY_EVERY_S
            self.over.wait(STATUS_EVERY_S)

    def _scrape(self, every_s):
        due = time.monotonic()
        while not self.over.is_set():
            if b"walpost_up" not in self._ask("/metrics"):
                raise ConnectionError("/metrics without walpost_up")
            due += every_s
            self.over.wait(max(0.0, due - time.monotonic()))

    def finish(self):
        """The answers by path."""
        self.over.set()
        for thread in self.threads:
            thread.join()
        if self.complaint:
            raise AssertionError(self.complaint)
        return self.answers


if __name__ == "__main__":
    watchers = Watchers(sys.argv[1])
    sys.stdin.read()
    print(json.dumps(watchers.finish()))
