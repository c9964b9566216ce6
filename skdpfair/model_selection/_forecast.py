"""Forecast of what a search will spend: its candidates, its folds, and their releases."""

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
    StratifiedGroupKFold,
    check_cv,
)
from sklearn.pipeline import Pipeline

from skdpfair._utils.validate import flag, integer, one_of, safe_repr
from skdpfair.budget.folds import folds_of, keeps_persons_together, takes_as_public
from skdpfair.budget.spending import DIAGNOSTICS, REFERENCE, SCORES, Spending
from skdpfair.estimators.base import DPEstimator
from skdpfair.estimators.classifier import DPFairClassifier, classifier_of
from skdpfair.inputs.persons import Persons
from skdpfair.preprocessing import DPQuantileScaler, check_pipeline
from skdpfair.preprocessing._linter import reasons_of
from skdpfair.privacy import Release
from skdpfair.privacy import epsilon as epsilon_of
from skdpfair.privacy.accounting import ACCOUNTANTS
from skdpfair.privacy.gdp import delta_for
from skdpfair.training import plan as _planning
from skdpfair.training.callbacks import recorders
from skdpfair.training.spec import FitSpec


@dataclass(frozen=True)
class PlannedFit:
    """Equal fits of one candidate."""

    candidate: int  # its position
    stage: str  # "fold", "refit" or "fit"
    n_samples: int  # that each fit reads
    n_fits: int
    n_fits_per_record: int  # of these, for the record that most of them read
    private: bool
    releases: tuple[Release, ...]  # of one fit


