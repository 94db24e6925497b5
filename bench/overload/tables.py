"""The results of `stress.py`: medians over the rounds, each beside what the law allows, as data and as text.

In the open loop a row contains the peak of its own server, measured before and after it.

Pure: rows in, dictionaries and text out. A row counts unless it failed; a row whose load was itself the bottleneck counts
and is warned of, because it can only make a server look worse.
"""

import collections

import law
import common

# The requirement: no further below the law than this share of the peak.
LAW_TOLERANCE = 0.03
# A server without protection still answers abandoned requests when its load has ended: that rate is not its peak.
AFTER_MIN = 0.8


def derive(rows):
    """Everything that is concluded, by section."""
    counted = [row for row in rows if "error" not in row]
    peak = law.median(row["load"]["goodput_per_s"] for row in of(counted, "capacity"))
    costs = refusal_costs(counted)
    return {
        "peak_per_s": peak, "peak_spread": law.spread([row["load"]["goodput_per_s"] for row in of(counted, "capacity")]),
        "refusal_us": costs,
        "open": open_loop(counted, peak, costs),
        "closed": [figures(key, group, peak) for key, group in grouped(of(counted, "closed"), closed_key)],
        "keep_alive": [figures(key, group, peak) for key, group in grouped(of(counted, "keep-alive"), open_key)],
        "sweep": [figures(key, group, peak) for key, group in grouped(of(counted, "sweep"), sweep_key)],
        "overhead": overhead(counted),
        "gates": {row["mechanism"]: gate(row) for row in counted if row["experiment"] in ("open", "closed")},
        "failed": failures(rows), "warnings": warnings(counted),
    }


def of(rows, experiment):
    return [row for row in rows if row["experiment"] == experiment]


def open_key(row):
    return {"mechanism": row["mechanism"], "k": row["k"]}


def closed_key(row):
    return {"mechanism": row["mechanism"], "clients": row["asked"]["connections"]}


def sweep_key(row):
    return {"mechanism": row["shape"], "limit": row["limit"]}


def grouped(rows, key):
    """(key, rows) in the order in which the keys sort, mechanisms as they first appear."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[tuple(key(row).items())].append(row)
    return [(dict(name), groups[name]) for name in sorted(groups)]


def refusal_costs(rows):
    """CPU per refused connection by mechanism, in us: [least, median, greatest] of the rounds."""
    costs = {}
    for key, group in grouped(of(rows, "refusal"), lambda row: {"mechanism": row["mechanism"]}):
        each = [law.cost_us(row["soak"]["idle_share"], row["soak"]["loaded_share"], refused_per_s(row)) for row in group]
        if law.spread(each):
            costs[key["mechanism"]] = [round(value, 2) for value in law.spread(each)]
    return costs


def refused_per_s(row):
    """That cell contains only refusals: every request without a good answer was refused."""
    load = row["load"]
    return (load["sent"] - load["ok"]) / row["asked"]["seconds"]


def figures(key, rows, peak):
    """Medians of one kind of cell."""
    middle = lambda read: law.median(map(read, rows))
    goodput = middle(lambda row: row["load"]["goodput_per_s"])
    return {
        **key, "rounds": len(rows), "goodput_per_s": goodput, "share": goodput / peak if peak else None,
        # By the server's count: it also answers clients that have given up long before.
        "answered_per_s": middle(lambda row: row["counted"].get("http_requests_total", 0) / row["span_s"]),
        "p50_ms": middle(lambda row: row["load"]["p50_us"] / 1e3), "p99_ms": middle(lambda row: row["load"]["p99_us"] / 1e3),
        "p999_ms": middle(lambda row: row["load"]["p999_us"] / 1e3),
        **{f"{name}_per_s": middle(lambda row: row["load"][name] / row["asked"]["seconds"])
           for name in ("refused", "non_2xx", "timeouts", "errors")},
        "softirq": middle(lambda row: row["cores"]["server"]["softirq"]), "server_cpu": middle(lambda row: row["server_cpu"]),
        "limit": key.get("limit") or middle(lambda row: row["gauges"].get("http_scaling_connection_limit")),
    }


def own_peak(row):
    """What the row's own server could serve: before the load, and after it if that measurement is usable."""
    before, after = row["peaks_per_s"]
    return (before + after) / 2 if after > AFTER_MIN * before else before


def open_loop(rows, peak, costs):
    """Each cell against the law, with the load that its own server's peak makes of the rate."""
    result = []
    for key, group in grouped(of(rows, "open"), open_key):
        one = figures(key, group, peak)
        share = law.median(row["load"]["goodput_per_s"] / own_peak(row) for row in group)
        k = law.median(row["asked"]["rate"] / own_peak(row) for row in group)
        cost = costs.get(key["mechanism"])
        bound = law.share(k, cost[1] * peak / 1e6) if cost else None
        one.update(share=share, k_measured=k, law=bound, below_law=None if bound is None else bound - share,
                   shares=[round(row["load"]["goodput_per_s"] / own_peak(row), 4) for row in group])
        result.append(one)
    return result


