"""Checks of a module on made-up records: what it holds, what it returns, and for whom.

The proof that records do not mix is the trace of one record, or formulas.  These checks refuse
modules that training would not follow as they are written.
"""

import warnings

import torch
from torch import Tensor, nn

from skdpfair._networks import copied
from skdpfair.engine.flat import NOTHING_TRAINS
from skdpfair.engine.losses import Loss, Regression
from skdpfair.engine.per_sample.proof.alone import (
    ConstantDraws,
    fixed_draws,
    same_alone_and_together,
)
from skdpfair.engine.per_sample.proof.frozen_statistics import hold_statistics, mixes
from skdpfair.engine.per_sample.proof.operations import PLAIN_TENSORS
from skdpfair.exceptions import UnsupportedModuleError

REMEMBERS = (
    "module remembers: its forward pass changes its attributes, buffers or parameters, or differs "
    "from call to call, so that one record could act on the gradients of others, or stay in the "
    "model. Make the forward pass depend on its input and parameters only."
)
N_PROBE = 4
_SCALES = (1.0, -1.0, 100.0)  # of made-up records, for branches on signs and sizes
_SIZES = (2, 9, 33)  # of batches, for branches on their length

# of weights that are drawn to check that outputs are no probabilities: these stay so for
# wide ones, and small ones show some between 0 and 1
_SPREADS = (3.0, 3.0, 30.0, 30.0, 300.0, 300.0)


def check_module(module: nn.Module, example: Tensor, loss: Loss) -> Tensor:
    """Return probe inputs after checking tensors, layers and the shape of the output."""
    _check_tensors(module)
    for name, layer in module.named_modules():
        if reason := _reason_to_refuse(layer):
            place = f"at {name!r}" if name else "at its root"
            raise UnsupportedModuleError(f"module has {type(layer).__name__} {place}, {reason}")
    probe = _probe(example)
    outputs = _forward(training_copy(module), probe)
    n, is_regression = loss.n_outputs, isinstance(loss, Regression)
    what = "outputs" if is_regression else "logits"
    if not isinstance(outputs, Tensor) or outputs.shape != (N_PROBE, n):
        got = tuple(getattr(outputs, "shape", ())) or type(outputs).__name__
        each = "" if is_regression else ", one column per class"
        raise UnsupportedModuleError(
            f"module must return {what} of shape (batch, {n}){each}, "
            f"got {got} for a batch of {N_PROBE}. Give its last layer {n} outputs."
        )
    dtype = next(p.dtype for p in module.parameters() if p.requires_grad)
    if outputs.dtype != dtype:
        raise UnsupportedModuleError(
            f"module must return {what} of {dtype}, as its parameters are, got {outputs.dtype}. "
            "Convert them at the end of forward."
        )
    if _is_bounded(module, probe):
        wanted = "numbers from -1 to 1" if is_regression else "logits, and applies softmax"
        raise UnsupportedModuleError(
            "module returns numbers from 0 to 1 for any weights, as if it ended in a softmax or a "
            f"sigmoid, but the loss takes {wanted}. Leave that layer out."
        )
    return probe


def _is_bounded(module: nn.Module, probe: Tensor) -> bool:
    """Return whether outputs stay within 0 and 1 for random weights, and between for some."""
    module, is_between = training_copy(module), False
    generator = torch.Generator(probe.device).manual_seed(0)
    for spread in _SPREADS:
        for p in filter(lambda p: p.requires_grad, module.parameters()):
            size = spread * (max(1, p.shape[1:].numel()) ** -0.5 if p.dim() > 1 else 1.0)
            draw = torch.empty(p.shape, dtype=p.dtype, device=probe.device)
            p.data = draw.normal_(0, size, generator=generator)
        try:
            with torch.no_grad(), warnings.catch_warnings(action="ignore"):
                outputs = _forward(module, probe)
        except UnsupportedModuleError:
            return False
        if not bool(((outputs >= 0) & (outputs <= 1)).all()):
            return False
        is_between |= bool(((outputs > 0) & (outputs < 1)).all())
    return is_between


def _reason_to_refuse(layer: nn.Module) -> str | None:
    """Return why a layer cannot train, as the end of a sentence, or None."""
    if mixes(layer):
        return (
            "which mixes the records of a batch (or keeps statistics of them), so one record moves "
            "the gradients of all others. Use GroupNorm or LayerNorm instead "
            "(opacus.validators.ModuleValidator.fix does the replacement), or, if its running "
            "statistics and its parameters are public, freeze it: layer.requires_grad_(False)."
        )
    if getattr(layer, "max_norm", None) is not None:
        return (
            "whose max_norm changes its weights in the forward pass, by the records it sees and "
            "without noise. Leave max_norm out."
        )
    overrides = type(layer).get_extra_state is not nn.Module.get_extra_state
    if overrides or "get_extra_state" in vars(layer):
        return (
            "which has an extra state. A released model holds parameters and buffers only: keep "
            "the state in buffers."
        )
    return None


