"""What every throwaway server needs: waiting for a condition, a free port, and a way to say what the machine lacks."""

import fcntl
import os
import socket
import tempfile
import time

# postgres_server.cc has the same two, and shares the counter.
FIRST_PORT = 10240
LAST_PORT = 32767


class Unavailable(Exception):
    """Something the machine lacks; the message says what."""


def wait_for(condition, seconds, what, every=None):
    """Polls until condition() is true, and returns its value. Without `every`, more seldom the longer it takes: most conditions ask a
    server on a new connection, which costs more than what is waited for."""
    begin = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - begin
        if waited > seconds:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(every or min(max(0.02, waited / 20), 0.25))


def free_port():
    """A port of loopback that stays free until its owner listens, and while its owner restarts.

    It lies below the ports that the kernel gives to clients, and a counter that all tests of this
    user share hands out each port once before the first comes again.
    """
    with open(f"{tempfile.gettempdir()}/walpost-test-port.{os.getuid()}", "a+") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        counter.seek(0)
        port = int(counter.read() or FIRST_PORT)
        while not _is_free(port):
            port = _after(port)
        counter.truncate(0)
        counter.write(str(_after(port)))
        return port


def _after(port):
    return port + 1 if port < LAST_PORT else FIRST_PORT


def _is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
