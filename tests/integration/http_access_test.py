"""http.token: who may ask the HTTP endpoints, and how each of those who may logs in."""

import base64
import json
import signal
import subprocess
import urllib.error
import urllib.request

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
    refused = urllib.request.Request(f"http://{p.walpost.http}/status", method="POST")
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(refused, timeout=10)
    assert raised.value.code == 401


def test_verbs_log_in_with_the_same_configuration(p):
    p.insert(1, 5)
    p.wait_confirmed()
    assert "5 delivered" in p.walpost.verb("status").stdout
    assert p.walpost.verb("status", "--exit-code").stdout.startswith("WALPOST OK: streaming")
    assert p.walpost.verb("healthcheck", "--ready").stdout == "ok: streaming\n"
    for others, told in (("http.token=''", "this configuration has none"), ("http.token=some-other-token-1", "refuses this configuration's token")):
        refused = p.walpost.verb("--set", others, "status", check=False)
        assert refused.returncode == 77 and refused.stdout == "" and told in refused.stderr
        plugin = p.walpost.verb("--set", others, "status", "--exit-code", check=False)
        assert plugin.returncode == 3 and plugin.stdout == "WALPOST UNKNOWN: walpost answers, and refuses the token\n"
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
    servers.wait_for(lambda: "reload_refused" in p.walpost.log_text(), 30, "the log to say so")
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
    told = [line for line in p.walpost.log_events() if line["event"] == "http_open"]
    assert len(told) == 1 and told[0]["level"] == "warning" and "set http.token" in told[0]["msg"]
    checked = p.walpost.verb("check")
    assert f"! http: http.listen LOCALHOST:{port}" in checked.stdout
    assert "! http" not in p.walpost.verb("--set", f"http.token={TOKEN}", "check").stdout
