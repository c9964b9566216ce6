"""Scorers by group for searches: of any metric, privacy cost, excessive risk and DG gap."""

import re
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.metrics._scorer import _BaseScorer
from sklearn.utils import metadata_routing
from sklearn.utils._response import _get_response_values

from skdpfair._utils.group_names import group_names
from skdpfair._utils.validate import Parametrised, listed, one_of, safe_repr
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import provenance
from skdpfair.inputs import table as _table
from skdpfair.inputs.columns import check_indexes
from skdpfair.inputs.rows import select
from skdpfair.inputs.target import order_of, positions, read_labels
from skdpfair.metrics import _measures as measuring
from skdpfair.metrics._arguments import as_vector, check_labels
from skdpfair.metrics._measures import MEASURES, columns_of, scores_of

_PREDICT = "predict"
_GROUP = re.compile(r"\[.*\]$", re.DOTALL)
_ONE_GROUP = {"GROUP": np.nan}


class _ByGroupScorer(Parametrised):
    """A callable scorer that knows the groups; a subclass has ``_scores(estimator, X, y, parts)``.

    It is an estimator by form only: this gives it metadata routing, a repr and clones.
    """

    __metadata_request__score = {"sensitive_features": True, "estimator": metadata_routing.UNUSED}
    _public_name = "GroupScorer"  # in messages

    def __call__(self, estimator, X, y, sensitive_features=None):
        """Return the scores by name, or the one that ``only`` names."""
        check_indexes(X=X, y=y, sensitive_features=sensitive_features)
        y = as_vector("y", y, y)
        parts = self._parts(estimator, X, y, sensitive_features)
        if sensitive_features is not None:
            routing = metadata_routing.get_routing_for_object(estimator)
            if routing.consumes("predict", ["sensitive_features"]):  # as thresholds by group do
                estimator = _OnGroups(estimator, sensitive_features)
        if not all(rows.any() for rows in parts.values()):
            warnings.warn(
                "Some groups have no records among those scored: their scores are NaN. Use fewer "
                "folds, or folds stratified by group.",
                UndefinedMetricWarning,
                stacklevel=2,
            )
        scores = self._scores(estimator, X, y, parts)
        return scores if self.only is None else scores[one_of("only", self.only, scores)]

    def _check_only(self, names):
        """Refuse a score of none of these names, now rather than in the last fold of a search."""
        if self.only is not None and _GROUP.sub("[GROUP]", str(self.only)) not in names:
            one_of("only", self.only, names)

    def score(self, estimator, X, y, sensitive_features=None):
        """Return the scores; scikit-learn derives the routing of metadata from this signature."""
        return self(estimator, X, y, sensitive_features=sensitive_features)

    def get_metadata_routing(self):
        """Return a request for ``sensitive_features``, unless ``group_col`` names the groups."""
        routing = super().get_metadata_routing()
        if self.group_col is not None:
            routing.score.add_request(param="sensitive_features", alias=False)
        return routing

    def _parts(self, estimator, X, y, sensitive_features):
        """Return the name of each group with the rows that are in it."""
        final, _ = at_final_step(estimator)
        # that of thresholds is within
        final, _ = at_final_step(getattr(final, "estimator_", final))
        group_col, name = self.group_col, self._public_name
        if group_col is None and sensitive_features is None:
            group_col = _groups.as_columns(getattr(final, "group_col", None))
            # a position may not be that of the raw X
            if not group_col or not all(isinstance(column, str) for column in group_col):
                raise ValueError(
                    f"{name} got no groups. Either name their column in the raw X, and the groups: "
                    f'{name}(group_col="sex", levels=["Female", "Male"]); or call '
                    "sklearn.set_config(enable_metadata_routing=True) and pass "
                    "sensitive_features= to the search's fit (to cross_validate: "
                    'params={"sensitive_features": ...}).'
                )
        levels = getattr(final, "levels_", None) if self.levels is None else self.levels
        if levels is None:
            raise ValueError(
                f"levels=None takes the groups from the fitted levels_ of the final step, but "
                f"{type(final).__name__} has none. Declare them: {name}(levels=[...])."
            )
        levels = listed("levels", levels, "all groups")
        try:
            groups = _groups.encode(
                X, y, group_col=group_col, levels=levels, sensitive_features=sensitive_features
            )
        except ValueError as error:
            if self.levels is not None or "values outside levels" not in str(error):
                raise
            raise ValueError(
                f"{error} The groups are those of the fit, seen in the training part of this fold: "
                f"declare all, by Groups(levels=...) of the classifier or by {name}(levels=[...])."
            ) from None
        assert groups.levels is not None
        return {name: groups.code == i for i, name in enumerate(group_names(groups.levels))}


