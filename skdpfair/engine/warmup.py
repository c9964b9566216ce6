"""Private search for the scale of the gradients, before the first weight moves."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from skdpfair.engine.batch import Batch
from skdpfair.engine.mechanism import COUNT_NOISE, Mechanism, PerSample, Query
from skdpfair.engine.noise import Noise
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.step import Attack, attacked, measure, noisy_sums

# noise alone must carry Z neither to 0 nor to infinity.  A unit learning rate is 1 / Z^2: within
# these limits it is from 1e-8 to 1e8, whose squares fit float32
Z_MIN, Z_MAX = 1e-4, 1e4


def updated_scale(z: Tensor, exponent: Tensor, lowest: Any = Z_MIN, highest: Any = Z_MAX) -> Tensor:
    """Return z exp(exponent) within limits; the exponent is overwritten."""
    # an exact count of a batch of the expected size gives exponents within (-1, 1), for gains up to
    # 1; a noisy one may be far outside where batches are small
    return exponent.clamp_(-1.0, 1.0).exp_().mul_(z).clamp_(lowest, highest)


@dataclass(frozen=True)
class ScaleSearch:
    r"""Release the noisy count b of norms above Z, and move Z towards a quantile of the norms.

    A step is :math:`Z \leftarrow Z \exp(\kappa (\tilde b / B - \gamma))`, with the share gamma,
    ``target_quantile``, of norms to leave above Z.  Sensitivity 1, noise ``noise_multiplier``; the
    parameters stand still.
    """

    target_quantile: float
    noise_multiplier: float
    gain: float = 0.3  # kappa: Z moves by 35 % at most, so that no step overshoots by much

    @classmethod
    def for_mechanism(cls, mechanism: Mechanism, target_quantile: float) -> "ScaleSearch":
        """Return a search whose count is as noisy as the mechanism's own counts."""
        multipliers = [q.noise_multiplier for q in mechanism.queries]
        noise = min(multipliers) if multipliers else COUNT_NOISE * mechanism.noise_multiplier
        return cls(target_quantile, noise)

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
        sample, finite_mask, _ = measure(model, batch, batch, chunk, 0.0)
        query = Query("above_z", _rows_above, 1.0, self.noise_multiplier)
        count = noisy_sums((query,), sample, finite_mask, z, noise)["above_z"][0]
        return updated_scale(z, self.gain * (count / size - self.target_quantile))


def _rows_above(sample: PerSample, z: Tensor) -> Tensor:
    return (sample.norm > z).to(sample.norm.dtype)[:, None]
