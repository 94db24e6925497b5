"""Evaluates the rows of a run: which of them count, which may be compared, and how certain the comparison is.

Pure functions over dictionaries: no clock, no files, no processes. A row is one measurement of one server in one cell
of one round; `run.py` writes them, the fields are those of `loadgen` plus `run`, `round`, `cell`, `server`, `c2c_ns`.
"""

import collections
import random
import statistics

# A cache line's round trip between the two CPUs, ns. Measured on a shared VM: 50 to 130 while the host keeps them on
# cores with a common cache, 320 and more while it does not, and every server's cost differs by a third between the two.
NEAR_BELOW_NS = 150
FAR_ABOVE_NS = 250
# Share of the server's or the client's CPU that something else may have used, and seconds of it on top: the kernel's reading of a CPU
# has 10 ms ticks, so either end of a short row can be off by one.
FOREIGN_MAX = 0.10
FOREIGN_SLACK_S = 0.02
# With fewer pairs a confidence interval would be meaningless.
PAIRS_MIN = 5
RESAMPLES = 10_000
CONFIDENCE = 0.95
# Beyond these the generator, not the server, was the bottleneck.
CLIENT_BUSY = 0.90
SERVER_SATURATED = 0.95

COST = "server_cpu_us_per_request"


def placement(row):
    """'near' or 'far' if the CPUs were so both before and after the row, else None."""
    trips = row.get("c2c_ns") or [None]
    if None in trips:
        return None
    if all(ns < NEAR_BELOW_NS for ns in trips):
        return "near"
    if all(ns > FAR_ABOVE_NS for ns in trips):
        return "far"
    return None


def rejection(row):
    """Why a row does not count, or None if it does."""
    if row.get("errors") or row.get("error") or not row.get(COST):
        return "error"
    foreign_max = FOREIGN_MAX + FOREIGN_SLACK_S / row["seconds"]
    # A disturbed client counts too: it sends smaller batches, and those cost a server more per request.
    for whose in ("server", "client"):
        if row.get(f"foreign_on_{whose}_cpu", 0) > foreign_max:
            return f"another process used the {whose}'s CPU"
    if placement(row) is None:
        return "CPUs moved, or neither near nor far"
    return None


def paired_ratios(rows, cell, server, baseline):
    """The ratios of requests per core-second, `server` over `baseline`, one for each round in which both were measured
    under the same placement: a list of (placement, ratio)."""
    by_round = collections.defaultdict(dict)
    for row in rows:
        if row["cell"] == cell and row["server"] in (server, baseline) and rejection(row) is None:
            by_round[row["run"], row["round"]][row["server"]] = row
    pairs = []
    for rows_of_round in by_round.values():
        ours, theirs = rows_of_round.get(server), rows_of_round.get(baseline)
        if ours and theirs and placement(ours) == placement(theirs):
            pairs.append((placement(ours), theirs[COST] / ours[COST]))
    return pairs


