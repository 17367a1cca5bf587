#!/usr/bin/python3
"""Clean roots of Debian, to build packages in and to install them in. Needs root, mmdebstrap, and apt's archives.

    scripts/lib/debian_root.py package LIST FOLDER    the package of what is committed, for these versions of Debian, into the folder

A root shares the network and nothing else: what it mounts is gone with the process that entered it. Roots and what apt fetched are kept
in /var/cache/walpost.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path("/var/cache/walpost")
SUITES = {"12": "bookworm", "13": "trixie"}
EX_USAGE, EX_UNAVAILABLE = 64, 69

# Enters $1 in a mount namespace of its own. The processes keep their ids, so signals reach the command itself.
ENTER = """set -e
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2; done
shift
exec chroot "$@"
"""


def host_sources(suite, etc=Path("/etc")):
    """What apt uses here for Debian itself, for another suite; Debian's own address elsewhere."""
    mirror = os.environ.get("WALPOST_DEBIAN_MIRROR")
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', (etc / "os-release").read_text(encoding="utf-8"), re.M))
    if mirror or release.get("ID") != "debian":
        return one_line(mirror or "http://deb.debian.org/debian", f"{suite} {suite}-updates")
    own = release["VERSION_CODENAME"]
    found = []
    for uris, suites, components in host_entries(etc / "apt"):
        if "main" in components.split() and set(suites.split()) <= {own, f"{own}-updates", f"{own}-security"}:
            found.append(one_line(uris, suites.replace(own, suite)))
    return "".join(found)


def one_line(uris, suites):
    return "".join(f"deb {uri} {suite} main\n" for uri in uris.split() for suite in suites.split())


def host_entries(folder):
    """(addresses, suites, components) of apt's sources, in both of their forms."""
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*.list"))]:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        yield from re.findall(r"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+(.+)$", text, re.M)
    for path in sorted((folder / "sources.list.d").glob("*.sources")):
        for stanza in re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.M).split("\n\n"):
            fields = dict(re.findall(r"^([\w-]+):[ \t]*(.*)$", stanza, re.M))
            if "deb" in fields.get("Types", "").split():
                yield fields.get("URIs", ""), fields.get("Suites", ""), fields.get("Components", "")


def host_apt_options():
    """How apt reaches its archives here: proxies, and what it thinks of their dates."""
    dump = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True).stdout
    return "".join(line + "\n" for line in dump.splitlines() if re.match(r"Acquire::(https?|Check-\S+|Retries)\b", line))