@dataclass(repr=False, eq=False)
class GroupScorer(_ByGroupScorer):
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
        Measures of `skdpfair.metrics.group_table` that need one model only, by the names of their
        scores, such as ``["balanced_accuracy", "rarest_class_recall", "neg_log_loss"]``. The rarest
        class is that of the scored records. The positive class is ``pos_label_`` of the model, or
        else the last of two.
    group_col : str, int, "target", list of these, or None, default=None
        Column(s) of the scored X, before any pipeline transforms it. None uses
        ``sensitive_features`` by metadata routing, or else the ``group_col`` of the final step.
    levels : list or None, default=None
        The groups, so that every fold has the same keys. None is ``levels_`` of the final step,
        which must be fitted with the same ``group_col``. If the training part of a fold may lack a
        rare group, list all groups here or in the classifier.
    only : str or None, default=None
        Return only this score, such as ``"neg_accuracy_difference"``, as a float. A halving search
        requires it: without it, scikit-learn raises ``KeyError: 'mean_test_score'``.

    Raises
    ------
    TypeError, ValueError
        If ``metrics`` is not a dict of scorers, or ``measures`` or ``only`` names no score.

    Notes
    -----
    Larger is better for all scores, as scikit-learn takes the largest: differences between groups,
    losses and errors are negated and named so, ``neg_accuracy_difference``, ``neg_log_loss``,
    ``neg_log_loss_group_max``. Only ``selection_rate`` and ``rarest_class_share``, and their values
    by group, are neither better nor worse. A group without records in a fold has the score NaN,
    with a warning. So does a group with only one class if the metric needs both (ROC AUC). The
    least score and the difference leave such groups out. If predictions make a metric ill-defined,
    scikit-learn's value is kept (precision without predicted positives is 0). Scores on private
    records are not private.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> from skdpfair.model_selection import GroupScorer
    >>> X, y, sex = [[0], [1], [2], [3]], [1, 1, 1, 0], ["F", "F", "M", "M"]
    >>> model = DummyClassifier(strategy="most_frequent").fit(X, y)
    >>> GroupScorer(levels=["F", "M"])(model, X, y, sensitive_features=sex)
    {'accuracy': 0.75, 'neg_accuracy_difference': -0.5, 'accuracy_group_min': 0.5, ...}
    """

    metrics: Any = None
    _: KW_ONLY
    measures: Any = None
    group_col: Any = None
    levels: Any = None
    only: Any = None

    def __post_init__(self):
        # now, rather than in the last fold of a search
        names = [key for name in self._scorers() for key in _named(name, np.nan, _ONE_GROUP)]
        measured = _measures_named(self.measures, 2)
        self._check_only([*names, *(name for m in measured for name in _score_names(m))])

    def _scores(self, estimator, X, y, parts):
        overall, answers = np.full(len(y), True), {}
        scores = {} if self.measures is None else self._measured(estimator, X, y, parts)
        named = [name for name, metric in (self.metrics or {}).items() if isinstance(metric, str)]
        for name, scorer in self._scorers().items():
            scorer = _of_positive(scorer, estimator) if name in named else scorer
            answer, labels = _answer(scorer, estimator, X, answers), y
            if _lacks_pos_label(scorer) and len(getattr(estimator, "classes_", ())) == 2:
                classes = estimator.classes_[order_of(estimator)]
                labels, answer = (positions(classes, v) for v in (y, answer))
            score = partial(_score, scorer, estimator, X, labels, answer)
            results = {g: score(rows) for g, rows in parts.items()}
            _warn_one_class(name, [g for g, (_, defined) in results.items() if not defined])
            by_group = {g: value for g, (value, _) in results.items()}
            scores |= _named(name, score(overall)[0], by_group)
        return scores

    def _scorers(self):
        """Return a scikit-learn scorer for each metric, else raise."""
        if self.metrics is None:
            return {} if self.measures is not None else {"accuracy": get_scorer("accuracy")}
        if not isinstance(self.metrics, Mapping) or not self.metrics:
            raise TypeError(
                f"metrics must be a dict from names to scorers, got {safe_repr(self.metrics)}: "
                'GroupScorer({"auc": "roc_auc", "balanced": "balanced_accuracy"}).'
            )
        return {name: _scorer_of(name, metric) for name, metric in self.metrics.items()}

    def _measured(self, estimator, X, y, parts):
        names = _measures_named(self.measures, len(estimator.classes_))
        table, scores = _values(estimator, X, y, parts, names), {}
        for name in names:
            by_group = table[name].iloc[1:]
            undefined = by_group.isna() & (table["n"].iloc[1:] > 0)
            _warn_one_class(name, list(by_group.index[undefined]))
            scores |= scores_of(columns_of(name, table[name], parts))
        return scores


@dataclass(repr=False, eq=False)
class _ComparisonScorer(_ByGroupScorer):
    """The scores of a measure that compares two models, or two sets of records."""

    _public_name = "comparison_scorer"

    name: str
    table: Any = None
    group_col: Any = None
    levels: Any = None
    only: Any = None

    def __post_init__(self):
        self._check_only(_score_names(self.name))

    def _scores(self, estimator, X, y, parts):
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
            other = _values(final.reference_, inner, y, parts, [of])
        else:
            X_all, y_all = self.table.X, read_labels(self.table.y)
            parts_all = self._parts(estimator, X_all, y_all, self.table.sensitive_features)
            fitted = _fitted_among(estimator, (X_all, y_all, parts_all), (X, y, parts))
            other = _values(estimator, X_all, y_all, parts_all, [of], fitted)
        values = _values(estimator, X, y, parts, [of])
        scores = columns_of(self.name, measuring.compared(values, other, self.name), parts)
        if self.table is not None:
            worst = other[of].iloc[1:].min() - values[of].iloc[1:].min()
            scores[f"{self.name}_worst_group"] = worst
        return scores_of(scores)


def comparison_scorer(
    measure,
    X_train=None,
    y_train=None,
    *,
    sensitive_features=None,
    group_col=None,
    levels=None,
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
    group_col, levels, only
        As in `GroupScorer`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, sensitive_features=None)``, which returns a dict of negated
        values, so that larger is better: ``neg_MEASURE`` of all rows, ``neg_MEASURE[GROUP]`` of
        each group, ``neg_MEASURE_difference`` between groups, and ``neg_MEASURE_group_max`` of the
        worst group. For "dg_gap", the last is ``neg_dg_gap_worst_group``, the worst accuracy of a
        group on the training rows minus the worst one on the scored rows, and all scores are minus
        the size of a gap: the nearest to 0 is best. The scores are not private. The scorer raises
        ValueError if the model has no reference model, or its training rows cannot be identified.

    Raises
    ------
    ValueError
        If the measure is unknown, if "dg_gap" lacks X_train or y_train, or if another measure has
        them.

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
    >>> "mean_test_neg_dg_gap[b]" in search.fit(X, y).cv_results_
    True
    """
    one_of("measure", measure, ("privacy_cost", "excessive_risk", "dg_gap"))
    has_rows = measure == "dg_gap"
    are_set = [rows is not None for rows in (X_train, y_train, sensitive_features)]
    if are_set[:2] != [has_rows] * 2 or are_set[2] > has_rows:
        raise ValueError(
            "measure='dg_gap' needs both X_train and y_train, and other measures take neither, nor "
            f"sensitive_features; got measure={measure!r}."
        )
    table = None
    if has_rows:
        check_indexes(X_train=X_train, y_train=y_train, sensitive_features=sensitive_features)
        table = _Rows(X_train, y_train, sensitive_features)
    return _ComparisonScorer(measure, table, group_col=group_col, levels=levels, only=only)


