"""The measures by which models are compared; scorers, sweeps, plots and reports read this table."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss, roc_auc_score

from skdpfair._utils.validate import listed, one_of
from skdpfair.inputs.target import plain, positions

OVERALL = "overall"
LEVEL = 0.95  # of intervals
# a share of one of two classes below which accuracy hides how often the class is missed
RARE = 0.3
_BINS = 15


class Predictions(NamedTuple):
    """Labels, predictions and probabilities of some records; classes are numbered from 0."""

    true: np.ndarray
    predicted: np.ndarray
    likely: np.ndarray | None
    n_classes: int
    rarest: int


class Measure(NamedTuple):
    """A measure of some records, or of the difference of another measure between two models.

    ``of`` is the measure that is compared ``against`` the reference model or the training records.
    ``trials`` names the records in the denominator of a share: "all", the "rarest" class, or the
    class with this number.
    """

    title: str
    value: Callable[[Predictions], float] | None = None
    greater_is_better: bool | None = True
    unit: str = "%"
    needs_probabilities: bool = False
    is_binary: bool = False
    trials: str | int | None = None
    of: str | None = None
    against: str | None = None


def _recall(records, label):
    """Return the share of the records of a class that are predicted so, NaN without records."""
    hits = records.predicted[records.true == label] == label
    return hits.mean() if len(hits) else np.nan


def _balanced_accuracy(records):
    labels = np.unique(records.true)
    if len(labels) < 2:
        return np.nan
    return np.mean([_recall(records, label) for label in labels])


def _roc_auc(records):
    if len(np.unique(records.true)) < records.n_classes:
        return np.nan
    if records.n_classes == 2:
        return roc_auc_score(records.true, records.likely[:, 1])
    return roc_auc_score(records.true, records.likely, multi_class="ovr")


def _log_loss(records):
    return log_loss(records.true, records.likely, labels=range(records.n_classes))


def _calibration_error(records):
    """Return the expected calibration error over bins of equal width.

    It is the sum over bins of the share of the records in the bin times abs(frequency - mean
    probability), of the second of two classes, else of the predicted class (Naeini, Cooper,
    Hauskrecht, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015).
    """
    true, likely = records.true, records.likely
    if records.n_classes == 2:
        confidence, hits = likely[:, 1], true == 1
    else:
        confidence, hits = likely.max(axis=1), true == likely.argmax(axis=1)
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    residual = hits - confidence.astype(float)
    return np.abs(np.bincount(bins, weights=residual)).sum() / len(true)


def _lost(title, of, *, unit="%", against="reference"):
    return Measure(title, greater_is_better=False, unit=unit, of=of, against=against)


MEASURES = {
    "accuracy": Measure("Accuracy", lambda r: np.mean(r.true == r.predicted), trials="all"),
    "balanced_accuracy": Measure("Balanced accuracy", _balanced_accuracy),
    "rarest_class_recall": Measure(
        "Recall of the rarest class", lambda r: _recall(r, r.rarest), trials="rarest"
    ),
    "true_positive_rate": Measure(
        "True-positive rate", lambda r: _recall(r, 1), is_binary=True, trials=1
    ),
    "false_positive_rate": Measure(
        "False-positive rate", lambda r: 1 - _recall(r, 0), False, is_binary=True, trials=0
    ),
    "false_negative_rate": Measure(
        "False-negative rate", lambda r: 1 - _recall(r, 1), False, is_binary=True, trials=1
    ),
    "selection_rate": Measure(
        "Selection rate", lambda r: np.mean(r.predicted == 1), None, is_binary=True, trials="all"
    ),
    "roc_auc": Measure("ROC AUC", _roc_auc, needs_probabilities=True),
    "log_loss": Measure("Log loss", _log_loss, False, "nats", needs_probabilities=True),
    "calibration_error": Measure(
        "Calibration error", _calibration_error, False, needs_probabilities=True
    ),
    "rarest_class_share": Measure(
        "Share of the rarest class", lambda r: np.mean(r.true == r.rarest), None, trials="all"
    ),
    "privacy_cost": _lost("Privacy cost", "accuracy"),
    "balanced_accuracy_cost": _lost("Privacy cost in balanced accuracy", "balanced_accuracy"),
    "rarest_class_recall_cost": _lost(
        "Privacy cost in recall of the rarest class", "rarest_class_recall"
    ),
    "excessive_risk": _lost("Excessive risk", "log_loss", unit="nats"),
    "dg_gap": _lost(
        "Accuracy on training records minus on test records", "accuracy", against="training"
    ),
}
COST = {m.of: name for name, m in MEASURES.items() if name.endswith("_cost")}
# the four-fifths rule, and its like among those who qualify
RATIOS = ("selection_rate", "true_positive_rate")
# ends of the names of columns
COMPARING = ("_difference", "_ratio", "_group_min", "_group_max", "_worst_group")
_COLUMN = re.compile(rf"({'|'.join(MEASURES)})(?:({'|'.join(COMPARING)})|\[(.*)\])?", re.DOTALL)


def simple_measures(n_classes: int, probabilities: bool = True) -> list[str]:
    return [
        name
        for name, measure in MEASURES.items()
        if measure.value is not None
        and (probabilities or not measure.needs_probabilities)
        and (n_classes == 2 or not measure.is_binary)
    ]


def leading_measures(rarest_class_share: float, n_classes: int = 2) -> list[str]:
    """Return the measures that a page begins with: not accuracy if a class is rare.

    A class is rare if its share is below 30 % of two classes, or 0.6 / K of K classes.
    """
    is_rare = rarest_class_share < 2 * RARE / n_classes
    return ["balanced_accuracy", "rarest_class_recall"] if is_rare else ["accuracy"]


def n_trials(name: str, n: int, rarest_class_share: float, rarest: int | None = None) -> int:
    """Return the number of the n records in the denominator of a share, 0 if it is unknown.

    ``rarest`` is the number of the rarest class, of two.
    """
    trials = MEASURES[name].trials
    if trials == "all":
        return n
    is_known = trials == "rarest" or rarest is not None
    if trials is None or not is_known or np.isnan(rarest_class_share):
        return 0
    share = rarest_class_share if trials in ("rarest", rarest) else 1 - rarest_class_share
    return round(n * share)


def chosen_measures(measures: Iterable[str] | None, known: Iterable[str], default) -> list[str]:
    """Return the measures that the user picked, ``default`` for None, else raise."""
    known = list(known)
    if measures is None:
        return [name for name in dict.fromkeys(default) if name in known]
    names = listed("measures", measures, f"names among {', '.join(known)}")
    if not names:
        raise ValueError(f"measures must name at least one of {known}, got an empty list.")
    return list(dict.fromkeys(one_of("measures", name, known) for name in names))


def described(column: str, classes: Sequence[Any] = ()) -> tuple[str, str, float]:
    """Return the title and the unit of a column, and the factor from its numbers to the unit.

    A rate of the positive one of two ``classes``, which is the last, is named after it.
    """
    name, suffix, group = _parts(column)
    measure, of_class = MEASURES[name], of_positive(name, classes)
    of_what = {
        None: "" if group is None else f"{',' if of_class else ' of'} group {group}",
        "_difference": ": difference between groups",
        "_ratio": ": ratio between groups",
        "_worst_group": ": worst group in training and worst group in the test",
    }.get(suffix, " of the worst group")
    is_point = measure.of is not None or suffix == "_difference"
    unit = "percentage points" if measure.unit == "%" and is_point else measure.unit
    return measure.title + of_class + of_what, unit, 100.0 if measure.unit == "%" else 1.0


def of_positive(name: str, classes: Sequence[Any]) -> str:
    """Return the words that name the positive class, the last of two, in the title of its rate."""
    is_rate = MEASURES[name].is_binary and len(classes) == 2
    return f" of {classes[-1]}" if is_rate else ""


def level_of(column: str, n_groups: int) -> float:
    """Return the level of the interval of a column that compares groups, by Bonferroni.

    At this level, the intervals of all choices of groups that the column may show hold at once with
    95 %: of all pairs, if it is a difference, and of all groups, if it is the worst one, or
    that of one group in a comparison with another model or with the training records.
    """
    name, suffix, group = _parts(column)
    of_one = n_groups if suffix or (group is not None and MEASURES[name].against) else 1
    n_pairs = n_groups * (n_groups - 1) // 2
    n = {"_difference": n_pairs, "_ratio": n_pairs, "_worst_group": n_groups**2}
    return 1 - (1 - LEVEL) / max(1, n.get(suffix, of_one))


def measure_of(column: str) -> str:
    return _parts(column)[0]


def direction(column: str) -> int:
    """Return 1 if a larger value of a column is better, -1 if a smaller one is, else 0."""
    if _COLUMN.fullmatch(column) is None:  # such as "epsilon"
        return -1
    name, suffix, _ = _parts(column)
    if suffix in ("_difference", "_ratio"):
        return -1 if suffix == "_difference" else 1
    return {True: 1, False: -1, None: 0}[MEASURES[name].greater_is_better]


def scores_of(columns: Mapping[str, float]) -> dict[str, float]:
    """Return columns as scores; scikit-learn chooses the largest.

    Where less is better they are negated and named so; a generalisation gap is best near 0.
    """
    scores = {}
    for column, value in columns.items():
        value = abs(value) if measure_of(column) == "dg_gap" else value
        is_loss = direction(column) < 0
        scores[f"{'neg_' * is_loss}{column}"] = float(0.0 - value if is_loss else value)
    return scores


def _parts(column):
    match = _COLUMN.fullmatch(column) if isinstance(column, str) else None
    return (one_of("measure", column, MEASURES), None, None) if match is None else match.groups()


def worst_column(name: str):
    """Return the suffix of a measure's worst-group column, or None."""
    best = MEASURES[name].greater_is_better
    if best is None or MEASURES[name].against == "training":
        return None
    return "_group_min" if best else "_group_max"


