"""Checks that the per-record gradients of a module are well defined.

The proof that records do not mix is the graph that was recorded, or vmap.  What is here refuses
modules that training would not follow as they are written: those that mix records, or remember
them, and those whose gradients differ from what autograd says of one record at a time.  No record
of the data is seen.
"""

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from skdpfair._describe import state_of
from skdpfair.engine.flat import NOTHING_TRAINS
from skdpfair.engine.losses import Loss, Regression
from skdpfair.engine.per_sample.batch_statistics import (
    has_running_statistics,
    hold_statistics,
    mixing_layers,
)
from skdpfair.engine.per_sample.closed_list import PLAIN_TENSORS
from skdpfair.engine.per_sample.graph import Graph, fixed_draws, record
from skdpfair.engine.per_sample.records import Strategy
from skdpfair.engine.per_sample.stand_ins import Coupling, NotRecorded
from skdpfair.exceptions import UnsupportedModuleError

N_PROBE = 4
_TOLERANCE = 1e-3
_SCALES = (1.0, -1.0, 10.0, -10.0, 100.0, -100.0)  # of made-up records
_SIZES = (1, 2, 3, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257)  # of batches


_ROUNDED = "; where forward rounds, as by autocast or half precision, leave that out"


class ConstantDraws(TorchDispatchMode):
    """Makes every random number of torch the same, so that equal calls give equal results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch states no types

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten.native_dropout.default:  # which returns the product, too
            x, p, _ = args
            return x * (0.5 / (1 - p)), torch.ones_like(x, dtype=torch.bool)
        out = func(*args, **(kwargs or {}))
        fused = any(a.name == "dropout_p" for a in func._schema.arguments)  # attention is no draw
        if torch.Tag.nondeterministic_seeded in func.tags and not fused:
            tree_map_only(torch.Tensor, lambda t: t.fill_(0.5 if t.is_floating_point() else 0), out)
        return out


def check_module(
    module: nn.Module, example: Tensor, loss: Loss, *, may_mix: bool = False
) -> Tensor:
    """Return probe inputs after checking types and the shape of the output."""
    _refuse_unusable_tensors(module)
    _refuse_batch_statistics(module, may_mix)
    _refuse_max_norm(module)
    _refuse_other_state(module)
    probe = _probe(example)
    logits = _forward(_copied(module), probe)
    if not isinstance(logits, torch.Tensor) or logits.shape != (N_PROBE, loss.n_outputs):
        got = tuple(getattr(logits, "shape", ())) or type(logits).__name__
        n = loss.n_outputs
        what = "outputs" if isinstance(loss, Regression) else "logits"
        each = "" if isinstance(loss, Regression) else ", one column per class"
        raise UnsupportedModuleError(
            f"module must return {what} of shape (batch, {n}){each}, "
            f"got {got} for a batch of {N_PROBE}. Give its last layer {n} outputs."
        )
    return probe


def recorded(module: nn.Module, probe: Tensor) -> Graph | str:
    """Return the graph of a module's forward pass, or why it cannot be recorded.

    A module that mixes records is refused outright, and so is one that remembers.
    """
    called = _copied(module)
    try:
        first, state = record(called, probe), state_of(called)
        graph = record(called, probe)
        if first.names != graph.names or state_of(called) != state:
            raise _remembers()
    except Coupling as error:
        raise _mixes(error, called) from None
    except NotRecorded as error:
        _refuse_mixing(module, probe)
        return str(error)
    if not all(map(torch.equal, _tensors(module), _tensors(called))):
        raise _remembers()
    try:  # prediction, or training, is the other mode
        record(_switched(called), probe)
    except Coupling as error:
        raise _mixes(error, called) from None
    except NotRecorded:
        _refuse_mixing(module, probe)
    graph = graph.on(module, called)
    with torch.no_grad(), ConstantDraws() if graph.draws else nullcontext():
        _compare_with_others(graph, probe, 1.0 - probe)  # a second net, should a rule be wrong
    return graph


def _refuse_mixing(module: nn.Module, probe: Tensor) -> None:
    """Refuse a module that cannot be recorded, if made-up records are seen to act on each other.

    Under vmap they cannot; but what is trained there would not be the module as it is written.
    """
    for called in (_perturbed(module), _switched(_perturbed(module))):
        with torch.no_grad(), ConstantDraws():
            for scale in _SCALES:
                try:
                    rows, others = scale * probe, scale * (1.0 - probe)
                    _compare_with_others(called, rows.to(probe.dtype), others)
                except UnsupportedModuleError as error:
                    if scale == 1.0 or error.__cause__ is None:
                        raise  # else an embedding has no such index
            _compare_sizes(called, probe)


def _compare_with_others(module: Callable[[Tensor], Tensor], rows: Tensor, others: Tensor) -> None:
    """Exchange all records but one; that one's output must stay."""
    logits = _forward(module, rows)
    for i in range(N_PROBE):
        batch = others.to(rows.dtype).clone()
        batch[i] = rows[i]
        if _differ(_forward(module, batch)[i], logits[i]):
            raise _mixes("the output of one record changes with the others", module)