@dataclass(repr=False)  # a repr would print the rows
class _Rows:
    X: object
    y: object
    sensitive_features: object = None


def _named(name, overall, by_group):
    """Return the scores of one metric by their names; larger is better."""
    values = pd.Series(by_group, dtype=float)
    is_compared = len(values) == 1 or values.count() > 1
    difference = values.max() - values.min() if is_compared else np.nan
    scores = {
        name: float(overall),
        f"neg_{name.removeprefix('neg_')}_difference": float(0.0 - difference),
        f"{name}_group_min": float(values.min()),
    }
    return scores | {f"{name}[{group}]": float(value) for group, value in by_group.items()}


def _measures_named(scores, n_classes):
    """Return the measures, of one model only, whose scores the user named."""
    if scores is None:
        return []
    known = {key: m for m in measuring.simple_measures(n_classes) for key in _score_names(m)}
    options = [key for key in known if "[" not in key]
    return list(dict.fromkeys(known[key] for key in measuring.chosen_measures(scores, options, ())))


def _score_names(measure):
    runs = dict.fromkeys((measure, MEASURES[measure].of), np.full((1, 2), np.nan))
    columns = measuring.columns_of_runs(measure, runs, ["GROUP"])
    return [*scores_of(dict.fromkeys(columns, np.nan))]


