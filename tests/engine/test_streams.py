"""Streams of a fit: fresh from the operating system, or of a seed and a digest."""

import copy
import secrets

import torch

from skdpfair.engine import Streams


def first(stream):
    return stream.noise().fill_(torch.empty(8), 1.0).tolist()


def test_streams_differ_where_seed_or_digest_do():
    seeds = [0, 1, 2**31, 2**32, 1 + 2**32, 2**63, 2**127, 2**200]
    made = [Streams.seeded(s, digest=b"d") for s in seeds] + [Streams.seeded(0, digest=b"e")]
    made += [Streams.fresh(), Streams.fresh(), made[0].of_process(1)]
    draws = [tuple(first(s)) for s in made] + [tuple(s.sampling().random(8)) for s in made]
    draws += [tuple(s.releases(what).random(8)) for s in made for what in ("a", "b", "ab")]
    assert len(set(draws)) == len(draws)
    assert first(made[0]) == first(Streams.seeded(0, digest=b"d"))
    assert first(made[0]) != first(copy.deepcopy(made[0]))  # a copy draws anew


def test_fresh_streams_take_entropy_of_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(secrets, "randbits", lambda n: asked.append(n) or 2**n - len(asked))
    streams = Streams.fresh()
    returned = [2**n - i for i, n in enumerate(asked, 1)]
    assert [*streams.entropy, *streams.init_entropy] == returned and min(asked) >= 128


def test_seeded_streams_depend_on_every_byte_of_the_digest():
    digests = [bytes(32)] + [bytes(i) + b"\1" + bytes(31 - i) for i in range(32)]
    assert len({Streams.seeded(0, digest=d).entropy for d in digests}) == 33