def bootstrap_median(values, seed=0):
    """The percentile bootstrap's confidence interval of the median as (low, high), or None for too few values."""
    if len(values) < PAIRS_MIN:
        return None
    prng = random.Random(seed)
    medians = sorted(statistics.median(prng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return medians[int(tail * RESAMPLES)], medians[int((1 - tail) * RESAMPLES) - 1]


def compare(rows, cell, server, baseline):
    """One comparison, as the evidence keeps it. `speed` is requests per core-second over the baseline's, `cost` its
    inverse: CPU per request over the baseline's."""
    pairs = paired_ratios(rows, cell, server, baseline)
    ratios = [ratio for _, ratio in pairs]
    if not ratios:
        return {"cell": cell, "server": server, "baseline": baseline, "pairs": 0}
    interval = bootstrap_median(ratios)
    split = {}
    for where in ("near", "far"):
        values = [ratio for at, ratio in pairs if at == where]
        if values:
            split[where] = {"pairs": len(values), "speed": round(statistics.median(values), 4)}
    median = statistics.median(ratios)
    return {
        "cell": cell,
        "server": server,
        "baseline": baseline,
        "pairs": len(ratios),
        "speed": round(median, 4),
        "speed_ci95": interval and [round(bound, 4) for bound in interval],
        "cost": round(1 / median, 4),
        "cost_ci95": interval and [round(1 / bound, 4) for bound in reversed(interval)],
        "by_placement": split,
    }


def summary(rows, cell, server):
    """Medians of one server in one cell, for the rows that count."""
    counted = [row for row in rows if (row["cell"], row["server"]) == (cell, server) and rejection(row) is None]

    def median(field, chosen=counted):
        values = [row[field] for row in chosen if field in row]
        return statistics.median(values) if values else None

    cost = {}
    for where in ("near", "far"):
        chosen = [row for row in counted if placement(row) == where]
        if chosen:
            cost[where] = {"rows": len(chosen), "median": round(median(COST, chosen), 4)}
    return {
        "cell": cell,
        "server": server,
        "rows": len(counted),
        "cpu_us_per_request": cost,
        "requests_per_core_second": median("requests_per_core_second"),
        "rps": median("rps"),
        "p50_us": median("p50_us"),
        "p99_us": median("p99_us"),
        "server_utilisation": median("server_utilisation"),
        "client_utilisation": median("client_utilisation"),
    }


def rejected(rows):
    """How many rows do not count, by reason."""
    return dict(collections.Counter(reason for reason in map(rejection, rows) if reason))


def warnings(rows):
    """Sentences about causes that make figures weaker than they look."""
    found = []
    for cell, server in sorted({(row["cell"], row["server"]) for row in rows}):
        one = summary(rows, cell, server)
        client, busy = one["client_utilisation"], one["server_utilisation"]
        if client and busy and client >= CLIENT_BUSY and busy < SERVER_SATURATED:
            found.append(f"{cell}/{server}: the client was {client:.0%} busy and the server only {busy:.0%}: "
                         "requests per second are the client's; CPU per request still is the server's")
        failed = [row for row in rows if (row["cell"], row["server"]) == (cell, server) and row.get("error")]
        if failed:
            found.append(f"{cell}/{server}: {len(failed)} failed: {failed[-1]['error']}")
    for reason, count in rejected(rows).items():
        if reason.startswith("another process"):
            found.append(f"{count} rows dropped because {reason}: stop it, or let it honour --lock")
    return found


def derive(rows, baselines):
    """Everything the table and the evidence say about `rows`."""
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    servers = sorted({row["server"] for row in rows})
    comparisons = [
        compare(rows, cell, server, baseline)
        for cell in cells for server in servers for baseline in baselines
        if server != baseline and baseline in servers
    ]
    return {
        "summaries": [summary(rows, cell, server) for cell in cells for server in servers],
        "comparisons": comparisons,
        "rows": len(rows),
        "rejected": rejected(rows),
        "warnings": warnings(rows),
    }


def table(derived, baselines):
    """`derived` as text: one block a cell, the cheapest server first."""
    lines = []
    ratios = {(one["cell"], one["server"], one["baseline"]): one for one in derived["comparisons"]}
    shown = [name for name in baselines if any(one["server"] == name for one in derived["summaries"])]
    for cell in dict.fromkeys(one["cell"] for one in derived["summaries"]):
        heads = "".join(f"  {'req/core-s vs ' + name:>30}" for name in shown)
        lines += ["", f"{cell:<18}{'CPU us/req near':>17}{'far':>13}{heads}{'server':>8}{'client':>7}{'p50':>7}{'p99':>7} us"]
        of_cell = [one for one in derived["summaries"] if one["cell"] == cell]
        for one in sorted(of_cell, key=_cheapest_first):
            against = "".join("  " + _ratio(ratios.get((cell, one["server"], name))) for name in shown)
            lines.append(f"  {one['server']:<16}{_cost(one, 'near'):>17}{_cost(one, 'far'):>13}{against}"
                         f"{_percent(one['server_utilisation']):>8}{_percent(one['client_utilisation']):>7}"
                         f"{_whole(one['p50_us']):>7}{_whole(one['p99_us']):>7}")
    reasons = ", ".join(f"{count} {reason}" for reason, count in derived["rejected"].items())
    lines += ["", f"{derived['rows']} rows, rejected: {reasons or 'none'}"]
    lines += [f"warning: {text}" for text in derived["warnings"]]
    return "\n".join(lines)


def _cheapest_first(one):
    cost = one["cpu_us_per_request"]
    return min((of["median"] for of in cost.values()), default=float("inf"))


def _cost(one, where):
    cost = one["cpu_us_per_request"].get(where)
    return f"{cost['median']:.3f} ({cost['rows']})" if cost else "-"


def _ratio(one):
    if not one or not one["pairs"]:
        return f"{'-':>30}"
    interval = one["speed_ci95"]
    spread = f"[{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "[too few pairs]"
    return f"{one['speed']:.3f} {spread} n={one['pairs']}".rjust(30)


def _percent(value):
    return "-" if value is None else f"{value:.0%}"


def _whole(value):
    return "-" if value is None else f"{value:,.0f}"
