"""The noise of releases that are made once, on all records."""

import hashlib
import warnings

import numpy as np

from skdpfair._validate import integer
from skdpfair.exceptions import InsecureSeedWarning


def generator_of(random_state, data: np.ndarray, settings, stacklevel=3) -> np.random.Generator:
    """Return the generator of one release: from the operating system, or seeded with a warning.

    Parameters
    ----------
    random_state : int >= 0 or None
        None takes fresh entropy.
    data : ndarray
        What is counted. A seed is mixed with a digest of it and of ``settings``, since releases of
        other records must not share their noise: it would cancel in the difference.
    settings : object
        Parameters of the release, told apart by their repr.
    stacklevel : int
        Of the InsecureSeedWarning, as in `warnings.warn`.

    Examples
    --------
    >>> one, two = (generator_of(None, np.zeros(3), "") for _ in range(2))
    >>> bool(one.random() == two.random())
    False
    """
    if random_state is None:
        return np.random.default_rng()
    seed = integer("random_state", random_state, low=0)
    warnings.warn(
        f"random_state={seed} makes the noise reproducible: whoever knows the seed can remove it. "
        "Use random_state=None for what leaves your hands.",
        InsecureSeedWarning,
        stacklevel=stacklevel,
    )
    mixed = hashlib.blake2b(
        data.tobytes() + repr((data.shape, settings)).encode(), digest_size=32
    ).digest()
    return np.random.default_rng([seed, int.from_bytes(mixed, "little")])


def noisy_counts(
    codes, n_codes: int, noise_multiplier: float, generator, kind: str = "standard"
) -> np.ndarray:
    """Return the number of records per code plus Gaussian noise; L2 sensitivity 1.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,), int
        In 0..n_codes-1.
    n_codes : int
        How many there are.
    noise_multiplier : float >= 0
        Standard deviation of the noise.
    generator : numpy.random.Generator
        The stream of the noise.
    kind : {"standard", "secure"}, default="standard"
        "secure" takes half the sum of four Gaussians for each number.

    Returns
    -------
    ndarray of shape (n_codes,), float64

    Examples
    --------
    >>> noisy_counts(np.array([0, 2, 2]), 3, 0.0, np.random.default_rng(0))
    array([1., 0., 2.])
    """
    counts = np.bincount(codes, minlength=n_codes).astype(np.float64)
    return noisy(counts, 1.0, noise_multiplier, generator, kind)


def noisy(
    values: np.ndarray, sensitivity: float, noise_multiplier: float, generator, kind="standard"
) -> np.ndarray:
    """Return an array plus Gaussian noise: one release of all its numbers.

    Parameters
    ----------
    values : ndarray, any shape
        What is to be released.
    sensitivity : float >= 0
        How far one record can move ``values``, in the L2 norm of all numbers together.
    noise_multiplier : float >= 0
        Standard deviation of the noise over ``sensitivity``.
    generator : numpy.random.Generator
        The stream of the noise.
    kind : {"standard", "secure"}, default="standard"
        "secure" takes half the sum of four Gaussians for each number.

    Returns
    -------
    ndarray of the shape of ``values``, float64

    Examples
    --------
    >>> noisy(np.array([[1.0, 2.0]]), 3.0, 0.0, np.random.default_rng(0))
    array([[1., 2.]])
    """
    if kind == "secure":
        noise = generator.standard_normal((4, *values.shape)).sum(0) / 2
    else:
        noise = generator.standard_normal(values.shape)
    return values + sensitivity * noise_multiplier * noise


def noisy_integer_counts(codes, n_codes: int, scale: float, generator) -> np.ndarray:
    """Return the number of records per code plus discrete Laplace noise; L1 sensitivity 1.

    The noise k has a probability proportional to exp(-abs(k) / scale), so that the counts are
    (1 / scale, 0)-differentially private when a record adds 1 to one of them.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,), int
        In 0..n_codes-1.
    n_codes : int
        How many there are.
    scale : float > 0
        1 / epsilon.
    generator : numpy.random.Generator
        The stream of the noise.

    Returns
    -------
    ndarray of shape (n_codes,), float64, of whole numbers

    Examples
    --------
    >>> noisy_integer_counts(np.array([0, 2, 2]), 3, 1e-3, np.random.default_rng(0))
    array([1., 0., 2.])
    """
    counts = np.bincount(codes, minlength=n_codes).astype(np.float64)
    # the difference of two geometric numbers is discrete Laplace
    first, second = generator.geometric(-np.expm1(-1 / scale), (2, n_codes))
    return counts + (first - second)
