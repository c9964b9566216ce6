"""Operations that are traced as others.

Some read memory beyond a tensor where an index or a size does not fit it: those that take their
place refuse it.  Others draw random numbers that no generator can be given for, or have no rule
for batches.
"""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from skdpfair._utils.torch_internals import get_decompositions
from skdpfair.engine.per_sample.proof.operations import TraceError


def _embedding(table: Tensor, index: Tensor, *_: Any, **__: Any) -> Tensor:
    """Return rows of a table, NaN where it lacks them: such records count for nothing."""
    places = index.clamp(0, len(table) - 1) if table.is_floating_point() else index
    rows = table.index_select(0, places.reshape(-1)).view(*index.shape, table.shape[1])
    return rows if places is index else rows.masked_fill((places != index)[..., None], torch.nan)


def _embedding_backward(grad: Tensor, index: Tensor, n: int, padding: int, scale: bool) -> Tensor:
    if scale:
        raise TraceError("it divides gradients by counts: leave out scale_grad_by_freq")
    rows = torch.where((index == padding)[..., None], 0.0, grad).reshape(-1, grad.shape[-1])
    places = index.clamp(0, n - 1).reshape(-1, 1)
    return _added(rows, (n, rows.shape[1]), 0, places.expand_as(rows))


def _exponential(x: Tensor, rate: float = 1.0, **_: Any) -> Tensor:
    """Return numbers above 0; of the operation itself, vmap draws each record's by themselves."""
    return -torch.log1p(-torch.rand_like(x)).clamp(max=-torch.finfo(x.dtype).eps / 2) / rate


def _index_fill(x: Tensor, axis: int, index: Tensor, value: float) -> Tensor:
    places = (*[None] * (axis % x.dim()), index)
    return torch.ops.aten.index_put(x, places, x.new_full((), value)) if x.dim() else x * 0 + value


def _index_put(x: Tensor, places: Any, values: Tensor, accumulate: bool = False) -> Any:
    """Write one number where a mask says so, which vmap takes for an unknown number of places."""
    mask = places[0] if len(places) == 1 else None
    if mask is None or mask.dtype != torch.bool or values.numel() != 1 or accumulate:
        return NotImplemented
    return torch.where(mask.view(*mask.shape, *[1] * (x.dim() - mask.dim())), values, x)


