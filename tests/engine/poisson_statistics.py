"""Statistics of batches that are Poisson samples, and of those that are not."""

import math

import numpy as np
from scipy import stats


def sampling_p_values(included, rates):
    """Return two-sided p-values of batches (n_steps, n_samples) against Poisson sampling.

    Of the number of records in all, the spread of the batch sizes, the spread of the records'
    counts, a record's presence in two batches in a row, and that of two records in one batch.
    """
    q = np.broadcast_to(rates, included.shape)

    def of_count(found, p):
        z = (found.sum() - p.sum()) / math.sqrt((p * (1 - p)).sum())
        return float(2 * stats.norm.sf(abs(z)))

    def of_spread(counts, mean, variance):
        value = float(((counts - mean) ** 2 / variance).sum())
        return float(2 * min(stats.chi2.cdf(value, len(counts)), stats.chi2.sf(value, len(counts))))

    variance = q * (1 - q)
    return {
        "records": of_count(included, q),
        "batch sizes": of_spread(included.sum(1), q.sum(1), variance.sum(1)),
        "each record": of_spread(included.sum(0), q.sum(0), variance.sum(0)),
        "twice in a row": of_count(included[1:] & included[:-1], q[1:] * q[:-1]),
        "in pairs": of_count(included[:, ::2] & included[:, 1::2], q[:, ::2] * q[:, 1::2]),
    }
