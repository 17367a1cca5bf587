"""The Debian package in clean roots of each Debian: installed, run on real servers, upgraded, removed, purged.

The roots share the network of this machine, where PostgreSQL and Kafka listen. No systemd runs in them: that the unit is started, stopped and
restarted by the maintainer scripts is not shown here, nor what it does then.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts" / "lib"), str(ROOT / "tests" / "support")]
import debian_root  # noqa: E402 - the path above makes it importable
import servers  # noqa: E402

CONFFILE = "/etc/walpost/walpost.yaml"
LIBRDKAFKA = {"12": "2.0.2", "13": "2.8.0"}


@pytest.fixture(scope="module")
def kafka():
    with servers.Workspace() as workspace:
        yield workspace.kafka()


@pytest.fixture(scope="module")
def postgres():
    with servers.Workspace() as workspace:
        yield workspace.postgres()


@pytest.fixture(scope="module", params=debian_root.SUITES)
def package(request, tmp_path_factory):
    """(version of Debian, the package built for it)"""
    return request.param, Path(shutil.copy(build(request.param), tmp_path_factory.mktemp("packages")))


def build(version):
    folder = ROOT / "build" / "packages"
    for old in folder.glob(f"*.deb{version}_*.deb"):
        old.unlink()
    subprocess.run([ROOT / "scripts" / "package", "--debian", version], check=True)
    (built,) = folder.glob(f"*.deb{version}_*.deb")
    return built


@pytest.fixture
def installed(package):
    """A clean root with the package, as a user installs it."""
    version, built = package
    debian_root.CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=debian_root.CACHE, prefix="install-") as folder:
        root = debian_root.DebianRoot(version, folder)
        root.run("apt-get", "update", "-qq")
        install(root, built)
        yield root


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

    def __init__(self, root, postgres, kafka):
        self.root, self.postgres, self.kafka = root, postgres, kafka
        self.name = f"deb{root.version}"
        self.database = postgres.create_database(self.name)
        self.topic = kafka.create_topic(f"orders-{self.name}", 1)
        self.http = f"127.0.0.1:{servers.free_port()}"

    def configure(self):
        content = {"name": self.name, "source": {"conninfo": self.postgres.conninfo(self.database, tcp=True), "slot": self.name},
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


def test_installed_it_runs_is_upgraded_with_its_configuration_kept_and_leaves_nothing_when_purged(installed, package, postgres, kafka, tmp_path):
    root, (version, built) = installed, package
    told = output(root, "walpost", "version")
    assert f"librdkafka {LIBRDKAFKA[version]}\n" in told
    assert mode_of(root, CONFFILE) == mode_of(root, "/etc/default/walpost") == "640 root:walpost"

    shop = Shop(root, postgres, kafka)
    edited = shop.configure()
    output(root, "walpost", "init", user="walpost")
    checked = output(root, "walpost", "check", user="walpost")
    shop.order(1)
    shop.run_until_confirmed()
    assert shop.keys() == [b"1"]

    install(root, newer(built, tmp_path), "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
    assert output(root, "dpkg-query", "-W", "-f", "${Version} ${db:Status-Status}", "walpost") == "99.0.0-1 installed"
    assert (root.path / CONFFILE[1:]).read_text(encoding="utf-8") == edited
    assert mode_of(root, CONFFILE) == "640 root:walpost"
    shop.order(2)
    shop.run_until_confirmed()
    assert shop.keys() == [b"1", b"2"]

    # As `systemctl enable` leaves it.
    wanted = root.path / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(parents=True, exist_ok=True)
    (wanted / "walpost.service").symlink_to("/usr/lib/systemd/system/walpost.service")
    output(root, "apt-get", "remove", "-y", "walpost")
    assert (root.path / CONFFILE[1:]).read_text(encoding="utf-8") == edited
    assert not (root.path / "usr/bin/walpost").exists()
    output(root, "apt-get", "purge", "-y", "walpost")
    assert leftovers(root) == []
    print(f"\nDebian {version}, {built.name}, {postgres_version(postgres)}, Kafka {servers.KAFKA_VERSION}:\n{told}{checked}")


def postgres_version(postgres):
    return postgres.execute("SELECT 'PostgreSQL ' || current_setting('server_version')")[0][0]


def leftovers(root):
    """Whatever is called walpost, or names it, outside apt's and dpkg's own records."""
    own = ("/tmp/", "/var/log/", "/var/cache/apt/", "/var/lib/apt/")
    found = output(root, "find", "/", "-xdev", "-name", "*walpost*").split()
    found += root.run("grep", "-rlI", "walpost", "/etc", "/var/lib/dpkg/info", "/var/lib/systemd", check=False, stdout=subprocess.PIPE,
                      stderr=subprocess.DEVNULL).stdout.split()
    # What shadow keeps of the files it changed last.
    return [path for path in found if not path.startswith(own) and path not in ("/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-")]


def test_manual_completions_unit_and_documents_are_where_the_system_looks(installed):
    root = installed
    for path in ("usr/share/man/man1/walpost.1.gz", "usr/share/man/man5/walpost.yaml.5.gz", "usr/share/bash-completion/completions/walpost",
                 "usr/share/zsh/vendor-completions/_walpost", "usr/share/fish/vendor_completions.d/walpost.fish",
                 "usr/share/doc/walpost/docs/runbook.md", "usr/share/walpost/sql/inbox/V1__inbox.up.sql"):
        # Roots for containers leave documents out; these do not.
        assert (root.path / path).is_file(), path
    assert output(root, "systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/walpost.service") == ""


def test_configuration_that_was_not_edited_is_replaced_by_that_of_the_next_release(installed, package, tmp_path):
    install(installed, newer(package[1], tmp_path))
    assert (installed.path / CONFFILE[1:]).read_text(encoding="utf-8").startswith("# Of the next release.\n")
    assert mode_of(installed, CONFFILE) == "640 root:walpost"


def test_configuration_of_the_manifests_is_usable(installed):
    """ConfigMap's walpost.yaml, with a secret's files where the pod has them."""
    manifest = (ROOT / "docs" / "kubernetes" / "configmap.yaml").read_text(encoding="utf-8")
    content = re.sub(r"^    ", "", manifest.split("  walpost.yaml: |\n")[1], flags=re.M)
    (installed.path / "tmp/walpost.yaml").write_text(content, encoding="utf-8")
    secrets = installed.path / "run/secrets/walpost"
    secrets.mkdir(parents=True)
    for name in re.findall(r"/run/secrets/walpost/([\w.-]+)", content):
        (secrets / name).write_text("0123456789abcdef" if name == "http-token" else "x y\n", encoding="utf-8")
    assert output(installed, "walpost", "--config", "/tmp/walpost.yaml", "config", "validate") == "ok\n"


def test_a_second_build_in_another_folder_is_the_same_to_the_byte(package):
    version, built = package
    assert build(version).read_bytes() == built.read_bytes()
