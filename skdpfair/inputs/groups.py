"""Groups of records: codes and levels, from columns of a table or from sensitive features."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pandas as pd

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
from skdpfair.inputs.columns import in_pandas, refuse_masked

TARGET = "target"
MAX_NAME = 100  # characters
MAX_READ = 30  # groups, or classes, that a fit reads from the rows, and so publishes
MAX_GROUPS = 10_000  # of rows that are measured; numbers make as many as there are rows
_DECIMAL = re.compile(r"\s*[-+]?\d*\.\d+(e[-+]?\d+)?\s*", re.IGNORECASE)
_KINDS = {"group_col": ("group", "sensitive_features"), "persons": ("person", "persons")}
_NO_NAMES = "has values that cannot name groups"


class Groups(ParameterObject):
    """The groups of a table, as the parameter ``group_col`` of an estimator.

    Parameters
    ----------
    columns : str, int, "target", list of these, or None, default=None
        Column(s) of X that hold the groups; several make intersections; "target" takes the class
        labels.  None where ``fit`` is given ``sensitive_features``.
    levels : list or None, default=None
        The public set of groups.  None reads at most 30 from the rows, which statements name.
    as_feature : bool, default=False
        Whether the model sees the columns, which must then be numbers.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> DPFairClassifier(group_col=Groups("sex", levels=["F", "M"])).group_col.levels
    ['F', 'M']
    """

    def __init__(
        self,
        columns: str | int | list[str | int] | None = None,
        levels: Sequence[Any] | None = None,
        as_feature: bool = False,
    ) -> None:
        self.columns = columns
        self.levels = levels
        self.as_feature = as_feature

    @classmethod
    def of(cls, group_col: Any) -> "Groups":
        """Return the ``group_col`` of an estimator, checked but for whether X has the columns."""
        groups = group_col if isinstance(group_col, Groups) else cls(group_col)
        levels = groups.levels
        if levels is not None:
            levels = listed("levels", levels, "values or None")
        return cls(
            as_columns(groups.columns) or None, levels, flag("as_feature", groups.as_feature)
        )


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


def encode(
    X: Any,
    y: np.ndarray,
    *,
    group_col: Any,
    sensitive_features: Any,
    levels: Any = None,
    most: int = MAX_READ,
) -> GroupCodes:
    """Return the groups of the rows of X, two or more, or one for all where none are given.

    ``levels`` are all groups, in place of those that ``group_col`` declares; without either, at
    most ``most`` are read from the rows.
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
    codes = _coded(columns, levels, source, most)
    if (codes.n_groups if codes.declared else len(np.unique(codes.code))) < 2:
        raise ValueError(
            f"{source} puts all rows in one group, so there is nothing to compare. Choose a "
            "column with two groups or more, or leave the groups out."
        )
    return codes


