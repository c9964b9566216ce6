"""Accounting of sampled Gaussian steps: epsilon by three accountants, and total variation."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld

from skdpfair._utils.validate import number, one_of
from skdpfair.privacy.gdp import MIN_DELTA, clt_parameter, gdp_epsilon
from skdpfair.privacy.mixture import loss_bounds, worst_mixture
from skdpfair.privacy.releases import MergedRelease, NoisyRelease, merged
from skdpfair.privacy.renyi import curve_epsilon, curve_of

PRV_ERROR = 0.01
# the first interval of the losses, and when a finer one gains too little to be worth its time
_FIRST_INTERVAL, _STABLE_CHANGE = 1e-3, 0.005
# points of the grid: too few are loose, and a Fourier transform of more takes over a second
_MIN_POINTS, _FIRST_POINTS, _MAX_POINTS = 300, 5_000, 30_000
_MANY_RUNS = 5  # no single fit has so many
_MAX_COMPOSED = 1_000_000  # of the composition, whose losses span some 20 times its mu
# of runs, of points of all, and of steps: a minute at most
_MAX_RUNS, _MAX_WORK, _MAX_WORK_STEPS = 1000, 10_000_000, 100_000_000
# from the first, compose in two stages; beyond the second, rounding outgrows what points gain
_MANY_STEPS, _VERY_MANY_STEPS = 10_000, 100_000
# rates of groups that are accounted for one by one
_MAX_RATES = 8
# below it, losses leave float64
MIN_NOISE = 0.99e-4
MAX_MU = 1e4  # epsilon of about 5e7
# from here opacus understates, fails or hangs
_MAX_PRV, _MAX_PRV_STEPS = 500, 1_000_000
# absolute error of delta in a Fourier transform's power: up to 1.7e-16 a step was measured
_ROUNDING, _STEP_ROUNDING = 1e-14, 1e-15


def compute_epsilon(
    releases: Iterable[NoisyRelease],
    delta: float,
    accountant: str = "pld",
    records_per_person: int = 1,
) -> float:
    """Return an upper bound on the epsilon of the composition of ``releases``.

    Parameters
    ----------
    releases : iterable of NoisyRelease
        Everything that was released, in any order.
    delta : float
        In (0, 1); infinity is returned below 1e-100.
    accountant : {"pld", "prv", "rdp"}
        ``"pld"`` is tight.  ``"prv"`` adds at most 0.01 (or 0.1 % of a large epsilon), and uses
        ``"pld"`` where it cannot compute.  ``"rdp"`` is 10 to 20 % loose for one record, and many
        times as large for several; the others use it if float64 does not resolve delta: below
        1e-13 + 1e-14 for each step.
    records_per_person : int, default=1
        From 1 to 1000: epsilon is for a person with so many records.  Neighbouring data sets differ
        in all of them, and each is sampled on its own.

    Returns
    -------
    float
        Epsilon >= 0; 0 if nothing was released, infinity if a release had no noise.

    Notes
    -----
    The relation is add-or-remove-one, which has the same dominating pair as ``"zero_out"``
    for Poisson sampling and Gaussian noise.  The Fourier transforms of ``"pld"`` and ``"prv"``
    have an absolute error in delta, which is subtracted from delta first.

    A step contains a Binomial(k, q) number of k records, each sampled with probability q, and moves
    by at most that number times its sensitivity: the mixture of Gaussians with these means
    dominates it (Corollary 4.7 of [choquette2024]_).  ``"rdp"`` counts all k records whenever any
    is sampled.

    The delta of a step with strata is, at every epsilon, at most the largest of the strata's.  As a
    maximum of curves that fall and are convex in exp(epsilon), this is the curve of a pair of
    distributions, which dominates the step whichever stratum earlier releases chose for a record;
    such pairs compose adaptively (Theorem 10 of [zhu2022]_).

    References
    ----------
    .. [choquette2024] C. A. Choquette-Choo et al., "Privacy Amplification for Matrix Mechanisms",
       ICLR 2024.
    .. [zhu2022] Y. Zhu, J. Dong, Y.-X. Wang, "Optimal Accounting of Differential Privacy via
       Characteristic Function", AISTATS 2022.

    Examples
    --------
    >>> adult = NoisyRelease("gradient sum", 1 / 92, (1.0,), steps=1840)
    >>> print(f"{compute_epsilon([adult], 1e-6):.2f}, {compute_epsilon([adult], 1e-6, 'rdp'):.2f}")
    3.10, 3.41
    >>> print(f"{compute_epsilon([adult], 1e-6, records_per_person=5):.1f}")
    20.2
    >>> compute_epsilon([], 1e-6)
    0.0
    """
    delta = number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    one_of("accountant", accountant, ACCOUNTANTS)
    runs = merged(releases, records_per_person)
    return epsilon_of_runs(runs, delta, effective_accountant(accountant, delta, runs))


def group_epsilons(
    releases: Iterable[NoisyRelease], n_groups: int, delta: float, accountant: str
) -> list[float] | None:
    """Return the epsilon of each group at its own rate; None where all rates are equal.

    Where rates are many, groups of similar ones pay for the largest rate among them.
    """
    releases = list(releases)
    if all(r.group_rates is None for r in releases):
        return None
    by_group = [r.group_rates or (r.sample_rate,) * n_groups for r in releases]
    rates, which = np.unique(np.array(by_group).T, axis=0, return_inverse=True)
    alike = np.array_split(np.argsort(rates.max(axis=1)), min(len(rates), _MAX_RATES))
    epsilons = np.empty(len(rates))
    for rows in alike:
        worst = zip(releases, rates[rows].max(axis=0).tolist(), strict=True)
        at_rate = [replace(r, sample_rate=rate) for r, rate in worst if rate > 0]
        epsilons[rows] = compute_epsilon(at_rate, delta, accountant)
    return list(epsilons[which.ravel()].tolist())


@lru_cache(maxsize=4096)
def epsilon_of_runs(runs: tuple[MergedRelease, ...], delta: float, accountant: str) -> float:
    """Return `compute_epsilon` of merged releases, by an accountant that resolves delta."""
    if not runs:
        return 0.0
    if delta < MIN_DELTA or any(run.noise_multiplier < MIN_NOISE for run in runs):
        return math.inf
    return float(ACCOUNTANTS[accountant](runs, delta))


def check_work(runs: tuple[MergedRelease, ...], accountant: str) -> None:
    """Raise ValueError, at once, if accounting for some runs would take minutes."""
    # a step about many records takes as long as several
    n_runs = sum(max(1, len(run.strata), run.records // 50) for run in runs)
    points, steps = 0.0, sum(run.steps for run in runs)
    if runs and n_runs <= _MAX_RUNS and all(run.noise_multiplier >= MIN_NOISE for run in runs):
        points = (20 * joint_mu(runs) + sum(map(_loss_range, runs))) / interval(runs, 0)
        points = max(points, 1e3 * math.sqrt(steps) * (accountant == "prv"))
    if n_runs > _MAX_RUNS or n_runs * points > _MAX_WORK or steps > _MAX_WORK_STEPS:
        what = f"{len(runs)} kinds in {steps:,} steps"
        raise ValueError(f"releases must be fewer: to account for {what} would take minutes.")


def rounding(runs: tuple[MergedRelease, ...]) -> float:
    """Return a bound on the error that float64 makes in the delta of a composition."""
    return _ROUNDING + _STEP_ROUNDING * sum(run.steps for run in runs)


def effective_accountant(accountant: str, delta: float, runs: tuple[MergedRelease, ...]) -> str:
    """Return the accountant, or "rdp" where rounding would be a tenth of delta or more."""
    return accountant if delta > 10 * rounding(runs) else "rdp"


def _pld(runs: tuple[MergedRelease, ...], delta: float) -> float:
    if joint_mu(runs) <= MAX_MU:
        with suppress(OverflowError):  # of an exponential, where there is hardly any noise
            bounds = refine_until_stable(runs, lambda level: pld_epsilon(runs, delta, level))
            # the worst of Renyi curves may be tighter than that of deltas, or than a coarse grid
            either = len(runs) >= _MANY_RUNS or any(r.strata for r in runs)
            return min(*bounds, _rdp(runs, delta) if either else math.inf)
    return _rdp(runs, delta)


def refine_until_stable(
    runs: tuple[MergedRelease, ...], bound_at: Callable[[int], float]
) -> list[float]:
    """Return the upper bounds at finer and finer intervals, until one moves by less than 0.5 %."""
    values = [bound_at(0)]
    while interval(runs, len(values)) < 0.9 * interval(runs, len(values) - 1):
        values.append(bound_at(len(values)))
        # written so that infinity minus infinity stops too
        if not values[-2] - values[-1] > _STABLE_CHANGE * values[-1]:
            break
    return values


@lru_cache(maxsize=4096)
def pld_epsilon(runs: tuple[MergedRelease, ...], delta: float, level: int) -> float:
    """Return the pessimistic epsilon of ``runs`` at one discretisation interval."""
    with np.errstate(all="ignore"):
        composed = _composed_distribution(runs, level)
        return float(composed.get_epsilon_for_delta(delta - rounding(runs)))


@lru_cache(maxsize=8)  # the curves that follow epsilon read the same distribution
def _composed_distribution(
    runs: tuple[MergedRelease, ...], level: int
) -> pld.PrivacyLossDistribution:
    """Return the privacy-loss distribution of all runs together, on one interval."""
    width = interval(runs, level)
    if len(runs) < _MANY_RUNS:
        return _compose(None, runs, width)
    sampled = Counter({run._replace(steps=1): run.steps for run in runs if run.sample_rate < 1})
    last = _last_sampled(width)
    # read once and written once: another thread may replace it at any time
    before, composed = last[0]
    if not before <= sampled:
        before, composed = Counter(), None
    new = (run._replace(steps=n) for run, n in (sampled - before).items())
    composed = _compose(composed, new, width)
    last[0] = sampled, composed
    # Gaussians of equal noise are exact in one piece
    return _compose(composed, [run for run in runs if run.sample_rate == 1], width)


@lru_cache(maxsize=8)
def _last_sampled(width: float) -> list[tuple[Counter[MergedRelease], Any]]:
    """Return a cell for the last composition: a ledger that grows composes only what is new."""
    return [(Counter(), None)]


def _compose(
    composed: pld.PrivacyLossDistribution | None, runs: Iterable[MergedRelease], width: float
) -> pld.PrivacyLossDistribution:
    composed = composed or pld.identity(value_discretization_interval=width)
    for run in runs:
        composed = composed.compose(_distribution(run, width))
    return composed


def _distribution(run: MergedRelease, width: float) -> pld.PrivacyLossDistribution:
    q, sigma, steps, records, strata = run
    # plain Gaussians compose exactly, before anything is discretised
    if q == 1 and not strata:
        sigma, steps, records = sigma / (records * math.sqrt(steps)), 1, 1
    if records > 1 or strata:
        step = worst_mixture([v[:2] for v in run.variants], records, width)
    else:
        step = pld.from_gaussian_mechanism(
            sigma, value_discretization_interval=width, sampling_prob=q
        )
    if steps <= _MANY_STEPS:
        return step.self_compose(steps)
    # the library's truncation lets the grid grow with the steps: compose in two stages
    root = math.isqrt(steps)
    composed = step.self_compose(root).self_compose(root)
    n_remaining = steps - root**2
    return composed.compose(step.self_compose(n_remaining)) if n_remaining else composed


def delta_curve(
    runs: tuple[MergedRelease, ...], epsilons: np.ndarray, level: int = 0
) -> np.ndarray:
    """Return upper bounds on the delta of a composition at each epsilon, in either direction.

    Epsilons are in ascending order; beyond about 700, where float64 overflows, the bound is 1.
    """
    with np.errstate(all="ignore"):
        deltas = _composed_distribution(runs, level).get_delta_for_epsilon(epsilons)
    return np.asarray(np.clip(np.nan_to_num(deltas, nan=1.0) + rounding(runs), 0.0, 1.0))


def interval(runs: tuple[MergedRelease, ...], level: int) -> float:
    """Return a discretisation interval: 1e-3 at level 0, a third of it at each further level.

    Level 0 is coarser at low noise, where 1e-3 would take minutes, and finer at high noise,
    where the losses of a step would all fall into one interval.  No level has more than
    30,000 points (60,000 from five runs on, fewer beyond 100,000 steps), which is about a second's
    work and errs on the safe side.
    """
    widest = max(_loss_range(run) for run in runs)
    first = min(max(_FIRST_INTERVAL, widest / _FIRST_POINTS), widest / _MIN_POINTS)
    # rounding adds mass in proportion to steps times points: past this, finer is only looser
    crowding = min(1.0, _VERY_MANY_STEPS / max(run.steps for run in runs))
    max_points = max(_MAX_POINTS * crowding, _MIN_POINTS)
    finer: float = first / 3**level
    coarse = sum(_loss_range(run) for run in runs) / max_points
    width = max(finer, coarse, 20 * joint_mu(runs) / _MAX_COMPOSED)
    # rarely another one after one more run, so that the last composition can be used
    return 2.0 ** math.floor(math.log2(width)) if len(runs) >= _MANY_RUNS else width


def _loss_range(run: MergedRelease) -> float:
    """Width of the privacy loss that the library discretises, noise cut at 10 deviations."""
    if run.strata:
        return max(_loss_range(variant) for variant in run.variants)
    q, sigma, steps, records, _ = run
    if q < 1 < records:
        return loss_bounds(q, sigma, records)[1] + records * min(10 / sigma, -math.log1p(-q))
    if q == 1:
        # composed before the library discretises
        sigma /= records * math.sqrt(steps)
    plain = 10 / sigma + 0.5 / sigma**2
    if q == 1:
        return 2 * plain
    highest = np.logaddexp(math.log1p(-q), math.log(q) + plain)
    return float(highest + min(plain, -math.log1p(-q)))


def joint_mu(runs: tuple[MergedRelease, ...]) -> float:
    """Return the Gaussian parameter of a composition by the central limit theorem."""
    return math.hypot(*(max(clt_parameter(*v[:4]) for v in run.variants) for run in runs))


def _rdp(runs: tuple[MergedRelease, ...], delta: float) -> float:
    return curve_epsilon(curve_of(runs), delta)


def _prv(runs: tuple[MergedRelease, ...], delta: float) -> float:
    # an absolute error of 0.01 on an epsilon in the thousands would take minutes and gigabytes,
    # and is more than an epsilon below it
    rough = gdp_epsilon(joint_mu(runs), delta)
    too_many = sum(run.steps for run in runs) > _MAX_PRV_STEPS
    others = any(run.records > 1 or run.strata for run in runs)
    if not PRV_ERROR < rough <= _MAX_PRV or too_many or others:
        return _pld(runs, delta)
    from opacus.accountants import PRVAccountant  # imports torch: here only

    accountant = PRVAccountant()
    accountant.history = [(run.noise_multiplier, run.sample_rate, run.steps) for run in runs]
    # beyond its grid, or its resolution
    cannot = suppress(RuntimeError, ValueError)
    with cannot, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        spare = delta - rounding(runs)
        bound: float = accountant.get_epsilon(spare, eps_error=max(PRV_ERROR, rough / 1000))
        return max(bound, 0.0)
    return _pld(runs, delta)


ACCOUNTANTS = {"pld": _pld, "prv": _prv, "rdp": _rdp}
