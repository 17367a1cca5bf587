"""The wall clock of one process, which a test sets: fake_clock.cc, compiled, and the file that says how far off the clock is."""

import mmap
import struct
import subprocess
from pathlib import Path


class FakeClock:
    """`env` is for the process; set() counts for it at once."""

    def __init__(self, path):
        path = Path(path)
        path.mkdir(parents=True)
        library, offset = path / "fake_clock.so", path / "offset"
        subprocess.run(["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-o", library, Path(__file__).with_suffix(".cc")], check=True)
        offset.write_bytes(struct.pack("q", 0))
        offset.chmod(0o666)  # a server of another user
        with open(offset, "r+b") as file:
            self._offset = mmap.mmap(file.fileno(), 8)
        self.env = {"LD_PRELOAD": str(library), "FAKE_CLOCK": str(offset)}

    def set(self, seconds):
        """Ahead of the machine's clock; negative: behind it."""
        self._offset[:] = struct.pack("q", int(seconds))
