"""What a search will spend, before anything runs."""

import math
from dataclasses import dataclass, replace

import pandas as pd
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

from skdpfair._validate import integer, one_of
from skdpfair.budget.folds import takes_as_public
from skdpfair.budget.spending import DIAGNOSTICS, SCORES, TWIN, described
from skdpfair.model_selection._candidates import (
    candidates_of,
    classifier_of,
    fold_sizes,
    planned_runs,
    planned_steps,
)
from skdpfair.preprocessing import check_pipeline
from skdpfair.preprocessing._linter import reasons_of
from skdpfair.privacy import ACCOUNTANTS, SampledGaussian
from skdpfair.privacy import epsilon as epsilon_of
from skdpfair.privacy.gdp import delta_for


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
    steps : tuple of str
        The steps before the classifier that the first of these runs are of.
    """

    candidate: int
    stage: str
    n_samples: int
    fits: int
    seen: int
    private: bool
    runs: tuple[SampledGaussian, ...]
    steps: tuple[str, ...] = ()

    @property
    def released(self) -> tuple[str, ...]:
        """What each of the runs is of."""
        counts = len(self.runs) - len(self.steps) - 1
        return (*self.steps, *("group counts",) * counts, "steps")


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
    assumptions : tuple of str
        What must be public for the numbers to hold.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> planned = plan(DPFairClassifier("dpsgd", epsilon=1.0), 10_000, cv=5)
    >>> planned.to_frame()[["stage", "fits", "seen"]]
      stage  fits  seen
    0  fold     5     4
    >>> 1.0 < planned.epsilon < planned.whole  # scores on private records cost without limit
    True
    """

    epsilon: float
    whole: float
    delta: float
    accountant: str
    reasons: tuple[str, ...]
    fits: tuple[PlannedFit, ...]
    assumptions: tuple[str, ...] = ()

    @property
    def runs(self) -> list[SampledGaussian]:
        """The private releases that the worst-off record meets."""
        return _runs(self.fits)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per release of each kind of fit."""
        columns = ["candidate", "stage", "n_samples", "fits", "seen", "released", "steps"]
        columns += ["sample_rate", "noise_multiplier", "epsilon_of_one_fit"]
        rows = []
        for f in self.fits:
            one = epsilon_of(f.runs, self.delta, self.accountant) if f.private else math.inf
            for released, (rate, noise, steps) in zip(f.released, f.runs, strict=True):
                kind = f.candidate, f.stage, f.n_samples, f.fits, f.seen
                rows.append((*kind, released, steps, rate, noise, one))
        return pd.DataFrame(rows, columns=columns)

    def __repr__(self):
        total, seen = (sum(getattr(f, name) for f in self.fits) for name in ("fits", "seen"))
        text = described("SearchPlan", self, total, seen)
        paying = dict.fromkeys(step for f in self.fits for step in f.steps)
        return text + "".join(f"\n  each fit pays for {step} as well" for step in paying)


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
    then the refit, whose candidate is not known: that which makes the total largest is charged.
    Splitters that may give a record to every fit are charged for every fit.  Stratified and
    grouped folds take labels and groups as public, and are counted as of equal size.

    Of a pipeline's other steps a DPQuantileScaler is charged with each fit; what
    :func:`~skdpfair.preprocessing.check_pipeline` finds is a reason, since no epsilon covers it.

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
      taken as public: the labels or groups by which StratifiedKFold makes its folds
    """
    if hasattr(n_samples, "__len__") and not isinstance(n_samples, str):
        raise TypeError(
            f"n_samples must be the number of records, got a {type(n_samples).__name__} of "
            f"{len(n_samples)}. Pass len(X)."
        )
    n_samples, n_groups = integer("n_samples", n_samples), integer("n_groups", n_groups)
    one_of("accountant", accountant, ACCOUNTANTS)
    delta = delta_for(delta, n_samples)
    if hasattr(search, "forecast"):  # a private search knows its own cost
        return _with_leaks(search.forecast(n_samples, n_groups=n_groups, delta=delta), search)
    candidates, cv, refit = candidates_of(search, cv)
    planned = _Planner(candidates, n_groups)
    reasons = [] if cv is None else [SCORES]
    if cv is None:
        fits = (planned.fit(0, "fit", n_samples, 1, 1),)
    else:
        last = planned.refits(n_samples) if refit else [()]
        ways = [(*folds, *end) for folds in planned.folds(cv, n_samples) for end in last]
        fits = max(ways, key=lambda fits: epsilon_of(_runs(fits), delta, accountant))
    reasons = list(planned.reasons) + reasons
    public = None if cv is None else takes_as_public(cv)
    public = [public] if public else []
    if isinstance(cv, (GroupKFold, StratifiedGroupKFold)):
        public.append("that its folds are of equal size")
    spent = epsilon_of(_runs(fits), delta, accountant)
    whole = math.inf if reasons else spent
    planned = SearchPlan(spent, whole, delta, accountant, tuple(reasons), fits, tuple(public))
    return _with_leaks(planned, search)


def _with_leaks(planned, search):
    """Add the steps of pipelines that let out what no epsilon covers."""
    leaks = reasons_of(check_pipeline(search))
    if not leaks:
        return planned
    return replace(planned, whole=math.inf, reasons=(*planned.reasons, *leaks))


class _Planner:
    """Plans fits of the candidates; remembers what else would be seen."""

    def __init__(self, candidates, n_groups):
        self.candidates, self.n_groups, self.reasons = candidates, n_groups, {}

    def fit(self, candidate, stage, n_samples, fits, seen):
        classifier = classifier_of(self.candidates[candidate])
        private, runs = planned_runs(classifier, n_samples, self.n_groups)
        steps = planned_steps(self.candidates[candidate], n_samples)
        names, runs = tuple(name for name, _ in steps), (*(run for _, run in steps), *runs)
        if classifier.keep_reference or not private:
            self.reasons[TWIN] = None
        if classifier.diagnostics:
            self.reasons[DIAGNOSTICS] = None
        return PlannedFit(candidate, stage, n_samples, fits, seen, private, runs, names)

    def folds(self, cv, n_samples):
        """Yield the fold fits once for each size of the fold that leaves the record out."""
        sizes, repeats, one_out = fold_sizes(cv, n_samples)
        for out in sorted(set(sizes)) if one_out else [None]:
            yield tuple(
                self.fit(c, "fold", size, repeats * k, repeats * (k - (size == out)))
                for c in range(len(self.candidates))
                for size, k in ((size, sizes.count(size)) for size in sorted(set(sizes)))
            )

    def refits(self, n_samples):
        """Return the refits, each alone, of which one may cost most."""
        every = [self.fit(c, "refit", n_samples, 1, 1) for c in range(len(self.candidates))]
        private = {fit.runs: fit for fit in every if fit.private}
        costly = [f for f in private.values() if not any(_less(f, g) for g in private.values())]
        return [(fit,) for fit in costly or every[:1]]


def _less(fit, other):
    """Tell whether a fit costs less than another whatever they are composed with."""
    pairs = list(zip(fit.runs, other.runs, strict=False))
    return (
        len(fit.runs) == len(other.runs)
        and fit.runs != other.runs
        and all(
            a.sample_rate <= b.sample_rate
            and a.noise_multiplier >= b.noise_multiplier
            and a.steps <= b.steps
            for a, b in pairs
        )
    )


def _runs(fits):
    return [run._replace(steps=run.steps * f.seen) for f in fits if f.private for run in f.runs]
