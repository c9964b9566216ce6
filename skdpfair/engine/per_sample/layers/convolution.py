"""Convolutions: the gradients of all records by one grouped convolution, or products on a GPU."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight

from skdpfair._utils.torch_internals import Convolution
from skdpfair.engine.per_sample.layers.grad_sampler import RowsGradSampler, register_grad_sampler

_CONVOLUTIONS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Conv1d: conv1d_weight,
    nn.Conv2d: conv2d_weight,
    nn.Conv3d: conv3d_weight,
}


@register_grad_sampler(*_CONVOLUTIONS, takes=lambda module, n_axes: n_axes == module.weight.dim())
class ConvGradSampler(RowsGradSampler):
    """A convolution: the gradient of each record by its own correlation of input and output."""

    module: Convolution

    def __init__(self, module: Convolution, a: Tensor, b: Tensor) -> None:
        super().__init__(module, a, b)
        if self.bias_trains:
            self.bias_rows = b.flatten(2).sum(2)
        if self.weight_trains:
            # cuDNN takes groups one by one: 5 to 10 times slower than products of copied windows,
            # which are the slower way on a CPU
            correlate = _by_windows if b.is_cuda else _by_groups
            self.rows = correlate(module, *self._padded(a), b)

    def _padded(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Return the input and what is left to pad with zeros on both sides."""
        module = self.module
        if module.padding_mode == "zeros" and not isinstance(module.padding, str):
            return x, module.padding
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        x = F.pad(x, module._reversed_padding_repeated_twice, mode=mode)
        return x, (0,) * (x.dim() - 2)


def _by_groups(module: Convolution, a: Tensor, padding: tuple[int, ...], b: Tensor) -> Tensor:
    """Return the gradient of each record, by one convolution with a group for each record."""
    n = len(b)
    return _CONVOLUTIONS[type(module)](
        a.reshape(1, -1, *a.shape[2:]),
        (n * module.out_channels, *module.weight.shape[1:]),
        b.reshape(1, -1, *b.shape[2:]),
        stride=module.stride,
        padding=padding,
        dilation=module.dilation,
        groups=n * module.groups,
    ).view(n, -1)


def _by_windows(module: Convolution, a: Tensor, padding: tuple[int, ...], b: Tensor) -> Tensor:
    """Return the gradient of each record, by a product of the windows of its outputs and ``b``."""
    n, axes = len(b), range(2, b.dim())
    a = F.pad(a, [width for width in reversed(padding) for _ in range(2)])
    for axis in axes:
        k, stride, step = (
            v[axis - 2] for v in (module.kernel_size, module.stride, module.dilation)
        )
        a = a.unfold(axis, step * (k - 1) + 1, stride)[..., ::step]
    a = a.reshape(n * module.groups, -1, *a.shape[2:])
    kernel = range(b.dim(), a.dim())
    windows = a.permute(0, 1, *kernel, *axes).flatten(len(kernel) + 2).flatten(1, -2)
    return torch.bmm(b.reshape(len(a), -1, windows.shape[-1]), windows.mT).view(n, -1)
