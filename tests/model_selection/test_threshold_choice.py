"""Thresholds chosen from counts: objectives, parity, and groups too small to tell their rates."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, confusion_matrix

from skdpfair.model_selection._score_counts import EDGES, N_BINS, SENSITIVITY, score_counts
from skdpfair.model_selection._threshold_choice import (
    CONSTRAINTS,
    OBJECTIVES,
    best_cut,
    best_mixtures,
    clearness,
    few_to_tell,
    pooled,
)

ALPHA = 1e-6  # the chance that correct code fails one of the statistical tests
COSTS = np.array([[0.0, 1.0], [5.0, 0.0]])


def noisy_counts(scores, labels, groups, deviation, draws):
    """Return counts of so many draws, with the noise of the library."""
    n_groups, noise = groups.max(initial=0) + 1, deviation / SENSITIVITY**2
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        yield score_counts(scores, labels, groups, n_groups, noise, rng)


def exact(scores, labels, groups):
    return next(noisy_counts(scores, labels, groups, 0.0, 1))


def two_groups():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, 20_000)
    labels = (rng.random(20_000) < 0.2 + 0.2 * groups).astype(int)
    return rng.normal(2.0 * labels - 1.5 + 0.5 * groups, 1.0), labels, groups


SCORES, LABELS, GROUPS = two_groups()
COUNTS = exact(SCORES, LABELS, GROUPS)


def one_group(shift, share, rng):
    """Return exact counts of 20,000 records: scores of its classes are shifted normal."""
    labels = (rng.random(20_000) < share).astype(int)
    return exact(rng.normal(2 * labels - 1 + shift), labels, np.zeros(20_000, int))[0]


def test_best_cut_serves_its_objective():
    scores, labels = SCORES, LABELS
    (counts,) = exact(SCORES, LABELS, 0 * GROUPS)

    def selected(*objective):
        return scores >= EDGES[best_cut(counts, *objective)]

    cuts = [scores >= edge for edge in EDGES]
    for objective, score in (
        ("balanced_accuracy", lambda p: balanced_accuracy_score(labels, p)),
        ("accuracy", lambda p: (labels == p).mean()),
    ):
        assert score(selected(objective)) >= max(map(score, cuts)) - 0.005
    cost = [(COSTS * confusion_matrix(labels, p)).sum() for p in (selected(COSTS), *cuts)]
    assert cost[0] <= 1.03 * min(cost[1:])
    assert selected("selection_rate").mean() == pytest.approx(labels.mean(), abs=0.02)
    assert selected("selection_rate", 0.1).mean() == pytest.approx(0.1, abs=0.02)
    assert 0.9 <= selected("true_positive_rate", 0.9)[labels == 1].mean() < 0.93


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("objective", [*OBJECTIVES, COSTS], ids=str)
def test_best_mixtures_satisfy_their_constraint(objective, constraint):
    counts = COUNTS
    target = 0.7 if isinstance(objective, str) and objective == "true_positive_rate" else None
    value = []
    for tolerance in (0.0, 0.05, 1.0):
        weights = best_mixtures(counts, objective, target, constraint, tolerance)
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        rates = np.einsum("ge,gce->gc", weights, counts / counts[..., :1])
        shares = counts[..., 0] / counts[..., 0].sum(axis=1, keepdims=True)
        gaps = np.abs(np.diff(rates, axis=0)).ravel()
        if constraint == "demographic_parity":
            gaps = np.abs(np.diff((rates * shares).sum(axis=1)))
        elif constraint == "equal_opportunity":
            gaps = gaps[1:]
        assert gaps.max() <= tolerance + 1e-6
        value.append((rates * counts[..., 0] * [-1, 1]).sum())
    if isinstance(objective, str) and objective == "accuracy":
        assert value[0] <= value[1] <= value[2] + 1e-6


def test_best_mixtures_need_no_record_of_each_class_in_each_group():
    is_third = (LABELS == 0) & (GROUPS == 0) & (np.arange(len(LABELS)) % 50 == 0)
    counts = exact(SCORES, LABELS, np.where(is_third, 2, GROUPS))
    assert counts[2, 1, 0] == 0
    counts = pooled(counts, 0.0)
    weights = best_mixtures(counts, "true_positive_rate", 0.8, "equal_opportunity", 0.0)
    rates = np.einsum("ge,ge->g", weights[:2], counts[:2, 1] / counts[:2, 1, :1])
    assert rates[0] == pytest.approx(rates[1], abs=1e-4) and rates[0] >= 0.8 - 1e-4


def test_pooled_counts_give_a_small_group_the_common_threshold_and_a_large_one_its_own():
    rng = np.random.default_rng(0)
    rest, other = one_group(0.0, 0.3, rng), one_group(3.0, 0.1, rng)
    common, own = (best_cut(counts, "balanced_accuracy") for counts in (rest, other))
    assert own - common > 15  # 8 for each unit of the logit
    for size, nearest in ((20_000, own), (5, common)):
        counts = np.array([rest, other * size / 20_000])
        noisy = counts + rng.normal(0, 20.0, counts.shape)
        noisy[..., -1] = 0
        cut = best_cut(pooled(noisy, 20.0)[1], "balanced_accuracy")
        assert abs(cut - nearest) <= 6, size
    counts = np.array([rest, other])
    np.testing.assert_allclose(pooled(counts, 0.0)[..., 0], counts[..., 0], rtol=0.02)


def test_pooled_counts_of_a_group_of_noise_have_the_shares_of_all():
    rest = one_group(0.0, 0.3, np.random.default_rng(0))
    for positives in (0, 40):
        noise = np.array([np.full(N_BINS + 1, 40.0 - positives), np.full(N_BINS + 1, positives)])
        noise[:, -1] = 0
        counts = pooled(np.array([rest, noise]), 25.0)[1]
        assert counts[1, 0] / counts[:, 0].sum() == pytest.approx(0.3, abs=0.05)
        assert abs(best_cut(counts, "accuracy") - best_cut(rest, "accuracy")) <= 6


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_best_mixtures_are_bound_by_no_group_of_noise(constraint):
    known, aim = COUNTS, "balanced_accuracy"
    rates = known / known[..., :1]
    alone = best_mixtures(pooled(known, 30.0), aim, None, constraint, 0.0)
    nobody = np.zeros(0, dtype=int)
    # one of the draws has counts of 0
    for noise in noisy_counts(nobody, nobody, nobody, 30.0, 5):
        counts = pooled(np.concatenate([known, noise]), 30.0)
        weights = best_mixtures(counts, aim, None, constraint, 0.0)
        # the objective counts the records of the third group, too
        found = np.einsum("kge,gce->kgc", [alone, weights[:2]], rates)
        assert np.abs(np.diff(found, axis=0)).max() < 0.05


@pytest.mark.parametrize("noise", [0.0, 30.0])
def test_few_to_tell_and_best_mixtures_need_only_the_classes_of_their_rates(noise):
    """Selection rates need no class, and true-positive rates need positives only."""
    rare = COUNTS * np.array([[[1.0], [1.0]], [[0.001], [1.0]]])
    few = {measure: few_to_tell(rare, measure, noise).tolist() for measure in CONSTRAINTS}
    assert few["equalized_odds"] == [False, True]
    assert few["demographic_parity"] == few["equal_opportunity"] == [False] * 2
    rare = COUNTS * np.array([[[1.0], [1.0]], [[1.0], [0.01]]])
    weights = best_mixtures(pooled(rare, noise), "accuracy", None, "demographic_parity", 0.0)
    rates = np.einsum("ge,gce->gc", weights, rare).sum(axis=1) / rare[..., 0].sum(axis=1)
    assert rates[0] == pytest.approx(rates[1], abs=0.03)


@pytest.mark.parametrize("small", [100, 250, 500])
@pytest.mark.parametrize("constraint", ["equal_opportunity", "equalized_odds"])
def test_best_mixtures_harm_no_small_group_in_any_draw(small, constraint):
    """Raw counts fail in 22 to 37 of 40 draws, and pooled ones in 1 of 1200 (500, one rate)."""
    rng, n = np.random.default_rng(0), 20_000
    groups = (np.arange(n + small) >= n).astype(int)
    labels = (rng.random(n + small) < np.where(groups == 1, 0.12, 0.3)).astype(int)
    scores = rng.normal(2.4 * labels - 2.0 - 0.25 * groups, 1.1)
    # rates of the population
    means = 2.4 * np.arange(2) - 2.0 - 0.25 * np.arange(2)[:, None]
    rates = stats.norm.sf(EDGES, means[..., None], 1.1)
    plain = rates[..., N_BINS // 2]
    for counts in noisy_counts(scores, labels, groups, 25.0, 40):
        weights = best_mixtures(pooled(counts, 25.0), "accuracy", None, constraint, 0.0)
        found = np.einsum("ge,gce->gc", weights, rates)
        wider = np.abs(np.diff(found, axis=0)) - np.abs(np.diff(plain, axis=0))
        lost = [[0.88, -0.12]] @ (found - plain)[1]
        assert wider[0, 1] < 0.05 and lost < 0.05


@pytest.mark.parametrize(("n_groups", "many"), [(1, 400), (30, 2400)])
def test_clearness_needs_counts_that_exceed_the_noise(n_groups, many):
    """By 58 positives in at most one draw of 1000, by many in all but one: else, ALPHA fails."""
    draws, rng, deviation = 40, np.random.default_rng(0), 36.0
    most = stats.binom.isf(ALPHA, draws, 1e-3)
    for positives, is_enough in ((58, False), (many, True)):
        labels = (np.arange(9000) < positives).astype(int)
        groups = np.arange(len(labels)) % n_groups
        found = [
            clearness(counts, "balanced_accuracy", deviation) >= 1
            for counts in noisy_counts(rng.normal(labels - 3.0), labels, groups, deviation, draws)
        ]
        assert draws * is_enough - np.sum(found) * (2 * is_enough - 1) <= most


@pytest.mark.parametrize(
    ("positives", "measure", "target", "is_enough"),
    [
        (250, "true_positive_rate", 0.98, False),  # of the positives, it leaves out fewer
        (250, "true_positive_rate", 0.8, True),
        (40, "selection_rate", None, False),  # a share of positives
        (400, "selection_rate", None, True),
        (40, "selection_rate", 0.2, True),
        (400, "selection_rate", 0.2, True),
    ],
)
def test_clearness_by_the_positives_that_a_target_needs(positives, measure, target, is_enough):
    counts = np.array([[[3000.0 - positives], [positives]]])
    assert (clearness(counts, measure, 10.5, target) >= 1) == is_enough
