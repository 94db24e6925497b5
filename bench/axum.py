#!/usr/bin/env python3
"""What does a request cost an axum application under `axum::serve`, and what under `highwater::serve`?

The application is `examples/axum`: two programs that differ in that one line, built with the same flags, each with one
worker thread on one CPU, and the generator on the other. The cells are requests that such an application has: a health
check without layers, JSON behind all of its tower-http layers, an upload of 1 KiB that is sent back, and content that is
streamed in pieces. Everything else is as in `run.py`, whose rules apply: a process for each row, the answer checked to
the byte before and after, rounds in random order, and ratios between the rows of one round only.

    make bench-axum
    bench/axum.py --record bench/evidence/DATE-axum.json
"""

import argparse
import contextlib
import dataclasses
import datetime
import http.client
import os
import random
import signal
import sys
import time

import machine
import run
import stats
from machine import ROOT
from servers import Cell, Failed, Server, check_answer, family, free_port, running

# What the lists of the JSON cell hold, so that an answer has about 300 bytes.
TODOS = [b'{"title":"measure %d","done":false}' % number for number in range(8)]
ROWS = 20

CELLS = {cell.name: cell for cell in (
    Cell("health", "/health", b"ok"),
    Cell("json", "/todos", b"[" + b",".join(TODOS) + b"]", content_type="application/json"),
    Cell("echo", "/echo", b"x" * 1024, content_type="", method="POST", payload="x" * 1024),
    Cell("rows", f"/rows/{ROWS}", b"".join(b"%d,row %d\n" % (row, row) for row in range(ROWS)), content_type="text/csv"),
)}


@dataclasses.dataclass(frozen=True)
class Example(Server):
    """One of the example's programs. Its address and its settings are in its environment."""

    settings: tuple = ()

    def argv(self, port, cell):
        return ["env", f"LISTEN=127.0.0.1:{port}", *self.settings, self.command]


# Both have a Tokio runtime around `main`; axum serves on that one. As in run.py, no metrics port and no pinning of our
# own: the process is pinned as a whole.
RUNTIME = "TOKIO_WORKER_THREADS=1"
SERVERS = [
    Example("axum", f"{ROOT}/target/release/examples/before", settings=(RUNTIME,)),
    Example("highwater", f"{ROOT}/target/release/highwater-example-axum",
            settings=(RUNTIME, "HIGHWATER_WORKERS=1", "HIGHWATER_METRICS=off", "HIGHWATER_PIN=off")),
]
BASELINE = "axum"


def main():
    options = parse_arguments()
    for program in (run.LOADGEN, *(server.program() for server in SERVERS)):
        if not os.access(program, os.X_OK):
            sys.exit(f"axum.py: {run.relative(program)} is not there: use `make bench-axum`, which builds it")
    # Ended from outside, stop the server that is running, as after an interrupt from the terminal.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = datetime.datetime.now(datetime.timezone.utc)
    rows = measure(options, f"{started:%Y%m%dT%H%M%SZ}")
    if not rows:
        sys.exit("axum.py: no rows")
    derived = stats.derive(rows, [BASELINE])
    print(f"\nloopback, {machine.describe()['cpu']}")
    print(stats.table(derived, [BASELINE]))
    print(verdicts(derived))
    if options.record:
        record = {"name": "axum", "question": __doc__.partition("\n")[0], **describe(options, started)}
        run.write_record(options.record, record, rows, derived)
    if any(row.get("error") for row in rows):
        sys.exit(1)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cells", type=lambda text: text.split(","), metavar="A,B", default=list(CELLS), help=f"of {', '.join(CELLS)} [all]")
    add("--rounds", type=int, default=15, help="[%(default)s]")
    add("--connections", type=int, default=64, help="[%(default)s]")
    add("--warm", type=int, default=300, metavar="MS", help="not measured, before each row [%(default)s]")
    add("--ms", type=int, default=600, help="measured, each row [%(default)s]")
    add("--server-cpu", type=int, default=0, help="[%(default)s]")
    add("--client-cpu", type=int, default=1, help="[%(default)s]")
    add("--port", type=int, default=18880, help="first port to try [%(default)s]")
    add("--seed", type=int, default=time.time_ns() % 2**32, help="of the order; recorded [the time]")
    add("--lock", metavar="FILE", help="hold an exclusive flock on FILE while the servers of one cell are measured")
    add("--record", metavar="FILE", help="write the record here")
    options = parser.parse_args()
    unknown = [name for name in options.cells if name not in CELLS]
    if unknown:
        parser.error(f"--cells {unknown[0]}: not one of {', '.join(CELLS)}")
    if options.record and os.path.exists(options.record):
        parser.error(f"--record {options.record}: it is there already, and records are not changed")
    return options


