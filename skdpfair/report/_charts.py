"""Numbers -> the geometry of small charts, which ``templates/charts.html`` writes as SVG.

Drawn here, not by a plotting library, so that a page of a hundred models takes a second, follows
the reader's light or dark colours, and needs no more than jinja2. Charts are as narrow as a
telephone, so that their text is not made smaller there; legends are text of the page.
"""

import math
from itertools import product

import numpy as np

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 400.0, 44.0, 8.0, 30.0, 44.0
_HEIGHT = 280.0
_SHAPES = (
    "M-3.6,0a3.6,3.6 0 1,0 7.2,0a3.6,3.6 0 1,0 -7.2,0",
    "M-3.3,-3.3h6.6v6.6h-6.6z",
    "M0,-4.2L4,3.1H-4z",
    "M0,-4.6L4.6,0L0,4.6L-4.6,0z",
    "M0,4.2L4,-3.1H-4z",
)
_DASHES = ("none", "7 3", "2 3")
_ACROSS = ("7 4", "2 4", "12 3 2 3")  # of lines without a budget: the references
N_COLOURS = 7  # --c0 to --c6 of the page
_CHARACTER = 6.6  # widest mean width of a character of the texts
_APART = 5.0  # between the points of two methods at one budget


def style(i) -> dict:
    return {
        "colour": f"var(--c{i % N_COLOURS})",
        "dash": _DASHES[i // N_COLOURS % len(_DASHES)],
        "shape": _SHAPES[(i % N_COLOURS + i // N_COLOURS) % len(_SHAPES)],
    }


def ticks(low, high, max_ticks) -> list[float]:
    """Return round numbers within a range, at most about ``max_ticks``."""
    step = 10 ** math.floor(math.log10((high - low) / max_ticks))
    step *= next(k for k in (1, 2, 5, 10) if (high - low) / (k * step) <= max_ticks)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 10) + 0.0 for i in range(first, last + 1)]


def range_of(points, *, zero=False) -> tuple[float, float]:
    """Return a range around values, or (mean, low, high), which holds zero if asked.

    It holds all means, and intervals but for those that are far wider than most, so that one wide
    interval does not make all others points.
    """
    points = np.atleast_2d(np.asarray(points, float).T)
    means, ends = points[0], points[1:]
    means = [*means[np.isfinite(means)], *[0.0] * zero] or [0.0]
    low, high = min(means), max(means)
    reach = np.abs(ends - points[0])
    reach = reach[np.isfinite(reach) & (reach > 0)]
    if len(reach):
        # of few runs, a quarter of the intervals tells how long they usually are
        most = 3 * float(np.quantile(reach, 0.25))
        # where all are wide, the means must not become one point
        if span := high - low:
            most = min(max(most, 2 * span), 5 * span)
        ends = ends[np.isfinite(ends)]
        low, high = max(low - most, min(low, *ends)), min(high + most, max(high, *ends))
    room = 0.06 * (high - low) or 0.5
    return low - room, high + room


class _Axis:
    """Places of values along one axis; those beyond its range are at its ends."""

    def __init__(self, low, high, start, end, *, log=False):
        self.low, self.high, self.log = low, high, log
        self.start, self.end = start, end

    def __call__(self, value):
        values = (self.low, self.high, min(max(value, self.low), self.high))
        low, high, value = map(math.log10, values) if self.log else values
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    def marks(self, max_ticks=6):
        """Return places and texts of round numbers."""
        return [(self(v), f"{v:g}") for v in ticks(self.low, self.high, max_ticks)]


def _whisker(axis, ends, across, *, lies=False):
    """Return an interval as lines (x, y, x, y), [] without one: marks without are hollow.

    ``across`` is its place on the other axis.  An end beyond the panel is an arrow.
    """
    low, high = ends
    if not low < high:
        return []
    start, end = axis(low), axis(high)
    lines = [(start, across, end, across)]
    for end_, value in ((start, low), (end, high)):
        if not axis.low <= value <= axis.high:
            back = end_ + math.copysign(4.0, (start + end) / 2 - end_)
            lines += [(back, across + side, end_, across) for side in (-3.0, 3.0)]
    return lines if lies else [(y1, x1, y2, x2) for x1, y1, x2, y2 in lines]


def _spread(low, high):
    """Return an interval over runs in words."""
    if math.isnan(low) or math.isnan(high):
        return " (no interval)"
    low, high = f"{low:.2f}", f"{high:.2f}"
    return " (the same in all runs)" if low == high else f" ({low} to {high})"


def lines(curves, across, *, title, label, zero=False, unsure=False) -> dict:
    """Return a chart of curves over a log axis of budgets, with zero as a line if asked.

    ``curves`` are lists of (budget, mean, low, high) by method, where low and high are the ends of
    an interval or NaN; ``across`` are (mean, low, high) by name that have no budget, drawn as
    dashed lines. All marks are hollow if ``unsure``.
    """
    points = [p for curve in curves.values() for p in curve]
    spread = [values for _, *values in points] + list(across.values())
    y = _Axis(*range_of(spread, zero=zero), _HEIGHT - BOTTOM, TOP)
    budgets = sorted({b for b, *_ in points})
    low, high = (budgets[0], budgets[-1]) if len(budgets) > 1 else (budgets[0] / 2, budgets[0] * 2)
    x = _Axis(low, high, LEFT + 20, WIDTH - RIGHT - 20, log=True)
    spacing = min(_APART, 30 / len(curves))  # points of one budget stand side by side
    series = []
    for i, (name, curve) in enumerate(curves.items()):
        aside = spacing * (i - (len(curves) - 1) / 2)
        marks = []
        for b, m, *ends in curve:
            says, at = f"{name}, ε {b:g}: {m:.2f}{_spread(*ends)}", round(x(b) + aside, 1)
            marks.append((at, y(m), says, _whisker(y, ends, at)))
        series.append(style(i) | {"name": name, "marks": marks})
    levels = []
    for i, (name, (value, *ends)) in enumerate(across.items()):
        says, dash = f"{name}: {value:.2f}{_spread(*ends)}", _ACROSS[i % len(_ACROSS)]
        whisker = _whisker(y, ends, WIDTH - RIGHT - 4 - 5 * i)
        levels.append((y(value), name, says, dash, whisker))
    named = {"title": title, "label": label, "x_label": "privacy budget ε, log scale"}
    x_marks = spaced([(x(b), f"{b:.3g}") for b in budgets])
    at_zero = y(0.0) if zero else None
    return _plane("lines", series, x_marks, y, unsure) | named | {"across": levels, "zero": at_zero}


def scatter(points, front, *, title, label, x_label, unsure=False) -> dict:
    """Return a chart of points by method, with a line along the front.

    ``points`` are lists of (x, y, text beside it), where x and y are (mean, low, high).
    """
    flat = [p for part in points.values() for p in part]
    x = _Axis(*range_of([a for a, *_ in flat]), LEFT + 12, WIDTH - RIGHT - 12)
    y = _Axis(*range_of([b for _, b, _ in flat], zero=True), _HEIGHT - BOTTOM, TOP)
    series = []
    for i, (name, part) in enumerate(points.items()):
        marks = []
        for (a, *across), (b, *upright), text in part:
            says = f"{name}, {text}: {a:.2f}{_spread(*across)}, {b:.2f}{_spread(*upright)}"
            level = _whisker(x, across, y(b), lies=True)
            lines_ = _whisker(y, upright, x(a))
            # both, or the point is hollow
            marks.append((x(a), y(b), says, level + lines_ if level and lines_ else []))
        series.append(style(i) | {"name": name, "marks": marks})
    best = [(x(a), y(b)) for a, b in front]
    labelled = [(x(a), y(b), text) for (a, *_), (b, *_), text in flat]
    labelled.sort(key=lambda spot: spot[:2] not in best)  # those on the front first
    whiskers = [line for part in series for *_, lines in part["marks"] for line in lines]
    named = {"title": title, "label": label, "x_label": x_label}
    own = {"front": best, "zero": y(0.0), "names": placed_labels(labelled, whiskers)}
    return _plane("scatter", series, x.marks(), y, unsure) | named | own


def tradeoff(power, *, protects) -> dict:
    x = _Axis(0.0, 100.0, LEFT, WIDTH - RIGHT - 12)
    y = _Axis(0.0, 100.0, _HEIGHT - BOTTOM, TOP)
    curves = {"attacker": power, "guessing": [(0.0, 0.0), (100.0, 100.0)]}  # bounds, not estimates
    series = []
    for i, (name, curve) in enumerate(curves.items()):
        says = "{:g} % false alarms: at most {:g} % found"
        marks = [(x(a), y(b), says.format(a, b), None) for a, b in curve]
        series.append(style(i) | {"name": name, "marks": marks})
    series[1] |= {"dash": _DASHES[1], "colour": "var(--muted)"}
    title = f"How many of the {protects}s an attacker finds at most"
    named = {"title": title, "label": "found, %", "x_label": "false alarms, %"}
    return _plane("lines", series, x.marks(), y) | named


def placed_labels(spots, lines=()) -> list[tuple[float, float, str, str]]:
    """Return (x, y, anchor, text) of texts beside points, none of which touches another or a line.

    ``spots`` are (x, y, text), and ``lines`` (x, y, x, y), upright or lying; a text without room on
    either side is left out.
    """
    occupied = [(x - 5, y - 5, x + 5, y + 5) for x, y, _ in spots]
    for x1, y1, x2, y2 in lines:
        occupied.append((min(x1, x2) - 1, min(y1, y2) - 1, max(x1, x2) + 1, max(y1, y2) + 1))
    placed = []
    for x, y, text in spots:
        width = _CHARACTER * len(text)
        sides = ("start", x + 7, x + 7), ("end", x - 7, x - 7 - width)
        for (anchor, at, left), down in product(sides, (0, -11, 11)):
            box = (left, y + down - 6, left + width, y + down + 6)
            free = all(
                box[0] >= b[2] or b[0] >= box[2] or box[1] >= b[3] or b[1] >= box[3]
                for b in occupied
            )
            if free and left >= LEFT and left + width <= WIDTH:
                occupied.append(box)
                placed.append((at, y + down + 4, anchor, text))
                break
    return placed


def _plane(kind, series, x_marks, y, unsure=False):
    """Return a chart of points on two axes; those with [] for an interval are hollow."""
    return {
        "kind": kind,
        "series": series,
        "unsure": unsure,
        "hollow": unsure or any(ends == [] for part in series for *_, ends in part["marks"]),
        "x_marks": x_marks,
        "width": WIDTH,
        "height": _HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "bottom": _HEIGHT - BOTTOM,
        "y_marks": y.marks(),
        "zero": None,
    } | dict.fromkeys(("front", "across", "names"), ())


def spaced(marks, room=30.0):
    """Leave out texts that would touch the one before; the last is kept."""
    kept = []
    for place, text in marks:
        while kept and place - kept[-1][0] < room and (place, text) == marks[-1]:
            kept.pop()
        if not kept or place - kept[-1][0] >= room:
            kept.append((place, text))
    return kept


def bars(table, *, title, label, unit="points", limits=None, small=()) -> dict:
    """Return a chart of lying bars: a cluster per method, a bar per group.

    ``table`` maps methods to groups to (value, low, high), where low and high are the ends of an
    interval or NaN; a value of NaN draws no bar. Bars without an interval, and of ``small`` groups,
    are hollow. Charts with the same ``limits`` of values share an axis; None is the range of this
    chart.
    """
    groups = list(dict.fromkeys(group for row in table.values() for group in row))
    is_labelled = len(groups) > N_COLOURS  # colours repeat: then each bar has its group beside it
    names, most = (groups, 24) if is_labelled else (table, 14)
    longest = min(max(map(len, names), default=0), most)
    left, right, thick, gap = 12 + _CHARACTER * longest, WIDTH - 36, 15.0, 12.0
    if limits is None:
        limits = range_of([p for row in table.values() for p in row.values()], zero=True)
    x = _Axis(limits[0], limits[1], left + 36, right)
    clusters, top = [], 8.0
    for name, row in table.items():
        bars_ = []
        top += (thick + 4) * is_labelled  # the method's name, above its bars
        for group in groups:
            value, low, high = row.get(group, (np.nan,) * 3)
            if math.isnan(value):
                continue
            start, end = sorted((x(0.0), x(value)))
            y = top + len(bars_) * thick
            whisker = _whisker(x, (low, high), y + thick / 2 - 1, lies=True)
            edges = [start, end, *(x for line in whisker for x in (line[0], line[2]))]
            named = ", ".join(filter(None, (name, group)))
            says = f"{named}: {value:.2f} {unit}{_spread(low, high)}"
            bars_.append(
                {
                    "x": start,
                    "y": y,
                    "width": round(max(end - start, 0.6), 1),
                    "colour": f"var(--c{0 if is_labelled else groups.index(group)})",
                    "group": group if is_labelled else None,
                    "text": f"{round(value, 1) + 0.0:.1f}",
                    "whisker": whisker,
                    "hollow": not whisker or group in small,
                    "at": max(edges) + 4 if value >= 0 else min(edges) - 4,
                    "anchor": "start" if value >= 0 else "end",
                    "says": says,
                }
            )
        height = max(len(bars_), 1) * thick
        middle = top - 5 if is_labelled else top + height / 2 + 4
        clusters.append({"name": name, "bars": bars_, "middle": middle})
        top += height + gap
    return {
        "kind": "bars",
        "title": title,
        "label": label,
        "width": WIDTH,
        "height": top + 40,
        "bottom": top,
        "left": left,
        "thick": thick - 2,
        "zero": x(0.0),
        "x_marks": spaced(x.marks(5), 26),
        "clusters": clusters,
        "named": is_labelled,
        "hollow": any(bar["hollow"] for cluster in clusters for bar in cluster["bars"]),
        "longest": longest,
        "legend": [(g, f"var(--c{i})") for i, g in enumerate(groups) if not is_labelled],
    }
