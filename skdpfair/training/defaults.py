"""Values of the parameters left at "auto", chosen from public facts.

The rules were chosen on about 7,000 fits; ``docs/evidence/defaults.md`` explains them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch

from skdpfair._networks import CNN, MLP, Curves, Factory, is_linear, module_factory
from skdpfair._utils.validate import invalid, is_auto, safe_repr
from skdpfair.engine.losses import HUBER_THRESHOLD
from skdpfair.engine.memory import used_device
from skdpfair.preprocessing._piecewise_linear import amounts_among, encoded_columns, limits_of
from skdpfair.privacy.gdp import gdp_parameter
from skdpfair.privacy.releases import LARGEST_STEPS
from skdpfair.training.spec import FitSpec

# module and length, by the signal-to-noise ratio n * mu
# below it a hidden layer does not pay
HIDDEN_LAYER_FROM = 1e4
AUTO_MLP = MLP((32,), zero_output=True)
# a budget so large, or none, that noise no longer matters
ENOUGH_MU = 8.0
# below it accuracy suffers by several points
LOW_SIGNAL_TO_NOISE = 500.0
# below it a model learns next to nothing
NO_SIGNAL_TO_NOISE = 100.0
MIN_STEPS, MAX_STEPS = 100, 600
MIN_BATCH_SIZE, MAX_BATCH_SIZE = 512, 4096
# without noise more steps pay, on the smallest batches
NOISELESS_STEPS = 2000
WIDE_FROM = 1000  # features of a record; then a larger learning rate is stable
# largest ones; wide gradients have less in common, so that twice the rate is stable
LR_SCALE, WIDE_LR_SCALE = 64.0, 128.0
# twice those of others: enough at the largest rate up to S = 115,000 (1200 * 128 * 3/4)
MAX_WIDE_STEPS = 1200
# of S for each step: learning times of 0.9 S and 1.4 S, chosen on the fits behind
# docs/evidence/defaults.md, at a rate of 16
LINEAR_STEP, HIDDEN_STEP = 18, 12
# rates above it are rounded to 1
MAX_SAMPLE_RATE = 0.7
# optimizer
MOMENTUM = {"momentum": 0.9, "dampening": 0.9}
WEIGHT_DECAY, HIDDEN_WEIGHT_DECAY = 1.0, 10.0  # over n, not private; 1 is scikit-learn's C=1
# largest stable learning rate of a step without momentum
PLAIN_LR_SCALE = 8.0
ITERATE_AVERAGE = 0.5  # share of the last steps whose weights are averaged; none at low signal
# clipping bounds and what is released about groups
TARGET_QUANTILE = 0.1  # share of the gradients that are longer than the clipping threshold
COUNT_NOISE = 5.0  # of groups; over 1/mu of the budget: takes 1/25 of mu squared
# below it no curve can be fine
FINE_SIGNAL_TO_NOISE = 1000.0
# below it, times the root of their number, no pair of columns is found that interacts
PAIR_SIGNAL_TO_NOISE = 300.0
MAX_PAIRED_COLUMNS = 60  # the pairs of more take longer to count than a fit
# of mu squared, for the counts of the columns: with 0.04 for amounts, Adult's two are found in 9 of
# 12 fits at epsilon 1
AMOUNT_SHARE, PAIR_SHARE = 0.12, 0.08
# regression: targets are scaled to [-1, 1]
RESIDUAL = 0.25  # of a typical record: there, gradients of the squared loss are clipped
# stable with momentum, whatever the features
REGRESSION_LR = 0.5


@dataclass(frozen=True)
class Objective:
    """The effect of a loss on "auto", and on warnings."""

    clip_gradient: float  # of the loss, at which gradients are clipped, over the warm-up's
    lr: float  # largest learning rate, over that of cross-entropy with the same clipping bound
    norm_growth: float = 2.0  # growth of gradient norms to expect of hidden layers
    # what to expect where records are few for the budget
    low_signal: str = "clearly worse than a non-private model"
    no_signal: str = "hardly better than predicting one number"


# by the loss of a regression; None stands for cross-entropy. A warm-up measures output gradients of
# 1; the learning rate follows from the curvature of the loss
OBJECTIVES = {
    None: Objective(
        1.0,
        1.0,
        4.0,
        "several points below a non-private model, the smaller class first",
        "hardly better than predicting one class for all, unless classes are easy to tell apart",
    ),
    "squared": Objective(RESIDUAL, REGRESSION_LR * RESIDUAL**2),
    "absolute": Objective(1.0, REGRESSION_LR * RESIDUAL),
    "huber": Objective(1.0, REGRESSION_LR * HUBER_THRESHOLD),
}


def resolve(
    spec: FitSpec,
    n_samples: int,
    delta: float,
    *,
    searches_scale: bool = True,
    n_numbers: int = 1,
    previous_lr: float | None = None,
) -> dict[str, Any]:
    """Return the fields of a `Plan` that are chosen for ``n_samples`` records, a public number.

    ``searches_scale`` says that the gradient scale must be found in a warm-up; ``n_numbers`` are
    those of a dense record; ``previous_lr`` is the rate of the fit that this one continues.
    """
    module, averaged = spec.module, spec.iterate_average
    noise, walk = spec.noise_multiplier, (0, 0, 0)
    if noise is None:
        mu = math.inf if spec.epsilon is None else gdp_parameter(spec.epsilon, delta)
    else:
        # batch and steps are the same for any noise, as if mu were 1; mu is that of these steps
        steps = math.floor(_clip(n_samples / 16, MIN_STEPS, MAX_STEPS))
        walk = _walk(spec, n_samples, 1.0, steps, searches_scale)
        mu = math.sqrt(walk[1] - walk[2]) / (walk[0] * noise) if noise else math.inf
    # without noise it is the number of records that limits what can be learned
    learnable = n_samples * min(mu, ENOUGH_MU)
    if isinstance(module, Curves) and module.fine is None:
        module = _countable(module, spec, n_samples, mu)
    if is_auto(module):
        module = "logistic" if learnable < HIDDEN_LAYER_FROM else AUTO_MLP
    if isinstance(averaged, str):
        # where weights are mostly noise, a shorter walk has less of it than a mean
        is_clear = is_auto(spec.lr) and n_samples * mu >= LOW_SIGNAL_TO_NOISE
        averaged = ITERATE_AVERAGE if is_clear else 0.0
    is_wide = n_numbers >= WIDE_FROM and is_linear(module)
    lr_scale = WIDE_LR_SCALE if is_wide else LR_SCALE
    if noise is None:
        max_steps = MAX_STEPS if math.isfinite(mu) else NOISELESS_STEPS
        learned = learnable / (LINEAR_STEP if is_linear(module) else HIDDEN_STEP)
        steps = math.floor(_clip(learned, MIN_STEPS, max_steps))
        enough = math.ceil(learnable / (1 - averaged / 2) / lr_scale) if is_wide else 0
        walk = _walk(spec, n_samples, mu, max(steps, min(enough, MAX_WIDE_STEPS)), searches_scale)
    per_epoch, total, warm_up = walk
    # so that the mean of the last weights has learned for a time proportional to the signal
    lr_scale = min(learnable / (1 - averaged / 2) / max(total - warm_up, 1), lr_scale)
    decay = WEIGHT_DECAY if is_linear(module) else HIDDEN_WEIGHT_DECAY
    decay = 0.0 if spec.is_private else decay / n_samples
    params, lr, unit = _optimizer(spec, decay, lr_scale)
    if previous_lr is not None and is_auto(spec.lr):
        lr, unit = previous_lr, None
    return {
        "signal_to_noise": n_samples * mu,
        "module": module,
        "steps_per_epoch": per_epoch,
        "n_steps": total,
        "warm_up": warm_up,
        "averaged_fraction": averaged,
        "norm_growth": 1.0 if is_linear(module) else OBJECTIVES[spec.loss].norm_growth,
        "optimizer_params": params,
        "lr": lr,
        "lr_scale": None if unit is None else unit * OBJECTIVES[spec.loss].lr,
    }


def logit_scale(spec: FitSpec, n_classes: int) -> float:
    """Return the factor of the logits in predictions."""
    if not is_auto(spec.logit_scale):
        return float(spec.logit_scale or 1.0)  # a regression has none
    # found for the lengths of walks that "auto" takes
    is_default = is_auto(spec.lr) and is_auto(spec.max_epochs) and spec.max_steps is None
    is_noisy = spec.is_private and spec.noise_multiplier != 0
    of_two, of_more = spec.method.logit_scales if is_default and is_noisy else (1.0, 1.0)
    return of_two if n_classes == 2 else of_more


def network_for(columns: Iterable[Any]) -> Any:
    """Return a linear network for columns that were encoded, else "auto".

    The names of the columns, which are public, show the encoding.
    """
    names = list(columns)
    amounts, encoded = amounts_among(names), encoded_columns(names)
    if amounts or encoded:
        amounts = amounts or ()
        return Curves(amounts, columns=encoded, limits=limits_of(names, amounts))
    return "auto" if amounts is None else "logistic"


def _countable(network: Curves, spec: FitSpec, n_samples: int, mu: float) -> Any:
    """Return the network with what noisy counts can choose; "logistic" or "auto" for nothing."""
    # the names of categories alone may be those of any columns
    has_knots = network.amounts or any(width == 1 for _, width in network.columns)
    other = "logistic" if spec.is_monotone or (has_knots and spec.loss is None) else "auto"
    # what is released for the choice is a part of epsilon, and counted are the rows as they are
    has_no_epsilon = spec.is_private and spec.epsilon is None
    is_deep = other == "auto" and n_samples * min(mu, ENOUGH_MU) >= HIDDEN_LAYER_FROM
    if has_no_epsilon or is_deep or (spec.attack, spec.views) != (None, None):
        return other
    signal, n_pairs = n_samples * min(mu, 1.0), len(network.candidates)
    has_amounts = signal >= FINE_SIGNAL_TO_NOISE and spec.loss is None
    has_pairs = signal >= PAIR_SIGNAL_TO_NOISE * math.sqrt(n_pairs)
    amounts = network.amounts if has_amounts else ()
    has_pairs &= 1 < len(network.columns) <= MAX_PAIRED_COLUMNS
    columns = network.columns if has_pairs else ()
    limits = network.limits if has_amounts else ()
    network = Curves(amounts, columns=columns, limits=limits)
    return network if amounts or columns else other


def count_shares(network: Curves) -> list[tuple[float, int]]:
    """Return the shares of mu squared that the counts of amounts and pairs take, and their numbers.

    Only those are returned that there are.
    """
    numbers = (AMOUNT_SHARE, len(network.amounts)), (PAIR_SHARE, len(network.candidates))
    return [(share, n) for share, n in numbers if n]


def _walk(
    spec: FitSpec, n_samples: int, mu: float, steps: int, searches_scale: bool
) -> tuple[int, int, int]:
    """Return the steps of an epoch, of the fit and of its warm-up; ``steps`` are without it."""
    if isinstance(spec.batch_size, str):
        # a noise multiplier of 5 or more wastes least of the budget
        max_batch_size = MAX_BATCH_SIZE if math.isfinite(mu) else MIN_BATCH_SIZE
        batch = _clip(5 * mu * n_samples / math.sqrt(steps), MIN_BATCH_SIZE, max_batch_size)
        per_epoch = 1 if batch / n_samples > MAX_SAMPLE_RATE else math.ceil(n_samples / batch)
    else:
        per_epoch = math.ceil(n_samples / spec.batch_size)
    if spec.max_steps is None and isinstance(spec.max_epochs, str):
        warm_up = max(10, round(steps / 20)) if searches_scale else 0
        return per_epoch, steps + warm_up, warm_up
    # a number of the user's counts every step on the data, the warm-up among them
    total = spec.max_steps or int(spec.max_epochs) * per_epoch
    if total > LARGEST_STEPS:
        raise invalid(
            "max_epochs",
            f"must make at most {LARGEST_STEPS} steps, at {per_epoch} an epoch, got "
            f"{spec.max_epochs}. Give at most {LARGEST_STEPS // per_epoch}, or max_steps.",
        )
    return per_epoch, total, min(max(10, round(total / 20)), total // 4) if searches_scale else 0


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def check_network(network: Any, in_shape: Sequence[int], n_outputs: int) -> None:
    """Raise, before anything is spent, if a network cannot be made as asked."""
    if isinstance(network, Curves) and not network.positions <= set(range(in_shape[0])):
        raise ValueError(
            f"module={safe_repr(network)} names columns that records of shape {in_shape} lack. "
            'Leave module="auto", which finds them.'
        )
    if isinstance(network, (MLP, CNN)):
        with torch.device("meta"):  # takes no memory
            module_factory(network, in_shape, n_outputs)()
    if isinstance(network, Factory):
        module_factory(network, in_shape, n_outputs).check()


def device_in_turn(device: str | torch.device, place: int) -> str | torch.device:
    """Return the device of the fit number ``place``: each GPU in turn, where any may be taken."""
    n = torch.cuda.device_count() if str(used_device(device)) == "cuda" else 1
    return f"cuda:{place % n}" if n > 1 else device


def _optimizer(
    spec: FitSpec, decay: float, lr_scale: float
) -> tuple[dict[str, Any], float, float | None]:
    """Return the optimizer's arguments, its learning rate, and that in units of the method's scale.

    Without a scale of the method, the last is None and the rate holds.
    """
    make, params = spec.optimizer.make, dict(spec.optimizer.params)
    if not is_auto(spec.lr):
        return params, spec.lr, None
    if spec.has_auto_optimizer:
        return MOMENTUM | ({"weight_decay": decay} if decay else {}) | params, 1.0, lr_scale
    if make is torch.optim.SGD:
        return params, 1.0, min(lr_scale, PLAIN_LR_SCALE)
    return params, signature(make).parameters["lr"].default, None
