"""Batches are exact Poisson samples."""

import numpy as np
from scipy import stats

from skdpfair._utils.keystream import Keystream
from skdpfair.engine import PoissonSampler

ALPHA = 1e-6 / 8  # Bonferroni over the statistics of one sampler
N, STEPS, RATE = 300, 4000, 0.04


def included(draw):
    """Return the inclusion matrix (steps, records)."""
    matrix = np.zeros((STEPS, N), dtype=bool)
    for row, batch in zip(matrix, draw, strict=True):
        row[np.asarray(batch)] = True
    return matrix


def p_values(matrix, rate):
    """Two-sided tests of rate, batch sizes, records, lag-1 and pair co-inclusion."""
    steps, n = matrix.shape
    z = [(matrix.sum() - matrix.size * rate) / np.sqrt(matrix.size * rate * (1 - rate))]
    sizes = matrix.sum(1)
    spread = ((sizes - n * rate) ** 2).sum() / (n * rate * (1 - rate))
    per_record = ((matrix.sum(0) - steps * rate) ** 2).sum() / (steps * rate * (1 - rate))
    twice, together = (matrix[1:] & matrix[:-1]), (matrix[:, ::2] & matrix[:, 1::2])
    for both in (twice, together):
        z.append((both.sum() - both.size * rate**2) / np.sqrt(both.size * rate**2 * (1 - rate**2)))
    out = [2 * stats.norm.sf(abs(v)) for v in z]
    for value, freedom in ((spread, steps), (per_record, n)):
        out.append(2 * min(stats.chi2.cdf(value, freedom), stats.chi2.sf(value, freedom)))
    return np.array(out)


def test_poisson_sampler_draws_exact_samples():
    sampler = PoissonSampler(RATE, N, Keystream(b"0"))
    assert p_values(included(sampler.draw(STEPS)), RATE).min() > ALPHA


def test_poisson_sampler_draws_each_record_at_its_rate():
    rates = np.where(np.arange(N) < 50, 0.12, 0.02)
    matrix = included(PoissonSampler(rates, N, Keystream(b"1")).draw(STEPS))
    for part, rate in ((matrix[:, :50], 0.12), (matrix[:, 50:], 0.02)):
        assert p_values(part, rate).min() > ALPHA


def test_p_values_reject_shuffling_and_fixed_sizes():
    rng = np.random.default_rng(2)
    size = int(N * RATE)
    fixed = [rng.choice(N, size, replace=False) for _ in range(STEPS)]
    shuffled = []
    while len(shuffled) < STEPS:
        shuffled += list(rng.permutation(N).reshape(-1, size))
    for draw in (fixed, shuffled[:STEPS]):
        assert p_values(included(draw), RATE).min() < ALPHA


def test_poisson_sampler_at_rates_one_and_near_zero():
    draws = {rate: PoissonSampler(rate, 7, Keystream(b"0")).draw(3) for rate in (1.0, 1e-9)}
    assert [b.tolist() for b in draws[1.0]] == [list(range(7))] * 3
    assert [len(b) for b in draws[1e-9]] == [0] * 3