def _check_tensors(module: nn.Module) -> None:
    trained = [p for p in module.parameters() if p.requires_grad]
    if not trained:
        raise UnsupportedModuleError(NOTHING_TRAINS)
    types = {p.dtype for p in trained}
    if len(types) > 1 or not types <= {torch.float32, torch.float64}:
        raise UnsupportedModuleError(
            f"module's trainable parameters are of {sorted(map(str, types))}; noise needs one type "
            "for all, torch.float32 or torch.float64. Use module.float(), and view_as_complex of "
            "real parameters."
        )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if type(tensor) not in PLAIN_TENSORS:
            raise UnsupportedModuleError(
                f"module's {name!r} is a {type(tensor).__name__}, which has operations of its own. "
                "Use plain tensors and torch.nn.Parameter."
            )


def refuse_mixing(module: nn.Module, probe: Tensor) -> None:
    """Refuse a module in which made-up records act on each other.

    In training they cannot; but what is trained then would not be the module as it is written.
    """
    # as of the deviation of one record
    quiet = warnings.catch_warnings(action="ignore")
    batches = [(scale * probe).to(probe.dtype) for scale in _SCALES]
    batches += [torch.cat([probe[:1], probe[1:2].expand(n - 1, *probe.shape[1:])]) for n in _SIZES]
    with torch.no_grad(), ConstantDraws(), quiet:
        for called in (perturbed_copy(module), _switched(perturbed_copy(module))):
            for rows in batches:
                _compare_with_alone(called, rows)


def _compare_with_alone(module: nn.Module, rows: Tensor) -> None:
    """Compare the outputs of the first records of a batch with those of each of them alone."""
    try:
        together = _forward(module, rows)
    except UnsupportedModuleError:
        # codes that an embedding lacks: the probe was tried before
        return
    alone = (_forward(module, row)[0] for row in rows[:N_PROBE].split(1))
    try:
        is_same = len(together) == len(rows) and same_alone_and_together(
            together, alone, rtol=1e-3, atol=1e-5
        )
    except UnsupportedModuleError as error:
        raise _mixes(f"it fails where a record is alone: {error.__cause__}", module) from None
    if not is_same:
        if not torch.allclose(_forward(module, rows), together, equal_nan=True):
            raise UnsupportedModuleError(REMEMBERS)
        raise _mixes(f"the output of a record differs alone and in a batch of {len(rows)}", module)


def _switched(module: nn.Module) -> nn.Module:
    """Return the module in its other mode; frozen statistics stay constant."""
    for m in module.modules():
        m.training = not m.training
    return hold_statistics(module)


def _mixes(error: object, module: nn.Module) -> UnsupportedModuleError:
    layers = module.named_modules()
    along = [n for n, layer in layers if getattr(layer, "batch_first", True) is False]
    first = f" Set batch_first=True of {', '.join(map(repr, along))}." if along else ""
    return UnsupportedModuleError(
        f"module mixes the records of a batch: {error}. Make each output row a function of its own "
        f"input row only.{first}"
    )


def _probe(example: Tensor) -> Tensor:
    """Return random inputs in [0, 1), so that an embedding that casts its input finds index 0."""
    generator = torch.Generator(example.device).manual_seed(0)
    shape = (N_PROBE, *example.shape[1:])
    return torch.rand(shape, generator=generator, device=example.device).to(example.dtype)


def training_copy(module: nn.Module) -> nn.Module:
    """Return a copy of the module as it is trained, whose code may change it."""
    return hold_statistics(copied(module))


def perturbed_copy(module: nn.Module) -> nn.Module:
    """Return a copy whose weights are all random, so that no zero hides anything.

    They are moved by about what torch's initial weights measure, so that deep nets stay tame.
    Frozen weights stay as they are, for training never moves them.
    """
    module = training_copy(module)
    device = next(module.parameters()).device
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for p in filter(lambda p: p.requires_grad, module.parameters()):
            size = 2.0 * p.shape[1:].numel() ** -0.5 if p.dim() > 1 and p.numel() else 1.0
            p.add_((torch.rand(p.shape, generator=generator, device=device) - 0.5) * size)
    return module


def _forward(module: nn.Module, probe: Tensor) -> Tensor:
    """Return the output; equal calls draw equal dropout masks, whoever calls."""
    with fixed_draws(probe.device):
        try:
            outputs: Tensor = module(probe.clone())
            return outputs
        except (RuntimeError, ValueError, IndexError) as error:
            codes = " Convert codes by x.long() in forward." if "Long" in str(error) else ""
            raise UnsupportedModuleError(
                f"module failed on a batch of shape {tuple(probe.shape)} and {probe.dtype}, as "
                f"the features are after group columns are taken out: {error}.{codes}"
            ) from error
