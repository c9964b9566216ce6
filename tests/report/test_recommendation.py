"""recommend takes the smallest budget that no larger one beats measurably, and judges its costs."""

import numpy as np
import pytest
from scipy.stats import binom
from scipy.stats import t as student

from skdpfair.metrics._measures import level_of
from skdpfair.report._recommendation import (
    Costs,
    chance,
    estimated,
    is_useful,
    recommend,
    small_groups,
    worse_group,
)

NOISY = np.array([-0.02, 0.0, 0.02])
NEAR = np.array([-0.022, 0.002, 0.02])  # whose differences from NOISY are not all the same


def test_estimated_intervals_end_where_shares_do():
    wide = estimated([-0.2, 0.5], 0.0)
    assert (wide.low, wide.high, wide.n_runs) == (-1.0, 1.0, 2)
    costs = Costs(None, {"a": estimated([-0.3, 0.3], 0.0), "b": wide}, None)
    assert costs.largest == ("b", wide)
    assert costs.highest == ("b", 1.0)  # of equal ends, the larger cost's


@pytest.mark.parametrize("n_groups", [2, 3, 5, 10, 20])
@pytest.mark.parametrize("n_runs", [3, 10])
def test_levels_of_groups_raise_false_alarms_in_5_percent_of_sweeps(n_groups, n_runs):
    """The largest cost, the largest difference and the worst group, chosen by their means."""
    values = np.random.default_rng(0).normal(0, 0.02, (1000, n_runs, n_groups))
    order = values.mean(axis=1).argsort(axis=1)
    least, most = (np.take_along_axis(values, order[:, None, [i]], 2)[..., 0] for i in (0, -1))
    for column, runs in {
        "privacy_cost[F]": most,
        "privacy_cost_difference": most - least,
        "privacy_cost_group_max": most,
    }.items():
        reach = student.ppf((1 + level_of(column, n_groups)) / 2, n_runs - 1)
        errors = runs.std(axis=1, ddof=1) / n_runs**0.5
        alarms = np.abs(runs.mean(axis=1)) > reach * errors
        assert alarms.sum() <= binom.ppf(0.999, len(alarms), 0.05), column


ASIDE = np.array([0.03, -0.02, 0.0])
ADVICE = [  # scores, and method, budget, smaller and larger budget, and methods that are no worse
    # b is worse by about .05 in every run
    (
        {("a", 1.0): 0.7 + NEAR, ("a", 2.0): 0.8 + NOISY, ("b", 2.0): 0.75 + NEAR},
        ("a", 2.0, 1.0, None, []),
    ),
    (
        {("a", 0.5): 0.8 + NOISY, ("b", 0.5): 0.79 + ASIDE, ("a", 4.0): 0.81 + ASIDE},
        ("a", 0.5, None, 4.0, ["b"]),
    ),
    (
        {("a", 1.0): 0.7 + NEAR, ("a", 2.0): 0.8 + NOISY, ("a", 4.0): 0.81 + ASIDE},
        ("a", 2.0, 1.0, 4.0, []),
    ),
]


@pytest.mark.parametrize(("scores", "expected"), ADVICE)
def test_recommend_takes_the_smallest_budget_that_no_larger_one_beats(scores, expected, by_hand):
    advised = recommend(by_hand.scored(scores))
    smaller, larger = advised.smaller and advised.smaller[0], advised.larger and advised.larger[1]
    assert (advised.method, advised.epsilon, smaller, larger, advised.equals) == expected


def test_gains_have_students_interval_over_the_runs(by_hand):
    advised = recommend(by_hand.scored(ADVICE[1][0]))
    reach = student.ppf(0.975, 2) * np.std([0.06, -0.01, -0.01], ddof=1) / 3**0.5
    gain = advised.larger[2]
    ends = [0.04 / 3 - reach, 0.04 / 3, 0.04 / 3 + reach]
    assert [gain.low, gain.mean, gain.high] == pytest.approx(ends)
    assert advised.max_gain == gain.high


@pytest.mark.parametrize(("score", "useful"), [(0.6, False), (0.605, False), (1.0, True)])
def test_is_useful_compares_a_constant_score_with_chance_over_the_test_records(
    score, useful, by_hand
):
    """Of 800 records, Wilson's interval of .605 begins at .571, and that of 1 at .995."""
    found = by_hand.scored({("a", 1.0): np.full(3, score)}, is_counted=True)
    advised = recommend(found)
    assert chance(found) == 0.6 and is_useful(found, advised.score) == useful == advised.is_useful


