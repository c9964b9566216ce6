"""Scorers by group for scikit-learn's searches: any metric, privacy cost, and DG gap."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from inspect import signature

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer, get_scorer_names, make_scorer
from sklearn.metrics._scorer import _BaseScorer
from sklearn.utils import metadata_routing
from sklearn.utils._response import _get_response_values

from skdpfair._validate import flag, listed, one_of, safe_repr
from skdpfair.inputs import fitted_rows as _fitted_rows
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import labels as _labels
from skdpfair.inputs import table as _table
from skdpfair.inputs.groups import group_name

_PREDICT = "predict"
_METHODS = (_PREDICT, "predict_proba", "predict_log_proba", "decision_function")


class ByGroupScorer(BaseEstimator):
    """A callable scorer that knows the groups; a subclass has ``_scores(estimator, X, y, parts)``.

    It is an estimator by form only: this gives it metadata routing, a repr and clones.
    """

    __metadata_request__score = {"sensitive_features": True, "estimator": metadata_routing.UNUSED}

    def __call__(self, estimator, X, y, sensitive_features=None, **per_record):
        """Return the scores by name, or one of them if ``only`` names it."""
        parts = self._parts(estimator, X, y, sensitive_features)
        scores = self._scores(estimator, X, np.asarray(y), parts, **per_record)
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
        (final, _), own = at_final_step(estimator), type(self).__name__
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
    """Score a model for all records, for each group, for the worst group, and their gap.

    For ``scoring=`` of GridSearchCV, RandomizedSearchCV and cross_validate; of a halving search,
    which takes single scores, with ``only``.

    Parameters
    ----------
    metrics : dict of str to str, scorer or function, or None, default=None
        The name of a scikit-learn scorer (``"roc_auc"``, ``"neg_log_loss"``), what
        `sklearn.metrics.make_scorer` returns, or a function ``metric(y_true, y_pred)``. None is
        ``{"accuracy": "accuracy"}``.
    response_method : str, list of str, or None, default=None
        What the functions among ``metrics`` take, as in ``make_scorer``: ``"predict"``,
        ``"predict_proba"``, ``"decision_function"``. None is what scikit-learn's own scorers of
        the same function take.
    greater_is_better : bool or None, default=None
        False for functions that are losses: their scores are negated, as in ``make_scorer``, so
        that the worst group is that of the largest loss. None is as in scikit-learn's own scorers.
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
        If ``metrics`` is not a dict of scorers and functions.
    ValueError
        If scikit-learn has no scorer of a function and ``response_method`` or
        ``greater_is_better`` is None, or they contradict the scorers that it has.

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
    Larger is better in all scores but gaps. A group without records in a fold scores NaN, with a
    warning, and so does a group of one class where probabilities or decision values cannot be
    scored without the other class (ROC AUC); worst group and gap are then those of the others.
    Where predictions make a metric ill-defined, scikit-learn's value is kept (precision without
    predicted positives is 0). ``sample_weight`` reaches all metrics by metadata routing, after
    ``set_score_request(sample_weight=True)``. Scores on private records are not private.
    """

    def __init__(
        self,
        metrics=None,
        *,
        response_method=None,
        greater_is_better=None,
        group_col=None,
        groups=None,
        only=None,
    ):
        # now, rather than in the last fold of a search
        _scorers(metrics, response_method, greater_is_better)
        self.metrics = metrics
        self.response_method = response_method
        self.greater_is_better = greater_is_better
        self.group_col = group_col
        self.groups = groups
        self.only = only

    def score(self, estimator, X, y, sensitive_features=None, sample_weight=None):
        """Do the same as a call; scikit-learn derives the routing of metadata from it."""
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self(estimator, X, y, sensitive_features=sensitive_features, **weights)

    def _scores(self, estimator, X, y, parts, **per_record):
        warn_absent(parts)
        scorers = _scorers(self.metrics, self.response_method, self.greater_is_better)
        everyone, answers, scores = np.full(len(y), True), {}, {}
        for name, scorer in scorers.items():
            answer = _answer(scorer, estimator, X, answers)
            score = partial(_score, scorer, estimator, X, y, answer, per_record)
            found = {g: score(rows) for g, rows in parts.items()}
            _warn_one_class(name, [g for g, (_, defined) in found.items() if not defined])
            values = {g: value for g, (value, _) in found.items()}
            known = [value for value in values.values() if not np.isnan(value)] or [np.nan]
            scores[name], _ = score(everyone)
            scores |= {f"{name}_worst_group": min(known), f"{name}_gap": max(known) - min(known)}
            scores |= {f"{name}[{g}]": value for g, value in values.items()}
        return scores


def _answer(scorer, estimator, X, answers):
    """Return what a scorer takes of an estimator, computed once for all scorers alike."""
    methods, pos_label = scorer._response_method, scorer._get_pos_label()
    key = _as_tuple(methods), pos_label
    if key not in answers:
        answers[key], _ = _get_response_values(estimator, X, methods, pos_label=pos_label)
    return answers[key]


def _score(scorer, estimator, X, y, answer, per_record, rows):
    """Return the score of some rows, NaN of none, and whether their classes define it."""
    if not rows.any():
        return np.nan, True
    given = {name: np.asarray(values)[rows] for name, values in per_record.items()}
    one_class = False
    if scorer._response_method != _PREDICT:
        one_class = len(np.unique(y[rows])) < 2
        labels = signature(scorer._score_func).parameters.get("labels")
        if labels is not None and labels.default is None and "labels" not in scorer._kwargs:
            given["labels"] = estimator.classes_  # the rows may lack a class
    with warnings.catch_warnings(record=one_class) as said:
        if one_class:
            warnings.simplefilter("always")
        value = scorer._score(lambda *_, **__: answer[rows], estimator, X, y[rows], **given)
    undefined = any(issubclass(w.category, (UserWarning, RuntimeWarning)) for w in said or ())
    return (np.nan, False) if undefined else (float(value), True)


def _scorers(metrics, response_method, greater_is_better):
    """Return a scikit-learn scorer for each metric, else raise."""
    metrics = {"accuracy": "accuracy"} if metrics is None else metrics
    if not isinstance(metrics, Mapping) or not metrics:
        raise TypeError(
            f"metrics must be a dict from names to scorers or functions, got {safe_repr(metrics)}: "
            'GroupScorer({"auc": "roc_auc", "balanced": "balanced_accuracy"}).'
        )
    methods = [response_method] if isinstance(response_method, str) else response_method or ()
    for method in methods:
        one_of("response_method", method, _METHODS)
    if greater_is_better is not None:
        flag("greater_is_better", greater_is_better)
    return {
        name: _scorer_of(name, metric, tuple(methods), greater_is_better)
        for name, metric in metrics.items()
    }


def _scorer_of(name, metric, methods, greater_is_better):
    if isinstance(metric, str):
        one_of(f"metrics[{safe_repr(name)}]", metric, get_scorer_names())
        return get_scorer(metric)
    if isinstance(metric, _BaseScorer):
        if hasattr(metric, "_metadata_request"):
            raise TypeError(
                f"metrics[{safe_repr(name)}] asks for metadata of its own. Ask for all metrics: "
                "GroupScorer(...).set_score_request(sample_weight=True)."
            )
        return metric
    if not callable(metric):
        raise TypeError(
            f"metrics[{safe_repr(name)}] must be a scorer, its name or a function, got "
            f"{safe_repr(metric)}."
        )
    own = _own_scorers_of(metric)
    known = {(_as_tuple(scorer._response_method), scorer._sign > 0) for scorer in own}
    fits = {
        (accepted, larger)
        for accepted, larger in known
        if set(methods) <= set(accepted) and greater_is_better in (None, larger)
    }
    if known and not fits:
        raise ValueError(
            "response_method or greater_is_better contradicts scikit-learn's own scorers of "
            f"metrics[{safe_repr(name)}], {own}. Leave them None, or pass one of these scorers."
        )
    if not methods and len({accepted for accepted, _ in fits}) == 1:
        ((methods, _), *_) = fits
    if greater_is_better is None and len({larger for _, larger in fits}) == 1:
        ((_, greater_is_better), *_) = fits
    if not methods or greater_is_better is None:
        raise ValueError(
            f"metrics[{safe_repr(name)}] is a function of which scikit-learn has no scorer, so "
            "that what it takes and whether larger is better are unknown. Pass make_scorer(metric, "
            'response_method="predict", greater_is_better=False), say, or both to GroupScorer.'
        )
    methods = methods[0] if len(methods) == 1 else methods
    return make_scorer(metric, response_method=methods, greater_is_better=bool(greater_is_better))


def _own_scorers_of(metric):
    """Return scikit-learn's scorers of a function: those that call it most alike."""
    function = metric.func if isinstance(metric, partial) else metric
    found = [scorer for scorer in _own_scorers() if scorer._score_func is function]
    if not found:
        return []
    told = {p.name: p.default for p in signature(metric).parameters.values()}
    alike = [s for s in found if all(told.get(k) == v for k, v in s._kwargs.items())]
    most = max((len(scorer._kwargs) for scorer in alike), default=0)
    return [scorer for scorer in alike if len(scorer._kwargs) == most] or found


