"""Line charts as SVG text, drawn with nothing but strings.

Readable on white and on black: text and axes are a middle grey, nothing is filled behind them. Readable without colours:
the palette is Okabe and Ito's, which the colour-blind can tell apart, and every line has its own marker and dashes as well.
"""

import html
import math

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 56, 52
# As far from white as from black.
GREY = "#777777"
# Okabe and Ito (2008) without black and yellow, which vanish on one of the two backgrounds.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F")
DASHES = ("", "8 3", "2 3", "10 3 2 3", "12 4", "4 2", "1 4")
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "ring", "plus")


class Series:
    """A line: points of (x, y), with what it is called. `law` draws it thin and dashed, in the colour of series `like`."""

    def __init__(self, name, points, law=False, like=None, marks=True):
        self.name, self.points, self.law, self.like, self.marks = name, points, law, like, marks


def lines(title, x_label, y_label, series, log_x=False, y_max=None, subtitle="", events=()):
    """A chart. `events` are (x, text): vertical lines that say what happened then."""
    xs = [x for one in series for x, _ in one.points] or [0, 1]
    ys = [y for one in series for _, y in one.points] or [1]
    x_ticks = sorted(set(xs)) if log_x else nice_ticks(min(xs), max(xs))
    y_ticks = nice_ticks(0, y_max or max(ys) or 1)
    frame = Frame(x_ticks, y_ticks, log_x)
    parts = [head(title, subtitle), *frame.axes(x_label, y_label)]
    parts += [frame.event(x, what, number % 3) for number, (x, what) in enumerate(events)]
    styles = {}
    for one in series:
        if not one.law:
            styles[one.name] = len(styles)
    for one in series:
        parts += frame.line(one, styles.get(one.like if one.law else one.name, 0))
    parts += legend([(one, styles[one.name]) for one in series if not one.law], any(one.law for one in series))
    return "\n".join([*parts, "</svg>\n"])


def nice_ticks(low, high, wanted=6):
    """Round numbers that cover low..high, the first at or below low, the last at or above high."""
    if high <= low:
        high = low + 1
    rough = (high - low) / wanted
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


class Frame:
    """The plotting area, and where a value is on it."""

    def __init__(self, x_ticks, y_ticks, log_x):
        self.x_ticks, self.y_ticks, self.log_x = x_ticks, y_ticks, log_x

    def x(self, value):
        scale = math.log if self.log_x else float
        low, high = scale(self.x_ticks[0]), scale(self.x_ticks[-1])
        share = (scale(value) - low) / (high - low) if high > low else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        low, high = self.y_ticks[0], self.y_ticks[-1]
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def axes(self, x_label, y_label):
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for tick in self.y_ticks:
            y = self.y(tick)
            yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{GREY}" stroke-opacity="0.25"/>'
            yield text(LEFT - 8, y + 4, plain(tick), "end")
        for tick in self.x_ticks:
            x = self.x(tick)
            yield f'<line x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 5}" stroke="{GREY}"/>'
            yield text(x, bottom + 19, plain(tick), "middle")
        yield f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="{GREY}"/>'
        yield text((LEFT + right) / 2, HEIGHT - 12, x_label, "middle")
        middle = (TOP + bottom) / 2
        yield text(18, middle, y_label, "middle", f' transform="rotate(-90 18 {middle:.0f})"')

    def event(self, at, what, row):
        x = self.x(at)
        return (f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="{GREY}" stroke-dasharray="2 4"/>'
                + text(x + 4, HEIGHT - BOTTOM - 8 - 14 * row, what, "start"))

    def line(self, one, style):
        colour = COLOURS[style % len(COLOURS)]
        points = [(self.x(x), self.y(y)) for x, y in one.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        if one.law:
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1" stroke-dasharray="5 4"/>'
            return
        yield (f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"{dashes(one, style)}>'
               f"<title>{html.escape(one.name)}</title></polyline>")
        if one.marks:
            for (x, y), (raw_x, raw_y) in zip(points, one.points):
                yield marker(style, x, y, colour, f"{one.name}: {plain(raw_y)} at {plain(raw_x)}")


def legend(entries, has_law):
    x, y = WIDTH - RIGHT + 18, TOP + 8
    for number, (one, style) in enumerate(entries):
        line, colour = y + number * 22, COLOURS[style % len(COLOURS)]
        yield f'<line x1="{x}" y1="{line}" x2="{x + 26}" y2="{line}" stroke="{colour}" stroke-width="2"{dashes(one, style)}/>'
        if one.marks:
            yield marker(style, x + 13, line, colour, one.name)
        yield text(x + 34, line + 4, one.name, "start")
    if has_law:
        line = y + len(entries) * 22
        yield f'<line x1="{x}" y1="{line}" x2="{x + 26}" y2="{line}" stroke="{GREY}" stroke-dasharray="5 4"/>'
        yield text(x + 34, line + 4, "what the law allows", "start")


def dashes(one, style):
    """What tells lines without markers apart."""
    pattern = "" if one.marks else DASHES[style % len(DASHES)]
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def marker(style, x, y, colour, tip):
    kind = MARKERS[style % len(MARKERS)]
    tip = f"<title>{html.escape(tip)}</title>"
    if kind in ("circle", "ring"):
        fill = colour if kind == "circle" else "none"
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}" stroke-width="1.5">{tip}</circle>'
    shapes = {"square": "M-4-4H4V4H-4Z", "triangle": "M0-5L5 4H-5Z", "diamond": "M0-5L5 0L0 5L-5 0Z", "cross": "M-4-4L4 4M-4 4L4-4",
              "plus": "M-5 0H5M0-5V5"}
    return (f'<path d="{shapes[kind]}" transform="translate({x:.1f} {y:.1f})" fill="{colour}" stroke="{colour}" '
            f'stroke-width="1.5">{tip}</path>')


