"""Batches are exact Poisson samples; noise is Gaussian, from streams that nobody shares."""

import copy
import pickle
import secrets
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from skdpfair._utils.describe import digest
from skdpfair._utils.keystream import Gaussians, Keystream
from skdpfair.engine import Batch, PoissonSampler, Streams
from skdpfair.engine.noise import is_cryptographic
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
    sampler = PoissonSampler(RATE, N, Keystream(b"0"))
    assert p_values(included(sampler.draw(STEPS)), RATE).min() > ALPHA


def test_rates_by_record():
    rates = np.where(np.arange(N) < 50, 0.12, 0.02)
    sampler = PoissonSampler(rates, N, Keystream(b"1"))
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
    everybody = PoissonSampler(1.0, 7, Keystream(b"0")).draw(3)
    assert all(b.tolist() == list(range(7)) for b in everybody)
    batches = PoissonSampler(1e-9, 7, Keystream(b"0")).draw(5)
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


def test_words_are_those_that_nist_publishes(monkeypatch):
    """SP 800-38A, F.5.5, CTR-AES256.Encrypt: what is encrypted, xor the result."""
    key = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
    counter = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
    expanded = SimpleNamespace(digest=lambda n: bytes.fromhex(key + counter)[:n])
    monkeypatch.setattr("hashlib.shake_256", lambda seed: expanded)
    plain = (
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
    )
    secret = (
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
        "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
    )
    expected = (int(plain, 16) ^ int(secret, 16)).to_bytes(64, "big")
    assert Keystream(b"").words(8).tobytes() == expected
    assert Keystream(b"").integers(2**512) == int.from_bytes(expected, "big")


def test_keys_are_256_bits_that_differ_wherever_their_seeds_do(monkeypatch):
    asked = []
    monkeypatch.setattr(secrets, "token_bytes", lambda n: asked.append(n) or bytes([n, len(asked)]))
    made = [Keystream.fresh(), Keystream.fresh(), Keystream(b""), Keystream(bytes(32))]
    made += [Keystream.seeded(*s) for s in ((1, 23), (12, 3), ("1", 23), ((1, 23),), (1,))]
    assert asked == [32, 32] and len({stream.random() for stream in made}) == len(made)


def test_keystreams_share_nothing_and_continue():
    draws = [Keystream(seed).words(2**15) for seed in (b"seed", b"sees", b"")]
    whole = np.concatenate(draws)
    assert len(np.unique(whole)) == len(whole)  # equal words: 3e-10 by chance
    again = Keystream(b"seed")
    parts = np.concatenate([again.words(n) for n in (1, 3, 0, 9000, 2**15 - 9004)])
    assert (parts == draws[0]).all()


def test_no_copy_draws_the_same_again():
    for held in (Keystream.fresh(), Streams.fresh().noise()):
        for copied in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="same numbers again"):
                copied(held)
    with pytest.raises(TypeError, match="same numbers again"):
        copy.copy(Keystream.fresh())


@pytest.mark.parametrize("p", [1e-7, 0.003, 0.5, 0.99])
def test_gaps_are_geometric(p):
    """False alarms: 1e-6 each, and the seed is fixed."""
    gaps = Keystream(b"seed").geometric(p, 200_000)
    assert gaps.min() >= 1
    between = Keystream(b"other").random(len(gaps))
    below, upto = stats.geom.cdf(gaps - 1, p), stats.geom.cdf(gaps, p)
    assert stats.kstest(below + between * (upto - below), "uniform").pvalue > 1e-6


def test_long_gaps_are_not_cut_and_none_overflows(monkeypatch):
    stream = Keystream(b"seed")
    monkeypatch.setattr(stream, "words", lambda n: np.array([0, 1, 2**64 - 1], np.uint64))
    first, second, last = stream.geometric(0.5, 3)
    assert (first, second, last) == (65, 64, 1)
    assert stream.geometric(1e-300, 3).tolist() == [2**62, 2**62, 1]
    assert stream.geometric(1.0, 3).tolist() == [1, 1, 1]