def _values(model, X, y, parts, measures, rows=slice(None)):
    """Return measures of some rows, of all of them and of each group."""
    predicted, likely = model.predict(X), None
    check_labels("y_pred", np.asarray(predicted), y)
    if any(MEASURES[name].needs_probabilities for name in measures):
        likely = model.predict_proba(X)[rows][:, order_of(model)]
    return measuring.values_by_group(
        y[rows],
        predicted[rows],
        likely,
        classes=model.classes_[order_of(model)],
        code=np.argmax(list(parts.values()), axis=0)[rows],
        levels=list(parts),
        measures=measures,
    )


def _fitted_among(estimator, table, scored):
    """Return a mask of the rows of a table that the model was fitted to, or raise."""
    final, _ = at_final_step(estimator)
    fitted_hashes = provenance.row_hashes_of(getattr(final, "net_", None))
    if fitted_hashes is None:
        raise ValueError(
            "measure='dg_gap' cannot identify the training rows of this "
            f"{type(final).__name__}: only a DPFairClassifier keeps them, in its process, after a "
            "single fit (no copy, pickle or release, warm_start=False). In a search, set "
            "scoring=GroupScorer(...) and return_train_score=True, and use "
            "TradeoffResults.from_search(search); for one model, use skdpfair.metrics.dg_gap."
        )
    keys, out = (_keys_of(estimator, *rows) for rows in (table, scored))
    others = ~pd.MultiIndex.from_frame(keys).isin(pd.MultiIndex.from_frame(out))
    hashes = keys["hash"].to_numpy()
    for rows in (np.full(len(hashes), True), others):
        match = rows & np.isin(hashes, fitted_hashes)
        if np.array_equal(np.sort(hashes[match]), np.sort(fitted_hashes)):
            return match
    raise ValueError(
        "X_train and y_train do not identify the training rows: they must hold the training rows, "
        "and no further row that equals one of them and is not scored. Pass the X and y "
        "that were passed to fit of the search or the model. If a step of a pipeline changes "
        "training rows differently in fit and in transform, use GroupScorer(...), "
        "return_train_score=True and TradeoffResults.from_search(search)."
    )


