"""The candidates of a search, its folds, and what a fit of each will release."""

import warnings
from collections.abc import Iterator, Mapping

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
    check_cv,
)
from sklearn.pipeline import Pipeline

from skdpfair.budget.charging import planned_entries
from skdpfair.budget.folds import folds_of
from skdpfair.estimator import DPFairClassifier
from skdpfair.methods import get_method
from skdpfair.preprocessing import DPQuantileScaler, check_pipeline
from skdpfair.training import parameters as _params
from skdpfair.training import plan as _planning


def planned_runs(classifier, n_samples, n_groups=1):
    """Return whether a fit of a classifier is private, and the runs it will release."""
    private, entries = planned_fit(classifier, n_samples, n_groups)
    return private, tuple(entry.run for entry in entries)


def planned_fit(classifier, n_samples, n_groups=1):
    """Return whether a fit of a classifier is private, and the ledger entries it will make."""
    params = classifier.get_params(deep=False)
    method = get_method(classifier.method)
    _params.check(params, method)
    shares = getattr(method, "group_probabilities", None)
    declared = shares if shares is not None else params["groups"]
    n_groups = n_groups if declared is None else max(len(declared), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit will warn
        run = _planning.plan(params, method, n_samples, n_groups)
    noise = run.mechanism.noise_multipliers if run.is_accounted else (0.0,)
    entries = planned_entries(
        run.mechanism.max_sample_rate, noise, run.settings.n_steps, run.one_time_noise_multipliers
    )
    return all(e.run.noise_multiplier > 0 for e in entries if e.steps), entries


def planned_steps(estimator, n_samples):
    """Return the names and runs of the other steps that pay: quantiles of a DPQuantileScaler."""
    paying = check_pipeline(estimator).spending
    return [
        (type(step).__name__, step.planned(n_samples).run)
        for step in paying
        if hasattr(step, "planned")
    ]


def classifier_of(estimator) -> DPFairClassifier:
    """Return the classifier at the end of a pipeline."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    if not isinstance(estimator, DPFairClassifier):
        raise TypeError(
            "estimator must be a DPFairClassifier or a Pipeline that ends in one, got "
            f"{estimator!r}. Put the DPFairClassifier last, and any other model into a search of "
            "its own."
        )
    return estimator


def parts_within(value):
    """Yield the estimators that a fit of ``value`` may fit, itself among them.

    Examples
    --------
    >>> from sklearn.feature_selection import SelectFromModel
    >>> from sklearn.linear_model import LogisticRegression
    >>> select = SelectFromModel(LogisticRegression())
    >>> [type(part).__name__ for part in parts_within(Pipeline([("select", select)]))]
    ['Pipeline', 'SelectFromModel', 'LogisticRegression']
    """
    if isinstance(value, (type, FrozenEstimator)):
        return
    if hasattr(value, "get_params"):
        yield value
        value = value.get_params(deep=False)
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        for inner in value:
            yield from parts_within(inner)


def refuse_other_fits(estimator, counted=()):
    """Refuse private fits inside an estimator, but for its last step's and ``counted`` types'."""
    last = classifier_of(estimator)
    for part in parts_within(estimator):
        spends = isinstance(part, (DPFairClassifier, DPQuantileScaler)) or hasattr(part, "forecast")
        if spends and part is not last and not isinstance(part, counted):
            raise ValueError(
                f"estimator holds a {type(part).__name__} besides its last step, which is the only "
                "one whose cost is counted here. Fit it once before, in a PrivacyLedger that adds "
                "up the costs, and put sklearn.frozen.FrozenEstimator(fitted) in its place."
            )


def configured(estimator, params):
    """Return a clone with the parameters of a candidate, as a search makes it."""
    return clone(estimator).set_params(**{k: clone(v, safe=False) for k, v in params.items()})


def candidates_of(search, cv):
    """Return the configured candidates, the splitter or None, and whether there is a refit."""
    if isinstance(search, (DPFairClassifier, Pipeline)):
        refuse_other_fits(search, DPQuantileScaler)
        return [search], cv, False
    if isinstance(search, GridSearchCV):
        every = ParameterGrid(search.param_grid)
    elif isinstance(search, RandomizedSearchCV):
        if not isinstance(search.random_state, (int, np.integer)):
            raise ValueError(
                f"random_state of the search must be an int, got {search.random_state!r}: its "
                "candidates would be drawn anew when it runs. Set random_state=0."
            )
        every = ParameterSampler(
            search.param_distributions, search.n_iter, random_state=search.random_state
        )
    else:
        raise TypeError(
            "search must be a DPFairClassifier, a Pipeline that ends in one, a GridSearchCV, a "
            f"RandomizedSearchCV or a DPRandomizedSearch, got {type(search).__name__}. Forecast "
            "its fits one by one."
        )
    if cv is not None:
        raise ValueError(
            f"cv must be None for a search, which has its own, got {cv!r}. For a nested search "
            "forecast one outer fold, and compose."
        )
    every = [configured(search.estimator, params) for params in every]
    for candidate in every:
        refuse_other_fits(candidate, DPQuantileScaler)
    return every, 5 if search.cv is None else search.cv, search.refit is not False


def fold_sizes(cv, n_samples):
    """Return the training sizes, how often they repeat, and whether a record misses one fit."""
    if isinstance(cv, Iterator):
        raise ValueError(
            f"cv must be a number of folds, a splitter or a list of splits, got {cv!r}, which can "
            "be read only once: nothing would be left for the search. Pass cv=list(...)."
        )
    splitter = check_cv(cv, y=np.arange(n_samples) % 2, classifier=True)
    n_splits = splitter.get_n_splits(np.zeros((n_samples, 1)))
    k = folds_of(splitter, n_splits)
    if k is not None:
        test = [n_samples // k + (j < n_samples % k) for j in range(k)]
        return [n_samples - size for size in test], n_splits // k, True
    split = splitter.split(np.zeros((n_samples, 1)), np.arange(n_samples) % 2)
    return [len(np.arange(n_samples)[train]) for train, _ in split], 1, False
