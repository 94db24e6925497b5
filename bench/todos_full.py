#!/usr/bin/env python3
"""Who is the bottleneck when the Todo service's full form is read: nginx, the instances, Redis, or the client?

Starts the full form (scripts/todos-full.sh: Postgres, Redis, Kafka, a worker, two instances, nginx) on ports of its
own, with every server on one CPU and the client on another, and reads GET /todos?limit=1: through nginx, and from one
instance directly; beside them an API of Gin that asks Redis for each request (bench/peers/gin-todos). The shapes are 2000
connections with 80 requests at once on each, by `highwater load` and by `autocannon -c 2000 -p 80`, with which such APIs
are advertised; and 64 connections without pipelining. Gin has only the latter: it does not answer the 160 000 requests that
are in flight otherwise within a row's time. What each process used of the CPU meanwhile is from
/proc/PID/task/*/schedstat, children included, and is divided by the requests that were answered.

    make bench-todos-full
    bench/todos_full.py --rounds 3 --record bench/evidence/DATE-todos-full.json

autocannon is installed into target/tools by npm, if there is npm; without it those rows are left out, and it says so.
"""

import argparse
import contextlib
import datetime
import glob
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

import machine
from machine import ROOT

PORTS = {"HW_PG_PORT": "25433", "HW_REDIS_PORT": "26380", "HW_KAFKA_PORT": "29192", "HW_NGINX_PORT": "28180",
         "TODOS_PORT": "18181"}
GIN_PORT, GIN_REDIS_PORT = "18191", "26381"
SERVER_CPU, CLIENT_CPU = "0", "1"
PATH = "/todos?limit=1"
# Name: connections, requests at once on each.
SHAPES = {"2000x80": (2000, 80), "64x1": (64, 1)}
TARGETS = {
    "nginx": f"http://127.0.0.1:{PORTS['HW_NGINX_PORT']}",
    "direct": f"http://127.0.0.1:{PORTS['TODOS_PORT']}",
    "gin": f"http://127.0.0.1:{GIN_PORT}",
}
SERVICES = os.environ.get("HW_SERVICES_DIR", f"{ROOT}/target/services")
TOOLS = f"{ROOT}/target/tools"
TODOS = f"{ROOT}/target/release/highwater-todos"


def processes():
    """What a process is called in the table, and what its command line has in it."""
    first = int(PORTS["TODOS_PORT"])
    return {
        "nginx": f"{SERVICES}/nginx-{PORTS['HW_NGINX_PORT']}/nginx.conf",
        "instance 1": f"--listen 127.0.0.1:{first} ",
        "instance 2": f"--listen 127.0.0.1:{first + 2} ",
        "worker": f"{TODOS} worker ",
        "Redis": f"redis-server 127.0.0.1:{PORTS['HW_REDIS_PORT']}",
        "Postgres": f"-p {PORTS['HW_PG_PORT']} ",
        "Kafka": f"kafka-{PORTS['HW_KAFKA_PORT']}/server.properties",
        "gin": "bench/bin/gin-todos ",
        "gin's Redis": f"redis-server 127.0.0.1:{GIN_REDIS_PORT}",
    }


def main():
    arguments = parse()
    clients = {"highwater load": highwater_load}
    if autocannon := autocannon_path():
        clients["autocannon"] = lambda *shape: run_autocannon(autocannon, *shape)
    cells = [(client, target, shape) for client in clients for target in TARGETS for shape in SHAPES
             if (client != "autocannon" or shape == "2000x80") and (target != "gin" or shape == "64x1")]
    if not os.path.exists(f"{ROOT}/bench/bin/gin-todos"):
        print("bench/bin/gin-todos is missing: bench/build.sh gin-todos; its rows are left out", file=sys.stderr)
        cells = [cell for cell in cells if cell[1] != "gin"]
    rows = []
    with contextlib.ExitStack() as stack:
        start(stack)
        # What was measured before Ctrl-C counts.
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        for round_number in range(arguments.rounds):
            random.shuffle(cells)
            for client, target, shape in cells:
                rows.append(measure(clients[client], client, target, shape, round_number, arguments.seconds))
                print(json.dumps(rows[-1]), flush=True)
    results = table(rows)
    if arguments.record:
        write_record(arguments.record, rows, results)


