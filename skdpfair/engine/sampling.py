"""Exact Poisson sampling of batches, whole epochs at once, at a cost linear in the batch."""

import numpy as np
import torch

from skdpfair._utils.keystream import Keystream


class PoissonSampler:
    """Draw index batches in which each record takes part independently of all others.

    ``rates``, in (0, 1], are one for all records or of shape (n_samples,), in float64: float32
    uniforms are multiples of 2**-24.

    The records of all steps are laid in one row of independent trials, and the gaps between
    successes are geometric: exact, and O(batch).  Records with a lower rate than the largest
    are thinned.  A batch may be empty; it is returned all the same, for its step is still taken.
    """

    def __init__(self, rates: float | np.ndarray, n_samples: int, generator: Keystream) -> None:
        self.n_samples, self.generator = n_samples, generator
        self.rates = None if np.ndim(rates) == 0 else np.asarray(rates, dtype=np.float64)
        self.rate = float(np.max(rates))

    def draw(self, n_steps: int) -> list[torch.Tensor]:
        """Return the sorted indices of the records of each of the next steps."""
        trials = self._successes(self.n_samples * n_steps)
        step, record = np.divmod(trials, self.n_samples)
        if self.rates is not None:
            accepted = self.generator.random(len(record)) * self.rate < self.rates[record]
            step, record = step[accepted], record[accepted]
        sizes = np.bincount(step, minlength=n_steps)
        return list(torch.from_numpy(record).split(sizes.tolist()))

    def _successes(self, n_trials: int) -> np.ndarray:
        if self.rate >= 1.0:
            return np.arange(n_trials)
        pieces, last = [], -1
        while last < n_trials:
            n_left = (n_trials - last) * self.rate
            # six standard deviations above the mean: one round is nearly always enough
            gaps = self.generator.geometric(self.rate, int(n_left + 6 * np.sqrt(n_left)) + 16)
            # a gap longer than the row ends it; cutting it there keeps the sum from overflowing
            positions = last + np.cumsum(np.minimum(gaps, n_trials + 1))
            pieces.append(positions)
            last = int(positions[-1])
        successes = np.concatenate(pieces)
        return successes[successes < n_trials]
