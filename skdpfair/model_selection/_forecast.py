"""Forecast of what a search will spend: the lines that a ledger would hold, and their cost."""

import math
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn import model_selection
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, check_cv
from sklearn.pipeline import Pipeline

from skdpfair._utils.validate import flag, integer, is_auto, one_of, safe_repr
from skdpfair.budget.charging import entry_of
from skdpfair.budget.journal import Totals, releases_of, spending
from skdpfair.budget.spending import DIAGNOSTICS, REFERENCE, SCORES, Spending
from skdpfair.estimators.base import DPEstimator
from skdpfair.estimators.classifier import DPFairClassifier, classifier_of
from skdpfair.inputs.persons import Persons
from skdpfair.preprocessing import DPQuantileScaler, lint_pipeline
from skdpfair.preprocessing._linter import reasons_of, refuse_other_protection
from skdpfair.preprocessing._piecewise_linear import PiecewiseLinearEncoder
from skdpfair.preprocessing._public import PublicEncoder
from skdpfair.privacy import NoisyRelease
from skdpfair.privacy.accounting import ACCOUNTANTS
from skdpfair.privacy.gdp import delta_for
from skdpfair.training import plan as _planning
from skdpfair.training.callbacks import recorders
from skdpfair.training.defaults import network_for
from skdpfair.training.spec import FitSpec

_BY_GROUPS = model_selection.GroupKFold, model_selection.StratifiedGroupKFold


@dataclass(frozen=True)
class PlannedFit:
    """Equal fits of one candidate."""

    candidate: int  # its position
    stage: str  # "fold", "refit" or "fit"
    n_samples: int  # that each fit reads
    n_fits: int
    private: bool
    releases: tuple[NoisyRelease, ...]  # of one fit


@dataclass(frozen=True, repr=False)
class Forecast(Spending):
    """The cost of a search, as forecast by :func:`forecast`.

    Parameters
    ----------
    epsilon, epsilon_total, delta, accountant, reasons
        As in :class:`~skdpfair.budget.spending.Spending`.
    n_fits, notes, protects, n_private
        As in :class:`~skdpfair.budget.spending.Spending`.
    fits : tuple of PlannedFit
        All fits.
    curve : ndarray or None
        The Renyi curve of a private search.
    """

    fits: tuple[PlannedFit, ...] = ()
    curve: np.ndarray | None = field(default=None, compare=False)


def forecast(
    search, n_samples, *, n_groups=1, persons=None, cv=None, delta="auto", accountant="pld"
) -> Forecast:
    """Forecast the cost of a search, a cross-validation or a fit, without fitting anything.

    Parameters
    ----------
    search : estimator
        A DPFairClassifier, a Pipeline that ends in one, or a GridSearchCV, RandomizedSearchCV
        or DPRandomizedSearch over either.
    n_samples : int
        Number of records, or of persons where the fits protect persons; public.
    n_groups : int, default=1
        Number of groups; the levels of ``group_col``, or ``group_probabilities`` of the method,
        override it.
    persons : bool or None, default=None
        Whether ``fit`` will be given ``persons``, so that it protects persons.  None is for
        classifiers that name them by ``persons``, or that declare no ``max_records``.
    cv : int, splitter or None, default=None
        Forecast ``cross_validate(search, ..., cv=cv)`` of a classifier or a pipeline.
    delta : float or "auto", default="auto"
        The delta of the composition; "auto" is the delta of a fit on all records.
    accountant : {"pld", "prv", "rdp"}, default="pld"
        The accountant that computes epsilon.

    Returns
    -------
    Forecast

    Raises
    ------
    TypeError, ValueError
        If the candidates of ``search`` or the folds of ``cv`` cannot be known in advance, one
        of their parameters cannot be used, folds may split the records of a person, a
        DPQuantileScaler protects records where the classifier protects persons, or ``persons`` does
        not fit the classifier.

    Notes
    -----
    Every fit is charged as if it read all records. The candidate of the refit is not known, so
    the one with the largest total, by Renyi DP, is charged. Grouped folds are assumed to have the
    same size.

    A DPQuantileScaler in a pipeline is charged with each fit, and so are the counts of amounts that
    `public_preprocessor` encodes there. No epsilon covers the findings of
    :func:`~skdpfair.preprocessing.lint_pipeline`, so each of them is a reason.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skdpfair import DPFairClassifier
    >>> grid = {"epsilon": [0.5, 1.0]}
    >>> print(forecast(GridSearchCV(DPFairClassifier(), grid, cv=3), 10_000))
    Forecast: 7 fits, protecting one record
      private fits   epsilon=2... at delta=1e-05 (pld)
      as a whole     epsilon=inf
        - scores on private records are not private: select with DPRandomizedSearch instead
    """
    n_samples, n_groups = integer("n_samples", n_samples), integer("n_groups", n_groups)
    one_of("accountant", accountant, ACCOUNTANTS)
    if persons is not None:
        flag("persons", persons)
    delta = delta_for(delta, n_samples)
    leaks = reasons_of(lint_pipeline(search))
    if hasattr(search, "forecast"):  # a private search knows its own cost
        planned = search.forecast(n_samples, n_groups=n_groups, delta=delta)
        if persons not in (None, planned.protects == "person"):
            raise ValueError(
                f"persons={persons!r}, but a {type(search).__name__} protects persons if, and only "
                "if, its classifier declares persons with max_records. Leave persons out."
            )
        total = math.inf if leaks else planned.epsilon_total
        return replace(planned, epsilon_total=total, reasons=(*planned.reasons, *leaks))
    candidates, cv, refit = _candidates_of(search, cv)
    protects = protection_of(map(classifier_of, candidates), persons)
    for candidate in candidates:
        refuse_other_protection(candidate, of_persons=protects == "person")
    if protects == "person" and cv is not None and not isinstance(cv, _BY_GROUPS):
        raise ValueError(
            f"cv={safe_repr(cv)} may put records of one person into several folds, whose numbers "
            "of persons are not known. Use GroupKFold or StratifiedGroupKFold."
        )
    stage, sizes = "fit", {n_samples: 1}
    if cv is not None:
        stage, sizes = "fold", Counter(_training_sizes(cv, n_samples))
        leaks = [*leaks, SCORES]

    def fit_of(i, stage, size, n_fits):
        line = _planned_line(candidates[i], size, n_groups, protects)
        releases = tuple(releases_of(line))
        return PlannedFit(i, stage, size, n_fits, line["private"], releases), line

    every = range(len(candidates))
    fits = [fit_of(i, stage, size, n) for i in every for size, n in sizes.items()]
    lines = [line for fit, line in fits for _ in range(fit.n_fits)]
    if refit:
        before = Totals.of(line for line in lines if line["private"])

        def total(last):
            return last[1]["private"] and before.cost(delta, "rdp", [last[1]])

        fits.append(max((fit_of(i, "refit", n_samples, 1) for i in every), key=total))
        lines.append(fits[-1][1])
    spent = spending(lines, delta, accountant, leaks)
    return Forecast(**vars(spent), fits=tuple(fit for fit, _ in fits))


