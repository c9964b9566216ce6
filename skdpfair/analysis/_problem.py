"""The module, records and groups of an analysis, checked and as tensors."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.losses import Loss
from skdpfair.engine.memory import ACTIVATION_BUDGET, affordable_batch
from skdpfair.training.batches import records_at

_MIN_CHUNK = 8  # records, unless memory holds fewer
_CACHED = 12_000_000  # floats of a chunk that a processor keeps at hand: a third faster on images


@dataclass(frozen=True)
class Problem:
    """A module, records and their groups; private, as it keeps the records."""

    module: nn.Module  # a copy in evaluation mode
    batch: Batch  # all records
    levels: list  # the groups, by code
    n_classes: int
    chunk: int  # records held in memory at once
    criterion: Loss | None = None  # of a regression

    @property
    def n_groups(self) -> int:
        return len(self.levels)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of records of each group, shape (n_groups,)."""
        return torch.bincount(self.batch.group, minlength=self.n_groups).cpu().numpy()

    @property
    def absent(self) -> np.ndarray:
        """Flags of groups without a record, shape (n_groups,)."""
        return self.sizes == 0

    @cached_property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters that train."""
        return [p for p in self.module.parameters() if p.requires_grad]

    @property
    def n_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters)

    @property
    def index(self) -> pd.Index:
        """The groups as the index of a table."""
        return pd.Index(self.levels, name="group", tupleize_cols=False)

    @cached_property
    def by_group(self) -> list["Problem"]:
        """The problem of each group alone."""
        if self.n_groups == 1:
            return [self]
        x, y, group = self.batch.x, self.batch.y, self.batch.group
        return [
            replace(self, batch=Batch(x[group == k], y[group == k]), levels=[level])
            for k, level in enumerate(self.levels)
        ]

    def strategy(self):
        """Return the context in which per-record gradients are taken."""
        like = self.batch.x[:1]
        return select_strategy(self.module, like, self.n_classes, loss=self.criterion)

    def chunks(self) -> list[Batch]:
        """Return the records in parts that fit in memory."""
        return self.batch.split(self.chunk) if len(self.batch) else []

    def loss(self, batch: Batch) -> Tensor:
        """Return each record's loss, shape (batch,), with its graph."""
        return nn.functional.cross_entropy(self.module(batch.x), batch.y, reduction="none")

    def of_each_group(self, n: int | None, rng) -> "Problem":
        """Return the problem on at most ``n`` records of each group, drawn at random."""
        if n is None or self.sizes.max() <= n:
            return self
        code = self.batch.group.cpu().numpy()
        parts = [np.flatnonzero(code == k) for k in range(self.n_groups)]
        drawn = [rng.choice(part, min(n, len(part)), replace=False) for part in parts]
        index = torch.from_numpy(np.sort(np.concatenate(drawn))).to(self.batch.y.device)
        return replace(self, batch=records_at(self.batch, index))

    def group_gradients(self, strategy) -> tuple[Tensor, dict[str, np.ndarray]]:
        """Return g_k (n_groups, n_parameters), and sizes, losses and gradient norms of the groups.

        A group without a record has NaN.
        """
        total = torch.stack([strategy.flat() for _ in self.levels])
        means = np.zeros((2, self.n_groups))
        for k, part in enumerate(self.by_group):
            for chunk in part.chunks():
                gradients = strategy.per_sample_gradients(chunk)
                share = torch.full_like(gradients.norm, 1 / self.sizes[k])
                gradients.weighted_sum(share, total[k])
                means[:, k] += float(gradients.loss @ share), float(gradients.norm @ share)
        total[torch.from_numpy(self.absent)] = torch.nan
        means[:, self.absent] = np.nan
        return total, {
            "n_samples": self.sizes,
            "loss": means[0],
            "gradient_norm": means[1],
            "group_gradient_norm": torch.linalg.vector_norm(total, dim=1).cpu().numpy(),
        }


def of_tensors(module, batch, n_classes, levels, criterion=None) -> Problem:
    """Return the problem of a module that may be kept, and tensors that fit it."""
    like = next(module.parameters())
    chunk = affordable_batch(module, batch.x[:1])
    if like.device.type == "cpu":
        chunk = min(chunk, max(_MIN_CHUNK, chunk * _CACHED // ACTIVATION_BUDGET))
    names = ["all"] if levels is None else list(levels)
    return Problem(module, batch, names, n_classes, chunk, criterion)
