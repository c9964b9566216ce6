"""Prediction with a trained module, and the net that pickles and releases hold."""

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import nn
from torch.nn.functional import embedding_bag, linear, softmax

from skdpfair._networks import FineColumns, fine_columns_of
from skdpfair._utils.files import sha256_of
from skdpfair.engine import select_strategy
from skdpfair.engine.per_sample import ClosedForm, Strategy, forward_of, linear_layers
from skdpfair.engine.per_sample.proof import TraceError
from skdpfair.engine.precision import full_precision
from skdpfair.engine.sparse_rows import SparseBatch
from skdpfair.inputs.rows import LateRows, Rows, SparseRows, select

_MAX_NUMBERS = 2**26  # in a batch
_ROWS = 2**16  # with knots, made at a time
# of linear models, which make few numbers of many: with 2**12 rows, calls took a quarter longer
_LINEAR_BATCH = 2**14


def logits(module: nn.Module, x: Rows, device: str | torch.device = "cpu") -> np.ndarray:
    """Return logits (n, n_classes), float64, of an array, in batches on ``device``.

    Batches of wide rows are smaller.

    A copy of the module predicts, which shares the parameters: what its code may keep of the rows,
    in buffers or attributes, is gone with it.
    """
    module = copy.deepcopy(module, {id(p): p for p in module.parameters()}).eval()
    if isinstance(x, SparseRows):
        with suppress(TraceError):  # else rows are made dense, some at a time
            chain = linear_layers(module, torch.zeros(1, *x.shape[1:]))
            return _in_batches(partial(forward_of, chain), x, device, stays_sparse=True)
    if (predict := _linear_model(module)) is not None:
        return predict(x, device)
    return _in_batches(lambda part: module(part.contiguous()), x, device)


def _linear_model(module: nn.Module) -> Callable[[Rows, str | torch.device], np.ndarray] | None:
    """Return what predicts by a linear model, of fine columns too; None for other modules.

    The sum of the knots of a column is linear between its values at the finest knots, so that it
    takes two lookups in a table of these, and a pair takes one.
    """
    fine, parts = fine_columns_of(module), list(module.modules())
    last, n_parts = parts[-1], 1 if fine is None else 3  # the Sequential, fine columns, a Linear
    is_plain = type(last) is nn.Linear and last.bias is not None
    # what somebody hangs on a module runs as it is written
    changed = ("forward" in vars(m) or m._forward_hooks or m._forward_pre_hooks for m in parts)
    if not is_plain or len(parts) != n_parts or any(changed):
        return None
    assert isinstance(last, nn.Linear)
    if last.weight.dtype != torch.float32 or type(module) not in (nn.Linear, nn.Sequential):
        return None
    n_features = last.in_features if fine is None else fine.n_features
    weight, bias = last.weight.detach()[:, :n_features].contiguous(), last.bias.detach()
    # without a weight, what is not finite in a column may not show: some products leave out zeros
    shows_all = bool((weight != 0).any(0).all())
    predict = partial(_in_batches, batch_size=_LINEAR_BATCH, shows_all=shows_all)
    if fine is None or fine.n_more == 0:
        return partial(predict, lambda x: _product(x, weight, bias))
    columns, n, more = fine.columns.tolist(), int(fine.n_intervals[-1]), last.weight.detach().t()
    more = more[n_features:]  # (column, class)
    ends = torch.linspace(-1, 1, n + 1, dtype=weight.dtype, device=weight.device)
    at, values = fine.knots(ends[:, None].expand(-1, n_features))
    hats = more[at].double() * values.double()[..., None]
    # of (end, column and J, class) the sums over J, a table for each column
    sums = hats.unflatten(1, (len(columns), len(fine.n_intervals))).sum(2).transpose(0, 1)
    tables = torch.cat([sums.flatten(0, 1).to(weight.dtype), more[fine.n_knots :]])
    start = torch.arange(len(columns), device=weight.device) * (n + 1)
    first_cell = len(columns) * (n + 1) - fine.n_knots

    def forward(x: torch.Tensor) -> torch.Tensor:
        index, weights = [], []
        if columns:
            place = torch.stack([x[:, i] for i in columns], 1).add_(1).clamp_(0, 2).mul_(n / 2)
            left = place.long().clamp_(0, n - 1)  # an end for NaN, which its share carries on
            share, left = place - left, left + start
            index, weights = [left, left + 1], [1 - share, share]
        if fine.pairs:
            cells, has_values = fine.cells(x)
            index, weights = [*index, cells + first_cell], [*weights, has_values.to(x.dtype)]
        shares = torch.cat(weights, 1)
        more = embedding_bag(torch.cat(index, 1), tables, mode="sum", per_sample_weights=shares)
        return _product(x, weight, bias) + more

    return partial(predict, forward)


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    is_by_column = x.stride(0) < x.stride(1)  # as in a DataFrame
    return (weight @ x.t()).t() + bias if is_by_column else linear(x, weight, bias)


def private_prediction(
    module: nn.Module, in_shape: Sequence[int], n_classes: int, device: str | torch.device
) -> Strategy:
    """Return what computes the logits of private records: each from its own record alone.

    The code of the module sees a made-up record only. Its operations are repeated on a copy of the
    module for prediction, so that no record can leave traces in weights or buffers.  A module that
    mixes records when it predicts is refused.
    """
    example = torch.zeros((1, *in_shape), dtype=torch.float32, device=device)
    return select_strategy(copy.deepcopy(module).eval(), example, n_classes)


