"""Monotone curves: a projection of trained weights, which is post-processing."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.isotonic import isotonic_regression
from torch import nn

from skdpfair._networks import fine_columns_of, is_linear
from skdpfair.inputs.target import declared_order
from skdpfair.preprocessing._piecewise_linear import hats, monotone_axes
from skdpfair.training.spec import FitSpec


def with_curves(spec: FitSpec, names: Any, n_outputs: int) -> FitSpec:
    """Return the spec, linear where columns need monotone curves; raise if it cannot be."""
    network = spec.module
    if not monotone_axes(names):
        return spec
    if n_outputs > 2:
        raise ValueError(
            f"monotone must be left out of public_preprocessor with {n_outputs} classes: a curve "
            "is monotone in one logit, of two classes or of a regression."
        )
    if not is_linear(network) and network != "auto":
        raise ValueError(
            f"module={network!r} has no curves, but public_preprocessor has monotone columns. Set "
            'module="auto" or "logistic".'
        )
    linear = spec.with_params(module=network if is_linear(network) else "logistic")
    return replace(linear, is_monotone=True)


def make_monotone(module: nn.Module, names: Any, classes: np.ndarray | None, spec: FitSpec) -> None:
    """Replace the curves of monotone columns by the closest monotone ones, by values at knots.

    They are those of the logit of the positive class, or of the prediction.
    """
    if not (axes := monotone_axes(names)):
        return
    positive = 0 if classes is None else declared_order(classes, spec.classes, spec.pos_label)[-1]
    fine, last = deepcopy(fine_columns_of(module)), [*module.modules()][-1]
    assert isinstance(last, nn.Linear)
    weight = last.weight.detach()
    # of two classes, the logit is the difference of their outputs
    sign = weight.new_tensor([1 if k == positive else -1 for k in range(len(weight))])
    for place, knots, increasing in axes:
        is_fine = fine is not None and place in fine.columns
        n_intervals = 512 if is_fine else max(len(knots) - 1, 1)
        position = np.linspace(0, 1, n_intervals + 1)
        rows = torch.zeros(len(position), len(names))
        rows[:, place] = torch.from_numpy(2 * position - 1)
        if knots:
            rows[:, knots] = torch.from_numpy(hats(position, len(knots) - 1)).float()
        rows = rows if fine is None else fine.cpu()(rows)
        used = rows.any(0)
        design = rows[:, used].double().numpy()
        values = design @ (sign @ weight)[used].double().numpy(force=True)
        target = isotonic_regression(values, increasing=increasing)
        change = torch.from_numpy(np.linalg.lstsq(design, target - values)[0]).to(weight)
        weight[:, used] += sign[:, None] * change / len(weight)
