#!/usr/bin/env python3
"""Is anything refused that could have been answered? Bursts and waiting, as ordinary applications cause them without overload.

Pages that send many requests at once, long polls, event streams, a slow back end, random arrivals, downloads, and one
client with deadlines that no server can meet. Each under the default settings, and also under `--shed none`. Nothing may
be refused in any of them, so the exit status is 1 if anything was. Over loopback; needs no privilege.
"""

import dataclasses
import functools
import math
import os
import random
import resource
import socket
import sys
import time

sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import record
import waiting
from common import cpu_busy_s, exclusive, Failed, free_port, on_cpu_ns, Progress, shuffled
from adaptive import Gauges
from clients import OK, Clients, apart, clock, opened
from lab import Lab

EXAMPLES = """\
examples:
  bench/overload/patience.py --quick                      four minutes: everything once, and little of it
  bench/overload/patience.py --name patience              three hours, two of them heavy-tailed arrivals; kept under bench/evidence
  bench/overload/patience.py --scenarios pages,polls --seconds 600
  bench/overload/patience.py --markdown bench/evidence/X-patience.json   the table of a record, for docs/overload.md
"""

SHEDS = {"default": (), "none": ("--shed", "none")}
LIMIT, RATIO, NEEDED = "http_scaling_connection_limit", "http_scaling_demand_ratio", "http_scaling_needs_scaleout"
# The mechanisms that the server chose on this machine, with the reasons.
PARTS = ("highwater_gate_info", "highwater_transport_info", "highwater_limiter_info")
# Signals are smoothed: the effect of a cell shows only after this time.
SETTLE_S = 0.6
# Connections of the largest cells, and some for the rest of this process. The server inherits the bound.
DESCRIPTORS = 5_500
FIRST_PORT = 18_080

PAGE_REQUESTS = (6, 10, 30, 100)
PAGE_WORK_MS = (2, 5, 10, 20, 50, 100, 300)
QUICK_PAGES = ((6, 50), (30, 10), (30, 30), (100, 5), (100, 20))
PAUSE_S = 1.2
BURST_REQUESTS, BURST_WORK_US = 100, 5_000
GAPS_S = (0.5, 0.8, 1.3, 1.8, 3.3)
# Requests a second, and microseconds of each.
RANDOM = ((600, 1_000), (168, 5_000), (42, 20_000))
DOWNLOAD_BYTES = 3_000_000
# Service times of the heavy tail: a Pareto distribution between bounds, in microseconds; 1.5 ms on average.
SHAPE, LEAST_US, MOST_US = 1.5, 522, 300_000
UTILISATION = 0.7


@dataclasses.dataclass(frozen=True)
class Cell:
    """One scenario with its numbers: `act(clients)` does all of it, and returns when nothing is under way."""

    scenario: str
    case: str
    workers: int
    act: object


def main():
    options = parse_arguments()
    if options.markdown:
        print(waiting.markdown(waiting.derive(waiting.rows_of(options.markdown))))
        return
    if options.report:
        rows, head = waiting.rows_of(options.report), waiting.head_of(options.report)
    else:
        head, rows = measure(options)
    derived = waiting.derive(rows)
    print(f"\n{head['network']}; {head['machine']['cpu']}")
    print(waiting.text(derived))
    record.keep(options, head, rows, derived, {})
    sys.exit(1 if derived["refused_by_default"] or derived["failed"] else 0)


def parse_arguments():
    made = record.parser(__doc__, EXAMPLES)
    made.add_argument("--scenarios", type=lambda text: tuple(text.split(",")), metavar="A,B", help=f"of {', '.join(PLAN)} [all]")
    made.add_argument("--cases", metavar="TEXT", default="", help="only cases that have TEXT in their name, such as '100 ×'")
    made.add_argument("--seconds", type=float, help="of heavy-tailed arrivals, each setting [3600; --quick: 60]")
    made.add_argument("--sheds", choices=("both", *SHEDS), default="both", help="under which settings [%(default)s]")
    made.add_argument("--markdown", metavar="FILE", help="measure nothing; print the table of FILE for the documentation")
    options = made.parse_args()
    options.report = options.report or options.markdown
    options = record.check(made, options)
    options.scenarios = options.scenarios or tuple(PLAN)
    options.seconds = options.seconds or (60.0 if options.quick else 3600.0)
    for name in options.scenarios:
        if name not in PLAN:
            made.error(f"--scenarios {name}: not one of {', '.join(PLAN)}")
    return options


