#!/usr/bin/env python3
"""What does a request cost `highwater load`, wrk and wrk2, and do they see the same latencies?

Rounds of all clients, in an order that is shuffled in each round, against one server that runs throughout: server on
one core, client on another.

closed   wrk, `highwater load` over io_uring and over epoll: 64 and 256 connections, and 16 requests pipelined on each
         of 64. The cost is the whole client process's user and system time, from the kernel, over its requests,
         start-up included; "requests per client core-second" is a million over it.
paced    wrk2 and `highwater load --rate`: 64 connections at 10, 50 and 80 % of what the closed loop of 64 reached.
         Both measure latency from the scheduled instant. wrk2 looks at the clock in steps of a millisecond.

Only ratios within a round count: see README.md. wrk2 is found by $WRK2, bench/bin/wrk2 or PATH (`bench/build.sh wrk2`
builds it); without it, `paced` is left out and the record says so.

    cargo build --release && bench/load.py --record bench/evidence/DATE-load.json
"""

import argparse
import datetime
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import machine

CLOSED = {"64": (64, 1), "256": (256, 1), "64 pipelined 16": (64, 16)}
CLIENTS = ["wrk", "uring", "epoll"]
PACED = [0.1, 0.5, 0.8]
PACED_CLIENTS = ["wrk2", "load"]
PACED_CONNECTIONS = 64
QUANTILES = {"p50_us": 50, "p99_us": 99, "p999_us": 99.9}
PORT = 18480
UNITS = {"us": 1, "ms": 1e3, "s": 1e6, "m": 6e7}
SERVER_CPU, CLIENT_CPU = "0", "1"
# What wrk needs to send several requests at once.
PIPELINE_LUA = """
init = function(args)
  local requests = {}
  for i = 1, tonumber(args[1]) do requests[i] = wrk.format() end
  batch = table.concat(requests)
end
request = function() return batch end
"""


def main():
    options = parse_arguments()
    url = f"http://127.0.0.1:{PORT}/plaintext"
    record = described(options)
    for name in options.servers:
        with Server(options, name, url) as server, tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
            script.write(PIPELINE_LUA)
            script.flush()
            rows = closed(options, url, server, script.name)
            result = {"server": name, "closed": ratios_closed(rows), "rows": rows}
            if name == options.servers[0] and options.wrk2:
                capacity = statistics.median(
                    row["rps"] for row in rows if row["cell"] == "64" and row["client"] == "uring"
                )
                paced_rows = paced(options, url, server, capacity)
                result |= {"capacity": capacity, "paced": ratios_paced(paced_rows), "paced_rows": paced_rows}
            record["servers"].append(result)
            print(table(result))
            if options.record:
                save(options.record, record)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="rounds (8)")
    parser.add_argument("--seconds", type=int, default=1, help="seconds of one closed row (1)")
    parser.add_argument("--paced-seconds", type=int, default=2, help="of one paced row, below 10: wrk2 forgets then (2)")
    parser.add_argument("--seed", type=int, default=1, help="of the order (1)")
    parser.add_argument("--bin", default=os.path.join(machine.ROOT, "target/release"), help="where `highwater` is")
    parser.add_argument("--arena", help="the arena, if not there")
    parser.add_argument("--floor", default=os.path.join(machine.BENCH, "bin/floor"), help="the bare loops (bench/bin/floor)")
    parser.add_argument("--servers", nargs="+", default=["arena", "floor"], choices=["arena", "floor"])
    parser.add_argument("--record", metavar="FILE", help="write the record here")
    options = parser.parse_args()
    if not 1 <= options.paced_seconds <= 9:
        parser.error(f"--paced-seconds {options.paced_seconds}: write 1 to 9; after ten seconds wrk2 begins anew")
    options.arena = options.arena or os.path.join(options.bin, "highwater-arena")
    options.wrk2 = wrk2()
    if not options.wrk2:
        print("load.py: no wrk2: paced rows are left out; bench/build.sh wrk2 builds it", file=sys.stderr)
    return options


