"""Batches are exact Poisson samples; noise is Gaussian, from streams that nobody shares."""

import copy
import secrets

import numpy as np
import pytest
import torch
from scipy import stats

from skdpfair._utils.describe import digest
from skdpfair.engine import Batch, PoissonSampler, Streams
from skdpfair.engine.noise import Gaussians
from skdpfair.engine.sfc64 import SFC64
from skdpfair.training import batches

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


def test_poisson_sampling_is_exact():
    sampler = PoissonSampler(RATE, N, np.random.default_rng(0))
    assert p_values(included(sampler.draw(STEPS)), RATE).min() > ALPHA


def test_rates_by_record():
    rates = np.where(np.arange(N) < 50, 0.12, 0.02)
    sampler = PoissonSampler(rates, N, np.random.default_rng(1))
    matrix = included(sampler.draw(STEPS))
    for part, rate in ((matrix[:, :50], 0.12), (matrix[:, 50:], 0.02)):
        assert p_values(part, rate).min() > ALPHA


def test_the_tests_flag_shuffling_and_fixed_sizes():
    rng = np.random.default_rng(2)
    size = int(N * RATE)
    fixed = [rng.choice(N, size, replace=False) for _ in range(STEPS)]
    shuffled = []
    while len(shuffled) < STEPS:
        shuffled += list(rng.permutation(N).reshape(-1, size))
    for draw in (fixed, shuffled[:STEPS]):
        assert p_values(included(draw), RATE).min() < ALPHA


def test_rate_one_takes_everybody_and_tiny_rates_give_empty_batches():
    everybody = PoissonSampler(1.0, 7, np.random.default_rng(0)).draw(3)
    assert all(b.tolist() == list(range(7)) for b in everybody)
    batches = PoissonSampler(1e-9, 7, np.random.default_rng(0)).draw(5)
    assert [len(b) for b in batches] == [0] * 5


@pytest.mark.parametrize("kind", ["standard", "gaussian_sum"])
def test_noise_is_gaussian(kind):
    noise = Streams.seeded(0, digest=b"").noise(kind=kind).fill_(torch.empty(20_000), 2.5)
    noise = noise.double().numpy()
    assert stats.kstest(noise, "norm", args=(0, 2.5)).pvalue > 1e-6
    assert stats.kstest(noise, "norm", args=(0, 3.0)).pvalue < 1e-6
    assert len(np.unique(noise)) > 19_900


def first(stream):
    return stream.noise().fill_(torch.empty(8), 1.0).tolist()


def test_streams_differ_wherever_their_seed_does():
    seeds = [0, 1, 2**31, 2**32, 1 + 2**32, 2**63, 2**127, 2**200]
    made = [Streams.seeded(s, digest=b"d") for s in seeds] + [Streams.seeded(0, digest=b"e")]
    made += [Streams.fresh(), Streams.fresh()]
    draws = [tuple(first(s)) for s in made] + [tuple(s.sampling().random(8)) for s in made]
    draws += [tuple(s.releases(what).random(8)) for s in made for what in ("a", "b", "ab")]
    assert len(set(draws)) == len(draws)
    assert first(made[0]) == first(Streams.seeded(0, digest=b"d"))
    assert first(made[0]) != first(copy.deepcopy(made[0]))  # a copy draws anew


def test_unseeded_streams_come_from_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(secrets, "randbits", lambda n: asked.append(n) or 2**n - len(asked))
    streams = Streams.fresh()
    given = [2**n - i for i, n in enumerate(asked, 1)]
    assert [*streams.entropy, *streams.init_entropy] == given and min(asked) >= 128


def test_every_byte_of_the_digest_counts():
    digests = [bytes(32)] + [bytes(i) + b"\1" + bytes(31 - i) for i in range(32)]
    assert len({Streams.seeded(0, digest=d).entropy for d in digests}) == 33


def test_words_are_those_that_numpy_publishes():
    """numpy/random/tests/data/sfc64-testset-1.csv."""
    state = np.random.SFC64(0xDEADBEAF).state["state"]["state"]
    ours = SFC64(state[:3, None].copy(), int(state[3]))
    words = [int(ours.words()[0]) for _ in range(3)]
    assert words == [0xA475F55FBB6BC638, 0xB2D594B6C29D971C, 0x275BC4ECE4484FB1]


