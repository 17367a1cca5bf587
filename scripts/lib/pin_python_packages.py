#!/usr/bin/env python3
"""Writes requirements.lock beside each requirements.txt: all packages that these need, with their versions and hashes.

    scripts/lib/pin_python_packages.py [LIST ...]      all lists of the repository when none is named

scripts/bootstrap installs what is in the lock, and pip rejects a file with another hash. Run it after a list was changed, and look at what it
changes. It asks pip for wheels for the Pythons of Debian 12 and 13 on x86-64 and arm64; nothing is installed.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTS = ("tests/mutants", "tests/packages", "tests/readers", "tests/support/java-21")
PYTHONS = ("3.11", "3.13")
MACHINES = ("x86_64", "aarch64")
HEAD = "# Written by scripts/lib/pin_python_packages.py from requirements.txt.\n"


def resolve(pip, requirements, python, machine):
    """{(name, version): sha256} of the wheels that pip would install there."""
    platforms = [word for glibc in ("2_17", "2_28", "2_34") for word in ("--platform", f"manylinux_{glibc}_{machine}")]
    done = subprocess.run([pip, "install", "--quiet", "--no-input", "--dry-run", "--ignore-installed", "--report", "-", "--only-binary=:all:",
                           "--target", "/nonexistent", "--python-version", python, *platforms, "--platform", f"manylinux2014_{machine}", "-r", requirements],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{requirements}, Python {python} on {machine}: {done.stderr}")
    return {(each["metadata"]["name"].lower().replace("_", "-"), each["metadata"]["version"]):
            each["download_info"]["archive_info"]["hashes"]["sha256"] for each in json.loads(done.stdout)["install"]}


def lock(pip, requirements):
    hashes = {}
    for python in PYTHONS:
        for machine in MACHINES:
            for package, sha256 in resolve(pip, requirements, python, machine).items():
                hashes.setdefault(package, set()).add(sha256)
    names = [name for name, _ in hashes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SystemExit(f"{requirements}: {', '.join(twice)} would have one version here and another there; pin it in the list")
    lines = [" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{sha256}" for sha256 in sorted(found))])
             for (name, version), found in sorted(hashes.items())]
    return HEAD + "\n".join(lines) + "\n"


def main():
    lists = [Path(name) for name in sys.argv[1:]] or [ROOT / folder / "requirements.txt" for folder in LISTS]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        for requirements in lists:
            requirements.with_name("requirements.lock").write_text(lock(f"{folder}/bin/pip", requirements), encoding="utf-8")


if __name__ == "__main__":
    main()
