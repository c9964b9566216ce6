"""What must hold of a module before its per-record gradients mean anything.

Two kinds of evidence: the structure of the autograd graph, and a comparison on random inputs and
perturbed weights with what autograd says of one record at a time.  No record of the data is seen.
"""

import copy
from collections import Counter

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from skdpfair.engine.per_sample import layers
from skdpfair.exceptions import UnsupportedModuleError

N_PROBE = 4
_TOLERANCE = 1e-3


def check_module(module, example, n_classes):
    """Return probe inputs after checking types and the shape of the output."""
    _refuse_unusable_parameters(module)
    _refuse_batch_statistics(module)
    probe = _probe(example)
    logits = _forward(module, probe)
    if not isinstance(logits, torch.Tensor) or logits.shape != (N_PROBE, n_classes):
        got = tuple(getattr(logits, "shape", ())) or type(logits).__name__
        raise UnsupportedModuleError(
            f"module must return logits of shape (batch, {n_classes}), one column per class, "
            f"got {got} for a batch of {N_PROBE}. Give its last layer {n_classes} outputs."
        )
    return probe


def bookkeeping_refusal(module, probe):
    """Return why book-keeping would be wrong for ``module`` by its graph, or None.

    A module that mixes records is refused outright, for no strategy makes it private.
    """
    _refuse_coupling(module, probe)
    names = {p: name for name, p in module.named_parameters() if p.requires_grad}
    calls: list[nn.Module] = []
    handles = [
        m.register_forward_hook(lambda m, i, o: calls.append(m))
        for m in module.modules()
        if layers.find(m) is not None
    ]
    try:
        with torch.enable_grad():
            uses = _uses(_forward(module, probe))
    finally:
        for handle in handles:
            handle.remove()
    calls = [m for m in calls if any(p.requires_grad for p in m.parameters(recurse=False))]
    owned = {p for m in calls for p in (m.weight, getattr(m, "bias", None)) if p is not None}
    for p, name in names.items():
        if p not in owned:
            return f"parameter {name!r} is not in a layer that book-keeping covers"
        if uses[p] != 1:
            return f"parameter {name!r} is used {uses[p]} times in a forward pass"
    if len(set(calls)) != len(calls):
        return "a layer is called more than once in a forward pass"
    return None


def disagreement(make, module, probe, n_classes):
    """Return how the strategy ``make(module)`` differs from autograd, or None.

    This finds what no structure tells: layers whose rows are not the records, forwards that the
    strategy does not follow.
    """
    module = _perturbed(module)
    y = torch.arange(N_PROBE, device=probe.device) % n_classes
    try:
        with torch.random.fork_rng(devices=_devices(probe)), make(module) as strategy:
            torch.manual_seed(0)
            records = strategy.records(probe, y)
            if records.norm.shape != (N_PROBE,):
                return f"it finds {len(records.norm)} gradients in {N_PROBE} records"
            for i in range(N_PROBE):
                one_hot = torch.zeros_like(records.norm)
                one_hot[i] = 1.0
                records.weighted_sum(one_hot, total := strategy.flat())
                torch.manual_seed(0)  # the same dropout masks
                expected = _gradient(strategy, probe, y, i)
                allowed = _TOLERANCE * (expected.norm() + _TOLERANCE)
                if not (total - expected).norm() <= allowed:
                    return "its gradient of one record is not autograd's"
                if not (records.norm[i] - expected.norm()).abs() <= allowed:
                    return "its norm of one record's gradient is not autograd's"
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        return f"it fails: {error}"
    return None


def _gradient(strategy, x, y, i):
    """Return autograd's gradient of the loss of record ``i``."""
    with torch.enable_grad():
        loss = cross_entropy(strategy.module(x)[i : i + 1], y[i : i + 1], reduction="sum")
    if strategy.class_weight is not None:
        loss = loss * strategy.class_weight[y[i]]
    found = torch.autograd.grad(loss, strategy.parameters, allow_unused=True)
    pairs = zip(strategy.parameters, found, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs])


