"""http.token: who may ask the HTTP endpoints, and how each of those who may logs in."""

import base64
import contextlib
import http.server
import json
import resource
import select
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import servers
from browser import Browser
from prometheus import Prometheus

TOKEN = "c0ffee-0123456789-token"
OPEN = ("/livez", "/healthz", "/readyz")
CLOSED = ("/", "/page.css", "/page.js", "/status", "/history", "/configuration", "/metrics", "/readyz?verbose", "/nothing")


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def basic(name, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def ask(walpost, path, headers):
    """(code, headers of the answer)."""
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://{walpost.http}{path}", headers=headers), timeout=10) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


@pytest.fixture
def p(make_pipeline, tmp_path):
    """Streaming, with the token in a file."""
    secret = tmp_path / "token"
    secret.write_text(TOKEN + "\n", encoding="utf-8")
    made = make_pipeline()
    made.walpost = made.another(config={"http": {"token": f"${{file:{secret}}}"}})
    made.walpost.token = TOKEN
    made.secret = secret
    return made.start()


def test_probes_are_open_and_all_else_asks_for_the_token(p):
    for path in OPEN:
        assert ask(p.walpost, path, {})[0] == 200, path
    wrong = ({}, bearer("c0ffee-0123456789-tokem"), bearer(""), basic("walpost", "wrong"), basic(TOKEN, ""), {"Authorization": TOKEN})
    for path in CLOSED:
        for headers in wrong:
            code, answer = ask(p.walpost, path, headers)
            assert code == 401, f"{path} with {headers}"
            assert [line.split()[0] for line in answer.get_all("WWW-Authenticate")] == ["Basic", "Bearer"]
        for headers in (bearer(TOKEN), basic("prometheus", TOKEN), basic("", TOKEN)):
            assert ask(p.walpost, path, headers)[0] == (404 if path == "/nothing" else 200), f"{path} with {headers}"
    rejected = urllib.request.Request(f"http://{p.walpost.http}/status", method="POST")
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(rejected, timeout=10)
    assert raised.value.code == 401


def test_verbs_log_in_with_the_same_configuration(p):
    p.insert(1, 5)
    p.wait_confirmed()
    assert "5 delivered" in p.walpost.verb("status").stdout
    assert p.walpost.verb("status", "--exit-code").stdout.startswith("WALPOST OK: streaming")
    assert p.walpost.verb("healthcheck", "--ready").stdout == "ok: streaming\n"
    for others, why in (("http.token=''", "this configuration has none"), ("http.token=some-other-token-1", "rejects this configuration's token")):
        rejected = p.walpost.verb("--set", others, "status", check=False)
        assert rejected.returncode == 77 and rejected.stdout == "" and why in rejected.stderr
        plugin = p.walpost.verb("--set", others, "status", "--exit-code", check=False)
        assert plugin.returncode == 3 and plugin.stdout == "WALPOST UNKNOWN: walpost answers, and rejects the token\n"
        assert p.walpost.verb("--set", others, "healthcheck").stdout == "ok\n", "a probe needs no secret"


def test_a_browser_logs_in_and_the_page_renews_itself(p):
    browser = Browser()
    try:
        browser.open(f"http://{p.walpost.http}/")
        assert "streaming" not in browser.text()
        browser.open(f"http://me:{TOKEN}@{p.walpost.http}/")
        servers.wait_for(lambda: "streaming" in browser.text("header"), 40, "the page")
        p.insert(1, 30)
        servers.wait_for(lambda: "30 delivered" in browser.text("#way"), 40, "the page to show events")
        assert TOKEN not in browser.run("return document.documentElement.outerHTML")
    finally:
        browser.close()


def test_prometheus_logs_in_both_ways(p, tmp_path):
    target = [{"targets": [p.walpost.http]}]
    prometheus = Prometheus(tmp_path / "prometheus", [], "none.yml", more_scrapes=[
        {"job_name": "bearer", "static_configs": target, "authorization": {"credentials_file": str(p.secret)}},
        {"job_name": "basic", "static_configs": target, "basic_auth": {"username": "prometheus", "password_file": str(p.secret)}},
        {"job_name": "stranger", "static_configs": target}])
    try:
        def up():
            found = {sample["metric"]["job"]: sample["value"][1] for sample in prometheus.query("up")}
            return found if len(found) == 3 and found["bearer"] == found["basic"] == "1" else None

        assert servers.wait_for(up, 60, "Prometheus to scrape")["stranger"] == "0"
    finally:
        prometheus.close()


def test_sighup_takes_another_token_and_the_configuration_shown_is_the_one_in_force(p):
    content = json.loads(p.walpost.file.read_text())
    assert "level: debug" in p.walpost.get("/configuration")[1]
    content["log"]["level"] = "info"
    content["delivery"] = {"unknown_topic_wait": "7s"}  # not taken without a restart
    content["sink"]["kafka"]["properties"]["socket.timeout.ms"] = "30000"  # a key that was not there before
    p.walpost.file.write_text(json.dumps(content))
    p.secret.write_text("another-0123456789-token\n", encoding="utf-8")
    p.walpost.signal(signal.SIGHUP)
    servers.wait_for(lambda: ask(p.walpost, "/status", bearer("another-0123456789-token"))[0] == 200, 30, "the new token to be taken")
    assert ask(p.walpost, "/status", bearer(TOKEN))[0] == 401
    p.walpost.token = "another-0123456789-token"
    shown = p.walpost.get("/configuration")[1]
    assert "level: info" in shown and "unknown_topic_wait: 100ms" in shown and "socket.timeout.ms: 30000" in shown
    # A token that is not there any more closes nothing and opens nothing.
    p.secret.write_text("\n", encoding="utf-8")
    p.walpost.signal(signal.SIGHUP)
    servers.wait_for(lambda: "reload_rejected" in p.walpost.log_text(), 30, "the log to say so")
    assert ask(p.walpost, "/status", {})[0] == 401 and p.walpost.status()["state"] == "streaming"


def test_the_token_is_shown_nowhere(p):
    p.insert(1, 5)
    p.wait_confirmed()
    for path in CLOSED:
        assert TOKEN not in p.walpost.get(path)[1], path
    assert 'token: "***"' in p.walpost.get("/configuration")[1]
    assert 'token: "***"' in p.walpost.verb("config", "show").stdout
    p.walpost.verb("--set", "http.listen=0.0.0.0:1", "check", check=False)
    p.walpost.signal(signal.SIGHUP)
    servers.wait_for(lambda: "resume" in p.walpost.log_text(), 30, "the log to say so")
    assert TOKEN not in p.walpost.log_text() and "http_open" not in p.walpost.log_text()
    short = subprocess.run([servers.walpost_binary(), "--config", str(p.walpost.file), "--set", "http.token=too-short", "config", "validate"],
                           capture_output=True, text=True, check=False)
    assert short.returncode == 78 and "http.token" in short.stderr and "too-short" not in short.stderr


def test_an_address_that_others_reach_without_a_token_is_warned_of(make_pipeline):
    p = make_pipeline()
    port = servers.free_port()
    # Loopback in truth, which walpost does not take it for.
    p.walpost = p.another(config={"http": {"listen": f"LOCALHOST:{port}"}})
    p.walpost.http = f"127.0.0.1:{port}"
    p.start()
    logged = [line for line in p.walpost.log_events() if line["event"] == "http_open"]
    assert len(logged) == 1 and logged[0]["level"] == "warning" and "set http.token" in logged[0]["msg"]
    checked = p.walpost.verb("check")
    assert f"! http: http.listen LOCALHOST:{port}" in checked.stdout
    assert "! http" not in p.walpost.verb("--set", f"http.token={TOKEN}", "check").stdout


class Flood:
    """A client that has so many connections open or on their way, asks nothing, and opens another one for each that ends."""

    def __init__(self, address, wanted):
        host, port = address.split(":")
        self.address, self.wanted = (host, int(port)), wanted
        self.sockets, self.ended, self.poll, self.stop = {}, 0, select.epoll(), threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        for each in self.sockets.values():
            each.close()

    def open(self):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(self.address)
        self.sockets[one.fileno()] = one
        self.poll.register(one, select.EPOLLIN | select.EPOLLRDHUP)

    def run(self):
        while not self.stop.wait(0.2):
            while len(self.sockets) < self.wanted:
                self.open()
            for each in self.sockets.values():
                with contextlib.suppress(OSError):
                    each.send(b"G")  # so that none is idle
            for number, _ in self.poll.poll(0, self.wanted):
                self.poll.unregister(number)
                self.sockets.pop(number).close()
                self.ended += 1


@contextlib.contextmanager
def file_limit(soft):
    """Of this process and those that it starts."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_limit_of_open_files_that_is_low_then_it_is_raised_to_the_hard_one(make_pipeline):
    with file_limit(300):
        p = make_pipeline().start()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert resource.prlimit(p.walpost.process.pid, resource.RLIMIT_NOFILE) == (min(hard, 65_536), hard)


# With 1,024 descriptors of its own, whatever it could raise that to.
def test_thousands_of_connections_then_events_are_delivered_and_probes_answered(make_pipeline):
    p = make_pipeline().start()
    resource.prlimit(p.walpost.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    with file_limit(10_000), Flood(p.walpost.http, 3_000) as flood:
        servers.wait_for(lambda: flood.ended > 3_000, 60, "connections that were ended")
        for turn in range(3):
            p.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
            p.insert(turn * 10 + 1, turn * 10 + 10)
            lsn = p.wal_position()
            assert p.walpost.get("/livez", timeout=10)[0] == 200
            servers.wait_for(lambda: p.slot()["confirmed"] >= lsn, 60, "the events to be delivered")  # noqa: B023
        assert len(list(Path(f"/proc/{p.walpost.process.pid}/fd").iterdir())) < 400
    assert len(p.records()) == 30


def sockets_of(port):
    """(state, bytes that wait to be sent) of each connection to a port of this host, also of those that no process has any more."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]]
    return [(state, int(queues.split(":")[0], 16)) for _, local, _, state, queues, *_ in lines
            if int(local.split(":")[1], 16) == port and state != "0A"]


def test_answers_that_nobody_reads_are_not_kept_by_the_kernel(make_pipeline):
    p = make_pipeline().start()
    port = int(p.walpost.http.split(":")[1])
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect(("127.0.0.1", port))
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        servers.wait_for(lambda: len([1 for _, waiting in sockets_of(port) if waiting > 0]) > 150, 30, "answers that wait")
        servers.wait_for(lambda: not any(waiting for _, waiting in sockets_of(port)), 100, "the kernel to give up")


# Once walpost is gone, any user of the machine can listen where it did.
# Failure 88.
def test_health_check_shows_no_token_to_who_listens(p):
    class Stranger(http.server.BaseHTTPRequestHandler):
        seen = []

        def do_GET(self):
            self.seen.append(dict(self.headers))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok\n")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        for arguments in ([], ["--ready"]):
            p.walpost.verb("healthcheck", *arguments,
                           "--url", f"http://127.0.0.1:{stranger.server_port}/")
        stranger.shutdown()
    assert len(Stranger.seen) == 2 and all("Authorization" not in headers for headers in Stranger.seen)