def _normalised(
    x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, _: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (1, -1, *[1] * (x.dim() - 2))
    scale = (var + eps).rsqrt() * (1.0 if weight is None else weight)
    shift = (0.0 if bias is None else bias) - mean * scale
    return x * scale.view(shape) + shift.view(shape), x.new_empty(0), x.new_empty(0)


def _bag(
    table: Tensor, index: Tensor, offsets: Tensor, scale: bool = False, mode: int = 0,
    _: bool = False, weight: Tensor | None = None, last: bool = False, padding: int = -1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return sums, means or largest numbers of rows; vmap takes torch's bags one by one."""
    starts, at = offsets[:-1] if last else offsets, torch.arange(len(index), device=index.device)
    bag = (at[:, None] >= starts).sum(1).clamp(min=1) - 1
    counts = (index != padding) | (padding < 0)  # -1 stands for no padding
    shape = len(starts), table.shape[1]
    size = starts.new_zeros(len(starts)).index_add(0, bag, counts.to(starts.dtype))
    rows = _embedding(table, index)
    # a record whose offsets torch would refuse counts for nothing
    are_in_order = (starts[:1] == 0).all() & (starts.diff() >= 0).all()
    rows = rows.masked_fill(~(are_in_order & (starts <= len(index)).all()), torch.nan)
    if mode == 2:
        rows = rows.masked_fill(~counts[:, None], -torch.inf)
        bags = bag[:, None].expand_as(rows)
        largest = rows.new_full(shape, -torch.inf).scatter_reduce(0, bags, rows, "amax")
        is_largest = (rows == largest.index_select(0, bag)) & counts[:, None]
        first = torch.where(is_largest, at[:, None], len(index))
        first = first.new_full(shape, len(index)).scatter_reduce(0, bags, first, "amin")
        is_empty = size[:, None] == 0
        codes = index.index_select(0, first.clamp(max=len(index) - 1).flatten()).view(shape)
        return largest.masked_fill(is_empty, 0.0), bag, size, codes.masked_fill(is_empty, -1)
    rows = rows if weight is None else rows * weight[:, None]
    total = rows.new_zeros(shape).index_add(0, bag, rows.masked_fill(~counts[:, None], 0.0))
    mean = total / size.clamp(min=1)[:, None] if mode == 1 else total
    return mean, bag, size, size


def _trilinear(
    a: Tensor, b: Tensor, c: Tensor, of_a: Sequence[int], of_b: Sequence[int],
    of_c: Sequence[int], summed: Sequence[int], _: int = 1,
) -> Tensor:  # fmt: skip
    """Return a sum of products; vmap takes torch's own one record after the other."""
    axes = range(a.dim() + len(of_a))
    of = [[axis for axis in axes if axis not in out] for out in (of_a, of_b, of_c, summed)]
    left = [axis for axis in of[3] if axis not in of[2]]
    if of[2] == [0, *of[3][len(left) :]] and 0 in of[0] and 0 in of[1]:  # a weight's, over rows
        pairs = torch.einsum(a, of[0], b, of[1], [0, *left])
        return (pairs.flatten(1).mT @ c.flatten(1)).view(pairs.shape[1:] + c.shape[1:])
    total: Tensor = torch.einsum(a, of[0], b, of[1], c, of[2], of[3])
    return total


def _bag_backward(grad: Tensor, index: Tensor, bag: Tensor, *args: Any) -> Tensor:
    size, largest, n, scale, mode, weight, padding = (*args, -1)[:7]
    # the largest numbers, of which an empty bag has none
    if mode == 2:
        rows = torch.where(largest < 0, 0.0, grad)
        return _added(rows, (n, rows.shape[1]), 0, largest.clamp(min=0))
    rows = grad.index_select(0, bag)
    rows = rows / size.clamp(min=1).index_select(0, bag)[:, None] if mode == 1 else rows
    rows = rows if weight is None else rows * weight[:, None]
    return _embedding_backward(rows, index, n, padding, scale)


def _pool_backward(n_axes: int, grad: Tensor, x: Tensor, *args: Any) -> Tensor:
    planes = (*x.shape[:-n_axes], x.shape[-n_axes:].numel())
    total = _added(grad.flatten(-n_axes), planes, -1, args[-1].flatten(-n_axes))
    return total.view(x.shape)


def _convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias_shape: Any, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, of_output: Sequence[int],
    groups: int, wanted: Sequence[bool],
) -> Any:  # fmt: skip
    """Take the derivative in the weight by a product of the windows of the input."""
    if not (wanted[1] and _copies_windows(x)) or transposed or len(x) > 1:
        return NotImplemented
    settings = stride, padding, dilation, transposed, of_output, groups
    mask = [wanted[0], False, wanted[2]]
    others = _ATEN.convolution_backward(grad, x, weight, bias_shape, *settings, mask)
    axes = range(2, x.dim())
    windows = pad(x, [width for width in reversed(padding) for _ in range(2)])
    for axis in axes:
        k, step = weight.shape[axis], dilation[axis - 2]
        windows = windows.unfold(axis, step * (k - 1) + 1, stride[axis - 2])[..., ::step]
    kernel = range(x.dim(), windows.dim())
    windows = windows.permute(*axes, 0, 1, *kernel).reshape(-1, groups, weight[0].numel())
    rows = grad.reshape(groups, -1, len(windows))
    return others[0], torch.bmm(rows, windows.transpose(0, 1)).view(weight.shape), others[2]


def _copies_windows(x: Tensor) -> bool:
    # cuDNN takes the groups that vmap makes of records one by one: 5 to 10 times slower
    return x.is_cuda


def _added(values: Tensor, shape: tuple[int, ...], axis: int, index: Tensor) -> Tensor:
    return values.new_zeros(shape).scatter_add(axis, index.long(), values)


def _layer_norm_backward(
    grad: Tensor, x: Tensor, shape: Sequence[int], mean: Tensor, rstd: Tensor,
    weight: Tensor | None, *rest: Any,
) -> Any:  # fmt: skip
    """Leave the operation as it is only if its tensors have the sizes that it reads."""
    sizes_match = grad.shape == x.shape and list(x.shape[-len(shape) :]) == list(shape)
    scaled = weight is None or weight.numel() == prod(shape)
    n_rows = x.numel() / max(prod(shape), 1)
    if sizes_match and scaled and mean.numel() == rstd.numel() == n_rows:
        return NotImplemented
    return _OF_TORCH[_LAYER](grad, x, shape, mean, rstd, weight, *rest)


_ATEN = torch.ops.aten
_LAYER = _ATEN.native_layer_norm_backward.default
_OF_TORCH: Any = get_decompositions(
    [
        _ATEN.native_dropout,
        _ATEN.mish_backward,
        _ATEN._weight_norm_interface,
        _ATEN.unfold_backward,
        _ATEN._native_batch_norm_legit,
        _ATEN.native_batch_norm_backward,
        _ATEN.native_group_norm_backward,
        _ATEN.native_layer_norm_backward,
    ]
)
DECOMPOSED: Any = {
    _ATEN.copy.default: lambda old, new, _=False: new.to(old.dtype).expand(old.shape).clone(),
    _ATEN.vdot.default: lambda a, b: a.conj().dot(b),
    _ATEN.addbmm.default: lambda x, a, b, *, beta=1, alpha=1: beta * x + alpha * (a @ b).sum(0),
    _ATEN.exponential.default: _exponential,
    _ATEN.fill.Scalar: lambda old, value: torch.full_like(old, value),
    **_OF_TORCH,
    _ATEN._weight_norm_interface_backward.default: _ATEN._weight_norm_differentiable_backward,
    _LAYER: _layer_norm_backward,
    _ATEN.convolution_backward.default: _convolution_backward,
    _ATEN.embedding.default: _embedding,
    _ATEN.embedding_dense_backward.default: _embedding_backward,
    _ATEN._embedding_bag.default: _bag,
    _ATEN._embedding_bag_forward_only.default: _bag,
    _ATEN._embedding_bag_dense_backward.default: _bag_backward,
    _ATEN._embedding_bag_per_sample_weights_backward.default: (
        lambda grad, table, index, _, bag, __, padding=-1: (
            (grad.index_select(0, bag) * _embedding(table, index)).sum(1)
            * ((index != padding) | (padding < 0))
        )
    ),
    _ATEN._embedding_bag_backward.default: lambda grad, index, _, *args: _bag_backward(
        grad, index, *args[:6], *args[7:]
    ),
    _ATEN._trilinear.default: _trilinear,
    _ATEN._native_batch_norm_legit_no_training.default: _normalised,
    _ATEN.index_fill.int_Scalar: _index_fill,
    _ATEN._unsafe_index_put.default: _ATEN.index_put.default,
    _ATEN.index_put.default: _index_put,
    _ATEN.max_pool2d_with_indices_backward.default: partial(_pool_backward, 2),
    _ATEN.max_pool3d_with_indices_backward.default: partial(_pool_backward, 3),
    _ATEN.adaptive_max_pool2d_backward.default: partial(_pool_backward, 2),
    _ATEN.adaptive_max_pool3d_backward.default: partial(_pool_backward, 3),
}
