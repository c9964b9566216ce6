"""The noise of releases that are made once, on all records."""

import numpy as np


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
    if kind == "secure":
        noise = generator.standard_normal((4, n_codes)).sum(0) / 2
    else:
        noise = generator.standard_normal(n_codes)
    return counts + noise_multiplier * noise


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
