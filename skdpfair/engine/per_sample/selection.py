"""Choice of the cheapest strategy whose gradients are autograd's of one record at a time."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache

import torch
from torch import Tensor, nn

from skdpfair.engine.batch import Batch
from skdpfair.engine.losses import CrossEntropy, Loss
from skdpfair.engine.per_sample.bookkeeping import BookKeeping, factors_of
from skdpfair.engine.per_sample.closed_form import ClosedForm, linear_layers
from skdpfair.engine.per_sample.proof import (
    ConstantDraws,
    ModuleCode,
    TraceError,
    perturbed_copy,
    prove,
    training_copy,
)
from skdpfair.engine.per_sample.records import Strategy
from skdpfair.engine.precision import full_precision
from skdpfair.exceptions import UnsupportedModuleError

log = logging.getLogger("skdpfair")

# above the rounding of deep nets; couplings and wrong gradients are far above
_TOLERANCE = 1e-3


def select_strategy(
    module: nn.Module, example: Tensor, n_classes: int, *, loss: Loss | None = None
) -> Strategy:
    """Return the cheapest strategy that is exact for ``module``, or refuse with the reason.

    The module maps inputs (batch, ...), like ``example`` in shape, dtype and device, to outputs
    (batch, n_classes).  The loss is cross-entropy by default.  The strategy is a context manager:
    what it keeps of a batch is gone at the end.
    """
    loss = CrossEntropy(n_classes) if loss is None else loss
    module = getattr(module, "_orig_mod", module)  # that inside of torch.compile
    # checks draw random numbers, too
    devices = [example.device] if example.is_cuda else []
    with torch.random.fork_rng(devices), full_precision(example.device):
        code = prove(module, example, loss)
        factors = cache(lambda: factors_of(code))
        makers: tuple[Callable[[nn.Module], Strategy], ...] = (
            lambda m: ClosedForm(m, loss, linear_layers(m, code.probe)),
            lambda m: BookKeeping(m, loss, code, *factors()),
        )
        for make in makers:
            if (reason := _gradient_error(make, code)) is None:
                strategy = make(module)
                log.info("%s: %s", strategy.name, strategy.reason)
                return strategy
    raise UnsupportedModuleError(f"module cannot be trained: {reason}.")


def _gradient_error(make: Callable[[nn.Module], Strategy], code: ModuleCode) -> str | None:
    """Return how the strategy ``make(module)`` differs from autograd, or None.

    This finds what a trace does not follow: gradients that code makes by itself, weights that it
    reads without autograd.
    """
    module, probe, n = perturbed_copy(code.module), code.probe, len(code.probe)
    y = code.loss.probe_targets(n, probe.device)
    called = training_copy(module)
    parameters = [p for p in called.parameters() if p.requires_grad]
    try:
        # traced before draws are constant
        strategy = make(module)
        with ConstantDraws() if strategy.draws else nullcontext(), strategy:
            gradients = strategy.per_sample_gradients(Batch(probe, y))
            if gradients.norm.shape != (n,):
                return f"it has {len(gradients.norm)} gradients of {n} records"
            for i, one_hot in enumerate(torch.eye(n).to(gradients.norm)):
                gradients.weighted_sum(one_hot, total := strategy.flat())
                with torch.enable_grad():
                    value = code.loss.each(called(probe.clone())[i : i + 1], y[i : i + 1]).sum()
                alone = torch.autograd.grad(value, parameters, materialize_grads=True)
                expected = torch.cat([g.flatten() for g in alone])
                allowed = _TOLERANCE * (expected.norm() + _TOLERANCE)
                if not (total - expected).norm() <= allowed:
                    return (
                        "its gradient of one record is not autograd's: leave out what rounds, as "
                        "autocast and half precision, or draws as a part of another operation, as "
                        "RReLU"
                    )
                if not (gradients.norm[i] - expected.norm()).abs() <= allowed:
                    return "its norm of one record's gradient is not autograd's"
    except UnsupportedModuleError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, TraceError) as error:
        return str(error).strip().rstrip(".")
    return None
