"""Calibration of the noise to a budget, and the plan of a run's releases."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import dp_accounting as dpa

from skdpfair._validate import error_context, integer, listed, number, one_of, safe_repr
from skdpfair.exceptions import InfeasibleBudgetError
from skdpfair.privacy.accounting import (
    ACCOUNTANTS,
    MOST_RECORDS,
    PRV_ERROR,
    SampledGaussian,
    of_person,
    pld_epsilon,
    resolving,
    settled_level,
)
from skdpfair.privacy.accounting import epsilon as epsilon_of
from skdpfair.privacy.gdp import (
    clt_noise_multiplier,
    clt_parameter,
    gdp_epsilon,
    gdp_parameter,
)
from skdpfair.privacy.renyi import rdp_floor

MIN_NOISE_MULTIPLIER = 0.1
MAX_NOISE_MULTIPLIER = 1e3
_MARGIN = 1e-3  # how far under the target, relatively, a solution may stay
_MOST_EVALUATIONS = 8
_MOST_PLANNED_STEPS = 10_000_000
_LARGEST = 1e10  # a larger target takes no less noise


def calibrate(
    sample_rate: float,
    steps: int,
    epsilon: float,
    delta: float,
    accountant: str = "pld",
    one_time_noise_multipliers: tuple[float, ...] = (),
    records_per_person: int = 1,
) -> float:
    """Return the smallest noise multiplier with which a run costs at most ``epsilon``.

    Parameters
    ----------
    sample_rate : float
        In (0, 1].
    steps : int
        At least 1.
    epsilon : float
        Target, > 0.
    delta : float
        In (0, 1).
    accountant : {"pld", "prv", "rdp"}
        See :func:`skdpfair.privacy.epsilon`.
    one_time_noise_multipliers : tuple of float
        Noise multipliers of one-time releases on all records in addition to the run.
    records_per_person : int, default=1
        From 1 to 1000; the target holds for a person with so many records.

    Returns
    -------
    float
        Joint noise multiplier of a step, from ``MIN_NOISE_MULTIPLIER`` (0.1, even if less noise
        would suffice) to ``MAX_NOISE_MULTIPLIER`` (1000).  Its cost by
        :func:`skdpfair.privacy.epsilon` is never above the target and at most 0.1 % below.

    Raises
    ------
    InfeasibleBudgetError
        If this needs more noise than ``MAX_NOISE_MULTIPLIER``, or the accountant cannot certify
        such a small epsilon.

    Notes
    -----
    A secant search starts from the value of the central limit theorem, in the logarithms of the
    noise and of the ``mu`` of its cost, within the bracket of known safe and unsafe values.  It
    uses a coarse discretisation first, then a converged one, and verifies the result.

    Examples
    --------
    >>> print(f"{calibrate(1 / 16, 354, epsilon=1.0, delta=1e-6):.2f}")
    5.12
    >>> print(f"{calibrate(1 / 16, 354, epsilon=1.0, delta=1e-6, records_per_person=5):.2f}")
    24.96
    >>> calibrate(1.0, 10_000, epsilon=1e-6, delta=1e-6)
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.InfeasibleBudgetError: epsilon=1e-06 at delta=1e-06 over steps=10000 ...
    """
    return _calibrate(
        number("sample_rate", sample_rate, low=0, high=1, low_open=True),
        integer("steps", steps, high=10**9),
        min(
            number("epsilon", epsilon, low=0, low_open=True, high=math.inf, high_open=True),
            _LARGEST,
        ),
        number("delta", delta, low=0, high=1, low_open=True, high_open=True),
        one_of("accountant", accountant, ACCOUNTANTS),
        tuple(
            number("one_time_noise_multipliers", s, low=0, low_open=True)
            for s in listed(
                "one_time_noise_multipliers", one_time_noise_multipliers, "noise multipliers"
            )
        ),
        integer("records_per_person", records_per_person, high=MOST_RECORDS),
    )


@lru_cache(maxsize=1024)
def _calibrate(
    q: float,
    steps: int,
    target: float,
    delta: float,
    accountant: str,
    once: tuple[float, ...],
    records: int,
) -> float:
    search = _Search(q, steps, target, delta, once, records)
    accountant = resolving(accountant, delta, search.runs(1.0))
    _refuse_in_advance(search, accountant)
    if accountant == "pld":
        _approach(search)
    sigma = search.solve(lambda s: epsilon_of(search.runs(s), delta, accountant), _MARGIN)
    if sigma is None:
        raise InfeasibleBudgetError(
            f"{search} cannot be certified by the {accountant!r} accountant with a noise "
            f"multiplier up to {MAX_NOISE_MULTIPLIER:g}. {search.remedies(accountant)}"
        )
    return sigma


def _approach(search: "_Search") -> None:
    """Move the search near its end on one discretisation interval, not on all until it settles."""

    def at_level(level: int) -> Callable[[float], float]:
        return lambda sigma: pld_epsilon(search.runs(sigma), search.delta, level)

    search.solve(at_level(-1), 5 * _MARGIN)
    search.solve(at_level(settled_level(search.runs(search.sigma), search.delta)), _MARGIN)


def _refuse_in_advance(search: "_Search", accountant: str) -> None:
    if search.mu <= 0:
        raise InfeasibleBudgetError(
            f"{search} is spent by the one-time releases alone, whose noise multipliers are "
            f"{search.once!r}. Raise these (group_count_noise_multiplier), or epsilon."
        )
    floor = {"rdp": rdp_floor(search.delta), "prv": 2 * PRV_ERROR}.get(accountant, 0.0)
    if search.target <= floor:
        finer = resolving("pld", search.delta, search.runs(1.0)) == "pld"
        instead = "accountant='pld'" if finer else "a larger delta"
        raise InfeasibleBudgetError(
            f"{search} is below the {floor:.3g} that the {accountant!r} accountant can certify "
            f"at this delta, whatever the noise. Use {instead}, or a larger epsilon."
        )
    needed = clt_noise_multiplier(search.q, search.mu, search.steps, search.records)
    if needed > MAX_NOISE_MULTIPLIER:
        raise InfeasibleBudgetError(
            f"{search} needs a noise multiplier of about {needed:.2g}, above the supported "
            f"{MAX_NOISE_MULTIPLIER:g}. {search.remedies(accountant)}"
        )


class _Search:
    """A secant for one run and target, in the logs of noise and of the cost's ``mu``."""

    def __init__(
        self,
        q: float,
        steps: int,
        target: float,
        delta: float,
        once: tuple[float, ...],
        records: int,
    ) -> None:
        self.q, self.steps, self.target, self.delta, self.once = q, steps, target, delta, once
        self.records = records
        left = gdp_parameter(target, delta) ** 2 - math.fsum((s / records) ** -2 for s in once)
        self.mu = math.sqrt(max(left, 0.0))  # what is left for the run
        if self.mu == 0:
            return
        guess = clt_noise_multiplier(q, self.mu, steps, records)
        self.sigma = min(max(guess, MIN_NOISE_MULTIPLIER), MAX_NOISE_MULTIPLIER)
        # the slope is 1 at high noise; where sampling amplifies a lot at low noise it nears 6
        self.slope = 1.0 if q == 1 else min(1 + self.sigma**-2, 3.0)

    def __str__(self) -> str:
        return (
            f"epsilon={self.target:g} at delta={self.delta:g} over steps={self.steps} at "
            f"sample_rate={self.q:.4g}"
            + (f" for a person with {self.records} records" if self.records > 1 else "")
        )

    def runs(self, sigma: float) -> tuple[SampledGaussian, ...]:
        once = (SampledGaussian(1.0, s, 1) for s in self.once)
        return of_person((SampledGaussian(self.q, sigma, self.steps), *once), self.records)

    def remedies(self, accountant: str) -> str:
        """Say what would do, each with a tenth to spare for the accountant's own looseness."""
        if accountant == "rdp" and self.records > 1:
            return "For several records, use accountant='pld', at a delta that it resolves."
        spare = 1.1 if accountant == "pld" else 1.4
        most = self.mu * MAX_NOISE_MULTIPLIER / self.records
        rate = most / math.sqrt(self.steps) / spare
        steps = math.floor((most / self.q / spare) ** 2)
        mu = spare * clt_parameter(self.q, MAX_NOISE_MULTIPLIER, self.steps, self.records)
        options = [f"epsilon >= {_round_up(max(spare * self.target, gdp_epsilon(mu, self.delta)))}"]
        if 1 <= steps < self.steps:
            options.append(f"steps <= {steps}")
        if rate < self.q:
            options.append(f"sample_rate <= {_round_down(rate)}")
        return f"Any one of these would do: {', '.join(options)}; or a larger delta."

    def solve(self, cost: Callable[[float], float], margin: float) -> float | None:
        """Return the least safe noise multiplier found for ``cost``, or None; stay there."""
        safe: float | None = None
        unsafe: float | None = None
        last: tuple[float, float] | None = None
        aim = math.log(gdp_parameter(self.target * (1 - margin / 2), self.delta))
        for _ in range(_MOST_EVALUATIONS):
            value, here = cost(self.sigma), self.sigma
            if value <= self.target:
                safe = min(here, safe or here)
            else:
                unsafe = max(here, unsafe or here)
            if self._done(value, margin):
                break
            point = math.log(here), self._scale(value)
            self._learn_slope(last, point)
            last = point
            self.sigma = self._next(point, aim, unsafe, safe)
        self.sigma = safe or self.sigma
        return safe

    def _done(self, value: float, margin: float) -> bool:
        if value <= self.target:
            return value >= self.target * (1 - margin) or self.sigma == MIN_NOISE_MULTIPLIER
        return self.sigma == MAX_NOISE_MULTIPLIER

    def _scale(self, value: float) -> float:
        return math.log(gdp_parameter(value, self.delta)) if value < math.inf else math.inf

    def _learn_slope(self, last: tuple[float, float] | None, point: tuple[float, float]) -> None:
        if last is not None and math.isfinite(last[1] - point[1]) and last[0] != point[0]:
            slope = (last[1] - point[1]) / (point[0] - last[0])
            self.slope = min(max(slope, 0.9), 10.0)

    def _next(
        self, point: tuple[float, float], aim: float, unsafe: float | None, safe: float | None
    ) -> float:
        """Return the secant's next point, or the middle where that leaves the bracket."""
        rise = (point[1] - aim) / self.slope if math.isfinite(point[1]) else 1.0
        guess = math.exp(point[0] + rise)
        if unsafe and safe and not unsafe < guess < safe:
            return math.sqrt(unsafe * safe)
        return min(max(guess, MIN_NOISE_MULTIPLIER), MAX_NOISE_MULTIPLIER)


