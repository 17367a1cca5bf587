#!/usr/bin/python3
"""Starts a throwaway Kafka, runs a command with its address in WALPOST_TEST_KAFKA, and stops it. Files of tests share it.

    tests/support/with_kafka.py COMMAND [ARGUMENT ...]

Ends with the command's exit code; with 69 when this machine has no Kafka to run, and says what is missing.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import servers  # noqa: E402 - the path above makes it importable


def quick_java():
    """Options with which each of the many Kafkas of the tests takes less than half of the CPU to start: nothing is compiled as for a
    long life, and the classes are those that a first one has left beside its jars, once for each Java."""
    quick = "-XX:TieredStopAtLevel=1"
    folder = Path(servers.kafka_classpath()).parent
    version = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    archive = folder / f"classes-{re.sub(r'[^0-9A-Za-z.]+', '-', version)[:100]}.jsa"
    if "KAFKA_HOME" in os.environ:  # not ours to write to
        return quick
    if not archive.exists():
        with servers.Workspace() as workspace:
            made = workspace.path / "classes.jsa"
            os.environ["WALPOST_KAFKA_JAVA"] = f"{quick} -XX:ArchiveClassesAtExit={made}"
            kafka = workspace.kafka()
            kafka.create_topic("any")
            kafka.stop()
            shutil.copy(made, f"{archive}.{os.getpid()}")
            os.rename(f"{archive}.{os.getpid()}", archive)
    return f"{quick} -XX:SharedArchiveFile={archive}"


def main():
    try:
        with servers.Workspace() as workspace:
            os.environ["WALPOST_KAFKA_JAVA"] = quick_java()
            kafka = workspace.kafka(heap_mb=1024)
            os.environ["WALPOST_TEST_KAFKA"] = kafka.bootstrap
            os.environ["WALPOST_TEST_KAFKA_DATA"] = str(kafka.data)
            os.environ["WALPOST_KAFKA_FORMATTED"] = str(kafka.copy_format(workspace.path / "formatted"))
            return subprocess.run(sys.argv[1:], check=False).returncode
    except servers.Unavailable as error:
        print(f"no Kafka to test with: missing {error}", file=sys.stderr)
        return servers.EX_UNAVAILABLE


if __name__ == "__main__":
    sys.exit(main())