# ------------------------------------------------------------------------------------------------------- the scenarios


def pages(clients, requests, work_ms, repeats):
    """A browser opens a page, and again: so many requests at once, each on a connection of its own."""
    for beforehand, kind in ((True, "connected before"), (False, "connecting at once")):
        for _ in range(repeats):
            with opened(clients, requests, beforehand) as connections:
                began = clock()
                for connection in connections:
                    clients.ask(kind, f"/work?us={work_ms * 1000}", on=connection)
                clients.drain()
            clients.run(began + PAUSE_S)


def polls(clients, number, per_s, wait_ms, hold_s):
    """Long polls: each waits for news that never come, and asks again. Beside them, quick requests."""
    until = clock() + number / per_s + hold_s
    quick_requests(clients, until)
    grow(clients, number, per_s, lambda: clients.user("long polls", f"/sleep?ms={wait_ms}", until))
    clients.run(until)
    clients.drain()


def streams(clients, number, per_s, pause_ms, hold_s):
    """Event streams that never end, with an event now and then. Beside them, quick requests."""
    until, kind, begun = clock() + number / per_s + hold_s, "event streams", []
    quick_requests(clients, until)

    def one():
        connection = clients.connection()
        began = lambda outcome: begun.append((clock(), connection)) if outcome == OK else None
        clients.ask(kind, f"/sse?n=1000000&ms={pause_ms}", on=connection, streams=True, then=began)

    grow(clients, number, per_s, one)
    clients.run(until)
    clients.drain()
    late = 2 * pause_ms / 1e3
    for at, connection in begun:
        if connection.is_streaming and not connection.pieces and clock() - at > late:
            clients.tallies[kind].add("silent", 0)


def backend(clients, users, wait_ms, seconds):
    """A closed loop of users, all at once, behind a back end that is slow."""
    until = clock() + seconds
    for _ in range(users):
        clients.user("behind the back end", f"/sleep?ms={wait_ms}", until)
    clients.run(until)
    clients.drain()


def arrivals(clients, per_s, seconds, work_us, seed):
    """Requests at random moments (Poisson), of `work_us(prng)` each."""
    until, prng = clock() + seconds, random.Random(seed)
    gaps = iter(lambda: prng.expovariate(per_s), None)
    clients.arrive(gaps, lambda due: clients.ask("arrivals", f"/work?us={work_us(prng)}", since=due), until)
    clients.run(until)
    clients.drain()


def deadlines(clients, per_s, users, seconds):
    """One client whose deadlines have passed when it asks, beside users of a handler that waits. Its refusals are its own."""
    until = clock() + seconds
    clients.user(waiting.HOSTILE, "/sleep?ms=300", until, per_s, "Request-Timeout: 0\r\n")
    for _ in range(users):
        clients.user("others", "/sleep?ms=300", until)
    clients.run(until)
    clients.drain()


def afterwards(clients, gaps_s):
    """A burst of half a second's work for each worker's core, and a while after it began, fifty trivial requests at once."""
    for gap_s in gaps_s:
        began = clock()
        with opened(clients, BURST_REQUESTS, False) as burst:
            for connection in burst:
                clients.ask("burst", f"/work?us={BURST_WORK_US}", on=connection)
            clients.run(began + gap_s)
            with opened(clients, 50, False) as trivial:
                for connection in trivial:
                    clients.ask("trivial", "/plaintext", on=connection)
                clients.drain()
        clients.run(clock() + PAUSE_S)


def downloads(clients, users, rounds):
    """All users fetch a large file at once, each on a connection of its own. Beside them, quick requests."""
    began = clock()
    until = began + 2.0 * rounds
    quick_requests(clients, until, 50)
    for number in range(rounds):
        clients.run(began + 0.5 + 2.0 * number)
        with opened(clients, users, False) as connections:
            for connection in connections:
                clients.ask("downloads", f"/bytes?n={DOWNLOAD_BYTES}", on=connection)
            done = clients.tallies["downloads"]
            clients.run(over=lambda: sum(done.outcomes.values()) == done.asked)
    clients.run(until)
    clients.drain()


def quick_requests(clients, until, per_s=80):
    clients.arrive(apart(per_s), lambda due: clients.ask("quick requests", "/plaintext", since=due), until)


def grow(clients, number, per_s, one):
    """Calls `one()` that often, so many times a second."""
    clients.arrive(apart(per_s), lambda _due: one(), clock() + (number - 0.5) / per_s)


