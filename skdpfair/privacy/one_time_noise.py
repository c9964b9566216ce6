"""Noise of releases that are made once, on all records."""

import hashlib
import math
import random
import secrets
import warnings
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from skdpfair._utils.validate import integer
from skdpfair.exceptions import InsecureSeedWarning
from skdpfair.privacy.calibration import calibrated
from skdpfair.privacy.releases import Release


def generator_of(
    random_state: int | None, data: np.ndarray, settings: object, stacklevel: int = 3
) -> np.random.Generator:
    """Return the generator of one release: from the operating system, or seeded with a warning.

    A seed is mixed with a digest of the counted ``data`` and of ``settings``, told apart by their
    repr: releases of other records must not share their noise, which would cancel in the
    difference.  ``stacklevel`` is that of the warning.
    """
    if random_state is None:
        return np.random.default_rng()
    seed = integer("random_state", random_state, low=0)
    warnings.warn(
        f"random_state={seed} makes the noise reproducible: whoever knows the seed can remove it. "
        "Leave it out for a release.",
        InsecureSeedWarning,
        stacklevel=stacklevel,
    )
    mixed = hashlib.blake2b(
        data.tobytes() + repr((data.shape, settings)).encode(), digest_size=32
    ).digest()
    return np.random.default_rng([seed, int.from_bytes(mixed, "little")])


def noisy_counts(
    codes: np.ndarray,
    n_codes: int,
    noise_multiplier: float,
    generator: np.random.Generator,
    kind: str = "standard",
) -> np.ndarray:
    """Return the number of records per code (0..n_codes-1) plus Gaussian noise.

    The L2 sensitivity is 1; the noise has the standard deviation ``noise_multiplier``.
    """
    counts = np.bincount(codes, minlength=n_codes).astype(np.float64)
    return noisy(counts, 1.0, noise_multiplier, generator, kind)


def noisy(
    values: np.ndarray,
    sensitivity: float,
    noise_multiplier: float,
    generator: np.random.Generator,
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


def integer_counts(codes: np.ndarray, n_codes: int, draw: Callable[[], int]) -> np.ndarray:
    """Return the number of records per code plus integer noise; L1 and L2 sensitivity 1.

    ``draw`` returns the noise of one count: :func:`discrete_laplace` or :func:`discrete_gaussian`.
    """
    counts = np.bincount(codes, minlength=n_codes)
    return np.array([int(count) + draw() for count in counts], dtype=np.float64)


def below_of(generator: np.random.Generator | None) -> Callable[[int], int]:
    """Return a function that draws an integer from 0 to n-1, all exactly alike.

    Without a generator, each bit comes from the operating system.
    """
    if generator is None:
        return secrets.randbelow
    return random.Random(int.from_bytes(generator.bytes(32), "little")).randrange


def discrete_laplace(epsilon: Fraction, below: Callable[[int], int]) -> int:
    """Draw an integer k with a probability proportional to exp(-epsilon abs(k)), exactly.

    ``below`` is that of :func:`below_of`.  Algorithm 2 of [canonne2020]_ computes with integers
    only, so that every integer can be drawn; a float is a fraction and needs no rounding.

    References
    ----------
    .. [canonne2020] C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential
       Privacy", NeurIPS 2020.
    """
    s, t = epsilon.as_integer_ratio()
    while True:
        rest = below(t)
        if not _exp_bernoulli(rest, t, below):
            continue
        whole = 0
        while _exp_bernoulli(1, 1, below):
            whole += 1
        size, is_negative = (rest + t * whole) // s, below(2)
        if size or not is_negative:
            return -size if is_negative else size


def discrete_gaussian(sigma: Fraction, below: Callable[[int], int]) -> int:
    """Draw an integer k with a probability proportional to exp(-k^2 / (2 sigma^2)), exactly.

    Algorithm 3 of [canonne2020]_; parameters and reference as in :func:`discrete_laplace`.
    """
    t = math.floor(sigma) + 1
    while True:
        drawn = discrete_laplace(Fraction(1, t), below)
        cost = (abs(drawn) - sigma**2 / t) ** 2 / (2 * sigma**2)
        whole, rest = divmod(cost.numerator, cost.denominator)
        if all(_exp_bernoulli(1, 1, below) for _ in range(whole)) and _exp_bernoulli(
            rest, cost.denominator, below
        ):
            return drawn


def _exp_bernoulli(n: int, d: int, below: Callable[[int], int]) -> bool:
    """Draw True with probability exp(-n/d), n/d in [0, 1]."""
    k = 1
    while below(d * k) < n:
        k += 1
    return k % 2 == 1


def discrete_gaussian_noise(epsilon: float, delta: float) -> float:
    """Return a sigma at which one :func:`discrete_gaussian` added to a count is private.

    Its delta is a sum over the integers, Theorem 7 of [canonne2020]_, which may exceed that of
    the continuous Gaussian of the same sigma.
    """
    (count,) = calibrated([Release("count", 1.0, (1.0,))], epsilon, delta)
    sigma = count.joint_noise_multiplier
    while _discrete_delta(sigma, epsilon) > delta * (1 - 1e-6):  # the sum is rounded
        sigma *= 1 + 1e-3
    return sigma


def _discrete_delta(sigma: float, epsilon: float) -> float:
    first = math.floor(epsilon * sigma**2 - 0.5)  # terms that rounding lets in are not positive
    k, width = np.arange(first, first + 40 * sigma + 40), math.ceil(40 * sigma)
    mass = np.exp(-(np.arange(-width, width + 1) ** 2) / (2 * sigma**2)).sum()
    gain = -np.expm1(epsilon - (2 * k + 1) / (2 * sigma**2))
    return float((np.exp(-(k**2) / (2 * sigma**2)) * np.maximum(gain, 0)).sum() / mass)
