#!/usr/bin/env python3
"""How much of its peak a server keeps at 1, 2, 5 and 10 times its capacity, for each mechanism that refuses the rest.

Every cell has a fresh server on one CPU, with the kernel's receive work for it, and the load on the other CPU. Cells of a
round run in random order; capacity and the cost of a refusal are measured in every round among them, so that each figure
stands beside what the law allows (bench/overload/law.py) in the same minutes.
"""

import dataclasses
import os
import random
import sys
import time

sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import chart
import law
import netns
import record
import tables
from common import exclusive, Failed, Progress, read_rows, shuffled
from lab import MECHANISMS, Lab, Load, Soak, in_network

EXAMPLES = """\
examples:
  sudo bench/overload/stress.py --quick                      the shape, in two minutes
  sudo bench/overload/stress.py --name stress                everything, forty minutes; kept under bench/evidence
  sudo bench/overload/stress.py --sections open --mechanisms none,accept,ebpf-drop --rounds 3
  bench/overload/stress.py --report bench/results/X.jsonl    the tables of an earlier run, again
"""

SECTIONS = ("open", "closed", "keep-alive", "sweep", "overhead")
STANDARD = ("none", "app", "accept", "ebpf-reset", "ebpf-drop", "nft", "iptables")
QUICK = ("none", "accept", "ebpf-reset", "ebpf-drop")
LOADS = (1, 2, 5, 10)
CLIENTS = (64, 500, 1200, 2000, 4000)
LIMITS = (2, 8, 32, 128, 180, 256, 1024)
SWEEP_LOAD = 5
# The request queue hides the effect of a wrong limit. A target beyond all deadlines switches the queue off.
SWEEPS = {"with its queue": (), "without a queue": ("--queue-target", "10s")}
# Few enough that none waits long, enough that the server never waits for the client.
CAPACITY_CONNECTIONS = 8
# Fewer than any limit that an overload may have left behind.
PEAK_CONNECTIONS = 4
KEEP_ALIVE_REQUESTS = 10
# Refusals a second while their cost is measured: enough to lose a good part of a core, few enough that the client keeps up.
REFUSALS_PER_S = 10_000
# Below what any mechanism refuses at.
OVERHEAD_SHAPES = {
    "keep-alive, saturated": Load(path="/plaintext", connections=64, close=False),
    "connection each, saturated": Load(path="/plaintext", connections=8),
    "80 % of capacity": Load(rate=0.8),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One measurement: the mechanism in front of the server, and the load. In the open loop the rate of the load is `k`
    times what the same server can serve; elsewhere the plan says it."""

    section: str
    mechanism: str
    load: Load
    k: float = 0
    shape: str = ""
    limit: int = 0
    flags: tuple = ()

    def name(self):
        about = self.shape or (f"{self.k:g}x" if self.k else f"{self.load.connections} clients")
        return f"{self.section} {self.mechanism} {about}{f', limit {self.limit}' if self.limit else ''}"


def main():
    options = parse_arguments()
    if options.report:
        rows, heads = read_rows(options.report)
        head = heads[-1]
    else:
        head, rows = in_network(options, measure)
    derived = tables.derive(rows)
    print(f"\n{head['network']}; {head['machine']['cpu']}; {head['flags']['seconds']:g} s a cell")
    print(tables.text(derived))
    record.keep(options, head, rows, derived, chart.stress(derived))


def parse_arguments():
    made = record.parser(__doc__, EXAMPLES)
    names = lambda text: tuple(text.split(","))
    made.add_argument("--sections", type=names, metavar="A,B", help=f"of {', '.join(SECTIONS)} [all; --quick: open, sweep]")
    made.add_argument("--mechanisms", type=names, metavar="A,B", help=f"of {', '.join(MECHANISMS)} [{', '.join(STANDARD)}]")
    made.add_argument("--rounds", type=int, help="of the open loop [3; --quick: 1]; the other sections have one, overhead 7")
    made.add_argument("--work-us", type=int, default=1000, help="of CPU a request [%(default)s]")
    made.add_argument("--seconds", type=float, help="measured, each cell [4; --quick: 2]")
    made.add_argument("--warmup", type=float, help="seconds before that [2; --quick: 1.5]")
    made.add_argument("--limit", type=int, default=0, help="of connections with work, for all mechanisms [each finds its own]")
    options = record.check(made, made.parse_args())
    quick = options.quick
    options.sections = options.sections or (("open", "sweep") if quick else SECTIONS)
    options.mechanisms = options.mechanisms or (QUICK if quick else STANDARD)
    options.rounds = options.rounds or (1 if quick else 3)
    options.seconds = options.seconds or (2.0 if quick else 4.0)
    options.warmup = options.warmup or (1.5 if quick else 2.0)
    for flag, given, known in (("--sections", options.sections, SECTIONS), ("--mechanisms", options.mechanisms, MECHANISMS)):
        for name in given:
            if name not in known:
                made.error(f"{flag} {name}: not one of {', '.join(known)}")
    return options


# ------------------------------------------------------------------------------------------------------------- the plan


def plan(options, capacity):
    """The cells of each round, before they are shuffled: a list of lists."""
    base = Load(path=f"/work?us={options.work_us}", warmup_s=options.warmup, seconds=options.seconds)
    rounds = [open_cells(options, base, capacity) for _ in range(options.rounds if "open" in options.sections else 1)]
    for section, cells in (("closed", closed_cells), ("keep-alive", keep_alive_cells), ("sweep", sweep_cells)):
        if section in options.sections:
            # Spread over the rounds, so that no section depends on one minute.
            for number, cell in enumerate(cells(options, base, capacity)):
                rounds[number % len(rounds)].append(cell)
    if "overhead" in options.sections:
        rounds += [overhead_cells(options, base, capacity) for _ in range(2 if options.quick else 7)]
    return rounds


def capacity_cell(base):
    return Cell("capacity", "none", dataclasses.replace(base, connections=CAPACITY_CONNECTIONS, warmup_s=0.5))


def open_cells(options, base, _capacity):
    cells = [capacity_cell(base), capacity_cell(base)]
    if "open" not in options.sections:
        return cells
    for name in options.mechanisms:
        cells += [Cell("open", name, dataclasses.replace(base, rate=k), k, limit=options.limit) for k in LOADS]
        if name != "none":
            cells.append(Cell("refusal", name, dataclasses.replace(base, rate=REFUSALS_PER_S, warmup_s=0.5, seconds=2.0), limit=1,
                              shape="all refused"))
    return cells


def closed_cells(options, base, _capacity):
    return [Cell("closed", name, dataclasses.replace(base, connections=clients), limit=options.limit)
            for name in options.mechanisms for clients in CLIENTS]


def keep_alive_cells(options, base, capacity):
    return [Cell("keep-alive", name, dataclasses.replace(base, rate=k * capacity, close=False,
                                                         requests_per_connection=KEEP_ALIVE_REQUESTS), k, limit=options.limit)
            for name in options.mechanisms for k in LOADS]


def sweep_cells(options, base, capacity):
    gate = next((name for name in ("ebpf-reset", "ebpf", "accept", "app") if name in options.mechanisms), None)
    load = dataclasses.replace(base, rate=SWEEP_LOAD * capacity)
    if not gate:
        return []
    return [Cell("sweep", gate, load, SWEEP_LOAD, shape, limit, flags) for shape, flags in SWEEPS.items() for limit in LIMITS]


def overhead_cells(options, base, capacity):
    cells = []
    for shape, load in OVERHEAD_SHAPES.items():
        load = dataclasses.replace(load, rate=load.rate * capacity, warmup_s=0.5, seconds=2.0)
        cells += [Cell("overhead", name, load, shape=shape) for name in options.mechanisms]
    return cells


# ----------------------------------------------------------------------------------------------------------- measuring


def measure(options, network):
    """Runs the rounds. An interrupt ends them early; what was measured is reported."""
    lab = Lab(network, options.server, options.load)
    run = record.Run("stress", options, network)
    prng, unable = random.Random(run.seed), set()
    base = Load(path=f"/work?us={options.work_us}", warmup_s=0.5, seconds=2.0)
    try:
        capacity = calibrate(options, lab, run, base)
        rounds = plan(options, capacity)
        progress = Progress(sum(map(len, rounds)))
        for number, cells in enumerate(rounds):
            for cell in shuffled(prng, cells):
                if cell.mechanism not in unable:
                    row = run.add(one_row(options, lab, cell, number))
                    if "error" in row and row.get("stage") == "start":
                        unable.add(cell.mechanism)
                        print(f"\nskipping {cell.mechanism}: {row['error']}", file=sys.stderr)
                progress.step(f"round {number + 1}/{len(rounds)} {cell.name()}")
        progress.end()
    except KeyboardInterrupt:
        print("\ninterrupted: reporting the rows so far", file=sys.stderr)
    return run.head, run.rows


def calibrate(options, lab, run, base):
    """Answers a second at saturation: what 1x means in this run."""
    row = run.add(one_row(options, lab, capacity_cell(base), -1))
    if "error" in row:
        sys.exit(f"stress.py: {row['error']}")
    capacity = row["load"]["goodput_per_s"]
    print(f"capacity {capacity:.0f} answers/s; rows to {record.relative(run.path)}", file=sys.stderr)
    return capacity


def one_row(options, lab, cell, number):
    row = {"experiment": cell.section, "round": number, "mechanism": cell.mechanism, "k": cell.k, "shape": cell.shape,
           "limit": cell.limit, "asked": dataclasses.asdict(cell.load), "stage": "start"}
    try:
        with exclusive(options.lock), lab.serving(
                [*MECHANISMS[cell.mechanism].argv(cell.limit), *cell.flags]) as serving:
            row["stage"] = "load"
            how = {"open": measure_beside_peak, "refusal": measure_refusal, "overhead": measure_lost}.get(cell.section, Lab.measure)
            row.update(how(lab, serving, cell.load))
    # A server that dies shows up as any of these; it must not take the rest of the run with it.
    except (Failed, OSError, ValueError, KeyError) as failed:
        row["error"] = str(failed) or repr(failed)
    return row


def measure_beside_peak(lab, serving, load):
    """A measurement between two measurements of what the same server can serve at that time: speeds drift by some percent
    from one process and minute to the next. `load.rate` is a multiple of that."""
    peak = dataclasses.replace(load, rate=0, connections=PEAK_CONNECTIONS, warmup_s=0.2, seconds=1.0)
    before = lab.measure(serving, peak)["load"]["goodput_per_s"]
    load = dataclasses.replace(load, rate=load.rate * before)
    measured = lab.measure(serving, load)
    after = lab.measure(serving, peak)["load"]["goodput_per_s"]
    return {**measured, "asked": dataclasses.asdict(load), "peaks_per_s": [before, after]}


def measure_refusal(lab, serving, load):
    """With the only place taken, every connection is refused; measures the CPU time that this takes."""
    with lab.network.connect("client", 8080, lab.network.address) as holder:
        holder.sendall(b"GET /sleep?ms=60000 HTTP/1.1\r\nHost: server\r\n\r\n")
        return measure_lost(lab, serving, load)


def measure_lost(lab, serving, load):
    """A measurement with the share of the server's CPU that it took, measured by a loop with the lowest priority."""
    with Soak(lab.network) as soak:
        idle_from = time.monotonic() + 0.3
        time.sleep(0.8)
        began = time.monotonic() + load.warmup_s
        idle_to = time.monotonic()
        measured = lab.measure(serving, load)
        time.sleep(0.5)
        # The generator needs a moment to start, and stops on time.
        loaded = soak.share(began + 0.1, began + load.seconds - 0.1)
        idle = soak.share(idle_from, idle_to)
    return {**measured, "soak": {"idle_share": round(idle, 5), "loaded_share": round(loaded, 5)}}


if __name__ == "__main__":
    main()