def test_models_that_do_not_beat_chance_do_not_compete(by_hand):
    """The smallest budget is one that larger ones do not beat measurably, and no better than .6."""
    wide = np.array([-0.12, 0.0, 0.12])
    scores = {("a", 0.5): 0.62 + wide, ("a", 1.0): 0.7 + NOISY, ("b", 1.0): 0.72 + wide}
    scores |= {("a", 4.0): 0.705 + NEAR[[2, 0, 1]], ("b", 8.0): 0.65 + wide}
    assert recommend(by_hand.scored(scores)).epsilon == 0.5  # where chance is not known
    advised = recommend(by_hand.scored(scores, is_counted=True))
    assert (advised.method, advised.epsilon, advised.is_useful) == ("a", 1.0, True)


def test_costs_of_small_groups_are_not_judged(by_hand):
    found = by_hand.scored({("a", 1.0): 0.85 + NOISY})
    frame = found.frame
    frame.loc[frame["group"] == "F", "privacy_cost"] += 0.2
    frame.loc[(frame["group"] == "F") & (frame["seed"] == 1), "n"] = 29
    costs = recommend(found).costs
    assert small_groups(found) == ["F"] and list(costs.groups) == ["M"]
    assert costs.largest[0] == "M" and costs.largest[1].mean == pytest.approx(0.05)
    rare = {"rarest_class_share": 0.025, "balanced_accuracy": 0.7, "rarest_class_recall": 0.6}
    found.frame = frame.assign(**rare)  # ten of 400
    assert small_groups(found) == ["F"]
    found.frame.loc[frame["group"] == "M", "rarest_class_share"] = 9 / 400
    assert small_groups(found) == ["F", "M"]
    found.frame = frame.assign(n=29)
    assert recommend(found).costs.largest is None


def test_costs_find_the_group_whose_cost_may_be_highest(by_hand):
    found = by_hand.scored({("a", 1.0): 0.8 + NOISY})
    frame, cost = found.frame, {"F": [0.10, 0.10, 0.13], "M": [0.0, 0.08, 0.16]}
    for group, values in cost.items():
        frame.loc[(frame["method"] == "a") & (frame["group"] == group), "privacy_cost"] = values
    costs = recommend(found).costs
    assert costs.largest[0] == "F" and costs.largest[1].mean == pytest.approx(0.11)
    # mean .08, standard deviation .08, t of two degrees at an error of .05 / 2: 6.205
    assert costs.highest == ("M", pytest.approx(0.08 + 6.2053 * 0.08 / 3**0.5, abs=1e-5))


def test_costs_difference_is_of_two_groups(by_hand):
    """The difference has its interval over the runs, at the level of all pairs of groups."""
    found = by_hand.scored({("a", 1.0): 0.88 + NOISY}, groups=("F", "M", "X"))
    frame = found.frame
    for group, cost in {"F": 0.02, "M": 0.021, "X": 0.05}.items():
        of_group = (frame["group"] == group) & (frame["method"] == "a")
        frame.loc[of_group, "privacy_cost"] = cost + np.array([0.0, 0.003, -0.002]) * (group == "X")
    costs = recommend(found).costs
    most, least, difference = costs.difference
    more = np.array([0.03, 0.033, 0.028])
    reach = student.ppf(1 - 0.025 / 3, 2) * more.std(ddof=1) / 3**0.5
    assert (most, least, difference.is_above_zero) == ("X", "F", True)
    ends = [more.mean() - reach, more.mean(), more.mean() + reach]
    assert [difference.low, difference.mean, difference.high] == pytest.approx(ends)
    assert costs.overall.mean == pytest.approx(0.02)
    frame.loc[(frame["group"] == "X") & (frame["seed"] == 0), "privacy_cost"] = 0.0
    assert not recommend(found).costs.difference[2].is_above_zero


def test_worse_group_is_that_of_the_recommended_model(by_hand):
    """The difference is taken run by run, and beside it stands that of the reference."""
    found = by_hand.scored({("a", 1.0): 0.8 + NOISY}, is_counted=True)
    frame = found.frame
    less = np.where(frame["group"] == "M", np.where(frame["method"] == "a", 0.05, 0.02), 0.0)
    found.frame = frame.assign(accuracy=frame["accuracy"] - less)
    worst = worse_group(found, found.estimates(), recommend(found))
    assert (worst["lowest"], worst["highest"], worst["records"]) == ("M", "F", [500, 500])
    assert (worst["low"], worst["high"]) == pytest.approx((0.75, 0.8))
    assert (worst["gap"].mean, worst["reference"]) == pytest.approx((0.05, 0.02))
    found.frame.loc[found.frame["group"] == "F", "n"] = 29  # which is not judged
    assert worse_group(found, found.estimates(), recommend(found)) is None
