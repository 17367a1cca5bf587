"""What every throwaway server needs: waiting for a condition, a free port, and a way to say what the machine lacks."""

import socket
import time


class Unavailable(Exception):
    """Something the machine lacks; the message says what."""


def wait_for(condition, seconds, what, every=0.02):
    """Polls until condition() is true, and returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(every)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