@cache
def _own_scorers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scorers that will be renamed
        return [get_scorer(name) for name in get_scorer_names()]


def _as_tuple(methods):
    return (methods,) if isinstance(methods, str) else tuple(methods)


def warn_absent(parts):
    """Warn if some group has no records."""
    if not all(rows.any() for rows in parts.values()):
        warnings.warn(
            "Some groups have no records among those scored: their scores are NaN. Use fewer "
            "folds, or folds stratified by group.",
            UndefinedMetricWarning,
            stacklevel=4,
        )


def _warn_one_class(name, groups):
    if groups:
        warnings.warn(
            f"The groups {groups} have records of one class only, for which {name!r} is not "
            "defined: their scores are NaN. Use fewer folds, or folds stratified by group and "
            "class.",
            UndefinedMetricWarning,
            stacklevel=4,
        )


def at_final_step(estimator, X=None):
    """Return the classifier at the end of pipelines and searches, and X as it gets it."""
    if hasattr(estimator, "best_estimator_"):
        return at_final_step(estimator.best_estimator_, X)
    if not hasattr(estimator, "steps"):
        return estimator, X
    if X is not None and len(estimator.steps) > 1:
        X = estimator[:-1].transform(X)
    return at_final_step(estimator.steps[-1][1], X)


def _column_of(final):
    """Return the group column that the final step names; a position may not be that of raw X."""
    columns = _groups.as_columns(getattr(final, "group_col", None))
    return columns if columns and all(isinstance(c, str) for c in columns) else None


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
        reference = np.asarray(_reference_predictions(estimator, X)) == y
        private = np.asarray(estimator.predict(X)) == y
        lost = reference.astype(float) - private
        return float(lost.mean()), _means(lost, parts)