def archive(version):
    """A clean root of this Debian as a tar file: what is essential, and apt."""
    path = CACHE / f"debian-{version}.tar"
    if path.exists():
        return path
    if not shutil.which("mmdebstrap"):
        sys.exit(unavailable("mmdebstrap is missing (Debian's package mmdebstrap)"))
    print(f"debian_root: making a root of Debian {version}", flush=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        made, sources, options = Path(work) / "root.tar", Path(work) / "sources.list", Path(work) / "apt.conf"
        sources.write_text(host_sources(SUITES[version]), encoding="utf-8")
        options.write_text(host_apt_options(), encoding="utf-8")
        done = subprocess.run(["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--aptopt={options}", SUITES[version], str(made),
                               str(sources)], check=False)
        if done.returncode != 0:
            sys.exit(unavailable(f"no root of Debian {version} could be made"))
        made.rename(path)
    return path


def unavailable(what):
    print(f"debian_root: {what}", file=sys.stderr)
    return EX_UNAVAILABLE


class DebianRoot:
    """A root in a folder. What it installs comes over the network once."""

    def __init__(self, version, path):
        self.version = version
        self.path = Path(path)
        if not (self.path / "etc").exists():
            self.path.mkdir(parents=True, exist_ok=True)
            subprocess.run(["tar", "-xf", archive(version), "-C", self.path, "--numeric-owner"], check=True)
            # No service is started in here.
            policy = self.path / "usr/sbin/policy-rc.d"
            policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
            policy.chmod(0o755)
        self.binds = [(self._shared("apt"), "/var/cache/apt/archives")]

    def _shared(self, name):
        path = CACHE / f"debian-{self.version}-{name}"
        (path / "partial").mkdir(parents=True, exist_ok=True)
        return path

    def command(self, *command, user=None):
        binds = [str(part) for bind in self.binds for part in bind]
        as_user = [f"--userspec={user}:{user}"] if user else []
        return ["unshare", "--mount", "sh", "-c", ENTER, "enter", str(self.path), *binds, "--", *as_user, str(self.path), *map(str, command)]

    def environment(self, **more):
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **more}

    def run(self, *command, user=None, check=True, env=None, **options):
        shutil.copy("/etc/resolv.conf", self.path / "etc/resolv.conf")
        return subprocess.run(self.command(*command, user=user), env=self.environment(**(env or {})), stdin=subprocess.DEVNULL, check=check,
                              **{"text": True, **options})

    def popen(self, *command, user=None, env=None, **options):
        return subprocess.Popen(self.command(*command, user=user), env=self.environment(**(env or {})), stdin=subprocess.DEVNULL, **options)

    def install(self, *packages):
        self.run("apt-get", "update", "-qq")
        self.run("apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages, stdout=subprocess.DEVNULL)

    def remove(self):
        shutil.rmtree(self.path)


def copy_source(folder):
    """What is committed; all of it but the build, where the source is no checkout."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if (ROOT / ".git").exists():
        pack = ["git", "-C", ROOT, "archive", "HEAD"]
        if subprocess.run(["git", "-C", ROOT, "status", "--porcelain"], capture_output=True, check=True).stdout:
            print("debian_root: what is not committed is left out")
    else:
        pack = ["tar", "-C", ROOT, "--exclude=./build", "-c", "."]
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
        subprocess.run(["tar", "-x", "-C", folder], stdin=packing.stdout, check=True)
    if packing.returncode != 0:
        raise RuntimeError(f"{pack[0]} ended with {packing.returncode}")


def build_package(version, into):
    """Builds in a root that is kept, so that the tools come once; lintian has the last word."""
    root = DebianRoot(version, CACHE / f"debian-{version}-build")
    ccache = Path(os.environ.get("CCACHE_DIR") or Path.home() / ".cache" / "ccache")
    ccache.mkdir(parents=True, exist_ok=True)
    root.binds.append((ccache, "/var/cache/ccache"))
    passed = {name: os.environ[name] for name in ("SOURCE_DATE_EPOCH", "WALPOST_PACKAGE_VERSION", "DEBFULLNAME", "DEBEMAIL", "CCACHE_DISABLE",
                                                  "CMAKE_BUILD_PARALLEL_LEVEL") if name in os.environ}
    with tempfile.TemporaryDirectory(dir=root.path / "tmp", prefix="build-") as work:  # another path each time: it must not matter
        source = Path(work) / "walpost"
        copy_source(source)
        root.run(inside(root, source / "scripts" / "package"), env={"CCACHE_DIR": "/var/cache/ccache", **passed}, stdout=subprocess.DEVNULL)
        (package,) = (source / "build" / "packages").glob("*.deb")
        look_at(root, package)
        into.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copyfile(package, into / package.name))


def look_at(root, package):
    if not (root.path / "usr/bin/lintian").exists():
        root.install("lintian")
    # Debian 12's would like a script for other inits than systemd; 13's does not know that any more.
    suppressed = ["--suppress-tags=package-supports-alternative-init-but-no-init.d-script"] if root.version == "12" else []
    root.run("lintian", "--allow-root", "--profile=debian", "--tag-display-limit=0", "--info", "--display-info", "--fail-on=error,warning,info",
             *suppressed, inside(root, package))


def inside(root, path):
    return Path("/") / path.relative_to(root.path)


def versions_of(text):
    versions = list(SUITES) if text == "all" else text.split(",")
    for version in versions:
        if version not in SUITES:
            print(f"no Debian to build for: {version} (there are {', '.join(SUITES)}, and all)", file=sys.stderr)
            sys.exit(EX_USAGE)
    return versions


def main():
    _, verb, versions, folder = sys.argv
    assert verb == "package"
    chosen = versions_of(versions)
    if os.geteuid() != 0:
        sys.exit(unavailable("roots of other Debians need root; scripts/package alone builds for the one that runs here"))
    for version in chosen:
        CACHE.mkdir(parents=True, exist_ok=True)
        with open(CACHE / f"debian-{version}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            made = build_package(version, Path(folder))
        subprocess.run(["sha256sum", made], check=True)


if __name__ == "__main__":
    main()
