#!/usr/bin/env python3
"""How soon each limiter is as good as the best fixed limit: after the start, a tenfold step, and when capacity halves.

Every run is a fresh server under the same phases of load; the limiters and several fixed limits take turns in random
order. The client reports ten times a second how many answers came in time, and the server four times a second its
limit. In each phase the limiters are compared with the best of the fixed limits.
"""

import dataclasses
import os
import random
import statistics
import sys
import threading
import time

sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import chart
import law
import record
from common import exclusive, Failed, Progress, read_rows, shuffled
from lab import MECHANISMS, Lab, Load, in_network

EXAMPLES = """\
examples:
  sudo bench/overload/adaptive.py --quick                  two minutes
  sudo bench/overload/adaptive.py --name adaptive          a quarter of an hour; kept under bench/evidence
  sudo bench/overload/adaptive.py --limiters gradient --fixed 8,16 --mechanism accept
"""

LIMITERS = ("gradient", "aimd", "hill-climb")
FIXED = (4, 8, 16, 32, 64)
SAMPLES_PER_S = 4
STEP_MS = 100
# Goodput at a moment is the mean over this time before it, so a convergence time includes this time.
WINDOW_S = 0.3
# The end of a phase, where its last point is incomplete.
CUT_S = 0.15


@dataclasses.dataclass(frozen=True)
class Phase:
    """A load for a while: `k` times the capacity that the run began with, and how much work a request is."""

    name: str
    k: float
    seconds: float
    work: float = 1


PHASES = (
    Phase("start at 2x", 2, 10), Phase("down to 0.8x", 0.8, 5), Phase("tenfold, 8x", 8, 10), Phase("down to 0.8x again", 0.8, 5),
    Phase("2x", 2, 5), Phase("capacity halves, 4x", 2, 10, work=2), Phase("capacity is back, 2x", 2, 5),
)
QUICK_PHASES = (Phase("start at 2x", 2, 6), Phase("down to 0.8x", 0.8, 3), Phase("tenfold, 8x", 8, 6),
                Phase("capacity halves, 4x", 2, 6, work=2))


def main():
    options = parse_arguments()
    if options.report:
        rows, heads = read_rows(options.report)
        head = heads[-1]
    else:
        head, rows = in_network(options, measure)
    derived = derive(rows)
    print(f"\n{head['network']}; {head['machine']['cpu']}; gate {head['flags']['mechanism']}")
    print(text(derived))
    record.keep(options, head, rows, derived, charts(rows, derived))


def parse_arguments():
    made = record.parser(__doc__, EXAMPLES)
    names = lambda text: tuple(text.split(","))
    numbers = lambda text: tuple(map(int, text.split(",")))
    made.add_argument("--limiters", type=names, metavar="A,B", help=f"[{', '.join(LIMITERS)}; --quick: gradient]")
    made.add_argument("--fixed", type=numbers, metavar="N,N", help=f"[{','.join(map(str, FIXED))}; --quick: 8,16]")
    made.add_argument("--mechanism", choices=MECHANISMS, default="ebpf", help="what enforces the limit [%(default)s]")
    made.add_argument("--rounds", type=int, help="[2; --quick: 1]")
    made.add_argument("--work-us", type=int, default=1000, help="of CPU a request, until capacity halves [%(default)s]")
    options = record.check(made, made.parse_args())
    options.limiters = options.limiters or (("gradient",) if options.quick else LIMITERS)
    options.fixed = options.fixed or ((8, 16) if options.quick else FIXED)
    options.rounds = options.rounds or (1 if options.quick else 2)
    return options


# ----------------------------------------------------------------------------------------------------------- measuring


