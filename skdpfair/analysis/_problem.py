"""The module, records and groups of an analysis, checked and as tensors."""

import copy
import warnings
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from sklearn.base import is_regressor
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d
from torch import Tensor, nn

from skdpfair import _validate
from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.losses import Loss
from skdpfair.engine.memory import ACTIVATION_BUDGET, affordable_batch
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import labels as _labels
from skdpfair.inputs import table
from skdpfair.inputs.columns import check_indexes
from skdpfair.inputs.streaming import as_rows
from skdpfair.training import defaults

_MIN_CHUNK = 8  # records, unless memory holds fewer
_CACHED = 12_000_000  # floats of a chunk that a processor keeps at hand: a third faster on images


@dataclass(frozen=True)
class Problem:
    """A module, records and their groups; private, as it keeps the records."""

    module: nn.Module  # a copy in evaluation mode
    batch: Batch  # all records
    levels: list  # the groups, by code
    n_classes: int
    class_weight: Tensor | None  # factors of the loss, shape (n_classes,)
    chunk: int  # records held in memory at once
    criterion: Loss | None = None  # of a regression

    @property
    def n_groups(self) -> int:
        """Number of groups."""
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
        """Number of trained numbers."""
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
        rows = [torch.nonzero(self.batch.group == k)[:, 0] for k in range(self.n_groups)]
        parts = [Batch(self.batch.x[i], self.batch.y[i]) for i in rows]
        return [
            replace(self, batch=part, levels=[level])
            for part, level in zip(parts, self.levels, strict=True)
        ]

    def strategy(self):
        """Return the context in which per-record gradients are taken."""
        like = self.batch.x[:1]
        return select_strategy(
            self.module, like, self.n_classes, self.class_weight, loss=self.criterion
        )

    def chunks(self) -> list[Batch]:
        """Return the records in parts that fit in memory."""
        return self.batch.split(self.chunk) if len(self.batch) else []

    def loss(self, batch: Batch) -> Tensor:
        """Return each record's loss, shape (batch,), with its graph."""
        loss = nn.functional.cross_entropy(self.module(batch.x), batch.y, reduction="none")
        return loss if self.class_weight is None else loss * self.class_weight[batch.y]

    def of_each_group(self, n: int | None, rng) -> "Problem":
        """Return the problem on at most ``n`` records of each group, drawn at random."""
        if n is None or self.sizes.max() <= n:
            return self
        code = self.batch.group.cpu().numpy()
        parts = [np.flatnonzero(code == k) for k in range(self.n_groups)]
        drawn = [rng.choice(part, min(n, len(part)), replace=False) for part in parts]
        index = torch.from_numpy(np.sort(np.concatenate(drawn))).to(self.batch.y.device)
        return replace(self, batch=self.batch.select(index))

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


def problem_of(
    model, X, y, *, sensitive_features=None, chunk_size="auto", dtype: torch.dtype | None = None
) -> Problem:
    """Return the problem of a fitted classifier or a module, in the module's dtype by default."""
    check_indexes(X=X, y=y, sensitive_features=sensitive_features)
    if isinstance(model, nn.Module):
        module, weight = copy.deepcopy(model).eval(), None
        x = _tensor_of(X, _first_parameter(module))
        n_classes = _n_outputs(module, x)
        labels = _codes(x, y, np.arange(n_classes))
    else:
        _check_classifier(model)
        x = torch.from_numpy(as_rows(table.read_for_prediction(model, X), slice(None)))
        labels = _codes(x, y, model.classes_)
        module, n_classes = copy.deepcopy(model.net_.module_).eval(), len(model.classes_)
        like, weight = next(module.parameters()), _loss_weights_of(model)
        x = x.to(like.device, like.dtype)
    groups = _groups_of(model, X, y, labels, sensitive_features)
    if dtype is not None:
        module, x = module.to(dtype), x.to(dtype)
    y, group = (torch.from_numpy(v.astype(np.int64)).to(x.device) for v in (labels, groups.code))
    problem = of_tensors(module, Batch(x, y, group), n_classes, weight, groups.levels, chunk_size)
    if problem.absent.any():
        warnings.warn(
            "X holds no record of some of the groups: their values are NaN.",
            UndefinedMetricWarning,
            stacklevel=3,
        )
    return problem