@dataclass(repr=False)  # a repr would print the rows
class _Rows:
    X: object
    y: object
    sensitive_features: object = None


class _DGGapScorer(_Differences):
    name = "dg_gap"

    def __init__(self, table, *, group_col=None, groups=None, only=None):
        self.table = table
        self.group_col = group_col
        self.groups = groups
        self.only = only

    def _difference(self, estimator, X, y, parts):
        X_all, y_all = self.table.X, np.asarray(self.table.y)
        parts_all = self._parts(estimator, X_all, y_all, self.table.sensitive_features)
        fitted = _fitted_among(estimator, (X_all, y_all, parts_all), (X, y, parts))
        right = (np.asarray(estimator.predict(X)) == y).astype(float)
        right_all = (np.asarray(estimator.predict(X_all)) == y_all).astype(float)
        held_out = _means(right, parts)
        seen = _means(right_all, {g: rows & fitted for g, rows in parts_all.items()})
        by_group = {g: value - held_out[g] for g, value in seen.items()}
        return float(right_all[fitted].mean() - right.mean()), by_group


def _fitted_among(estimator, table, scored):
    """Return which rows of a table the model was fitted to, where that is certain."""
    final, _ = at_final_step(estimator)
    seen = _fitted_rows.of(getattr(final, "net_", None))
    if seen is None:
        raise ValueError(
            f"dg_gap_scorer needs the rows that the model was fitted to, and {type(final).__name__}"
            " does not tell which these were: only a DPFairClassifier does, in the process that "
            "fitted it, and once (no copy, pickle or release, warm_start=False). In a search set "
            "scoring=GroupScorer(...), return_train_score=True and use dg_gap_table(search); for "
            "one model use skdpfair.metrics.dg_gap_by_group."
        )
    marks, groups = _marked(estimator, *table)
    there = pd.MultiIndex.from_arrays([marks, groups, _occurrence(marks, groups)])
    marks_out, groups_out = _marked(estimator, *scored)
    out = [marks_out, groups_out, _occurrence(marks_out, groups_out)]
    others = ~there.isin(pd.MultiIndex.from_arrays(out))
    for rows in (np.full(len(marks), True), others):
        found = rows & np.isin(marks, seen)
        if np.array_equal(np.sort(marks[found]), np.sort(seen)):
            return found
    raise ValueError(
        "X_train and y_train of dg_gap_scorer do not tell which rows the model was fitted to: "
        "these must be among them, and rows that equal them must not, unless they are scored. In "
        "a search, hand in the X and y of its fit; for one model, those of its fit. Where steps "
        "of a pipeline make other numbers of training rows in fit than in transform, use "
        "GroupScorer(...), return_train_score=True and dg_gap_table(search)."
    )


