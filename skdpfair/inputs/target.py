"""The target: class labels, and numbers of a regression with their public range."""

from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.multiclass import type_of_target

from skdpfair._utils.validate import error_context, error_context_without_data, number, safe_repr
from skdpfair.inputs.columns import one_column
from skdpfair.inputs.groups import MAX_READ

_NOT_LABELS = "cannot be read as class labels"
_SEVERAL = (
    "Fit one estimator for each column, by sklearn.multioutput.{}: each fit reads all records, so "
    "that their epsilons add up (PrivacyLedger computes the total)."
)


def read_labels(y: Any) -> np.ndarray:
    """Return labels as an array of shape (n_samples,), none of them missing."""
    remedy = _SEVERAL.format("MultiOutputClassifier")
    # numpy would turn labels of several types to texts
    labels = one_column("y", y, "one label for each row", remedy=remedy, dtype=object, warn=True)
    if labels.dtype.kind in "OST":
        _refuse_mixed("y", labels)
    with error_context_without_data("y", _NOT_LABELS):
        labels = plain(labels)
        missing = pd.isna(labels).any()
    if missing or (labels.dtype.kind == "f" and np.isinf(labels).any()):
        what = "NaN" if missing else "infinity"
        raise ValueError(f"Input y contains {what}. Drop or label the rows without a class.")
    with error_context_without_data("y", _NOT_LABELS):
        # raises where labels cannot be sorted
        kind = type_of_target(distinct(labels))
    if kind not in ("binary", "multiclass"):
        raise ValueError(
            f"Unknown label type: {kind}. y must hold one of a few classes for each row."
        )
    return labels


def read_numbers(y: Any) -> np.ndarray:
    """Return targets of a regression as float64 of shape (n_samples,), all finite."""
    remedy = _SEVERAL.format("MultiOutputRegressor")
    column = one_column("y", y, "one number for each row", remedy=remedy, warn=True)
    with error_context_without_data("y", "must hold one number for each row"):
        if column.dtype.kind in "SUMmV":
            raise ValueError("it holds texts, dates or records")
        numbers: np.ndarray = np.asarray(column, dtype=np.float64)
    if not np.isfinite(numbers).all():
        what = "NaN" if np.isnan(numbers).any() else "infinity"
        raise ValueError(f"Input y contains {what}. Drop the rows without a target.")
    return numbers


def plain(values: np.ndarray) -> np.ndarray:
    """Return flags and numbers that objects hold, such as pandas' own, as numpy's own."""
    if values.dtype.kind not in ("O", "T"):
        return values
    values = values.astype(object)
    if any(isinstance(value, str) or not np.isscalar(value) for value in values):
        return values
    numbers = np.asarray(values.tolist())
    is_exact = numbers.dtype.kind in "biuf" and (numbers == values).all()
    return numbers if is_exact else values


def kinds(values: np.ndarray) -> set[str]:
    """Return the kinds of the values: texts, numbers, as flags are, or names of types."""
    types = {values.dtype.type} if values.dtype.kind in "biuf" else set(map(type, values.tolist()))
    names = {np.bool_: "numbers", Number: "numbers", str: "texts", bytes: "bytes"}
    return {next((n for of, n in names.items() if issubclass(t, of)), t.__name__) for t in types}


def classes_of(y: np.ndarray, declared: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes, those of y or as declared, and the code of each label."""
    if len(y) == 0:
        raise ValueError("X and y have 0 samples, and a classifier needs two classes or more.")
    classes = distinct(y) if declared is None else sorted_classes(declared)
    if declared is None and len(classes) > MAX_READ:
        raise ValueError(
            f"y has more than {MAX_READ} undeclared classes. Declare all of them: "
            "classes=[...]; numbers are for DPFairRegressor."
        )
    if len(classes) < 2:
        raise ValueError("y has one class only, and a classifier needs two or more.")
    return classes, codes_in(classes, y)


def positive_class(classes: np.ndarray, declared: Any, pos_label: Any) -> Any:
    """Return the positive one of two classes: ``pos_label``, or the last that is declared, or is.

    Of more classes, none is.
    """
    if len(classes) != 2:
        if pos_label is not None:
            raise ValueError(
                f"pos_label={safe_repr(pos_label)} is for two classes, and there are "
                f"{len(classes)}. Leave it out."
            )
        return None
    label = list(classes if declared is None else declared)[-1] if pos_label is None else pos_label
    known = classes.tolist()
    if not isinstance(label, (str, Number, np.generic)) or label not in known:
        raise ValueError(
            f"pos_label must be one of the classes, got {safe_repr(label)}. Declare both: "
            "classes=[...], the positive one last, spelt as in y."
        )
    return classes[known.index(label)]


def positive_last(classes: np.ndarray, positive: Any) -> np.ndarray:
    """Return the positions of classes, that of the positive one of two last."""
    is_first = len(classes) == 2 and positive is not None and positive == classes[0]
    return np.array([1, 0]) if is_first else np.arange(len(classes))


def declared_order(classes: np.ndarray, declared: Any, pos_label: Any) -> np.ndarray:
    """Return the positions of sorted classes, that of the positive one of two last."""
    return positive_last(classes, positive_class(classes, declared, pos_label))


def order_of(model: Any) -> np.ndarray:
    """Return the positions of a fitted model's classes, that of the positive one of two last.

    The positive one is that of the classifier in pipelines, searches, thresholds and calibration.
    """
    owner = model
    while owner is not None and not hasattr(owner, "pos_label_"):
        steps = getattr(owner, "steps", [(None, None)])
        calibrated = getattr(owner, "calibrated_classifiers_", [None])
        inside = [steps[-1][1], getattr(calibrated[0], "estimator", None)]
        inside += [getattr(owner, "best_estimator_", None), *getattr(owner, "estimators_", ())[:1]]
        inside += [getattr(owner, "estimator_", None)]
        owner = next((model for model in inside if model is not None), None)
    return positive_last(model.classes_, getattr(owner, "pos_label_", None))


def public_classes(y: np.ndarray, declared: Any, pos_label: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes, the positive one of two last, and the code of each label."""
    classes, codes = classes_of(y, declared)
    order = declared_order(classes, declared, pos_label)
    return classes[order], order[codes]  # two positions are their own inverse


def distinct(values: np.ndarray) -> np.ndarray:
    """Return the distinct values in order; memory is that of a part of them."""
    # a hash first: to sort objects takes long
    is_object = values.dtype == object
    parts = [np.unique(pd.unique(part) if is_object else part) for part in _parts(values)]
    return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))


