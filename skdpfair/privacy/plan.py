"""What a run will release, as numbers that an accountant can read."""

import math
from dataclasses import dataclass, replace

import dp_accounting as dpa

from skdpfair._validate import error_context, integer, number, safe_repr
from skdpfair.exceptions import InfeasibleBudgetError
from skdpfair.privacy.accounting import SampledGaussian
from skdpfair.privacy.accounting import epsilon as epsilon_of
from skdpfair.privacy.calibration import calibrate

_MOST_STEPS = 10_000_000


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
        return least * math.fsum((s / least) ** -2 for s in noise_multipliers) ** -0.5
    return math.fsum(s**-2 for s in noise_multipliers) ** -0.5


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
        Noise multipliers of releases on all records, each made once, before the steps.
    assumptions : tuple of str
        What must be public for the numbers to hold.

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

    def __post_init__(self):
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
        """The run as the accountants of this package read it."""
        return SampledGaussian(self.sample_rate, self.joint_noise_multiplier, self.steps)

    @property
    def runs(self) -> list[SampledGaussian]:
        """The run of the steps, and the releases made once."""
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

    def epsilon(self, delta: float, accountant: str = "pld") -> float:
        """Return what the run costs at ``delta``."""
        return epsilon_of(self.runs, delta, accountant)

    def calibrated(
        self, epsilon: float, delta: float, accountant: str = "pld", fixed: tuple[int, ...] = ()
    ) -> "PrivacyPlan":
        """Return the plan with the least noise that keeps (epsilon, delta).

        Parameters
        ----------
        epsilon, delta : float
            The target, never exceeded.
        accountant : {"pld", "prv", "rdp"}
            How epsilon is computed.
        fixed : tuple of int
            Positions in ``noise_multipliers`` that stay; the others scale by one factor.

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
        self, epsilon: float, delta: float, accountant: str = "pld"
    ) -> "PrivacyPlan":
        """Return the plan with the most steps that keeps (epsilon, delta), at the same noise.

        Parameters
        ----------
        epsilon, delta : float
            The target, never exceeded.
        accountant : {"pld", "prv", "rdp"}
            How epsilon is computed.

        Raises
        ------
        InfeasibleBudgetError
            If not even one step is within the budget.
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

        def within(steps):
            return replace(self, steps=steps).epsilon(delta, accountant) <= epsilon

        if not within(1):
            raise InfeasibleBudgetError(
                f"One step costs more than epsilon={epsilon:g} at delta={delta:g}. Raise epsilon "
                "or the noise multiplier, or lower the sampling rate."
            )
        high = 2
        while high <= _MOST_STEPS and within(high):
            high *= 2
        if high > _MOST_STEPS:
            raise ValueError(
                f"epsilon={epsilon:g} allows more than {_MOST_STEPS:,} steps at this noise. Name "
                "the number of steps, and let the noise be found."
            )
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if within(middle) else (low, middle)
        return replace(self, steps=low)

    def _check_scalable(self, fixed):
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
