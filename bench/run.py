#!/usr/bin/env python3
"""Measures servers side by side on two cores: the server on one, the load generator on the other.

Every row has a process of its own, and the servers of one cell run one after the other within seconds, in random order,
round after round: on a shared machine, only ratios within such a group are meaningful. Each row is appended to a
JSON-lines file when it is measured, so that a crash loses nothing.
"""

import argparse
import contextlib
import datetime
import fcntl
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time

import machine
import stats
from machine import BENCH, ROOT
from servers import CELLS, SERVERS, Failed, Server, Unsupported, check_answer, family, free_port, running

EXAMPLES = """\
examples:
  bench/build.sh && bench/run.py                     every server there is, every cell, 9 rounds
  bench/run.py --cells plaintext,json --servers floor-uring,highwater,axum --rounds 15
  bench/run.py --extra 'old=/tmp/old/arena --listen 127.0.0.1:{port}' \\
               --extra 'new=/tmp/new/arena --listen 127.0.0.1:{port}' --servers old,new --baseline old
                                                     two builds against each other (the same one twice: the noise floor)
  bench/run.py --generator wrk                       with wrk, which few readers have to be told about
  bench/run.py --name peers                          keep the result as bench/evidence/DATE-peers.json
  bench/run.py --report bench/results/X.jsonl        the table of an earlier run, again
"""

LOADGEN = f"{BENCH}/bin/loadgen"
WRK_WARM_S = 1
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def main():
    options = parse_arguments()
    if options.report:
        rows, metas = read_rows(options.report)
    else:
        rows, metas = measure(options)
    if not rows:
        sys.exit("run.py: no rows")
    derived = stats.derive(rows, options.baseline)
    print(f"\nloopback, generator {metas[-1]['generator']}, {metas[-1]['machine']['cpu']}")
    print(stats.table(derived, options.baseline))
    if options.name:
        print(f"evidence: {write_evidence(options, metas, rows, derived)}")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")
    add = parser.add_argument
    add("--servers", type=names, metavar="A,B", help=f"of {', '.join(SERVERS)} [those that are built]")
    add("--cells", type=names, metavar="A,B", default=list(CELLS), help=f"of {', '.join(CELLS)} [all]")
    add("--extra", action="append", default=[], metavar="NAME=COMMAND",
        help="another server; {port} in the command is replaced, and PORT and WORKERS are in its environment")
    add("--baseline", type=names, metavar="A,B", default=["axum", "floor-uring"],
        help="servers to take ratios against [axum,floor-uring]")
    add("--rounds", type=int, default=9, help="[%(default)s]")
    add("--connections", type=int, default=64, help="[%(default)s]")
    add("--warm", type=int, default=300, metavar="MS", help="not measured, before each row [%(default)s]")
    add("--ms", type=int, default=600, help="measured, each row; wrk rounds it up to seconds [%(default)s]")
    add("--generator", choices=["loadgen", "wrk"], default="loadgen", help="[%(default)s]")
    add("--server-cpu", type=int, default=0, help="[%(default)s]")
    add("--client-cpu", type=int, default=1, help="[%(default)s]")
    add("--port", type=int, default=18080, help="first port to try [%(default)s]")
    add("--seed", type=int, help="of the order; recorded [the time]")
    add("--lock", metavar="FILE", help="hold an exclusive flock on FILE while the servers of one cell are measured")
    add("--out", metavar="FILE", help="where rows are appended [bench/results/TIME.jsonl]")
    add("--report", metavar="FILE", help="measure nothing; report the rows of FILE")
    add("--name", help="write the evidence record bench/evidence/DATE-NAME.json")
    options = parser.parse_args()
    for extra in options.extra:
        name, separator, command = extra.partition("=")
        if not (name and separator and command):
            parser.error(f"--extra {extra!r}: write NAME=COMMAND")
        SERVERS[name] = Server(name, command)
    for flag, given, known in (("--servers", options.servers or [], SERVERS), ("--cells", options.cells, CELLS)):
        for name in given:
            if name not in known:
                parser.error(f"{flag} {name}: not one of {', '.join(known)}")
    if options.name and not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", options.name):
        parser.error(f"--name {options.name!r}: lower-case letters, digits, dots and dashes")
    return options


# ---------------------------------------------------------------------------------------------------------- measuring


