"""A module at its parameters, records and groups: what every analysis starts from."""

import copy
import warnings
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from sklearn.exceptions import UndefinedMetricWarning
from torch import Tensor, nn

from skdpfair import _validate
from skdpfair.analysis._inputs import (
    codes,
    first_parameter,
    loss_weights_of,
    n_outputs,
    of_estimator,
    tensor_of,
)
from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.flat import split
from skdpfair.engine.memory import ACTIVATION_BUDGET, affordable_batch
from skdpfair.inputs import groups
from skdpfair.inputs.streaming import as_rows

_FEWEST = 8  # records of a chunk, unless memory holds fewer
_CACHED = 12_000_000  # floats of a chunk that a processor keeps at hand: a third faster on images
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Problem:
    """What an analysis looks at; private, and it keeps the records.

    Parameters
    ----------
    module : torch.nn.Module
        A copy in evaluation mode.
    batch : Batch
        All records.
    levels : list
        The groups, by code.
    n_classes : int
        Number of outputs.
    class_weight : Tensor of shape (n_classes,) or None
        Factors of the loss.
    chunk : int
        Records held in memory at once.
    """

    module: nn.Module
    batch: Batch
    levels: list
    n_classes: int
    class_weight: Tensor | None
    chunk: int

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.levels)

    @cached_property
    def sizes(self) -> Tensor:
        """Number of records of each group, shape (n_groups,)."""
        return torch.bincount(self.batch.group, minlength=self.n_groups)

    @cached_property
    def absent(self) -> np.ndarray:
        """Which groups have no record, shape (n_groups,)."""
        return (self.sizes == 0).cpu().numpy()

    @cached_property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters that train."""
        return [p for p in self.module.parameters() if p.requires_grad]

    @property
    def n_parameters(self) -> int:
        """How many numbers train."""
        return sum(p.numel() for p in self.parameters)

    def strategy(self):
        """Return the context in which per-record gradients are taken."""
        return select_strategy(self.module, self.batch.x[:1], self.n_classes, self.class_weight)

    def chunks(self) -> list[Batch]:
        """Return the records in parts that fit in memory."""
        return self.batch.split(self.chunk)

    @cached_property
    def sorted(self) -> Batch:
        """The records, group by group."""
        return self.batch.select(torch.argsort(self.batch.group, stable=True))

    def ranges(self, part: Batch) -> list[tuple[int, slice, float]]:
        """Return where the groups of a sorted part lie, and one over each group's size."""
        codes, counts = part.group.unique_consecutive(return_counts=True)
        ends = counts.cumsum(0).tolist()
        return [
            (k, slice(end - n, end), 1.0 / self._sizes[k])
            for k, n, end in zip(codes.tolist(), counts.tolist(), ends, strict=True)
        ]

    @cached_property
    def _sizes(self):
        return self.sizes.tolist()

    def of_group(self, k: int) -> "Problem":
        """Return the problem of one group alone."""
        start = sum(self._sizes[:k])
        rows = slice(start, start + self._sizes[k])
        group = torch.zeros_like(self.sorted.group[rows])
        batch = Batch(self.sorted.x[rows], self.sorted.y[rows], group)
        return replace(self, batch=batch, levels=[self.levels[k]])

    def loss(self, batch: Batch) -> Tensor:
        """Return each record's loss, shape (batch,), with its graph."""
        loss = nn.functional.cross_entropy(self.module(batch.x), batch.y, reduction="none")
        return loss if self.class_weight is None else loss * self.class_weight[batch.y]

    def unflat(self, vector: Tensor) -> list[Tensor]:
        """Return the parts of a flat vector, in the parameters' shapes."""
        return split(vector.to(self.parameters[0]), self.parameters)

    def of_each_group(self, n: int | None, rng) -> "Problem":
        """Return the problem on at most ``n`` records of each group, drawn at random."""
        if n is None or int(self.sizes.max()) <= n:
            return self
        code = self.batch.group.cpu().numpy()
        parts = [np.flatnonzero(code == k) for k in range(self.n_groups)]
        drawn = [rng.choice(part, min(n, len(part)), replace=False) for part in parts]
        index = torch.from_numpy(np.sort(np.concatenate(drawn))).to(self.batch.y.device)
        return replace(self, batch=self.batch.select(index))


def problem(model, X, y, *, sensitive_features=None, chunk_size="auto", dtype="float64") -> Problem:
    """Read what a user hands in: an estimator or a module, records, groups."""
    kind = None if dtype is None else _DTYPES[_validate.one_of("dtype", dtype, _DTYPES)]
    if isinstance(model, nn.Module):
        module, x, classes, weight = _of_module(model, X)
        labels = codes(x, y, np.arange(classes))
        found = groups.encode(
            X, labels, group_col=None, groups=None, sensitive_features=sensitive_features
        )
        levels = found.levels
    else:
        live, x, labels = of_estimator(model, X, y)
        module, classes = copy.deepcopy(live).eval(), len(model.classes_)
        like = next(module.parameters())
        x = torch.from_numpy(as_rows(x, slice(None))).to(like.device, like.dtype)
        weight = loss_weights_of(model)
        found, levels = _groups_of(model, X, y, sensitive_features)
    if kind is not None:
        module, x = module.to(kind), x.to(kind)
    group = torch.from_numpy(found.code).to(x.device)
    batch = Batch(x, torch.from_numpy(labels.astype(np.int64)).to(x.device), group)
    made = of_tensors(module, batch, classes, weight, levels, chunk_size)
    if made.absent.any():
        warnings.warn(
            "X holds no record of some of the groups: all about them is NaN.",
            UndefinedMetricWarning,
            stacklevel=3,
        )
    return made


def of_tensors(module, batch, n_classes, class_weight, levels, chunk_size="auto") -> Problem:
    """Return the problem of a module that may be kept, and tensors that fit it."""
    like = next(module.parameters())
    if class_weight is not None:
        class_weight = torch.as_tensor(class_weight, dtype=like.dtype, device=like.device)
    if _validate.is_auto(chunk_size):
        chunk = affordable_batch(module, batch.x[:1])
        if like.device.type == "cpu":
            chunk = min(chunk, max(_FEWEST, chunk * _CACHED // ACTIVATION_BUDGET))
    else:
        chunk = _validate.integer("chunk_size", chunk_size)
    names = ["all"] if levels is None else list(levels)
    return Problem(module, batch, names, n_classes, class_weight, chunk)


def _of_module(model, X):
    module = copy.deepcopy(model).eval()
    x = tensor_of(X, first_parameter(module))
    return module, x, n_outputs(module, x), None


def _groups_of(model, X, y, sensitive_features):
    """Return the codes of the estimator's groups, or of those given where it has none."""
    group_col = model.group_col if sensitive_features is None else None
    declared = model.groups_ if group_col is not None or sensitive_features is not None else None
    if declared is not None:
        declared = list(declared)
    found = groups.encode(
        X,
        np.asarray(y),
        group_col=group_col,
        groups=declared,
        sensitive_features=sensitive_features,
    )
    if model.groups_ is not None and found.levels is None:
        raise ValueError(
            "The estimator was fitted with sensitive_features, which must be given here, too."
        )
    return found, found.levels
