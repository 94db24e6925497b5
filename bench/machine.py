"""Facts about the machine, the sources and the binaries that make a record useful later."""

import hashlib
import os
import platform
import re
import shutil
import subprocess

BENCH = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(BENCH)


def describe():
    """The machine and its kernel."""
    return {
        "cpu": _match(r"model name\s*: (.*)", _read("/proc/cpuinfo")),
        "cpus": os.cpu_count(),
        "memory_kib": int(_match(r"MemTotal:\s*(\d+)", _read("/proc/meminfo")) or 0),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "hypervisor": "hypervisor" in _read("/proc/cpuinfo"),
        "tcp_congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control").strip(),
        "rustc": _first_line(["rustc", "--version"]),
    }


def commit():
    """The commit of this work tree and whether it has been changed since."""
    head = _first_line(["git", "-C", ROOT, "rev-parse", "HEAD"])
    changed = _output(["git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no"])
    return {"commit": head, "dirty": bool(changed.strip())}


def wrk_version():
    """wrk's version, which only its usage page shows."""
    return _match(r"^wrk (\S+)", _output([tool("wrk"), "-v"]))


def digest(path):
    """SHA-256 of a file, so that a record names the very binary; None if there is no such file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def tool(name):
    """A program's path; administrators' directories count, because Debian keeps nginx there."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin") or name


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _match(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else None


def _output(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        return done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _first_line(command):
    return _output(command).partition("\n")[0]