def overhead(rows):
    """CPU per answer of each mechanism over that of none, when nothing has to be refused: paired by round."""
    result = []
    for key, group in grouped(of(rows, "overhead"), lambda row: {"shape": row["shape"], "mechanism": row["mechanism"]}):
        if key["mechanism"] == "none":
            continue
        bare = {row["round"]: lost_us(row) for row in of(rows, "overhead")
                if row["mechanism"] == "none" and row["shape"] == key["shape"]}
        ratios = [lost_us(row) / bare[row["round"]] for row in group if bare.get(row["round"]) and lost_us(row)]
        if ratios:
            interval = common.bootstrap_median(ratios)
            result.append({**key, "pairs": len(ratios), "ratio": round(law.median(ratios), 4),
                           "ci95": interval and [round(bound, 4) for bound in interval],
                           "refused": sum(row["load"]["refused"] + row["load"]["non_2xx"] for row in group)})
    return result


def lost_us(row):
    soak = row["soak"]
    return law.cost_us(soak["idle_share"], soak["loaded_share"], row["load"]["ok_per_s"])


def gate(row):
    return next((name for name in row["gauges"] if name.startswith("highwater_gate_info")), None)


def failures(rows):
    """How often each mechanism failed, and its message."""
    failed = collections.Counter((row["mechanism"], row["error"]) for row in rows if "error" in row)
    return [{"mechanism": mechanism, "error": error, "times": times} for (mechanism, error), times in failed.items()]


def warnings(rows):
    """Cells in which the generator reports that it was the bottleneck."""
    slow = [row for row in rows if row["load"].get("bottlenecks")]
    if not slow:
        return []
    cells = collections.Counter(f"{row['experiment']} {row['mechanism']} {row['k'] or row['asked']['connections']:g}" for row in slow)
    cells = ", ".join(f"{cell} ({times})" if times > 1 else cell for cell, times in cells.items())
    return [f"the client was the bottleneck in {len(slow)} cells: {cells}; for example, {slow[0]['load']['bottlenecks'][0]}"]


# ---------------------------------------------------------------------------------------------------------------- text


def text(derived):
    """For a terminal."""
    spread = derived["peak_spread"]
    lines = [f"peak {derived['peak_per_s']:.0f} answers/s ({spread[0]:.0f} to {spread[2]:.0f})" if spread else "no capacity"]
    lines += ["", *open_table(derived)] if derived["open"] else []
    for title, section, column in (("closed loop, back-off 50 ms", "closed", "clients"),
                                   ("keep-alive, 10 requests a connection", "keep_alive", "k"),
                                   ("fixed limits at 5x", "sweep", "limit")):
        if derived[section]:
            lines += ["", title, *grid(derived[section], column)]
    if derived["overhead"]:
        lines += ["", "CPU per answer over that of none, nothing refused", *map(overhead_line, derived["overhead"])]
    lines += [f"failed {one['times']} times: {one['mechanism']}: {one['error']}" for one in derived["failed"]]
    return "\n".join([*lines, *(f"warning: {one}" for one in derived["warnings"])])


def open_table(derived):
    head = (f"{'mechanism':<11} {'load':>5} {'goodput/s':>9} {'of peak':>8} {'law':>7} {'p50 ms':>7} {'p99 ms':>7} {'p99.9':>7} "
            f"{'refused/s':>9} {'503/s':>7} {'timeout/s':>9} {'error/s':>7} {'softirq':>7} {'limit':>7}")
    lines, last = [head], None
    for one in derived["open"]:
        if one["mechanism"] != last:
            cost = derived["refusal_us"].get(one["mechanism"])
            about = f": {cost[1]:.1f} us of CPU a refusal ({cost[0]:.1f} to {cost[2]:.1f})" if cost else ""
            lines.append(f"-- {one['mechanism']}{about}")
            last = one["mechanism"]
        bound = "-" if one["law"] is None else f"{one['law']:.1%}"
        mark = "  BELOW" if one["law"] is not None and one["below_law"] > LAW_TOLERANCE else ""
        lines.append(
            f"{'':<11} {one['k']:>4g}x {one['goodput_per_s']:>9.0f} {one['share']:>8.1%} {bound:>7} {one['p50_ms']:>7.1f} "
            f"{one['p99_ms']:>7.1f} {one['p999_ms']:>7.1f} {one['refused_per_s']:>9.0f} {one['non_2xx_per_s']:>7.0f} "
            f"{one['timeouts_per_s']:>9.0f} {one['errors_per_s']:>7.0f} {one['softirq']:>7.1%} {number(one['limit']):>7}{mark}")
    return lines


def grid(cells, column):
    """Goodput and p99 with mechanisms down and `column` across."""
    across = sorted({cell[column] for cell in cells})
    lines = [f"{'goodput/s (p99 ms)':<20}" + "".join(f"{value:>14g}" for value in across)]
    for name in dict.fromkeys(cell["mechanism"] for cell in cells):
        found = {cell[column]: cell for cell in cells if cell["mechanism"] == name}
        lines.append(f"  {name:<18}" + "".join(
            f"{found[value]['goodput_per_s']:>7.0f} ({found[value]['p99_ms']:>4.0f})" if value in found else f"{'-':>14}"
            for value in across))
    return lines


def overhead_line(one):
    interval = f"[{one['ci95'][0]:.3f}, {one['ci95'][1]:.3f}]" if one["ci95"] else "too few pairs for an interval"
    refused = f"; {one['refused']:.0f} refused, which nothing should be" if one["refused"] else ""
    return f"  {one['shape']:<28} {one['mechanism']:<11} {one['ratio']:.3f} {interval} n={one['pairs']}{refused}"


def number(value):
    return "-" if value is None else f"{value:.0f}"
