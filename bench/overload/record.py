"""Stores an experiment's rows: appends each one when it is measured, and writes one evidence file at the end.

A row is a dictionary with at least `experiment`. The head describes how the rows were measured.
"""

import argparse
import datetime
import json
import os
import re
import signal
import sys
import time

import machine
from common import append, relative
from machine import BENCH

RESULTS = f"{BENCH}/results"


def parser(description, epilog):
    """The flags that all experiments share."""
    made = argparse.ArgumentParser(description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--quick", action="store_true", help="a shortened run, about two minutes; shows the shape and proves nothing")
    add("--server", default="target/release/highwater-arena", metavar="PROGRAM", help="[%(default)s]")
    add("--load", default="target/release/highwater", metavar="PROGRAM", help="has the load generator [%(default)s]")
    add("--server-cpu", type=int, default=0, help="[%(default)s]")
    add("--client-cpu", type=int, default=1, help="[%(default)s]")
    add("--seed", type=int, help="of the order; recorded [the time]")
    add("--lock", metavar="FILE", help="hold an exclusive flock on FILE during each cell")
    add("--name", help="write the record bench/evidence/DATE-NAME.json and its charts beside it")
    add("--report", metavar="FILE", help="measure nothing; report the rows of FILE")
    return made


def check(made, options):
    """Checks what argparse cannot check; an error names the remedy."""
    if options.name and not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", options.name):
        made.error(f"--name {options.name!r}: lower-case letters, digits, dots and dashes")
    for flag, cpu in (("--server-cpu", options.server_cpu), ("--client-cpu", options.client_cpu)):
        if cpu not in os.sched_getaffinity(0):
            made.error(f"{flag} {cpu}: this machine has {sorted(os.sched_getaffinity(0))}")
    if options.server_cpu == options.client_cpu:
        made.error("--server-cpu and --client-cpu are the same: the load would take the server's time")
    if options.report:
        return options
    for flag, program in (("--server", options.server), ("--load", options.load)):
        if not os.access(program, os.X_OK):
            made.error(f"{flag} {program}: not there; cargo build --release")
    return options


class Run:
    """The rows of one run, in a file from the first on."""

    def __init__(self, experiment, options, network):
        # Ended from outside, leave as after an interrupt from the terminal: what is running is stopped, what was
        # measured is reported.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        started = datetime.datetime.now(datetime.timezone.utc)
        self.id = started.strftime("%Y%m%dT%H%M%SZ")
        self.seed = options.seed if options.seed is not None else time.time_ns() % 2**32
        self.rows = []
        os.makedirs(RESULTS, exist_ok=True)
        self.path = f"{RESULTS}/{self.id}-{experiment}.jsonl"
        self.head = {
            "kind": "meta", "experiment": experiment, "run": self.id, "started": started.isoformat(timespec="seconds"),
            "seed": self.seed, "network": network.describe(), "machine": machine.describe(), "source": machine.commit(),
            "flags": {name: value for name, value in vars(options).items() if name not in ("lock", "report", "name", "seed")},
            "programs": {role: program(path) for role, path in (("server", options.server), ("load", options.load))},
        }
        append(self.path, self.head)

    def add(self, row):
        row = {"kind": "row", "run": self.id, "at": round(time.time(), 3), **row}
        append(self.path, row)
        self.rows.append(row)
        return row


def program(path):
    """Which binary, exactly."""
    return {"path": relative(os.path.abspath(path)), "version": machine._first_line([path, "--version"]),
            "sha256": machine.digest(path)}


def write_evidence(name, head, rows, derived, charts):
    """The record and its charts, {suffix: svg}. Dated by the run, not by the report. Never overwrites: a record is not to
    be improved later."""
    stem = f"{BENCH}/evidence/{head['started'][:10]}-{name}"
    stems = (f"{stem}{suffix}" for suffix in ("", *(f"-{number}" for number in range(2, 1000))))
    stem = next(candidate for candidate in stems if not os.path.exists(f"{candidate}.json"))
    os.makedirs(os.path.dirname(stem), exist_ok=True)
    # Indented for readers and diffs, but one line a row: there are hundreds.
    body = ",\n  ".join(json.dumps(row) for row in rows)
    text = json.dumps({"name": name, "runs": [head], "derived": derived}, indent=1, ensure_ascii=False)
    with open(f"{stem}.json", "w") as file:
        file.write(f"{text[:-2]},\n \"rows\": [\n  {body}\n ]\n}}\n")
    for suffix, svg in charts.items():
        with open(f"{stem}-{suffix}.svg", "w") as file:
            file.write(svg)
    return [relative(f"{stem}.json"), *(relative(f"{stem}-{suffix}.svg") for suffix in charts)]


def keep(options, head, rows, derived, charts):
    """Says where the rows are, and writes the record if it was asked for."""
    if options.name:
        print("evidence: " + " ".join(write_evidence(options.name, head, rows, derived, charts)))
    else:
        directory = f"{RESULTS}/{head['run']}"
        os.makedirs(directory, exist_ok=True)
        for suffix, svg in charts.items():
            with open(f"{directory}/{suffix}.svg", "w") as file:
                file.write(svg)
        print(f"not kept (no --name); charts in {relative(directory)}", file=sys.stderr)