def write_record(path, rows, results):
    record = {"name": "todos-full", "network": "loopback", "server_cpus": SERVER_CPU, "client_cpus": CLIENT_CPU,
              "machine": machine.describe(), **machine.commit(), "todos_sha256": machine.digest(TODOS),
              "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "rows": rows,
              "results": results}
    with open(path, "w") as file:
        json.dump(record, file, indent=1)
        file.write("\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="how long each row takes")
    parser.add_argument("--record", help="where the rows go, as JSON")
    return parser.parse_args()


def autocannon_path():
    path = f"{TOOLS}/node_modules/.bin/autocannon"
    if not os.path.exists(path) and shutil.which("npm"):
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", TOOLS, "autocannon@8"],
                       check=False, stdout=subprocess.DEVNULL)
    if os.path.exists(path):
        return path
    print("autocannon cannot be had (npm); its rows are left out", file=sys.stderr)
    return None


def on_cpu(cpu, *command):
    return ["taskset", "-c", cpu, *command]


def start(stack):
    """Everything that is measured; it ends with `stack`."""
    environment = {**os.environ, **PORTS, "BINARY": TODOS}
    # In a session of its own: Ctrl-C is for us, who then end it in order.
    full = subprocess.Popen(on_cpu(SERVER_CPU, "setpriv", "--pdeathsig", "TERM", f"{ROOT}/scripts/todos-full.sh"),
                            env=environment, text=True, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True)
    stack.callback(end, full)
    for line in full.stdout:
        if "Ctrl-C" in line:
            break
    else:
        sys.exit("the full form did not start; target/run/todos-full has its logs")
    url = subprocess.run([f"{ROOT}/scripts/services/postgres.sh", "url"], env=environment, check=True, text=True,
                         capture_output=True).stdout.strip()
    subprocess.run([TODOS, "seed", "--count", "1000"], env={**environment, "DATABASE_URL": url}, check=True,
                   stdout=subprocess.DEVNULL)
    if os.path.exists(f"{ROOT}/bench/bin/gin-todos"):
        redis = f"{ROOT}/scripts/services/redis.sh"
        of_gin = {**os.environ, "HW_REDIS_PORT": GIN_REDIS_PORT}
        url = subprocess.run(on_cpu(SERVER_CPU, redis, "start"), env=of_gin, check=True, text=True,
                             capture_output=True).stdout.strip()
        stack.callback(subprocess.run, [redis, "stop"], env=of_gin, check=False)
        gin = subprocess.Popen(on_cpu(SERVER_CPU, "setpriv", "--pdeathsig", "KILL", f"{ROOT}/bench/bin/gin-todos", "gin"),
                               env={**os.environ, "REDIS_URL": url, "PORT": GIN_PORT, "WORKERS": "1"}, start_new_session=True)
        stack.callback(end, gin)
    for target in TARGETS.values():
        subprocess.run(["curl", "--silent", "--fail", "--retry", "50", "--retry-connrefused", "--retry-delay", "1",
                        "--output", "/dev/null", target + PATH], check="gin" not in target)


def end(process):
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(60)
    if process.poll() is None:
        process.kill()


