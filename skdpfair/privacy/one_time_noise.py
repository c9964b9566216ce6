"""Noise of releases that are made once, on all records."""

import warnings
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from skdpfair._utils.keystream import Keystream
from skdpfair._utils.validate import integer
from skdpfair.exceptions import InsecureSeedWarning


def generator_of(
    random_state: int | None, data: np.ndarray, settings: object, stacklevel: int = 3
) -> Keystream:
    """Return the generator of one release: from the operating system, or seeded with a warning.

    A seed is mixed with a digest of the counted ``data`` and of a description of ``settings``:
    releases of other records must not share their noise, which would cancel in the difference.
    ``stacklevel`` is that of the warning.
    """
    if random_state is None:
        return Keystream.fresh()
    seed = integer("random_state", random_state, low=0)
    warnings.warn(
        f"random_state={seed} makes the noise reproducible: whoever knows the seed can remove it. "
        "Leave it out for a release.",
        InsecureSeedWarning,
        stacklevel=stacklevel,
    )
    # which takes as long to import as torch
    from skdpfair._utils.describe import describe, digest

    return Keystream.seeded("release", seed, digest(data, describe(settings)))


def noisy(
    values: np.ndarray,
    sensitivity: float,
    noise_multiplier: float,
    generator: Keystream,
    kind: str = "standard",
) -> np.ndarray:
    """Return an array plus Gaussian noise: one release of all its numbers.

    ``sensitivity`` is how far one record can move ``values``, in the L2 norm of all numbers
    together; the noise has ``noise_multiplier`` times this as its standard deviation.  The kind
    "gaussian_sum" takes half the sum of four Gaussians for each number.
    """
    noise: np.ndarray
    if kind == "gaussian_sum":
        noise = generator.standard_normal((4, *values.shape)).sum(0) / 2
    else:
        noise = generator.standard_normal(values.shape)
    return values + sensitivity * noise_multiplier * noise


def discrete_laplace(epsilon: Fraction, below: Callable[[int], int]) -> int:
    """Draw an integer k with a probability proportional to exp(-epsilon abs(k)), exactly.

    ``below(n)`` draws an integer from 0 to n-1, all exactly alike, as :meth:`Keystream.integers`.
    Algorithm 2 of [canonne2020]_ computes with integers only, so that every integer can be drawn;
    a float is a fraction and needs no rounding.

    References
    ----------
    .. [canonne2020] C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential
       Privacy", NeurIPS 2020.
    """
    s, t = epsilon.as_integer_ratio()
    while True:
        remainder = below(t)
        if not _exp_bernoulli(remainder, t, below):
            continue
        quotient = 0
        while _exp_bernoulli(1, 1, below):
            quotient += 1
        size, is_negative = (remainder + t * quotient) // s, below(2)
        if size or not is_negative:
            return -size if is_negative else size


def _exp_bernoulli(n: int, d: int, below: Callable[[int], int]) -> bool:
    """Draw True with probability exp(-n/d), n/d in [0, 1]."""
    k = 1
    while below(d * k) < n:
        k += 1
    return k % 2 == 1
