"""Random streams of a fit: batches, noise, one-time releases and initial weights."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import torch

from skdpfair._utils.keystream import Keystream
from skdpfair.engine.noise import Noise


@dataclass(frozen=True)
class Streams:
    """Independent sources of randomness for one fit: ``init_entropy`` is that of the weights.

    Unseeded, all entropy is fresh from the operating system: 256 bits for sampling and noise.
    Copies and pickles hold none of it and draw anew.  Seeded, a digest of data and
    parameters is mixed into sampling and noise, so that fits that differ in either share
    nothing, while the initial weights depend on the seed alone.
    """

    entropy: tuple[int, ...]
    init_entropy: tuple[int, ...]

    @classmethod
    def fresh(cls) -> Streams:
        """Return streams that nobody can reproduce."""
        return cls((secrets.randbits(256),), (secrets.randbits(256),))

    @classmethod
    def seeded(cls, seed: int, *, digest: bytes) -> Streams:
        """Return streams that an equal seed and digest (its first 32 bytes) reproduce."""
        return cls((seed, int.from_bytes(digest[:32], "little")), (seed,))

    def of_process(self, rank: int) -> Streams:
        """Return streams whose batches and noise are not those of other processes of one fit."""
        return Streams((*self.entropy, rank), self.init_entropy) if rank else self

    def __repr__(self) -> str:
        # logs must not hold the entropy
        return "Streams(...)"

    def __reduce__(self) -> tuple[Callable[[], Streams], tuple[()]]:
        return Streams.fresh, ()  # a copy must not draw what the original draws

    def sampling(self) -> Keystream:
        """Return the generator of the batches, at the beginning of its stream."""
        return self._stream("batches")

    def noise(self, device: str | torch.device = "cpu", kind: str = "standard") -> Noise:
        """Return the source of the noise of the steps, at the beginning of its stream."""
        return Noise(self._stream("steps"), device, kind)

    def releases(self, what: str) -> Keystream:
        """Return the generator of a one-time release, each of which has noise of its own."""
        return self._stream("release", what)

    def thinning(self) -> Keystream:
        """Return the generator that draws which records of a person take part."""
        return self._stream("persons")

    def init_seed(self) -> int:
        """Return a seed of 63 bits for initial weights and dropout."""
        return Keystream.seeded("weights", self.init_entropy).integers(2**63)

    def _stream(self, *use: str) -> Keystream:
        return Keystream.seeded(*use, self.entropy)