def _round_down(value: float) -> str:
    """Round to two digits towards zero, so that what a message promises holds."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.floor(value / unit) * unit:.2g}"


def _round_up(value: float) -> str:
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / unit) * unit:.2g}"


def compose_noise_multipliers(noise_multipliers: tuple[float, ...]) -> float:
    """Return the noise multiplier of Gaussian releases that read one and the same sample.

    Seen on the sample they are 1/s-GDP each, and compose to ``sqrt(sum s**-2)``-GDP; sampling
    amplifies that once.

    Examples
    --------
    >>> round(compose_noise_multipliers((1.0, 10.0)), 4), compose_noise_multipliers((0.0, 5.0))
    (0.995, 0.0)
    """
    least = min(noise_multipliers)
    if least == 0 or math.isinf(least):
        return float(least)
    if not 1e-100 < least < 1e100:  # whose squares leave float64
        ratio: float = math.fsum((s / least) ** -2 for s in noise_multipliers) ** -0.5
        return least * ratio
    joint: float = math.fsum(s**-2 for s in noise_multipliers) ** -0.5
    return joint


@dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """A run of ``steps`` equal steps, each on one Poisson sample.

    Parameters
    ----------
    steps : int
        Number of steps, >= 0.
    sample_rate : float
        Poisson sampling rate, in (0, 1].
    noise_multipliers : tuple of float
        Noise standard deviation over sensitivity, of the gradient and then of each query.  All
        read the SAME sample, so a step is ONE sampled Gaussian with the joint multiplier.
    one_time_noise_multipliers : tuple of float
        Noise multipliers of one-time releases on all records, before the steps.
    assumptions : tuple of str
        Facts that must be public for the numbers to hold.

    Examples
    --------
    >>> plan = PrivacyPlan(steps=100, sample_rate=0.01, noise_multipliers=(1.0, 10.0))
    >>> round(plan.joint_noise_multiplier, 4)
    0.995
    >>> print(f"{plan.epsilon(delta=1e-5, accountant='rdp'):.2f}")
    1.23
    """

    steps: int
    sample_rate: float
    noise_multipliers: tuple[float, ...]
    one_time_noise_multipliers: tuple[float, ...] = ()
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        integer("steps", self.steps, low=0)
        number("sample_rate", self.sample_rate, low=0, high=1, low_open=True)
        for name in ("noise_multipliers", "one_time_noise_multipliers"):
            if not isinstance(getattr(self, name), (tuple, list)):
                raise TypeError(
                    f"{name} must be a tuple of numbers, got {safe_repr(getattr(self, name))}. "
                    f"Write {name}=(1.0,) for a single one."
                )
        if not self.noise_multipliers:
            raise ValueError("noise_multipliers must hold at least the gradient's, got ().")
        for noise in self.noise_multipliers:
            number("noise_multipliers", noise, low=0)
        for noise in self.one_time_noise_multipliers:
            number("one_time_noise_multipliers", noise, low=0)

    @property
    def joint_noise_multiplier(self) -> float:
        """Noise multiplier of the joint release of a step."""
        return compose_noise_multipliers(self.noise_multipliers)

    @property
    def run(self) -> SampledGaussian:
        """The run in the form that the accountants of this package use."""
        return SampledGaussian(self.sample_rate, self.joint_noise_multiplier, self.steps)

    @property
    def runs(self) -> list[SampledGaussian]:
        """The run of the steps, and the one-time releases."""
        once = (SampledGaussian(1.0, noise, 1) for noise in self.one_time_noise_multipliers)
        return [self.run, *once]

    @property
    def event(self) -> dpa.DpEvent:
        """The run as a ``dp_accounting`` event."""
        return (
            dpa.ComposedDpEvent([r.event for r in self.runs])
            if self.one_time_noise_multipliers
            else self.run.event
        )

    def epsilon(self, delta: float, accountant: str = "pld", records_per_person: int = 1) -> float:
        """Return the epsilon of the run.

        Parameters
        ----------
        delta : float
            In (0, 1).
        accountant : {"pld", "prv", "rdp"}, default="pld"
            See :func:`skdpfair.privacy.epsilon`.
        records_per_person : int, default=1
            From 1 to 1000; epsilon is that of a person with so many records.

        Returns
        -------
        float
            Epsilon >= 0.
        """
        return epsilon_of(of_person(self.runs, records_per_person), delta, accountant)

    def calibrated(
        self,
        epsilon: float,
        delta: float,
        accountant: str = "pld",
        fixed: tuple[int, ...] = (),
        records_per_person: int = 1,
    ) -> "PrivacyPlan":
        """Return the plan with the least noise that satisfies (epsilon, delta).

        Parameters
        ----------
        epsilon, delta : float
            The target, never exceeded.
        accountant : {"pld", "prv", "rdp"}
            The accountant that computes epsilon.
        fixed : tuple of int
            Positions in ``noise_multipliers`` that are fixed; the others are scaled together.
        records_per_person : int, default=1
            From 1 to 1000; the target holds for a person with so many records.

        Returns
        -------
        PrivacyPlan

        Raises
        ------
        InfeasibleBudgetError
            If the target needs too much noise, or the fixed releases alone exceed it.
        ValueError
            If no multiplier is left to scale, or one is 0 or infinite.

        Examples
        --------
        >>> plan = PrivacyPlan(steps=1000, sample_rate=0.01, noise_multipliers=(1.0, 5.0))
        >>> plan = plan.calibrated(1.0, 1e-5)
        >>> [f"{s:.2f}" for s in plan.noise_multipliers], plan.epsilon(1e-5) <= 1.0
        (['1.44', '7.22'], True)
        """
        self._check_scalable(fixed)
        target = calibrate(
            self.sample_rate,
            self.steps,
            epsilon,
            delta,
            accountant,
            self.one_time_noise_multipliers,
            records_per_person,
        )
        held = math.fsum(self.noise_multipliers[i] ** -2 for i in fixed)
        rest = target**-2 - held
        if rest <= 0:
            counts = compose_noise_multipliers(tuple(self.noise_multipliers[i] for i in fixed))
            raise InfeasibleBudgetError(
                f"The fixed count_noise_multiplier={counts:g} "
                f"alone spends epsilon={epsilon:g} or more at delta={delta:g}: it must exceed the "
                f"joint noise multiplier {target:.4g}. Raise it to {2 * target:.3g} or more, or "
                'use count_noise_multiplier="auto".'
            )
        free = math.fsum(s**-2 for i, s in enumerate(self.noise_multipliers) if i not in fixed)
        # the last factor outweighs the rounding of the closed form
        factor = math.sqrt(free / rest) * (1 + 1e-12)
        scaled = tuple(
            s if i in fixed else s * factor for i, s in enumerate(self.noise_multipliers)
        )
        return replace(self, noise_multipliers=scaled)

    def max_steps_within(
        self,
        epsilon: float,
        delta: float,
        accountant: str = "pld",
        records_per_person: int = 1,
    ) -> "PrivacyPlan":
        """Return the plan with the most steps that satisfies (epsilon, delta) at the same noise.

        Parameters
        ----------
        epsilon, delta : float
            The target, never exceeded.
        accountant : {"pld", "prv", "rdp"}
            The accountant that computes epsilon.
        records_per_person : int, default=1
            From 1 to 1000; the target holds for a person with so many records.

        Returns
        -------
        PrivacyPlan

        Raises
        ------
        InfeasibleBudgetError
            If a single step exceeds the budget.
        ValueError
            If the budget allows more than ten million steps.

        Examples
        --------
        >>> plan = PrivacyPlan(steps=1, sample_rate=0.01, noise_multipliers=(1.0,))
        >>> longest = plan.max_steps_within(1.0, 1e-5)
        >>> longest.steps, longest.epsilon(1e-5) <= 1.0, replace(
        ...     longest, steps=longest.steps + 1).epsilon(1e-5) <= 1.0
        (..., True, False)
        """
        epsilon = number("epsilon", epsilon, low=0, low_open=True)

        def within(steps: int) -> bool:
            longer = replace(self, steps=steps)
            return longer.epsilon(delta, accountant, records_per_person) <= epsilon

        if not within(1):
            raise InfeasibleBudgetError(
                f"One step costs more than epsilon={epsilon:g} at delta={delta:g}. Raise epsilon "
                "or the noise multiplier, or lower the sampling rate."
            )
        high = 2
        while high <= _MOST_PLANNED_STEPS and within(high):
            high *= 2
        if high > _MOST_PLANNED_STEPS:
            raise ValueError(
                f"epsilon={epsilon:g} allows more than {_MOST_PLANNED_STEPS:,} steps at this "
                "noise. Name the number of steps, and let the noise be found."
            )
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if within(middle) else (low, middle)
        return replace(self, steps=low)

    def _check_scalable(self, fixed: tuple[int, ...]) -> None:
        places = range(len(self.noise_multipliers))
        with error_context("fixed", "must be a tuple of positions in noise_multipliers"):
            held = set(fixed)
        if not held < set(places):
            raise ValueError(
                f"fixed must leave out at least one of the positions {list(places)} of "
                f"noise_multipliers, and name no other, got {safe_repr(fixed)}."
            )
        for noise in self.noise_multipliers:
            number("noise_multipliers", noise, low=0, low_open=True, high=math.inf, high_open=True)
