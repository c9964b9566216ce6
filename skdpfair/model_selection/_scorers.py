"""Scorers of any metric by group, for scikit-learn's searches."""

import warnings
from collections.abc import Mapping
from functools import partial
from inspect import signature

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.metrics._scorer import _BaseScorer
from sklearn.utils import metadata_routing
from sklearn.utils._response import _get_response_values

from skdpfair._utils.validate import listed, one_of, safe_repr
from skdpfair.inputs import groups as _groups
from skdpfair.inputs.columns import check_indexes
from skdpfair.inputs.groups import group_names
from skdpfair.inputs.labels import kinds, positions
from skdpfair.metrics._arguments import as_vector
from skdpfair.metrics._compare_groups import difference, group_min
from skdpfair.metrics._measures import (
    MEASURES,
    chosen_measures,
    simple_measures,
    values_by_group,
)

_PREDICT = "predict"


class ByGroupScorer(BaseEstimator):
    """A callable scorer that knows the groups; a subclass has ``_scores(estimator, X, y, parts)``.

    It is an estimator by form only: this gives it metadata routing, a repr and clones.
    """

    __metadata_request__score = {"sensitive_features": True, "estimator": metadata_routing.UNUSED}

    def __call__(self, estimator, X, y, sensitive_features=None, **per_record):
        """Return the scores by name, or the one that ``only`` names."""
        check_indexes(X=X, y=y, sensitive_features=sensitive_features, **per_record)
        y = as_vector("y", y, y)
        parts = self._parts(estimator, X, y, sensitive_features)
        if sensitive_features is not None and _takes_groups(estimator):
            estimator = _OnGroups(estimator, sensitive_features)
        scores = self._scores(estimator, X, y, parts, **per_record)
        return scores if self.only is None else scores[one_of("only", self.only, scores)]

    def score(self, estimator, X, y, sensitive_features=None):
        """Return the scores; scikit-learn derives the routing of metadata from this signature."""
        return self(estimator, X, y, sensitive_features=sensitive_features)

    def get_metadata_routing(self):
        """Ask for ``sensitive_features``, unless ``group_col`` says where the groups are.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRequest
        """
        routing = super().get_metadata_routing()
        if self.group_col is not None:
            routing.score.add_request(param="sensitive_features", alias=False)
        return routing

    @property
    def _public_name(self):
        """The public name, for messages: of the class, or of the function that makes it."""
        return "comparison_scorer" if hasattr(self, "name") else type(self).__name__

    def _parts(self, estimator, X, y, sensitive_features):
        """Return the name of each group with the rows that are in it."""
        (final, _), name = at_final_step(estimator), self._public_name
        final, _ = at_final_step(getattr(final, "estimator_", final))  # that of thresholds
        group_col = self.group_col
        if group_col is None and sensitive_features is None:
            group_col = _column_of(final)
        if group_col is None and sensitive_features is None:
            raise ValueError(
                f"{name} got no groups. Either name their column in the raw X, and the groups: "
                f'{name}(group_col="sex", groups=["Female", "Male"]); or call '
                "sklearn.set_config(enable_metadata_routing=True) and pass sensitive_features= to "
                'the search\'s fit (to cross_validate: params={"sensitive_features": ...}).'
            )
        levels = self._fitted_levels(final) if self.groups is None else self.groups
        levels = listed("groups", levels, "all groups")
        try:
            groups = _groups.encode(
                X, y, group_col=group_col, levels=levels, sensitive_features=sensitive_features
            )
        except ValueError as error:
            if self.groups is not None or "values outside groups" not in str(error):
                raise
            raise ValueError(
                f"{error} The groups are those seen in the training part of this fold: declare "
                f"all, by Groups(levels=...) of the classifier or by {name}(groups=[...])."
            ) from None
        assert groups.levels is not None
        return {name: groups.code == i for i, name in enumerate(group_names(groups.levels))}

    def _fitted_levels(self, final):
        """Return the groups of the fit, if they may be those that are scored."""
        name, levels = self._public_name, getattr(final, "groups_", None)
        if levels is None:
            raise ValueError(
                f"groups=None takes the groups from the fitted groups_ of the final step, but "
                f"{type(final).__name__} has none. Declare them: {name}(groups=[...])."
            )
        fitted = _column_of(final)
        if None not in (self.group_col, fitted) and _groups.as_columns(self.group_col) != fitted:
            raise ValueError(
                f"group_col={self.group_col!r} is not what the model was fitted with, {fitted}, so "
                f"that its groups_ are others. Name the groups to score: "
                f"{name}(group_col={self.group_col!r}, groups=[...])."
            )
        return levels


