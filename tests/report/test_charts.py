"""The geometry of charts: values are at the places of the axes."""

import math
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from skdpfair.report import _charts as charts

FINITE = st.floats(-1e6, 1e6)


@given(FINITE, st.floats(1e-6, 1e6), st.integers(2, 12))
def test_ticks_are_round_within_and_few(low, width, most):
    high = low + width
    if not high > low:
        return
    found = charts.ticks(low, high, most)
    tolerance = 1e-6 * width
    assert all(low - tolerance <= tick <= high + tolerance for tick in found)
    assert len(found) <= most + 1
    steps = {round((b - a) / width, 6) for a, b in pairwise(found)}
    assert len(steps) <= 1 or max(abs(low), abs(high)) / width > 1e6


def test_lines_are_at_the_places_of_their_axes():
    none = math.nan
    curves = {"a": [(0.1, 70.0, 69.0, 71.0), (1.0, 80.0, none, none), (10.0, 90.0, 88.0, 92.0)]}
    across = {"reference": (85.0, 84.0, 86.0), "another": (86.0, none, none)}
    chart = charts.lines(curves, across, title="t", label="l")
    (low, *_), (middle, _, text, _), (high, *_) = chart["series"][0]["marks"]
    assert middle == pytest.approx((low + high) / 2, abs=0.1)  # logarithmic
    assert text == "a, ε 1: 80.00 (no interval)"
    heights = [y for _, y, *_ in chart["series"][0]["marks"]]
    assert heights[1] == pytest.approx((heights[0] + heights[2]) / 2, abs=0.1)
    reference = chart["across"][0][0]
    assert reference == pytest.approx((heights[1] + heights[2]) / 2, abs=0.1)
    y_of = {float(text): y for y, text in chart["y_marks"]}
    assert y_of[80.0] == pytest.approx(heights[1], abs=0.1)
    whiskers = [
        [y for _, *ends in lines for y in ends[::2]] for *_, lines in chart["series"][0]["marks"]
    ]
    assert whiskers[1] == [] and chart["hollow"]  # the point without an interval is hollow
    assert sum(whiskers[0]) / 2 == pytest.approx(heights[0], abs=0.1)
    assert whiskers[2][0] - whiskers[2][1] == pytest.approx(
        2 * (whiskers[0][0] - whiskers[0][1]), abs=0.2
    )
    assert len({dash for *_, dash, _ in chart["across"]}) == 2  # of the references
    assert [len(lines) for *_, lines in chart["across"]] == [1, 0]


def test_bars_start_at_zero_and_extend_left_below_it():
    none = math.nan
    row = {"F": (2.0, none, none), "M": (-1.0, none, none), "N": (none, none, none)}
    chart = charts.bars({"a": row}, title="t", label="l")
    right, left = chart["clusters"][0]["bars"]
    assert right["x"] == chart["zero"] and left["x"] + left["width"] == pytest.approx(chart["zero"])
    assert right["width"] == pytest.approx(2 * left["width"], abs=0.3)
    assert [bar["text"] for bar in (right, left)] == ["2.0", "-1.0"]
    assert (right["anchor"], left["anchor"]) == ("start", "end")
    assert right["hollow"] and left["hollow"] and chart["hollow"]
    row = {"F": (2.0, 1.0, 3.0), "M": (2.0, 2.0, 2.0), "N": (2.0, 1.0, 3.0)}
    chart = charts.bars({"a": row}, title="t", label="l", small=["N"])
    assert [bar["hollow"] for bar in chart["clusters"][0]["bars"]] == [False, True, True]


def test_bars_of_many_groups_have_their_names():
    """Colours repeat after seven: then each bar has its name beside it, and there is no legend."""
    row = {f"g{i}": (float(i), i - 1.0, i + 1.0) for i in range(9)}
    chart = charts.bars({"a": row, "b": row}, title="t", label="l")
    for cluster in chart["clusters"]:
        assert [bar["group"] for bar in cluster["bars"]] == list(row)
        assert cluster["middle"] < cluster["bars"][0]["y"]
    assert not chart["legend"]
    chart = charts.bars({"a": {"F": (1.0, 0.5, 1.5)}}, title="t", label="l")
    assert chart["legend"] == [("F", "var(--c0)")]