def _compare_sizes(module: Callable[[Tensor], Tensor], probe: Tensor) -> None:
    """Add records to a batch; the output of that which was there must stay."""
    alone = _forward(module, probe[:1])
    for size in _SIZES:
        others = (1.0 - probe[1:2]).to(probe.dtype).expand(size - 1, *probe.shape[1:])
        first = _forward(module, torch.cat([probe[:1], others]))[:1]
        last = _forward(module, torch.cat([others, probe[:1]]))[-1:]
        if _differ(first, alone) or _differ(last, alone):
            raise _mixes(f"a batch of {size} gives a record another output than one of 1", module)


def _differ(a: Tensor, b: Tensor) -> bool:
    return not torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)


def _switched(module: nn.Module) -> nn.Module:
    """Return the module in its other mode; frozen statistics stay constant."""
    for m in module.modules():
        m.training = not m.training
    return hold_statistics(module)


def _remembers() -> UnsupportedModuleError:
    return UnsupportedModuleError(
        "module remembers: its forward pass changes its attributes, buffers or parameters, or "
        "differs from call to call, so that one record could act on the gradients of others, or "
        "stay in the model. Make the forward pass depend on its input and parameters only."
    )


def _mixes(error: object, module: Callable[[Tensor], Tensor]) -> UnsupportedModuleError:
    layers = module.named_modules() if isinstance(module, nn.Module) else ()
    along = [n for n, layer in layers if getattr(layer, "batch_first", True) is False]
    first = f" Set batch_first=True of {', '.join(map(repr, along))}." if along else ""
    return UnsupportedModuleError(
        f"module mixes the records of a batch: {error}. Make each output row a function of its own "
        f"input row only.{first}"
    )


def disagreement(
    make: Callable[[nn.Module, Graph | str], Strategy],
    module: nn.Module,
    graph: Graph | str,
    probe: Tensor,
    loss: Loss,
) -> str | None:
    """Return how the strategy ``make(module, graph)`` differs from autograd, or None.

    This finds what a recording does not follow: gradients that code makes by itself, weights that
    it reads without autograd.
    """
    module, original = _perturbed(module), module
    if isinstance(graph, Graph):
        graph = graph.on(module, original)
    y = loss.made_up(N_PROBE, probe.device)
    called = _copied(module)
    parameters = [p for p in called.parameters() if p.requires_grad]
    random = isinstance(graph, str) or graph.draws
    try:
        with ConstantDraws() if random else nullcontext(), make(module, graph) as strategy:
            records = strategy.records(probe, y)
            if strategy.remembers():
                raise _remembers()
            if records.norm.shape != (N_PROBE,):
                return f"it finds {len(records.norm)} gradients in {N_PROBE} records"
            for i in range(N_PROBE):
                one_hot = torch.zeros_like(records.norm)
                one_hot[i] = 1.0
                records.weighted_sum(one_hot, total := strategy.flat())
                expected = _gradient(called, parameters, loss, probe, y, i)
                allowed = _TOLERANCE * (expected.norm() + _TOLERANCE)
                if not (total - expected).norm() <= allowed:
                    return f"its gradient of one record is not autograd's{_ROUNDED}"
                if not (records.norm[i] - expected.norm()).abs() <= allowed:
                    return "its norm of one record's gradient is not autograd's"
    except UnsupportedModuleError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, NotRecorded) as error:
        return f"it fails: {error}"
    return None


def _gradient(
    module: nn.Module,
    parameters: list[nn.Parameter],
    loss: Loss,
    x: Tensor,
    y: Tensor,
    i: int,
) -> Tensor:
    """Return autograd's gradient of the loss of record ``i``."""
    with torch.enable_grad():
        value = loss.each(module(x)[i : i + 1], y[i : i + 1]).sum()
    factor = loss.factor(y[i : i + 1], None)
    value = value if factor is None else value * factor[0]
    found = torch.autograd.grad(value, parameters, allow_unused=True)
    pairs = zip(parameters, found, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs])