def measure(options):
    """Runs the rounds. An interrupt ends them early; what was measured is reported."""
    # Ended from outside, stop the server that is running, as after an interrupt from the terminal.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    servers = chosen_servers(options)
    seed = options.seed if options.seed is not None else time.time_ns() % 2**32
    started = datetime.datetime.now(datetime.timezone.utc)
    run = started.strftime("%Y%m%dT%H%M%SZ")
    out = options.out or f"{BENCH}/results/{run}.jsonl"
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    meta = describe(options, servers, run, started, seed)
    append(out, meta)
    print(f"{options.rounds} rounds of {', '.join(options.cells)} for {', '.join(one.name for one in servers)}; "
          f"seed {seed}; rows to {relative(out)}", file=sys.stderr)
    rows = []
    try:
        for row in rounds(options, servers, random.Random(seed)):
            row = {"kind": "row", "run": run, **row}
            append(out, row)
            rows.append(row)
    except KeyboardInterrupt:
        print("\ninterrupted: reporting the rows so far", file=sys.stderr)
    return rows, [meta]


def chosen_servers(options):
    """Those that were asked for, or all that are built."""
    if not os.access(LOADGEN, os.X_OK):
        sys.exit("run.py: no load generator; run bench/build.sh first")
    asked = [SERVERS[name] for name in options.servers] if options.servers else list(SERVERS.values())
    for server in asked:
        if not server.exists():
            how = "cargo build --release" if server.name.startswith("highwater") else "bench/build.sh"
            print(f"skipped: {server.name}: {relative(server.program())} is not there ({how})", file=sys.stderr)
    present = [server for server in asked if server.exists()]
    return present or sys.exit("run.py: none of the servers is built")


def rounds(options, servers, prng):
    """Yields rows: rounds of cells of servers, each in random order. A server that cannot do a cell is asked once."""
    progress = Progress(options.rounds * len(options.cells) * len(servers))
    refused = set()
    for number in range(options.rounds):
        for cell in shuffled(prng, [CELLS[name] for name in options.cells]):
            group = shuffled(prng, servers)
            with exclusive(options.lock):
                for server in group:
                    if (server.name, cell.name) not in refused:
                        row = one_row(options, number, cell, server)
                        if row.get("unsupported"):
                            refused.add((server.name, cell.name))
                        yield row
                    progress.step(f"round {number + 1}/{options.rounds} {cell.name} {server.name}")
    progress.end()


def one_row(options, number, cell, server):
    row = {"round": number, "cell": cell.name, "server": server.name, "at": round(time.time(), 3)}
    try:
        port = free_port(options.port + number * 37 % 400)
        with running(server, cell, port, options.server_cpu) as pid:
            check_answer(server, cell, port)
            before = round_trip(options)
            generate = wrk if options.generator == "wrk" else loadgen
            row.update(generate(options, cell, port, family(pid)))
            row["c2c_ns"] = [before, round_trip(options)]
            check_answer(server, cell, port)
    # A server that vanishes shows up as any of these; it must not take the rest of the run with it.
    except (Failed, OSError, ValueError) as failed:
        row.update(errors=1, error=str(failed) or repr(failed), unsupported=isinstance(failed, Unsupported))
    return row


def round_trip(options):
    """A cache line's round trip between the two CPUs, in ns."""
    command = [LOADGEN, "c2c", "--cpus", f"{options.server_cpu},{options.client_cpu}"]
    return float(output_of(command, timeout=10))


def loadgen(options, cell, port, pids):
    command = [
        LOADGEN, "--port", port, "--pid", ",".join(map(str, pids)), "--method", cell.method,
        "--path", cell.path, "--connections", options.connections, "--pipeline", cell.pipeline, "--warm", options.warm,
        "--ms", options.ms, "--cpu", options.client_cpu, "--server-cpu", options.server_cpu,
    ]
    command += ["--body", cell.payload] if cell.payload else []
    command += ["--close"] if cell.close else []
    text = output_of(command, timeout=(options.warm + options.ms) / 1e3 + 10)
    result = json.loads(text)
    if result["errors"]:
        raise Failed(f"loadgen: {result['error']}")
    return result


def output_of(command, timeout):
    try:
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as expired:
        raise Failed(f"{os.path.basename(command[0])}: no end after {timeout:.0f} s") from expired
    if not done.stdout:
        raise Failed(f"{os.path.basename(command[0])}: exit status {done.returncode}")
    return done.stdout


# ---------------------------------------------------------------------------------------------------------------- wrk