def test_bars_with_the_same_limits_share_an_axis():
    """A point is as long in each of them, and intervals stand around the ends of bars."""
    limits = charts.range_of([(-5.0, -5.0, -5.0), (10.0, 10.0, 10.0)], zero=True)
    panels = [
        charts.bars({"a": {"F": (v, v - 2.0, v + 2.0)}}, title="t", label="l", limits=limits)
        for v in (1.0, 8.0)
    ]
    assert panels[0]["x_marks"] == panels[1]["x_marks"]
    assert panels[0]["zero"] == panels[1]["zero"]
    for panel in panels:
        bar = panel["clusters"][0]["bars"][0]
        ((left, _, right, _),) = bar["whisker"]
        assert (left + right) / 2 == pytest.approx(bar["x"] + bar["width"], abs=0.2)
        assert bar["at"] > right  # the number is not written over the line


def test_one_wide_interval_ends_in_an_arrow_at_the_panel():
    """The other intervals keep their lengths, and the wide one its true ends in its title."""
    curve = [(float(b), 80.0 + b, 79.0 + b, 81.0 + b) for b in range(1, 6)]
    narrow = charts.lines({"a": curve}, {}, title="t", label="l")["series"][0]["marks"]
    wide = [*curve[:4], (5.0, 85.0, 15.0, 155.0)]
    marks = charts.lines({"a": wide}, {}, title="t", label="l")["series"][0]["marks"]
    lengths = [abs(found[0][3][0][1] - found[0][3][0][3]) for found in ((narrow[0],), (marks[0],))]
    assert lengths[1] > 0.3 * lengths[0]
    assert [len(lines) for *_, lines in marks] == [1, 1, 1, 1, 5]
    assert "15.00 to 155.00" in marks[-1][2]
    ends = [y for _, y1, _, y2 in marks[-1][3] for y in (y1, y2)]
    assert min(ends) >= charts.TOP and max(ends) <= 280 - charts.BOTTOM


def test_labels_are_not_written_over_lines():
    line = (107.0, 100.0, 180.0, 100.0)
    ((_, y, _, _),) = charts.placed_labels([(100.0, 100.0, "ε 1")], [line])
    assert not y - 10 < 100 < y + 2


def test_placed_labels_do_not_overlap():
    """Of ten points on one spot, as many are named as there is room for."""
    crowd = [(100.0 + i / 10, 100.0, f"ε {i}") for i in range(10)]
    placed = charts.placed_labels([*crowd, (250.0, 50.0, "ε 4"), (charts.WIDTH - 10, 50.0, "ε 8")])
    assert 2 <= len(placed) < 12 and {"ε 4", "ε 8"} <= {text for *_, text in placed}
    assert placed[-1][2] == "end"  # no room to the right
    boxes = []
    for x, y, anchor, text in placed:
        left = x if anchor == "start" else x - 6.6 * len(text)
        boxes.append((left, y - 10, left + 6.6 * len(text), y + 2))
        assert left >= charts.LEFT and boxes[-1][2] <= charts.WIDTH
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3]


def test_style_differs_for_a_hundred_series():
    styles = [tuple(charts.style(i).values()) for i in range(100)]
    assert len(set(styles)) == 100


@pytest.mark.parametrize("value", [0.0, -3.0, 50.0])
def test_lines_of_one_point_are_inside(value):
    chart = charts.lines(
        {"a": [(1.0, value, math.nan, math.nan)]}, {}, title="t", label="l", zero=True
    )
    x, y, *_ = chart["series"][0]["marks"][0]
    assert chart["left"] < x < chart["right"] and chart["top"] < y < chart["bottom"]


def test_scatter_has_both_intervals_or_hollow_points():
    none = math.nan
    points = {"a": [((80.0, 79.0, 81.0), (2.0, 1.0, 3.0), "ε 1")]}
    points["b"] = [((82.0, none, none), (2.0, 1.0, 3.0), "ε 1")]
    chart = charts.scatter(points, [(80.0, 2.0)], title="t", label="l", x_label="x")
    (*_, text, lines), (*_, hollow) = (s["marks"][0] for s in chart["series"])
    assert len(lines) == 2 and hollow == [] and chart["hollow"]
    assert text == "a, ε 1: 80.00 (79.00 to 81.00), 2.00 (1.00 to 3.00)"
