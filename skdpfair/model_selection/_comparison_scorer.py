"""Scorers of differences by group: privacy cost, excessive risk and generalisation gap."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from skdpfair._utils.validate import one_of
from skdpfair.inputs import fitted_rows as _fitted_rows
from skdpfair.inputs import labels as _labels
from skdpfair.inputs import table as _table
from skdpfair.inputs.columns import check_indexes
from skdpfair.metrics._arguments import check_kind
from skdpfair.metrics._compare_groups import group_min
from skdpfair.metrics._measures import MEASURES, columns_of, compared, values_by_group
from skdpfair.model_selection._scorers import ByGroupScorer, at_final_step, warn_absent


@dataclass(repr=False)  # a repr would print the rows
class _Rows:
    X: object
    y: object
    sensitive_features: object = None


class _ComparisonScorer(ByGroupScorer):
    """A measure that compares two models, or two sets of records; smaller is better."""

    def __init__(self, name, table=None, *, group_col=None, groups=None, only=None):
        self.name = name
        self.table = table
        self.group_col = group_col
        self.groups = groups
        self.only = only

    def _scores(self, estimator, X, y, parts):
        warn_absent(parts)
        of = MEASURES[self.name].of
        if self.table is None:
            final, inner = at_final_step(estimator, X)
            if not hasattr(final, "reference_"):
                raise ValueError(
                    f"measure={self.name!r} needs the reference model, reference_, which this "
                    f"{type(final).__name__} does not have. Fit with keep_reference=True and score "
                    "in the same process, or put epsilon=None into the grid of a search, and use "
                    "TradeoffResults.from_search(search)."
                )
            other = _values(final.reference_, inner, y, parts, of)
        else:
            X_all, y_all = self.table.X, _labels.read(self.table.y)
            parts_all = self._parts(estimator, X_all, y_all, self.table.sensitive_features)
            fitted = _fitted_among(estimator, (X_all, y_all, parts_all), (X, y, parts))
            other = _values(estimator, X_all, y_all, parts_all, of, fitted)
        values = _values(estimator, X, y, parts, of)
        scores = columns_of(self.name, compared(values, other, self.name), parts)
        if self.table is not None:
            worst = group_min(other[of].iloc[1:]) - group_min(values[of].iloc[1:])
            scores[f"{self.name}_worst_group"] = worst
        scores = {key: float(value) for key, value in scores.items()}
        # scikit-learn's refit="..." takes the largest
        wholes = {key: value for key, value in scores.items() if not key.endswith("]")}
        return scores | {f"neg_{key}": -value for key, value in wholes.items()}


def _values(model, X, y, parts, measure, rows=slice(None)):
    """Return a measure of some rows, of all of them and of each group."""
    predicted = model.predict(X)
    check_kind("y_pred", predicted, y)
    likely = model.predict_proba(X)[rows] if MEASURES[measure].needs_probabilities else None
    return values_by_group(
        y[rows],
        predicted[rows],
        likely,
        classes=model.classes_,
        code=np.argmax(list(parts.values()), axis=0)[rows],
        levels=list(parts),
        measures=[measure],
    )


def _fitted_among(estimator, table, scored):
    """Return a mask of the rows of a table that the model was fitted to, or raise."""
    final, _ = at_final_step(estimator)
    seen = _fitted_rows.of(getattr(final, "net_", None))
    if seen is None:
        raise ValueError(
            "measure='dg_gap' cannot identify the training rows of this "
            f"{type(final).__name__}: only a DPFairClassifier keeps them, in its process, after a "
            "single fit (no copy, pickle or release, warm_start=False). In a search, set "
            "scoring=GroupScorer(...) and return_train_score=True, and use "
            "TradeoffResults.from_search(search); for one model, use skdpfair.metrics.dg_gap."
        )
    marks, groups = _marked(estimator, *table)
    there = pd.MultiIndex.from_arrays([marks, groups, _occurrence(marks, groups)])
    marks_out, groups_out = _marked(estimator, *scored)
    out = [marks_out, groups_out, _occurrence(marks_out, groups_out)]
    others = ~there.isin(pd.MultiIndex.from_arrays(out))
    for rows in (np.full(len(marks), True), others):
        match = rows & np.isin(marks, seen)
        if np.array_equal(np.sort(marks[match]), np.sort(seen)):
            return match
    raise ValueError(
        "X_train and y_train do not identify the training rows: they must hold the training rows, "
        "and no equal rows besides them that are not scored. Pass the X and y "
        "that were passed to fit of the search or the model. If a step of a pipeline changes "
        "training rows differently in fit and in transform, use GroupScorer(...), "
        "return_train_score=True and TradeoffResults.from_search(search)."
    )


def _marked(estimator, X, y, parts):
    """Return a mark of each row and its label, as the final step gets them, and its group."""
    final, X = at_final_step(estimator, X)
    codes = _labels.positions(final.classes_, _labels.read(y))
    marks = _fitted_rows.marks(np.asarray(_table.read_rows(final, X)), codes)
    return marks, np.argmax(list(parts.values()), axis=0)


def _occurrence(marks, groups):
    """Return the number of rows before each one that equal it."""
    return pd.DataFrame({"mark": marks, "group": groups}).groupby(["mark", "group"]).cumcount()


def comparison_scorer(
    measure,
    X_train=None,
    y_train=None,
    *,
    sensitive_features=None,
    group_col=None,
    groups=None,
    only=None,
):
    """Make a scorer of a measure that compares two models, or two sets of records.

    Parameters
    ----------
    measure : {"privacy_cost", "excessive_risk", "dg_gap"}
        - "privacy_cost": accuracy of the reference model minus that of the model.
        - "excessive_risk": log loss of the model minus that of the reference model, in nats.
        - "dg_gap": the distributional-generalisation gap, accuracy on the training rows minus that
          on the scored rows. In a search, these are the two parts of each fold.
    X_train, y_train : array-like of n_rows rows or None, default=None
        For "dg_gap" only: a table that contains the training rows, before any pipeline, that is
        the X and y passed to the ``fit`` of the search or of the model.
    sensitive_features : array-like of n_rows rows or None, default=None
        Groups of X_train, unless a column of it holds them.
    group_col, groups, only
        As in `GroupScorer`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, sensitive_features=None)``, which returns a dict: the measure of
        all rows, ``MEASURE``, and of each group, ``MEASURE[GROUP]``; ``MEASURE_difference`` >= 0
        between groups; ``MEASURE_group_max``, the largest of a group, or for "dg_gap"
        ``dg_gap_worst_group``, the worst accuracy of a group on the training rows minus the worst
        one on the scored rows; and all but those of the groups negated, ``neg_...``, for
        ``refit=``. The scores are not private. The scorer raises ValueError if the model has no
        reference model, or its training rows cannot be identified.

    Raises
    ------
    ValueError
        If the measure is unknown, or X_train and y_train are given for another one than "dg_gap",
        or not for "dg_gap".

    Notes
    -----
    Models must be scored in the process that fitted them, as a search does: pickles hold neither
    the reference model, which ``keep_reference=True`` trains, nor fingerprints of the training
    rows, which a fit leaves in the memory of its process as long as the model exists. To compare
    many candidates, a reference model in the grid (and ``return_train_score=True`` for "dg_gap")
    and `TradeoffResults.from_search` are cheaper, and take other models than `DPFairClassifier`.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.model_selection import comparison_scorer
    >>> data = make_two_groups(4000, random_state=0)
    >>> X, y = data.data.assign(group=data.sensitive_features), data.target
    >>> clf = DPFairClassifier("dpsgd", group_col="group", max_steps=5)
    >>> scorer = comparison_scorer("dg_gap", X, y)
    >>> search = GridSearchCV(clf, {"epsilon": [2, 4]}, scoring=scorer, refit="neg_dg_gap", cv=2)
    >>> "mean_test_dg_gap[b]" in search.fit(X, y).cv_results_
    True
    """
    one_of("measure", measure, ("privacy_cost", "excessive_risk", "dg_gap"))
    has_rows = X_train is not None and y_train is not None
    if has_rows != (measure == "dg_gap"):
        raise ValueError(
            f"measure={measure!r} needs X_train and y_train if it is 'dg_gap', and takes none "
            "otherwise."
        )
    table = None
    if has_rows:
        check_indexes(X_train=X_train, y_train=y_train, sensitive_features=sensitive_features)
        table = _Rows(X_train, y_train, sensitive_features)
    return _ComparisonScorer(measure, table, group_col=group_col, groups=groups, only=only)
