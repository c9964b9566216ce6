"""The geometry of charts: values are where the axes say."""

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


def test_a_curve_is_where_its_axes_say():
    curves = {"a": [(0.1, 70.0, 1.0), (1.0, 80.0, math.nan), (10.0, 90.0, 2.0)]}
    chart = charts.lines(curves, {"reference": 85.0}, title="t", label="l")
    (low, _, _), (middle, _, said), (high, _, _) = chart["series"][0]["marks"]
    assert middle == pytest.approx((low + high) / 2, abs=0.1)  # logarithmic
    assert said == "a, ε 1: 80.00"
    heights = [y for _, y, _ in chart["series"][0]["marks"]]
    assert heights[1] == pytest.approx((heights[0] + heights[2]) / 2, abs=0.1)
    reference = chart["across"][0][0]
    assert reference == pytest.approx((heights[1] + heights[2]) / 2, abs=0.1)
    y_of = {float(text): y for y, text in chart["y_marks"]}
    assert y_of[80.0] == pytest.approx(heights[1], abs=0.1)
    assert len(chart["series"][0]["band"]) == 4  # the point without error has none


def test_bars_start_at_zero_and_go_left_below_it():
    chart = charts.bars({"a": {"F": 2.0, "M": -1.0, "N": math.nan}}, title="t", label="l")
    right, left = chart["clusters"][0]["bars"]
    assert right["x"] == chart["zero"] and left["x"] + left["width"] == pytest.approx(chart["zero"])
    assert right["width"] == pytest.approx(2 * left["width"], abs=0.3)
    assert [bar["text"] for bar in (right, left)] == ["2.0", "-1.0"]
    assert (right["anchor"], left["anchor"]) == ("start", "end")


def test_many_bars_name_their_groups():
    """Colours repeat after seven: then each bar has its name beside it, and there is no legend."""
    row = {f"g{i}": float(i) for i in range(9)}
    chart = charts.bars({"a": row, "b": row}, title="t", label="l")
    for cluster in chart["clusters"]:
        assert [bar["group"] for bar in cluster["bars"]] == list(row)
        assert cluster["middle"] < cluster["bars"][0]["y"]
    assert not chart["legend"]
    assert charts.bars({"a": {"F": 1.0}}, title="t", label="l")["legend"] == [("F", "var(--c0)")]


def test_a_hundred_series_are_told_apart():
    styles = [tuple(charts.style(i).values()) for i in range(100)]
    assert len(set(styles)) == 100


@pytest.mark.parametrize("value", [0.0, -3.0, 50.0])
def test_one_point_has_room(value):
    chart = charts.lines({"a": [(1.0, value, math.nan)]}, {}, title="t", label="l", zero=True)
    (x, y, _) = chart["series"][0]["marks"][0]
    assert chart["left"] < x < chart["right"] and chart["top"] < y < chart["bottom"]