def measure(options, name):
    """The rows of all rounds. An interrupt ends them early; what was measured is reported."""
    prng, rows = random.Random(options.seed), []
    progress = run.Progress(options.rounds * len(options.cells) * len(SERVERS))
    try:
        for number in range(options.rounds):
            for cell in run.shuffled(prng, [CELLS[name] for name in options.cells]):
                with run.exclusive(options.lock):
                    for server in run.shuffled(prng, SERVERS):
                        row = one_row(options, number, cell, server)
                        rows.append({"run": name, **row})
                        progress.step(f"round {number + 1}/{options.rounds} {cell.name} {server.name}")
    except KeyboardInterrupt:
        print("\ninterrupted: reporting the rows so far", file=sys.stderr)
    progress.end()
    return rows


def one_row(options, number, cell, server):
    row = {"round": number, "cell": cell.name, "server": server.name, "at": round(time.time(), 3)}
    try:
        port = free_port(options.port + number * 37 % 400)
        with running(server, cell, port, options.server_cpu) as pid:
            fill(port)
            check_answer(server, cell, port)
            before = run.round_trip(options)
            row.update(run.loadgen(options, cell, port, family(pid)))
            row["c2c_ns"] = [before, run.round_trip(options)]
            check_answer(server, cell, port)
    # A server that vanishes shows up as any of these; it must not take the rest of the run with it.
    except (Failed, OSError, ValueError) as failed:
        row.update(errors=1, error=str(failed) or repr(failed))
    return row


def fill(port):
    """Makes the list that the JSON cell asks for."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        for todo in TODOS:
            connection.request("POST", "/todos", todo, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            if response.status != 201:
                raise Failed(f"POST /todos answered {response.status}")


def verdicts(derived):
    """The ratio that the documentation quotes: CPU per request over that under `axum::serve`."""
    lines = ["", "CPU per request under highwater::serve, of that under axum::serve"]
    for one in derived["comparisons"]:
        if one["pairs"]:
            interval = one["cost_ci95"]
            spread = f"[{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "[too few pairs]"
            lines.append(f"  {one['cell']:<10}{one['cost']:.3f} {spread} n={one['pairs']}")
    return "\n".join(lines)


def describe(options, started):
    """How the rows were measured."""
    return {
        "at": started.isoformat(timespec="seconds"), "generator": "loadgen", "network": "loopback",
        "machine": machine.describe(), "source": machine.commit(),
        "flags": {name: value for name, value in vars(options).items() if name not in ("lock", "record")},
        "cells": {cell.name: f"{cell.method} {cell.path}" for cell in CELLS.values()},
        "loadgen_sha256": machine.digest(run.LOADGEN),
        "servers": {server.name: {
            "command": run.relative(" ".join((*server.settings, server.command))),
            "sha256": machine.digest(server.program()),
        } for server in SERVERS},
        "packages": machine.locked(f"{ROOT}/Cargo.lock", ["axum", "hyper", "tokio", "tower-http"]),
        "baselines": [BASELINE],
    }


if __name__ == "__main__":
    main()
