"""Public features of pictures, on which ``module="scattering"`` trains a linear model."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from skdpfair._validate import error_context, is_auto, safe_repr
from skdpfair.features import Scattering2D
from skdpfair.features._scattering import form_of
from skdpfair.inputs.streaming import SparseRows
from skdpfair.inputs.table import Table, numbers_of
from skdpfair.networks import check_pictures
from skdpfair.training import defaults

SCATTERING = "scattering"
_SIDES = (28, 32, 48, 64, 96, 128, 224, 256)  # of pictures, as data sets have them
_LEAST_SIDE = 8  # pixels; smaller arrays of numbers are hardly pictures

log = logging.getLogger("skdpfair")


def features_of(params: dict[str, Any], shape: tuple[int, ...]) -> Scattering2D | None:
    """Return the features that the estimator's parameters ask for, by the shape of a record.

    Where there are some, ``params`` then describe the linear head.

    Raises
    ------
    ValueError, TypeError
        If features of other records than pictures are asked for, or with a change of pixels.
    """
    chosen = is_auto(params["module"])
    reason = _unsuited(params, shape) if chosen else None
    if reason is not None and len(shape) in (2, 3):
        log.info("module='auto': no features of pictures, as %s", reason)
    if chosen and any(shape == (n * side**2,) for n in (1, 3) for side in _SIDES):
        try:
            check_pictures("scattering", shape)
        except ValueError as error:
            log.warning("X may hold pictures as flat rows, which are taken as numbers: %s", error)
    if reason is not None or not (chosen or params["module"] == SCATTERING):
        return None
    for name in ("attack", "augment"):
        if params[name] is not None:
            raise ValueError(
                f"{name}={safe_repr(params[name])} changes pixels, but module='scattering' trains "
                'on features of them. Use module="cnn" or a module of your own.'
            )
    if not chosen:
        check_pictures(SCATTERING, shape)
    with error_context("module_params", "do not describe a Scattering2D"):
        features = Scattering2D(**{"device": params["device"], **(params["module_params"] or {})})
    if features.image_shape is not None:
        raise ValueError(
            "module_params has image_shape, but X must hold pictures here: give "
            f"X.reshape(-1, {', '.join(map(str, features.image_shape))})."
        )
    features.fit(np.zeros((1, *shape), np.float32))
    if chosen:
        log.info("module='auto': a linear model on %s, as records have shape %s", features, shape)
    params |= {"module": "logistic", "module_params": None}
    return features


def _unsuited(params: dict[str, Any], shape: tuple[int, ...]) -> str | None:
    """Return why records are no pictures or a network is asked for; None if neither holds."""
    for name in ("attack", "augment", "module_params"):
        if params[name] is not None:
            return f"{name} is given"
    if not is_auto(params["hidden_layer_sizes"]):
        return "hidden_layer_sizes is given"
    try:
        _, *sides = form_of(shape, "auto")
    except ValueError:
        return f"records of shape {shape} are no pictures of 1 or 3 channels"
    if min(sides) < _LEAST_SIDE:
        return f"pictures of shape {shape} have less than {_LEAST_SIDE} pixels on a side"
    return None


def is_wide(table: Table, features: Scattering2D | None) -> bool:
    """Tell whether the network takes dense records of many numbers."""
    if features is not None:
        return features.n_features_out >= defaults.WIDE_FROM
    is_dense = not isinstance(table.x, SparseRows)
    return is_dense and math.prod(table.x.shape[1:]) >= defaults.WIDE_FROM


def for_prediction(features: Scattering2D | None) -> Scattering2D | None:
    """Return the features for other pictures, which no folder keeps."""
    if features is None:
        return None
    kept: Scattering2D = clone(features).set_params(cache_dir=None, device="auto", verbose=0)
    kept.in_shape_ = features.in_shape_
    return kept


def extracted(table: Table, features: Scattering2D | None, before: Table | None = None) -> Table:
    """Return the table with features in the place of pictures; ``before`` holds them already."""
    if features is None or before is not None:
        return before or table
    x = features.transform(table.x)
    validation = table.validation
    if validation is not None:
        validation = features.transform(validation[0]), validation[1]
    return replace(table, x=x, validation=validation, features=features.described)


def head_of(
    estimator: BaseEstimator, shape: tuple[int, ...]
) -> tuple[BaseEstimator, Scattering2D | None]:
    """Return the features that an estimator's fits would all compute, and the linear head for them.

    Fits of the head on ``transformed(features, X)`` are those of the estimator on X. Without
    features, the estimator itself is returned.
    """
    params: dict[str, Any] = estimator.get_params(deep=False)
    features = features_of(params, shape)
    if features is None:
        return estimator, None
    head = {name: params[name] for name in ("module", "module_params")}
    if params["validation_data"] is not None:
        x, y = params["validation_data"]
        head["validation_data"] = transformed(features, x), y
    return clone(estimator).set_params(**head), features


def transformed(features: Scattering2D, X: Any) -> np.ndarray:
    """Return the features of pictures as a fit reads them from an array in memory."""
    return features.transform(numbers_of(np.asarray(X)))
