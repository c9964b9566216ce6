"""Counts on a dyadic tree, and the quantiles that noisy ones give: numbers only."""

import math

import numpy as np
from sklearn.isotonic import isotonic_regression


def tree_counts(units: np.ndarray, levels: int) -> np.ndarray:
    """Count the values of each column in every node of a dyadic tree over [0, 1].

    Parameters
    ----------
    units : ndarray of shape (n_samples, n_columns)
        In [0, 1]; NaN is counted nowhere.
    levels : int
        Level l = 1..levels cuts [0, 1] into 2^l equal intervals.

    Returns
    -------
    ndarray of shape (n_columns, 2^(levels + 1) - 2), float64
        Level by level from the coarsest.

    Examples
    --------
    >>> tree_counts(np.array([[0.1], [0.6], [0.9], [np.nan]]), levels=2)
    array([[1., 2., 1., 0., 1., 1.]])
    """
    n_columns, n_leaves = units.shape[1], 2**levels
    rows, columns = np.nonzero(~np.isnan(units))
    leaf = np.minimum(units[rows, columns] * n_leaves, n_leaves - 1).astype(np.int64)
    counts = np.bincount(columns * n_leaves + leaf, minlength=n_columns * n_leaves)
    finest = counts.reshape(n_columns, n_leaves).astype(np.float64)
    every = [finest.reshape(n_columns, 2**level, -1).sum(2) for level in range(1, levels + 1)]
    return np.concatenate(every, axis=1)


def tree_sensitivity(n_columns: int, levels: int) -> float:
    """Return how far one record can move :func:`tree_counts`, in the L2 norm.

    Examples
    --------
    >>> tree_sensitivity(6, 10) == 60**0.5
    True
    """
    return math.sqrt(n_columns * levels)


def consistent_leaves(noisy_counts: np.ndarray) -> np.ndarray:
    """Return the least-squares estimate of the finest counts from noisy counts of all levels.

    Parameters
    ----------
    noisy_counts : ndarray of shape (n_columns, 2^(levels + 1) - 2)
        As :func:`tree_counts` lays them out, with noise of one variance.

    Returns
    -------
    ndarray of shape (n_columns, 2^levels), float64
        May be negative.

    Notes
    -----
    The two passes of theorem 3 in Hay et al. (2010): from below, each node's count is averaged
    with the sum of its children's, weighted by their precisions; from above, children share what
    their parent's count differs from their sum.

    Examples
    --------
    >>> consistent_leaves(np.array([[4.0, 2.0, 1.0, 1.0, 1.0, 1.0]])).round(2)
    array([[1.67, 1.67, 1.  , 1.  ]])
    """
    levels = int(math.log2(noisy_counts.shape[1] + 2)) - 1
    parts = np.split(noisy_counts, np.cumsum(2 ** np.arange(1, levels)), axis=1)
    up = [parts[-1]]
    for height, own in enumerate(reversed(parts[:-1]), start=2):
        share = 2 ** (height - 1) / (2**height - 1)
        up.append(share * own + (1 - share) * _pairs(up[-1]).sum(2))
    estimate = up.pop()
    while up:
        children = _pairs(up.pop())
        rest = (estimate - children.sum(2)) / 2
        estimate = (children + rest[:, :, None]).reshape(len(children), -1)
    return estimate


def quantiles_of(leaves: np.ndarray, shares) -> np.ndarray:
    """Return quantiles in [0, 1] from noisy counts of equal intervals.

    Parameters
    ----------
    leaves : ndarray of shape (n_columns, n_leaves)
        Unbiased, of any sign.
    shares : sequence of two floats low < high in [0, 1]
        Which quantiles.

    Returns
    -------
    ndarray of shape (n_columns, 2)
        low < high, at least one interval apart; 0 and 1 where less than one count is left.

    Notes
    -----
    The running sum becomes monotone by isotonic regression, and is inverted by linear
    interpolation: values are taken to spread evenly within an interval.

    Examples
    --------
    >>> quantiles_of(np.array([[5.0, -1.0, 46.0, 40.0, 10.0]]), (0.25, 0.75)).round(2)
    array([[0.49, 0.73]])
    """
    n_leaves = leaves.shape[1]
    edges, out = np.arange(n_leaves + 1) / n_leaves, []
    for counts in leaves:
        below = np.concatenate([[0.0], isotonic_regression(counts.cumsum(), y_min=0.0)])
        wanted = np.asarray(shares) * below[-1]
        out.append(np.interp(wanted, below, edges) if below[-1] >= 1 else (0.0, 1.0))
    low, high = np.array(out).T
    narrow = high - low < 1 / n_leaves
    start = np.clip((low + high - 1 / n_leaves) / 2, 0, 1 - 1 / n_leaves)
    low, high = np.where(narrow, start, low), np.where(narrow, start + 1 / n_leaves, high)
    return np.column_stack([low, high])


def _pairs(counts):
    return counts.reshape(len(counts), -1, 2)
