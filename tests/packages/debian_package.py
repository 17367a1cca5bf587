"""The Debian package as the tests handle it: built, installed, followed by another release, and between a database and a topic."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts" / "lib"), str(ROOT / "tests" / "support")]
import servers  # noqa: E402 - the path above makes it importable

CONFFILE = "/etc/walpost/walpost.yaml"


def build(version):
    folder = ROOT / "build" / "packages"
    for old in folder.glob(f"*.deb{version}_*.deb"):
        old.unlink()
    subprocess.run([ROOT / "scripts" / "package", "--debian", version], check=True)
    (built,) = folder.glob(f"*.deb{version}_*.deb")
    return built


def install(root, built, *options):
    shutil.copy(built, root.path / "tmp")
    root.run("apt-get", "install", "-y", "--no-install-recommends", *options, f"/tmp/{built.name}", stdout=subprocess.DEVNULL)


def output(root, *command, user=None):
    done = root.run(*command, user=user, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def mode_of(root, path):
    return output(root, "stat", "-c", "%a %U:%G", path).strip()


def newer(built, folder):
    """The next release: it comes with another walpost.yaml."""
    work = folder / "newer"
    subprocess.run(["dpkg-deb", "-R", built, work], check=True)
    shipped, control = work / CONFFILE[1:], work / "DEBIAN" / "control"
    shipped.write_text("# Of the next release.\n" + shipped.read_text(encoding="utf-8"), encoding="utf-8")
    control.write_text(re.sub(r"^Version: .*$", "Version: 99.0.0-1", control.read_text(encoding="utf-8"), flags=re.M), encoding="utf-8")
    made = folder / "walpost_99.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", work, made], check=True, stdout=subprocess.DEVNULL)
    return made


class Shop:
    """A database and a topic, and walpost of a root between them."""

    _numbers = itertools.count()

    def __init__(self, root, postgres, kafka):
        self.root, self.postgres, self.kafka = root, postgres, kafka
        self.name = f"deb{root.version}_{next(Shop._numbers)}"
        self.database = postgres.create_database(self.name)
        self.topic = kafka.create_topic(f"orders-{self.name}", 1)
        self.http = f"127.0.0.1:{servers.free_port()}"

    def conninfo(self):
        return self.postgres.conninfo(self.database, tcp=True)

    def configure(self, conninfo=None, **more):
        """Writes the configuration, and returns it."""
        content = {"name": self.name, "source": {"conninfo": conninfo or self.conninfo(), "slot": self.name}, **more,
                   "outboxes": [{"table": "outbox.events", "topic": self.topic}],
                   "sink": {"kafka": {"properties": {"bootstrap.servers": self.kafka.bootstrap}}}, "http": {"listen": self.http}}
        text = json.dumps(content)  # JSON is YAML
        (self.root.path / CONFFILE[1:]).write_text(text, encoding="utf-8")
        return text

    def order(self, number):
        self.postgres.execute("SELECT outbox.emit('OrderPlaced', 'order', %s, %s)", str(number), b"x", database=self.database)

    def run_until_confirmed(self):
        """walpost as the package's user, until what is committed is in Kafka; then as systemd ends it."""
        end = self.postgres.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn", database=self.database)[0][0]
        process = self.root.popen("walpost", "run", user="walpost", stderr=subprocess.PIPE, text=True)
        try:
            servers.wait_for(lambda: process.poll() is not None or self.postgres.slot(self.name, self.database)["confirmed"] >= end, 60,
                             "the slot to be confirmed")
            healthy = self.root.run("walpost", "healthcheck", "--ready", user="walpost", check=False).returncode
        finally:
            process.terminate()
            log = process.communicate(timeout=60)[1]
        assert (process.returncode, healthy) == (0, 0), log

    def keys(self):
        return [record.key() for record in self.kafka.read_all(self.topic)]


def leftovers(root):
    """Whatever is called walpost, or names it, outside apt's and dpkg's own records."""
    own = ("/tmp/", "/var/log/", "/var/cache/apt/", "/var/lib/apt/")
    found = output(root, "find", "/", "-xdev", "-name", "*walpost*").split()
    found += root.run("grep", "-rlI", "walpost", "/etc", "/var/lib/dpkg/info", "/var/lib/systemd", check=False, stdout=subprocess.PIPE,
                      stderr=subprocess.DEVNULL).stdout.split()
    # What shadow keeps of the files it changed last.
    return [path for path in found if not path.startswith(own) and path not in ("/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-")]
