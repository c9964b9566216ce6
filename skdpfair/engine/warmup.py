"""Private search for the scale of the gradients, before the first weight moves."""

from dataclasses import dataclass

import torch
from torch import Tensor

from skdpfair.engine.batch import Batch
from skdpfair.engine.mechanism import COUNT_NOISE, Mechanism, PerSample, Query
from skdpfair.engine.noise import Noise
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.step import Attack, attacked, measure, noisy_sums

# noise alone must carry Z neither to 0 nor to infinity
Z_MIN, Z_MAX = 1e-4, 1e4


@dataclass(frozen=True)
class ScaleSearch:
    r"""Release the noisy count b of norms above Z, and move Z towards a quantile of the norms.

    A step is :math:`Z \leftarrow Z \exp(\kappa (\tilde b / B - \gamma))`, with the target
    ``share`` gamma of the norms above Z.  Sensitivity 1, noise ``noise_multiplier``; the parameters
    stand still.
    """

    share: float
    noise_multiplier: float
    gain: float = 0.3  # kappa: Z moves by 35 % at most, so that no step overshoots by much

    @classmethod
    def for_mechanism(cls, mechanism: Mechanism, share: float) -> "ScaleSearch":
        """Return a search whose count is as noisy as the mechanism's own counts."""
        multipliers = [q.noise_multiplier for q in mechanism.queries]
        noise = min(multipliers) if multipliers else COUNT_NOISE * mechanism.noise_multiplier
        return cls(share, noise)

    def step(
        self,
        model: Strategy,
        batch: Batch,
        z: Tensor,
        size: float,
        noise: Noise,
        chunk: int | None = None,
        attack: Attack | None = None,
    ) -> Tensor:
        """Return the next Z, 0-d, from a Poisson sample of expected size ``size``."""
        batch = attacked(model, batch, attack, chunk)
        sample, finite, _ = measure(model, batch, batch, chunk, 0.0)
        query = Query("above_z", _rows_above, 1.0, self.noise_multiplier)
        count = noisy_sums((query,), sample, finite, z, noise)["above_z"][0]
        # a noisy count may be far outside of [0, size] where batches are small
        exponent = (self.gain * (count / size - self.share)).clamp(-1.0, 1.0)
        return (z * torch.exp(exponent)).clamp(Z_MIN, Z_MAX)


def _rows_above(sample: PerSample, z: Tensor) -> Tensor:
    return (sample.norm > z).to(sample.norm.dtype)[:, None]
