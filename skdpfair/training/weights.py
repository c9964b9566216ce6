"""Weights of classes and records, which multiply clipped gradients.

Each is over the largest that is possible, by public numbers.  So it is at most 1, the sensitivity
of the sum is that without weights, and the ratios of weights hold whatever is clipped.
"""

from __future__ import annotations

import numpy as np

from skdpfair.inputs.table import Table
from skdpfair.training.spec import FitSpec

# a class of weight 0 starts at these odds
_MIN_ODDS = 1e-7


def of_classes(spec: FitSpec, table: Table) -> np.ndarray | None:
    """Return the weight of each class, (n_classes,), or None."""
    if table.classes is None or spec.class_weight is None:
        return None
    weight = np.array([spec.class_weight.get(label, 1.0) for label in table.classes])
    return _over(weight, float(weight.max()))


def of_records(spec: FitSpec, table: Table) -> np.ndarray | None:
    """Return the weight of each record times that of its class, (n_samples,), or None."""
    weight, of_class = table.weight, of_classes(spec, table)
    if weight is not None and table.max_sample_weight is not None:
        weight = _over(weight, table.max_sample_weight)
    if of_class is None:
        return weight
    both: np.ndarray = of_class[table.y] if weight is None else weight * of_class[table.y]
    return both


def initial_logits(class_weight: np.ndarray | None) -> tuple[float, ...] | None:
    """Return the logits at which a zero output layer starts: the odds that class weights state."""
    if class_weight is None or not class_weight.any():
        return None
    return tuple(np.log(np.maximum(class_weight, _MIN_ODDS)).tolist())


def _over(weight: np.ndarray, largest: float) -> np.ndarray:
    # in float64, where numbers as small as 1e-300 have ratios
    share: np.ndarray = (weight / (largest or 1.0)).astype(np.float32)
    return share
