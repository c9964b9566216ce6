"""Groups of records: codes and levels, from columns of a table or from sensitive features."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from skdpfair._utils.group_names import MAX_NAME, is_name, level_key
from skdpfair._utils.validate import (
    ParameterObject,
    error_context,
    error_context_without_data,
    flag,
    is_integer,
    listed,
    outline,
    safe_repr,
)
from skdpfair.inputs.columns import in_pandas, refuse_unreadable

TARGET = "target"
MAX_READ = 30  # groups, or classes, that a fit reads from the rows, and so publishes
MAX_GROUPS = 10_000  # of rows that are measured; numbers make as many as there are rows
_KINDS = {"group_col": ("group", "sensitive_features"), "persons": ("person", "persons")}
_NO_NAMES = "has values that cannot name groups"


@dataclass(repr=False, eq=False)
class Groups(ParameterObject):
    """The groups of a table, as the parameter ``group_col`` of an estimator.

    Parameters
    ----------
    columns : str, int, "target", list of these, or None, default=None
        Column(s) of X that hold the groups; several make intersections; "target" takes the class
        labels. None if ``fit`` gets ``sensitive_features``.
    levels : list or None, default=None
        The public set of groups. None reads at most 30 from the rows, and statements say so.
    as_feature : bool, default=False
        Whether the columns are also features, which must be numbers.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> DPFairClassifier(group_col=Groups("sex", levels=["F", "M"])).group_col.levels
    ['F', 'M']
    """

    columns: str | int | list[str | int] | None = None
    levels: Sequence[Any] | None = None
    as_feature: bool = False

    @classmethod
    def of(cls, group_col: Any) -> "Groups":
        """Return the ``group_col`` of an estimator, checked; X may still lack the columns."""
        groups = group_col if isinstance(group_col, Groups) else cls(group_col)
        levels = groups.levels
        if levels is not None:
            levels = listed("levels", levels, "values or None")
        columns = as_columns(groups.columns) or None
        return cls(columns, levels, flag("as_feature", groups.as_feature))


@dataclass(frozen=True)
class GroupCodes:
    """The groups of the records of a table."""

    code: np.ndarray  # index into levels of each record, int64; zeros without groups
    levels: np.ndarray | None  # tuples for intersections; None without groups
    declared: bool  # whether the levels were given rather than read off the data

    @property
    def n_groups(self) -> int:
        """Number of groups, at least 1."""
        return 1 if self.levels is None else len(self.levels)

    @property
    def undeclared(self) -> np.ndarray | None:
        """The levels that were read off the data; None if they were declared."""
        return None if self.declared else self.levels


def encode(
    X: Any,
    y: np.ndarray,
    *,
    group_col: Any,
    sensitive_features: Any,
    levels: Any = None,
    max_levels: int = MAX_READ,
) -> GroupCodes:
    """Return the groups of the rows of X, two or more, or one for all where none are given.

    ``levels`` are all groups, in place of those that ``group_col`` declares; without either, at
    most ``max_levels`` are read from the rows.
    """
    groups = Groups.of(group_col)
    levels = groups.levels if levels is None else levels
    if groups.columns is not None and sensitive_features is not None:
        raise ValueError("Give groups by group_col or by sensitive_features, not by both.")
    if groups.columns is None and sensitive_features is None:
        if levels is not None:
            raise ValueError(
                "Groups(levels=...) declares levels, but no groups are given. Pass fit(..., "
                "sensitive_features=...), or name their columns."
            )
        return GroupCodes(np.zeros(len(y), dtype=np.int64), None, True)
    if sensitive_features is not None:
        source, columns = "sensitive_features", _columns_of(sensitive_features)
    else:
        source, X = "group_col", in_pandas(X)
        at, table = iter(positions(X, groups)), X.iloc if hasattr(X, "iloc") else np.asarray(X)
        columns = [_objects(y if c == TARGET else table[:, next(at)]) for c in as_columns(groups)]
    if len(columns[0]) != len(y):
        raise ValueError(f"sensitive_features has {len(columns[0])} rows, but y has {len(y)}.")
    codes = _coded(columns, levels, source, max_levels)
    if (codes.n_groups if codes.declared else len(np.unique(codes.code))) < 2:
        raise ValueError(
            f"{source} puts all rows in one group, so there is nothing to compare. Choose a "
            "column with two groups or more, or leave the groups out."
        )
    return codes


def encode_features(
    sensitive_features: Any,
    n_samples: int,
    levels: Sequence[Any] | None = None,
    max_levels: int = MAX_GROUPS,
) -> GroupCodes:
    """Return the groups of records that are measured: those declared, or those that occur.

    Unlike `encode`, one group is enough, the arrays of a dict are columns, and intersections
    without a record are left out unless they are declared.
    """
    name = "sensitive_features"
    if sensitive_features is None:
        raise ValueError(
            f"{name} must hold one group for each record, got None. Pass the column itself, such "
            "as X['sex']."
        )
    if isinstance(sensitive_features, Mapping):
        columns = [column for v in sensitive_features.values() for column in _columns_of(v)]
    else:
        columns = _columns_of(sensitive_features)
    lengths = {len(column) for column in columns}
    if lengths != {n_samples}:
        raise ValueError(
            f"{name} must have one entry for each of the {n_samples} records of y_true, got "
            f"{' and '.join(map(str, sorted(lengths))) or 'no column'}."
        )
    codes = _coded(columns, levels, name, max_levels)
    if levels is not None:
        return codes
    assert codes.levels is not None
    occurring, code = np.unique(codes.code, return_inverse=True)
    return GroupCodes(code.astype(np.int64), codes.levels[occurring], False)


def _objects(column: Any) -> np.ndarray:
    """Return a column as objects, texts and missing values as they are."""
    return np.asarray(pd.Series(column, dtype=object).to_numpy())


def _columns_of(values: Any) -> list[np.ndarray]:
    """Return sensitive features, one column or more, as arrays of objects."""
    refuse_unreadable("sensitive_features", values)
    values = in_pandas(values)
    if isinstance(values, pd.Series):
        values = values.to_frame()
    if isinstance(values, pd.DataFrame):
        columns = [_objects(values.iloc[:, i]) for i in range(values.shape[1])]
    else:
        with error_context_without_data("sensitive_features", "must hold one group for each row"):
            # numpy would turn NaN and None beside texts to texts
            array = np.asarray(values, dtype=object if isinstance(values, (list, tuple)) else None)
        if array.ndim == 0:
            raise ValueError(
                "sensitive_features must hold one group for each row, got a single "
                f"{outline(array.item())}. Give the column itself, or a DataFrame of several; to "
                "name a column of X, set group_col=."
            )
        if array.ndim > 2:
            raise ValueError(
                "sensitive_features must have one or two dimensions, got shape "
                f"{array.shape}. Give one column for each attribute."
            )
        columns = [_objects(column) for column in np.atleast_2d(array.T)]
    if not columns:
        raise ValueError("sensitive_features has no columns. Leave it None for no groups.")
    return columns


def _coded(columns: list[np.ndarray], levels: Any, source: str, max_levels: int) -> GroupCodes:
    """Return the groups of rows, declared or read off them, whose columns are arrays of objects."""
    missing = np.logical_or.reduce([np.asarray(pd.isna(column)) for column in columns])
    is_declared = levels is not None
    if is_declared:
        levels = _declared(levels, len(columns))
    elif missing.any():
        raise ValueError(
            f"{source} has missing values. Give them a level of their own, for instance "
            "fillna('unknown'), or declare one: levels=[..., None]."
        )
    else:
        levels = _occurring(columns, source, max_levels)
    with error_context_without_data(source, _NO_NAMES):
        rows = columns[0] if len(columns) == 1 else _array(list(zip(*columns, strict=True)))
        each, distinct = pd.factorize(rows, use_na_sentinel=False)
        position = {level_key(level): i for i, level in enumerate(levels)}
        code = np.array([position.get(level_key(v), -1) for v in distinct], dtype=np.int64)[each]
    if (code < 0).any():
        remedy = "Declare every group, spelt as in the data."
        if missing[code < 0].all():
            remedy = "Missing values need a level too: add None to levels, or fill them."
        raise ValueError(f"{source} has values outside levels=, which must list them all. {remedy}")
    return GroupCodes(code, levels, is_declared)


def _occurring(columns: list[np.ndarray], source: str, max_levels: int) -> np.ndarray:
    """Return the sorted values of a column, of several their product, at most ``max_levels``."""
    with error_context_without_data(source, _NO_NAMES):
        distinct = [_sorted(pd.unique(column)) for column in columns]
    if prod(map(len, distinct)) > max_levels:
        raise ValueError(
            f"{source} makes more than {max_levels} undeclared groups. Choose columns of "
            "few values, cut numbers into ranges, or declare all groups: Groups(..., "
            "levels=[...]), or levels= of metrics. A column that names persons belongs in persons=."
        )
    return _array(distinct[0] if len(distinct) == 1 else list(product(*distinct)))


def _sorted(values: Iterable[Any]) -> list[Any]:
    """Return values in order; by type and text where they have none."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda v: (type(v).__name__, str(v)))


