#!/usr/bin/env python3
"""When does a server ask to be scaled out: how soon after an overload begins, and ever without one?

Each run is a fresh server with its default settings: half of its capacity at first, then the load in question. The signals
are read four times a second, as an autoscaler would read them. 80 % of capacity is held for ten minutes: no alarm is
allowed there.
"""

import os
import random
import sys

sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import chart
import law
import record
from common import exclusive, Failed, Progress, read_rows, shuffled
from adaptive import Gauges, calibrate, seconds_text
from lab import MECHANISMS, Lab, Load, in_network

EXAMPLES = """\
examples:
  sudo bench/overload/scaling.py --quick                 two minutes; 80 % is held for half a minute only
  sudo bench/overload/scaling.py --name scaling          a quarter of an hour; kept under bench/evidence
"""

LOADS = (0.5, 0.8, 1.0, 2.0, 10.0)
# Held long, because an alarm here would add a machine without need.
CALM = 0.8
BEFORE = 0.5
RATIO, NEEDED = "http_scaling_demand_ratio", "http_scaling_needs_scaleout"


def main():
    options = parse_arguments()
    if options.report:
        rows, heads = read_rows(options.report)
        head = heads[-1]
    else:
        head, rows = in_network(options, measure)
    derived = derive(rows)
    print(f"\n{head['network']}; {head['machine']['cpu']}")
    print(text(derived))
    record.keep(options, head, rows, derived, charts(rows))


def parse_arguments():
    made = record.parser(__doc__, EXAMPLES)
    made.add_argument("--mechanism", choices=MECHANISMS, default="ebpf", help="what refuses the excess [%(default)s]")
    made.add_argument("--loads", type=lambda text: tuple(map(float, text.split(","))), default=LOADS, metavar="K,K",
                      help=f"times capacity [{','.join(map(str, LOADS))}]")
    made.add_argument("--work-us", type=int, default=1000, help="of CPU a request [%(default)s]")
    options = record.check(made, made.parse_args())
    options.before_s = 3.0 if options.quick else 10.0
    options.during_s = 10.0 if options.quick else 30.0
    options.calm_s = 30.0 if options.quick else 600.0
    return options


def measure(options, network):
    """Runs each load once. An interrupt ends it early; what was measured is reported."""
    lab, run = Lab(network, options.server, options.load), record.Run("scaling", options, network)
    prng = random.Random(run.seed)
    try:
        capacity = calibrate(options, lab, run)
        print(f"capacity {capacity:.0f} answers/s; rows to {record.relative(run.path)}", file=sys.stderr)
        progress = Progress(len(options.loads))
        for k in shuffled(prng, options.loads):
            run.add(one_row(options, lab, k, capacity))
            progress.step(f"{k:g}x")
        progress.end()
    except KeyboardInterrupt:
        print("\ninterrupted: reporting the rows so far", file=sys.stderr)
    return run.head, run.rows


def one_row(options, lab, k, capacity):
    row = {"experiment": "scaling", "k": k, "capacity_per_s": capacity}
    seconds = options.calm_s if k == CALM else options.during_s
    try:
        with exclusive(options.lock), lab.serving(MECHANISMS[options.mechanism].argv()) as serving, \
                Gauges(serving, [RATIO, NEEDED]) as gauges:
            loads = [Load(path=f"/work?us={options.work_us}", rate=share * capacity, warmup_s=0, seconds=seconds)
                     for share, seconds in ((BEFORE, options.before_s), (k, seconds))]
            _, (load, began, report) = lab.chained(loads)
            onset = began - gauges.began
            row.update(onset_s=round(onset, 3), end_s=round(onset + load.seconds, 3), load=report)
        row.update(ratios=gauges.series[RATIO], needed=gauges.series[NEEDED], missed=gauges.missed)
    except (Failed, OSError, ValueError, KeyError) as failed:
        row["error"] = str(failed) or repr(failed)
    return row


# ------------------------------------------------------------------------------------------------------------- meaning


def derive(rows):
    result = []
    for row in sorted((row for row in rows if row["experiment"] == "scaling" and "error" not in row), key=lambda row: row["k"]):
        onset, end = row["onset_s"], row["end_s"]
        half = (onset + end) / 2
        result.append({
            "k": row["k"], "held_s": round(end - onset, 1),
            "demand_ratio": law.median([value for at, value in row["ratios"] if half <= at < end]),
            "raised_after_s": law.raised_after(row["needed"], onset),
            "raised_before_onset": law.false_alarms(row["needed"], 0, onset), "alarms": law.false_alarms(row["needed"], onset, end),
            "samples": len(row["needed"]), "missed": row["missed"], "goodput_per_s": row["load"]["goodput_per_s"],
        })
    return {"loads": result, "failed": [f"{row.get('k')}x: {row['error']}" for row in rows if "error" in row]}


def text(derived):
    lines = [f"{'load':>6}{'held':>8}{'demand ratio':>14}{'raised after':>14}{'alarms':>8}{'before onset':>14}{'missed':>8}"]
    for one in derived["loads"]:
        ratio = "-" if one["demand_ratio"] is None else f"{one['demand_ratio']:.2f}"
        lines.append(f"{one['k']:>5g}x{one['held_s']:>6.0f} s{ratio:>14}{seconds_text(one['raised_after_s']):>14}{one['alarms']:>8}"
                     f"{one['raised_before_onset']:>14}{one['missed']:>8}")
    return "\n".join([*lines, *(f"failed: {one}" for one in derived["failed"])])


def charts(rows):
    """The demand ratio over time, from the onset of each load."""
    counted = sorted((row for row in rows if row["experiment"] == "scaling" and "error" not in row), key=lambda row: row["k"])
    if not counted:
        return {}
    shortest = min(row["end_s"] - row["onset_s"] for row in counted)
    since = lambda points, row: [(at - row["onset_s"], value) for at, value in points if -5 <= at - row["onset_s"] <= shortest]
    series = [chart.Series(f"{row['k']:g}x", since(row["ratios"], row), marks=False) for row in counted]
    needed = [chart.Series(f"{row['k']:g}x", since(row["needed"], row), marks=False) for row in counted]
    return {
        "demand": chart.lines("What the server says is asked of it", "seconds since the load began", "demand ratio", series,
                              subtitle="demand over what one server can sustain; not capped at 1", events=[(0, "onset")]),
        "needs-scaleout": chart.lines("When it asks for another server", "seconds since the load began", "needs_scaleout", needed,
                                      events=[(0, "onset")]),
    }


if __name__ == "__main__":
    main()