def pids():
    """The processes of each name, with all their descendants."""
    children, lines = {}, {}
    for path in glob.glob("/proc/[0-9]*"):
        pid = int(path.rpartition("/")[2])
        try:
            with open(f"{path}/cmdline", "rb") as file:
                lines[pid] = file.read().replace(b"\0", b" ").decode(errors="replace")
            with open(f"{path}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(pid)
    found = {}
    for name, part in processes().items():
        # What only starts another process, such as `timeout`, has the same words, and uses nothing.
        open_pids = [pid for pid, line in lines.items() if part in line]
        all_pids = set()
        while open_pids:
            pid = open_pids.pop()
            if pid not in all_pids:
                all_pids.add(pid)
                open_pids += children.get(pid, [])
        found[name] = all_pids
    return found


def cpu_ns(some_pids):
    total = 0
    for pid in some_pids:
        for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
            with contextlib.suppress(OSError, ValueError), open(path) as file:
                total += int(file.read().split()[0])
    return total


def highwater_load(url, connections, pipeline, seconds):
    said = subprocess.run(
        on_cpu(CLIENT_CPU, f"{ROOT}/target/release/highwater", "load", url, "--connections", str(connections), "--pipeline",
               str(pipeline), "--duration", f"{seconds}s", "--json"), check=True, text=True, capture_output=True)
    load = json.loads(said.stdout)
    return {"requests": load["ok"], "rps": load["rps"], "errors": load["errors"] + load["timeouts"],
            "non_2xx": load["non_2xx"], "p50_ms": load["p50_us"] / 1000, "p99_ms": load["p99_us"] / 1000}


def run_autocannon(path, url, connections, pipeline, seconds):
    said = subprocess.run(on_cpu(CLIENT_CPU, path, "-c", str(connections), "-p", str(pipeline), "-d", str(seconds), "--json",
                                 url), check=True, text=True, capture_output=True)
    load = json.loads(said.stdout)
    return {"requests": load["2xx"], "rps": load["2xx"] / load["duration"], "errors": load["errors"] + load["timeouts"],
            "non_2xx": load["non2xx"], "p50_ms": load["latency"]["p50"], "p99_ms": load["latency"]["p99"]}


def measure(client, name, target, shape, round_number, seconds):
    connections, pipeline = SHAPES[shape]
    found = pids()
    before = {process: cpu_ns(of) for process, of in found.items()}
    children, began = os.times(), time.monotonic()
    said = client(TARGETS[target] + PATH, connections, pipeline, seconds)
    took = time.monotonic() - began
    used = {process: (cpu_ns(of) - before[process]) / 1000 for process, of in found.items()}
    after = os.times()
    used["client"] = (after.children_user + after.children_system - children.children_user
                      - children.children_system) * 1e6
    requests = max(said["requests"], 1)
    return {"client": name, "target": target, "shape": shape, "round": round_number, "seconds": round(took, 3), **said,
            "cpu_us_per_request": {process: round(us / requests, 3) for process, us in used.items()},
            "busy": {process: round(us / 1e6 / took, 3) for process, us in used.items()}}


def table(rows):
    """Medians over the rounds; prints them."""
    print("\nMedians; in brackets the share of its CPU; the servers share one CPU, the client has another.")
    results = []
    for client, target, shape in sorted({(row["client"], row["target"], row["shape"]) for row in rows}):
        of = [row for row in rows if (row["client"], row["target"], row["shape"]) == (client, target, shape)]
        median = lambda key, name: statistics.median(row[key][name] for row in of)
        used = {name: (round(median("cpu_us_per_request", name), 2), round(median("busy", name), 2))
                for name in of[0]["busy"]}
        used = {name: pair for name, pair in used.items() if pair[1] >= 0.01}
        rps = round(statistics.median(row["rps"] for row in of))
        failed = sum(row["errors"] + row["non_2xx"] for row in of)
        p99 = statistics.median(row["p99_ms"] for row in of)
        parts = ", ".join(f"{name} {us} us ({share:.0%})" for name, (us, share) in used.items())
        print(f"{client:14} {shape:8} {target:7} {rps:8}/s  p99 {p99:8.1f} ms  failed {failed}  {parts}")
        results.append({"client": client, "target": target, "shape": shape, "rps": rps, "p99_ms": p99, "failed": failed,
                        "cpu_us_per_request": {name: us for name, (us, _) in used.items()},
                        "busy": {name: share for name, (_, share) in used.items()}})
    for client, shape in sorted({(row["client"], row["shape"]) for row in rows}):
        ratio(rows, client, shape, "direct", "nginx")
        ratio(rows, client, shape, "direct", "gin")
    return results


def ratio(rows, client, shape, one, other):
    by = {(row["target"], row["round"]): row["rps"] for row in rows if (row["client"], row["shape"]) == (client, shape)}
    pairs = [by[one, number] / by[other, number] for target, number in by if target == one and by.get((other, number))]
    if pairs:
        print(f"{client} {shape}: {one} / {other} = {statistics.median(pairs):.2f} in requests per second "
              f"({min(pairs):.2f} to {max(pairs):.2f}, {len(pairs)} pairs)")


if __name__ == "__main__":
    main()
