"""Which model of a sweep to take, what it costs whom, and how sure that is."""

import math
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from skdpfair.metrics._intervals import error_of_mean, student, wilson
from skdpfair.metrics._measures import COMPARING, COST, LEVEL, MEASURES, OVERALL, level_of

FEW = 30  # test records of a group, below which its cost is not judged
FEW_OF_RAREST = 10  # records of the rarest class among them, where the class is rare


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

    @classmethod
    def of(cls, row):
        return cls(row["mean"], row["low"], row["high"], int(row["n"]))

    @property
    def is_constant(self) -> bool:
        return bool(self.high == self.low)

    @property
    def is_above_zero(self) -> bool:
        """Whether an interval that is not of width zero is above zero."""
        return bool(self.low > 0) and not self.is_constant


@dataclass(frozen=True)
class Costs:
    """What the privacy of one model costs, by `TradeoffResults.estimates`."""

    overall: Estimate | None
    groups: dict[str, Estimate]  # those that are judged
    difference: tuple | None  # groups with the largest and the least mean, and what one pays more

    @property
    def largest(self):
        """The group with the largest mean, and its cost, None without a group."""
        return max(self.groups.items(), key=lambda item: item[1].mean, default=None)

    @property
    def highest(self):
        """The group whose interval ends highest, and the end, None without an interval."""
        ends = {g: c.high for g, c in self.groups.items() if c.high > c.low}
        at = max(ends, key=lambda g: (ends[g], self.groups[g].mean), default=None)
        return None if at is None else (at, ends[at])


@dataclass(frozen=True)
class Recommendation:
    """A model of a sweep, and what speaks for it."""

    method: str
    epsilon: float
    is_useful: bool  # else no model is, and this one is not recommended
    score: Estimate  # of the first leading measure
    larger: tuple | None  # model and its gain: the largest, which is not measurable
    max_gain: float  # that larger budgets may gain, NaN without an interval
    smaller: tuple | None  # next budget, and the budget that gains over it, and the gain
    equals: list[str]  # methods at this budget that are not measurably worse
    costs: Costs


def estimated(differences, common, level=LEVEL) -> Estimate:
    """Return the mean of differences of shares, run by run, as `TradeoffResults.estimates` does."""
    values = np.asarray(differences, float)
    values = values[~np.isnan(values)]
    mean = values.mean() if len(values) else np.nan
    low, high = student(mean, error_of_mean(values, common), len(values), level)
    return Estimate(mean, float(low), float(high), len(values))


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


def is_unsure(results, column) -> bool:
    of_small = tuple(f"[{group}]" for group in small_groups(results))
    return bool(of_small) and column.endswith(COMPARING + of_small)


