"""The three figures draw what their tables hold."""

import pandas as pd
import pytest

from benchmarks.papers.li import (
    bias_by_beta,
    bias_over_iterations,
    plot_bias_by_beta,
    plot_bias_by_epsilon,
    plot_bias_over_iterations,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402 - the backend comes first


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_iterations():
    _, ax = plt.subplots()
    plot_bias_over_iterations(bias_over_iterations(n_steps=50, noise_multiplier=0.5), ax)
    assert labels(ax) == ["β = 0.01", "β = 0.05", "expected path", "closed form"]
    assert [text.get_text() for text in ax.texts] == ["0.9755", "3.1605"]


def test_epsilon():
    table = pd.DataFrame(
        {
            "max_grad_norm": [1.0, 1.0, 3.0, 3.0],
            "epsilon": [0.1, 1.0, 0.1, 1.0],
            "simulated": [1.1, 1.0, 0.9, 0.5],
            "squared_bias": [0.9, 0.9, 0.4, 0.4],
        }
    )
    _, ax = plt.subplots()
    plot_bias_by_epsilon(table, ax)
    assert labels(ax) == ["c = 1", "c = 3", "bias alone"]
    assert list(ax.lines[0].get_ydata()) == [1.1, 1.0]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.1", "1"]


def test_beta_curve_passes_through_the_closed_form():
    table = bias_by_beta([0.0, 0.04, 0.08], 50, noise_multiplier=0.5)
    _, ax = plt.subplots()
    plot_bias_by_beta(table, ax)
    curve, points = ax.lines
    assert curve.get_ydata()[[0, -1]] == pytest.approx(table["squared_bias"].iloc[[0, -1]])
    assert list(points.get_ydata()) == list(table["simulated"])