@pytest.mark.parametrize("n", [1, 2, 3, 10, 255, 256, 257, 2**64 + 1])
def test_integers_are_alike(n):
    """False alarms: 1e-6 each, and the seed is fixed."""
    stream, cells = Keystream(b"seed"), min(n, 10)
    drawn = [stream.integers(n) for _ in range(20_000)]
    assert min(drawn) >= 0 and max(drawn) < n
    ends = [-(-n * k // cells) for k in range(cells + 1)]  # first integer of each cell
    shares = [(b - a) / n for a, b in pairwise(ends)]
    found = np.bincount([d * cells // n for d in drawn], minlength=cells)
    assert cells == 1 or stats.chisquare(found, 20_000 * np.array(shares)).pvalue > 1e-6


def test_uniform_and_gaussian_numbers_follow_their_laws():
    """False alarms: 1e-6 each, and the seed is fixed."""
    stream = Keystream(b"seed")
    uniform, normal = stream.random(200_000), stream.standard_normal((4, 50_000))
    assert uniform.min() > 0 and uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 1e-6
    assert stats.kstest(normal.ravel(), "norm").pvalue > 1e-6


def test_only_a_cpu_has_noise_of_this_generator(monkeypatch):
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
    pairs = [drawn[0], drawn[1], drawn[2], more]
    correlation = np.corrcoef(torch.stack(pairs).numpy())[np.triu_indices(4, 1)]
    assert np.abs(correlation).max() < 6 / 70_001**0.5


def test_the_smallest_integers_give_continuous_tails():
    gaussians = Gaussians(Keystream(b"seed"))
    fill, calls = gaussians.source.fill_, []

    def small_first(out):
        fill(out)
        if not calls:
            out.view(np.int32)[: len(out)] %= 4  # every radius an extreme one
        calls.append(0)
        return out

    gaussians.source.fill_ = small_first
    pairs = gaussians.fill_(np.empty(gaussians.block(np.float32), np.float32), np.float32(1.0))
    radii = np.hypot(*pairs.reshape(2, -1))
    assert len(np.unique(radii)) > 0.9 * len(radii) and radii.min() > 6.2


def test_each_integer_and_its_complement_are_one_radius(monkeypatch):
    """An absolute value would make the smallest, the end of the tail, half as likely."""
    gaussians = Gaussians(Keystream(b"seed"))
    monkeypatch.setattr(gaussians.source, "random", lambda n: np.full(n, 0.5))
    for dtype in (np.float32, np.float64):
        integers = np.array([-2, -1, 0, 1], f"i{dtype().itemsize}")
        words = np.resize(integers, gaussians.block(dtype)).view(np.uint64)
        monkeypatch.setattr(gaussians.source, "fill_", lambda out, words=words: words)
        pairs = gaussians.fill_(np.empty(gaussians.block(dtype), dtype), dtype(1.0))
        outer, inner, same_inner, same_outer = np.hypot(*pairs.reshape(2, -1))[:4]
        assert inner > outer > 6
        assert (inner, outer) == (pytest.approx(same_inner), pytest.approx(same_outer))


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
    sampler = PoissonSampler(0.02, n, Keystream(b"0"))
    draw = sampler.draw
    monkeypatch.setattr(sampler, "draw", lambda steps: drawn.append(steps) or draw(steps))
    codes = torch.zeros(n, dtype=torch.int64)
    data = Batch(torch.zeros(n, 1), codes, codes)
    found = list(batches.PoissonBatches(data, sampler, lambda: 35))
    assert drawn == [10, 10, 10, 5] and len(found) == 35
    counts = np.bincount(np.concatenate(found), minlength=n)
    assert stats.binomtest(int(counts.sum()), 35 * n, 0.02).pvalue > 1e-6
    assert len({tuple(index.tolist()) for index in found}) == 35