def wrk2():
    """wrk2's path, or None. Its own name is wrk, too."""
    built = os.path.join(machine.BENCH, "bin/wrk2")
    for path in [os.environ.get("WRK2"), built, machine.tool("wrk2")]:
        if path and os.path.isabs(path) and os.access(path, os.X_OK):
            return path
    return None


class Server:
    """A server on its core, from when it answers until the end of the block."""

    def __init__(self, options, name, url):
        listen = f"127.0.0.1:{PORT}"
        if name == "arena":
            command = [options.arena, "--listen", listen, "--metrics", "off", "--workers", "1", "--log", "off"]
        else:
            command = [options.floor, "uring", "--listen", listen, "--cpu", SERVER_CPU]
        self.command, self.url = ["taskset", "-c", SERVER_CPU, *command], url

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                urllib.request.urlopen(self.url, timeout=1).read()
                return self
            except OSError:
                time.sleep(0.05)
        self.__exit__()
        sys.exit(f"{' '.join(self.command)} does not answer: is its port taken, or is it not built?")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def cpu(self):
        """Seconds of CPU so far, of all threads, in ticks of 10 ms."""
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(command, server):
    """Runs `command` on the client's core: its output, its CPU time in seconds, and how busy it and the server were."""
    began, before = time.monotonic(), server.cpu()
    process = subprocess.Popen(["taskset", "-c", CLIENT_CPU, *command], stdout=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}: {out}")
    took, cpu = time.monotonic() - began, usage.ru_utime + usage.ru_stime
    busy = {"client_busy": round(cpu / took, 3), "server_busy": round((server.cpu() - before) / took, 3)}
    return out, cpu, busy


def closed(options, url, server, script):
    prng = random.Random(options.seed)
    rows = []
    for number in range(options.rounds):
        for cell, (connections, pipeline) in CLOSED.items():
            for client in prng.sample(CLIENTS, len(CLIENTS)):
                if client == "wrk":
                    row = wrk(options, url, server, connections, pipeline, script)
                else:
                    row = load_closed(options, url, server, connections, pipeline, client)
                rows.append({"round": number, "cell": cell, "client": client, **row})
    return rows


def wrk(options, url, server, connections, pipeline, script):
    command = ["wrk", "-t1", f"-c{connections}", f"-d{options.seconds}s", "--latency", url]
    if pipeline > 1:
        command[1:1] = ["-s", script]
        command += ["--", str(pipeline)]
    out, cpu, busy = run(command, server)
    requests = int(re.search(r"(\d+) requests in", out)[1])
    if "Non-2xx" in out or "Socket errors" in out:
        sys.exit(f"wrk had errors:\n{out}")
    return cost(requests, cpu) | {"rps": float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]), **busy}


def load_closed(options, url, server, connections, pipeline, transport):
    shape = ["--connections", str(connections), "--duration", f"{options.seconds}s", "--warmup", "0s"]
    shape += ["--pipeline", str(pipeline), "--transport", transport]
    out, cpu, busy = run([os.path.join(options.bin, "highwater"), "load", url, *shape, "--json"], server)
    told = checked(json.loads(out))
    return cost(told["sent"], cpu) | {"rps": told["rps"], **busy}


def checked(told):
    if told["ok"] != told["sent"]:
        sys.exit(f"highwater load: not every answer was 2xx: {told}")
    return told


def cost(requests, cpu):
    return {
        "requests": requests,
        "client_cpu_us_per_request": cpu * 1e6 / requests,
        "requests_per_client_core_second": requests / cpu,
    }


def paced(options, url, server, capacity):
    prng = random.Random(options.seed)
    rows = []
    for number in range(options.rounds):
        for share in PACED:
            rate = int(capacity * share)
            for client in prng.sample(PACED_CLIENTS, len(PACED_CLIENTS)):
                row = (wrk2_paced if client == "wrk2" else load_paced)(options, url, server, rate)
                rows.append({"round": number, "share": share, "rate": rate, "client": client, **row})
    return rows