def _probe(example):
    """Return random inputs in [0, 1), so that an embedding that casts its input finds index 0."""
    generator = torch.Generator(example.device).manual_seed(0)
    shape = (N_PROBE, *example.shape[1:])
    return torch.rand(shape, generator=generator, device=example.device).to(example.dtype)


def _perturbed(module):
    """Return a copy whose weights are all random, so that no zero hides anything.

    They are moved by about what torch's initial weights measure, so that deep nets stay tame.
    """
    try:
        module = copy.deepcopy(module)
    except RuntimeError as error:
        raise UnsupportedModuleError(
            f"module cannot be copied: {error} (torch.nn.utils.parametrizations has forms of "
            "weight_norm and spectral_norm that can.)"
        ) from error
    with torch.random.fork_rng(devices=_devices(next(module.parameters()))), torch.no_grad():
        torch.manual_seed(0)
        for p in module.parameters():
            size = 2.0 * p[0].numel() ** -0.5 if p.dim() > 1 and p.numel() else 1.0
            p.add_((torch.rand_like(p) - 0.5) * size)
    return module


def _devices(tensor):
    return [tensor.device] if tensor.device.type == "cuda" else []


def _forward(module, probe):
    """Return the output; dropout of equal calls draws equal masks, whoever calls."""
    with torch.random.fork_rng(devices=_devices(probe)):
        torch.manual_seed(0)
        try:
            return module(probe)
        except (RuntimeError, ValueError, IndexError) as error:
            raise UnsupportedModuleError(
                f"module failed on a batch of shape {tuple(probe.shape)}, the shape of the "
                f"features after group columns are taken out: {error}"
            ) from error


def _refuse_unusable_parameters(module):
    trained = [p for p in module.parameters() if p.requires_grad]
    if not trained:
        raise UnsupportedModuleError("module has no trainable parameter.")
    types = {p.dtype for p in trained}
    if len(types) > 1 or not types <= {torch.float32, torch.float64}:
        raise UnsupportedModuleError(
            f"module's trainable parameters are of {sorted(map(str, types))}; noise needs one type "
            "for all, torch.float32 or torch.float64. Use module.float()."
        )


def _refuse_batch_statistics(module):
    for name, layer in module.named_modules():
        place = f"at {name!r}" if name else "at its root"
        tracks = isinstance(layer, _InstanceNorm) and layer.track_running_stats
        if isinstance(layer, _BatchNorm) or tracks:
            raise UnsupportedModuleError(
                f"module has {type(layer).__name__} {place}, which mixes the "
                "records of a batch (or keeps statistics of them), so one record moves the "
                "gradients of all others. Use GroupNorm or LayerNorm instead "
                "(opacus.validators.ModuleValidator.fix does the replacement)."
            )
        if getattr(layer, "max_norm", None) is not None:
            raise UnsupportedModuleError(
                f"module has {type(layer).__name__} with max_norm {place}, which changes "
                "its weights in the forward pass, by the records it sees and without noise. "
                "Leave max_norm out."
            )


def _refuse_coupling(module, probe):
    """Change all records but one; that one's output must stay."""
    module = _perturbed(module)
    with torch.no_grad():
        logits = _forward(module, probe)
        for i in range(N_PROBE):
            others = 1.0 - probe
            others[i] = probe[i]
            if not torch.allclose(_forward(module, others)[i], logits[i], rtol=1e-3, atol=1e-5):
                raise UnsupportedModuleError(
                    "module mixes the records of a batch: the output of one record changes with "
                    "the others. Make each output row a function of its own input row only."
                )


def _uses(output):
    """Count how often each leaf parameter enters the graph of ``output``."""
    uses, seen, stack = Counter(), set(), [output.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for following, _ in node.next_functions:
            if following is not None:
                if hasattr(following, "variable"):
                    uses[following.variable] += 1
                stack.append(following)
    return uses
