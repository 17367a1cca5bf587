#!/usr/bin/python3
"""Starts a throwaway Kafka, runs a command with its address in WALPOST_TEST_KAFKA, and stops it.

    tests/support/with_kafka.py COMMAND [ARGUMENT ...]

Ends with the command's exit code; with 69 when this machine has no Kafka to run, and says what is missing.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import servers  # noqa: E402 - the path above makes it importable


def main():
    try:
        with servers.Workspace() as workspace:
            kafka = workspace.kafka()
            environment = {**os.environ, "WALPOST_TEST_KAFKA": kafka.bootstrap}
            return subprocess.run(sys.argv[1:], env=environment, check=False).returncode
    except servers.Unavailable as error:
        print(f"no Kafka to test with: missing {error}", file=sys.stderr)
        return servers.EX_UNAVAILABLE


if __name__ == "__main__":
    sys.exit(main())
