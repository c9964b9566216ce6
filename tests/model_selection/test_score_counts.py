"""Noisy counts of records by score, class and group: sensitivity, noise, and exact counts."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skdpfair.model_selection import _score_counts
from skdpfair.model_selection._score_counts import EDGES, N_BINS, score_counts, square_root

ALPHA = 1e-6  # the chance that correct code fails


def released(scores, classes, groups, n_groups):
    """Return what gets noise, and its sensitivity."""
    with mock.patch.object(_score_counts, "noisy", side_effect=lambda v, *_: v) as noisy:
        rng = np.random.default_rng(0)
        score_counts(np.array(scores), np.array(classes), np.array(groups), n_groups, 1.0, rng)
    return noisy.call_args.args[:2]


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.floats(-20, 20) | st.sampled_from([np.nan, np.inf, -np.inf, 8.0, -8.0]),
            st.integers(0, 1),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_score_counts_move_with_one_record_by_at_most_their_sensitivity(rows):
    with_all, sensitivity = released(*zip(*rows, strict=True), n_groups=3)
    without = np.zeros_like(with_all)
    if len(rows) > 1:
        without, _ = released(*zip(*rows[1:], strict=True), n_groups=3)
    assert np.linalg.norm(with_all - without) <= sensitivity * (1 + 1e-12)


def test_score_counts_reach_their_sensitivity():
    moved, sensitivity = released([9.0], [1], [0], n_groups=1)
    assert np.linalg.norm(moved) == pytest.approx(sensitivity)


def test_score_counts_without_noise_are_those_of_the_records():
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 4, 500)
    classes, groups = rng.integers(0, 2, 500), rng.integers(0, 3, 500)
    counts = score_counts(scores, classes, groups, 3, 0.0, rng)
    clipped = np.clip(scores, EDGES[0], np.nextafter(EDGES[-1], 0))
    for g, c in np.ndindex(3, 2):
        of = clipped[(groups == g) & (classes == c)]
        np.testing.assert_allclose(counts[g, c], [(of >= e).sum() for e in EDGES], atol=1e-9)


def test_noisy_histograms_carry_fresh_noise_of_the_claimed_scale():
    n_histograms, draws, noise = 4, 200, 3.0
    empty, rng = np.zeros((n_histograms, N_BINS)), np.random.default_rng(0)
    found = np.array([_score_counts.noisy_histograms(empty, noise, rng) for _ in range(draws)])
    sd = noise * np.linalg.norm(square_root(N_BINS)[:, 0])
    statistic = ((found / sd) ** 2).sum(axis=(0, 2))
    tail = ALPHA / 2 / (n_histograms + 1)
    low, high = stats.chi2.ppf([tail, 1 - tail], draws * N_BINS)
    assert ((low < statistic) & (statistic < high)).all()
    # independent: the mean over histograms has the variance of a mean
    statistic = ((found.mean(axis=1) / sd) ** 2).sum() * n_histograms
    assert low < statistic < high