def of_tensors(
    module, batch, n_classes, class_weight, levels, chunk_size="auto", criterion=None
) -> Problem:
    """Return the problem of a module that may be kept, and tensors that fit it."""
    like = next(module.parameters())
    if class_weight is not None:
        class_weight = torch.as_tensor(class_weight, dtype=like.dtype, device=like.device)
    if _validate.is_auto(chunk_size):
        chunk = affordable_batch(module, batch.x[:1])
        if like.device.type == "cpu":
            chunk = min(chunk, max(_MIN_CHUNK, chunk * _CACHED // ACTIVATION_BUDGET))
    else:
        chunk = _validate.integer("chunk_size", chunk_size)
    names = ["all"] if levels is None else list(levels)
    return Problem(module, batch, names, n_classes, class_weight, chunk, criterion)


def _check_classifier(estimator):
    if not hasattr(estimator, "privacy_statement") or is_regressor(estimator):
        raise TypeError(
            "estimator must be a fitted DPFairClassifier, got an object of type "
            f"{type(estimator).__name__}. Of a pipeline, give the last step, and X as the steps "
            "before it transform it: pipeline[-1], pipeline[:-1].transform(X)."
        )
    check_is_fitted(estimator, "net_")


def _groups_of(model, X, y, labels, sensitive_features):
    """Return the groups of a module's or an estimator's records."""
    group_col, levels, of_fit = None, None, getattr(model, "groups_", None)
    if not isinstance(model, nn.Module):
        labels = np.asarray(y)
        if sensitive_features is None:
            group_col = _groups.as_columns(model.group_col) or None
        if of_fit is not None and (group_col is not None or sensitive_features is not None):
            levels = list(of_fit)
    groups = _groups.encode(
        X, labels, group_col=group_col, levels=levels, sensitive_features=sensitive_features
    )
    if of_fit is not None and groups.levels is None:
        raise ValueError("The estimator was fitted with sensitive_features: pass them here, too.")
    return groups


def _loss_weights_of(estimator):
    """Return the factors of a fitted classifier's loss, also where it comes from a pickle."""
    if hasattr(estimator.net_, "loss"):
        return getattr(estimator.net_.loss, "class_weight", None)
    entries = estimator.privacy_.ledger.entries
    searched = any(entry.what.startswith("gradient scale") for entry in entries)
    weights = estimator.class_weight
    return defaults.loss_weights(weights, estimator.classes_, rescaled=searched)[0]


def _tensor_of(X, like):
    """Return the features of a module, in its dtype and on its device."""
    if not torch.is_tensor(X):
        X = np.asarray(X)
        if X.dtype.kind not in "fiub":
            raise ValueError(
                f"X must hold numbers, got dtype {X.dtype}. Pass an input of the module."
            )
        X = torch.from_numpy(np.array(X, dtype=X.dtype.newbyteorder("="), order="C"))
    x = X.detach().to(like.device, like.dtype)
    if not bool(torch.isfinite(x).all()):
        raise ValueError("X holds NaN or infinity, which have no gradient. Drop these records.")
    return x


def _n_outputs(module, x):
    """Return the number of logits of a module; x holds a record."""
    if len(x) == 0:
        raise ValueError("X and y have 0 samples; at least one is needed.")
    try:
        with torch.no_grad():
            logits = module(x[:1])
    except RuntimeError as error:
        raise ValueError(
            f"X has records of shape {tuple(x.shape[1:])}, which the module rejects: {error}."
        ) from None
    if logits.dim() != 2:
        raise ValueError(
            "The module must return logits of shape (batch, n_classes), got "
            f"{tuple(logits.shape)}. Two classes need two outputs."
        )
    return logits.shape[1]


def _first_parameter(module):
    """Return a parameter that trains, which has the module's dtype and device."""
    trains = [p for p in module.parameters() if p.requires_grad]
    if not trains:
        raise ValueError("The module has no trainable parameter, so there is no gradient.")
    return trains[0]


def _codes(x, y, classes):
    """Return the positions of the labels among the sorted ``classes``, one for each row of x."""
    y = _labels.plain(column_or_1d(y))
    check_consistent_length(x, y)
    if len(y) == 0:
        raise ValueError("X and y have 0 samples; at least one is needed.")
    codes = _labels.positions(classes, y)
    if (codes < 0).any():
        raise ValueError(
            "y has labels outside the model's classes. Drop these rows, or fit with classes= that "
            "includes them."
        )
    return codes
