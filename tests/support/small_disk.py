"""A folder on a disk of its own that can be full. Needs the right to mount (root)."""

import os
import subprocess
from pathlib import Path

from servers import Unavailable


def mount(*arguments):
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)


class SmallDisk:
    """In memory; takes as much of it as lies on it."""

    def __init__(self, path, size_mb):
        self.path = Path(path)
        self.path.mkdir(parents=True)
        self._size_bytes = size_mb << 20
        done = mount("-t", "tmpfs", "-o", f"size={self._size_bytes},mode=755", "walpost-test", str(self.path))
        if done.returncode != 0:
            self.path.rmdir()
            raise Unavailable(f"the right to mount a small disk ({done.stderr.strip()})")

    def fill(self):
        """Nothing more goes on it: the disk becomes as small as what is on it."""
        for _ in range(100):
            disk = os.statvfs(self.path)
            if disk.f_bfree == 0:
                return
            used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
            self._resize(used, check=False)  # rejected when something was written meanwhile
        raise RuntimeError(f"{self.path} does not get full")

    def empty(self):
        """There is room again."""
        self._resize(self._size_bytes, check=True)

    def _resize(self, size_bytes, check):
        done = mount("-o", f"remount,size={size_bytes}", str(self.path))
        if check and done.returncode != 0:
            raise RuntimeError(f"{self.path}: {done.stderr}")

    def close(self):
        subprocess.run(["umount", "-l", str(self.path)], capture_output=True, check=False)
