"""Scorers of differences by group: privacy cost, excessive risk and generalisation gap."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

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
                    f"{self.name}_scorer needs the reference model, reference_, which this "
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
            f"dg_gap_scorer cannot identify the training rows of this {type(final).__name__}: only "
            "a DPFairClassifier keeps them, in the process that fitted it, after a single fit (no "
            "copy, pickle or release, warm_start=False). In a search, set scoring=GroupScorer(...) "
            "and return_train_score=True, and use TradeoffResults.from_search(search); for one "
            "model, use skdpfair.metrics.dg_gap."
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
        "X_train and y_train of dg_gap_scorer do not identify the training rows: they must hold "
        "the training rows, and no equal rows besides them that are not scored. Pass the X and y "
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


def privacy_cost_scorer(*, group_col=None, groups=None, only=None):
    """Make a scorer of the privacy cost, for models that keep their reference model.

    The final step must be fitted with ``keep_reference=True`` in the same process, since pickles
    do not hold the reference model. A search scores each model in the process that fitted it. To
    compare many candidates, a reference model in the grid and `TradeoffResults.from_search` are
    cheaper.

    Parameters
    ----------
    group_col, groups, only
        As in `GroupScorer`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, sensitive_features=None)``, which returns a dict: ``privacy_cost``
        and ``privacy_cost[GROUP]`` in [-1, 1], ``privacy_cost_difference`` >= 0,
        ``privacy_cost_group_max``, the largest of a group, and all but those of the groups negated,
        ``neg_...``, for ``refit=``. The scores are not private.

    Examples
    --------
    >>> from skdpfair.model_selection import privacy_cost_scorer
    >>> scorer = privacy_cost_scorer(group_col="sex", only="neg_privacy_cost_difference")
    """
    return _ComparisonScorer("privacy_cost", group_col=group_col, groups=groups, only=only)


def excessive_risk_scorer(*, group_col=None, groups=None, only=None):
    """Make a scorer of the excessive risk, for models that keep their reference model.

    The excessive risk is the log loss of the model minus that of the reference model
    (`skdpfair.metrics.excessive_risk`). As for `privacy_cost_scorer`, the final step must be fitted
    with ``keep_reference=True`` in the same process. To compare many candidates, a reference model
    in the grid and `TradeoffResults.from_search` are cheaper.

    Parameters
    ----------
    group_col, groups, only
        As in `GroupScorer`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, sensitive_features=None)``, which returns a dict, in nats:
        ``excessive_risk`` and ``excessive_risk[GROUP]``, ``excessive_risk_difference`` >= 0,
        ``excessive_risk_group_max``, the largest of a group, and all but those of the groups
        negated, ``neg_...``, for ``refit=``. The scores are not private.

    Examples
    --------
    >>> from skdpfair.model_selection import excessive_risk_scorer
    >>> scorer = excessive_risk_scorer(group_col="sex", only="neg_excessive_risk_group_max")
    """
    return _ComparisonScorer("excessive_risk", group_col=group_col, groups=groups, only=only)


def dg_gap_scorer(
    X_train, y_train, *, sensitive_features=None, group_col=None, groups=None, only=None
):
    """Make a scorer of the distributional-generalisation gap, for searches and fitted models.

    The gap is the accuracy on the training rows minus the accuracy on the scored rows. In a
    search, these are the two parts of each fold.

    Parameters
    ----------
    X_train, y_train : array-like of n_rows rows
        A table that contains the training rows, before any pipeline: the X and y passed to the
        ``fit`` of the search or of the model.
    sensitive_features : array-like of n_rows rows or None, default=None
        Their groups, unless a column of X holds them.
    group_col, groups, only
        As in `GroupScorer`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, sensitive_features=None)``, which returns a dict: ``dg_gap`` and
        ``dg_gap[GROUP]`` in [-1, 1], positive if training rows have the higher accuracy,
        ``dg_gap_difference`` >= 0 between the groups' gaps, ``dg_gap_worst_group``, the worst
        accuracy of a group on the training rows minus the worst one on the scored rows, and all but
        those of the groups negated, ``neg_...``, for ``refit=``. The scores are not private. The
        scorer raises ValueError if it cannot identify the training rows.

    Notes
    -----
    A fit keeps fingerprints of its rows in the memory of its process as long as the model exists,
    but outside the model: copies, pickles and releases do not hold them. The scorer compares them
    with the input of the final step, which must be a `DPFairClassifier`. For other models, use
    `TradeoffResults.from_search` with ``return_train_score=True``.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.model_selection import dg_gap_scorer
    >>> data = make_two_groups(4000, random_state=0)
    >>> X, y = data.data.assign(group=data.sensitive_features), data.target
    >>> clf = DPFairClassifier("dpsgd", group_col="group", max_steps=5)
    >>> scorer = dg_gap_scorer(X, y)
    >>> search = GridSearchCV(clf, {"epsilon": [2, 4]}, scoring=scorer, refit="neg_dg_gap", cv=2)
    >>> "mean_test_dg_gap[b]" in search.fit(X, y).cv_results_
    True
    """
    check_indexes(X_train=X_train, y_train=y_train, sensitive_features=sensitive_features)
    table = _Rows(X_train, y_train, sensitive_features)
    return _ComparisonScorer("dg_gap", table, group_col=group_col, groups=groups, only=only)