class GroupScorer(ByGroupScorer):
    """Score a model on all records and on each group, with the least score and the difference.

    Use it as ``scoring=`` of GridSearchCV, RandomizedSearchCV and cross_validate. A halving search
    takes a single score: set ``only``.

    Parameters
    ----------
    metrics : dict of str to str or scorer, or None, default=None
        The name of a scikit-learn scorer (``"roc_auc"``, ``"neg_log_loss"``), or a scorer from
        `sklearn.metrics.make_scorer`. None is ``{"accuracy": "accuracy"}``, unless ``measures`` are
        given.
    measures : list of str or None, default=None
        Names of measures of `skdpfair.metrics.group_table` that need one model only, such as
        ``["balanced_accuracy", "rarest_class_recall", "log_loss", "calibration_error"]``. Losses
        are negated and named so: ``neg_log_loss``. They take no sample weights. The rarest class is
        that of the scored records.
    group_col : str, int, "target", list of these, or None, default=None
        Column(s) of the scored X, before any pipeline transforms it. None uses
        ``sensitive_features`` by metadata routing, or else the ``group_col`` of the final step.
    groups : list or None, default=None
        The groups, so that every fold has the same keys. None is ``groups_`` of the final step,
        which must be fitted with the same ``group_col``. If the training part of a fold may lack a
        rare group, list all groups here or in the classifier.
    only : str or None, default=None
        Return only this score, as a float. A halving search requires it: without it, scikit-learn
        raises ``KeyError: 'mean_test_score'``.

    Raises
    ------
    TypeError, ValueError
        If ``metrics`` is not a dict of scorers, or two scores would have one name.

    Notes
    -----
    Larger is better for all scores except differences. A group without records in a fold has the
    score NaN, with a warning. So does a group with only one class if the metric needs both (ROC
    AUC). The least score and the difference leave such groups out. If predictions make a metric
    ill-defined, scikit-learn's value is kept (precision without predicted positives is 0). After
    ``set_score_request(sample_weight=True)``, metadata routing passes ``sample_weight`` to all
    metrics. Scores on private records are not private. Besides the scores there is ``n_weights``,
    the number of weights of the network, 0 without one: by it `TradeoffResults.from_search` finds
    the reference model of the same network.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> from skdpfair.model_selection import GroupScorer
    >>> X, y, sex = [[0], [1], [2], [3]], [1, 1, 1, 0], ["F", "F", "M", "M"]
    >>> model = DummyClassifier(strategy="most_frequent").fit(X, y)
    >>> GroupScorer(groups=["F", "M"])(model, X, y, sensitive_features=sex)
    {'accuracy': 0.75, 'accuracy_group_min': 0.5, 'accuracy_difference': 0.5, ...}
    """

    def __init__(
        self,
        metrics=None,
        *,
        measures=None,
        group_col=None,
        groups=None,
        only=None,
    ):
        # now, rather than in the last fold of a search
        _scorers(metrics)
        measured = chosen_measures(measures, simple_measures(2), ())
        _check_names([*(metrics or ()), *measured, *(f"neg_{name}" for name in measured)])
        self.metrics = metrics
        self.measures = measures
        self.group_col = group_col
        self.groups = groups
        self.only = only

    def score(self, estimator, X, y, sensitive_features=None, sample_weight=None):
        """Return the scores; scikit-learn derives the routing of metadata from this signature.

        Parameters
        ----------
        estimator : classifier
            The fitted model.
        X : array-like of n_samples rows
            The records that are scored.
        y : array-like of shape (n_samples,)
            Their labels.
        sensitive_features : array, Series or DataFrame of n_samples rows, or None, default=None
            The groups, unless a column of X holds them.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Sample weights for all metrics.

        Returns
        -------
        dict of str to float, or float
            The scores by name, or the one that ``only`` names.
        """
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self(estimator, X, y, sensitive_features=sensitive_features, **weights)

    def _scores(self, estimator, X, y, parts, **per_record):
        warn_absent(parts)
        everyone, answers, scores, scorers = np.full(len(y), True), {}, {}, {}
        if self.measures is not None:
            scores |= self._measured(estimator, X, y, parts, per_record)
        if self.metrics is not None or self.measures is None:
            scorers = _scorers(self.metrics)
        for name, scorer in scorers.items():
            answer, labels = _answer(scorer, estimator, X, answers), y
            if kinds(y) == {"texts"} and _takes_numbers(scorer):
                labels, answer = (positions(estimator.classes_, v) for v in (y, answer))
            score = partial(_score, scorer, estimator, X, labels, answer, per_record)
            results = {g: score(rows) for g, rows in parts.items()}
            _warn_one_class(name, [g for g, (_, defined) in results.items() if not defined])
            values = {g: value for g, (value, _) in results.items()}
            scores[name], _ = score(everyone)
            scores[f"{name}_group_min"] = group_min(values)
            scores[f"{name}_difference"] = difference(values)
            scores |= {f"{name}[{g}]": value for g, value in values.items()}
        return scores | {"n_weights": _n_weights(estimator)}

    def _measured(self, estimator, X, y, parts, per_record):
        """Return the scores of the named measures."""
        if per_record:
            raise ValueError(
                f"measures={self.measures!r} take no sample weights, but sample_weight was passed. "
                "Name scorers in metrics= instead, or do not request sample_weight."
            )
        classes = estimator.classes_
        names = chosen_measures(self.measures, simple_measures(len(classes)), ())
        likely = None
        if any(MEASURES[name].needs_probabilities for name in names):
            likely = estimator.predict_proba(X)
        code = np.argmax(list(parts.values()), axis=0)
        table = values_by_group(
            y,
            estimator.predict(X),
            likely,
            classes=classes,
            code=code,
            levels=list(parts),
            measures=names,
        )
        scores = {}
        for name in names:
            is_loss = MEASURES[name].greater_is_better is False
            key, values = f"{'neg_' * is_loss}{name}", (-1 if is_loss else 1) * table[name]
            by_group = values.iloc[1:]
            undefined = by_group.isna() & (table["n"].iloc[1:] > 0)
            _warn_one_class(name, list(by_group.index[undefined]))
            scores[key] = float(values.iloc[0])
            scores[f"{key}_group_min"] = group_min(by_group)
            scores[f"{key}_difference"] = difference(by_group)
            scores |= {f"{key}[{group}]": float(value) for group, value in by_group.items()}
        return scores


