"""Convolutions: the gradients of all records by one grouped convolution."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight
from torch.nn.modules.conv import _ConvNd

from skdpfair.engine.per_sample.layers.grad_sampler import RowsGradSampler, register_grad_sampler

_CONVOLUTIONS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Conv1d: conv1d_weight,
    nn.Conv2d: conv2d_weight,
    nn.Conv3d: conv3d_weight,
}


@register_grad_sampler(*_CONVOLUTIONS, takes=lambda module, n_axes: n_axes == module.weight.dim())
class ConvGradSampler(RowsGradSampler):
    """A convolution: all records' gradients by one convolution with a group for each record."""

    module: _ConvNd

    def __init__(self, module: _ConvNd, a: Tensor, b: Tensor) -> None:
        super().__init__(module, a, b)
        if self.bias_trains:
            self.bias_rows = b.flatten(2).sum(2)
        if self.weight_trains:
            a, padding = self._padded(a)
            n = len(b)
            self.rows = _CONVOLUTIONS[type(module)](
                a.reshape(1, -1, *a.shape[2:]),
                (n * module.out_channels, *module.weight.shape[1:]),
                b.reshape(1, -1, *b.shape[2:]),
                stride=module.stride,
                padding=padding,
                dilation=module.dilation,
                groups=n * module.groups,
            ).view(n, -1)

    def _padded(self, x: Tensor) -> tuple[Tensor, int | tuple[int, ...]]:
        """Return the input and what is left to pad with zeros on both sides."""
        module = self.module
        if module.padding_mode == "zeros" and not isinstance(module.padding, str):
            return x, module.padding
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        return F.pad(x, module._reversed_padding_repeated_twice, mode=mode), 0