def _declared(levels: Any, n_columns: int) -> np.ndarray:
    levels = listed("levels", levels, "the groups")
    if n_columns > 1:
        if not all(isinstance(v, (tuple, list)) and len(v) == n_columns for v in levels):
            raise ValueError(
                f"levels must be tuples of {n_columns} values, one per group column, "
                f"got {_shorten(levels)}."
            )
        levels = [tuple(v) for v in levels]
    with error_context("levels", _NO_NAMES):
        distinct = {level_key(v) for v in levels}
    if not levels:
        raise ValueError("levels must name at least one group, got none.")
    if len(distinct) != len(levels):
        raise ValueError("levels names a level twice. Name each once.")
    return _array(levels)


def _array(values: Sequence[Any]) -> np.ndarray:
    """Return values, tuples among them, as an array of one dimension."""
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _shorten(values: Sequence[Any], limit: int = 12) -> str:
    some = ", ".join(safe_repr(v) for v in values[:limit])
    return f"[{some}{', ...' if len(values) > limit else ''}]"


def as_columns(group_col: Any) -> list[Any]:
    """Return ``group_col`` as a list of column names or indices; None is no column."""
    if isinstance(group_col, Groups):
        group_col = group_col.columns
    if group_col is None:
        return []
    columns = list(group_col) if isinstance(group_col, (list, tuple)) else [group_col]
    wanted = "group_col must be a column name, a column index, 'target' or a list of these"
    if not columns:
        raise ValueError(f"{wanted}, got {safe_repr(group_col)}. Use None for no groups.")
    if not all(isinstance(column, str) or is_integer(column) for column in columns):
        raise TypeError(f"{wanted}, got {safe_repr(group_col)}.")
    columns = [str.__str__(c) if isinstance(c, str) else int(c) for c in columns]
    _refuse_twice(columns, group_col)
    return columns