class _OnGroups:
    """A fitted model whose ``predict`` is given the groups of the rows that are scored."""

    def __init__(self, model, groups):
        self.model, self.groups = model, groups

    def __getattr__(self, name):
        return getattr(self.model, name)

    def predict(self, X):
        return self.model.predict(X, sensitive_features=self.groups)


def _takes_groups(estimator):
    """Tell whether an estimator's ``predict`` requests the groups, as thresholds by group do."""
    routing = metadata_routing.get_routing_for_object(estimator)
    return bool(routing.consumes("predict", ["sensitive_features"]))


def _n_weights(estimator):
    """Return the number of weights of the network at the end of an estimator, 0 without one."""
    final, _ = at_final_step(getattr(estimator, "model", estimator))
    final, _ = at_final_step(getattr(final, "estimator_", final))  # that of thresholds
    net = getattr(final, "net_", None)
    return float(sum(p.numel() for p in net.module_.parameters())) if net is not None else 0.0


def _answer(scorer, estimator, X, answers):
    """Return the predictions that a scorer takes, computed once for all scorers alike."""
    methods = scorer._response_method
    pos_label = None if methods == _PREDICT else scorer._get_pos_label()
    key = str(methods), pos_label
    if key not in answers:
        answers[key], _ = _get_response_values(estimator, X, methods, pos_label=pos_label)
    return answers[key]


