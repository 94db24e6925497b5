"""What measurements of overload mean. Pure functions over numbers: no clock, no files, no processes.

The law: refusing costs CPU too. With peak goodput G, load of k times G and a refusal costing the share rho of serving,
a core that serves g and refuses the rest is full when g + (k G - g) rho = G, so g / G = (1 - k rho) / (1 - rho). Nothing
can do better with that mechanism; doing much worse means that something else is wrong.
"""

import math
import statistics

# A limiter has converged once goodput stays within this of the best fixed limit's.
WITHIN = 0.05


def share(k, rho):
    """Goodput as a share of peak at `k` times capacity, when refusing costs `rho` of serving. Never below zero."""
    if k <= 1:
        return k
    if rho >= 1:
        return 0.0
    return max(0.0, (1 - k * rho) / (1 - rho))


def cost_us(idle_share, loaded_share, per_s):
    """CPU time per event, from the used shares of a core without and with `per_s` events a second."""
    return (loaded_share - idle_share) * 1e6 / per_s if per_s > 0 else None


def median(values):
    """The median of the values that are not None, or None."""
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def spread(values):
    """(least, median, greatest), or None."""
    present = sorted(value for value in values if value is not None)
    return (present[0], statistics.median(present), present[-1]) if present else None


# ---------------------------------------------------------------------------------------------------------- over time


def smoothed(series, window_s):
    """A series of (second, value) as the mean over the `window_s` that end at each point."""
    result = []
    for at, _ in series:
        inside = [value for when, value in series if at - window_s < when <= at]
        result.append((at, statistics.fmean(inside)))
    return result


def converged_after(series, since, until, target, within=WITHIN):
    """Seconds from `since` to the first point that is within `within` of the target, if the mean from there to `until` is
    as well; None if there is none. Points are (second, value). A passing dip does not undo convergence, a wrong level
    does; `oscillation` measures how much it swings."""
    points = [(at, value) for at, value in series if since <= at < until]
    enough = (1 - within) * target
    # From the end, so that the mean of the following points is known at each point.
    first, total = None, 0.0
    for count, (at, value) in enumerate(reversed(points), 1):
        total += value
        if value >= enough and total / count >= enough:
            first = at
    return None if first is None else first - since


def oscillation(series, since, until):
    """Half the distance between the 5th and the 95th percentile over the mean: how far a settled series still swings. A
    stray point does not count as a swing; a period does."""
    values = sorted(value for at, value in series if since <= at < until)
    if not values or statistics.fmean(values) == 0:
        return None
    return (percentile(values, 0.95) - percentile(values, 0.05)) / 2 / statistics.fmean(values)


def percentile(ordered, share_below):
    """The nearest-rank percentile of sorted values."""
    return ordered[max(0, math.ceil(share_below * len(ordered)) - 1)]


def raised_after(series, onset):
    """Seconds from `onset` to the first point of (second, value) that is not zero; None if there is none."""
    return next((at - onset for at, value in series if at >= onset and value), None)


def false_alarms(series, begin, end):
    """How often a signal went from zero to not zero between two instants."""
    values = [value for at, value in series if begin <= at < end]
    return sum(1 for before, after in zip([0, *values], values) if after and not before)