def _keys_of(estimator, X, y, parts):
    """Return a hash of each row and its label, its group, and how many rows before it equal it.

    Rows are as the final step gets them.
    """
    final, X = at_final_step(estimator, X)
    codes = positions(final.classes_, read_labels(y))
    hashes = provenance.row_hashes(select(_table.read_rows(final, X), slice(None)), codes)
    keys = pd.DataFrame({"hash": hashes, "group": np.argmax(list(parts.values()), axis=0)})
    return keys.assign(before=keys.groupby(["hash", "group"]).cumcount())


class _OnGroups:
    """A fitted model whose ``predict`` is given the groups of the rows that are scored."""

    def __init__(self, model, groups):
        self.model, self.groups = model, groups

    def __getattr__(self, name):
        return getattr(self.model, name)

    def predict(self, X):
        return self.model.predict(X, sensitive_features=self.groups)


def _lacks_pos_label(scorer):
    """Tell whether a scorer calls a function to which the label 1 is positive, as Fairlearn's."""
    function = scorer._score_func
    keywords = scorer._kwargs | getattr(function, "keywords", {})  # of a partial
    function = getattr(function, "func", function)
    module, name = (getattr(function, of, None) or "" for of in ("__module__", "__name__"))
    is_of_labels = scorer._response_method == _PREDICT and "pos_label" not in keywords
    # scikit-learn's ratios of likelihoods take no positive label, either
    return is_of_labels and (module.startswith("fairlearn.") or "likelihood_ratio" in name)


def _of_positive(scorer, estimator):
    """Return a scorer that was named, such as of recall, for the positive class of the model."""
    keywords, classes = scorer._kwargs, getattr(estimator, "classes_", ())
    takes = "pos_label" in signature(scorer._score_func).parameters
    if not takes or len(classes) != 2 or keywords.get("average", "binary") != "binary":
        return scorer
    keywords = keywords | {"pos_label": classes[order_of(estimator)[1]]}
    return type(scorer)(scorer._score_func, scorer._sign, keywords, scorer._response_method)


def _answer(scorer, estimator, X, answers):
    """Return the predictions that a scorer takes, computed once for all scorers alike."""
    methods = scorer._response_method
    pos_label = None if methods == _PREDICT else scorer._get_pos_label()
    key = str(methods), pos_label
    if key not in answers:
        answers[key], _ = _get_response_values(estimator, X, methods, pos_label=pos_label)
    return answers[key]


def _score(scorer, estimator, X, y, answer, rows):
    """Return the score of some rows, NaN of none, and whether their classes define it."""
    if not rows.any():
        return np.nan, True
    params, one_class = {}, False
    if scorer._response_method != _PREDICT:
        one_class = len(np.unique(y[rows])) < 2
        labels = signature(scorer._score_func).parameters.get("labels")
        if labels is not None and labels.default is None and "labels" not in scorer._kwargs:
            params["labels"] = estimator.classes_  # the rows may lack a class
    with warnings.catch_warnings(record=one_class) as caught:
        if one_class:
            warnings.simplefilter("always")
        value = scorer._score(lambda *_, **__: answer[rows], estimator, X, y[rows], **params)
    undefined = any(issubclass(w.category, (UserWarning, RuntimeWarning)) for w in caught or ())
    return (np.nan, False) if undefined else (float(value), True)


def _scorer_of(name, metric):
    if isinstance(metric, str):
        one_of(f"metrics[{safe_repr(name)}]", metric, get_scorer_names())
        return get_scorer(metric)
    if not isinstance(metric, _BaseScorer):
        raise TypeError(
            f"metrics[{safe_repr(name)}] must be a scorer or its name, got {safe_repr(metric)}. "
            "Wrap a function, to declare its input and whether larger is better: "
            'make_scorer(log_loss, response_method="predict_proba", greater_is_better=False).'
        )
    if hasattr(metric, "_metadata_request"):
        raise TypeError(
            f"metrics[{safe_repr(name)}] requests metadata, which GroupScorer does not pass on. "
            "Remove its set_score_request."
        )
    return metric


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
