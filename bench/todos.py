#!/usr/bin/env python3
"""What does the Todo service cost: a list from memory, and a write that is durable before it is acknowledged?

Rounds of cells in random order, each against a service of its own on one core (worker, journal and applier share it), with
10 000 todos; the client is on the other core. The cost is the service's whole CPU time, from the kernel, over the requests
that were answered. Reads are compared with `/plaintext` of highwater-arena, in the same rounds. After a write cell the
service is stopped with SIGTERM, and what it has applied must be what it has acknowledged.

    bench/build.sh floor && cargo build --release && bench/todos.py --record bench/evidence/DATE-todos.json
"""

import argparse
import contextlib
import datetime
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import machine

SECRET = "a secret for measuring, as long as it should be"
SERVER_CPU, CLIENT_CPU = "0", "1"
TODOS = 10_000
LOADGEN = f"{machine.BENCH}/bin/loadgen"
# name: (path, connections); the first is the arena's.
READS = {"plaintext": ("/plaintext", 64), "limit-1": ("/todos?limit=1", 64), "limit-100": ("/todos?limit=100", 64)}
WRITES = {"create-64": 64, "create-256": 256}


def main():
    options = parse_arguments()
    rows = []
    prng = random.Random(options.seed)
    cells = [(cell, transport) for cell in options.cells for transport in (options.transports if cell in READS else ["uring"])]
    for number in range(options.rounds):
        prng.shuffle(cells)
        for cell, transport in cells:
            row = {"round": number, "cell": cell, "transport": transport}
            row.update(read(options, cell, transport) if cell in READS else write(options, cell))
            rows.append(row)
            print(json.dumps(row), file=sys.stderr)
    print(table(rows))
    if options.record:
        with open(options.record, "w", encoding="utf-8") as file:
            json.dump(record(options, rows), file, indent=1)
            file.write("\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (5)")
    parser.add_argument("--seconds", type=int, default=2, help="seconds of one row (2)")
    parser.add_argument("--seed", type=int, default=1, help="of the order (1)")
    parser.add_argument("--cells", type=names, default=[*READS, *WRITES], help="which (all)")
    parser.add_argument("--transports", type=names, default=["uring", "epoll"], help="of reads (uring,epoll)")
    parser.add_argument("--bin", default=os.path.join(machine.ROOT, "target/release"), help="where the binaries are")
    parser.add_argument("--data", metavar="DIR", help="where data directories are made (the system's temporary one)")
    parser.add_argument("--port", type=int, default=18470, help="(18470)")
    parser.add_argument("--record", metavar="FILE", help="write the record here")
    return parser.parse_args()


@contextlib.contextmanager
def service(options, transport, is_arena=False):
    """A server of its own, on its core; yields its process and data directory."""
    flags = ["--listen", f"127.0.0.1:{options.port}", "--metrics", f"127.0.0.1:{options.port + 1}", "--workers", "1",
             "--transport", transport, "--shed", "none", "--log", "off"]
    with tempfile.TemporaryDirectory(dir=options.data) as data:
        command = [os.path.join(options.bin, "highwater-arena"), *flags]
        environment = {**os.environ, "JWT_SECRET": SECRET}
        if not is_arena:
            todos = os.path.join(options.bin, "highwater-todos")
            subprocess.run([todos, "seed", "--count", str(TODOS), "--data", data], check=True, stdout=subprocess.DEVNULL)
            command = [todos, *flags, "--data", data]
        process = subprocess.Popen(["taskset", "-c", SERVER_CPU, *command], env=environment, stdout=subprocess.DEVNULL)
        try:
            wait_ready(f"http://127.0.0.1:{options.port}/{'plaintext' if is_arena else 'health'}")
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            if process.wait(30) != 0:
                sys.exit("todos.py: the server did not end in order")


def wait_ready(url):
    for _ in range(500):
        try:
            urllib.request.urlopen(url, timeout=1).read()
            return
        except OSError:
            time.sleep(0.02)
    sys.exit(f"todos.py: nothing answers at {url}")


