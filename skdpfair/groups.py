"""Table -> (features, group codes, levels): where the groups of a fit come from."""

from dataclasses import dataclass
from itertools import product
from numbers import Integral

import numpy as np
import pandas as pd

TARGET = "target"


@dataclass(frozen=True)
class Groups:
    """The groups of a table.

    Parameters
    ----------
    code : ndarray of shape (n_samples,), int64
        Index into ``levels`` of each record; zeros without groups.
    levels : ndarray or None
        The groups, tuples for intersections; None without groups.
    declared : bool
        Whether the levels were given rather than read off the data.
    """

    code: np.ndarray
    levels: np.ndarray | None
    declared: bool

    @property
    def n_groups(self) -> int:
        """Number of groups, at least 1."""
        return 1 if self.levels is None else len(self.levels)


def as_columns(group_col) -> list:
    """Return ``group_col`` as a list of column names or indices; None is no column."""
    if group_col is None:
        return []
    columns = list(group_col) if isinstance(group_col, (list, tuple)) else [group_col]
    for column in columns:
        if isinstance(column, bool) or not isinstance(column, (str, Integral)):
            raise TypeError(
                f"group_col must be a column name, a column index, 'target' or a list of these, "
                f"got {group_col!r}."
            )
    if len(set(columns)) != len(columns):
        raise ValueError(f"group_col names a column twice: {group_col!r}. Name each once.")
    return columns


def positions(X, group_col) -> list[int]:
    """Return the positions in X of the group columns that X has to hold."""
    columns = [c for c in as_columns(group_col) if c != TARGET]
    names = [str(c) if isinstance(c, str) else c for c in getattr(X, "columns", [])]
    if TARGET in as_columns(group_col) and TARGET in names:
        raise ValueError(
            "group_col='target' means the class labels, but X has a column named 'target'. "
            "Rename the column."
        )
    return [_position(X, names, column) for column in columns]


def _position(X, names, column):
    n_columns = X.shape[1]
    if isinstance(column, str):
        if not hasattr(X, "columns"):
            raise ValueError(
                f"group_col={column!r} names a column, but X is not a DataFrame (maybe a "
                "transformer returned an array). Either make the pipeline keep names: "
                "ColumnTransformer(..., verbose_feature_names_out=False)"
                '.set_output(transform="pandas") with the group column under "passthrough"; or '
                "give the groups as fit(..., sensitive_features=...)."
            )
        if column not in names:
            raise ValueError(
                f"group_col={column!r} is not a column of X, which has {_shorten(names)}. "
                "Inside a ColumnTransformer pass the column through under its own name: "
                'set_output(transform="pandas"), verbose_feature_names_out=False, and '
                f'("groups", "passthrough", [{column!r}]), which '
                f"public_preprocessor(..., passthrough=[{column!r}]) does; or give the groups as "
                "fit(..., sensitive_features=...)."
            )
        return names.index(column)
    if not -n_columns <= column < n_columns:
        raise ValueError(f"group_col={column} is out of range for X with {n_columns} columns.")
    return column % n_columns


def encode(X, y, *, group_col, groups, sensitive_features) -> Groups:
    """Return the groups of the rows of X.

    Raises
    ------
    ValueError
        If both sources are given, groups are missing or undeclared, or there is only one.
    """
    if group_col is not None and sensitive_features is not None:
        raise ValueError("Give groups by group_col or by sensitive_features, not by both.")
    table = _group_table(X, y, group_col, sensitive_features)
    if table is None:
        if groups is not None:
            raise ValueError("groups= declares levels, but there is no group_col. Set group_col.")
        return Groups(np.zeros(len(y), dtype=np.int64), None, True)
    if len(table) != len(y):
        raise ValueError(f"sensitive_features has {len(table)} rows, but y has {len(y)}.")
    return _coded(table, groups, "sensitive_features" if group_col is None else "group_col")