def _score(scorer, estimator, X, y, answer, per_record, rows):
    """Return the score of some rows, NaN of none, and whether their classes define it."""
    if not rows.any():
        return np.nan, True
    params = {name: np.asarray(values)[rows] for name, values in per_record.items()}
    one_class = False
    if scorer._response_method != _PREDICT:
        one_class = len(np.unique(y[rows])) < 2
        labels = signature(scorer._score_func).parameters.get("labels")
        if labels is not None and labels.default is None and "labels" not in scorer._kwargs:
            # the rows may lack a class
            params["labels"] = estimator.classes_
    with warnings.catch_warnings(record=one_class) as caught:
        if one_class:
            warnings.simplefilter("always")
        value = scorer._score(lambda *_, **__: answer[rows], estimator, X, y[rows], **params)
    undefined = any(issubclass(w.category, (UserWarning, RuntimeWarning)) for w in caught or ())
    return (np.nan, False) if undefined else (float(value), True)


def _scorers(metrics):
    """Return a scikit-learn scorer for each metric, else raise."""
    metrics = {"accuracy": "accuracy"} if metrics is None else metrics
    if not isinstance(metrics, Mapping) or not metrics:
        raise TypeError(
            f"metrics must be a dict from names to scorers, got {safe_repr(metrics)}: "
            'GroupScorer({"auc": "roc_auc", "balanced": "balanced_accuracy"}).'
        )
    return {name: _scorer_of(name, metric) for name, metric in metrics.items()}


def _check_names(metrics):
    """Raise ValueError if scores of two metrics would have one name, that of a group among them."""
    ends = ("", "_group_min", "_difference")
    keys = ["n_weights", *(f"{name}{end}" for name in metrics for end in ends)]
    of_groups = tuple(f"{name}[" for name in metrics)
    if len(set(keys)) < len(keys) or any(key.startswith(of_groups) for key in keys):
        raise ValueError(
            f"metrics={safe_repr(list(metrics))} give two scores one name. Rename what is "
            "'n_weights', or a measure or metric with '_group_min', '_difference' or '[GROUP]'."
        )


def _scorer_of(name, metric):
    if isinstance(metric, str):
        one_of(f"metrics[{safe_repr(name)}]", metric, get_scorer_names())
        return get_scorer(metric)
    if not isinstance(metric, _BaseScorer):
        raise TypeError(
            f"metrics[{safe_repr(name)}] must be a scorer or its name, got {safe_repr(metric)}. "
            "Wrap a function, which does not say what it takes and whether larger is better: "
            'make_scorer(log_loss, response_method="predict_proba", greater_is_better=False).'
        )
    if hasattr(metric, "_metadata_request"):
        raise TypeError(
            f"metrics[{safe_repr(name)}] requests metadata itself. Request it for all metrics: "
            "GroupScorer(...).set_score_request(sample_weight=True)."
        )
    return metric


def _takes_numbers(scorer):
    """Tell whether a scorer calls a function of Fairlearn, to which the label 1 is positive."""
    function = scorer._score_func
    keywords = scorer._kwargs | getattr(function, "keywords", {})  # of a partial
    module = getattr(getattr(function, "func", function), "__module__", None) or ""
    is_fairlearns = module.startswith("fairlearn.")
    return is_fairlearns and "pos_label" not in keywords and scorer._response_method == _PREDICT


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
