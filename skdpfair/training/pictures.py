"""Public features of pictures, on which ``module="scattering"`` trains a linear model."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from skdpfair._networks import check_pictures
from skdpfair._utils.validate import error_context, is_auto, safe_repr
from skdpfair.features import Scattering2D
from skdpfair.features._scattering import form_of
from skdpfair.inputs.provenance import Origin
from skdpfair.inputs.rows import numbers_of
from skdpfair.inputs.table import Table
from skdpfair.training.spec import FitSpec

SCATTERING = "scattering"
SIDES = (28, 32, 48, 64, 96, 128, 224, 256)  # of pictures, as data sets have them
_MIN_SIDE = 8  # pixels; smaller arrays of numbers are hardly pictures

log = logging.getLogger("skdpfair")


def features_of(spec: FitSpec, shape: tuple[int, ...]) -> tuple[FitSpec, Scattering2D | None]:
    """Return the features that a spec asks for, by the shape of a record, and what is then to do.

    Where there are some, the spec that is returned describes the linear head.
    """
    chosen, module = is_auto(spec.module), spec.module
    of_pixels = {"attack": spec.attack, "augment": spec.views}
    changes = {name: change for name, change in of_pixels.items() if change is not None}
    reason = _unsuited(changes, shape) if chosen else None
    if reason is not None and len(shape) in (2, 3):
        log.info("module='auto': no features of pictures, as %s", reason)
    if chosen and any(shape == (n * side**2,) for n in (1, 3) for side in SIDES):
        try:
            check_pictures("scattering", shape)
        except ValueError as error:
            log.warning("X may hold pictures as flat rows, taken as numbers: %s", error)
    is_object = isinstance(module, Scattering2D)
    if reason is not None or not (chosen or is_object or module == SCATTERING):
        return spec, None
    for name, change in changes.items():
        raise ValueError(
            f"{name}={safe_repr(change)} changes pixels, but module='scattering' trains on "
            'features of them. Use module="cnn" or a module of your own.'
        )
    if not chosen:
        check_pictures(SCATTERING, shape)
    features = clone(module) if is_object else Scattering2D(device=spec.device)
    if features.image_shape is not None:
        raise ValueError(
            "module has an image_shape, but X must hold pictures here: give "
            f"X.reshape(-1, {', '.join(map(str, features.image_shape))})."
        )
    with error_context("module", "does not describe features of pictures"):
        features.fit(np.zeros((1, *shape), np.float32))
    if chosen:
        log.info("module='auto': a linear model on %s, as records have shape %s", features, shape)
    return spec.with_params(module="logistic"), features


def _unsuited(changes: dict[str, Any], shape: tuple[int, ...]) -> str | None:
    """Return why records are no pictures or their pixels change; None if neither holds."""
    if changes:
        return f"{next(iter(changes))} is given"
    try:
        _, *sides = form_of(shape, "auto")
    except ValueError:
        return f"records of shape {shape} are no pictures of 1 or 3 channels"
    if min(sides) < _MIN_SIDE:
        return f"pictures of shape {shape} have less than {_MIN_SIDE} pixels on a side"
    return None


def for_prediction(features: Scattering2D | None) -> Scattering2D | None:
    """Return the features for other pictures."""
    if features is None:
        return None
    copy: Scattering2D = clone(features).set_params(device="auto", verbose=0)
    copy.in_shape_ = features.in_shape_
    return copy


def extracted(table: Table, features: Scattering2D) -> Table:
    """Return the table with features in the place of pictures."""
    validation = table.validation
    if validation is not None:
        validation = features.transform(validation[0]), validation[1]
    x = features.transform(table.x)
    return replace(table, x=x, validation=validation, origin=Origin(features.described))


def head_of(
    estimator: BaseEstimator, shape: tuple[int, ...]
) -> tuple[BaseEstimator, Scattering2D | None]:
    """Return the features that an estimator's fits would all compute, and the linear head for them.

    Fits of the head on ``transformed(features, X)`` are those of the estimator on X. Without
    features, the estimator itself is returned.
    """
    spec, features = features_of(FitSpec.of(estimator), shape)
    if features is None:
        return estimator, None
    head: dict[str, Any] = {"module": spec.module}
    if spec.validation_data is not None:
        x, y = spec.validation_data
        head["validation_data"] = transformed(features, x), y
    return clone(estimator).set_params(**head), features


def transformed(features: Scattering2D, X: Any) -> np.ndarray:
    """Return the features of pictures as a fit reads them from an array in memory."""
    return features.transform(numbers_of(np.asarray(X)))
