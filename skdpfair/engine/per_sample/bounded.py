"""Operations that torch runs on any index, here by others that refuse one beyond a record."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from skdpfair.engine.per_sample.stand_ins import NotRecorded


def _embedding(table: Tensor, index: Tensor, *_: Any, **__: Any) -> Tensor:
    return table.index_select(0, index.reshape(-1)).view(*index.shape, table.shape[1])


def _embedding_backward(grad: Tensor, index: Tensor, n: int, padding: int, scale: bool) -> Tensor:
    if scale:
        raise NotRecorded("it divides gradients by counts: leave out scale_grad_by_freq")
    rows = torch.where((index == padding)[..., None], 0.0, grad).reshape(-1, grad.shape[-1])
    return _added(rows, (n, rows.shape[1]), 0, index.reshape(-1, 1).expand_as(rows))


def _index_fill(x: Tensor, axis: int, index: Tensor, value: float) -> Tensor:
    places = (*[None] * (axis % x.dim()), index)
    return torch.ops.aten.index_put(x, places, x.new_full((), value)) if x.dim() else x * 0 + value


def _bag_backward(grad: Tensor, index: Tensor, bag: Tensor, *args: Any) -> Tensor:
    size, largest, n, scale, mode, weight, padding = (*args, -1)[:7]
    if mode == 2:  # the largest numbers, of which an empty bag has none
        rows = torch.where(largest < 0, 0.0, grad)
        return _added(rows, (n, rows.shape[1]), 0, largest.clamp(min=0))
    rows = grad.index_select(0, bag)
    rows = rows / size.index_select(0, bag)[:, None] if mode == 1 else rows
    rows = rows if weight is None else rows * weight[:, None]
    return _embedding_backward(rows, index, n, padding, scale)


def _pool_backward(n_axes: int, grad: Tensor, x: Tensor, *args: Any) -> Tensor:
    planes = (*x.shape[:-n_axes], x.shape[-n_axes:].numel())
    found = _added(grad.flatten(-n_axes), planes, -1, args[-1].flatten(-n_axes))
    return found.view(x.shape)


def _added(values: Tensor, shape: tuple[int, ...], axis: int, index: Tensor) -> Tensor:
    return values.new_zeros(shape).scatter_add(axis, index.long(), values)


_ATEN = torch.ops.aten
BOUNDED: Any = {
    _ATEN.embedding.default: _embedding,
    _ATEN.embedding_dense_backward.default: _embedding_backward,
    _ATEN._embedding_bag_dense_backward.default: _bag_backward,
    _ATEN.index_fill.int_Scalar: _index_fill,
    _ATEN._unsafe_index_put.default: _ATEN.index_put.default,
    _ATEN.max_pool2d_with_indices_backward.default: partial(_pool_backward, 2),
    _ATEN.max_pool3d_with_indices_backward.default: partial(_pool_backward, 3),
    _ATEN.adaptive_max_pool2d_backward.default: partial(_pool_backward, 2),
    _ATEN.adaptive_max_pool3d_backward.default: partial(_pool_backward, 3),
}
