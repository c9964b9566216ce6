"""Which model of a sweep to take, what it costs whom, and how sure that is."""

import math
from dataclasses import dataclass

import numpy as np

from skdpfair.metrics._intervals import student, wilson
from skdpfair.metrics._measures import COST, LEVEL, MEASURES, OVERALL, level_of

# test records of a group, below which its cost is not judged
FEW = 30
FEW_OF_RAREST = 10  # records of the rarest class among them, where the class is rare
# far less than one record changes
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Estimate:
    """A mean over the runs with Student's interval, as shares; NaN limits without one.

    Runs that all give the same value have an interval of width zero, which tells nothing about
    other runs.
    """

    mean: float
    low: float
    high: float
    n_runs: int

    @property
    def is_constant(self) -> bool:
        """Whether several runs gave the same value, apart from rounding errors."""
        return bool(self.high - self.low < _ROUNDING)

    @property
    def is_above_zero(self) -> bool:
        """Whether an interval that is not of width zero is above zero."""
        return bool(self.low > 0) and not self.is_constant


@dataclass(frozen=True)
class Recommendation:
    """A model of a sweep, and what speaks for it."""

    method: str
    epsilon: float
    is_useful: bool  # else no model is, and this one is not recommended
    score: Estimate  # of the first leading measure
    larger: tuple | None  # model and its gain: the largest, which is not measurable
    smaller: tuple | None  # next budget, and the budget that gains over it, and the gain
    equals: list[str]  # methods at this budget that are not measurably worse
    cost: tuple | None  # the group, among those that are judged, and its Estimate
    highest: tuple | None  # the group whose interval of the cost ends highest, and the end


def estimated(values, level=LEVEL) -> Estimate:
    """Return the mean of the values of runs, shares, with Student's interval within -1 and 1."""
    values = np.asarray(values, float)
    values = values[~np.isnan(values)]
    n = len(values)
    if n < 2:
        return Estimate(values.mean() if n else np.nan, np.nan, np.nan, n)
    low, high = student(values.mean(), values.std(ddof=1) / n**0.5, n, level)
    return Estimate(values.mean(), float(low), float(high), n)


def small_groups(results) -> list[str]:
    """Return the groups whose costs are not judged, as too few test records are theirs.

    These are groups with fewer than 30 test records in some run or, if a class is rare, fewer
    than 10 of this class.
    """
    frame = results.frame[results.frame["group"] != OVERALL]
    few = frame["n"] < FEW
    if results.leading_measures != ["accuracy"]:
        few |= (frame["n"] * frame["rarest_class_share"]).round() < FEW_OF_RAREST
    return [g for g in frame["group"].unique() if few[frame["group"] == g].any()]


def recommend(results) -> Recommendation | None:
    """Return the private model of a sweep that is recommended, or None if nothing can be said.

    Only models with at least two runs compete whose leading measure is measurably above that of
    always predicting the same class, if that is known. At each budget, the one with the largest
    mean stands for the budget. Recommended is the smallest budget over which no larger one gains
    measurably: the 95 % interval of the gains run by run is above zero, and the gains are not all
    the same, as two or three runs may agree by chance. If no model is measurably above predicting
    one class, all compete, and none is recommended.

    Parameters
    ----------
    results : TradeoffResults
        Results of a sweep.

    Returns
    -------
    Recommendation or None
    """
    measure = results.leading_measures[0]
    runs = results.by_run()
    runs = runs[np.isfinite(runs.index.get_level_values("epsilon"))]
    # a row per model, a column per run
    scores = runs[measure].unstack(["seed", "fold"])
    scores = scores[scores.notna().sum(axis=1) > 1]
    if scores.empty:
        return None
    useful = [is_useful(results, estimated(row)) for _, row in scores.iterrows()]
    scores = scores[useful] if any(useful) else scores
    best = {e: part.mean(axis=1).idxmax() for e, part in scores.groupby(level="epsilon")}
    gains = {
        (low, high): estimated(scores.loc[best[high]] - scores.loc[best[low]])
        for low in best
        for high in best
        if high > low
    }
    measurable = {pair: gain for pair, gain in gains.items() if gain.is_above_zero}
    budgets = sorted(best)
    at = next(i for i, low in enumerate(budgets) if all(pair[0] != low for pair in measurable))
    chosen = budgets[at]
    above = [pair for pair in gains if pair[0] == chosen]
    below = [pair for pair in measurable if at and pair[0] == budgets[at - 1]]

    def largest(pairs):
        return max(pairs, key=lambda pair: gains[pair].mean, default=None)

    larger, smaller = largest(above), largest(below)
    leads = scores.loc[best[chosen]] - scores.xs(chosen, level="epsilon")
    equals = [m for m, lead in leads.iterrows() if not estimated(lead).is_above_zero]
    own = runs.xs(best[chosen][0], level="method").xs(chosen, level="epsilon")
    method = best[chosen][0]
    return Recommendation(
        method,
        chosen,
        any(useful),
        estimated(scores.loc[best[chosen]]),
        larger and (*best[larger[1]], gains[larger]),
        smaller and (*smaller, gains[smaller]),
        [m for m in equals if m != method],
        *largest_costs(costs_by_group(results, own)),
    )


def chance(results):
    """Return the leading score of always predicting one class, or None if it is not known."""
    counts = results.spec.counts
    if results.leading_measures[0] == "balanced_accuracy":
        return 1 / results.n_classes
    return np.sum(counts, axis=0).max() / np.sum(counts) if counts else None


def is_useful(results, score: Estimate) -> bool:
    """Return whether a leading score is measurably better than predicting one class, if known.

    A share that is the same in all runs has Wilson's interval over the test records of one run.
    """
    least, low = chance(results), score.mean if score.n_runs == 1 else score.low
    if least is None:
        return True
    if score.is_constant and MEASURES[results.leading_measures[0]].trials == "all":
        n = results.frame.loc[results.frame["group"] == OVERALL, "n"].min()
        low = wilson(score.mean, n)[0]
    return low > least and not math.isclose(low, least)


def costs_by_group(results, runs) -> dict[str, Estimate]:
    """Return the privacy cost of each group that is judged, in the runs of one model.

    The intervals hold at once, so that they hold for the group with the largest cost, too.
    """
    cost = COST[results.leading_measures[0]]
    if cost not in runs:
        return {}
    groups = [g for g in results.frame["group"].unique() if g != OVERALL]
    judged = [g for g in groups if g not in small_groups(results)]
    columns = {g: f"{cost}[{g}]" for g in judged}
    costs = {g: estimated(runs[c], level_of(c, len(groups))) for g, c in columns.items()}
    return {g: found for g, found in costs.items() if not np.isnan(found.mean)}


def largest_costs(costs):
    """Return the groups with the largest mean cost and with the highest end of an interval."""
    highest = {
        g: found.high
        for g, found in costs.items()
        if not (np.isnan(found.high) or found.is_constant)
    }
    return (
        max(costs.items(), key=lambda item: item[1].mean, default=None),
        max(highest.items(), key=lambda item: (item[1], costs[item[0]].mean), default=None),
    )
