#!/usr/bin/env python3
"""How long is a CPU busy with something else? A loop on the CPU it is pinned to, for when nothing else wants it.

It does nothing but read the clock. Where two readings lie further apart than the loop itself takes, something else had the
CPU meanwhile: a process, or an interrupt in whatever context. Prints `SECONDS LOST` (CLOCK_MONOTONIC, seconds lost so far)
fifty times a second until its output closes. The kernel's own accounting goes by the clock's ticks and misses interrupts;
counting steps instead of gaps would mistake a core that runs slower for one that was taken.
"""

import os
import time

EVERY_NS = 20_000_000
# A turn of the loop takes 0.1 us; the cheapest refusal known takes 2.
GAP_NS = 1_000
TURN_NS = 100


def main():
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    clock = time.monotonic_ns
    lost, last, due = 0, clock(), 0
    while True:
        now = clock()
        if now - last > GAP_NS:
            lost += now - last - TURN_NS
        last = now
        if now >= due:
            try:
                print(f"{now / 1e9:.6f} {lost / 1e9:.6f}", flush=True)
            except BrokenPipeError:
                return
            due = now + EVERY_NS
            # Printing is no loss.
            last = clock()


if __name__ == "__main__":
    main()