@dataclass(frozen=True, repr=False)
class SearchPlan(Spending):
    """The cost of a search, as forecast by :func:`plan`.

    Parameters
    ----------
    epsilon, epsilon_total, delta, accountant, reasons
        As in :class:`~skdpfair.budget.spending.Spending`.
    n_fits, n_fits_per_record, assumptions, notes, unit, n_private
        As in :class:`~skdpfair.budget.spending.Spending`.
    fits : tuple of PlannedFit
        All fits.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> planned = plan(DPFairClassifier("dpsgd", epsilon=1.0), 10_000, cv=5)
    >>> planned.to_frame()[["stage", "n_fits", "n_fits_per_record"]]
      stage  n_fits  n_fits_per_record
    0  fold       5                  4
    >>> 1.0 < planned.epsilon < planned.epsilon_total  # which includes the scores: infinite
    True
    """

    fits: tuple[PlannedFit, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """Return the planned fits as a table.

        Returns
        -------
        pandas.DataFrame
            One row per release of each kind of fit.
        """
        rows = [
            {name: value for name, value in vars(fit).items() if name != "releases"}
            | {
                "released": r.what,
                "steps": r.steps,
                "sample_rate": r.sample_rate,
                "noise_multiplier": r.joint_noise_multiplier,
            }
            for fit in self.fits
            for r in fit.releases
        ]
        return pd.DataFrame(rows)


def plan_of(fits, epsilon, epsilon_total, delta, accountant, reasons, assumptions=(), *, unit):
    """Return the plan of a search that makes these fits."""
    return SearchPlan(
        epsilon,
        epsilon_total,
        delta,
        accountant,
        tuple(reasons),
        sum(fit.n_fits for fit in fits),
        sum(fit.n_fits_per_record for fit in fits),
        tuple(assumptions),
        unit=unit,
        n_private=sum(fit.n_fits for fit in fits if fit.private),
        fits=fits,
    )


def plan(
    search, n_samples, *, n_groups=1, units=None, cv=None, delta="auto", accountant="pld"
) -> SearchPlan:
    """Forecast the cost of a search, a cross-validation or a fit, without fitting anything.

    Parameters
    ----------
    search : estimator
        A DPFairClassifier, a Pipeline that ends in one, or a GridSearchCV, RandomizedSearchCV
        or DPRandomizedSearch over either.
    n_samples : int
        Number of records, or of persons where the fits protect persons; public.
    n_groups : int, default=1
        Number of groups; ``groups`` or ``group_probabilities`` of the classifier override it.
    units : bool or None, default=None
        Whether ``fit`` will be given ``units``, so that it protects persons.  None is for
        classifiers that name them by ``persons``, or that declare no ``max_records``.
    cv : int, splitter or None, default=None
        Forecast ``cross_validate(search, ..., cv=cv)`` of a classifier or a pipeline.
    delta : float or "auto", default="auto"
        The delta of the composition; "auto" is the delta of a fit on all records.
    accountant : {"pld", "prv", "rdp"}, default="pld"
        The accountant that computes epsilon.

    Returns
    -------
    SearchPlan

    Raises
    ------
    TypeError, ValueError
        If the candidates of ``search`` or the folds of ``cv`` cannot be known in advance, one
        of their parameters cannot be used, folds may split the records of a person, a
        DPQuantileScaler protects records where the classifier protects persons, or ``units`` does
        not fit the classifier.

    Notes
    -----
    With k folds, each record is in k-1 fits of each candidate and in the refit. The candidate of
    the refit is not known, so the one with the largest total is charged. If a splitter may use a
    record in every fit, every fit is charged. Stratified and grouped folds assume that labels and
    groups are public and that all folds have the same size.

    A DPQuantileScaler in a pipeline is charged with each fit. No epsilon covers the findings of
    :func:`~skdpfair.preprocessing.check_pipeline`, so each of them is a reason.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skdpfair import DPFairClassifier
    >>> grid = {"epsilon": [0.5, 1.0]}
    >>> print(plan(GridSearchCV(DPFairClassifier(), grid, cv=3), 10_000))
    SearchPlan: 7 fits, at most 5 per record
      private fits   epsilon=1.9... at delta=1e-05 (pld)
      as a whole     epsilon=inf
        - scores on private records are not private: select with DPRandomizedSearch instead
      taken as public: the labels or groups by which StratifiedKFold makes its folds
    """
    n_samples, n_groups = integer("n_samples", n_samples), integer("n_groups", n_groups)
    one_of("accountant", accountant, ACCOUNTANTS)
    if units is not None:
        flag("units", units)
    delta = delta_for(delta, n_samples)
    leaks = reasons_of(check_pipeline(search))
    # a private search knows its own cost
    if hasattr(search, "forecast"):
        forecast = search.forecast(n_samples, n_groups=n_groups, delta=delta)
        if units not in (None, forecast.unit == "person"):
            raise ValueError(
                f"units={units!r}, but a {type(search).__name__} protects persons if, and only if, "
                "its classifier declares persons with max_records. Leave units out."
            )
        total = math.inf if leaks else forecast.epsilon_total
        return replace(forecast, epsilon_total=total, reasons=(*forecast.reasons, *leaks))
    candidates, cv, refit = _candidates_of(search, cv)
    unit = unit_of(map(classifier_of, candidates), units)
    if unit == "person":
        _refuse_no_sum(candidates, cv)

    def fits_of(stage, size, n_fits, n_per_record):
        return tuple(
            PlannedFit(i, stage, size, n_fits, n_per_record, *_pipeline_fit(c, size, n_groups))
            for i, c in enumerate(candidates)
        )

    ways = [fits_of("fit", n_samples, 1, 1)]
    if cv is not None:
        ways = [
            tuple(f for size, *n in sorted(view) for f in fits_of("fold", size, *n))
            for view in _views(cv, n_samples)
        ]
        last = _costliest(fits_of("refit", n_samples, 1, 1)) if refit else ()
        ways = [(*way, fit) for way in ways for fit in last] or ways
    spent, fits = max(
        ((epsilon_of(_releases(way), delta, accountant), way) for way in ways),
        key=lambda pair: pair[0],
    )
    classifiers = [classifier_of(candidate) for candidate in candidates]
    is_open = any(c.keep_reference for c in classifiers) or not all(f.private for f in fits)
    reasons = [REFERENCE] * is_open
    reasons += [DIAGNOSTICS] * any(recorders(c.callbacks) for c in classifiers)
    reasons += [SCORES] * (cv is not None) + list(leaks)
    by_folds = None if cv is None else takes_as_public(cv)
    public = [by_folds] if by_folds else []
    if public and unit == "person":
        public.append("that these groups are the persons")
    if isinstance(cv, (GroupKFold, StratifiedGroupKFold)):
        public.append("that its folds are of equal size")
    total = math.inf if reasons else spent
    return plan_of(fits, spent, total, delta, accountant, reasons, public, unit=unit)


def unit_of(classifiers, units=None):
    """Return what fits of classifiers protect, with or without ``units``."""
    persons = [Persons.of(c.persons) for c in classifiers]
    columns = {p.column for p in persons}
    is_bounded = {p.max_records is not None for p in persons}
    if len(columns) > 1 or (columns != {None} and units is False):
        raise ValueError(
            f"persons of the candidates, with units={units!r}, name other persons for some fits "
            "than for others, or none. There is no sum of both: set one column for all candidates."
        )
    if units is None and columns == {None} and True in is_bounded:
        raise ValueError(
            "units=None, and persons of the classifier has max_records but no column, so its fit "
            "protects persons only if it is given units. Pass units=True for fit(..., units=...) "
            "and the number of persons, or units=False for fits that protect records."
        )
    if not units and columns == {None}:
        return "record"
    if False in is_bounded:
        raise ValueError(
            "max_records=None declares no bound on the records of one person, which fits with "
            "persons need. Set persons=Persons(..., max_records=...)."
        )
    return "person"


def _refuse_no_sum(candidates, cv):
    """Refuse a search whose costs to a person do not add up."""
    if any(check_pipeline(c).spending for c in candidates):
        raise ValueError(
            "search has a step with a budget of its own, which protects each record, and a "
            "classifier that protects each person: there is no sum of both. Use BoundedScaler, "
            "with public bounds, in place of DPQuantileScaler."
        )
    if cv is not None and not keeps_persons_together(cv):
        raise ValueError(
            f"cv={safe_repr(cv)} may put records of one person into several folds, so that she is "
            "in all fits. Use GroupKFold or StratifiedGroupKFold with the persons as groups."
        )


def _costliest(fits):
    """Return the refits of which one may cost most, whatever they are composed with."""
    # by their numbers: fits that differ in names only would each outdo the other
    private = {
        tuple((r.sample_rate, -r.joint_noise_multiplier, r.steps) for r in f.releases): f
        for f in fits
        if f.private
    }
    kept = [
        fit
        for cost, fit in private.items()
        if not any(cost != other and _is_at_most(cost, other) for other in private)
    ]
    return kept or fits[:1]


def _is_at_most(cost, other):
    pairs = zip(cost, other, strict=False)
    return len(cost) == len(other) and all(
        a <= b for r, s in pairs for a, b in zip(r, s, strict=True)
    )


def _releases(fits):
    return [
        replace(release, steps=release.steps * f.n_fits_per_record)
        for f in fits
        if f.private
        for release in f.releases
    ]


def planned_fit(classifier, n_samples, n_groups=1):
    """Return whether a fit of a classifier is private, and what it will release."""
    spec = FitSpec.of(classifier)
    shares = getattr(spec.method, "group_probabilities", None)
    declared = shares if shares is not None else spec.groups.levels
    n_groups = n_groups if declared is None else max(len(declared), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit will warn
        run = _planning.plan(spec, n_samples, n_groups)
    private = run.is_accounted and all(r.joint_noise_multiplier for r in run.releases if r.steps)
    return private, run.releases


def _pipeline_fit(estimator, n_samples, n_groups):
    """Return what `planned_fit` returns, with the releases of the steps before the classifier."""
    private, releases = planned_fit(classifier_of(estimator), n_samples, n_groups)
    paying = [step for step in check_pipeline(estimator).spending if hasattr(step, "planned")]
    steps = (replace(step.planned(n_samples), what=type(step).__name__) for step in paying)
    return private, (*steps, *releases)


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
        spends = isinstance(part, (DPEstimator, DPQuantileScaler)) or hasattr(part, "forecast")
        if spends and part is not last and not isinstance(part, counted):
            raise ValueError(
                f"estimator holds a {type(part).__name__} before its last step, but only the cost "
                "of the last step is counted here. Fit it once beforehand, in a PrivacyLedger that "
                "adds up the costs, and replace it by sklearn.frozen.FrozenEstimator(fitted)."
            )


def _without_thresholds(estimator):
    """Return what is fitted before thresholds are chosen, with what is set aside for them."""
    if isinstance(estimator, Pipeline) and estimator.steps:
        *before, (name, last) = estimator.steps
        return Pipeline([*before, (name, _without_thresholds(last))])
    planned = getattr(estimator, "planned_estimator", None)
    return estimator if planned is None else planned()


def configured(estimator, params):
    """Return a clone with the parameters of a candidate, as a search makes it."""
    return clone(estimator).set_params(**{k: clone(v, safe=False) for k, v in params.items()})


def _candidates_of(search, cv):
    """Return the configured candidates, the splitter or None, and whether there is a refit."""
    if isinstance(search, (DPFairClassifier, Pipeline)) or hasattr(search, "planned_estimator"):
        every, refit = [search], False
    elif not isinstance(search, (GridSearchCV, RandomizedSearchCV)):
        raise TypeError(
            "search must be a DPFairClassifier, a DPThresholdClassifier, a Pipeline that ends in "
            "one, a GridSearchCV, a RandomizedSearchCV or a DPRandomizedSearch, got "
            f"{type(search).__name__}. Forecast each of its fits."
        )
    elif cv is not None:
        raise ValueError(
            f"cv must be None for a search, which has its own cv, got {cv!r}. For a nested search, "
            "forecast one outer fold, and compose."
        )
    else:
        if isinstance(search, GridSearchCV):
            every = ParameterGrid(search.param_grid)
        elif isinstance(seed := search.random_state, (int, np.integer)):
            every = ParameterSampler(search.param_distributions, search.n_iter, random_state=seed)
        else:
            raise ValueError(
                f"random_state of the search must be an int, got {seed!r}: the search would draw "
                "other candidates than the forecast. Set random_state=0."
            )
        every = [configured(search.estimator, params) for params in every]
        cv, refit = 5 if search.cv is None else search.cv, search.refit is not False
    every = [_without_thresholds(candidate) for candidate in every]
    for candidate in every:
        refuse_other_fits(candidate, DPQuantileScaler)
    return every, cv, refit


def _views(cv, n_samples):
    """Return the fits by size as kinds of records meet them: (size, n_fits, n_fits_per_record)."""
    if isinstance(cv, Iterator):
        raise ValueError(
            f"cv must be a number of folds, a splitter or a list of splits, got {cv!r}, which can "
            "be read only once and would be empty for the search. Pass cv=list(...)."
        )
    splitter = check_cv(cv, y=np.arange(n_samples) % 2, classifier=True)
    rows = np.zeros((n_samples, 1))
    n_splits = splitter.get_n_splits(rows)
    k = folds_of(splitter, n_splits)
    # a record may be in the training part of every split
    if k is None:
        split = splitter.split(rows, np.arange(n_samples) % 2)
        sizes = Counter(len(np.arange(n_samples)[train]) for train, _ in split)
        return [[(size, n, n) for size, n in sizes.items()]]
    sizes = Counter(n_samples - n_samples // k - (j < n_samples % k) for j in range(k))
    repeats = n_splits // k
    # a record misses one fit of each repeat, and which size that has, nobody knows
    return [
        [(size, repeats * n, repeats * (n - (size == out))) for size, n in sizes.items()]
        for out in sizes
    ]
