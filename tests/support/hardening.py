"""Which protections a binary was built with, read from the file itself with readelf."""

import subprocess

CHECKED_FUNCTIONS = ("__memcpy_chk", "__memmove_chk", "__memset_chk", "__read_chk", "__poll_chk", "__snprintf_chk", "__fdelt_chk", "__printf_chk",
                     "__fprintf_chk", "__vsnprintf_chk")


def readelf(binary, *options):
    return subprocess.run(["readelf", "--wide", *options, str(binary)], capture_output=True, check=True, text=True).stdout


def missing(binary):
    """Names of the protections that this x86-64 or arm64 binary lacks."""
    header, segments, dynamic = readelf(binary, "--file-header"), readelf(binary, "--program-headers"), readelf(binary, "--dynamic")
    symbols, notes = readelf(binary, "--dyn-syms"), readelf(binary, "--notes")
    stack = next((line for line in segments.splitlines() if "GNU_STACK" in line), "RWE")
    found = {
        "position-independent executable": "DYN" in header and "PIE" in dynamic,
        "read-only relocations": "GNU_RELRO" in segments,
        "no lazy binding": "BIND_NOW" in dynamic,
        "no executable stack": "RWE" not in stack,
        "stack protector": "__stack_chk_fail" in symbols,
        "checked functions of libc": any(name in symbols for name in CHECKED_FUNCTIONS),
    }
    if "X86-64" in header:
        found["indirect branch tracking"] = "IBT" in notes
        found["shadow stack"] = "SHSTK" in notes
    if "AArch64" in header:
        found["branch target identification"] = "BTI" in notes
    return [name for name, there in found.items() if not there]