def values_by_group(
    y_true, y_pred, y_prob=None, *, classes, code=None, levels=(), rarest=None, measures=None
):
    """Return the simple measures of all records and of each group, in the columns after ``n``.

    ``classes`` are the labels of the columns of ``y_prob``, the positive one of two last, ``code``
    the index into ``levels`` of each record, and ``rarest`` the number of the rarest class, by
    default that of ``y_true``. What is undefined is NaN, and so is all that needs probabilities if
    one is NaN, as of a model that diverged.
    """
    true, predicted = (positions(classes, plain(np.asarray(v))) for v in (y_true, y_pred))
    n_classes = len(classes)
    names = simple_measures(n_classes, y_prob is not None) if measures is None else measures
    if rarest is None:
        rarest = rarest_class(true[true >= 0], n_classes)
    if y_prob is not None and not (np.isfinite(y_prob).all() and (true >= 0).all()):
        y_prob = None
    # a loop: MetricFrame copies each record for each metric, which takes eight times as long
    parts = [np.arange(len(true)), *(np.flatnonzero(code == i) for i in range(len(levels)))]
    rows = []
    for part in parts:
        likely = None if y_prob is None else y_prob[part]
        records = Predictions(true[part], predicted[part], likely, n_classes, rarest)
        rows.append({"n": len(part)} | {name: _value(name, records) for name in names})
    return pd.DataFrame(rows, index=[OVERALL, *levels])


