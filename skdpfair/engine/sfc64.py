"""SFC64, the generator of ``numpy.random.SFC64``, many of them advanced by vector operations."""

import hashlib

import numpy as np

_3, _11, _24, _40 = map(np.uint64, (3, 11, 24, 40))


class SFC64:
    """Many SFC64 generators side by side; their words cost a fraction of a scalar generator's.

    Generator by generator the words are those of ``numpy.random.SFC64`` with the same state: the
    words a, b and c of each, (3, n_generators), uint64, and a counter that all share.

    References
    ----------
    Doty-Humphrey, "PractRand", 2014, which SFC64 comes from; numpy publishes test vectors.
    """

    def __init__(self, state: np.ndarray, counter: int = 1) -> None:
        self.state, self.counter = state, counter
        self._words, self.spare = np.empty((2, state.shape[1]), np.uint64)

    @classmethod
    def from_bytes(cls, seed: bytes, n_generators: int) -> "SFC64":
        """Return generators whose 192 bits each SHAKE-256 expands from a seed, and mixed."""
        words = np.frombuffer(hashlib.shake_256(seed).digest(24 * n_generators), np.uint64)
        generators = cls(words.reshape(3, n_generators).copy())
        # as numpy does, until each bit of the state depends on all of the seed
        for _ in range(12):
            generators.words()
        return generators

    def words(self) -> np.ndarray:
        """Return the next word of each generator, uint64; the next call overwrites the array."""
        (a, b, c), out, spare = self.state, self._words, self.spare
        np.add(a, b, out=out)
        np.add(out, np.uint64(self.counter), out=out)
        self.counter = (self.counter + 1) % 2**64
        np.right_shift(b, _11, out=a)
        np.bitwise_xor(a, b, out=a)
        np.left_shift(c, _3, out=b)
        np.add(b, c, out=b)
        np.left_shift(c, _24, out=spare)
        np.right_shift(c, _40, out=c)
        np.bitwise_or(c, spare, out=c)
        np.add(c, out, out=c)
        return out
