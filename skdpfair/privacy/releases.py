"""A release: the unit of accounting, which plans, ledgers and statements show."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from skdpfair._utils.validate import error_context, flag, integer, listed, number, safe_repr

MAX_RECORDS = 1000  # of a person: a minute of work at most
LARGEST_STEPS = 10**9
# float64 and time end here: a larger rate or less noise costs more, so that bounds stay bounds
_MIN_RATE, _MIN_FACTOR, _MAX_NOISE = 1e-9, 1e-9, 1e6


@dataclass(frozen=True)
class NoisyRelease:
    """``steps`` equal releases, each on its own Poisson sample.

    Parameters
    ----------
    what : str
        Name of the release.
    sample_rate : float
        Probability in (0, 1] that a record takes part; 1 for a release on all records.
    noise_multipliers : tuple of float
        Noise standard deviation over L2 sensitivity, of the gradient and then of each query.  All
        read the SAME sample, so that a step is ONE sampled Gaussian with the joint multiplier.
    steps : int, default=1
        Number of releases, >= 0.
    is_one_time : bool, default=False
        Whether it is made once, on all records, and is no step of the training.
    group_rates : tuple of float or None, default=None
        Sampling rate of each group, at most ``sample_rate``, if the rates differ.
    strata : tuple of (float, float) or None, default=None
        If a step treats records differently: all pairs of a sampling rate, at most ``sample_rate``,
        and a factor in [1e-9, 1] of the sensitivities that a record may meet.  Earlier releases may
        decide which pair a record has: a step is accounted for as the worst.

    Examples
    --------
    >>> release = NoisyRelease("gradient sum", 0.01, (1.0, 10.0), steps=100)
    >>> round(release.joint_noise_multiplier, 4)
    0.995
    >>> NoisyRelease(**vars(release)) == release  # as it is stored
    True
    """

    what: str
    sample_rate: float
    noise_multipliers: tuple[float, ...]
    steps: int = 1
    is_one_time: bool = False
    group_rates: tuple[float, ...] | None = None
    strata: tuple[tuple[float, float], ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.what, str):
            raise TypeError(
                f"what must be the name of a release, a text, got {safe_repr(self.what)}."
            )
        noise = listed("noise_multipliers", self.noise_multipliers, "numbers, such as (1.0,)")
        if not noise:
            raise ValueError("noise_multipliers must hold at least the gradient's, got ().")
        numbers: dict[str, object] = {
            "sample_rate": number("sample_rate", self.sample_rate, low=0, high=1, low_open=True),
            "noise_multipliers": tuple(number("noise_multipliers", s, low=0) for s in noise),
            "steps": integer("steps", self.steps, low=0, high=LARGEST_STEPS),
            "is_one_time": flag("is_one_time", self.is_one_time),
        }
        if self.group_rates is not None:
            rates = listed("group_rates", self.group_rates, "the groups' sampling rates")
            numbers["group_rates"] = tuple(number("group_rates", q, low=0, high=1) for q in rates)
        if self.strata is not None:
            strata = listed("strata", self.strata, "pairs of a sampling rate and a factor")
            numbers["strata"] = tuple(map(self._stratum, strata))
        vars(self).update(numbers)

    def _stratum(self, pair: object) -> tuple[float, float]:
        values = listed("strata", pair, "pairs of a sampling rate and a factor")
        if len(values) != 2:
            raise ValueError(
                f"strata must be pairs of a sampling rate and a factor, got {safe_repr(pair)}."
            )
        rate = number("strata", values[0], low=0, high=1, low_open=True)
        factor = number("strata", values[1], low=_MIN_FACTOR, high=1)
        if rate > self.sample_rate:
            raise ValueError(
                f"strata must have rates of at most sample_rate={self.sample_rate:g}, got {rate:g}."
            )
        return rate, factor

    @property
    def joint_noise_multiplier(self) -> float:
        """Noise multiplier of the joint release of a step."""
        return joint_noise(self.noise_multipliers)


def joint_noise(noise_multipliers: tuple[float, ...]) -> float:
    """Return the noise multiplier of Gaussian releases that read one and the same sample.

    Seen on the sample they are 1/s-GDP each, and compose to ``sqrt(sum s**-2)``-GDP; sampling
    amplifies that once.
    """
    least = min(noise_multipliers)
    if least == 0 or math.isinf(least):
        return float(least)
    # in units of the least, as the squares of numbers beyond 1e154 leave float64
    ratio: float = math.fsum((s / least) ** -2 for s in noise_multipliers) ** -0.5
    return least * ratio


class MergedRelease(NamedTuple):
    """Equal releases as accountants read them, see `merged`.

    ``records`` is the number of records of a person, in which neighbouring data sets differ at
    most; each is sampled on its own.  With ``strata``, rate and noise are those of no stratum, but
    bounds of all.
    """

    sample_rate: float
    noise_multiplier: float
    steps: int
    records: int = 1
    strata: tuple[tuple[float, float], ...] = ()

    @property
    def variants(self) -> tuple["MergedRelease", ...]:
        """It without strata, or one for each: a step costs at most the worst of them."""
        rate_noise = [(max(q, _MIN_RATE), self.noise_multiplier / f) for q, f in self.strata]
        own = (self.sample_rate, self.noise_multiplier)
        return tuple(MergedRelease(*pair, self.steps, self.records) for pair in rate_noise or [own])

    @property
    def lowest_rate(self) -> float:
        """The lowest sampling rate that a record may have."""
        return min(variant.sample_rate for variant in self.variants)


def merged(
    releases: Iterable[NoisyRelease], records_per_person: int = 1
) -> tuple[MergedRelease, ...]:
    """Return releases as accountants read them: sorted, equal steps in one run.

    Releases without information (no steps, infinite noise) are left out.
    """
    # one run whatever their order, which is faster and hits the caches
    total: Counter[tuple[float, float, tuple[tuple[float, float], ...]]] = Counter()
    records = integer("records_per_person", records_per_person, high=MAX_RECORDS)
    for release in all_releases(releases):
        noise = release.joint_noise_multiplier
        if noise < math.inf:
            # records of a person may be in several strata at a time
            strata = (release.strata or ()) if records == 1 else ()
            total[max(release.sample_rate, _MIN_RATE), truncated_noise(noise), strata] += (
                release.steps
            )
    for steps in total.values():
        integer("steps", steps, low=0, high=LARGEST_STEPS)
    runs = (MergedRelease(q, s, n, records, strata) for (q, s, strata), n in total.items() if n)
    return tuple(sorted(runs))


def truncated_noise(noise: float) -> float:
    """Return a noise multiplier as accountants read it: not above, and at most 1e-12 below.

    The joint noise of calibrated releases, which rounding moves, is then the one that was priced.
    """
    mantissa, exponent = math.frexp(min(noise, _MAX_NOISE))
    return math.ldexp(math.floor(mantissa * 2**40), exponent - 40)


def all_releases(releases: Iterable[NoisyRelease]) -> list[NoisyRelease]:
    """Return releases as a list, or raise TypeError if anything else is among them."""
    with error_context("releases", "must be a list of NoisyRelease"):
        releases = list(releases)
    for release in releases:
        if not isinstance(release, NoisyRelease):
            raise TypeError(
                f"releases must be a list of NoisyRelease, got {safe_repr(release)} in it."
            )
    return releases


def merge_consecutive(releases: Iterable[NoisyRelease]) -> tuple[NoisyRelease, ...]:
    """Return releases in order, with equal consecutive ones as one of several steps."""
    runs = (list(run) for _, run in groupby(releases, key=_KIND))
    return tuple(replace(run[0], steps=sum(r.steps for r in run)) for run in runs)


def count_steps(releases: Iterable[NoisyRelease]) -> int:
    """Return the number of steps, including empty batches, but without one-time releases."""
    return sum(release.steps for release in releases if not release.is_one_time)


_KIND = attrgetter(*(f.name for f in fields(NoisyRelease) if f.name != "steps"))
