import sys
from itertools import pairwise

import pandas as pd
import pytest

from skdpfair.plotting import plot_group_accuracy, plot_group_bars, plot_privacy_cost

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402 - the backend comes first


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def table():
    table = pd.DataFrame(
        {
            "accuracy": [0.85, 0.82, 0.84],
            "accuracy[Female]": [0.93, 0.921, 0.93],
            "accuracy[Male]": [0.81, 0.752, 0.80],
            "privacy_cost[Female]": [0.0, 0.009, 0.0],
            "privacy_cost[Male]": [0.0, 0.058, -0.01],
            "privacy_cost_gap": [0.0, 0.049, 0.01],
        },
        index=pd.Index(["sgd", "dpsgd", "global_adapt"], name="model"),
    )
    table.attrs["reference"] = "sgd"
    return table


def bar_labels(ax):
    return [text.get_text() for text in ax.texts]


def test_accuracy_shows_every_model_and_group_in_per_cent(table):
    ax = plot_group_accuracy(table)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == list(table.index)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["Female", "Male"]
    assert bar_labels(ax) == ["93.0", "92.1", "93.0", "81.0", "75.2", "80.0"]


def test_the_zoom_of_the_accuracy_axis_is_marked_and_the_bars_end_at_the_values(table):
    ax = plot_group_accuracy(table)
    assert ax.get_ylim()[0] == 70
    assert "axis starts at 70" in ax.get_ylabel()
    assert len(ax.lines) == 1
    assert max(bar.get_y() + bar.get_height() for bar in ax.patches) == pytest.approx(93)
    whole = plot_group_accuracy(table * 0.1)
    assert whole.get_ylim()[0] == 0
    assert "starts" not in whole.get_ylabel()
    assert not whole.lines


def test_cost_leaves_the_reference_out_and_has_a_zero_line(table):
    ax = plot_privacy_cost(table)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["dpsgd", "global_adapt"]
    assert bar_labels(ax) == ["+0.9", "+0.0", "+5.8", "\N{MINUS SIGN}1.0"]
    assert "percentage points" in ax.get_ylabel()
    assert "against sgd" in ax.get_title(loc="left")
    assert list(ax.lines[0].get_ydata()) == [0, 0]


def test_cost_without_a_known_reference_shows_all(table):
    table.attrs.clear()
    assert len(plot_privacy_cost(table).get_xticklabels()) == 3


def test_a_tiny_cost_does_not_fill_the_axes(table):
    assert plot_privacy_cost(table / 1000).get_ylim()[1] == 1


def test_given_axes_are_used_and_no_figure_is_opened(table):
    figure, axes = plt.subplots(1, 2)
    assert plot_group_accuracy(table, axes[0]) is axes[0]
    assert plot_privacy_cost(table, ax=axes[1]) is axes[1]
    assert plt.get_fignums() == [figure.number]


@pytest.mark.parametrize("n_groups", [1, 2, 5, 7, 9])
@pytest.mark.parametrize("n_models", [1, 3, 6])
@pytest.mark.parametrize("name", ["dpsgd {}", "a model with a long name {}"])
def test_nothing_overlaps_or_leaves_the_picture(n_groups, n_models, name):
    columns = {f"accuracy[group {g}]": [0.8 + g / 100] * n_models for g in range(n_groups)}
    rows = pd.DataFrame(columns, index=[name.format(i) for i in range(n_models)])
    ax = plot_group_accuracy(rows)
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    page, legend = ax.figure.bbox, ax.get_legend().get_window_extent()
    title = ax._left_title.get_window_extent()
    for box in (legend, title, ax.yaxis.label.get_window_extent()):
        assert page.x0 <= box.x0 and box.x1 <= page.x1
        assert page.y0 <= box.y0 and box.y1 <= page.y1
    assert not legend.overlaps(title)
    if name == "dpsgd {}":
        ticks = [tick.get_window_extent() for tick in ax.get_xticklabels()]
        assert not any(a.overlaps(b) for a, b in pairwise(ticks))


def test_missing_values_draw_no_label():
    rows = pd.DataFrame({"a": [1.0, float("nan")], "b": [2.0, 3.0]})
    assert bar_labels(plot_group_bars(rows, {"a": "A", "b": "B"})) == ["1.0", "", "2.0", "3.0"]


def test_wrong_tables_are_named(table):
    with pytest.raises(ValueError, match=r"lacks the columns \['x'\]"):
        plot_group_bars(table, ["x"])
    with pytest.raises(ValueError, match="at least one row"):
        plot_privacy_cost(table.loc[["sgd"]])
    for plot, measure in ((plot_group_accuracy, "accuracy"), (plot_privacy_cost, "privacy_cost")):
        with pytest.raises(ValueError, match=rf"columns {measure}\[GROUP\].*group_table"):
            plot(table[["privacy_cost_gap"]])


def test_without_matplotlib_the_extra_is_named(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "skdpfair\[plot\]"'):
        plot_group_accuracy(table)
