"""A folder on a disk of its own, small enough to be filled. Needs the right to mount (root)."""

import errno
import os
import subprocess
from pathlib import Path

from servers import Unavailable

STEP_BYTES = 1024 * 1024


class SmallDisk:
    def __init__(self, path, size_mb):
        self.path = Path(path)
        self.path.mkdir(parents=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=755", "walpost-test", str(self.path)],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.path.rmdir()
            raise Unavailable(f"the right to mount a small disk ({done.stderr.strip()})")
        self._filler = self.path / "filler"

    def fill(self):
        """Takes all that is free."""
        with open(self._filler, "ab") as file:
            step = STEP_BYTES
            while step >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), step)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 4

    def empty(self):
        self._filler.unlink(missing_ok=True)

    def close(self):
        subprocess.run(["umount", "-l", str(self.path)], capture_output=True, check=False)
