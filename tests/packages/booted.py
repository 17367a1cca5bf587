"""A root of Debian in which systemd runs as the first process, as on a machine of its own.

It shares the network, and has mounts, process ids, host name and cgroups of its own: nothing of it runs on when its first process ends, and
close() removes its cgroup. What systemd would set on the machine itself it sees read-only (/proc/sys, /sys), and what looks after hardware, network and clock is masked. Needs root
and cgroup v2, beside which there may be v1.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import debian_root
import servers

PACKAGES = ("systemd", "dbus")
MASKED = ("systemd-networkd.service", "systemd-resolved.service", "systemd-timesyncd.service", "systemd-udevd.service", "tmp.mount")

# $1 root. A change of root alone would not do: who enters the mounts would find himself in the machine's root. Shared, as
# systemd makes it on a machine: a service's credentials come by that.
BOOT = """set -e
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
  touch "$root/dev/$node"
  mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/shm" "$root/dev/pts"
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
mkdir -p "$root/machine"
cd "$root"
pivot_root . machine
exec chroot . sh -c 'umount --lazy /machine && mount --make-rshared / && exec env -i container=walpost PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=multi-user.target --show-status=0'
"""
IN_CGROUP = """echo $$ >"$1/cgroup.procs"; shift; exec "$@" """


class BootedRoot:
    """Of a DebianRoot, which is used through this alone from now on."""

    def __init__(self, root):
        self.version, self.path = root.version, root.path
        root.install(*PACKAGES)
        (self.path / "usr/sbin/policy-rc.d").unlink()  # here services are started
        for unit in MASKED:
            (self.path / "etc/systemd/system" / unit).symlink_to("/dev/null")
        self._cgroup = own_cgroup()
        command = ["sh", "-c", IN_CGROUP, "in_cgroup", str(self._cgroup), "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--uts", "--ipc",
                   "--cgroup", "--fork", "--kill-child=SIGKILL", "sh", "-c", BOOT, "boot", str(self.path)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            self._first = servers.wait_for(self._first_process, 60, "systemd to be started")
            # A unit that does not work without hardware makes it "degraded".
            servers.wait_for(lambda: self.run("systemctl", "is-system-running", check=False, capture_output=True).stdout.strip() in ("running", "degraded"), 60,
                             "systemd to be up", every=0.2)
        except BaseException:
            self.close()
            raise

    def _first_process(self):
        if self._process.poll() is not None:
            raise RuntimeError(f"systemd ended with {self._process.returncode}")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="utf-8").split()
        return children and Path(f"/proc/{children[0]}/comm").read_text(encoding="utf-8") == "systemd\n" and children[0]

    def run(self, *command, user=None, check=True, **options):
        inside = ["nsenter", "--target", self._first, "--all", *(["runuser", "-u", user, "--"] if user else []), *map(str, command)]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        return subprocess.run(inside, env=environment, stdin=subprocess.DEVNULL, check=check, text=True, **options)

    def close(self):
        """All that runs in it ends with its first process."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        servers.wait_for(lambda: "populated 0" in (self._cgroup / "cgroup.events").read_text(encoding="utf-8"), 60, "all processes of systemd to end")
        for folder, _, _ in os.walk(self._cgroup, topdown=False):
            os.rmdir(folder)


def own_cgroup():
    """A cgroup (v2) below that of this process."""
    mounted = re.search(r"^\S+ (\S+) cgroup2 ", Path("/proc/self/mounts").read_text(encoding="utf-8"), re.M)
    own = re.search(r"^0::(.*)$", Path("/proc/self/cgroup").read_text(encoding="utf-8"), re.M)
    if not mounted or not own:
        sys.exit(debian_root.unavailable("there is no cgroup v2 here"))
    folder = Path(mounted[1] + own[1]) / f"walpost-test-{os.getpid()}"
    folder.mkdir()
    return folder