def _planned_line(estimator, n_samples, n_groups, protects):
    """Return the line that a fit of a candidate would have in a ledger."""
    classifier = classifier_of(estimator)
    private, releases = planned_fit(estimator, n_samples, n_groups)
    private_steps = [step for step in lint_pipeline(estimator).spending if hasattr(step, "planned")]
    steps = (replace(step.planned(n_samples), what=type(step).__name__) for step in private_steps)
    reasons = [REFERENCE] * bool(classifier.keep_reference)
    reasons += [DIAGNOSTICS] * any(recorders(classifier.callbacks))
    return entry_of((*steps, *releases), private=private, reasons=reasons, protects=protects)


def protection_of(classifiers, persons=None):
    """Return what fits of classifiers protect, with or without ``persons``."""
    declared = [Persons.of(c.persons) for c in classifiers]
    columns = {p.column for p in declared}
    is_bounded = [p.max_records is not None for p in declared]
    if len(columns) > 1 or (columns != {None} and persons is False):
        raise ValueError(
            f"persons of the candidates, with persons={persons!r}, name other persons for "
            "some fits than for others, or none. Their epsilons cannot be added: set one column "
            "for all."
        )
    if columns == {None} and persons is None and any(is_bounded):
        raise ValueError(
            "persons=None, and persons of the classifier has max_records but no column, so its fit "
            "protects persons only if fit is given them. Pass persons=True for fit(..., "
            "persons=...) and the number of persons, or persons=False for fits of records."
        )
    if columns == {None} and not persons:
        return "record"
    if not all(is_bounded):
        raise ValueError(
            "max_records=None declares no bound on the records of one person, which fits with "
            "persons need. Set persons=Persons(..., max_records=...)."
        )
    return "person"


def planned_fit(estimator, n_samples, n_groups=1, network=None):
    """Return whether a fit of a classifier or pipeline is private, and what it will release.

    "auto" takes a ``network``, or by None that for the names of the columns that
    `public_preprocessor` in a pipeline makes of so many rows.
    """
    classifier, names = classifier_of(estimator), list[str]()
    if classifier is not estimator:
        parts = [*parts_within(estimator, is_frozen_too=True)]
        of_numbers = [p for p in parts if isinstance(p, PiecewiseLinearEncoder)]
        of_categories = [p for p in parts if isinstance(p, PublicEncoder)]
        by_name = [p for p in of_numbers if isinstance(p.bounds, Mapping)][:1]
        by_name += [p for p in of_categories if isinstance(p.categories, Mapping)][:1]
        names = [name for part in by_name for name in part.names_for(n_samples)]
    spec = FitSpec.of(classifier)
    if is_auto(spec.module):
        spec = spec.with_params(module=network_for(names) if network is None else network)
    probabilities = getattr(spec.method, "group_probabilities", None)
    declared = probabilities if probabilities is not None else spec.groups.levels
    n_groups = n_groups if declared is None else max(len(declared), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit will warn
        plan = _planning.plan(spec, n_samples, n_groups)
    private = plan.is_accounted and all(r.joint_noise_multiplier for r in plan.releases if r.steps)
    return private, plan.releases


def parts_within(value, *, is_frozen_too=False):
    """Yield the estimators that a fit of ``value`` may fit, itself among them, or all it holds."""
    if isinstance(value, type) or (isinstance(value, FrozenEstimator) and not is_frozen_too):
        return
    if hasattr(value, "get_params"):
        yield value
        value = value.get_params(deep=False)
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        for inner in value:
            yield from parts_within(inner, is_frozen_too=is_frozen_too)


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
            every = model_selection.ParameterGrid(search.param_grid)
        elif isinstance(seed := search.random_state, (int, np.integer)):
            every = model_selection.ParameterSampler(
                search.param_distributions, search.n_iter, random_state=seed
            )
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


def _training_sizes(cv, n_samples):
    rows, y = np.zeros((n_samples, 1)), np.arange(n_samples) % 2
    splitter = check_cv(cv, y=y, classifier=True)
    if isinstance(splitter, _BY_GROUPS):
        k = splitter.n_splits
        return [n_samples - n_samples // k - (j < n_samples % k) for j in range(k)]
    return [len(np.arange(n_samples)[train]) for train, _ in splitter.split(rows, y)]