def wrk(options, cell, port, pids):
    """The same fields from wrk. It cannot leave its warm-up out of a run, so the warm-up is a run of its own."""
    wrk_once(options, cell, port, WRK_WARM_S)
    began, server = time.monotonic(), on_cpu_ns(pids)
    server_cpu, client_cpu = cpu_busy_s(options.server_cpu), cpu_busy_s(options.client_cpu)
    text, client_s = wrk_once(options, cell, port, math.ceil(options.ms / 1e3))
    wall = time.monotonic() - began
    server_s = (on_cpu_ns(pids) - server) / 1e9
    on_server_cpu_s = cpu_busy_s(options.server_cpu) - server_cpu - server_s
    on_client_cpu_s = cpu_busy_s(options.client_cpu) - client_cpu - client_s
    requests = int(matched(r"(\d+) requests in", text))
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)", text)
    if bad or not requests:
        raise Failed(f"wrk: {bad[0] if bad else 'no requests'}")
    return {
        "mode": "close" if cell.close else "keep-alive", "connections": options.connections, "pipeline": cell.pipeline,
        "requests": requests, "seconds": round(wall, 6), "rps": round(float(matched(r"Requests/sec:\s+(\S+)", text))),
        "server_cpu_us_per_request": round(server_s * 1e6 / requests, 4),
        "requests_per_core_second": round(requests / server_s),
        "server_utilisation": round(server_s / wall, 4), "client_utilisation": round(client_s / wall, 4),
        "foreign_on_server_cpu": round(max(0.0, on_server_cpu_s / wall), 3),
        "foreign_on_client_cpu": round(max(0.0, on_client_cpu_s / wall), 3),
        **{f"p{n}_us": microseconds(matched(rf"^ +{n}% +(\S+)$", text)) for n in (50, 90, 99)}, "errors": 0,
    }


def wrk_once(options, cell, port, seconds):
    """wrk's output, and the CPU seconds it used."""
    script = {"post": f"{BENCH}/wrk/post.lua", "pipeline": f"{BENCH}/wrk/pipeline.lua"}.get(cell.name)
    command = ["taskset", "-c", str(options.client_cpu), "wrk", "--latency", "-t1", f"-c{options.connections}",
               f"-d{seconds}s", *(["-s", script] if script else []),
               *(["-H", "Connection: close"] if cell.close else []), f"http://127.0.0.1:{port}{cell.path}"]
    before = os.times()
    text = output_of(command, timeout=seconds + 10)
    after = os.times()
    return text, after.children_user + after.children_system - before.children_user - before.children_system


def matched(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        raise Failed(f"wrk: no {pattern!r} in its output")
    return found[1]


def microseconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return round(float(number) * {"us": 1, "ms": 1e3, "s": 1e6, "m": 6e7}[unit], 1)


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


# ------------------------------------------------------------------------------------------------------ order and lock


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


# ------------------------------------------------------------------------------------------------------------ records


def describe(options, servers, run, started, seed):
    """How the rows were measured."""
    flags = {name: value for name, value in vars(options).items() if name not in ("lock", "out", "report", "name")}
    return {
        "kind": "meta", "run": run, "started": started.isoformat(timespec="seconds"), "seed": seed,
        "generator": f"wrk {machine.wrk_version()}" if options.generator == "wrk" else "loadgen",
        "network": "loopback", "machine": machine.describe(), "source": machine.commit(),
        "flags": {**flags, "extra": [relative(extra) for extra in options.extra]},
        "loadgen_sha256": machine.digest(LOADGEN),
        "servers": {server.name: {
            "command": relative(server.command), "version": machine.version(server.name),
            "sha256": machine.digest(machine.tool("nginx") if server.name == "nginx" else server.program()),
        } for server in servers},
    }


def append(path, record):
    with open(path, "a") as file:
        file.write(json.dumps(record) + "\n")


def read_rows(path):
    with open(path) as file:
        records = [json.loads(line) for line in file if line.strip()]
    metas = [record for record in records if record["kind"] == "meta"]
    return [record for record in records if record["kind"] == "row"], metas


def write_evidence(options, metas, rows, derived):
    """Dated by the run, not by the report. Never overwrites: records are not changed later."""
    stem = f"{BENCH}/evidence/{metas[-1]['started'][:10]}-{options.name}"
    names = (f"{stem}{suffix}.json" for suffix in ("", *(f"-{number}" for number in range(2, 1000))))
    path = next(name for name in names if not os.path.exists(name))
    write_record(path, {"name": options.name, "runs": metas, "baselines": options.baseline}, rows, derived)
    return relative(path)


def write_record(path, about, rows, derived):
    """Writes what a run is about, the rules it was evaluated by, what follows, and its rows."""
    fields = ("NEAR_BELOW_NS", "FAR_ABOVE_NS", "FOREIGN_MAX", "FOREIGN_SLACK_S", "PAIRS_MIN", "RESAMPLES", "CONFIDENCE")
    record = {**about, "rules": {field.lower(): getattr(stats, field) for field in fields}, "derived": derived}
    # Indented for readers and diffs, but one line a row: there are hundreds.
    head = json.dumps(record, indent=1, ensure_ascii=False)
    body = ",\n  ".join(json.dumps(row) for row in rows)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w") as file:
        file.write(f"{head[:-2]},\n \"rows\": [\n  {body}\n ]\n}}\n")


def relative(text):
    """Paths of this work tree without where it lies: records are read elsewhere."""
    return text.replace(ROOT + "/", "")


if __name__ == "__main__":
    main()