def wrk2_paced(options, url, server, rate):
    shape = ["-t1", f"-c{PACED_CONNECTIONS}", f"-d{options.paced_seconds}s", f"-R{rate}", "--latency"]
    out, cpu, busy = run([options.wrk2, *shape, url], server)
    requests = int(re.search(r"(\d+) requests in", out)[1])

    def quantile(percent):
        value, unit = re.search(rf"(?m)^\s*{percent:.3f}%\s+([\d.]+)(us|ms|s|m)\s*$", out).groups()
        return float(value) * UNITS[unit]

    latencies = {name: quantile(percent) for name, percent in QUANTILES.items()}
    sent = requests / options.paced_seconds / rate
    return cost(requests, cpu) | {"rate_ratio": round(sent, 4)} | latencies | busy


def load_paced(options, url, server, rate):
    shape = ["--connections", str(PACED_CONNECTIONS), "--duration", f"{options.paced_seconds}s", "--warmup", "0s"]
    command = [os.path.join(options.bin, "highwater"), "load", url, *shape, "--rate", str(rate), "--json"]
    out, cpu, busy = run(command, server)
    told = checked(json.loads(out))
    return cost(told["sent"], cpu) | {name: told[name] for name in ["rate_ratio", *QUANTILES]} | busy


def ratios_closed(rows):
    figures = ["requests_per_client_core_second", "rps"]
    return [
        {"cell": cell, "client": client, "figure": figure} | ratio(of_cell(rows, "cell", cell), client, "wrk", figure)
        for cell in CLOSED
        for client in CLIENTS[1:]
        for figure in figures
    ]


def ratios_paced(rows):
    return [
        {"share": share, "figure": figure} | ratio(of_cell(rows, "share", share), "load", "wrk2", figure)
        for share in PACED
        for figure in [*QUANTILES, "requests_per_client_core_second"]
    ]


def of_cell(rows, field, value):
    return [row for row in rows if row[field] == value]


def ratio(rows, client, base, figure):
    """Medians of both, and the median over the rounds of their ratio in the same round, with both ends."""
    of = {(row["round"], row["client"]): row[figure] for row in rows}
    pairs = [of[number, client] / of[number, base] for number in sorted({number for number, _ in of})]
    median = lambda name: round(statistics.median(value for (_, by), value in of.items() if by == name), 3)
    return {
        "value": median(client),
        "base": median(base),
        "median": round(statistics.median(pairs), 3),
        "least": round(min(pairs), 3),
        "most": round(max(pairs), 3),
        "pairs": len(pairs),
    }


def table(result):
    lines = [f"{result['server']}, closed   client  requests per client core-second: its, wrk's, ratio (least to most)"]
    for row in result["closed"]:
        if row["figure"] == "requests_per_client_core_second":
            lines.append(f"{row['cell']:>16}  {row['client']:8}  {shown(row)}")
    if "paced" in result:
        lines.append(f"paced, of {result['capacity']:.0f}/s   figure: of load, of wrk2, ratio (least to most)")
        lines += [f"{row['share']:16.0%}  {row['figure']:32}  {shown(row)}" for row in result["paced"]]
    return "\n".join(lines)


def shown(row):
    return f"{row['value']:10.0f} {row['base']:10.0f}  {row['median']:.3f} ({row['least']:.3f} to {row['most']:.3f})"


def described(options):
    binaries = {
        "highwater": os.path.join(options.bin, "highwater"),
        "arena": options.arena,
        "floor": options.floor,
        "wrk2": options.wrk2 or "",
    }
    return {
        "name": "load",
        "question": "What does a request cost `highwater load`, wrk and wrk2, and do they see the same latencies?",
        "network": "loopback",
        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "commit": machine.commit(),
        "wrk": machine.wrk_version(),
        "sha256": {name: machine.digest(path) for name, path in binaries.items()},
        "flags": {
            "rounds": options.rounds,
            "seconds": options.seconds,
            "paced_seconds": options.paced_seconds,
            "seed": options.seed,
        },
        "profile": os.path.basename(os.path.normpath(options.bin)),
        "servers": [],
    }


def save(path, record):
    """In one step: what was measured before stays if this is interrupted."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.write("\n")
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    main()
