"""What figures were measured on."""

import os
import platform
from pathlib import Path


def describe():
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    memory_gb = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    system = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return f"{os.cpu_count()} cores ({model}), {memory_gb} GB, {system['PRETTY_NAME'].strip(chr(34))}"