# ------------------------------------------------------------------------------------------------------------- the plan


def page_cells(options, _capacity):
    wanted = QUICK_PAGES if options.quick else [(requests, ms) for requests in PAGE_REQUESTS for ms in PAGE_WORK_MS]
    return [Cell("pages", f"{requests} × {ms} ms", workers, functools.partial(pages, requests=requests, work_ms=ms,
                 repeats=1 if options.quick else 3)) for workers in (1, 2) for requests, ms in wanted]


def poll_cells(options, _capacity):
    number, per_s, wait_ms, hold_s = (2000, 250, 3_000, 3) if options.quick else (5000, 50, 30_000, 30)
    return [Cell("long polls", f"to {number}, {per_s}/s", 2, functools.partial(
        polls, number=number, per_s=per_s, wait_ms=wait_ms, hold_s=hold_s))]


def stream_cells(options, _capacity):
    number, per_s, hold_s = (2000, 400, 3) if options.quick else (5000, 50, 30)
    return [Cell("event streams", f"to {number}, {per_s}/s", 2, functools.partial(
        streams, number=number, per_s=per_s, pause_ms=2_000 if options.quick else 5_000, hold_s=hold_s))]


def backend_cells(options, _capacity):
    seconds = 5 if options.quick else 30
    return [Cell("back end", "500 ms, 2000 users", 2, functools.partial(backend, users=2000, wait_ms=500, seconds=seconds))]


def heavy_cells(options, capacity):
    rate = UTILISATION * capacity * 1e6 / mean_us()
    return [Cell("heavy tail", f"70 %, {options.seconds:.0f} s", 1, functools.partial(
        arrivals, per_s=rate, seconds=options.seconds, work_us=heavy_tailed_us, seed=1))]


def random_cells(options, _capacity):
    seconds, counts = (5, (1,)) if options.quick else (60, (1, 2))
    return [Cell("arrivals", f"{per_s}/s of {us / 1000:g} ms", workers, functools.partial(
        arrivals, per_s=per_s, seconds=seconds, work_us=lambda _prng, us=us: us, seed=2)) for workers in counts for per_s, us in RANDOM]


def deadline_cells(options, _capacity):
    return [Cell("hostile deadlines", "990/s, 60 others", 2, functools.partial(
        deadlines, per_s=990, users=60, seconds=4 if options.quick else 30))]


def afterwards_cells(options, _capacity):
    gaps, counts = ((0.5, 1.3, 3.3), (1,)) if options.quick else (3 * GAPS_S, (1, 2))
    return [Cell("after a burst", "50 trivial", workers, functools.partial(afterwards, gaps_s=gaps)) for workers in counts]


def download_cells(options, _capacity):
    return [Cell("downloads", "60 × 3 MB", 2, functools.partial(downloads, users=60, rounds=1 if options.quick else 3))]


PLAN = {"pages": page_cells, "polls": poll_cells, "streams": stream_cells, "backend": backend_cells, "heavy": heavy_cells,
        "random": random_cells, "deadlines": deadline_cells, "afterwards": afterwards_cells, "downloads": download_cells}


def heavy_tailed_us(prng):
    """A service time from the bounded Pareto distribution, by inversion."""
    left = 1 - prng.random() * (1 - (LEAST_US / MOST_US) ** SHAPE)
    return round(LEAST_US * left ** (-1 / SHAPE))


def mean_us():
    """Of the same distribution."""
    share = 1 - (LEAST_US / MOST_US) ** SHAPE
    return SHAPE / (SHAPE - 1) * LEAST_US**SHAPE * (LEAST_US ** (1 - SHAPE) - MOST_US ** (1 - SHAPE)) / share


# ----------------------------------------------------------------------------------------------------------- measuring


class Loopback:
    """What a `Lab` needs of a network, without one: all are on this machine, on whatever CPU."""

    address = "127.0.0.1"

    def inside(self, _side, command):
        return ["setpriv", "--pdeathsig", "KILL", *map(str, command)]

    def connect(self, _side, port, address="127.0.0.1", timeout=2.0):
        return socket.create_connection((address, port), timeout)

    def describe(self):
        return "loopback; server and clients share all CPUs"