def _probe(example: Tensor) -> Tensor:
    """Return random inputs in [0, 1), so that an embedding that casts its input finds index 0."""
    generator = torch.Generator(example.device).manual_seed(0)
    shape = (N_PROBE, *example.shape[1:])
    return torch.rand(shape, generator=generator, device=example.device).to(example.dtype)


def _copied(module: nn.Module) -> nn.Module:
    """Return a copy of the module as it is trained, whose code may change it."""
    try:
        return hold_statistics(copy.deepcopy(module))
    except (RuntimeError, TypeError, pickle.PickleError) as error:
        raise UnsupportedModuleError(
            f"module cannot be copied: {error} (torch.nn.utils.parametrizations has forms of "
            "weight_norm and spectral_norm that can; a function of torch.jit can be a global "
            "variable of the code, but no attribute of the module.)"
        ) from error


def _perturbed(module: nn.Module) -> nn.Module:
    """Return a copy whose weights are all random, so that no zero hides anything.

    They are moved by about what torch's initial weights measure, so that deep nets stay tame.
    Frozen weights stay as they are, for training never moves them.
    """
    module = _copied(module)
    device = next(module.parameters()).device
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for p in filter(lambda p: p.requires_grad, module.parameters()):
            size = 2.0 * p[0].numel() ** -0.5 if p.dim() > 1 and p.numel() else 1.0
            p.add_((torch.rand(p.shape, generator=generator, device=device) - 0.5) * size)
    return module


def _forward(module: Callable[[Tensor], Tensor], probe: Tensor) -> Tensor:
    """Return the output; equal calls draw equal dropout masks, whoever calls."""
    with fixed_draws(probe.device):
        try:
            return module(probe)
        except (RuntimeError, ValueError, IndexError) as error:
            codes = " Convert codes by x.long() in forward." if "Long" in str(error) else ""
            raise UnsupportedModuleError(
                f"module failed on a batch of shape {tuple(probe.shape)} and {probe.dtype}, as "
                f"the features are after group columns are taken out: {error}.{codes}"
            ) from error


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _refuse_unusable_tensors(module: nn.Module) -> None:
    trained = [p for p in module.parameters() if p.requires_grad]
    if not trained:
        raise UnsupportedModuleError(NOTHING_TRAINS)
    types = {p.dtype for p in trained}
    if len(types) > 1 or not types <= {torch.float32, torch.float64}:
        raise UnsupportedModuleError(
            f"module's trainable parameters are of {sorted(map(str, types))}; noise needs one type "
            "for all, torch.float32 or torch.float64. Use module.float()."
        )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if type(tensor) not in PLAIN_TENSORS:
            raise UnsupportedModuleError(
                f"module's {name!r} is a {type(tensor).__name__}, whose operations are its own. "
                "Use plain tensors and torch.nn.Parameter."
            )


def _refuse_other_state(module: nn.Module) -> None:
    """Refuse state that neither parameters nor buffers hold, for releases would not hold it."""
    for name, layer in module.named_modules():
        own = type(layer).get_extra_state is not nn.Module.get_extra_state
        if own or "get_extra_state" in vars(layer):
            raise UnsupportedModuleError(
                f"module has an extra state at {name!r}. A released model holds parameters and "
                "buffers only: register what it needs as a buffer."
            )


def _refuse_batch_statistics(module: nn.Module, may_mix: bool) -> None:
    for name, layer in mixing_layers(module).items():
        if may_mix and not has_running_statistics(layer):
            raise UnsupportedModuleError(
                f"module has {type(layer).__name__} {_place(name)} without running statistics, so "
                "that a prediction would depend on the rows that are predicted with it. Set "
                "track_running_stats=True."
            )
        if may_mix:
            continue
        raise UnsupportedModuleError(
            f"module has {type(layer).__name__} {_place(name)}, which mixes the records of a batch "
            "(or keeps statistics of them), so one record moves the gradients of all others. Use "
            "GroupNorm or LayerNorm instead (opacus.validators.ModuleValidator.fix does the "
            "replacement), or, if its running statistics and its parameters are public, freeze "
            "it: layer.requires_grad_(False)."
        )


def _refuse_max_norm(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if getattr(layer, "max_norm", None) is not None:
            raise UnsupportedModuleError(
                f"module has {type(layer).__name__} with max_norm {_place(name)}, which changes "
                "its weights in the forward pass, by the records it sees and without noise. "
                "Leave max_norm out."
            )


def _place(name: str) -> str:
    return f"at {name!r}" if name else "at its root"
