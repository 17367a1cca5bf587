#!/usr/bin/env python3
"""Puts together what the image has beyond its base: walpost, the shared objects it needs, and what tells of them.

    docker/image_root.py FOLDER --version V --epoch SECONDS      in the build stage of docker/Dockerfile

Only objects that the base lacks are copied, so the layer stays small. Each package they are from is told in /var/lib/dpkg/status.d, where
scanners look for it, with its copyright; and all of it in an SBOM, /usr/share/sbom/walpost.spdx.json. Every file gets the same time, so that
the same sources and packages make the same layer.
"""

import argparse
import os
import re
import shutil
import subprocess
from pathlib import Path

import sbom

SOURCE = Path(__file__).resolve().parents[1]
BASE = Path("/base")  # what the build stage found before it installed anything
USER = 65532
# Opened at run time by librdkafka's SASL: Kerberos.
PLUGINS = "/usr/lib/*/sasl2/libgssapiv2.so*"
HEADERS_ONLY = ("nlohmann-json3-dev", "libcli11-dev")  # compiled in


def output(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def objects_of(*programs):
    """Every shared object that the loader takes, by the name under which it is found."""
    found = set()
    for program in programs:
        text = output("ldd", program)
        if "not found" in text:
            raise SystemExit(f"image_root: {program}: {text}")
        found |= set(re.findall(r"=> (/\S+)", text))
    return {Path("/usr") / path.lstrip("/") if path.startswith("/lib") else Path(path) for path in found}


def with_targets(path):
    """A link, and what it points to."""
    yield path
    if path.is_symlink():
        yield path.resolve()


def package_of(path):
    for name in (path, str(path).removeprefix("/usr")):
        done = subprocess.run(["dpkg", "-S", str(name)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(":", 1)[0]
    raise SystemExit(f"image_root: no package owns {path}")


def copy(path, root):
    target = root / str(path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target, follow_symlinks=False)


def copy_objects(root, binary):
    """{package: its files that were copied}"""
    in_base = set((BASE / "files").read_text(encoding="utf-8").split("\n"))
    plugins = sorted(Path("/").glob(PLUGINS.lstrip("/")))
    packages = {}
    for path in sorted({part for found in [*objects_of(binary, *plugins), *plugins] for part in with_targets(found)}):
        if str(path) in in_base or str(path).removeprefix("/usr") in in_base:
            continue
        copy(path, root)
        packages.setdefault(package_of(path.resolve()), []).append(str(path))
    return packages


def tell_of_package(root, package):
    status = root / "var/lib/dpkg/status.d" / package
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text(output("dpkg-query", "-s", package), encoding="utf-8")
    copyright_file = Path("/usr/share/doc") / package / "copyright"
    target = root / str(copyright_file).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(copyright_file, target)  # of a link what it points to


def install_walpost(root):
    binary = root / "usr/bin/walpost"
    binary.parent.mkdir(parents=True)
    shutil.copyfile(SOURCE / "build/release/src/walpost", binary)
    binary.chmod(0o755)
    output("strip", "--strip-unneeded", binary)
    for source, target in (("packaging/walpost.yaml", "etc/walpost/walpost.yaml"), ("LICENSE", "usr/share/doc/walpost/copyright")):
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCE / source, root / target)
    return binary


def add_user(root):
    (root / "etc").mkdir(exist_ok=True)
    for name, line in (("passwd", f"walpost:x:{USER}:{USER}:walpost:/nonexistent:/usr/sbin/nologin"), ("group", f"walpost:x:{USER}:")):
        (root / "etc" / name).write_text((BASE / name).read_text(encoding="utf-8") + line + "\n", encoding="utf-8")


def set_times(root, epoch):
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    arguments = parser.parse_args()
    root = arguments.root
    root.mkdir()
    binary = install_walpost(root)
    packages = copy_objects(root, binary)
    copy(Path("/etc/ssl/certs/ca-certificates.crt"), root)
    packages["ca-certificates"] = ["/etc/ssl/certs/ca-certificates.crt"]
    for package in packages:
        tell_of_package(root, package)
    add_user(root)
    base = (BASE / "packages").read_text(encoding="utf-8")
    told = root / "usr/share/sbom/walpost.spdx.json"
    told.parent.mkdir(parents=True)
    told.write_text(sbom.of_image(arguments.version, arguments.epoch, binary, packages, base, HEADERS_ONLY), encoding="utf-8")
    set_times(root, arguments.epoch)
    size = sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir())
    print(f"image_root: {size / 1e6:.1f} MB, {binary.stat().st_size / 1e6:.1f} MB of them walpost; files of {len(packages)} packages")


if __name__ == "__main__":
    main()