def _value(name, records):
    """Return a measure, NaN without records or without the probabilities that it needs."""
    measure = MEASURES[name]
    if not len(records.true) or (measure.needs_probabilities and records.likely is None):
        return np.nan
    assert measure.value is not None
    return float(measure.value(records))


def rarest_class(codes, n_classes: int) -> int:
    """Return the class with the fewest records, the last of several."""
    counts = np.bincount(codes, minlength=n_classes)
    return int(n_classes - 1 - np.argmin(counts[::-1]))


def costs(values, reference):
    """Return the comparisons of values with those of the reference model, by name."""
    return {
        name: compared(values, reference, name)
        for name, measure in MEASURES.items()
        if measure.against == "reference" and measure.of in values
    }


def compared(values, other, name):
    measure = MEASURES[name]
    assert measure.of is not None
    if measure.against == "training" or MEASURES[measure.of].greater_is_better:
        return other[measure.of] - values[measure.of]
    return values[measure.of] - other[measure.of]


def columns_of(name, values, levels):
    """Return the columns of one measure: all records, each group, difference and worst group."""
    columns = columns_of_runs(name, {name: values.to_numpy(dtype=float)[None]}, levels)
    return {column: float(high[0] - low[0]) for column, (high, low) in columns.items()}


def columns_of_runs(name, runs, levels):
    """Return, by column of a measure, two arrays whose difference is the value of each run.

    ``runs`` are values (n_runs, 1 + n_groups) of all records and of each group, by measure: the
    worst groups of a gap need the test values of what it is a gap of. Which groups are compared is
    decided by their means over the runs, not run by run. A ratio is the smallest over the largest
    value, as in the four-fifths rule. Groups without a value are left out; differences and ratios
    are NaN if only one of several groups has a value.
    """
    zero, by_group = np.zeros(len(runs[name])), runs[name][:, 1:]
    heads = [name, *(f"{name}[{group}]" for group in levels)]
    out = {head: (values, zero) for head, values in zip(heads, runs[name].T, strict=True)}
    low, high = (_of_extreme_group(by_group, which) for which in (np.argmin, np.argmax))
    is_compared = len(levels) == 1 or (~np.isnan(by_group)).any(axis=0).sum() > 1
    out[f"{name}_difference"] = (high if is_compared else np.nan * high), low
    if name in RATIOS:
        ratios = np.divide(low, high, out=np.full(len(low), np.nan), where=high > 0)
        out[f"{name}_ratio"] = (ratios if is_compared else np.nan * ratios), zero
    if (worst := worst_column(name)) is not None:
        out[f"{name}{worst}"] = low if worst == "_group_min" else high, zero
    elif MEASURES[name].against == "training" and MEASURES[name].of in runs:
        test = runs[MEASURES[name].of][:, 1:]
        parts = test + by_group, test  # in training and in the test
        out[f"{name}_worst_group"] = tuple(_of_extreme_group(part, np.argmin) for part in parts)
    return out


def _of_extreme_group(by_group, which):
    """Return the values of the group with the least or the largest mean, NaN without a group."""
    known = np.flatnonzero(~np.isnan(by_group).all(axis=0))
    if not len(known):
        return np.full(len(by_group), np.nan)
    return by_group[:, known[which(np.nanmean(by_group[:, known], axis=0))]]
