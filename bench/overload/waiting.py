"""The results of `patience.py`: refusals under the default settings, beside `--shed none`, as data and as text.

Pure: rows in, dictionaries and text out.
"""

import json

import common
from clients import OK

# The requests that are rightly refused: their clients gave them no time at all.
HOSTILE = "hostile"
# In cores. Other work that takes more makes a cell slower, and may itself be the overload.
OTHERS_MAX = 0.25
# What the server counts when it refuses these. It is right as well.
NO_TIME = 'reason="deadline"'


def rows_of(path):
    """The rows of a run's file, or of a record."""
    if path.endswith(".json"):
        with open(path) as file:
            return json.load(file)["rows"]
    return common.read_rows(path)[0]


def head_of(path):
    if path.endswith(".json"):
        with open(path) as file:
            return json.load(file)["runs"][-1]
    return common.read_rows(path)[1][-1]


def derive(rows):
    """Each case with what its kinds of requests saw under each setting, and whether the promise holds."""
    counted = [row for row in rows if row["experiment"] == "patience" and "error" not in row]
    cases = {}
    for row in counted:
        key = (row["scenario"], row["case"], row["workers"])
        cases.setdefault(key, {})[row["shed"]] = judge(row)
    cases = [{"scenario": scenario, "case": case, "workers": workers, **sheds} for (scenario, case, workers), sheds in cases.items()]
    by_default = [case["default"] for case in cases if "default" in case]
    return {
        "cases": cases, "refused_by_default": sum(max(one["refused"], one["turned_away"]) for one in by_default),
        "asked_by_default": sum(one["asked"] for one in by_default),
        "asked_for_more": [name(case) for case in cases if case.get("default", {}).get("needs_scaleout")],
        "disturbed": sorted({name(row) for row in counted if row["others_cpu"] > OTHERS_MAX}),
        "failed": [f"{row['scenario']} {row['case']} ({row['shed']}): {row['error']}" for row in rows if "error" in row],
    }


def judge(row):
    """One cell: the refusals that the clients saw, and those that the server counted. A dropped attempt to connect that is
    repeated is only in the latter."""
    groups = {kind: {"asked": group["asked"], "refused": refused(group), "outcomes": group["outcomes"],
                     "slowest_ms": group["slowest_ms"]} for kind, group in row["groups"].items()}
    fair = [group for kind, group in groups.items() if kind != HOSTILE]
    turned_away = {labels: value for labels, value in row["rejections"].items() if NO_TIME not in labels}
    return {
        "groups": groups, "asked": sum(group["asked"] for group in fair), "refused": sum(group["refused"] for group in fair),
        "turned_away": sum(turned_away.values()), "rejections": turned_away,
        "slowest_ms": max((group["slowest_ms"] for group in fair if group["slowest_ms"] is not None), default=None),
        **{name: row[name] for name in ("needs_scaleout", "demand_ratio", "limit_min", "server_cpu")},
    }


def refused(group):
    """Requests without a 200, whatever became of them, and streams that were cut off or fell silent."""
    return sum(times for outcome, times in group["outcomes"].items() if outcome != OK)


def name(case):
    return f"{case['scenario']} {case['case']}, {case['workers']} worker{'s' if case['workers'] > 1 else ''}"


# ---------------------------------------------------------------------------------------------------------------- text


def text(derived):
    """For a terminal: every case, and a line for each kind of request where there are several."""
    lines = [f"{'':<42}{'-- default --':^29}{'-- shed none --':^21}{'-- signals by default --':^32}",
             f"{'':<42}{'asked':>8}{'refused':>9}{'slowest ms':>12}{'refused':>9}{'slowest ms':>12}"
             f"{'scaleout':>9}{'demand':>8}{'limit':>8}{'cpu':>7}"]
    for case in derived["cases"]:
        default, none = case.get("default"), case.get("none")
        lines.append(f"{name(case):<42}{figures(default, True)}{figures(none)}{signals(default)}")
        kinds = (default or none)["groups"]
        if len(kinds) > 1:
            pick = lambda one, kind: one and one["groups"].get(kind)
            lines += [f"  {kind:<40}{figures(pick(default, kind), True)}{figures(pick(none, kind))}" for kind in kinds]
        if default and default["refused"] + default["turned_away"]:
            lines.append(f"  REFUSED: clients saw {outcomes(default)}; the server says {default['rejections'] or 'nothing'}")
    lines += [f"failed: {one}" for one in derived["failed"]]
    lines += [f"asked for another server: {one}" for one in derived["asked_for_more"]]
    lines += [f"others had more than {OTHERS_MAX:.0%} of a core meanwhile: {one}" for one in derived["disturbed"]]
    return "\n".join([*lines, f"{derived['refused_by_default']:.0f} of {derived['asked_by_default']} refused under the default settings"])


def figures(one, with_asked=False):
    if not one:
        return f"{'-':>8}" * with_asked + f"{'-':>9}{'-':>12}"
    return f"{one['asked']:>8}" * with_asked + f"{one['refused']:>9}{number(one['slowest_ms']):>12}"


def signals(one):
    if not one:
        return ""
    ratio = "-" if one["demand_ratio"] is None else f"{one['demand_ratio']:.2f}"
    return f"{number(one['needs_scaleout']):>9}{ratio:>8}{number(one['limit_min']):>8}{one['server_cpu']:>7.0%}"


def outcomes(one):
    """The outcomes of the fair requests that got no 200."""
    found = [f"{kind}: {times} {outcome}" for kind, group in one["groups"].items() if kind != HOSTILE
             for outcome, times in group["outcomes"].items() if outcome != OK]
    return ", ".join(found) or "nothing"


def markdown(derived):
    """For the documentation: all pages of one number of workers are one line, and so on."""
    lines = ["| | asked | refused | slowest | `--shed none`: refused | slowest | `needs_scaleout` | demand ratio, at most | limit, at least |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    merged = {}
    for case in derived["cases"]:
        label = case["scenario"] if case["scenario"] in ("pages", "after a burst") else f"{case['scenario']}: {case['case']}"
        merged.setdefault((label, case["workers"]), []).append(case)
    for (label, workers), cases in merged.items():
        total = lambda shed, field: sum(case[shed][field] for case in cases if shed in case)
        most = lambda shed, field: max((case[shed][field] or 0 for case in cases if shed in case), default=0)
        limits = [case["default"]["limit_min"] for case in cases if case.get("default", {}).get("limit_min") is not None]
        lines.append(
            f"| {label}, {workers} worker{'s' if workers > 1 else ''} | {spaced(total('default', 'asked'))} "
            f"| {total('default', 'refused')} | {seconds(most('default', 'slowest_ms'))} | {total('none', 'refused')} "
            f"| {seconds(most('none', 'slowest_ms'))} | {most('default', 'needs_scaleout'):.0f} "
            f"| {most('default', 'demand_ratio'):.2f} | {spaced(min(limits)) if limits else '–'} |")
    return "\n".join(lines)


def spaced(value):
    return f"{value:,.0f}".replace(",", " ")


def seconds(value_ms):
    return f"{value_ms / 1e3:.1f} s" if value_ms >= 1000 else f"{value_ms:.0f} ms"


def number(value):
    return "-" if value is None else f"{value:.0f}"
