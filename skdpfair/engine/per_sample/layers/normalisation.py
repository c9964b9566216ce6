"""Layers that normalise each record on its own, then scale and shift."""

import abc
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.instancenorm import _InstanceNorm

from skdpfair.engine.per_sample.layers.grad_sampler import RowsGradSampler, register_grad_sampler


class ScaleGradSampler(RowsGradSampler):
    """A layer that normalises each record, then scales and shifts it by its parameters."""

    @abc.abstractmethod
    def _normal(self, x: Tensor) -> Tensor:
        """Return the normalised input, before scale and shift."""

    @abc.abstractmethod
    def _summed(self, x: Tensor) -> Tensor:
        """Return the sums (batch, n) of what belongs to each of the n parameters."""

    def __init__(self, module: nn.Module, a: Tensor, b: Tensor) -> None:
        super().__init__(module, a, b)
        if self.weight_trains:
            self.rows = self._summed(b * self._normal(a))
        if self.bias_trains:
            self.bias_rows = self._summed(b)


def _behind_the_batch(module: nn.LayerNorm, n_axes: int) -> bool:
    return n_axes > len(module.normalized_shape)


@register_grad_sampler(nn.LayerNorm, fits=lambda m: m.elementwise_affine, takes=_behind_the_batch)
class LayerNormGradSampler(ScaleGradSampler):
    """A LayerNorm: one parameter for each number of the last axes."""

    module: nn.LayerNorm

    def _normal(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.module.normalized_shape, eps=self.module.eps)

    def _summed(self, x: Tensor) -> Tensor:
        shape = self.module.normalized_shape
        return x.reshape(len(x), -1, *shape).sum(1).flatten(1)


@register_grad_sampler(
    nn.GroupNorm, fits=lambda m: m.affine, takes=lambda module, n_axes: n_axes >= 2
)
class GroupNormGradSampler(ScaleGradSampler):
    """A GroupNorm: one parameter for each channel."""

    module: nn.GroupNorm

    def _normal(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.module.num_groups, eps=self.module.eps)

    def _summed(self, x: Tensor) -> Tensor:
        return x.flatten(2).sum(2) if x.dim() > 2 else x


def _instance_norm_fits(module: _InstanceNorm) -> bool:
    return module.affine and not module.track_running_stats


_INSTANCE_NORMS = {nn.InstanceNorm1d: 3, nn.InstanceNorm2d: 4, nn.InstanceNorm3d: 5}


@register_grad_sampler(
    *_INSTANCE_NORMS,
    fits=_instance_norm_fits,
    takes=lambda module, n_axes: n_axes == _INSTANCE_NORMS[type(module)],
)
class InstanceNormGradSampler(GroupNormGradSampler):
    """An InstanceNorm: one parameter for each channel."""

    module: Any

    def _normal(self, x: Tensor) -> Tensor:
        return F.instance_norm(x, eps=self.module.eps)