def _marked(estimator, X, y, parts):
    """Return a mark of each row and its label, as the final step gets them, and its group."""
    final, X = at_final_step(estimator, X)
    codes = pd.Index(final.classes_).get_indexer(_labels.read(y))
    marks = _fitted_rows.marks(_table.read_for_prediction(final, X), codes)
    return marks, np.argmax(list(parts.values()), axis=0)


def _occurrence(marks, groups):
    """Return how many rows before each one equal it."""
    return pd.DataFrame({"mark": marks, "group": groups}).groupby(["mark", "group"]).cumcount()


def privacy_cost_scorer(*, group_col=None, groups=None, only=None):
    """Make a scorer of the accuracy that privacy takes, for models with their reference model.

    It needs a (final) step fitted with ``keep_reference=True``, in the process that fitted it: no
    pickle holds a reference model. Inside a search the model is scored where it was fitted. To
    compare many candidates, a reference model in the grid and `privacy_cost_table` train fewer.

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
    """Make a scorer of the distributional-generalisation gap, for searches and fitted models.

    The gap is the accuracy on the rows that the model was fitted to, minus that on the rows that
    are scored. In a search these are the two parts of each fold.

    Parameters
    ----------
    X_train, y_train : array-like of n_rows rows
        A table with the rows that the model was fitted to, before any pipeline: X and y of the
        search's fit, or those of the model's.
    sensitive_features : array-like of n_rows rows or None, default=None
        Their groups, if not a column of X.
    group_col, groups, only
        As in `GroupScorer`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, sensitive_features=None)``, which returns a dict: ``dg_gap`` and
        ``dg_gap[GROUP]`` in [-1, 1], positive if training rows do better, and ``dg_gap_gap``, how
        far the groups' gaps are apart; the first and last negated, ``neg_...``, for ``refit=``.
        Not itself private. It raises ValueError where it cannot tell for certain which rows the
        model was fitted to.

    Notes
    -----
    A fit leaves fingerprints of its rows in the memory of its process, as long as the model is
    there, and never in the model: no copy, pickle or release holds them. The scorer compares them
    with the table, as the final step of the pipeline gets it, so the final step has to be a
    `DPFairClassifier`. `dg_gap_table` compares any models by ``return_train_score=True``.

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
    table = _Rows(X_train, y_train, sensitive_features)
    return _DGGapScorer(table, group_col=group_col, groups=groups, only=only)


def _means(values, parts):
    return {g: float(values[rows].mean()) if rows.any() else np.nan for g, rows in parts.items()}


def _reference_predictions(estimator, X):
    final, X = at_final_step(estimator, X)
    if not hasattr(final, "reference_"):
        raise ValueError(
            "privacy_cost_scorer needs the reference model, reference_, which this "
            f"{type(final).__name__} does not have. Fit with keep_reference=True and score in the "
            "same process, or put epsilon=None into the grid and use privacy_cost_table(search)."
        )
    return final.reference_.predict(X)
