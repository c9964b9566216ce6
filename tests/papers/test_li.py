"""Figures, cells and budgets in the study of Li et al."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.papers import STUDIES, Options, li
from benchmarks.papers.study import rows_of

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402 - the backend comes first


@pytest.fixture
def ax():
    yield plt.subplots()[1]
    plt.close("all")


def texts_of(things):
    return [text.get_text() for text in things]


def test_plot_bias_over_iterations(ax):
    li.plot_bias_over_iterations(li.bias_over_iterations(n_steps=50, noise_multiplier=0.5), ax)
    labels = ["β = 0.01", "β = 0.05", "expected path", "closed form"]
    assert texts_of(ax.get_legend().get_texts()) == labels
    assert texts_of(ax.texts) == ["0.9755", "3.1605"]


def test_plot_bias_by_epsilon(ax):
    columns = ["max_grad_norm", "epsilon", "simulated", "squared_bias"]
    rows = (1.0, 0.1, 1.1, 0.9), (1.0, 1.0, 1.0, 0.9), (3.0, 0.1, 0.9, 0.4), (3.0, 1.0, 0.5, 0.4)
    li.plot_bias_by_epsilon(pd.DataFrame(rows, columns=columns), ax)
    assert texts_of(ax.get_legend().get_texts()) == ["c = 1", "c = 3", "bias alone"]
    assert list(ax.lines[0].get_ydata()) == [1.1, 1.0]
    assert texts_of(ax.get_xticklabels()) == ["0.1", "1"]


def test_plot_bias_by_beta_passes_through_the_closed_form(ax):
    table = li.bias_by_beta([0.0, 0.04, 0.08], 50, noise_multiplier=0.5)
    li.plot_bias_by_beta(table, ax)
    curve, points = ax.lines
    assert curve.get_ydata()[[0, -1]] == pytest.approx(table["squared_bias"].iloc[[0, -1]])
    assert list(points.get_ydata()) == list(table["simulated"])


def test_bias_by_beta_agrees_with_the_closed_form():
    table = li.bias_by_beta([0.0, 0.05], 5000, noise_multiplier=0.5, random_state=0)
    np.testing.assert_allclose(table["expected"], table["squared_bias"], rtol=1e-3)
    np.testing.assert_allclose(table["simulated"], table["squared_bias"], rtol=0.05)


def test_cells_of_the_figures_have_the_fixed_points():
    """The closed form of the slides' simulation: .9755 and 3.1605."""
    found = {"simulated[0.01,100000]": [0.97, 0.98], "simulated[0.05,100000]": [3.1, 3.2]}
    frame = pd.DataFrame({"row": ["iterations"] * 2, "seed": [0, 1]} | found)
    cells = pd.DataFrame(STUDIES["li-figures"].cells(rows_of(frame)))
    np.testing.assert_allclose(cells["paper"], [0.9755, 3.1605], atol=1e-4)
    assert (cells["verdict"] == "same").all()


@pytest.mark.slow
def test_epsilon_of_each_figure():
    """Corollary 1's noise costs 259 at delta 1/m; shorter runs cost less."""
    assert li.epsilon_of(li.noise_multiplier(sound=False), 100_000) == pytest.approx(259.0, abs=0.5)
    sound = li.noise_multiplier(sound=True)
    assert li.epsilon_of(sound, 100_000) == pytest.approx(0.1, abs=1e-3)
    assert li.epsilon_of(sound, 20_000) < 0.06
    kinds = [run.settings.get("noise") for run in STUDIES["li-figures"].runs(Options(sound=False))]
    assert set(kinds) == {"Corollary 1", None}
