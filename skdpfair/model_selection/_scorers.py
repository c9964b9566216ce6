"""Scores by group, for scikit-learn's searches."""

import warnings
from collections.abc import Mapping

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import metadata_routing

from skdpfair import groups as _groups
from skdpfair._validate import listed, one_of
from skdpfair.groups import group_name


class ByGroupScorer(BaseEstimator):
    """A callable scorer that knows the groups; a subclass has ``_scores(estimator, X, y, parts)``.

    It is an estimator by form only: this gives it metadata routing, a repr and clones.
    """

    __metadata_request__score = {"sensitive_features": True, "estimator": metadata_routing.UNUSED}

    def __call__(self, estimator, X, y, sensitive_features=None):
        """Return the scores by name, or one of them if ``only`` names it."""
        parts = self._parts(estimator, X, y, sensitive_features)
        scores = self._scores(estimator, X, np.asarray(y), parts)
        return scores if self.only is None else scores[one_of("only", self.only, scores)]

    def score(self, estimator, X, y, sensitive_features=None):
        """Do the same as a call; scikit-learn derives the routing of metadata from it."""
        return self(estimator, X, y, sensitive_features=sensitive_features)

    def get_metadata_routing(self):
        """Ask for ``sensitive_features``, unless ``group_col`` says where the groups are."""
        routing = super().get_metadata_routing()
        if self.group_col is not None:
            routing.score.add_request(param="sensitive_features", alias=False)
        return routing

    def _parts(self, estimator, X, y, sensitive_features):
        """Return the name of each group with the rows that are in it."""
        final, own = _final_step(estimator), type(self).__name__
        group_col = self.group_col
        if group_col is None and sensitive_features is None:
            group_col = _column_of(final)
        if group_col is None and sensitive_features is None:
            raise ValueError(
                f"{own} got no groups. Either name their column in the raw X, and the groups: "
                f'{own}(group_col="sex", groups=["Female", "Male"]); or call '
                "sklearn.set_config(enable_metadata_routing=True) and pass sensitive_features= to "
                'the search\'s fit (to cross_validate: params={"sensitive_features": ...}).'
            )
        levels = self._fitted_levels(final) if self.groups is None else self.groups
        levels = listed("groups", levels, "all groups")
        try:
            found = _groups.encode(
                X, y, group_col=group_col, groups=levels, sensitive_features=sensitive_features
            )
        except ValueError as error:
            if self.groups is not None or "values outside groups" not in str(error):
                raise
            raise ValueError(
                f"{error} The groups are those seen in the training part of this fold: declare "
                f"all, by groups=[...] of the classifier or by {own}(groups=[...])."
            ) from None
        return {group_name(level): found.code == i for i, level in enumerate(found.levels)}

    def _fitted_levels(self, final):
        """Return the groups of the fit, if they may be those that are scored."""
        own, levels = type(self).__name__, getattr(final, "groups_", None)
        if levels is None:
            raise ValueError(
                f"groups=None takes the groups from the fitted groups_ of the final step, but "
                f"{type(final).__name__} has none. Declare them: {own}(groups=[...])."
            )
        fitted = _column_of(final)
        if None not in (self.group_col, fitted) and _groups.as_columns(self.group_col) != fitted:
            raise ValueError(
                f"group_col={self.group_col!r} is not what the model was fitted with, {fitted}, so "
                f"that its groups_ are others. Name the groups to score: "
                f"{own}(group_col={self.group_col!r}, groups=[...])."
            )
        return levels


class GroupScorer(ByGroupScorer):
    """Score predictions for all records, for each group, for the worst group, and their gap.

    For ``scoring=`` of GridSearchCV, RandomizedSearchCV and cross_validate; of a halving search,
    which takes single scores, with ``only``.

    Parameters
    ----------
    metrics : dict of str to callable or None, default=None
        Each ``metric(y_true, y_pred)``, larger is better, such as `sklearn.metrics.f1_score`; names
        of scorers do not know the groups. None is ``{"accuracy": accuracy_score}``.
    group_col : str, int, "target", list of these, or None, default=None
        Column(s) of the X that is scored, the raw one if a pipeline transforms it. None takes
        ``sensitive_features`` by metadata routing, else the column that the final step names.
    groups : list or None, default=None
        The groups, so that every fold has the same keys. None is ``groups_`` of the final step,
        which has to be fitted with the same ``group_col``. Where a group is so rare that the
        training part of a fold may lack it, name all groups, here or as the classifier's.
    only : str or None, default=None
        Return this score alone, as a float. A halving search, which takes one number, needs it:
        without it scikit-learn raises ``KeyError: 'mean_test_score'``.

    Raises
    ------
    TypeError
        If ``metrics`` is not a dict of functions.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> from skdpfair.model_selection import GroupScorer
    >>> X, y, sex = [[0], [1], [2], [3]], [1, 1, 1, 0], ["F", "F", "M", "M"]
    >>> model = DummyClassifier(strategy="most_frequent").fit(X, y)
    >>> GroupScorer(groups=["F", "M"])(model, X, y, sensitive_features=sex)
    {'accuracy': 0.75, 'accuracy_worst_group': 0.5, 'accuracy_gap': 0.5, ...}

    Notes
    -----
    A group without records in a fold scores NaN, with a warning; worst group and gap are then
    those of the others. Scores on private records are not private.
    """

    def __init__(self, metrics=None, *, group_col=None, groups=None, only=None):
        _check_metrics(metrics)  # now, rather than in the last fold of a search
        self.metrics = metrics
        self.group_col = group_col
        self.groups = groups
        self.only = only

    def _scores(self, estimator, X, y, parts):
        metrics = {"accuracy": accuracy_score} if self.metrics is None else self.metrics
        y_pred = np.asarray(estimator.predict(X))
        warn_absent(parts)
        scores = {}
        for name, metric in metrics.items():
            values = {
                g: float(metric(y[rows], y_pred[rows])) if rows.any() else np.nan
                for g, rows in parts.items()
            }
            worst, best = np.nanmin(list(values.values())), np.nanmax(list(values.values()))
            scores[name] = float(metric(y, y_pred))
            scores |= {f"{name}_worst_group": float(worst), f"{name}_gap": float(best - worst)}
            scores |= {f"{name}[{g}]": value for g, value in values.items()}
        return scores


def _check_metrics(metrics):
    good = isinstance(metrics, Mapping) and metrics and all(map(callable, metrics.values()))
    if metrics is not None and not good:
        raise TypeError(
            f"metrics must be a dict from names to functions metric(y_true, y_pred), got "
            f"{metrics!r}. Pass the function, not a scorer or its name: "
            'GroupScorer({"balanced": sklearn.metrics.balanced_accuracy_score}).'
        )


def warn_absent(parts):
    if not all(rows.any() for rows in parts.values()):
        warnings.warn(
            "Some groups have no records among those scored: their scores are NaN. Use fewer "
            "folds, or folds stratified by group.",
            UndefinedMetricWarning,
            stacklevel=4,
        )


def _final_step(estimator):
    """Return the classifier at the end of pipelines and searches."""
    if hasattr(estimator, "best_estimator_"):
        return _final_step(estimator.best_estimator_)
    return _final_step(estimator.steps[-1][1]) if hasattr(estimator, "steps") else estimator


def _column_of(final):
    """Return the group column that the final step names; a position may not be that of raw X."""
    columns = _groups.as_columns(getattr(final, "group_col", None))
    return columns if columns and all(isinstance(c, str) for c in columns) else None
