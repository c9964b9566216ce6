"""Noise is Gaussian, from a stream that nobody shares."""

import numpy as np
import pytest
import torch
from scipy import stats

from skdpfair.engine import Streams
from skdpfair.engine.noise import is_cryptographic


@pytest.mark.parametrize("kind", ["standard", "gaussian_sum"])
def test_noise_is_gaussian_of_its_scale(kind):
    noise = Streams.seeded(0, digest=b"").noise(kind=kind).fill_(torch.empty(20_000), 2.5)
    noise = noise.double().numpy()
    assert stats.kstest(noise, "norm", args=(0, 2.5)).pvalue > 1e-6
    assert stats.kstest(noise, "norm", args=(0, 3.0)).pvalue < 1e-6
    assert len(np.unique(noise)) > 19_900


def test_noise_is_cryptographic_on_a_cpu_alone(monkeypatch):
    assert is_cryptographic("cpu") and not is_cryptographic("cuda:0")
    monkeypatch.setattr("skdpfair.engine.noise.is_cryptographic", lambda device: False)
    one, other = (Streams.seeded(seed, digest=b"").noise() for seed in (0, 1))
    assert not one.fill_(torch.empty(8), 1.0).equal(other.fill_(torch.empty(8), 1.0))
    assert not one._generator.initial_seed() == other._generator.initial_seed() < 2**63


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_noise_fills_any_shape_and_type_and_never_repeats(dtype):
    noise = Streams.seeded(0, digest=b"").noise()
    drawn = noise.fill_(torch.empty((3, 70_001), dtype=dtype), torch.tensor(2.0)).double()
    assert abs(drawn.std() - 2.0) < 6 * 2.0 / (2 * drawn.numel()) ** 0.5 + 1e-4
    more = noise.fill_(torch.empty(70_001, dtype=dtype), 2.0).double()
    pairs = [*drawn, more]
    correlation = np.corrcoef(torch.stack(pairs).numpy())[np.triu_indices(4, 1)]
    assert np.abs(correlation).max() < 6 / 70_001**0.5


def test_noise_has_the_tails_and_moments_of_the_normal_law():
    n = 4_000_000
    drawn = Streams.seeded(1, digest=b"").noise().fill_(torch.empty(n), 1.0).double().numpy()
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((drawn**power).mean() - mean) < 5.5 * np.sqrt(variance / n)  # 2e-7 in all
    beyond, expected = (np.abs(drawn) > 4.0).sum(), n * 2 * stats.norm.sf(4.0)
    assert 2 * min(stats.poisson(expected).cdf(beyond), stats.poisson(expected).sf(beyond)) > 1e-6
    assert abs((drawn[1:] * drawn[:-1]).mean()) < 5.5 / np.sqrt(n)
    halves = (drawn[: n // 2] ** 2 - 1) * (drawn[n // 2 :] ** 2 - 1)
    assert abs(halves.mean()) < 5.5 * 2 / np.sqrt(n / 2)
