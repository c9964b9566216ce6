"""Noisy numbers of records by group, class and score: one Gaussian release."""

import numpy as np
from scipy.linalg import toeplitz
from sklearn.isotonic import isotonic_regression

from skdpfair.privacy.one_time_noise import noisy

LARGEST_LOGIT = 8.0
N_BINS = 128
EDGES = np.linspace(-LARGEST_LOGIT, LARGEST_LOGIT, N_BINS + 1)


def score_counts(
    logits, classes, groups, n_groups, noise_multiplier, generator, kind="standard", share=None
):
    """Return noisy numbers of records whose score is at least each edge, by group and class.

    Parameters
    ----------
    logits : ndarray of shape (n_samples,)
        Scores, of a model that is released or public.
    classes : ndarray of shape (n_samples,), int
        0 or 1.
    groups : ndarray of shape (n_samples,), int
        In 0..n_groups-1.
    n_groups : int
        How many there are.
    noise_multiplier : float >= 0
        Standard deviation of the noise over the sensitivity; 0 for public records.
    generator : numpy.random.Generator
        The stream of the noise.
    kind : {"standard", "gaussian_sum"}, default="standard"
        See :func:`skdpfair.privacy.one_time_noise.noisy`.
    share : ndarray of shape (n_samples,), or None
        One over the number of records of each record's person; None if each record is a person.

    Returns
    -------
    ndarray of shape (n_groups, 2, N_BINS + 1), float64
        At least 0, and decreasing along the last axis, whose last entry is 0.

    Notes
    -----
    The numbers are cumulative sums of histograms that `released` makes private. An isotonic
    regression removes increases, which is post-processing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores, classes = np.array([-9.0, 2.0, 3.0]), np.array([0, 1, 1])
    >>> counts = score_counts(scores, classes, np.zeros(3, dtype=int), 1, 0.0, rng)
    >>> counts[0, :, 0], counts[0, :, 80]
    (array([1., 2.]), array([0., 2.]))
    """
    bins = np.searchsorted(EDGES[1:-1], np.nan_to_num(logits), side="right")
    cells = np.ravel_multi_index(
        (np.asarray(groups), np.asarray(classes), N_BINS - 1 - bins), (n_groups, 2, N_BINS)
    )
    histograms = np.bincount(cells, share, minlength=n_groups * 2 * N_BINS).reshape(-1, N_BINS)
    sums = released(histograms, noise_multiplier, generator, kind) @ square_root(N_BINS).T
    from_above = np.array([isotonic_regression(row, y_min=0.0) for row in sums])
    counts = np.zeros((n_groups, 2, N_BINS + 1))
    counts[..., :-1] = from_above.reshape(n_groups, 2, N_BINS)[..., ::-1]
    return counts


def released(histograms, noise_multiplier, generator, kind="standard"):
    """Return R h plus noise for each histogram h, where R R h are its cumulative sums.

    Parameters
    ----------
    histograms : ndarray of shape (n_histograms, N_BINS)
        Each record is in one bin of one histogram; what a person adds to all bins is at most 1.
    noise_multiplier : float >= 0
        Standard deviation of the noise over the sensitivity.
    generator : numpy.random.Generator
        The stream of the noise.
    kind : {"standard", "gaussian_sum"}, default="standard"
        See :func:`skdpfair.privacy.one_time_noise.noisy`.

    Returns
    -------
    ndarray of shape (n_histograms, N_BINS), float64

    Notes
    -----
    R is the square root of the lower triangular matrix of ones [1]_. A record adds one column of R
    to one vector, and a person the mean of her records' columns. The first column is the longest,
    so its norm is the L2 sensitivity of all vectors together: 1.62 for 128 bins. A cumulative sum
    R (R h + noise) has noise of at most 2.6 times ``noise_multiplier``; sums of 128 noisy bins
    have 11 times.

    References
    ----------
    .. [1] H. Fichtenberger, M. Henzinger, J. Upadhyay, "Constant Matters: Fine-grained Error Bound
       on Differentially Private Continual Observation", ICML 2023.

    Examples
    --------
    >>> histogram = np.zeros((1, N_BINS))
    >>> histogram[0, 2] = 5.0
    >>> released(histogram, 0.0, np.random.default_rng(0))[0, :4]
    array([0. , 0. , 5. , 2.5])
    """
    root = square_root(N_BINS)
    sensitivity = float(np.linalg.norm(root[:, 0]))
    return noisy(histograms @ root.T, sensitivity, noise_multiplier, generator, kind)


def square_root(n):
    """Return the lower triangular matrix whose square is the lower triangular matrix of ones.

    Examples
    --------
    >>> root = square_root(3)
    >>> root @ root
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]])
    """
    k = np.arange(1, n)
    return toeplitz(np.cumprod([1.0, *(1 - 0.5 / k)]), np.zeros(n))
