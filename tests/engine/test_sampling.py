"""Batches are exact Poisson samples."""

import numpy as np

from skdpfair._utils.keystream import Keystream
from skdpfair.engine import PoissonSampler

from .poisson_statistics import sampling_p_values

ALPHA = 1e-6 / 8  # Bonferroni over the statistics of one sampler
N, STEPS, RATE = 300, 4000, 0.04


def included(draw):
    """Return the inclusion matrix (steps, records)."""
    matrix = np.zeros((STEPS, N), dtype=bool)
    for row, batch in zip(matrix, draw, strict=True):
        row[np.asarray(batch)] = True
    return matrix


def test_poisson_sampler_draws_exact_samples():
    sampler = PoissonSampler(RATE, N, Keystream(b"0"))
    assert min(sampling_p_values(included(sampler.draw(STEPS)), RATE).values()) > ALPHA


def test_poisson_sampler_draws_each_record_at_its_rate():
    rates = np.where(np.arange(N) < 50, 0.12, 0.02)
    matrix = included(PoissonSampler(rates, N, Keystream(b"1")).draw(STEPS))
    assert min(sampling_p_values(matrix, rates).values()) > ALPHA


def test_poisson_sampler_at_rates_one_and_near_zero():
    draws = {rate: PoissonSampler(rate, 7, Keystream(b"0")).draw(3) for rate in (1.0, 1e-9)}
    assert [b.tolist() for b in draws[1.0]] == [list(range(7))] * 3
    assert [len(b) for b in draws[1e-9]] == [0] * 3


def test_sampling_p_values_reject_fixed_and_shuffled_batches():
    rng = np.random.default_rng(0)
    assert min(sampling_p_values(rng.random((500, 40)) < 0.1, 0.1).values()) > ALPHA
    fixed = rng.permuted(np.tile(np.arange(40) < 4, (500, 1)), axis=1)
    epoch = np.eye(10, dtype=bool).repeat(4, 1)
    shuffled = np.concatenate([rng.permuted(epoch, axis=0) for _ in range(50)])
    for batches in (fixed, shuffled):
        assert min(sampling_p_values(batches, 0.1).values()) < ALPHA
