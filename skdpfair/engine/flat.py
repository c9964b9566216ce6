"""All trainable parameters as one vector, and an SGD that steps on it."""

from collections.abc import Callable
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from skdpfair.engine.precision import without_grad
from skdpfair.exceptions import UnsupportedModuleError

NOTHING_TRAINS = (
    "module has no trainable parameter. Add a layer that trains, or let its last one train by "
    "layer.requires_grad_(True); skdpfair.features.FrozenFeatures computes features by a frozen "
    "network."
)


def split(flat: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """Return the part of ``flat`` that belongs to each parameter, in its shape."""
    parts = flat.split([p.numel() for p in parameters])
    return [part.view_as(p) for p, part in zip(parameters, parts, strict=True)]


def flatten_(parameters: list[nn.Parameter]) -> nn.Parameter:
    """Make the parameters views of one vector, and return that vector."""
    if any(isinstance(p, UninitializedParameter) for p in parameters):
        raise UnsupportedModuleError(
            "module has lazy layers, whose sizes are unknown before data pass through. Give the "
            "sizes, by module_params for instance."
        )
    if not parameters:
        raise UnsupportedModuleError(NOTHING_TRAINS)
    places = [p.data_ptr() for p in parameters if p.numel()]
    if len(set(places)) < len(places):
        raise UnsupportedModuleError(
            "module has different parameters that share memory; tie them by using one parameter "
            "in both places."
        )
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
    plain = optimizer is torch.optim.SGD and not options.get("maximize")
    made: Callable[..., torch.optim.Optimizer] = FlatSGD if plain else optimizer
    return made([flat], **options)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate; a tensor is overwritten in place."""
    for group in optimizer.param_groups:
        if torch.is_tensor(group["lr"]):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def other_options(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the options, besides the learning rate, that an optimizer's steps depend on."""
    without = ("params", "lr", "initial_lr")
    return [{k: v for k, v in g.items() if k not in without} for g in optimizer.param_groups]


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
                direction, lr = self._direction(p, group), group["lr"]
                if torch.is_tensor(lr):
                    p.addcmul_(direction, lr, value=-1.0)
                else:
                    p.add_(direction, alpha=-lr)

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
        found: Tensor = direction.add_(buffer, alpha=momentum) if group["nesterov"] else buffer
        return found
