#!/usr/bin/env python3
"""Does `highwater load` agree with wrk, and what does a request cost each of them?

Rounds of wrk, `highwater load` over io_uring and over epoll, in an order that is shuffled in each round, against one
`highwater-arena` that runs throughout: closed loops of 1 connection (does the latency agree?) and of 64 (what does a
request cost the client?). The cost is the whole client process's user and system time, from the kernel, over its
requests, start-up included. Only ratios within a round count: see README.md.

    cargo build --release && bench/load.py --record bench/evidence/DATE-load.json
"""

import argparse
import datetime
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
import urllib.request

import machine

CLIENTS = ["wrk", "uring", "epoll"]
CONNECTIONS = [1, 64]
PORT = 18480
UNITS = {"us": 1, "ms": 1e3, "s": 1e6}
SERVER_CPU, CLIENT_CPU = "0", "1"


def main():
    options = parse_arguments()
    url = f"http://127.0.0.1:{PORT}/plaintext"
    arena = os.path.join(options.bin, "highwater-arena")
    flags = ["--listen", f"127.0.0.1:{PORT}", "--metrics", "off", "--workers", "1"]
    server = subprocess.Popen(
        ["taskset", "-c", SERVER_CPU, arena, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_ready(url)
        rows = measure(options, url)
    finally:
        server.terminate()
        server.wait()
    ratios = derive(rows)
    print(table(ratios))
    if options.record:
        with open(options.record, "w", encoding="utf-8") as file:
            json.dump(record(options, rows, ratios), file, indent=1)
            file.write("\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds (7)")
    parser.add_argument("--seconds", type=int, default=1, help="seconds of one row (1)")
    parser.add_argument("--seed", type=int, default=1, help="of the order (1)")
    parser.add_argument("--bin", default=os.path.join(machine.ROOT, "target/release"), help="where the binaries are")
    parser.add_argument("--record", metavar="FILE", help="write the record here")
    return parser.parse_args()


def wait_ready(url):
    for _ in range(100):
        try:
            urllib.request.urlopen(url, timeout=1).read()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("highwater-arena does not answer: is its port taken, or is it not built?")


def measure(options, url):
    prng = random.Random(options.seed)
    rows = []
    for number in range(options.rounds):
        for connections in CONNECTIONS:
            for client in prng.sample(CLIENTS, len(CLIENTS)):
                row = wrk(options, url, connections) if client == "wrk" else load(options, url, connections, client)
                rows.append({"round": number, "connections": connections, "client": client, **row})
    return rows


def run(command):
    """Runs `command`: its output, and its CPU time in microseconds."""
    process = subprocess.Popen(["taskset", "-c", CLIENT_CPU, *command], stdout=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return out, (usage.ru_utime + usage.ru_stime) * 1e6


def wrk(options, url, connections):
    out, cpu = run(["wrk", "-t1", f"-c{connections}", f"-d{options.seconds}s", "--latency", url])
    number = lambda pattern: float(re.search(pattern, out)[1])
    requests = number(r"(\d+) requests in")

    def quantile(percent):
        value, unit = re.search(rf"(?m)^\s+{percent}%\s+([\d.]+)(us|ms|s)", out).groups()
        return float(value) * UNITS[unit]

    return {
        "requests": int(requests),
        "cpu_us_per_request": cpu / requests,
        "rps": number(r"Requests/sec:\s+([\d.]+)"),
        "p50_us": quantile(50),
        "p90_us": quantile(90),
    }


def load(options, url, connections, transport):
    highwater = os.path.join(options.bin, "highwater")
    shape = ["--connections", str(connections), "--duration", f"{options.seconds}s", "--warmup", "0s"]
    out, cpu = run([highwater, "load", url, *shape, "--transport", transport, "--json"])
    told = json.loads(out)
    return {
        "requests": told["sent"],
        "cpu_us_per_request": cpu / told["sent"],
        "rps": told["rps"],
        "p50_us": told["p50_us"],
        "p90_us": told["p90_us"],
    }


def derive(rows):
    """For each figure, the median over the rounds of its ratio to wrk's in the same round, with both ends."""
    ratios = []
    for connections in CONNECTIONS:
        of = {(row["round"], row["client"]): row for row in rows if row["connections"] == connections}
        for client in CLIENTS[1:]:
            for figure in ["cpu_us_per_request", "rps", "p50_us"]:
                pairs = [
                    of[number, client][figure] / of[number, "wrk"][figure]
                    for number in sorted({number for number, _ in of})
                ]
                ratios.append(
                    {
                        "connections": connections,
                        "client": client,
                        "figure": figure,
                        "median": round(statistics.median(pairs), 3),
                        "least": round(min(pairs), 3),
                        "most": round(max(pairs), 3),
                    }
                )
    return ratios


def table(ratios):
    lines = ["connections  client  figure              ratio to wrk (least to most)"]
    for ratio in ratios:
        lines.append(
            f"{ratio['connections']:11}  {ratio['client']:6}  {ratio['figure']:18}  "
            f"{ratio['median']:.3f} ({ratio['least']:.3f} to {ratio['most']:.3f})"
        )
    return "\n".join(lines)


def record(options, rows, ratios):
    return {
        "name": "load",
        "question": "Does `highwater load` agree with wrk, and what does a request cost each of them?",
        "network": "loopback",
        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "commit": machine.commit(),
        "wrk": machine.wrk_version(),
        "flags": {"rounds": options.rounds, "seconds": options.seconds, "seed": options.seed},
        "binaries": os.path.relpath(options.bin, machine.ROOT),
        "ratios": ratios,
        "rows": rows,
    }


if __name__ == "__main__":
    main()
