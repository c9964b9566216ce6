"""Words of AES-256 in counter mode, and numbers that follow their laws.

False alarms of the statistical tests: 1e-6 each, and the seed is fixed.
"""

import copy
import itertools
import pickle
import secrets
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from skdpfair._utils.keystream import Gaussians, Keystream
from skdpfair.engine import Streams


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


def test_keystream_keys_are_256_bits_that_differ_where_their_seeds_do(monkeypatch):
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


def noise():
    return Streams.fresh().noise()


COPIES = [(copy.copy, Keystream.fresh)]
COPIES += itertools.product([copy.deepcopy, pickle.dumps], [Keystream.fresh, noise])


@pytest.mark.parametrize(("copied", "make"), COPIES)
def test_keystream_and_noise_cannot_be_copied(copied, make):
    with pytest.raises(TypeError, match="same numbers again"):
        copied(make())


@pytest.mark.parametrize("p", [1e-7, 0.003, 0.5, 0.99])
def test_geometric_gaps_follow_their_law(p):
    gaps = Keystream(b"seed").geometric(p, 200_000)
    assert gaps.min() >= 1
    between = Keystream(b"other").random(len(gaps))
    below, upto = stats.geom.cdf(gaps - 1, p), stats.geom.cdf(gaps, p)
    assert stats.kstest(below + between * (upto - below), "uniform").pvalue > 1e-6


def test_geometric_gaps_are_not_cut_and_none_overflows(monkeypatch):
    stream = Keystream(b"seed")
    monkeypatch.setattr(stream, "words", lambda n: np.array([0, 1, 2**64 - 1], np.uint64))
    gaps = [stream.geometric(p, 3).tolist() for p in (0.5, 1e-300, 1.0)]
    assert gaps == [[65, 64, 1], [2**62, 2**62, 1], [1, 1, 1]]


@pytest.mark.parametrize("n", [1, 2, 3, 10, 255, 256, 257, 2**64 + 1])
def test_integers_are_equally_likely(n):
    stream, cells = Keystream(b"seed"), min(n, 10)
    drawn = [stream.integers(n) for _ in range(20_000)]
    assert min(drawn) >= 0 and max(drawn) < n
    ends = [-(-n * k // cells) for k in range(cells + 1)]  # first integer of each cell
    shares = [(b - a) / n for a, b in itertools.pairwise(ends)]
    found = np.bincount([d * cells // n for d in drawn], minlength=cells)
    assert cells == 1 or stats.chisquare(found, 20_000 * np.array(shares)).pvalue > 1e-6


def test_random_and_standard_normal_follow_their_laws():
    stream = Keystream(b"seed")
    uniform, normal = stream.random(200_000), stream.standard_normal((4, 50_000))
    assert uniform.min() > 0 and uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 1e-6
    assert stats.kstest(normal.ravel(), "norm").pvalue > 1e-6


def test_gaussians_have_continuous_tails():
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gaussians_have_one_radius_of_an_integer_and_its_complement(dtype, monkeypatch):
    """An absolute value would make the smallest, the end of the tail, half as likely."""
    gaussians = Gaussians(Keystream(b"seed"))
    integers = np.array([-2, -1, 0, 1], f"i{dtype().itemsize}")
    words = np.resize(integers, gaussians.block(dtype)).view(np.uint64)
    monkeypatch.setattr(gaussians.source, "random", lambda n: np.full(n, 0.5))
    monkeypatch.setattr(gaussians.source, "fill_", lambda out: words)
    pairs = gaussians.fill_(np.empty(gaussians.block(dtype), dtype), dtype(1.0))
    outer, inner, same_inner, same_outer = np.hypot(*pairs.reshape(2, -1))[:4]
    assert inner > outer > 6
    assert (inner, outer) == (pytest.approx(same_inner), pytest.approx(same_outer))