def _parts(values: np.ndarray) -> list[np.ndarray]:
    return np.array_split(values, len(values) // 2**20 + 1)


def codes_in(classes: np.ndarray, y: np.ndarray, name: str = "y") -> np.ndarray:
    """Return the position of each label among the classes; raise for others."""
    codes = positions(classes, y)
    if (codes < 0).any():
        raise ValueError(
            f"{name} has labels outside classes=, which must list them all. Declare every class, "
            f"spelt as in {name}."
        )
    return codes


def positions(classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the position of each label among the classes, -1 of others; True is 1."""
    labels = distinct(y)
    position = {label: code for code, label in enumerate(np.asarray(classes).tolist())}
    at = np.array([position.get(label, -1) for label in labels.tolist()], dtype=np.int64)
    return np.concatenate([at[np.searchsorted(labels, part)] for part in _parts(y)])


def sorted_classes(declared: Any) -> np.ndarray:
    """Return declared classes in order; raise for what lists none."""
    with error_context("classes", "must list the classes"):
        _refuse_mixed("classes", declared)
        classes = np.asarray(declared)
        if classes.ndim != 1 or pd.isna(classes).any():
            raise ValueError("each one label, none missing")
        in_order: np.ndarray = np.unique(classes)
    if len(in_order) < len(classes):
        raise ValueError("classes names a class twice. Name each once.")
    if len(classes) < 2:
        raise ValueError(f"classes must name two classes or more, got {safe_repr(declared)}.")
    return in_order


def _refuse_mixed(name: str, values: Any) -> None:
    """Raise ValueError if labels are missing or bytes, or some are texts and others are not."""
    with error_context_without_data(name, _NOT_LABELS):
        values = np.asarray(values, dtype=object).ravel()
        missing = pd.isna(values)
    if missing.any():
        raise ValueError(f"Input {name} contains NaN. Drop or label the rows without a class.")
    types = kinds(values)
    if "bytes" in types:
        raise ValueError(f"{name} holds bytes. Decode them to texts.")
    if "texts" in types and len(types) > 1:
        raise ValueError(f"{name} mixes texts and other labels. Spell all labels alike.")


def range_of(y_range: Any) -> tuple[float, float]:
    """Return the public limits of the target, else raise."""
    wanted = (
        "y_range must be a pair (low, high) of numbers, low < high: the public limits of the "
        "target. Declare them from public knowledge, such as y_range=(0, 120) for an age; limits "
        "derived from the records would reveal two of them"
    )
    has_order = y_range is not None and not isinstance(y_range, (str, bytes, dict, set, frozenset))
    with error_context("y_range", "must be a pair (low, high) of numbers"):
        limits = list(y_range) if has_order else []
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


def scaled(y: np.ndarray, y_range: tuple[float, float]) -> np.ndarray:
    """Return targets clipped to their range and scaled to [-1, 1], float32, each by itself."""
    low, high = y_range
    share = (np.clip(y, low, high) / 2 - low / 2) / (high / 2 - low / 2)
    return np.asarray(np.clip(2 * share - 1, -1, 1), dtype=np.float32)


def unscaled(outputs: np.ndarray, y_range: tuple[float, float]) -> np.ndarray:
    """Return predictions in the units of the target, inside its range."""
    low, high = y_range
    share = (np.clip(outputs, -1, 1) + 1) / 2
    return np.asarray(np.clip(low * (1 - share) + high * share, low, high))