def _group_table(X, y, group_col, sensitive_features):
    if sensitive_features is not None:
        values = sensitive_features
        if np.ndim(values) == 0:
            raise ValueError(
                f"sensitive_features must hold one group for each row, got {values!r}. To name a "
                f"column of X, set group_col={values!r}."
            )
        if isinstance(values, pd.Series):
            return values.to_frame()
        return values if isinstance(values, pd.DataFrame) else pd.DataFrame(np.asarray(values))
    if group_col is None:
        return None
    found = iter(positions(X, group_col))
    columns = {}
    for column in as_columns(group_col):
        if column == TARGET:
            columns[column] = np.asarray(y)
        else:
            at = next(found)
            values = X.iloc[:, at] if hasattr(X, "iloc") else np.asarray(X)[:, at]
            columns[column] = np.asarray(values)
    return pd.DataFrame(columns)


def _coded(table, groups, source):
    values = [table.iloc[:, i].to_numpy(dtype=object) for i in range(table.shape[1])]
    rows = values[0] if len(values) == 1 else _tuples(zip(*values, strict=True))
    missing = np.logical_or.reduce([np.asarray(pd.isna(v)) for v in values])
    if groups is None:
        if missing.any():
            raise ValueError(
                f"{source} has missing values. Give them a level of their own, for instance "
                "fillna('unknown'), or declare one: groups=[..., None]."
            )
        levels = _discovered(values)
    else:
        levels = _declared(groups, len(values))
    code = _codes_of(rows, levels)
    if (code < 0).any():
        unknown = list(dict.fromkeys(rows[code < 0]))
        remedy = "Declare every group, spelt as in the data."
        if missing[code < 0].all():
            remedy = "Missing values need a level too: add None to groups, or fill them."
        raise ValueError(
            f"{source} has values outside groups={_shorten(list(levels))}: "
            f"{_shorten(unknown, 8)}. {remedy}"
        )
    if len(levels) < 2 or (groups is None and len(np.unique(code)) < 2):
        raise ValueError(
            f"{source} puts all rows in one group, so there is nothing to compare. Choose a "
            "column with two groups or more, or leave the groups out."
        )
    return Groups(code.astype(np.int64), levels, groups is not None)


def _codes_of(rows, levels):
    """Return the position of each row in ``levels``, -1 for none."""
    position = {_key(level): i for i, level in enumerate(levels)}
    each, distinct = pd.factorize(rows, use_na_sentinel=False)
    return np.array([position.get(_key(v), -1) for v in distinct], dtype=np.int64)[each]


def _discovered(values):
    levels = [_sorted_unique(v) for v in values]
    return levels[0] if len(levels) == 1 else _tuples(product(*levels))


def _sorted_unique(values):
    unique = list(dict.fromkeys(values))
    try:
        unique.sort()
    except TypeError:
        unique.sort(key=lambda v: (type(v).__name__, str(v)))
    return _objects(unique)


def _declared(groups, n_columns):
    levels = list(groups)
    if n_columns > 1:
        if not all(isinstance(v, (tuple, list)) and len(v) == n_columns for v in levels):
            raise ValueError(
                f"groups must be tuples of {n_columns} values, one per group column, "
                f"got {_shorten(levels)}."
            )
        levels = [tuple(v) for v in levels]
    if len({_key(v) for v in levels}) != len(levels):
        raise ValueError(f"groups names a level twice: {_shorten(levels)}.")
    return _objects(levels)


def _key(value):
    """Return a hashable stand-in, equal for all kinds of missing values and of numbers."""
    if isinstance(value, tuple):
        return tuple(_key(v) for v in value)
    return "\0missing" if pd.isna(value) else value


def _tuples(rows):
    return _objects(list(rows))


def _objects(values):
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _shorten(values, limit=12):
    shown = ", ".join(repr(v) for v in values[:limit])
    return f"[{shown}{', ...' if len(values) > limit else ''}]"
