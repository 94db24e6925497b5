"""What the overload experiments share: order and lock, progress, rows in files, CPU time from /proc, a free port, and the
interval of a median.
"""

import contextlib
import fcntl
import json
import os
import random
import socket
import statistics
import sys
import time

from machine import ROOT

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# With fewer values a confidence interval would be meaningless.
PAIRS_MIN = 5
RESAMPLES = 10_000
CONFIDENCE = 0.95


class Failed(Exception):
    """A server or the generator did not do its part; the row says so and the run goes on."""


def shuffled(prng, items):
    return prng.sample(items, len(items))


@contextlib.contextmanager
def exclusive(path):
    """Holds an exclusive flock on `path`, if there is one: for the servers of one cell, so that pairs stay close
    together and others who honour the lock still get their turn."""
    if not path:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Progress:
    """One line on stderr: overwritten on a terminal, now and then elsewhere."""

    def __init__(self, steps):
        self.steps, self.done, self.began = steps, 0, time.monotonic()
        self.terminal, self.shown = sys.stderr.isatty(), 0.0

    def step(self, what):
        self.done += 1
        now = time.monotonic()
        left = (now - self.began) / self.done * (self.steps - self.done)
        line = f"{self.done}/{self.steps} ({self.done / self.steps:.0%}), {left:.0f} s left: {what}"
        if self.terminal:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        elif now - self.shown >= 10:
            print(line, file=sys.stderr, flush=True)
            self.shown = now

    def end(self):
        if self.terminal:
            print(file=sys.stderr)


def on_cpu_ns(pids):
    """Exact on-CPU time of all threads of `pids`."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[0])
    return total


def cpu_busy_s(cpu):
    """The busy time of one CPU since boot, without idle, waiting and steal time."""
    with open("/proc/stat") as file:
        line = next(line for line in file if line.startswith(f"cpu{cpu} "))
    user, nice, system, _idle, _iowait, irq, softirq = map(int, line.split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS_PER_SECOND


def free_port(first):
    """The first free port from `first`. Bound without SO_REUSEPORT, so that a stray server that would share the port and
    half of the load is noticed."""
    for port in range(first, first + 500):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise Failed(f"no free port in {first}..{first + 500}")


def bootstrap_median(values, seed=0):
    """The percentile bootstrap's confidence interval of the median as (low, high), or None for too few values."""
    if len(values) < PAIRS_MIN:
        return None
    prng = random.Random(seed)
    medians = sorted(statistics.median(prng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return medians[int(tail * RESAMPLES)], medians[int((1 - tail) * RESAMPLES) - 1]


def append(path, record):
    with open(path, "a") as file:
        file.write(json.dumps(record) + "\n")


def read_rows(path):
    with open(path) as file:
        records = [json.loads(line) for line in file if line.strip()]
    metas = [record for record in records if record["kind"] == "meta"]
    return [record for record in records if record["kind"] == "row"], metas


def relative(text):
    """Paths of this work tree without where it lies: records are read elsewhere."""
    return text.replace(ROOT + "/", "")
