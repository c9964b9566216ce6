"""What must hold of a module before its per-record gradients mean anything."""

from collections import Counter

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from skdpfair.engine.per_sample import layers
from skdpfair.exceptions import UnsupportedModuleError

N_PROBE = 3


def check_module(module, example, n_classes):
    """Return probe inputs after checking output shape, gradients and independence of records.

    The probe is random: no record of the data is looked at.
    """
    _refuse_batch_statistics(module)
    generator = torch.Generator(example.device).manual_seed(0)
    shape = (N_PROBE, *example.shape[1:])
    # in [0, 1), so that an embedding that casts its input finds index 0
    probe = torch.rand(shape, generator=generator, device=example.device).to(example.dtype)
    logits = _forward(module, probe)
    if not isinstance(logits, torch.Tensor) or logits.shape != (N_PROBE, n_classes):
        got = tuple(getattr(logits, "shape", ())) or type(logits).__name__
        raise UnsupportedModuleError(
            f"module must return logits of shape (batch, {n_classes}), one column per class, "
            f"got {got} for a batch of {N_PROBE}. Give its last layer {n_classes} outputs."
        )
    if not any(p.requires_grad for p in module.parameters()):
        raise UnsupportedModuleError("module has no trainable parameter.")
    _refuse_coupling(module, probe, logits)
    return probe


def bookkeeping_refusal(module, probe):
    """Return why book-keeping would be wrong for ``module``, or None if it is exact."""
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
    owned = {p for m in calls for p in m.parameters(recurse=False)}
    for p, name in names.items():
        if p not in owned:
            return f"parameter {name!r} is not in a layer that book-keeping covers"
        if uses[p] != 1:
            return f"parameter {name!r} is used {uses[p]} times in a forward pass"
    if len(set(calls)) != len(calls):
        return "a layer is called more than once in a forward pass"
    return None


def _forward(module, probe):
    """Return the output; dropout of equal calls draws equal masks, whoever calls."""
    devices = [probe.device] if probe.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(0)
        try:
            return module(probe)
        except (RuntimeError, ValueError, IndexError) as error:
            raise UnsupportedModuleError(
                f"module failed on a batch of shape {tuple(probe.shape)}, the shape of the "
                f"features after group columns are taken out: {error}"
            ) from error


def _refuse_batch_statistics(module):
    for name, layer in module.named_modules():
        tracks = isinstance(layer, _InstanceNorm) and layer.track_running_stats
        if isinstance(layer, _BatchNorm) or tracks:
            raise UnsupportedModuleError(
                f"module has {type(layer).__name__} at {name or 'its root'!r}, which mixes the "
                "records of a batch (or keeps statistics of them), so one record moves the "
                "gradients of all others. Use GroupNorm or LayerNorm instead "
                "(opacus.validators.ModuleValidator.fix does the replacement)."
            )
        if getattr(layer, "max_norm", None) is not None:
            raise UnsupportedModuleError(
                f"module has an {type(layer).__name__} with max_norm at {name!r}, which changes "
                "its weights in the forward pass, by the records it sees and without noise. "
                "Leave max_norm out."
            )


def _refuse_coupling(module, probe, logits):
    """Change all records but the first; the first one's output must stay."""
    other = probe.clone()
    other[1:] = 1.0 - other[1:]
    with torch.no_grad():
        changed = _forward(module, other)
    if not torch.allclose(changed[0], logits[0].detach(), rtol=1e-4, atol=1e-6):
        raise UnsupportedModuleError(
            "module mixes the records of a batch: the output of one record changes with the "
            "others. Make each output row a function of its own input row only."
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
