"""Noisy numbers of records by score, class and group: a release, its sensitivity and noise."""

import numpy as np
from scipy.linalg import toeplitz
from sklearn.isotonic import isotonic_regression

from skdpfair.privacy.one_time_noise import noisy

LARGEST_LOGIT = 8.0
N_BINS = 128
EDGES = np.linspace(-LARGEST_LOGIT, LARGEST_LOGIT, N_BINS + 1)


def square_root(n):
    """Return the lower triangular matrix whose square is the lower triangular matrix of ones."""
    k = np.arange(1, n)
    return toeplitz(np.cumprod([1.0, *(1 - 0.5 / k)]), np.zeros(n))


# of the vectors of `noisy_histograms`; noise of a cumulative sum is at most so many times theirs
SENSITIVITY = float(np.linalg.norm(square_root(N_BINS)[:, 0]))


def score_counts(
    logits, classes, groups, n_groups, noise_multiplier, generator, kind="standard", share=None
):
    """Return noisy numbers (n_groups, 2, N_BINS + 1) of records whose score is at least each edge.

    ``logits``, ``classes`` (0 or 1), ``groups`` and ``share`` (one over the number of records of
    each record's person; None if each record is a person) have one entry per record; the scores are
    those of a model that is released or public.  A ``noise_multiplier`` of 0 is for public records.
    The numbers are cumulative sums of histograms that `noisy_histograms` makes private.  An
    isotonic regression removes increases, which is post-processing; the last number is 0.
    """
    bins = np.searchsorted(EDGES[1:-1], np.nan_to_num(logits), side="right")
    cells = np.ravel_multi_index(
        (np.asarray(groups), np.asarray(classes), N_BINS - 1 - bins), (n_groups, 2, N_BINS)
    )
    histograms = np.bincount(cells, share, minlength=n_groups * 2 * N_BINS).reshape(-1, N_BINS)
    sums = noisy_histograms(histograms, noise_multiplier, generator, kind) @ square_root(N_BINS).T
    from_above = np.array([isotonic_regression(row, y_min=0.0) for row in sums])
    counts = np.zeros((n_groups, 2, N_BINS + 1))
    counts[..., :-1] = from_above.reshape(n_groups, 2, N_BINS)[..., ::-1]
    return counts


def noisy_histograms(histograms, noise_multiplier, generator, kind="standard"):
    """Return R h plus noise for each histogram h (N_BINS,), where R R h are its cumulative sums.

    R is the square root of the lower triangular matrix of ones (H. Fichtenberger, M. Henzinger,
    J. Upadhyay, "Constant Matters: Fine-grained Error Bound on Differentially Private Continual
    Observation", ICML 2023).  Each record is in one bin of one histogram: it adds one column of R
    to one vector, and a person the mean of her records' columns.  The first column is the longest,
    so its norm is the L2 sensitivity of all vectors together: 1.62 for 128 bins.  A cumulative sum
    R (R h + noise) has noise of at most 2.6 times ``noise_multiplier``; sums of 128 noisy bins
    have 11 times.

    Examples
    --------
    >>> histogram = np.zeros((1, N_BINS))
    >>> histogram[0, 2] = 5.0
    >>> noisy_histograms(histogram, 0.0, np.random.default_rng(0))[0, :4]
    array([0. , 0. , 5. , 2.5])
    """
    sums = histograms @ square_root(N_BINS).T
    return noisy(sums, SENSITIVITY, noise_multiplier, generator, kind)
