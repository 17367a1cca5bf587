"""Throwaway servers for tests, demo and benchmarks: a real PostgreSQL, a real single-node Kafka, and walpost itself.

Everything lives in one temporary folder, listens on loopback or a unix socket, and ends with close(). Waiting is always
for a condition with a deadline. Use /usr/bin/python3: psycopg2 and confluent_kafka are Debian's packages.
"""

import contextlib
import glob
import importlib.util
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import psycopg2
from kafka_server import KAFKA_VERSION, Kafka, SharedKafka, kafka_classpath  # noqa: F401 - they are got from here
from waiting import Unavailable, free_port, wait_for

ROOT = Path(__file__).resolve().parents[2]
EX_UNAVAILABLE = 69


def lsn(text):
    """16/B374D848 as an integer; nothing is 0."""
    high, low = (text or "0/0").split("/")
    return int(high, 16) << 32 | int(low, 16)


def unprivileged_user():
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise Unavailable("a user to run PostgreSQL as (postgres or nobody)")


class Workspace:
    """A temporary folder that the unprivileged user can enter."""

    def __init__(self, prefix="walpost-"):
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self.path.chmod(0o755)
        self._closers = []

    def add(self, server):
        self._closers.append(server.close)
        return server

    def postgres(self, **options):
        return self.add(Postgres(self.path / f"pg{len(self._closers)}", **options))

    def kafka(self, **options):
        return self.add(Kafka(self.path / f"kafka{len(self._closers)}", **options))

    def shared_kafka(self):
        """Where with_kafka.py runs one, that one."""
        return self.add(SharedKafka(self.path / "shared_kafka")) if "WALPOST_TEST_KAFKA" in os.environ else self.kafka()

    def walpost(self, **options):
        return self.add(Walpost(self.path / f"walpost{len(self._closers)}", **options))

    def close(self):
        busy = None
        for closer in reversed(self._closers):
            try:
                closer()
            except BusyLoop as error:
                busy = error
            except Exception as error:  # noqa: BLE001 - the others must be closed too
                print(f"closing: {error}", file=sys.stderr)
        self._closers.clear()
        shutil.rmtree(self.path, ignore_errors=True)
        if busy:
            raise busy

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def postgres_bindir():
    chosen = os.environ.get("WALPOST_PG_BINDIR")
    if chosen:
        return Path(chosen)
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda p: int(p.split("/")[4]))
    if not found:
        raise Unavailable("a PostgreSQL server (Debian's package postgresql)")
    return Path(found[-1]).parent


