"""Verdicts on cells and claims, by hand."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.papers.study import LOSS, POINTS, cell, claim, less_apart


@pytest.mark.parametrize(
    ("values", "paper", "paper_se", "rule", "verdict"),
    [
        ([70.0, 70.0], 70.5, 0.0, POINTS, "same"),  # half a point is allowed to all
        ([70.0, 70.0], 70.51, 0.0, POINTS, "near"),
        ([70.0, 70.0], 71.51, 0.0, POINTS, "differs"),
        ([70.0, 70.0], 71.0, 0.5, POINTS, "same"),  # 2 standard errors
        ([70.0, 70.0], 72.0, 0.5, POINTS, "near"),  # 4
        ([70.0, 70.0], 72.1, 0.5, POINTS, "differs"),
        ([69.0, 71.0], 72.0, 0.0, POINTS, "same"),  # ours count, too: their error is 1
        ([69.0, 71.0], 72.9, 0.5, POINTS, "near"),  # 2 hypot(1, .5) = 2.24
        ([0.5, 0.5], 0.52, 0.0, LOSS, "same"),
        ([0.5, 0.5], 0.521, 0.0, LOSS, "near"),
        ([0.5, 0.5], 0.561, 0.0, LOSS, "differs"),
        ([70.0], 70.4, np.nan, POINTS, "same"),
        ([70.0, 71.0], np.nan, np.nan, POINTS, "not in print"),
        ([np.nan, 1.0], 1.0, 0.1, POINTS, "not measured"),
    ],
)
def test_verdict_of_a_cell(values, paper, paper_se, rule, verdict):
    found = cell("row", "measure", values, rule, paper, paper_se)
    assert found["verdict"] == verdict
    if not np.isnan(values).any():
        assert found["ours"] == np.mean(values) and found["n_seeds"] == len(values)
    if len(values) > 1 and verdict != "not measured":
        assert found["ours_se"] == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.0, 1.05], "holds"),
        ([-1.0, -1.05], "fails"),
        ([1.0, 1.5], "undecided"),  # two seeds: Student's t is 12.7
        ([1.0, -1.2], "undecided"),
        ([9.0], "undecided"),
    ],
)
def test_verdict_of_a_claim(values, verdict):
    assert claim("so", values)["verdict"] == verdict
    below = claim("so", -np.asarray(values), below=0)
    assert below["verdict"] == verdict and below["measured"] == -np.mean(values)


def test_less_apart_is_the_difference_of_the_absolute_means():
    plain, other = pd.Series([3.0, -1.0, 4.0]), pd.Series([-2.0, 1.0, -0.5])
    assert less_apart(plain, other).mean() == pytest.approx(abs(plain.mean()) - abs(other.mean()))