def test_every_generator_is_numpys():
    many = SFC64.from_bytes(b"seed", 1000)
    for i in (0, 1, 999):
        one = np.random.SFC64()
        state = [*many.state[:, i].tolist(), many.counter]
        one.state = one.state | {"state": {"state": np.array(state, dtype=np.uint64)}}
        ours = copy.deepcopy(many)
        assert one.random_raw(5).tolist() == [int(ours.words()[i]) for _ in range(5)]


def test_generators_share_nothing():
    many = SFC64.from_bytes(b"seed", 2**15)
    draws = np.stack([many.words().copy() for _ in range(8)])
    assert len(np.unique(draws)) == draws.size  # equal words: 2e-9 by chance
    assert not np.isin(draws, SFC64.from_bytes(b"sees", 2**15).words()).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_noise_fills_any_shape_and_type_and_never_repeats(dtype):
    noise = Streams.seeded(0, digest=b"").noise()
    drawn = noise.fill_(torch.empty((3, 70_001), dtype=dtype), torch.tensor(2.0)).double()
    assert abs(drawn.std() - 2.0) < 6 * 2.0 / (2 * drawn.numel()) ** 0.5 + 1e-4
    more = noise.fill_(torch.empty(70_001, dtype=dtype), 2.0).double()
    pairs = [drawn[0], drawn[1], drawn[2], more]
    correlation = np.corrcoef(torch.stack(pairs).numpy())[np.triu_indices(4, 1)]
    assert np.abs(correlation).max() < 6 / 70_001**0.5


def test_the_smallest_integers_give_continuous_tails():
    gaussians = Gaussians(b"seed")
    words = gaussians.source.words
    calls = []

    def small_first():
        out = words()
        if not calls:
            out.view(np.int32)[: len(out)] %= 4  # every radius an extreme one
        calls.append(0)
        return out

    gaussians.source.words = small_first
    pairs = gaussians.fill_(np.empty(gaussians.block(np.float32), np.float32), np.float32(1.0))
    radii = np.hypot(*pairs.reshape(2, -1))
    assert len(np.unique(radii)) > 0.9 * len(radii) and radii.min() > 6.2


def test_tails_and_moments_of_the_noise():
    n = 4_000_000
    drawn = Streams.seeded(1, digest=b"").noise().fill_(torch.empty(n), 1.0).double().numpy()
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((drawn**power).mean() - mean) < 5.5 * np.sqrt(variance / n)  # 2e-7 in all
    beyond, expected = (np.abs(drawn) > 4.0).sum(), n * 2 * stats.norm.sf(4.0)
    assert 2 * min(stats.poisson(expected).cdf(beyond), stats.poisson(expected).sf(beyond)) > 1e-6
    neighbours = (drawn[1:] * drawn[:-1]).mean()
    assert abs(neighbours) < 5.5 / np.sqrt(n)
    halves = (drawn[: n // 2] ** 2 - 1) * (drawn[n // 2 :] ** 2 - 1)
    assert abs(halves.mean()) < 5.5 * 2 / np.sqrt(n / 2)


def test_the_digest_sees_every_change():
    x = np.arange(6.0)
    parts = [(x,), (x + 1e-12,), (x.reshape(2, 3),), (x.astype(np.float32),), (x, "a"), (x, "b")]
    assert len({digest(*p) for p in parts}) == len(parts)


def test_an_epoch_is_drawn_some_steps_at_a_time(monkeypatch):
    """Positions in memory do not grow with the records; each step has its own sample."""
    monkeypatch.setattr(batches, "_DRAWN", 1000)
    n, drawn = 5000, []
    sampler = PoissonSampler(0.02, n, np.random.default_rng(0))
    draw = sampler.draw
    monkeypatch.setattr(sampler, "draw", lambda steps: drawn.append(steps) or draw(steps))
    codes = torch.zeros(n, dtype=torch.int64)
    data = Batch(torch.zeros(n, 1), codes, codes)
    found = list(batches.PoissonBatches(data, sampler, lambda: 35))
    assert drawn == [10, 10, 10, 5] and len(found) == 35
    counts = np.bincount(np.concatenate(found), minlength=n)
    assert stats.binomtest(int(counts.sum()), 35 * n, 0.02).pvalue > 1e-6
    assert len({tuple(index.tolist()) for index in found}) == 35