def positions(X: Any, group_col: Any) -> list[int]:
    """Return the positions in X of the group columns that X has to hold."""
    columns = as_columns(group_col)
    if TARGET in columns and TARGET in _names(X):
        raise ValueError(
            "group_col='target' means the class labels, but X has a column named 'target'. "
            "Rename the column."
        )
    at = [position(X, column) for column in columns if column != TARGET]
    _refuse_twice(at, group_col)
    return at


def _refuse_twice(columns: list[Any], group_col: Any) -> None:
    if len(set(columns)) != len(columns):
        raise ValueError(f"group_col names a column twice: {safe_repr(group_col)}. Name each once.")


def position(X: Any, column: str | int, name: str = "group_col") -> int:
    """Return the position in X of a column that the parameter ``name`` names."""
    value, n_columns = f"{name}={safe_repr(column)}", X.shape[1]
    if not isinstance(column, str):
        if not -n_columns <= column < n_columns:
            raise ValueError(f"{value} is out of range for X with {n_columns} columns.")
        return int(column % n_columns)
    names, (kind, keyword) = _names(X), _KINDS[name]
    if names.count(column) == 1:
        return names.index(column)
    if not hasattr(X, "columns"):
        fault = "names a column, but X is not a DataFrame"
    elif getattr(X.columns, "nlevels", 1) > 1:
        fault = (
            "names no column of X, which has columns of several levels (join them: "
            'X.columns = ["_".join(map(str, c)) for c in X.columns])'
        )
    elif column in names:
        fault = f"is the name of {names.count(column)} columns of X"
    else:
        fault = f"is not a column of X, which has {_shorten(names)}"
    raise ValueError(
        f"{value} {fault}. In a pipeline, let steps keep names and pass the column through: "
        f'ColumnTransformer([..., ("{kind}s", "passthrough", [{safe_repr(column)}])], '
        'verbose_feature_names_out=False).set_output(transform="pandas"), as '
        f"public_preprocessor(..., passthrough=[{safe_repr(column)}]) does; or give the {kind}s as "
        f"fit(..., {keyword}=...)."
    )


def _names(X: Any) -> list[Any]:
    return [str(c) if isinstance(c, str) else c for c in getattr(X, "columns", [])]


def _names_of(sensitive_features: Any) -> list[str]:
    """Return the names of the columns of sensitive features or labels, as far as they have any."""
    if isinstance(sensitive_features, Mapping):
        return list(map(str, sensitive_features))
    table = in_pandas(sensitive_features)
    if isinstance(table, pd.Series):
        return [] if table.name is None else [str(table.name)]
    return list(map(str, table.columns)) if isinstance(table, pd.DataFrame) else []


def variables_of(y: Any, X: Any, group_col: Any, sensitive_features: Any) -> tuple[str, ...]:
    """Return the names of the target and of the columns of the groups, "" where there is none."""
    (target, *_), groups = _names_of(y) or [""], _names_of(sensitive_features)
    if columns := as_columns(group_col):
        names = _names(X) or [""] * X.shape[1]
        groups = [target or TARGET if c == TARGET else names[position(X, c)] for c in columns]
    texts = (str(name)[:MAX_NAME] for name in (target, *groups))
    return tuple(text if is_name(text) else "" for text in texts)