def measure(options):
    """Each cell under each setting, one right after the other. An interrupt ends it early; what was measured is reported."""
    allow_descriptors()
    network = Loopback()
    port = free_port(FIRST_PORT)
    lab = Lab(network, options.server, options.load, port, free_port(port + 1))
    run = record.Run("patience", options, network)
    prng = random.Random(run.seed)
    sheds = list(SHEDS) if options.sheds == "both" else [options.sheds]
    try:
        capacity = run.add(one_capacity(options, lab))["cores"] if "heavy" in options.scenarios else None
        cells = [cell for name in options.scenarios for cell in PLAN[name](options, capacity) if options.cases in cell.case]
        print(f"{len(cells)} cells; rows to {record.relative(run.path)}", file=sys.stderr)
        progress = Progress(len(cells) * len(sheds))
        for cell in cells:
            for shed in shuffled(prng, sheds):
                run.add(one_row(options, lab, cell, shed))
                progress.step(f"{cell.scenario} {cell.case}, {cell.workers} workers, {shed}")
        progress.end()
    except KeyboardInterrupt:
        print("\ninterrupted: reporting the rows so far", file=sys.stderr)
    return run.head, run.rows


def allow_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < DESCRIPTORS:
        if hard < DESCRIPTORS:
            sys.exit(f"patience.py: needs {DESCRIPTORS} descriptors, may have {hard}: raise it with ulimit -Hn as root")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def one_capacity(options, lab):
    """How many cores' worth of nominal work one worker does: less than one, because a request also has other costs. Measured
    on a separate server, because this measurement saturates it."""
    seconds, us, rates = 1.0, round(mean_us()), []
    with exclusive(options.lock), lab.serving(SHEDS["none"]), Clients(lab.network.address, lab.port) as clients:
        for attempt in range(3):
            began = clock()
            for _ in range(4):
                clients.user(attempt, f"/work?us={us}", began + seconds)
            clients.run(began + seconds)
            clients.drain()
            rates.append(clients.tallies[attempt].outcomes[OK] / (clock() - began))
    # Others on this machine can only make it less.
    best = max(rates)
    if not best:
        sys.exit("patience.py: the server answered nothing")
    return {"experiment": "capacity", "answers_per_s": list(map(round, rates)), "work_us": us, "cores": round(best * us / 1e6, 4)}


def one_row(options, lab, cell, shed):
    row = {"experiment": "patience", "scenario": cell.scenario, "case": cell.case, "workers": cell.workers, "shed": shed}
    try:
        with exclusive(options.lock), lab.serving(SHEDS[shed], cell.workers) as serving, \
                Gauges(serving, [LIMIT, RATIO, NEEDED]) as gauges, Clients(lab.network.address, lab.port) as clients:
            before = spent_s(serving)
            cell.act(clients)
            span, server, ours, all_of_us = (after - earlier for after, earlier in zip(spent_s(serving), before))
            row.update(span_s=round(span, 2), server_cpu=round(server / span, 4), client_cpu=round(ours / span, 4),
                       others_cpu=round(max(0.0, all_of_us - server - ours) / span, 4))
            row["groups"] = {kind: tally.summary() for kind, tally in clients.tallies.items()}
            time.sleep(SETTLE_S)
            metrics = serving.metrics()
            row.update(rejections=rejections(metrics), parts=[name for name in metrics if name.startswith(PARTS)])
        row.update(signals(gauges))
    # A server that dies shows up as any of these; it must not take the rest of the run with it.
    except (Failed, OSError, ValueError, KeyError) as failed:
        row["error"] = str(failed) or repr(failed)
    return row


def spent_s(serving):
    """Now; and CPU seconds: of the server, of this process, and of the whole machine."""
    machine_s = sum(map(cpu_busy_s, range(os.cpu_count())))
    return clock(), on_cpu_ns([serving.process.pid]) / 1e9, time.process_time(), machine_s


def rejections(metrics):
    """The server's count of refusals: {(layer, reason) as labels: how many}."""
    return {name.partition("{")[2].rstrip("}"): value for name, value in metrics.items()
            if name.startswith("http_rejections_total{") and value}


def signals(gauges):
    """The extremes of what an autoscaler would have read."""
    values = {name: [value for _, value in points if math.isfinite(value)] for name, points in gauges.series.items()}
    return {"needs_scaleout": max(values[NEEDED], default=None), "demand_ratio": max(values[RATIO], default=None),
            "limit_min": min(values[LIMIT], default=None), "samples": len(gauges.series[NEEDED]), "missed": gauges.missed}


if __name__ == "__main__":
    main()
