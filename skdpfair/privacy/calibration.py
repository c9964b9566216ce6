"""The least noise that keeps a budget, and a fast, plain refusal where none does."""

import math
from functools import lru_cache

from skdpfair._validate import integer, listed, number, one_of
from skdpfair.exceptions import InfeasibleBudgetError
from skdpfair.privacy.accounting import (
    ACCOUNTANTS,
    PRV_ERROR,
    SampledGaussian,
    pld_epsilon,
    resolving,
    settled_level,
)
from skdpfair.privacy.accounting import epsilon as spent
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
_LARGEST = 1e10  # a larger target takes no less noise


def calibrate(
    sample_rate: float,
    steps: int,
    epsilon: float,
    delta: float,
    accountant: str = "pld",
    one_time_noise_multipliers: tuple[float, ...] = (),
) -> float:
    """Return the least noise multiplier at which a run costs at most ``epsilon``.

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
        Noise multipliers of releases on all records, each made once besides the run.

    Returns
    -------
    float
        Joint noise multiplier of a step, from ``MIN_NOISE_MULTIPLIER`` (0.1, returned where
        even less noise would do) to ``MAX_NOISE_MULTIPLIER`` (1000).  What it costs, by
        :func:`skdpfair.privacy.epsilon`, is never above the target and at most 0.1 % below.

    Raises
    ------
    InfeasibleBudgetError
        If that takes more noise than ``MAX_NOISE_MULTIPLIER``, or a smaller epsilon than the
        accountant can certify at all.

    Notes
    -----
    A secant from the central limit theorem's value, in the logs of the noise and of the
    ``mu`` that belongs to its cost, kept within the bracket of what is known to be safe and
    unsafe: first at a coarse discretisation, then at one that settles, then verified.

    Examples
    --------
    >>> print(f"{calibrate(1 / 16, 354, epsilon=1.0, delta=1e-6):.2f}")
    5.12
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
    )


@lru_cache(maxsize=1024)
def _calibrate(q, steps, target, delta, accountant, once):
    search = _Search(q, steps, target, delta, once)
    accountant = resolving(accountant, delta, search.runs(1.0))
    _refuse_in_advance(search, accountant)
    if accountant == "pld":
        _approach(search)
    sigma = search.solve(lambda s: spent(search.runs(s), delta, accountant), _MARGIN)
    if sigma is None:
        raise InfeasibleBudgetError(
            f"{search} cannot be certified by the {accountant!r} accountant with a noise "
            f"multiplier up to {MAX_NOISE_MULTIPLIER:g}. {search.remedies(accountant)}"
        )
    return sigma


def _approach(search):
    """Move the search near its end on one discretisation interval, not on all until it settles."""

    def at_level(level):
        return lambda sigma: pld_epsilon(search.runs(sigma), search.delta, level)

    search.solve(at_level(-1), 5 * _MARGIN)
    search.solve(at_level(settled_level(search.runs(search.sigma), search.delta)), _MARGIN)


def _refuse_in_advance(search, accountant):
    if search.mu <= 0:
        raise InfeasibleBudgetError(
            f"{search} is spent by the releases made once alone, whose noise multipliers are "
            f"{search.once!r}. Raise those (group_count_noise_multiplier), or epsilon."
        )
    floor = {"rdp": rdp_floor(search.delta), "prv": 2 * PRV_ERROR}.get(accountant, 0.0)
    if search.target <= floor:
        finer = resolving("pld", search.delta, search.runs(1.0)) == "pld"
        instead = "accountant='pld'" if finer else "a larger delta"
        raise InfeasibleBudgetError(
            f"{search} is below the {floor:.3g} that the {accountant!r} accountant can certify "
            f"at this delta, whatever the noise. Use {instead}, or a larger epsilon."
        )
    needed = clt_noise_multiplier(search.q, search.mu, search.steps)
    if needed > MAX_NOISE_MULTIPLIER:
        raise InfeasibleBudgetError(
            f"{search} needs a noise multiplier of about {needed:.2g}, above the supported "
            f"{MAX_NOISE_MULTIPLIER:g}. {search.remedies(accountant)}"
        )


class _Search:
    """A secant for one run and target, in the logs of noise and of the cost's ``mu``."""

    def __init__(self, q, steps, target, delta, once):
        self.q, self.steps, self.target, self.delta, self.once = (
            q,
            steps,
            target,
            delta,
            once,
        )
        left = gdp_parameter(target, delta) ** 2 - math.fsum(s**-2 for s in once)
        self.mu = math.sqrt(max(left, 0.0))  # what is left for the run
        if self.mu == 0:
            return
        guess = clt_noise_multiplier(q, self.mu, steps)
        self.sigma = min(max(guess, MIN_NOISE_MULTIPLIER), MAX_NOISE_MULTIPLIER)
        # the slope is 1 at high noise; where sampling amplifies a lot at low noise it nears 6
        self.slope = 1.0 if q == 1 else min(1 + self.sigma**-2, 3.0)

    def __str__(self):
        return (
            f"epsilon={self.target:g} at delta={self.delta:g} over steps={self.steps} at "
            f"sample_rate={self.q:.4g}"
        )

    def runs(self, sigma):
        once = (SampledGaussian(1.0, s, 1) for s in self.once)
        return (SampledGaussian(self.q, sigma, self.steps), *once)

    def remedies(self, accountant):
        """Say what would do, each with a tenth to spare for the accountant's own looseness."""
        spare = 1.1 if accountant == "pld" else 1.4
        rate = self.mu * MAX_NOISE_MULTIPLIER / math.sqrt(self.steps) / spare
        steps = math.floor((self.mu * MAX_NOISE_MULTIPLIER / self.q / spare) ** 2)
        mu = spare * clt_parameter(self.q, MAX_NOISE_MULTIPLIER, self.steps)
        options = [f"epsilon >= {_round_up(max(spare * self.target, gdp_epsilon(mu, self.delta)))}"]
        if 1 <= steps < self.steps:
            options.append(f"steps <= {steps}")
        if rate < self.q:
            options.append(f"sample_rate <= {_round_down(rate)}")
        return f"Any one of these would do: {', '.join(options)}; or a larger delta."

    def solve(self, cost, margin):
        """Return the least safe noise multiplier found for ``cost``, or None; stay there."""
        safe, unsafe, last = None, None, None
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

    def _done(self, value, margin):
        if value <= self.target:
            return value >= self.target * (1 - margin) or self.sigma == MIN_NOISE_MULTIPLIER
        return self.sigma == MAX_NOISE_MULTIPLIER

    def _scale(self, value):
        return math.log(gdp_parameter(value, self.delta)) if value < math.inf else math.inf

    def _learn_slope(self, last, point):
        if last is not None and math.isfinite(last[1] - point[1]) and last[0] != point[0]:
            slope = (last[1] - point[1]) / (point[0] - last[0])
            self.slope = min(max(slope, 0.9), 10.0)

    def _next(self, point, aim, unsafe, safe):
        """Return the secant's next point, or the middle where that leaves the bracket."""
        rise = (point[1] - aim) / self.slope if math.isfinite(point[1]) else 1.0
        guess = math.exp(point[0] + rise)
        if unsafe and safe and not unsafe < guess < safe:
            return math.sqrt(unsafe * safe)
        return min(max(guess, MIN_NOISE_MULTIPLIER), MAX_NOISE_MULTIPLIER)


def _round_down(value):
    """Round to two digits towards zero, so that what a message promises holds."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.floor(value / unit) * unit:.2g}"


def _round_up(value):
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / unit) * unit:.2g}"
