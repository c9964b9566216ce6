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