def head(title, subtitle):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}" '
            f'font-family="system-ui, sans-serif" font-size="12">\n'
            + text(LEFT, 22, title, "start", ' font-size="15" font-weight="600"') + "\n" + text(LEFT, 40, subtitle, "start"))


def text(x, y, what, anchor, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{GREY}" text-anchor="{anchor}"{more}>{html.escape(str(what))}</text>'


def plain(value):
    """A number as people write it."""
    if abs(value - round(value)) < 1e-9:
        return f"{round(value):,}".replace(",", "\u202f")
    return f"{value:.3g}"


# ------------------------------------------------------------------------------------------------- charts of the stress


def stress(derived):
    """{suffix: svg} for what there is."""
    charts = {}
    peak = derived["peak_per_s"]
    if derived["open"]:
        charts["open"] = open_chart(derived["open"], peak)
    grids = (("closed", "clients", "clients that back off for 50 ms when refused", "Closed loop: goodput by the number of clients", True),
             ("keep_alive", "k", "load, times capacity", "Ten requests a connection: goodput by load", False),
             ("sweep", "limit", "limit, connections with work", "A limit can be too high: goodput at 5 times capacity", True))
    for section, column, x_label, title, log_x in grids:
        if derived[section]:
            charts[section.replace("_", "-")] = grid_chart(derived[section], column, x_label, title, log_x)
    return charts


def open_chart(cells, peak):
    series = []
    for name in dict.fromkeys(cell["mechanism"] for cell in cells):
        own = sorted((cell for cell in cells if cell["mechanism"] == name), key=lambda cell: cell["k"])
        series.append(Series(name, [(cell["k"], 100 * cell["share"]) for cell in own]))
        bound = [(cell["k"], 100 * cell["law"]) for cell in own if cell["law"] is not None]
        if bound:
            series.append(Series(name, bound, law=True, like=name))
    return lines("What is left of the peak", "load, times capacity", "goodput, % of peak", series, y_max=100,
                 subtitle=f"answers within 200 ms, a connection per request; peak {peak:.0f}/s on one core")


def grid_chart(cells, column, x_label, title, log_x):
    series = []
    for name in dict.fromkeys(cell["mechanism"] for cell in cells):
        own = sorted((cell for cell in cells if cell["mechanism"] == name), key=lambda cell: cell[column])
        series.append(Series(name, [(cell[column], cell["goodput_per_s"]) for cell in own]))
        if name == "without a queue":
            series.append(Series("the same, late ones too", [(cell[column], cell["answered_per_s"]) for cell in own]))
    return lines(title, x_label, "answers within 200 ms, per second", series, log_x=log_x, subtitle="one server core with its softirq")
