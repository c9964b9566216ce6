"""A cryptographic generator, AES-256 in counter mode: words, uniform and Gaussian numbers."""

import hashlib
import secrets
from typing import Any, NoReturn, Self

import numpy as np

_UPDATE = 2**16  # bytes encrypted at once, which stay in a cache
_ZEROS = memoryview(bytes(_UPDATE))
_COARSE = 2.0**12
_NOTHING = np.empty(0)


class Keystream:
    """Random numbers that cannot be predicted, or distinguished from others, without the seed.

    SHAKE-256 expands the key and the first counter from the seed.  Methods that a generator of
    numpy has, too, take the same arguments.  It cannot be copied, because a copy would draw the
    same numbers.
    """

    def __init__(self, seed: bytes) -> None:
        # takes 10 to 30 ms the first time
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        expanded = hashlib.shake_256(seed).digest(48)
        cipher = Cipher(algorithms.AES(expanded[:32]), modes.CTR(expanded[32:]))
        self._cipher = cipher.encryptor()

    @classmethod
    def fresh(cls) -> Self:
        """Return a generator with 256 bits of the operating system, which nobody can reproduce."""
        return cls(secrets.token_bytes(32))

    @classmethod
    def seeded(cls, *parts: int | str | bytes | tuple[int, ...]) -> Self:
        """Return the generator of a seed, which another value of any part changes."""
        return cls(repr(parts).encode())

    def __reduce__(self) -> NoReturn:
        raise TypeError("A copy of a generator would draw the same numbers again.")

    def fill_(self, out: np.ndarray) -> np.ndarray:
        """Overwrite an array of integers, of one axis, with random bits, and return it."""
        flat = out.view(np.uint8).data
        for start in range(0, len(flat), _UPDATE):
            part = flat[start : start + _UPDATE]
            self._cipher.update_into(_ZEROS[: len(part)], part)
        return out

    def words(self, n: int) -> np.ndarray:
        """Return ``n`` words, uint64."""
        return self.fill_(np.empty(n, np.uint64))

    def integers(self, n: int) -> int:
        """Return an integer from 0 to ``n`` - 1, of any size, all exactly alike."""
        n_bits = (n - 1).bit_length()
        while True:
            drawn = int.from_bytes(self._cipher.update(bytes(-(-n_bits // 8)))) >> -n_bits % 8
            if drawn < n:
                return drawn

    def random(self, n: int | None = None) -> Any:
        """Return ``n`` odd multiples of 2**-53 in (0, 1), float64, or one number."""
        numbers = ((self.words(1 if n is None else n) >> np.uint64(12)) + 0.5) * 2.0**-52
        return float(numbers[0]) if n is None else numbers

    def geometric(self, p: float, n: int) -> np.ndarray:
        """Return ``n`` numbers of trials up to the first success, int64, by inversion.

        A number above 2**62 becomes that.
        """
        u = self.words(n).astype(np.float64)
        u += 0.5
        u *= 2.0**-64  # in (0, 1], finest near 0, where the long gaps are
        np.log(u, out=u)
        with np.errstate(divide="ignore"):  # p is 1
            u /= np.log1p(-p)
        return np.ceil(u, out=u).clip(1.0, 2.0**62, out=u).astype(np.int64)

    def standard_normal(self, shape: int | tuple[int, ...]) -> np.ndarray:
        """Return numbers from N(0, 1), float64."""
        out = np.empty(shape)
        Gaussians(self).fill_all_(out.reshape(-1), np.float64(1.0))
        return out


class Gaussians:
    """Blocks of Gaussian numbers, by Box and Muller from a :class:`Keystream`."""

    N_WORDS = 2**14  # of a block, which stays in a cache

    def __init__(self, source: Keystream) -> None:
        self.source = source
        self._words, self._work = np.empty((2, self.N_WORDS), np.uint64)
        # numbers drawn and not yet handed out, by type
        self._left: dict[np.dtype[Any], np.ndarray] = {}

    def block(self, dtype: np.dtype[Any] | type[np.floating]) -> int:
        """Return how many numbers of a floating type come from one block of words."""
        return self.N_WORDS * 8 // np.dtype(dtype).itemsize

    def fill_all_(self, flat: np.ndarray, scale: np.floating) -> None:
        """Overwrite an array of any length with numbers of standard deviation ``scale``."""
        dtype, n = flat.dtype, len(flat)
        spare = self._left.get(dtype, _NOTHING)
        # small steps draw less than is left, and notice each operation
        if n <= len(spare):
            np.multiply(spare[:n], scale, out=flat)
            self._left[dtype] = spare[n:]
            return
        block, done = self.block(dtype), 0
        while done < n:
            spare, missing = self._left.get(dtype, _NOTHING), flat[done:]
            if len(spare) == 0 and len(missing) >= block:
                self.fill_(missing[:block], scale)
                done += block
                continue
            if len(spare) == 0:
                spare = self.fill_(np.empty(block, dtype), dtype.type(1.0))
            part = spare[: len(missing)]
            np.multiply(part, scale, out=missing[: len(part)])
            self._left[dtype] = spare[len(part) :]
            done += len(part)

    def fill_(self, out: np.ndarray, scale: np.floating) -> np.ndarray:
        """Overwrite a block with numbers of standard deviation ``scale``.

        Each float32 takes 32 random bits, and more beyond radius 5; each float64 takes 64.
        """
        dtype, bits = out.dtype.type, 8 * out.dtype.itemsize
        integers = self.source.fill_(self._words).view(f"i{bits // 8}").reshape(2, -1)
        work = self._work.view(dtype).reshape(2, -1)
        np.copyto(work, integers, casting="unsafe")
        (radius, angle), top = work, 2.0 ** (bits - 1)
        # an integer and its complement become one number, from 0.5
        radius += dtype(0.5)
        np.abs(radius, out=radius)
        # small integers lie too far apart, relatively: new bits make tails continuous
        if radius.min() < _COARSE:
            small = np.flatnonzero(radius < _COARSE)
            radius[small] += self.source.random(len(small)) - 0.5
        np.divide(dtype(top), radius, out=radius)  # 1 / a uniform in (0, 1]
        np.log(radius, out=radius)
        np.sqrt(radius, out=radius)
        radius *= dtype(np.sqrt(2.0)) * scale
        angle *= dtype(np.pi / top)
        pairs = out.reshape(2, -1)
        np.cos(angle, out=pairs[0])
        np.sin(angle, out=pairs[1])
        pairs *= radius
        return out
