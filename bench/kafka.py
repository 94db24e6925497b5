#!/usr/bin/env python3
"""How fast are records with Kafka by ours, and how fast by Kafka's own producer test?

Both write to the same broker, which runs on the same machine, with the same settings: size of records, acks=all,
idempotence, batch, linger, 32 MiB of buffer, no compression. Ours is `crates/batcher/examples/kafka.rs`: a batcher over the
Kafka sink on one thread, each receipt awaited; every record carries its id in a header, which Kafka's test does not write.
The cells `e` and `batch` go through the gateway instead, `POST /e` with one record of 100 bytes for each request and
`POST /batch` with 100 of them, `--ack kafka`, one worker, no linger, everything else as it comes; the other side is the same test of
Kafka's. The generator of load shares the machine as well.

A topic for each cell; rounds in random order; ratios between the rows of one round only. All of it shares the machine's
CPUs with the broker.

    make bench-kafka
    bench/kafka.py --record bench/evidence/DATE-kafka.json
"""

import argparse
import datetime
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import time

import machine
from machine import ROOT

SCRIPT = f"{ROOT}/scripts/services/kafka.sh"
EXAMPLE = f"{ROOT}/target/{{profile}}/examples/kafka"
PARTITIONS = 4
# Bytes of a record, and how many: seconds each.
CELLS = {"100": 1_000_000, "1000": 300_000, "e": 1_000_000, "batch": 1_000_000}
# Through the gateway: path, records in a request, connections.
HTTP = {"e": ("/e", 1, 256), "batch": ("/batch", 100, 64)}
HTTP_BYTES = 100
HTTP_SECONDS = 3
LINGER_MS = 5
# Both sides' batch.size. Java's default is 16 KiB, librdkafka's 1 MB.
BATCH_BYTES = 128 << 10
BUFFER_BYTES = 32 << 20
# Fewer pairs have no interval worth the name.
PAIRS_MIN = 5
RESAMPLES = 10_000
CONFIDENCE = 0.95


def main():
    arguments = parse()
    started = not subprocess.run([SCRIPT, "pid"], stdout=subprocess.DEVNULL).returncode == 0
    url = output([SCRIPT, "start"]).strip()
    rows = []
    for cell in arguments.cells:
        subprocess.run([SCRIPT, "topic", topic(cell), str(PARTITIONS)], check=True, stdout=subprocess.DEVNULL)
    try:
        # The broker's Java compiles what is used often: whoever comes first would pay for it.
        for server in ("kafka", "highwater") * 2:
            for cell in arguments.cells:
                measure(url, server, cell, "warm-up", arguments)
        for round_number in range(arguments.rounds):
            sides = [(cell, server) for cell in arguments.cells for server in ("kafka", "highwater")]
            random.shuffle(sides)
            for cell, server in sides:
                rows.append(measure(url, server, cell, round_number, arguments))
                print(json.dumps(rows[-1]), flush=True)
    finally:
        if started:
            subprocess.run([SCRIPT, "clean"], check=False)
    results = {cell: compare(rows, cell) for cell in arguments.cells}
    for cell, result in results.items():
        print(f"{cell}: {result}")
    if arguments.record:
        write_record(arguments, rows, results)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--cells", type=lambda text: text.split(","), default=list(CELLS))
    parser.add_argument("--profile", default="release", help="which build of the example, the gateway and the command")
    parser.add_argument("--gateway", help="the gateway, if it is somewhere else")
    parser.add_argument("--load", help="the command `highwater`, if it is somewhere else")
    parser.add_argument("--record", help="a file for the rows and what they say")
    arguments = parser.parse_args()
    built = f"{ROOT}/target/{arguments.profile}"
    arguments.gateway = arguments.gateway or f"{built}/highwater-ingest"
    arguments.load = arguments.load or f"{built}/highwater"
    return arguments


def topic(cell):
    return f"bench-{os.getpid()}-{cell}"


def measure(url, server, cell, round_number, arguments):
    mine = gateway if cell in HTTP else ours
    run = mine if server == "highwater" else theirs
    return {"round": round_number, "cell": cell, "server": server, **run(url, topic(cell), cell, arguments)}