class Postgres:
    def __init__(self, path, settings=None, fsync=False, start=True):
        self.path = Path(path)
        self.bindir = postgres_bindir()
        self.user = unprivileged_user()
        self.port = free_port()
        self.path.mkdir(parents=True)
        if self.user:
            os.chown(self.path, self.user.pw_uid, self.user.pw_gid)
        self.data = self.path / "data"
        self.log = self.path / "log"
        self.env = {}  # of the server
        self._run("initdb", "-D", self.data, "-A", "trust", "--no-sync", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8")
        lines = {
            "port": self.port,
            "listen_addresses": "'127.0.0.1'",
            "unix_socket_directories": f"'{self.path}'",
            "wal_level": "logical",
            "fsync": "on" if fsync else "off",
            "max_wal_senders": 20,
            "max_replication_slots": 40,
            "max_prepared_transactions": 10,
            "max_connections": 100,
            "timezone": "'UTC'",
        }
        lines.update(settings or {})
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as conf:
            conf.writelines(f"{name} = {value}\n" for name, value in lines.items())
        if start:
            self.start()

    @property
    def major(self):
        """15, as the binaries have it."""
        return int(re.search(r"\d+", self._run("postgres", "--version").stdout)[0])

    def _run(self, tool, *arguments, check=True):
        command = [str(self.bindir / tool), *map(str, arguments)]
        if self.user:
            command = ["runuser", "-u", self.user.pw_name, "--", *command]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, env=os.environ | self.env)
        if check and done.returncode != 0:
            raise RuntimeError(f"{tool}: {done.stdout}{done.stderr}")
        return done

    def start(self):
        # pg_ctl's child keeps the pipes of capture_output open unless it has a log file of its own.
        self._run("pg_ctl", "-D", self.data, "-l", self.log, "-w", "-t", "60", "start")

    def stop(self, mode="fast", timeout=60):
        self._run("pg_ctl", "-D", self.data, "-w", "-t", timeout, "-m", mode, "stop")

    def restart(self, mode="fast"):
        self.stop(mode)
        self.start()

    @property
    def pid(self):
        try:
            return int((self.data / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None

    def processes(self):
        pid = self.pid
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
        return [pid, *map(int, children.stdout.split())]

    def kill9(self):
        """A crash of the whole server."""
        pid = self.pid
        for victim in self.processes():
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_for(lambda: not alive(pid), 10, "the postmaster to die")

    def conninfo(self, database="postgres", user="postgres", tcp=False, **more):
        host = "127.0.0.1" if tcp else self.path
        parts = {"host": host, "port": self.port, "dbname": database, "user": user, **more}
        return " ".join(f"{key}={value}" for key, value in parts.items())

    def connect(self, database="postgres", autocommit=True, **more):
        connection = psycopg2.connect(self.conninfo(database, **more))
        connection.autocommit = autocommit
        return connection

    @contextlib.contextmanager
    def connected(self, database="postgres", autocommit=True, **more):
        """A cursor of a connection of its own."""
        with contextlib.closing(self.connect(database, autocommit, **more)) as connection, connection.cursor() as cursor:
            yield cursor

    def execute(self, sql, *arguments, database="postgres"):
        with self.connected(database) as cursor:
            cursor.execute(sql, arguments or None)
            return cursor.fetchall() if cursor.description else None

    def create_database(self, name, encoding="UTF8"):
        locale = "C.UTF-8" if encoding == "UTF8" else "C"
        self.execute(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE '{locale}' LC_CTYPE '{locale}'")
        return name

    def make_standby_of(self, primary):
        """Takes the place of this one's data; streams from the primary, which is restarted for it."""
        own = (self.data / "postgresql.conf").read_text(encoding="utf-8").rsplit("\nport = ", 1)[1]
        shutil.rmtree(self.data)
        primary.stop()
        subprocess.run(["cp", "-a", primary.data, self.data], check=True)
        primary.start()
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as conf:
            conf.write(f"\nport = {own}\nprimary_conninfo = '{primary.conninfo()}'\nhot_standby_feedback = on\n")
        (self.data / "standby.signal").touch()
        self.start()

    def copy_disk(self, copy):
        """A cold backup; the server goes on."""
        self.stop()
        subprocess.run(["cp", "-a", self.data, copy], check=True)
        self.start()
        return copy

    def copy_disk_of_a_moment(self, copy):
        """As a storage's snapshot; the server notices nothing."""
        self.execute("CHECKPOINT")
        processes = self.processes()
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        subprocess.run(["cp", "-a", self.data, copy], check=True)
        for process in reversed(processes):
            os.kill(process, signal.SIGCONT)
        (copy / "postmaster.pid").unlink()
        return copy

    def put_back(self, copy):
        """Goes on from the backup, on the same timeline."""
        self.stop()
        shutil.rmtree(self.data)
        subprocess.run(["cp", "-a", copy, self.data], check=True)
        self.start()

    def slot(self, name="walpost", database="postgres"):
        rows = self.execute(
            "SELECT active, active_pid, confirmed_flush_lsn - '0/0'::pg_lsn, wal_status FROM pg_replication_slots"
            " WHERE slot_name = %s",
            name,
            database=database,
        )
        if not rows:
            return None
        active, pid, confirmed, status = rows[0]
        return {"active": active, "pid": pid, "confirmed": int(confirmed or 0), "wal_status": status}

    def close(self):
        if alive(self.pid):
            self._run("pg_ctl", "-D", self.data, "-w", "-t", "20", "-m", "immediate", "stop", check=False)


def alive(pid):
    if not pid:
        return False
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def peak_rss_bytes(pid):
    """0 = it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0
    return int(text.split("VmHWM:")[1].split()[0]) * 1024 if "VmHWM:" in text else 0


def run_and_watch_memory(command):
    """Exit code, output and peak memory in bytes. ru_maxrss would say no less than the memory of this process."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:
            peak = max(peak, peak_rss_bytes(process.pid))
        output.seek(0)
        return process.returncode, output.read(), peak


def walpost_binary():
    chosen = os.environ.get("WALPOST_BIN")
    if chosen:
        return chosen
    for build in ("release", "dev"):
        path = ROOT / "build" / build / "src" / "walpost"
        if path.exists():
            return str(path)
    raise Unavailable("a built walpost (cmake --preset dev && cmake --build --preset dev)")


def allow_any_topic(content):
    """Where a test says no more, rows and messages of walpost's own form name their topic themselves."""
    if not content.get("outboxes", [{}]) == []:
        content["outboxes"] = [any_topic(outbox) for outbox in content.get("outboxes") or [{}]]
    if content.get("messages", {}).get("prefixes"):
        content["messages"] = any_topic(content["messages"])


def any_topic(events):
    if "debezium" in events or events.get("preset") == "debezium" or events.get("topic", "{aggregate_type}") != "{aggregate_type}":
        return events
    return {**events, "topic": "{aggregate_type}", "topics": {"allowed": ["*"], **events.get("topics", {})}}


class BusyLoop(AssertionError):
    """A process that took far more of the processor than its work needs."""


# Processor time that is plenty: for its start, for each second that it runs, and for each event.
CPU_S_MAX, CPU_SHARE_MAX, CPU_S_PER_EVENT_MAX = 5.0, 0.25, 0.001


def cpu_seconds(pid):
    """Of a process and what it started and waited for; None when it has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Walpost:
    """One configuration file, and the processes run with it."""

    def __init__(self, path, conninfo, bootstrap, name="walpost", config=None, properties=None):
        self.path = Path(path)
        self.path.mkdir(parents=True)
        self.log = self.path / "log"
        self.file = self.path / "walpost.yaml"
        self.http = f"127.0.0.1:{free_port()}"
        self.env = {}  # of each process
        self.works_hard = False  # a test that has it do more than deliver events says so
        self._started_at = 0.0
        self.process = None
        content = {
            "name": name,
            "source": {"conninfo": str(conninfo), "slot": name, "publication": name},
            "sink": {"kafka": {"properties": {"bootstrap.servers": bootstrap, **(properties or {})}}},
            "http": {"listen": self.http},
            "log": {"level": "debug", "format": "json"},
            "delivery": {"unknown_topic_wait": "100ms"},  # the test's Kafka makes no topics by itself
        }
        for key, value in (config or {}).items():
            if isinstance(value, dict) and isinstance(content.get(key), dict):
                content[key].update(value)
            else:
                content[key] = value
        allow_any_topic(content)
        self.token = content["http"].get("token")
        self.file.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML

    def verb(self, *arguments, check=True, env=None):
        done = subprocess.run([walpost_binary(), "--config", str(self.file), *arguments], capture_output=True, text=True,
                              check=False, timeout=120, env={**os.environ, **(env or {})})
        if check and done.returncode != 0:
            raise RuntimeError(f"walpost {' '.join(arguments)}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def init(self):
        return self.verb("init")

    def start(self, wait="streaming", seconds=30, env=None, binary=None):
        self._started_at = time.monotonic()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([binary or walpost_binary(), "--config", str(self.file), "run"], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, env={**os.environ, **self.env, **(env or {})}, start_new_session=True)
        if wait:
            self.wait_state(wait, seconds)
        return self

    def get(self, path, timeout=5):
        """(code, body); (0, '') while nothing listens."""
        request = urllib.request.Request(f"http://{self.http}{path}", headers={"Authorization": f"Bearer {self.token}"} if self.token else {})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def status(self):
        code, body = self.get("/status")
        return json.loads(body) if code == 200 else None

    def state(self):
        status = self.status()
        return status["state"] if status else None

    def wait_state(self, state, seconds=30):
        def reached():
            if self.process.poll() is not None:
                raise RuntimeError(f"walpost ended with {self.process.returncode}: {self.log_text()[-3000:]}")
            return self.state() == state

        try:
            wait_for(reached, seconds, f"state {state}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; status {self.status()}; log {self.log_text()[-3000:]}") from None

    def wait_delivered(self, count, seconds=60):
        def delivered():
            status = self.status()
            return status and status["events"]["delivered"] >= count

        try:
            wait_for(delivered, seconds, f"{count} events delivered")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; status {self.status()}") from None

    def wait_idle(self, seconds=60):
        """Streaming, and nothing in flight."""
        wait_for(lambda: (s := self.status()) and s["state"] == "streaming" and s["events"]["in_flight"] == 0, seconds,
                 "nothing in flight")

    def log_text(self):
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def log_events(self):
        lines = []
        for line in self.log_text().splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                lines.append({"event": "unparsed", "msg": line})
        return lines

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self, timeout=60):
        """SIGTERM; returns the exit code."""
        self._must_not_be_busy()
        self.process.terminate()
        return self.process.wait(timeout=timeout)

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def _must_not_be_busy(self):
        """Before it ends: did it turn in a loop?"""
        used = cpu_seconds(self.process.pid) if self.process.poll() is None else None
        if used is None or self.works_hard:
            return
        elapsed = time.monotonic() - self._started_at
        plenty = CPU_S_MAX + CPU_SHARE_MAX * elapsed
        if used > plenty:
            status = self.status() or {"events": {"received": 0}}
            plenty += CPU_S_PER_EVENT_MAX * status["events"]["received"]
        if used > plenty:
            raise BusyLoop(f"walpost took {used:.1f} s of processor time in {elapsed:.1f} s; {plenty:.1f} s are plenty:"
                           f" {self.log_text()[-1000:]}")

    def peak_rss_bytes(self):
        return peak_rss_bytes(self.process.pid)

    def close(self):
        if self.process is not None and self.process.poll() is None:
            try:
                self._must_not_be_busy()
            finally:
                self.kill9()


def load_envelope():
    """The generated Python class of walpost.v1.Envelope."""
    return load_proto("envelope").Envelope


def load_cloud_event():
    """The generated Python class of io.cloudevents.v1.CloudEvent."""
    return load_proto("cloudevents", "io/cloudevents/v1").CloudEvent


def load_proto(name, package="walpost/v1"):
    """The generated Python module of proto/<package>/<name>.proto."""
    folder = ROOT / "build" / "python"
    target = folder / package / f"{name}_pb2.py"
    source = ROOT / "proto" / package / f"{name}.proto"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["protoc", f"--python_out={folder}", f"-I{ROOT / 'proto'}", str(source)], check=True)
    # By its path: a package called io is Python's own.
    module = f"walpost_{name}_pb2"
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, target)
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules[module]


def replace_block(path, name, text):
    """Puts text between the marks of a generated block of a document."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, rest = path.read_text(encoding="utf-8").split(begin, 1)
    path.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")