def read(options, cell, transport):
    path, connections = READS[cell]
    with service(options, transport, is_arena=cell == "plaintext") as process:
        flags = {"port": options.port, "pid": process.pid, "path": path, "connections": connections, "warm": 300,
                 "ms": options.seconds * 1000, "cpu": CLIENT_CPU, "server-cpu": SERVER_CPU}
        command = [LOADGEN, *(word for flag, value in flags.items() for word in (f"--{flag}", str(value)))]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return result


def write(options, cell):
    with service(options, "uring") as process:
        todos = os.path.join(options.bin, "highwater-todos")
        token = subprocess.run([todos, "token"], check=True, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "JWT_SECRET": SECRET}).stdout.strip()
        command = ["taskset", "-c", CLIENT_CPU, os.path.join(options.bin, "highwater"), "load",
                   f"http://127.0.0.1:{options.port}/todos", "--method", "POST", "--header", f"Authorization: Bearer {token}",
                   "--body", '{"title":"Water the plants","description":"All of them, the ones outside first"}',
                   "--connections", str(WRITES[cell]), "--json", "--warmup"]
        subprocess.run([*command, "0s", "--duration", "1s"], check=True, stdout=subprocess.DEVNULL)
        settled(options)
        before, began = cpu_seconds(process.pid), time.monotonic()
        result = json.loads(subprocess.run([*command, "0s", "--duration", f"{options.seconds}s"], check=True,
                                           stdout=subprocess.PIPE).stdout)
        answered = cpu_seconds(process.pid)
        elapsed = time.monotonic() - began
        behind = metric(options, "todos_queue_depth")
        settled(options)
        applied = cpu_seconds(process.pid)
        accepted = metric(options, 'todos_requests_total{answer="accepted"}')
        count = metric(options, "http_store_size")
    if accepted != count - TODOS or result["non_2xx"] or result["errors"]:
        sys.exit(f"todos.py: {accepted} accepted, {count - TODOS} applied, {result['non_2xx']} other answers")
    ok = result["ok"]
    return {
        "requests": ok, "rps": ok / elapsed, "p50_us": result["p50_us"], "p99_us": result["p99_us"],
        # Of what is applied meanwhile, too: it shares the core.
        "server_cpu_us_per_request": (applied - before) / ok * 1e6,
        "cpu_until_answered_us": (answered - before) / ok * 1e6, "behind": behind, "client_busy": result["client_cpu"],
    }


def settled(options):
    """Waits until everything is applied."""
    for _ in range(3000):
        if metric(options, "todos_queue_depth") == 0:
            return
        time.sleep(0.01)
    sys.exit("todos.py: the queue does not drain")


def metric(options, name):
    page = urllib.request.urlopen(f"http://127.0.0.1:{options.port + 1}/metrics", timeout=5).read().decode()
    return next(float(line[len(name):]) for line in page.splitlines() if line.startswith(name + " "))


def cpu_seconds(pid):
    """Of all threads, from the scheduler: in nanoseconds, not in ticks."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def table(rows):
    lines = ["loopback; one server core", f"{'cell':<12}{'transport':<11}{'requests/s':>12}{'CPU us/request':>17}{'requests/core-second':>23}"]
    for cell, transport in sorted({(row["cell"], row["transport"]) for row in rows}):
        of = [row for row in rows if (row["cell"], row["transport"]) == (cell, transport)]
        cost = statistics.median(row_cost(row) for row in of)
        rate = statistics.median(row["rps"] for row in of)
        lines.append(f"{cell:<12}{transport:<11}{rate:>12.0f}{cost:>17.2f}{1e6 / cost:>23.0f}")
    return "\n".join(lines)


def row_cost(row):
    return row.get("server_cpu_us_per_request") or row["cpu_us_per_request"]


def record(options, rows):
    return {
        "what": "the Todo service: CPU per list and per durable write, loopback",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine.describe(), "sources": machine.commit(), "seed": options.seed, "todos": TODOS, "rows": rows,
    }


if __name__ == "__main__":
    main()
