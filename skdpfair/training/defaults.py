"""What "auto" means: public facts in, settings out.  It never sees a record.

The rule was chosen on about 7,000 fits and is explained in ``docs/defaults.md``.
"""

import math
from dataclasses import dataclass

from skdpfair.privacy import gdp_parameter

LOGISTIC_BELOW = 1e4  # signal under which a hidden layer does not pay
ENOUGH_MU = 8.0  # a budget so large, or none, that noise no longer matters
BRISK_FROM = 4000.0  # signal from which a logistic model takes larger steps
LOW_SIGNAL = 500.0  # signal under which accuracy suffers by several points
SHARE = 0.1  # of the gradients shall be longer than the threshold
NO_SIGNAL = 50.0  # signal under which a model learns next to nothing
MAX_RATE = 0.7  # sampling rates above it are rounded to 1


@dataclass(frozen=True)
class Settings:
    """How to train, resolved from public facts.

    Parameters
    ----------
    signal : float
        n times mu: how many records outweigh the whole privacy noise.
    module : str
        "logistic" or "mlp" where the user left "auto".
    steps_per_epoch : int
        ceil(n / batch size); the sampling rate is its inverse.
    n_steps : int
        Steps on the data, warm-up included.
    warm_up : int
        First steps that release the gradient scale only.
    unit : float
        Learning rate in units where a stable plain step is about 8.
    headroom : float
        Growth of gradient norms to expect from the initial weights.
    """

    signal: float
    module: object
    steps_per_epoch: int
    n_steps: int
    warm_up: int
    unit: float
    headroom: float

    @property
    def sample_rate(self) -> float:
        """Probability with which a record enters a batch."""
        return 1.0 / self.steps_per_epoch


def resolve(
    *,
    n_samples,
    epsilon,
    delta,
    noise_multiplier=None,
    module="auto",
    batch_size="auto",
    max_epochs="auto",
    max_steps=None,
    searches_scale=True,
) -> Settings:
    """Fill what the user left at "auto".

    Parameters
    ----------
    n_samples : int
        Number of records; public.
    epsilon, delta : float or None
        The target; ``epsilon=None`` when there is none.
    noise_multiplier : float or None
        Fixes the noise instead of epsilon; None or 0 for no noise.
    module, batch_size, max_epochs, max_steps
        As given to the estimator.
    searches_scale : bool
        Whether the gradient scale must be found in a warm-up.

    Examples
    --------
    >>> s = resolve(n_samples=32561, epsilon=1.0, delta=1e-6)
    >>> round(s.signal), s.module, s.steps_per_epoch, s.n_steps - s.warm_up, s.warm_up
    (7707, 'logistic', 18, 433, 22)
    """
    mu = _privacy_parameter(n_samples, epsilon, delta, noise_multiplier, batch_size)
    # without noise it is the number of records that limits what can be learnt
    reach = n_samples * min(mu, ENOUGH_MU)
    if module == "auto":
        module = "logistic" if reach < LOGISTIC_BELOW else "mlp"
    learning = (0.9 if module == "logistic" else 1.4) * reach
    steps = math.floor(_clip(learning / 16, 100, 600))
    # with many records a logistic model gains from larger steps, with few the noise does
    brisk = 1.5 if module == "logistic" and reach >= BRISK_FROM else 1.0
    per_epoch = _steps_per_epoch(n_samples, mu, steps, batch_size)
    warm_up = max(10, round(steps / 20)) if searches_scale else 0
    total = steps + warm_up
    if max_steps is not None or max_epochs != "auto":
        # a number the user gave counts every step on the data, the warm-up among them
        total = max_steps if max_steps is not None else max_epochs * per_epoch
        warm_up = min(max(10, round(total / 20)), total // 4) if searches_scale else 0
    return Settings(
        signal=n_samples * mu,
        module=module,
        steps_per_epoch=per_epoch,
        n_steps=total,
        warm_up=warm_up,
        unit=min(brisk * learning / max(total - warm_up, 1), 64.0),
        headroom=1.0 if module == "logistic" else 4.0,
    )


def _steps_per_epoch(n_samples, mu, steps, batch_size):
    if batch_size != "auto":
        return math.ceil(n_samples / batch_size)
    # a noise multiplier of 5 or more wastes least of the budget
    batch = _clip(5 * mu * n_samples / math.sqrt(steps), 512, 4096)
    return 1 if batch / n_samples > MAX_RATE else math.ceil(n_samples / batch)


def _privacy_parameter(n_samples, epsilon, delta, noise_multiplier, batch_size):
    """Return mu of Gaussian DP; infinite without noise."""
    if epsilon is not None:
        return gdp_parameter(epsilon, delta)
    if not noise_multiplier:
        return math.inf
    mu = 1.0
    for _ in range(50):  # noise fixes mu through q and T, which depend on mu
        steps = _clip(0.7 * mu * n_samples / 16, 100, 600)
        rate = 1.0 / _steps_per_epoch(n_samples, mu, steps, batch_size)
        mu = rate * math.sqrt(steps) / noise_multiplier
    return mu


def _clip(value, low, high):
    return min(max(value, low), high)
