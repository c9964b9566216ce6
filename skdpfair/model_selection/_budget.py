"""What a search will spend, before anything runs."""

import math
from dataclasses import dataclass

import pandas as pd

from skdpfair._validate import integer, number, one_of
from skdpfair.defaults import auto_delta
from skdpfair.model_selection._candidates import (
    candidates_of,
    classifier_of,
    fold_sizes,
    planned_runs,
)
from skdpfair.privacy import ACCOUNTANTS, SampledGaussian
from skdpfair.privacy import epsilon as epsilon_of
from skdpfair.privacy.spending import SCORES, TWIN, described


@dataclass(frozen=True)
class PlannedFit:
    """Equal fits of one candidate.

    Parameters
    ----------
    candidate : int
        Its position.
    stage : {"fold", "refit", "fit"}
        Where in the search.
    n_samples : int
        Records that each fit reads.
    fits, seen : int
        How many there are, and how many of them read the worst-off record.
    private : bool
        False for a twin.
    runs : tuple of SampledGaussian
        What one fit releases.
    """

    candidate: int
    stage: str
    n_samples: int
    fits: int
    seen: int
    private: bool
    runs: tuple[SampledGaussian, ...]


@dataclass(frozen=True, repr=False)
class SearchPlan:
    """What a search will spend, as :func:`plan` foresees it.

    Parameters
    ----------
    epsilon : float
        Of all private fits together, as the worst-off record sees them.
    whole : float
        Of the search as a whole, its scores and twins included.
    delta : float
        The one delta of both.
    accountant : str
        Who computed them.
    reasons : tuple of str
        Why ``whole`` exceeds ``epsilon``.
    fits : tuple of PlannedFit
        All fits.
    """

    epsilon: float
    whole: float
    delta: float
    accountant: str
    reasons: tuple[str, ...]
    fits: tuple[PlannedFit, ...]

    @property
    def runs(self) -> list[SampledGaussian]:
        """The private releases that the worst-off record meets."""
        return _runs(self.fits)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per kind of fit."""
        columns = ["candidate", "stage", "n_samples", "fits", "seen", "steps"]
        columns += ["sample_rate", "noise_multiplier", "epsilon_of_one_fit"]
        rows = []
        for f in self.fits:
            rate, noise, steps = f.runs[-1]
            one = epsilon_of(f.runs, self.delta, self.accountant) if f.private else math.inf
            rows.append(
                (f.candidate, f.stage, f.n_samples, f.fits, f.seen, steps, rate, noise, one)
            )
        return pd.DataFrame(rows, columns=columns)

    def __repr__(self):
        total, seen = (sum(getattr(f, name) for f in self.fits) for name in ("fits", "seen"))
        return described("SearchPlan", self, total, seen)


def plan(search, n_samples, *, n_groups=1, cv=None, delta="auto", accountant="pld") -> SearchPlan:
    """Return what a search, a cross-validation or a fit will spend; nothing is fitted.

    Parameters
    ----------
    search : estimator
        A DPFairClassifier, a Pipeline that ends in one, or a GridSearchCV, RandomizedSearchCV
        or DPRandomizedSearch over either.
    n_samples : int
        Number of records; public.
    n_groups : int, default=1
        Number of groups; ``groups`` or ``group_probabilities`` of the classifier override it.
    cv : int, splitter or None, default=None
        For ``cross_validate(search, ..., cv=cv)`` on a classifier or a pipeline.
    delta : float or "auto", default="auto"
        The one delta of the composition; "auto" is that of a fit on all records.
    accountant : {"pld", "prv", "rdp"}, default="pld"
        How epsilon is computed.

    Returns
    -------
    SearchPlan

    Notes
    -----
    In k folds a record is left out of one fit of each candidate, so it meets k-1 of them, and
    then the refit, whose candidate is not known: that with the largest epsilon is charged.
    Splitters that may give a record to every fit are charged for every fit.  Stratified and
    grouped folds, whose sizes depend on the data, are taken as equal.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skdpfair import DPFairClassifier
    >>> grid = {"epsilon": [0.5, 1.0]}
    >>> print(plan(GridSearchCV(DPFairClassifier(), grid, cv=3), 10_000))
    SearchPlan: 7 fits, of which 5 read the worst-off record
      private fits   epsilon=1.9... at delta=1e-05 (pld)
      as a whole     epsilon=inf
        - scores on private records are not private: select with DPRandomizedSearch instead
    """
    n_samples, n_groups = integer("n_samples", n_samples), integer("n_groups", n_groups)
    one_of("accountant", accountant, ACCOUNTANTS)
    if delta == "auto":
        delta = auto_delta(n_samples)
    number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    if hasattr(search, "forecast"):  # a private search knows its own cost
        return search.forecast(n_samples, n_groups=n_groups, delta=delta)
    candidates, cv, refit = candidates_of(search, cv)
    planned = _Planner(candidates, n_groups)
    reasons = [] if cv is None else [SCORES]
    if cv is None:
        fits = (planned.fit(0, "fit", n_samples, 1, 1),)
    else:
        last = planned.worst(n_samples, delta, accountant) if refit else ()
        ways = [(*folds, *last) for folds in planned.folds(cv, n_samples)]
        fits = max(ways, key=lambda fits: epsilon_of(_runs(fits), delta, "rdp"))
    if planned.twins:
        reasons.insert(0, TWIN)
    spent = epsilon_of(_runs(fits), delta, accountant)
    whole = math.inf if reasons else spent
    return SearchPlan(spent, whole, delta, accountant, tuple(reasons), fits)


class _Planner:
    """Plans fits of the candidates; remembers whether one trains without privacy."""

    def __init__(self, candidates, n_groups):
        self.candidates, self.n_groups, self.twins = candidates, n_groups, False

    def fit(self, candidate, stage, n_samples, fits, seen):
        classifier = classifier_of(self.candidates[candidate])
        private, runs = planned_runs(classifier, n_samples, self.n_groups)
        self.twins |= classifier.keep_reference or not private
        return PlannedFit(candidate, stage, n_samples, fits, seen, private, runs)

    def folds(self, cv, n_samples):
        """Yield the fold fits once for each size of the fold that leaves the record out."""
        sizes, repeats, one_out = fold_sizes(cv, n_samples)
        for out in sorted(set(sizes)) if one_out else [None]:
            yield tuple(
                self.fit(c, "fold", size, repeats * k, repeats * (k - (size == out)))
                for c in range(len(self.candidates))
                for size, k in ((size, sizes.count(size)) for size in sorted(set(sizes)))
            )

    def worst(self, n_samples, delta, accountant):
        every = [self.fit(c, "refit", n_samples, 1, 1) for c in range(len(self.candidates))]
        private = [fit for fit in every if fit.private]
        return (max(private or every, key=lambda fit: epsilon_of(fit.runs, delta, accountant)),)


def _runs(fits):
    return [run._replace(steps=run.steps * f.seen) for f in fits if f.private for run in f.runs]