def recommend(results) -> Recommendation | None:
    """Return the private model of a sweep that is recommended, or None if nothing can be said.

    Only models with at least two runs compete whose leading measure is measurably above that of
    always predicting the same class, if that is known. At each budget, the one with the largest
    mean stands for the budget. Recommended is the smallest budget over which no larger one gains
    measurably: the 95 % interval of the gains run by run is above zero, and the gains are not all
    the same, as two or three runs may agree by chance. If no model is measurably above predicting
    one class, all compete, and none is recommended.
    """
    measure = results.leading_measures[0]
    table = results.estimates([m for m in (measure, COST[measure]) if m in results.frame])
    runs = results.by_run()
    runs = runs[np.isfinite(runs.index.get_level_values("epsilon"))]
    # a row per model, a column per run
    scores = runs[measure].unstack(["seed", "fold"])
    scores = scores[scores.notna().sum(axis=1) > 1]
    if scores.empty:
        return None
    estimates = {model: Estimate.of(table.loc[model, measure]) for model in scores.index}
    useful = [is_useful(results, estimates[model]) for model in scores.index]
    scores = scores[useful] if any(useful) else scores
    best = {e: part.mean(axis=1).idxmax() for e, part in scores.groupby(level="epsilon")}
    budgets = sorted(best)
    gains = {
        (low, high): estimated(scores.loc[best[high]] - scores.loc[best[low]], results.overlap)
        for low, high in combinations(budgets, 2)
    }
    measurable = {pair: gain for pair, gain in gains.items() if gain.is_above_zero}
    at = next(i for i, low in enumerate(budgets) if all(pair[0] != low for pair in measurable))
    method, chosen = best[budgets[at]]
    above = [pair for pair in gains if pair[0] == chosen]
    below = [pair for pair in measurable if at and pair[0] == budgets[at - 1]]
    larger, smaller = (
        max(pairs, key=lambda pair: gains[pair].mean, default=None) for pairs in (above, below)
    )
    leads = scores.loc[best[chosen]] - scores.xs(chosen, level="epsilon")
    leads = {m: estimated(lead, results.overlap) for m, lead in leads.iterrows()}
    ends = [gains[pair].high for pair in above if not gains[pair].is_constant]
    return Recommendation(
        method,
        chosen,
        any(useful),
        estimates[best[chosen]],
        larger and (*best[larger[1]], gains[larger]),
        max(ends, default=np.nan),
        smaller and (*smaller, gains[smaller]),
        [m for m, lead in leads.items() if m != method and not lead.is_above_zero],
        costs_of(results, table, runs, best[chosen]),
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


def costs_of(results, table, runs, model) -> Costs:
    """Return what the privacy of a model costs all, and each group that is judged.

    ``table`` and ``runs`` are the results' ``estimates()`` and ``by_run()``. The intervals of
    groups hold at once, so that they hold for the group with the largest cost, too.
    """
    cost, groups = COST[results.leading_measures[0]], {}
    if cost not in results.frame or np.isnan(table.loc[model, (cost, "mean")]):
        return Costs(None, {}, None)
    few = [OVERALL, *small_groups(results)]
    for group in (g for g in results.frame["group"].unique() if g not in few):
        of_group = Estimate.of(table.loc[model, f"{cost}[{group}]"])
        groups |= {} if np.isnan(of_group.mean) else {group: of_group}
    difference = None
    if len(groups) > 1:
        lowest, *_, highest = sorted(groups, key=lambda g: groups[g].mean)
        own = runs.xs(model, level=["method", "epsilon"])
        more = own[f"{cost}[{highest}]"] - own[f"{cost}[{lowest}]"]
        level = level_of(f"{cost}_difference", len(groups))
        difference = highest, lowest, _of_largest(estimated(more, results.overlap, level))
    return Costs(Estimate.of(table.loc[model, cost]), groups, difference)


def _of_largest(difference: Estimate) -> Estimate:
    """Return a difference of the largest and the least mean, which is not below zero."""
    return replace(difference, low=max(difference.low, 0.0))  # NaN stays NaN


def worse_group(results, table, advised) -> dict | None:
    """Return for which group the advised model is worst, and for which best; None for one group.

    The measure is the recall of a rare class, else accuracy; groups that are not judged are left
    out. ``records`` are those of the two groups in the data, of the rare class if there is one.
    """
    measure, model = results.leading_measures[-1], (advised.method, advised.epsilon)
    few, spec = small_groups(results), results.spec
    groups = [g for g in results.frame["group"].unique() if g != OVERALL]
    means = {g: table.loc[model, (f"{measure}[{g}]", "mean")] for g in groups if g not in few}
    known = sorted((mean, group) for group, mean in means.items() if not math.isnan(mean))
    if len(known) < 2:
        return None
    (low, lowest), *_, (high, highest) = known
    runs, records = results.by_run(), None
    gaps = runs[f"{measure}[{highest}]"] - runs[f"{measure}[{lowest}]"]
    own = gaps.xs(model, level=["method", "epsilon"])
    methods = gaps.index.get_level_values("method")
    if len(spec.counts) == len(groups):
        counts = np.array(spec.counts)
        at = counts.sum(axis=0).argmin()
        of_class = counts[:, at] if spec.rarest_class and measure != "accuracy" else counts.sum(1)
        records = [int(of_class[groups.index(g)]) for g in (lowest, highest)]
    reference = gaps[methods.str.startswith("reference")].mean()
    level = level_of(f"{measure}_difference", len(known))
    return {
        "is_recall": measure != "accuracy",
        "lowest": lowest,
        "highest": highest,
        "low": low,
        "high": high,
        "gap": _of_largest(estimated(own, results.overlap, level)),
        "reference": None if math.isnan(reference) else reference,
        "records": records,
        "label": spec.rarest_class,
    }