def private_logits(
    module: nn.Module, x: Rows, n_classes: int, device: str | torch.device = "cpu"
) -> np.ndarray:
    """Return logits (n, n_classes), float64, of private records, see `private_prediction`."""
    predict = None if isinstance(x, SparseRows) else _linear_model(module)
    if predict is not None:  # by formulas, each record by itself
        return predict(x, device)
    fine = fine_columns_of(module)
    x = x if fine is None else with_fine_columns(fine, x)
    with private_prediction(module, x.shape[1:], n_classes, device) as strategy:
        stays_sparse = isinstance(x, SparseRows) and isinstance(strategy, ClosedForm)
        return _in_batches(strategy.forward, x, device, stays_sparse=stays_sparse)


def with_fine_columns(fine: FineColumns, x: Any) -> Rows:
    """Return rows with the columns that are appended; sparse where these are many."""
    fine, parts = copy.deepcopy(fine).cpu(), []
    # a stored number takes as long as several of a dense row
    is_dense = fine.n_more <= fine.n_features
    dense = np.empty((len(x), fine.width) if is_dense else 0, np.float32)
    for start in range(0, len(x), _ROWS):
        rows = select(x, slice(start, start + _ROWS))
        if is_dense:
            dense[start : start + _ROWS] = fine(torch.from_numpy(rows)).numpy()
            continue
        at, values = (part.numpy() for part in fine.stored(torch.from_numpy(rows)))
        n, each = at.shape
        first = np.arange(0, n * each + 1, each)
        more = sparse.csr_array((values.ravel(), at.ravel(), first), shape=(n, fine.n_more))
        more.eliminate_zeros()
        parts.append(sparse.hstack([sparse.csr_array(rows), more], format="csr"))
    return dense if is_dense else SparseRows(sparse.vstack(parts))


def _in_batches(
    forward: Callable[[Any], torch.Tensor],
    x: Rows,
    device: str | torch.device,
    batch_size: int = 4096,
    *,
    stays_sparse: bool = False,
    shows_all: bool = False,
) -> np.ndarray:
    """Return outputs; ``shows_all`` if no output is finite where the row is not."""

    def fetched(rows: slice) -> Any:
        if stays_sparse and isinstance(x, SparseRows):
            return SparseBatch.of(x.matrix[rows], device)
        if isinstance(x, LateRows):
            part = x.into(memory, rows, is_checked=not shows_all)
        else:
            part = select(x, rows)
        return torch.from_numpy(part).to(device)

    with full_precision(device), torch.no_grad():
        width = x.n_stored if stays_sparse and isinstance(x, SparseRows) else math.prod(x.shape[1:])
        batch_size = min(batch_size, max(1, _MAX_NUMBERS // width))
        batches = [slice(s, s + batch_size) for s in range(0, max(len(x), 1), batch_size)]
        # used again, which is faster than new memory
        memory = np.empty(batch_size * width, np.float32) if isinstance(x, LateRows) else None
        outputs = torch.cat([forward(fetched(rows)).cpu().double() for rows in batches])
        if shows_all and isinstance(x, LateRows) and not bool(outputs.isfinite().all()):
            for rows in batches:
                x[rows]  # raises
        # a record so large that float32 overflows still gets an answer
        return outputs.nan_to_num_(nan=0.0, posinf=1e38, neginf=-1e38).numpy()


def tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name, those that no ``state_dict`` holds among them."""
    # a tied parameter has several names
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False))


def weights_of(net: Any) -> dict[str, np.ndarray]:
    """Return the state of a net's module as arrays by name, sharing no memory with it."""
    module = net.module_
    tensors = tensors_of(module)
    state = {name: v for name, v in module.state_dict().items() if name in tensors}
    return {name: v.detach().cpu().numpy().copy() for name, v in state.items()}


def frozen_numbers(net: Any) -> tuple[int, str]:
    """Return how many numbers of a net's weights do not train, and their SHA-256.

    These are frozen parameters and all buffers, such as running statistics.
    """
    named = net.module_.named_parameters(remove_duplicate=False)
    trained = {name for name, p in named if p.requires_grad}
    frozen = {name: w for name, w in weights_of(net).items() if name not in trained}
    return sum(w.size for w in frozen.values()), sha256_of(frozen)


class InferenceNet:
    """A net that can only predict, as pickles and releases hold it: a factory and its weights."""

    def __init__(self, module: Callable[[], nn.Module], weights: dict[str, np.ndarray]) -> None:
        self.module, self.weights = module, weights
        with full_precision(), torch.random.fork_rng(devices=[]):
            self.module_ = module()
            self.module_.load_state_dict({k: torch.tensor(v) for k, v in weights.items()})
        self.module_.eval()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.module, self.weights)

    def logits(self, x: Rows) -> np.ndarray:
        """Return logits (n, n_classes), float64."""
        return logits(self.module_, x, "cpu")

    def predict_proba(self, x: Rows) -> np.ndarray:
        """Return class probabilities (n, n_classes)."""
        return softmax(torch.as_tensor(self.logits(x)), 1).numpy()
