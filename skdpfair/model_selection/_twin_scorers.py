"""Scores that are differences: against the twin, and against the training rows."""

import numpy as np

from skdpfair.model_selection._scorers import ByGroupScorer, warn_absent


class _Differences(ByGroupScorer):
    """Scores that are differences of two accuracies, smaller is better."""

    name = None

    def _scores(self, estimator, X, y, parts):
        warn_absent(parts)
        overall, by_group = self._difference(estimator, X, y, parts)
        found = [v for v in by_group.values() if not np.isnan(v)]
        gap = float(np.max(found) - np.min(found)) if found else np.nan
        scores = {self.name: overall, f"{self.name}_gap": gap}
        # scikit-learn's refit="..." takes the largest
        scores |= {f"neg_{key}": -value for key, value in scores.items()}
        return scores | {f"{self.name}[{g}]": value for g, value in by_group.items()}


class _PrivacyCostScorer(_Differences):
    name = "privacy_cost"

    def __init__(self, *, group_col=None, groups=None, only=None):
        self.group_col = group_col
        self.groups = groups
        self.only = only

    def _difference(self, estimator, X, y, parts):
        twin = np.asarray(_twin_predictions(estimator, X)) == y
        private = np.asarray(estimator.predict(X)) == y
        lost = twin.astype(float) - private
        return float(lost.mean()), _means(lost, parts)


class _DGGapScorer(_Differences):
    name = "dg_gap"

    def __init__(self, train, *, group_col=None, groups=None, only=None):
        self.train = train
        self.group_col = group_col
        self.groups = groups
        self.only = only

    def _difference(self, estimator, X, y, parts):
        X_train, y_train, sensitive = self.train
        parts_train = self._parts(estimator, X_train, y_train, sensitive)
        right = (np.asarray(estimator.predict(X)) == y).astype(float)
        right_train = (np.asarray(estimator.predict(X_train)) == np.asarray(y_train)).astype(float)
        held_out = _means(right, parts)
        by_group = {g: v - held_out[g] for g, v in _means(right_train, parts_train).items()}
        return float(right_train.mean() - right.mean()), by_group


def privacy_cost_scorer(*, group_col=None, groups=None, only=None):
    """Make a scorer of the accuracy that privacy takes, for models that carry their twin.

    It needs a (final) step fitted with ``keep_reference=True``, in the process that fitted it: no
    pickle holds a twin. Inside a search the model is scored where it was fitted. To compare many
    candidates, a twin as a row of the grid and `privacy_cost_table` train fewer models.

    Parameters
    ----------
    group_col, groups, only
        As in `GroupScorer`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, sensitive_features=None)``, which returns a dict: ``privacy_cost``
        and ``privacy_cost[GROUP]`` in [-1, 1], ``privacy_cost_gap`` >= 0, and the first and last
        negated, ``neg_...``, for ``refit=``. Not itself private.

    Examples
    --------
    >>> from skdpfair.model_selection import privacy_cost_scorer
    >>> scorer = privacy_cost_scorer(group_col="sex", only="neg_privacy_cost_gap")
    """
    return _PrivacyCostScorer(group_col=group_col, groups=groups, only=only)


def dg_gap_scorer(
    X_train, y_train, *, sensitive_features=None, group_col=None, groups=None, only=None
):
    """Make a scorer of one fitted model: accuracy on the rows it was fitted to minus that on X.

    A scorer never sees training rows, and a fitted model does not keep them: they are handed in
    here. In a search every fold has others, so there set ``return_train_score=True`` and use
    `dg_gap_table`.

    Parameters
    ----------
    X_train, y_train : array-like of n_train rows
        What the model was fitted to, before any pipeline.
    sensitive_features : array-like of n_train rows or None, default=None
        Their groups, if not a column of X.
    group_col, groups, only
        As in `GroupScorer`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, sensitive_features=None)``, which returns a dict: ``dg_gap`` and
        ``dg_gap[GROUP]`` in [-1, 1], positive if training rows do better, and ``dg_gap_gap``, how
        far the groups' gaps are apart. Not itself private.

    Examples
    --------
    >>> from skdpfair.model_selection import dg_gap_scorer
    >>> scorer = dg_gap_scorer([[0], [1]], [0, 1], sensitive_features=["F", "M"])
    """
    train = (X_train, y_train, sensitive_features)
    return _DGGapScorer(train, group_col=group_col, groups=groups, only=only)


def _means(values, parts):
    return {g: float(values[rows].mean()) if rows.any() else np.nan for g, rows in parts.items()}


def _twin_predictions(estimator, X):
    if hasattr(estimator, "best_estimator_"):
        return _twin_predictions(estimator.best_estimator_, X)
    if hasattr(estimator, "steps"):
        X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
        return _twin_predictions(estimator.steps[-1][1], X)
    if not hasattr(estimator, "reference_"):
        raise ValueError(
            f"privacy_cost_scorer needs the twin, reference_, which this {type(estimator).__name__}"
            " does not have. Fit with keep_reference=True and score in the same process, or put "
            "epsilon=None into the grid and use privacy_cost_table(search)."
        )
    return estimator.reference_.predict(X)
