"""The noise of a step and the streams it is drawn from; never torch's or numpy's global state."""

import hashlib
import secrets
from dataclasses import dataclass

import numpy as np
import torch

_MERSENNE_WORDS = 624
_MERSENNE_OFFSET = 24  # bytes of seed, left, seeded and next before the state words


@dataclass(frozen=True)
class Streams:
    """Independent sources of randomness for one fit.

    Parameters
    ----------
    entropy : tuple of int
        What the streams of sampling and noise are derived from.
    init_entropy : tuple of int
        What the initial weights are derived from.

    Notes
    -----
    Unseeded, all entropy is fresh from the operating system.  Seeded, a digest of data and
    parameters is mixed into sampling and noise, so that fits that differ in either share
    nothing, while the initial weights depend on the seed alone.
    """

    entropy: tuple[int, ...]
    init_entropy: tuple[int, ...]

    @classmethod
    def fresh(cls) -> "Streams":
        """Return streams that nobody can reproduce."""
        return cls((secrets.randbits(256),), (secrets.randbits(256),))

    @classmethod
    def seeded(cls, seed: int, *, digest: bytes) -> "Streams":
        """Return streams that an equal seed and digest reproduce."""
        return cls((seed, int.from_bytes(digest[:32], "little")), (seed,))

    def sampling(self) -> np.random.Generator:
        """Return the generator of the batches."""
        return np.random.Generator(np.random.PCG64DXSM(self._sequence(0)))

    def noise(self, device="cpu", kind="standard") -> "Noise":
        """Return the source of the noise of the steps."""
        return Noise(torch_generator(self._sequence(1), device), kind)

    def init_seed(self) -> int:
        """Return a 63-bit seed for initial weights and dropout."""
        sequence = np.random.SeedSequence(self.init_entropy, pool_size=8, spawn_key=(2,))
        return int(sequence.generate_state(1, np.uint64)[0] >> 1)

    def _sequence(self, key):
        return np.random.SeedSequence(self.entropy, pool_size=8, spawn_key=(key,))


class Noise:
    """Gaussian noise from a generator of its own.

    Parameters
    ----------
    generator : torch.Generator
        The stream; its device is where noise is made.
    kind : {"standard", "secure"}, default="standard"
        "secure" draws each number as half the sum of four float64 Gaussians, which hides the
        gaps that a single floating-point Gaussian leaves (Holohan and Braghin 2021).
    """

    def __init__(self, generator: torch.Generator, kind: str = "standard"):
        self.generator, self.kind = generator, kind

    def fill_(self, out: torch.Tensor, scale) -> torch.Tensor:
        """Overwrite ``out`` with noise of standard deviation ``scale`` (number or 0-d tensor)."""
        if self.kind == "standard":
            return out.normal_(generator=self.generator).mul_(scale)
        four = torch.empty((4, *out.shape), dtype=torch.float64, device=out.device)
        four.normal_(generator=self.generator)
        return out.copy_(four.sum(0).mul_(0.5 * scale))


def torch_generator(sequence: np.random.SeedSequence, device="cpu") -> torch.Generator:
    """Return a generator whose whole state comes from ``sequence``.

    On CPU ``manual_seed`` keeps 32 bits only, so the Mersenne state is filled word by word.

    Examples
    --------
    >>> a, b = (np.random.SeedSequence(s) for s in (1, 1 + 2**32))
    >>> a, b = (torch.rand(2, generator=torch_generator(s)) for s in (a, b))
    >>> bool((a == b).any())
    False
    """
    generator = torch.Generator(device)
    if generator.device.type != "cpu":
        return generator.manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> 1))
    generator.manual_seed(0)
    state = generator.get_state().numpy().copy()
    words = sequence.generate_state(_MERSENNE_WORDS, np.uint32)
    end = _MERSENNE_OFFSET + 8 * _MERSENNE_WORDS
    state[_MERSENNE_OFFSET:end] = words.astype(np.uint64).view(np.uint8)
    generator.set_state(torch.from_numpy(state))
    return generator


def digest(*parts) -> bytes:
    """Return the BLAKE2 digest of arrays (shape, dtype and bytes) and of other values' repr."""
    h = hashlib.blake2b(digest_size=32)
    for part in parts:
        if isinstance(part, np.ndarray):
            h.update(repr((part.shape, part.dtype.str)).encode())
            h.update(np.ascontiguousarray(part).view(np.uint8).reshape(-1).data)
        else:
            h.update(repr(part).encode())
        h.update(b"\0")
    return h.digest()