def measure(options, network):
    """Runs the rounds. An interrupt ends them early; what was measured is reported."""
    lab, run = Lab(network, options.server, options.load), record.Run("adaptive", options, network)
    prng = random.Random(run.seed)
    phases = QUICK_PHASES if options.quick else PHASES
    subjects = [*options.limiters, *(f"fixed {limit}" for limit in options.fixed)]
    try:
        capacity = calibrate(options, lab, run)
        print(f"capacity {capacity:.0f} answers/s; rows to {record.relative(run.path)}", file=sys.stderr)
        progress = Progress(options.rounds * len(subjects))
        for number in range(options.rounds):
            for subject in shuffled(prng, subjects):
                run.add(one_row(options, lab, subject, phases, capacity, number))
                progress.step(f"round {number + 1}/{options.rounds} {subject}")
        progress.end()
    except KeyboardInterrupt:
        print("\ninterrupted: reporting the rows so far", file=sys.stderr)
    return run.head, run.rows


def calibrate(options, lab, run):
    load = Load(path=f"/work?us={options.work_us}", connections=8, warmup_s=0.5, seconds=2)
    with exclusive(options.lock), lab.serving(MECHANISMS["none"].argv()) as serving:
        measured = lab.measure(serving, load)
    return run.add({"experiment": "capacity", **measured})["load"]["goodput_per_s"]


def one_row(options, lab, subject, phases, capacity, number):
    row = {"experiment": "adaptive", "round": number, "subject": subject, "capacity_per_s": capacity, "phases": []}
    kind, _, limit = subject.partition(" ")
    flags = [*MECHANISMS[options.mechanism].flags, "--limiter", kind, *(["--connection-limit", limit] if limit else [])]
    try:
        with exclusive(options.lock), lab.serving(flags) as serving, Gauges(serving, ["http_scaling_connection_limit"]) as gauges:
            loads = [phase_load(options, phase, capacity) for phase in phases]
            for phase, (_, began, report) in zip(phases, lab.chained(loads)):
                row["phases"].append(one_phase(phase, began - gauges.began, report))
        row["limits"] = gauges.series["http_scaling_connection_limit"]
    except (Failed, OSError, ValueError, KeyError) as failed:
        row["error"] = str(failed) or repr(failed)
    return row


def phase_load(options, phase, capacity):
    return Load(path=f"/work?us={options.work_us * phase.work:.0f}", rate=phase.k * capacity, warmup_s=0, seconds=phase.seconds,
                step_ms=STEP_MS)


def one_phase(phase, begin, report):
    # A point counts for the moment at which it ends.
    goodput = [[round(begin + point["t"] + STEP_MS / 1e3, 3), point["goodput"] / STEP_MS * 1e3] for point in report.pop("series")]
    return {**dataclasses.asdict(phase), "begin_s": round(begin, 3), "end_s": round(begin + phase.seconds, 3), "load": report,
            "goodput": goodput}


class Gauges:
    """Some of a server's gauges, several times a second while this is entered: {name: [[second, value]]}."""

    def __init__(self, serving, names, per_s=SAMPLES_PER_S):
        self.serving, self.per_s = serving, per_s
        self.series = {name: [] for name in names}
        self.missed = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self):
        self.began = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def _sample(self):
        due = self.began
        while not self.over.wait(max(0.0, due - time.monotonic())):
            due += 1 / self.per_s
            try:
                metrics = self.serving.metrics()
            # An overloaded server that does not answer here is a gap in the series, which the record shows.
            except (Failed, OSError):
                self.missed += 1
                continue
            at = round(time.monotonic() - self.began, 3)
            for name, points in self.series.items():
                if name in metrics:
                    points.append([at, metrics[name]])


# ------------------------------------------------------------------------------------------------------------ meaning


