"""What a scraper makes of /metrics, promtool's opinion of it, and a real Prometheus on loopback."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import servers

SAMPLE = re.compile(r'^([a-z_:][a-z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
PARTS = ("events_delivered_total", "events_dead_lettered_total", "events_parked_total", "events_skipped_total", "events_discarded_total",
         "inflight_events")


class Scrape:
    """Samples by name, each a list of (labels, value)."""

    def __init__(self, text):
        self.text = text
        self.samples = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, labels, value = SAMPLE.match(line).groups()
                self.samples.setdefault(name, []).append((dict(LABEL.findall(labels or "")), float(value)))

    def families(self):
        return set(re.findall(r"^# TYPE (\S+)", self.text, re.M))

    def total(self, name):
        return sum(value for _, value in self.samples.get(name, []))

    def value(self, name, **labels):
        """The one sample with these labels; None where there is none."""
        found = [value for has, value in self.samples.get(name, []) if labels.items() <= has.items()]
        assert len(found) <= 1, (name, labels, found)
        return found[0] if found else None

    def assert_adds_up(self):
        received = self.total("walpost_events_received_total")
        parts = {part: self.total(f"walpost_{part}") for part in PARTS}
        assert received == sum(parts.values()), f"received {received}, but {parts}"


def scrape(walpost):
    code, text = walpost.get("/metrics")
    return Scrape(text) if code == 200 else None


def tool(name):
    path = shutil.which(name)
    if not path:
        raise servers.Unavailable(f"{name} (Debian's package prometheus)")
    return path


def promtool(*arguments, stdin=None):
    return subprocess.run([tool("promtool"), *map(str, arguments)], input=stdin, capture_output=True, text=True, check=False, timeout=120)


class Prometheus:
    """Scrapes once a second, and evaluates the rules as often."""

    def __init__(self, path, targets, rules, more_scrapes=()):
        self.path = path
        path.mkdir(parents=True)
        self.address = f"127.0.0.1:{servers.free_port()}"
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(rules)],
                  "scrape_configs": [{"job_name": "walpost", "static_configs": [{"targets": targets}]}, *more_scrapes]}
        (path / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        log = open(path / "log", "ab")
        self.process = subprocess.Popen(
            [tool("prometheus"), f"--config.file={path / 'prometheus.yml'}", f"--storage.tsdb.path={path / 'data'}",
             f"--web.listen-address={self.address}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        log.close()
        servers.wait_for(self.ready, 60, "Prometheus to be ready")

    def ready(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"Prometheus ended: {(self.path / 'log').read_text(errors='replace')[-2000:]}")
        try:
            return urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5).status == 200
        except OSError:
            return False

    def get(self, path, **parameters):
        url = f"http://{self.address}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression):
        return self.get("/api/v1/query", query=expression)["result"]

    def close(self):
        self.process.kill()
        self.process.wait()