def encode_features(
    sensitive_features: Any,
    n_samples: int,
    groups: Sequence[Any] | None = None,
    most: int = MAX_GROUPS,
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
    codes = _coded(columns, groups, name, most)
    if groups is not None:
        return codes
    assert codes.levels is not None
    occurring, code = np.unique(codes.code, return_inverse=True)
    return GroupCodes(code.astype(np.int64), codes.levels[occurring], False)


def _objects(column: Any) -> np.ndarray:
    """Return a column as objects, texts and missing values as they are."""
    values: np.ndarray = pd.Series(column, dtype=object).to_numpy()
    return values


def _columns_of(values: Any) -> list[np.ndarray]:
    """Return sensitive features, one column or more, as arrays of objects."""
    refuse_masked("sensitive_features", values)
    values = in_pandas(values)
    if isinstance(values, pd.Series):
        return [_objects(values)]
    if isinstance(values, pd.DataFrame):
        columns = [_objects(values.iloc[:, i]) for i in range(values.shape[1])]
    else:
        with error_context_without_data("sensitive_features", "must hold one group for each row"):
            # numpy would turn NaN and None beside texts to texts
            is_list = not hasattr(values, "dtype") and isinstance(values, (list, tuple))
            array = np.asarray(values, dtype=object if is_list else None)
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
        columns = [_objects(column) for column in (array[:, None] if array.ndim == 1 else array).T]
    if not columns:
        raise ValueError("sensitive_features has no columns. Leave it None for no groups.")
    return columns


def _coded(columns: list[np.ndarray], groups: Any, source: str, most: int) -> GroupCodes:
    """Return the groups of rows, declared or read off them, whose columns are arrays of objects."""
    missing = np.logical_or.reduce([np.asarray(pd.isna(column)) for column in columns])
    if groups is not None:
        levels = _declared(groups, len(columns))
    elif missing.any():
        raise ValueError(
            f"{source} has missing values. Give them a level of their own, for instance "
            "fillna('unknown'), or declare one: levels=[..., None]."
        )
    else:
        levels = _occurring(columns, source, most)
    with error_context_without_data(source, _NO_NAMES):
        rows = columns[0] if len(columns) == 1 else _array(list(zip(*columns, strict=True)))
        each, distinct = pd.factorize(rows, use_na_sentinel=False)
        position = {_key(level): i for i, level in enumerate(levels)}
        code = np.array([position.get(_key(v), -1) for v in distinct], dtype=np.int64)[each]
    if (code < 0).any():
        remedy = "Declare every group, spelt as in the data."
        if missing[code < 0].all():
            remedy = "Missing values need a level too: add None to levels, or fill them."
        raise ValueError(f"{source} has values outside levels=, which must list them all. {remedy}")
    return GroupCodes(code, levels, groups is not None)


def _occurring(columns: list[np.ndarray], source: str, most: int) -> np.ndarray:
    """Return the sorted values of a column, of several their product, at most ``most``."""
    with error_context_without_data(source, _NO_NAMES):
        distinct = [_sorted(pd.unique(column)) for column in columns]
    if prod(map(len, distinct)) > most:
        raise ValueError(
            f"{source} makes more than {most} groups that nobody declared. Choose columns of few "
            "values, cut numbers into ranges, or declare all groups: Groups(..., levels=[...]), or "
            "levels= of metrics. A column that names persons belongs in persons=."
        )
    return _array(distinct[0] if len(distinct) == 1 else list(product(*distinct)))


def _sorted(values: Iterable[Any]) -> list[Any]:
    """Return values in order; by type and text where they have none."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda v: (type(v).__name__, str(v)))


def _declared(groups: Any, n_columns: int) -> np.ndarray:
    """Return the levels that a user declares, checked."""
    levels = listed("groups", groups, "the groups")
    if n_columns > 1:
        if not all(isinstance(v, (tuple, list)) and len(v) == n_columns for v in levels):
            raise ValueError(
                f"groups must be tuples of {n_columns} values, one per group column, "
                f"got {_shorten(levels)}."
            )
        levels = [tuple(v) for v in levels]
    with error_context("groups", _NO_NAMES):
        distinct = {_key(v) for v in levels}
    if not levels:
        raise ValueError("groups must name at least one group, got none.")
    if len(distinct) != len(levels):
        raise ValueError("groups names a level twice. Name each once.")
    return _array(levels)


def _key(value: Any) -> Any:
    """Return a hashable stand-in, equal for all kinds of missing values and of numbers."""
    if isinstance(value, tuple):
        return tuple(_key(v) for v in value)
    missing = pd.isna(value)
    return "\0missing" if isinstance(missing, bool) and missing else value


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
    if not hasattr(X, "columns"):
        fault = (
            "names a column, but X is not a DataFrame (maybe a transformer returned an array). "
            "Either make the pipeline keep names: "
            "ColumnTransformer(..., verbose_feature_names_out=False)"
            f'.set_output(transform="pandas") with the {kind} column under "passthrough"'
        )
    elif getattr(X.columns, "nlevels", 1) > 1:
        fault = (
            "names no column of X, which has columns of several levels. Join the levels: "
            'X.columns = ["_".join(map(str, c)) for c in X.columns]'
        )
    elif column not in names:
        fault = (
            f"is not a column of X, which has {_shorten(names)}. Inside a ColumnTransformer pass "
            'the column through under its own name: set_output(transform="pandas"), '
            f'verbose_feature_names_out=False, and ("{kind}s", "passthrough", '
            f"[{safe_repr(column)}]), which "
            f"public_preprocessor(..., passthrough=[{safe_repr(column)}]) does"
        )
    elif names.count(column) > 1:
        fault = f"is the name of {names.count(column)} columns of X. Name each column once"
    else:
        return names.index(column)
    raise ValueError(f"{value} {fault}; or give the {kind}s as fit(..., {keyword}=...).")


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


def is_word(value: Any) -> bool:
    """Return whether a value is a text short enough for a name."""
    return isinstance(value, str) and len(value) <= MAX_NAME


def is_name(value: Any) -> bool:
    """Return whether a value is a short text that is no measurement."""
    return is_word(value) and not _DECIMAL.fullmatch(value)


def read_from_rows(
    variables: Sequence[str], classes: Iterable[Any] | None, groups: GroupCodes | None
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the name of each column that classes or undeclared groups were read from, and these.

    ``variables`` are as of `variables_of`; ``classes`` is None where they were declared.
    """
    target, *names = variables
    read = [] if classes is None else [(target or "classes", classes)]
    if groups is not None and groups.levels is not None and not groups.declared:
        rows = [v if isinstance(v, tuple) else (v,) for v in groups.levels]
        columns = list(zip(*rows, strict=True))
        known = names if len(names) == len(columns) else [""] * len(columns)
        read += [(n or "groups", dict.fromkeys(c)) for n, c in zip(known, columns, strict=True)]
    return tuple(dict.fromkeys((name, tuple(_texts(values, "\0"))) for name, values in read))


def group_names(levels: Iterable[Any]) -> list[str]:
    """Return the names of groups in keys and columns, no two of them alike.

    Values of intersections are joined by commas.  A value that looks like another of its column, as
    "1" beside 1, or that has a comma inside an intersection, is in quotes.
    """
    return [", ".join(parts) for parts in _parts(levels)]


def named(values: Iterable[Any], variables: Sequence[str] = ()) -> list[str]:
    """Return groups or classes for readers, with the names of their variables as far as known."""
    return [joined(parts, variables) for parts in _parts(values)]


def joined(parts: Sequence[str], variables: Sequence[str]) -> str:
    """Return one group for readers, of the texts of its values."""
    known = variables if len(variables) == len(parts) else [""] * len(parts)
    texts = [text if text.strip() else "(missing)" for text in parts]
    return ", ".join(f"{n} = {t}" if n else t for n, t in zip(known, texts, strict=True))


def apart(names: Iterable[Any], reserved: Sequence[str]) -> list[Any]:
    """Return names of groups, in quotes where the package has ``reserved`` them."""
    return [f"'{n}'" if isinstance(n, str) and n.strip("'") in reserved else n for n in names]


def _parts(levels: Iterable[Any]) -> list[tuple[str, ...]]:
    """Return the texts of the values of each group, of an intersection one for each column."""
    levels = list(levels)
    widths = {len(level) if isinstance(level, tuple) else 0 for level in levels}
    if len(widths) != 1 or widths == {0}:
        return [(text,) for text in _texts(levels, "\0")]
    columns = [_texts(values, ", ") for values in zip(*levels, strict=True)]
    return list(zip(*columns, strict=True))


def _texts(values: Iterable[Any], comma: str) -> list[str]:
    """Return values as texts, in quotes where they could be taken for others."""
    values = [str.__str__(v) if isinstance(v, str) else v for v in values]
    looks = {_key(value): _look(str(value)) for value in values}
    count = Counter(looks.values())

    def is_quoted(value: Any) -> bool:
        return count[looks[_key(value)]] > 1 or comma in str(value) or str(value)[:1] in ("'", '"')

    return [ascii(value) if is_quoted(value) else str(value) for value in values]


def _look(text: str) -> str:
    """Return a text but for spaces, decimals of whole numbers and forms of letters."""
    text = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", text).split()).removesuffix(".0")