def derive(rows):
    """Per phase the best fixed limit and its goodput; per limiter and phase how soon it is as good, and how it swings."""
    counted = [row for row in rows if row["experiment"] == "adaptive" and "error" not in row]
    names = [phase["name"] for phase in counted[0]["phases"]] if counted else []
    phases = []
    for index, name in enumerate(names):
        steady = {}
        for row in counted:
            if row["subject"].startswith("fixed"):
                steady.setdefault(row["subject"], []).append(settled(row["phases"][index]))
        best = max(steady, key=lambda subject: statistics.median(steady[subject]), default=None)
        phases.append({"phase": name, "best": best, "goodput_per_s": best and statistics.median(steady[best])})
    subjects = []
    for subject in dict.fromkeys(row["subject"] for row in counted):
        for index, mark in enumerate(phases):
            runs = [judge(row, index, mark["goodput_per_s"]) for row in counted if row["subject"] == subject]
            subjects.append({"subject": subject, "phase": mark["phase"], "runs": runs, "share": middle(runs, "share"),
                             # One run that never converges is the result, however quick the others were.
                             "converged_s": None if any(run["converged_s"] is None for run in runs)
                             else max(run["converged_s"] for run in runs), "swing": middle(runs, "swing"),
                             "limit": middle(runs, "limit")})
    return {"phases": phases, "subjects": subjects, "failed": [
        f"{row['subject']}: {row['error']}" for row in rows if "error" in row]}


def middle(runs, field):
    return law.median([run[field] for run in runs])


def settled(phase):
    """Mean goodput in the second half of a phase."""
    half = (phase["begin_s"] + phase["end_s"]) / 2
    values = [value for at, value in phase["goodput"] if half <= at < phase["end_s"] - CUT_S]
    return statistics.fmean(values) if values else 0.0


def judge(row, index, mark):
    phase = row["phases"][index]
    begin, end = phase["begin_s"], phase["end_s"] - CUT_S
    half = (begin + end) / 2
    series = law.smoothed(phase["goodput"], WINDOW_S)
    return {
        "share": settled(phase) / mark if mark else None,
        "converged_s": law.converged_after(series, begin, end, mark) if mark else None,
        "swing": law.oscillation(series, half, end),
        "limit": law.median([value for at, value in row["limits"] if half <= at < end]),
    }


def text(derived):
    lines = [f"{'':<12}{'phase':<24}{'of best':>9}{'converged':>11}{'swing':>8}{'limit':>8}"]
    for mark in derived["phases"]:
        lines.append(f"-- {mark['phase']}: best is {mark['best']}, {mark['goodput_per_s'] or 0:.0f}/s")
        for one in derived["subjects"]:
            if one["phase"] == mark["phase"]:
                lines.append(f"{one['subject']:<36}{share_text(one['share']):>9}{seconds_text(one['converged_s']):>11}"
                             f"{share_text(one['swing']):>8}{'-' if one['limit'] is None else format(one['limit'], '.0f'):>8}")
    return "\n".join([*lines, *(f"failed: {one}" for one in derived["failed"])])


def share_text(value):
    return "-" if value is None else f"{value:.1%}"


def seconds_text(value):
    return "never" if value is None else f"{value:.1f} s"


def charts(rows, derived):
    """Goodput and limit over time, of the first round."""
    counted = [row for row in rows if row["experiment"] == "adaptive" and "error" not in row and row["round"] == 0]
    if not counted:
        return {}
    marks = {mark["best"] for mark in derived["phases"]}
    shown = [row for row in counted if not row["subject"].startswith("fixed") or row["subject"] in marks]
    events = [(phase["begin_s"], phase["name"]) for phase in counted[0]["phases"]]
    goodput = [chart.Series(row["subject"], law.smoothed([point for phase in row["phases"] for point in phase["goodput"]], WINDOW_S),
                            marks=False) for row in shown]
    limits = [chart.Series(row["subject"], row["limits"], marks=False) for row in shown]
    return {
        "goodput": chart.lines("Goodput while load and capacity change", "seconds", "answers within 200 ms, per second", goodput,
                               events=events, subtitle=f"means over {WINDOW_S} s; the best fixed limits beside the limiters"),
        "limit": chart.lines("The limit they find", "seconds", "connections with work", limits, events=events,
                             y_max=4 * max((value for row in shown if row["subject"].startswith("fixed") for _, value in row["limits"]),
                                           default=64), subtitle="what is above the top is cut off"),
    }


if __name__ == "__main__":
    main()
