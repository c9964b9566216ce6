"""Layers that normalise each record on its own, then scale and shift."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from skdpfair.engine.per_sample.layers.grad_sampler import RowsGradSampler, register_grad_sampler

_INSTANCE_NORMS: dict[Any, int] = {nn.InstanceNorm1d: 3, nn.InstanceNorm2d: 4, nn.InstanceNorm3d: 5}


def _takes(module: Any, n_axes: int) -> bool:
    if isinstance(module, nn.LayerNorm):
        return n_axes > len(module.normalized_shape)
    n_expected = _INSTANCE_NORMS.get(type(module))
    return n_axes >= 2 if n_expected is None else n_axes == n_expected


def _fits(module: Any) -> bool:
    scales = module.elementwise_affine if isinstance(module, nn.LayerNorm) else module.affine
    return scales and not getattr(module, "track_running_stats", False)


def _normalised(module: Any, x: Tensor) -> Tensor:
    if isinstance(module, nn.LayerNorm):
        return F.layer_norm(x, module.normalized_shape, eps=module.eps)
    if isinstance(module, nn.GroupNorm):
        return F.group_norm(x, module.num_groups, eps=module.eps)
    return F.instance_norm(x, eps=module.eps)


@register_grad_sampler(nn.LayerNorm, nn.GroupNorm, *_INSTANCE_NORMS, fits=_fits, takes=_takes)
class ScaleGradSampler(RowsGradSampler):
    """A layer that normalises each record, then scales and shifts it by its parameters."""

    def __init__(self, module: Any, a: Tensor, b: Tensor) -> None:
        super().__init__(module, a, b)
        if self.weight_trains:
            self.rows = self._summed(b * _normalised(module, a))
        if self.bias_trains:
            self.bias_rows = self._summed(b)

    def _summed(self, x: Tensor) -> Tensor:
        """Return the sums (batch, n) of what belongs to each of the n parameters."""
        if isinstance(self.module, nn.LayerNorm):
            return x.reshape(len(x), -1, *self.module.normalized_shape).sum(1).flatten(1)
        return x.flatten(2).sum(2) if x.dim() > 2 else x
