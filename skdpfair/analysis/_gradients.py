"""Exact gradients of each group's mean loss."""

from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from skdpfair.analysis._problem import Problem, problem
from skdpfair.analysis._step_terms import cosine


@dataclass(frozen=True)
class GroupGradients:
    """Gradients of the groups' mean losses; NOT private.

    Parameters
    ----------
    gradients : Tensor of shape (n_groups, n_parameters)
        In the order of the trainable parameters in ``module.parameters()``.
    groups : pandas.DataFrame
        Index group: ``n_samples``, ``loss``, ``gradient_norm`` (mean norm of the records'
        gradients), ``group_gradient_norm`` (norm of the group's gradient).
    cosines : pandas.DataFrame
        Cosines of the angles between the groups' gradients; index and columns are the groups.

    Examples
    --------
    >>> import numpy as np
    >>> module = torch.nn.Linear(1, 2, bias=False).double()
    >>> _ = torch.nn.init.zeros_(module.weight)
    >>> X, y, groups = np.array([[1.0], [3.0], [-3.0]]), np.array([0, 1, 1]), ["a", "b", "b"]
    >>> found = group_gradients(module, X, y, sensitive_features=groups)
    >>> found.groups[["n_samples", "group_gradient_norm"]].round(2).to_numpy().tolist()
    [[1.0, 0.71], [2.0, 0.0]]
    """

    gradients: Tensor
    groups: pd.DataFrame
    cosines: pd.DataFrame


def group_gradients(
    model, X, y, *, sensitive_features=None, chunk_size="auto", dtype="float64"
) -> GroupGradients:
    """Return the gradient of each group's mean loss, over all records.

    Parameters
    ----------
    model : DPFairClassifier or torch.nn.Module
        A fitted classifier, or a module that maps (batch, ...) to logits (batch, n_classes).  A
        copy in evaluation mode is used.
    X : array of shape (n_samples, ...)
        As in ``predict`` for an estimator.
    y : array of shape (n_samples,)
        Labels of the estimator, or class codes for a module.
    sensitive_features : array-like of shape (n_samples,), optional
        The groups; an estimator with ``group_col`` takes them from X.  Without groups, all records
        are one group.
    chunk_size : int or "auto", default="auto"
        Number of records held in memory at once.
    dtype : {"float32", "float64"} or None, default="float64"
        Type of the computation; None is the module's own.

    Returns
    -------
    GroupGradients
        The gradients are not private.

    Raises
    ------
    ValueError, TypeError
        If the data do not match the model, or a group has no record.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from skdpfair.analysis import group_gradients
    >>> module = torch.nn.Linear(1, 2, bias=False).double()
    >>> _ = torch.nn.init.zeros_(module.weight)
    >>> found = group_gradients(module, np.array([[1.0], [3.0]]), np.array([0, 1]),
    ...                         sensitive_features=["a", "b"])
    >>> found.gradients.tolist(), round(float(found.cosines.loc["a", "b"]), 6)
    ([[-0.5, 0.5], [1.5, -1.5]], -1.0)
    """
    found = problem(
        model, X, y, sensitive_features=sensitive_features, chunk_size=chunk_size, dtype=dtype
    )
    with found.strategy() as strategy:
        gradients, facts = group_gradients_of(found, strategy)
    cosines = [[cosine(a, b) for b in gradients] for a in gradients]
    return GroupGradients(
        gradients,
        pd.DataFrame(facts, index=found.index),
        pd.DataFrame(cosines, found.index, found.index),
    )


def group_gradients_of(found: Problem, strategy):
    """Return g_k (n_groups, n_parameters), and the groups' sizes, losses and norms."""
    total = torch.stack([strategy.flat() for _ in found.levels])
    sums = total.new_zeros((2, found.n_groups))
    for chunk in found.chunks():
        gradients = strategy.per_sample_gradients(chunk)
        sums.index_add_(1, chunk.group, torch.stack([gradients.loss, gradients.norm]))
        for k in chunk.group.unique().tolist():
            gradients.weighted_sum((chunk.group == k) / found.sizes[k].to(total), total[k])
    total[torch.from_numpy(found.absent)] = torch.nan
    loss, norm = (sums / found.sizes).cpu().numpy()
    facts = {
        "n_samples": found.sizes.cpu().numpy(),
        "loss": loss,
        "gradient_norm": norm,
        "group_gradient_norm": torch.linalg.vector_norm(total, dim=1).cpu().numpy(),
    }
    return total, facts
