"""All trainable parameters as one vector, and an SGD that steps on it."""

from collections.abc import Sequence
from functools import reduce
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from skdpfair.engine.precision import without_grad
from skdpfair.exceptions import UnsupportedModuleError

NOTHING_TRAINS = (
    "module has no trainable parameter. Add a layer that trains, or let its last one train by "
    "layer.requires_grad_(True); skdpfair.features.FrozenFeatures computes features by a frozen "
    "network."
)


def fixed_places(module: nn.Module, output: Tensor) -> Tensor | None:
    """Return the positions in the flat vector of the numbers that no record can move, or None.

    They follow from how ``output`` was computed, not from values: parameters that it does not
    depend on, padding rows of embeddings, and what buffers mask.
    """
    readers: dict[int, list[tuple[Any, int]]] = {}
    nodes, seen = [output.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for place, (above, _) in enumerate(node.next_functions):
            variable = getattr(above, "variable", None)
            if variable is None:
                nodes.append(above)
            else:
                readers.setdefault(id(variable), []).append((node, place))
    buffers = {b.data_ptr() for b in module.buffers()}
    masks = []
    for p in (p for p in module.parameters() if p.requires_grad):
        parts = [_without_gradient(p, *reader, buffers) for reader in readers.get(id(p), ())]
        masks.append(reduce(torch.logical_and, parts, torch.ones_like(p, dtype=torch.bool)))
    fixed = torch.cat([mask.flatten() for mask in masks])
    if bool(fixed.all()):
        raise UnsupportedModuleError(NOTHING_TRAINS)
    return fixed.nonzero().flatten() if bool(fixed.any()) else None


# operations that pass gradients on to a part of a parameter, and what selects it, by its place
_SELECTING = {"Mul": ("other", "self"), "Where": ("condition",) * 2, "MaskedFill": ("mask",)}


def _without_gradient(p: nn.Parameter, op: Any, place: int, buffers: set[int]) -> Tensor:
    """Return where an operation that reads a parameter gives it no gradient, whatever the data."""
    name, fixed = type(op).__name__.partition("Backward")[0], torch.zeros_like(p, dtype=torch.bool)
    if name in ("Embedding", "EmbeddingBag") and 0 <= op._saved_padding_idx < len(p):
        fixed[op._saved_padding_idx] = True
    masks = (getattr(op, f"_saved_{by}") for by in _SELECTING.get(name, ())[place : place + 1])
    if name in ("Select", "Slice") or any(mask.data_ptr() in buffers for mask in masks):
        shape, draw = op._input_metadata[0].shape, torch.Generator(p.device).manual_seed(0)
        gradient = op(torch.rand(shape, generator=draw, dtype=p.dtype, device=p.device))
        fixed = (gradient[place] if isinstance(gradient, tuple) else gradient) == 0
    return fixed


def split(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the part of ``flat`` that belongs to each parameter, in its shape."""
    parts = flat.split([p.numel() for p in parameters])
    return [part.view_as(p) for p, part in zip(parameters, parts, strict=True)]


def flatten_(parameters: list[nn.Parameter]) -> nn.Parameter:
    """Make the parameters views of one vector, and return that vector."""
    if not parameters:
        raise UnsupportedModuleError(NOTHING_TRAINS)
    flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in parameters]))
    rejoin_(flat, parameters)
    return flat


def rejoin_(flat: nn.Parameter, parameters: list[nn.Parameter]) -> None:
    """Make parameters whose data was replaced views of ``flat`` again, with their new values."""
    for p, view in zip(parameters, split(flat.detach(), parameters), strict=True):
        if p.data_ptr() != view.data_ptr() or p.stride() != view.stride():
            p.data = view.copy_(p.detach())


def unflatten_(parameters: list[nn.Parameter]) -> None:
    """Give each parameter its own memory again."""
    for p in parameters:
        p.data = p.detach().clone()


_NAMES = "SGD Adam AdamW RMSprop Adagrad Adadelta Adamax NAdam RAdam"
_ELEMENTWISE = {getattr(torch.optim, name) for name in _NAMES.split()}


def acts_elementwise(optimizer: object) -> bool:
    """Tell whether the optimizer updates each number on its own, and so can act on one vector."""
    return optimizer in _ELEMENTWISE


def flat_optimizer(
    optimizer: type[torch.optim.Optimizer], flat: nn.Parameter, options: dict[str, Any]
) -> torch.optim.Optimizer:
    """Return an optimizer of one vector."""
    is_sgd = optimizer is torch.optim.SGD and not options.get("maximize")
    return (FlatSGD if is_sgd else optimizer)([flat], **options)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr


class FlatSGD(torch.optim.SGD):
    """torch's SGD on one vector, at a fraction of its fixed cost; momentum starts at rest.

    torch takes the first gradient into its momentum undamped; here dampening holds from the
    first step on.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters."""
        # torch's wrapper would import its compiler first: a second, in which small fits are done
        unwrap(torch.optim.Optimizer.add_param_group)(self, param_group)

    @without_grad
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # takes no closure
        """Take one step; the gradient is overwritten where decay or momentum change it."""
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(self._direction(p, group), alpha=-group["lr"])

    # torch would wrap the step to record and to call hooks, which costs more than the step
    step.hooked = True  # type: ignore[attr-defined]  # torch looks for this mark

    def _direction(self, p: Tensor, group: dict[str, Any]) -> Tensor:
        assert p.grad is not None
        direction, momentum = p.grad, group["momentum"]
        if group["weight_decay"]:
            direction = direction.add_(p, alpha=group["weight_decay"])
        if not momentum:
            return direction
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(p)
        buffer = state["momentum_buffer"]
        if group["dampening"] == momentum:
            buffer.lerp_(direction, 1.0 - momentum)
        else:
            buffer.mul_(momentum).add_(direction, alpha=1.0 - group["dampening"])
        step: Tensor = direction.add_(buffer, alpha=momentum) if group["nesterov"] else buffer
        return step