def size(cell):
    return HTTP_BYTES if cell in HTTP else int(cell)


def ours(url, name, cell, arguments):
    program = EXAMPLE.format(profile=arguments.profile)
    numbers = [PARTITIONS, CELLS[cell], cell, BATCH_BYTES, LINGER_MS]
    return json.loads(output([program, url, name, *map(str, numbers)]))


def gateway(url, name, cell, arguments):
    path, records, connections = HTTP[cell]
    body = "\n".join(["x" * HTTP_BYTES] * records)
    port = free_port()
    served = subprocess.Popen([
        arguments.gateway, "--listen", f"127.0.0.1:{port}", "--metrics", "off", "--log", "off", "--workers", "1",
        "--sink", "kafka", "--ack", "kafka", "--kafka-brokers", url, "--topic", name,
        "--partitions", str(PARTITIONS), "--batch-bytes", str(BATCH_BYTES), "--linger", "0ms",
    ], stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        said = json.loads(output([
            arguments.load, "load", f"http://127.0.0.1:{port}{path}", "--connections", str(connections), "--duration",
            f"{HTTP_SECONDS}s", "--method", "POST", "--body", body, "--json",
        ]))
    finally:
        served.terminate()
        served.wait()
    if said["non_2xx"] or said["errors"]:
        sys.exit(f"the gateway refused: {said}")
    return {"records": said["ok"] * records, "records_per_s": round(said["rps"] * records),
            "requests_per_s": said["rps"], "p99_us": said["p99_us"]}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(port):
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("the gateway does not start")


def theirs(url, name, cell, _arguments):
    """Kafka's own: with the compiler and memory that a long-running producer has."""
    libraries = os.environ.get("HW_SERVICES_DIR", f"{ROOT}/target/services") + "/kafka-4.3.1/*"
    text = output([
        "java", "-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-cp", libraries, "org.apache.kafka.tools.ProducerPerformance",
        "--topic", name, "--num-records", str(CELLS[cell]), "--record-size", str(size(cell)), "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={url}", "acks=all", "enable.idempotence=true",
        f"batch.size={BATCH_BYTES}", f"linger.ms={LINGER_MS}", f"buffer.memory={BUFFER_BYTES}", "compression.type=none",
    ])
    last = text.strip().splitlines()[-1]
    found = re.match(r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\)", last)
    if not found or int(found[1]) != CELLS[cell]:
        sys.exit(f"Kafka's producer test says: {text}")
    return {"records": int(found[1]), "records_per_s": float(found[2]), "mb_per_s": float(found[3])}


def output(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} failed: {done.stderr[-2000:]}")
    return done.stdout


def compare(rows, cell):
    """Ours over theirs, by round."""
    by_round = {}
    for row in rows:
        if row["cell"] == cell:
            by_round.setdefault(row["round"], {})[row["server"]] = row["records_per_s"]
    ratios = [pair["highwater"] / pair["kafka"] for pair in by_round.values() if len(pair) == 2]
    result = {"pairs": len(ratios), "ratios": [round(ratio, 3) for ratio in ratios]}
    if len(ratios) >= PAIRS_MIN:
        result["median"], result["low"], result["high"] = interval(ratios)
    return result


def interval(ratios):
    """The median and its confidence interval, by resampling."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    outside = (1 - CONFIDENCE) / 2
    low, high = medians[int(outside * len(medians))], medians[int((1 - outside) * len(medians)) - 1]
    return tuple(round(value, 3) for value in (statistics.median(ratios), low, high))


def write_record(arguments, rows, results):
    program = EXAMPLE.format(profile=arguments.profile)
    record = {
        "name": "kafka",
        "date": datetime.date.today().isoformat(),
        "machine": machine.describe(),
        **machine.commit(),
        "sha256": {"example": machine.digest(program), "gateway": machine.digest(arguments.gateway)},
        "kafka": "4.3.1",
        "settings": {"partitions": PARTITIONS, "linger_ms": LINGER_MS, "batch_bytes": BATCH_BYTES,
                     "buffer_bytes": BUFFER_BYTES, "acks": "all", "idempotence": True},
        "results": results,
        "rows": rows,
    }
    with open(arguments.record, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
