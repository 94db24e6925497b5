#!/usr/bin/env python3
"""Counts what is left of a CPU: a loop that runs only when nothing else wants the CPU it is pinned to.

Prints `SECONDS COUNT` (CLOCK_MONOTONIC, steps so far) fifty times a second until its output closes. Steps it could not
take were taken from it, by whoever and in whatever context: unlike the kernel's accounting, which looks at the clock's
ticks, it misses no interrupt.
"""

import os
import time

EVERY_S = 0.02


def main():
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    count, due = 0, 0.0
    while True:
        for _ in range(500):
            count += 1
        now = time.monotonic()
        if now >= due:
            try:
                print(f"{now:.6f} {count}", flush=True)
            except BrokenPipeError:
                return
            due = now + EVERY_S


if __name__ == "__main__":
    main()
