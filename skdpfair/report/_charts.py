"""Numbers -> the geometry of small charts, which ``templates/charts.html`` writes as SVG.

Drawn here, not by a plotting library, so that a page of a hundred models takes a second, follows
the reader's light or dark colours, and needs no more than jinja2.
"""

import math

import numpy as np

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 560.0, 54.0, 150.0, 12.0, 48.0
_ROW = 17.0  # of a legend
_SHAPES = (
    "M-3.6,0a3.6,3.6 0 1,0 7.2,0a3.6,3.6 0 1,0 -7.2,0",
    "M-3.3,-3.3h6.6v6.6h-6.6z",
    "M0,-4.2L4,3.1H-4z",
    "M0,-4.6L4.6,0L0,4.6L-4.6,0z",
    "M0,4.2L4,-3.1H-4z",
)
_DASHES = ("none", "7 3", "2 3")
N_COLOURS = 7  # --c0 to --c6 of the page


def style(i) -> dict:
    """Return colour, dash and marker of the i-th series; the first 105 differ."""
    return {
        "colour": f"var(--c{i % N_COLOURS})",
        "dash": _DASHES[i // N_COLOURS % len(_DASHES)],
        "shape": _SHAPES[(i % N_COLOURS + i // N_COLOURS) % len(_SHAPES)],
    }


def ticks(low, high, most=6) -> list[float]:
    """Return round numbers within a range, at most about ``most``.

    Examples
    --------
    >>> ticks(79.3, 85.2)
    [80.0, 81.0, 82.0, 83.0, 84.0, 85.0]
    """
    step = 10 ** math.floor(math.log10((high - low) / most))
    step *= next(k for k in (1, 2, 5, 10) if (high - low) / (k * step) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 10) + 0.0 for i in range(first, last + 1)]


def _range(values, *, zero=False) -> tuple[float, float]:
    """Return a range around the values, which holds zero if asked."""
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    room = 0.06 * (high - low) or 0.5
    return low - room, high + room


class _Axis:
    """Places of values along one axis."""

    def __init__(self, low, high, start, end, *, log=False):
        self.low, self.high, self.log = low, high, log
        self.start, self.end = start, end

    def __call__(self, value):
        low, high, value = (
            (math.log10(v) for v in (self.low, self.high, value))
            if self.log
            else (self.low, self.high, value)
        )
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    def marks(self, most=6):
        """Return places and texts of round numbers."""
        return [(self(v), f"{v:g}") for v in ticks(self.low, self.high, most)]


def lines(curves, across, *, title, label, zero=False) -> dict:
    """Return a chart of curves over a log axis of budgets, with zero as a line if asked.

    ``curves`` are lists of (budget, mean, standard error or NaN) by method; ``across`` are values
    by name that have no budget, drawn as dashed lines.
    """
    height = max(300.0, TOP + BOTTOM + _ROW * (len(curves) + len(across)))
    points = [p for curve in curves.values() for p in curve]
    errors = [0.0 if math.isnan(e) else e for _, _, e in points]
    spread = [m + sign * e for (_, m, _), e in zip(points, errors, strict=True) for sign in (-1, 1)]
    y = _Axis(*_range([*spread, *across.values()], zero=zero), height - BOTTOM, TOP)
    budgets = sorted({b for b, _, _ in points})
    low, high = (budgets[0], budgets[-1]) if len(budgets) > 1 else (budgets[0] / 2, budgets[0] * 2)
    x = _Axis(low, high, LEFT + 12, WIDTH - RIGHT - 12, log=True)
    series = []
    for i, (name, curve) in enumerate(curves.items()):
        banded = [(b, m, e) for b, m, e in curve if not math.isnan(e)]
        band = [(x(b), y(m + e)) for b, m, e in banded]
        band += [(x(b), y(m - e)) for b, m, e in reversed(banded)]
        marks = [
            (x(b), y(m), f"{name}, ε {b:g}: {m:.2f}" + ("" if math.isnan(e) else f" ± {e:.2f}"))
            for b, m, e in curve
        ]
        series.append(style(i) | {"name": name, "band": band, "marks": marks})
    return _chart(x, y, height, title, label, "privacy budget ε, log scale") | {
        "kind": "lines",
        "x_marks": _spaced([(x(b), f"{b:.3g}") for b in budgets]),
        "series": series,
        "across": [(y(value), name, f"{name}: {value:.2f}") for name, value in across.items()],
        "zero": y(0.0) if zero else None,
    }


def scatter(points, front, *, title, label, x_label) -> dict:
    """Return a chart of points by method, (x, y, what is read out), with a line along the front."""
    height = max(300.0, TOP + BOTTOM + _ROW * len(points))
    flat = [p for part in points.values() for p in part]
    x = _Axis(*_range([p[0] for p in flat]), LEFT + 12, WIDTH - RIGHT - 12)
    y = _Axis(*_range([p[1] for p in flat], zero=True), height - BOTTOM, TOP)
    series = [
        style(i) | {"name": name, "band": [], "marks": [(x(a), y(b), text) for a, b, text in part]}
        for i, (name, part) in enumerate(points.items())
    ]
    return _chart(x, y, height, title, label, x_label) | {
        "kind": "scatter",
        "x_marks": x.marks(),
        "series": series,
        "front": [(x(a), y(b)) for a, b in front],
        "across": [],
        "zero": y(0.0),
    }


def tradeoff(found, *, unit) -> dict:
    """Return a chart of what an attacker finds, as (false alarms, found at most) in per cent."""
    width, right, height = 430.0, 320.0, 300.0
    x, y = _Axis(0.0, 100.0, LEFT, right), _Axis(0.0, 100.0, height - BOTTOM, TOP)
    curves = {"attacker": found, "guessing": [(0.0, 0.0), (100.0, 100.0)]}
    series = [
        style(i)
        | {
            "name": name,
            "band": [],
            "marks": [
                (x(a), y(b), f"{a:g} % false alarms: at most {b:g} % found") for a, b in curve
            ],
        }
        for i, (name, curve) in enumerate(curves.items())
    ]
    series[1] |= {"dash": _DASHES[1], "colour": "var(--muted)"}
    title = f"How many of the {unit}s an attacker finds at most"
    return _chart(x, y, height, title, "found, %", "false alarms, %") | {
        "kind": "lines",
        "width": width,
        "right": right,
        "x_marks": x.marks(),
        "series": series,
        "across": [],
        "zero": None,
    }


def curves(columns, log_columns, *, title) -> dict:
    """Return a chart with a panel for each column, all over one range of logits.

    ``columns`` are lists of (value, logit) by name; those of ``log_columns`` have a log axis.
    """
    wide, tall, left = WIDTH / 3, 132.0, 36.0
    logits = [logit for curve in columns.values() for _, logit in curve]
    y, panels = _Axis(*_range(logits, zero=True), tall - 26, 20), []
    for i, (name, curve) in enumerate(columns.items()):
        is_log = name in log_columns
        places = [math.copysign(math.log1p(abs(v)), v) if is_log else v for v, _ in curve]
        x = _Axis(places[0], places[-1], left, wide - 8)
        marks = [
            (x(place), y(logit), f"{name} = {value:.6g}: {logit:+.3f}")
            for place, (value, logit) in zip(places, curve, strict=True)
        ]
        panels.append(
            {
                "name": name,
                "is_log": is_log,
                "at": (round(i % 3 * wide, 1), i // 3 * tall),
                "marks": marks,
                "low": f"{curve[0][0]:.6g}",
                "high": f"{curve[-1][0]:.6g}",
            }
        )
    return {
        "kind": "curves",
        "title": title,
        "width": WIDTH,
        "height": math.ceil(len(panels) / 3) * tall,
        "left": left,
        "right": round(wide - 8, 1),
        "bottom": tall - 26,
        "zero": y(0.0),
        "y_marks": y.marks(7),
        "panels": panels,
    }


def _chart(x, y, height, title, label, x_label):
    return {
        "title": title,
        "label": label,
        "x_label": x_label,
        "width": WIDTH,
        "height": height,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "bottom": height - BOTTOM,
        "y_marks": y.marks(),
        "row": _ROW,
        "front": [],
    }


def _spaced(marks, room=30.0):
    """Leave out texts that would touch the one before; the last is kept."""
    kept = []
    for place, text in marks:
        while kept and place - kept[-1][0] < room and (place, text) == marks[-1]:
            kept.pop()
        if not kept or place - kept[-1][0] >= room:
            kept.append((place, text))
    return kept


def bars(table, *, title, label) -> dict:
    """Return a chart of lying bars: a cluster per method, a bar per group; NaN draws none."""
    groups = list(dict.fromkeys(group for row in table.values() for group in row))
    named = len(groups) > N_COLOURS  # colours repeat: then each bar has its group beside it
    left, right, thick, gap = 200.0 if named else 130.0, WIDTH - 40, 13.0, 12.0
    values = [v for row in table.values() for v in row.values() if not math.isnan(v)]
    x = _Axis(*_range(values, zero=True), left + 30, right)
    clusters, top = [], 8.0
    for name, row in table.items():
        bars_ = []
        top += (thick + 4) * named  # the method's name, above its bars
        for group in groups:
            value = row.get(group, np.nan)
            if not math.isnan(value):
                start, end = sorted((x(0.0), x(value)))
                bars_.append(
                    {
                        "x": start,
                        "y": top + len(bars_) * thick,
                        "width": round(max(end - start, 0.6), 1),
                        "colour": f"var(--c{0 if named else groups.index(group)})",
                        "group": group if named else None,
                        "text": f"{round(value, 1) + 0.0:.1f}",
                        "at": end + 4 if value >= 0 else start - 4,
                        "anchor": "start" if value >= 0 else "end",
                        "says": f"{name}, {group}: {value:.2f} points",
                    }
                )
        height = max(len(bars_), 1) * thick
        middle = top - 5 if named else top + height / 2 + 4
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
        "x_marks": x.marks(),
        "clusters": clusters,
        "named": named,
        "legend": [] if named else [(g, f"var(--c{i % N_COLOURS})") for i, g in enumerate(groups)],
    }
