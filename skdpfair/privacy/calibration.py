"""Calibration of noise to a budget."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from scipy.optimize import brentq

from skdpfair._utils.validate import integer, number, one_of
from skdpfair.exceptions import InfeasibleBudgetError
from skdpfair.privacy import accounting
from skdpfair.privacy.gdp import clt_noise_multiplier, clt_parameter, gdp_parameter
from skdpfair.privacy.privacy_report import rounded_up
from skdpfair.privacy.releases import (
    MergedRelease,
    NoisyRelease,
    all_releases,
    joint_noise,
    merged,
    truncated_noise,
)
from skdpfair.privacy.renyi import rdp_floor

MIN_NOISE_MULTIPLIER = 0.1
MAX_NOISE_MULTIPLIER = 1e3
# how far under the target, relatively, a solution may stay
_MARGIN = 1e-3
_MAX_EVALUATIONS = 12  # in a bracket; 2 or 3 usually do
# a larger target takes no less noise
_MAX_EPSILON = 1e10
_TOO_NOISY = f"needs a noise multiplier above the supported {MAX_NOISE_MULTIPLIER:g}"


def calibrate_noise(
    releases: Iterable[NoisyRelease],
    epsilon: float,
    delta: float,
    accountant: str = "pld",
    fixed: tuple[int, ...] = (),
    records_per_person: int = 1,
) -> tuple[NoisyRelease, ...]:
    """Return releases that cost at most ``epsilon`` together, the last with the least noise.

    Parameters
    ----------
    releases : iterable of NoisyRelease
        The noise of the last one is scaled; those before it stay as they are.
    epsilon, delta : float
        The target, never exceeded.
    accountant : {"pld", "prv", "rdp"}
        See :func:`skdpfair.privacy.compute_epsilon`.
    fixed : tuple of int
        Positions in the last ``noise_multipliers`` that stay; the others are scaled together.
    records_per_person : int, default=1
        From 1 to 1000; the target holds for a person with so many records.

    Returns
    -------
    tuple of NoisyRelease
        The last one's joint noise multiplier lies between 0.1, even if less noise would do, and
        1000.  The cost by :func:`skdpfair.privacy.compute_epsilon` is never above the target and,
        unless the noise is the least, at most 0.1 % below.

    Raises
    ------
    InfeasibleBudgetError
        If the target needs too much noise, the accountant cannot certify such a small epsilon, or
        the fixed releases alone exceed it.
    ValueError
        If no multiplier is left to scale, or one is 0 or infinite.

    Notes
    -----
    Brent's method compares the ``mu`` of the cost with the one of the central limit theorem, in
    logarithms, in which one grows nearly as the other: first on one interval of the privacy losses,
    from there by the accountant itself.  The result is a noise multiplier whose cost was computed.

    Examples
    --------
    >>> from skdpfair.privacy import compute_epsilon
    >>> step = NoisyRelease("gradient sum", 0.01, (1.0, 5.0), steps=1000)
    >>> (step,) = calibrate_noise([step], 1.0, 1e-5)
    >>> [f"{s:.1f}" for s in step.noise_multipliers], compute_epsilon([step], 1e-5) <= 1.0
    (['1.4', '7.2'], True)
    >>> calibrate_noise([replace(step, sample_rate=1.0)], 1e-6, 1e-6)
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.InfeasibleBudgetError: epsilon=1e-06 at delta=1e-06 over steps=1000 ...
    """
    *fixed_releases, last = all_releases(releases)
    noise = last.noise_multipliers
    for s in noise:
        number("noise_multipliers", s, low=0, low_open=True, high=math.inf, high_open=True)
    if not set(fixed) < set(range(len(noise))):
        raise ValueError(
            f"fixed must leave out at least one of the {len(noise)} positions of "
            f"noise_multipliers, and name no other, got {fixed!r}."
        )
    integer("steps", last.steps)
    target = number("epsilon", epsilon, low=0, low_open=True, high=math.inf, high_open=True)
    (run,) = merged([replace(last, noise_multipliers=(1.0,))], records_per_person)
    joint = _least_noise(
        merged(fixed_releases, records_per_person),
        run,
        min(target, _MAX_EPSILON),
        number("delta", delta, low=0, high=1, low_open=True, high_open=True),
        one_of("accountant", accountant, accounting.ACCOUNTANTS),
    )
    share_left = 1 - math.fsum((noise[i] / joint) ** -2 for i in fixed)
    if share_left <= 0:
        raise InfeasibleBudgetError(
            f"The fixed count_noise_multiplier={joint_noise(tuple(noise[i] for i in fixed)):g} "
            f"alone spends epsilon={epsilon:g} or more at delta={delta:g}: it must exceed the "
            f"joint noise multiplier {joint:.4g}. Raise it to {2 * joint:.3g} or more, or "
            'use count_noise_multiplier="auto".'
        )
    scaled_precision = math.fsum(s**-2 for i, s in enumerate(noise) if i not in fixed)
    factor = joint * math.sqrt(scaled_precision / share_left)

    def scaled(factor: float) -> tuple[float, ...]:
        return tuple(s if i in fixed else s * factor for i, s in enumerate(noise))

    if joint_noise(scaled(factor)) < joint:  # by rounding
        factor *= 1 + 1e-12
    return *fixed_releases, replace(last, noise_multipliers=scaled(factor))


@lru_cache(maxsize=1024)
def _least_noise(
    fixed_runs: tuple[MergedRelease, ...],
    run: MergedRelease,
    target: float,
    delta: float,
    accountant: str,
) -> float:
    """Return the least noise multiplier at which ``run`` and the fixed ones cost ``target``."""
    accountant = accounting.effective_accountant(accountant, delta, (*fixed_runs, run))
    mu_target = gdp_parameter(target, delta)
    mu_left = math.sqrt(max(mu_target**2 - accounting.joint_mu(fixed_runs) ** 2, 0.0))
    q, steps, records = run.lowest_rate, run.steps, run.records
    problem = tuple(fixed_runs), run, target, delta, accountant
    _refuse_in_advance(problem, mu_left)

    def noise_at(log_mu: float) -> float:
        noise = clt_noise_multiplier(q, math.exp(log_mu), steps, records)
        # 1e-11 outweighs what the 40 bits leave out
        noise = min(max(noise, MIN_NOISE_MULTIPLIER * (1 + 1e-11)), MAX_NOISE_MULTIPLIER)
        return truncated_noise(noise)

    def runs(log_mu: float) -> tuple[MergedRelease, ...]:
        return tuple(sorted((*fixed_runs, run._replace(noise_multiplier=noise_at(log_mu)))))

    def first_bound(log_mu: float) -> float:
        with suppress(OverflowError):  # of an exponential, where there is hardly any noise
            return accounting.pld_epsilon(runs(log_mu), delta, 0)
        return math.inf

    def certified(log_mu: float) -> float:
        return accounting.epsilon_of_runs(runs(log_mu), delta, accountant)

    ends = MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
    limits = [math.log(clt_parameter(q, noise, steps, records)) for noise in ends]
    log_mu = math.log(mu_left * gdp_parameter(target * (1 - _MARGIN / 2), delta) / mu_target)
    # its finer intervals take several times as long as the first
    if accountant == "pld":
        # a bound that is a little above may settle below
        costs = _costs_near(target * (1 + 0.4 * _MARGIN), delta, first_bound, log_mu, limits)
        log_mu = min(costs, key=lambda at: abs(costs[at] - target))
    costs = _costs_near(target, delta, certified, log_mu, limits)
    safe = [noise_at(log_mu) for log_mu, cost in costs.items() if cost <= target]
    if not safe:
        raise _infeasible(problem, f"{_TOO_NOISY} by the {accountant!r} accountant")
    return min(safe)


# the arguments of `_least_noise`
_Problem: TypeAlias = tuple[tuple[MergedRelease, ...], MergedRelease, float, float, str]


def _refuse_in_advance(problem: _Problem, mu_left: float) -> None:
    """Refuse a target that no noise meets, before a distribution is computed."""
    _, run, target, delta, accountant = problem
    floor = _floor(accountant, delta)
    if mu_left == 0:
        what = (
            "is spent by the other releases alone, whose noise (of a fit, its "
            "group_count_noise_multiplier) is too low"
        )
        raise _infeasible(problem, what)
    if target <= floor:
        what = f"is below the {floor:.3g} that {accountant!r} can certify at this delta"
        raise _infeasible(problem, what)
    least = clt_noise_multiplier(run.lowest_rate, mu_left, run.steps, run.records)
    if least > MAX_NOISE_MULTIPLIER:
        raise _infeasible(problem, _TOO_NOISY)


def _floor(accountant: str, delta: float) -> float:
    """Return the epsilon that an accountant cannot certify at this delta."""
    return {"rdp": rdp_floor(delta), "prv": 2 * accounting.PRV_ERROR}.get(accountant, 0.0)


def _infeasible(problem: _Problem, what: str) -> InfeasibleBudgetError:
    """Return the error that says which numbers are feasible instead, with the most noise."""
    fixed_runs, run, target, delta, accountant = problem
    floor = _floor(accountant, delta)

    def cost(steps: int) -> float:
        quiet = run._replace(noise_multiplier=MAX_NOISE_MULTIPLIER, steps=steps)
        return accounting.epsilon_of_runs(tuple(sorted((*fixed_runs, quiet))), delta, accountant)

    least, steps, feasible = max(cost(run.steps), floor), 0, ""
    # the others take a share of mu squared of a larger budget, too, and have less noise then
    for _ in range(_MAX_EVALUATIONS if fixed_runs and math.isfinite(least) else 0):
        factor = gdp_parameter(target, delta) / gdp_parameter(least, delta)
        others = [r._replace(noise_multiplier=factor * r.noise_multiplier) for r in fixed_runs]
        quiet = run._replace(noise_multiplier=MAX_NOISE_MULTIPLIER)
        if accounting.epsilon_of_runs(tuple(sorted((*others, quiet))), delta, accountant) <= least:
            break
        least *= 1.06
    if math.isfinite(least):
        feasible = f" epsilon={rounded_up(1.01 * least, 2)} is feasible"
        # mu grows as the root of the steps
        steps = int(run.steps * (gdp_parameter(target, delta) / gdp_parameter(least, delta)) ** 2)
    while steps and max(cost(steps), floor) > target * (1 - _MARGIN):
        steps = steps * 9 // 10
    if 0 < steps < run.steps:
        feasible += f", or steps={steps}"
    tighter = "" if accountant == "pld" else ", or use accountant='pld'"
    person = f" for a person with {run.records} records" if run.records > 1 else ""
    return InfeasibleBudgetError(
        f"epsilon={target:g} at delta={delta:g} over steps={run.steps} at "
        f"sample_rate={run.sample_rate:.4g}{person} {what}. Raise epsilon or delta, or lower "
        f"steps or sample_rate{tighter}.{feasible}{'.' * bool(feasible)}"
    )


def _costs_near(
    target: float,
    delta: float,
    cost: Callable[[float], float],
    start: float,
    limits: Sequence[float],
) -> dict[float, float]:
    """Return the costs that were computed until one was near the target, by position.

    A position is the log of the ``mu`` that the central limit theorem gives a noise multiplier.
    The log of the ``mu`` of its cost has a slope near 1 in it.  Near are costs up to ``_MARGIN``
    below the target.
    """
    costs: dict[float, float] = {}
    aim = math.log(gdp_parameter(target * (1 - _MARGIN / 2), delta))

    def excess(log_mu: float) -> float:
        value = costs[log_mu] = costs.get(log_mu) or cost(log_mu)
        if target * (1 - _MARGIN) <= value <= target:
            return 0.0  # where a root finder ends
        return math.log(gdp_parameter(value, delta)) - aim if value < math.inf else 1.0

    last = here = min(max(start, limits[0]), limits[1])
    for attempt in range(_MAX_EVALUATIONS):
        if attempt and excess(last) * excess(here) <= 0:
            break
        # to where the theorem sees the target, and beyond if that was not enough
        rise = 2**attempt * excess(here)
        last, here = here, min(max(here - rise, limits[0]), limits[1])
    if excess(last) * excess(here) < 0:
        brentq(excess, last, here, xtol=1e-6, maxiter=_MAX_EVALUATIONS, disp=False)
    return costs
