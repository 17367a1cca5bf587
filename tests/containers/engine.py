"""A Docker engine to test with: the machine's own, or, where there is none, one that is started here and ends with the test.

The latter is Debian 13's (docker.io, docker-compose, docker-buildx) in a root of its own, with a network, mounts and process ids of its own:
its bridges and rules of iptables are nowhere else, and nothing is left of it when its first process ends. What it fetches goes through a
proxy of the test. Needs root; images and root are kept in /var/cache/walpost/engine.
"""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from proxy import Proxy

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))
import debian_root  # noqa: E402 - the path above makes it importable

PACKAGES = ("docker.io", "docker-cli", "docker-compose", "docker-buildx", "iptables", "iproute2", "ca-certificates", "curl")
SOCKET = "/run/docker.sock"
PROXY_PORT = 3128
BRIDGE = "172.30.0.1"

# $1 root, $2 what is shared with it, under its own path. The rest is the command. A change of root alone would not do: who enters a
# container's mounts would find himself in the machine's root.
ENTER = """set -e
root=$1 shared=$2; shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mkdir -p "$root$shared" "$root/machine"; mount --bind "$shared" "$root$shared"
cd "$root"
pivot_root . machine
exec chroot . sh -c 'umount --lazy /machine && exec "$@"' sh "$@"
"""
# dockerd is no good first process: it reaps nothing.
DAEMON = f"""ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
rm -f /run/docker.pid {SOCKET}
rm -rf /run/docker /run/containerd
dockerd -H unix://{SOCKET} --bip {BRIDGE}/24 --ip6tables=false "$@" >/var/log/dockerd.log 2>&1 &
trap 'kill -TERM $!; wait $!; exit' TERM
wait $!
"""


class Unavailable(Exception):
    """No engine, and none can be started; the message says what is missing."""


class MachineEngine:
    own = False

    def command(self, *command):
        return list(map(str, command))

    def run(self, *command, env=None, **options):
        return subprocess.run(self.command(*command), env={**os.environ, **(env or {})}, **{"stdin": subprocess.DEVNULL, "check": True, "text": True, **options})

    def build_arguments(self):
        return []

    def close(self):
        pass


class OwnEngine:
    own = True

    def __init__(self, path):
        if os.geteuid() != 0:
            raise Unavailable("no Docker engine runs here (docker info), and starting one needs root")
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = open(f"{path}.lock", "w", encoding="utf-8")  # one at a time: a second one waits
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.root = debian_root.DebianRoot("13", self.path)
        if not (self.path / "usr/sbin/dockerd").exists():
            print("engine: installing Debian 13's docker.io in a root of its own", flush=True)
            self.root.install(*PACKAGES)
        self._start()

    def _start(self):
        environment = self.root.environment(HTTPS_PROXY=f"http://127.0.0.1:{PROXY_PORT}", HTTP_PROXY=f"http://127.0.0.1:{PROXY_PORT}")
        # Its end is the test's end, however that comes about.
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=SIGKILL",
                   *self._enter("sh", "-c", DAEMON, "daemon")]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        self.namespace = f"/proc/{self.process.pid}/ns/net"
        deadline = time.monotonic() + 120
        while self.run("docker", "info", check=False, capture_output=True).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise Unavailable(f"the engine does not start: {self.log()[-3000:]}")
            time.sleep(0.2)
        self.proxy = Proxy(self.namespace, PROXY_PORT)

    def log(self):
        return (self.path / "var/log/dockerd.log").read_text(encoding="utf-8", errors="replace")

    def _enter(self, *command):
        return ["sh", "-c", ENTER, "enter", str(self.path), str(ROOT), *map(str, command)]

    def command(self, *command):
        """For subprocess: the command in the engine's root and network, in the folder of the caller if that is shared."""
        folder = Path.cwd() if Path.cwd().is_relative_to(ROOT) else ROOT
        inside = ["sh", "-c", 'cd "$0" && exec "$@"', str(folder)]
        return ["nsenter", f"--net={self.namespace}", "unshare", "--mount", *self._enter(*inside, *command)]

    def run(self, *command, env=None, **options):
        options = {"stdin": subprocess.DEVNULL, "check": True, "text": True, **options}
        return subprocess.run(self.command(*command), env=self.root.environment(**(env or {})), **options)

    def share(self, folder):
        """A copy of a folder, where the engine's commands find it."""
        target = self.path / "shared" / folder.name
        shutil.copytree(folder, target, dirs_exist_ok=True)
        return Path("/shared") / folder.name

    def build_arguments(self):
        """How a build reaches Debian's archives."""
        return ["--build-arg", f"http_proxy=http://{BRIDGE}:{PROXY_PORT}"]

    def close(self):
        if self.process.poll() is None:
            # The shell in there passes it on to dockerd, which ends its containers first.
            child = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="utf-8").split()
            os.kill(int(child[0]), 15)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if hasattr(self, "proxy"):
            self.proxy.close()
        remove_cgroups()
        self._lock.close()


def remove_cgroups():
    """Those that dockerd leaves, of builds among others."""
    for mounted in re.findall(r"^\S+ (\S+) cgroup2? ", Path("/proc/self/mounts").read_text(encoding="utf-8"), re.M):
        for folder, _, _ in os.walk(Path(mounted) / "docker", topdown=False):
            with contextlib.suppress(OSError):  # where there are processes it is not of this engine
                os.rmdir(folder)


def machine_has_one():
    tools = (("info",), ("compose", "version"), ("buildx", "version"))
    return bool(shutil.which("docker")) and all(
        subprocess.run(["docker", *tool], capture_output=True, check=False).returncode == 0 for tool in tools)


def start():
    return MachineEngine() if machine_has_one() else OwnEngine(debian_root.CACHE / "engine")
