"""Targets of a regression, checked, clipped to their public range and scaled."""

from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from skdpfair._utils.validate import error_context, error_context_without_data, number, safe_repr
from skdpfair.inputs.columns import in_numpy, one_column

_NOT_NUMBERS = "must hold one number for each row"


def range_of(y_range: Any) -> tuple[float, float]:
    """Return the public limits of the target, else raise."""
    wanted = (
        "y_range must be a pair (low, high) of numbers, low < high: the public limits of the "
        "target. Declare them from public knowledge, such as y_range=(0, 120) for an age; limits "
        "derived from the records would reveal two of them"
    )
    if isinstance(y_range, (str, bytes, dict, set, frozenset)) or y_range is None:
        raise ValueError(f"{wanted}, got {safe_repr(y_range)}.")
    with error_context("y_range", "must be a pair (low, high) of numbers"):
        limits = list(y_range)
    if len(limits) != 2:
        raise ValueError(f"{wanted}, got {safe_repr(y_range)}.")
    low, high = (number("y_range", value, low=-1e300, high=1e300) for value in limits)
    if not low / 2 < high / 2:
        raise ValueError(f"{wanted}, got {safe_repr(y_range)}.")
    return float(low), float(high)


def limits_of(y: np.ndarray) -> tuple[float, float]:
    """Return the least and the largest target, or a wider range of equal ones; not private."""
    low, high = np.clip([y.min(), y.max()], -1e300, 1e300)
    return range_of((low, high if low / 2 < high / 2 else low + max(1.0, abs(low))))


def read(y: Any) -> np.ndarray:
    """Return targets as float64 of shape (n_samples,), all finite."""
    column = one_column(in_numpy(y), "number", "MultiOutputRegressor")
    with error_context_without_data("y", _NOT_NUMBERS):
        column = column_or_1d(column, warn=True)
        if column.dtype.kind in "SUMmV":
            raise ValueError("it holds texts, dates or records")
        numbers: np.ndarray = np.asarray(column, dtype=np.float64)
    if not np.isfinite(numbers).all():
        what = "NaN" if np.isnan(numbers).any() else "infinity"
        raise ValueError(f"Input y contains {what}. Drop the rows without a target.")
    return numbers


def scaled(y: np.ndarray, y_range: tuple[float, float]) -> np.ndarray:
    """Return targets clipped to their range and scaled to [-1, 1], float32, each by itself."""
    low, high = y_range
    share = (np.clip(y, low, high) / 2 - low / 2) / (high / 2 - low / 2)
    outputs: np.ndarray = np.clip(2 * share - 1, -1, 1).astype(np.float32)
    return outputs


def unscaled(outputs: np.ndarray, y_range: tuple[float, float]) -> np.ndarray:
    """Return predictions in the units of the target, inside its range."""
    low, high = y_range
    share = (np.clip(outputs, -1, 1) + 1) / 2
    predictions: np.ndarray = np.clip(low * (1 - share) + high * share, low, high)
    return predictions
