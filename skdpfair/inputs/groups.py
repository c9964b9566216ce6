"""Group codes and levels of records, from columns of a table or from sensitive features."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from skdpfair._validate import (
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
_KINDS = {"group_col": ("group", "sensitive_features"), "persons": ("person", "units")}
_LONGEST_NAME = 100
_MOST_GROUPS = 10_000  # found in the data; a column of numbers makes as many as there are rows


class Groups(ParameterObject):
    """The groups of a table, as the parameter ``group_col`` of an estimator.

    Parameters
    ----------
    columns : str, int, "target", list of these, or None, default=None
        Column(s) of X that hold the groups; several make intersections; "target" takes the class
        labels.  None where ``fit`` is given ``sensitive_features``.
    levels : list or None, default=None
        The public set of groups.  None reads them off the data, an assumption on record.
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
        """Return the ``group_col`` of an estimator in one form; raise if it is none.

        Parameters
        ----------
        group_col : str, int, list, Groups or None
            As given to the estimator.

        Returns
        -------
        Groups
            Checked, apart from whether X has the columns.
        """
        given = group_col if isinstance(group_col, Groups) else cls(group_col)
        columns = as_columns(given.columns) or None
        levels = given.levels
        if levels is not None:
            levels = listed("levels", levels, "values or None")
        return cls(columns, levels, flag("as_feature", given.as_feature))


@dataclass(frozen=True)
class GroupCodes:
    """The groups of the records of a table.

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


def group_names(levels: Iterable[Any]) -> list[str]:
    """Return the names of groups in keys and columns, no two of them alike.

    Values of intersections are joined by commas. A value that looks like another of its column, as
    "1" beside 1, or that has a comma inside an intersection, is in quotes.

    Examples
    --------
    >>> group_names(["F", 1, "1"]), group_names([("F", "x, y"), ("F, x", "y")])
    (['F', '1', "'1'"], ["F, 'x, y'", "'F, x', y"])
    """
    return [", ".join(parts) for parts in _parts(levels)]


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


def apart(names: Iterable[Any], reserved: Sequence[str]) -> list[Any]:
    """Return names of groups, in quotes where the package has ``reserved`` them."""
    return [f"'{n}'" if isinstance(n, str) and n.strip("'") in reserved else n for n in names]


def named(values: Iterable[Any], variables: Sequence[str] = ()) -> list[str]:
    """Return groups or classes for readers, with the names of their variables as far as known.

    Examples
    --------
    >>> named(["no", "yes"], ["deny"]), named([("F", ""), ("M", "A")], ["sex", "race"]), named([1])
    (['deny = no', 'deny = yes'], ['sex = F, race = (missing)', 'sex = M, race = A'], ['1'])
    """
    return [joined(parts, variables) for parts in _parts(values)]


def joined(parts: Sequence[str], variables: Sequence[str]) -> str:
    """Return one group for readers, of the texts of its values."""
    known = variables if len(variables) == len(parts) else [""] * len(parts)
    texts = [text if text.strip() else "(missing)" for text in parts]
    return ", ".join(f"{n} = {t}" if n else t for n, t in zip(known, texts, strict=True))


def variables_of(y: Any, X: Any, group_col: Any, sensitive_features: Any) -> tuple[str, ...]:
    """Return the names of the target and of the columns of the groups, "" where there is none."""
    target, *groups = _names_of(y)[:1] or [""], *_names_of(sensitive_features)
    if as_columns(group_col):
        names, at = _names(X) or [""] * X.shape[1], iter(positions(X, group_col))
        groups = [
            target[0] or TARGET if c == TARGET else names[next(at)] for c in as_columns(group_col)
        ]
    return tuple(str(name)[:_LONGEST_NAME] for name in (*target, *groups))


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
    for column in columns:
        if not isinstance(column, str) and not is_integer(column):
            raise TypeError(f"{wanted}, got {safe_repr(group_col)}.")
    columns = [str.__str__(c) if isinstance(c, str) else int(c) for c in columns]
    if len(set(columns)) != len(columns):
        raise ValueError(f"group_col names a column twice: {safe_repr(group_col)}. Name each once.")
    return columns


def positions(X: Any, group_col: Any) -> list[int]:
    """Return the positions in X of the group columns that X has to hold."""
    columns = [c for c in as_columns(group_col) if c != TARGET]
    if TARGET in as_columns(group_col) and TARGET in _names(X):
        raise ValueError(
            "group_col='target' means the class labels, but X has a column named 'target'. "
            "Rename the column."
        )
    found = [position(X, column) for column in columns]
    if len(set(found)) != len(found):
        raise ValueError(f"group_col names a column twice: {safe_repr(group_col)}. Name each once.")
    return found


def position(X: Any, column: str | int, name: str = "group_col") -> int:
    """Return the position in X of a column that the parameter ``name`` names."""
    n_columns, names = X.shape[1], _names(X)
    kind, keyword = _KINDS[name]
    given = f"{name}={safe_repr(column)}"
    if isinstance(column, str):
        if not hasattr(X, "columns"):
            raise ValueError(
                f"{given} names a column, but X is not a DataFrame (maybe a transformer returned "
                "an array). Either make the pipeline keep names: "
                "ColumnTransformer(..., verbose_feature_names_out=False)"
                f'.set_output(transform="pandas") with the {kind} column under "passthrough"; or '
                f"give the {kind}s as fit(..., {keyword}=...)."
            )
        if getattr(X.columns, "nlevels", 1) > 1:
            raise ValueError(
                f"X has columns of several levels, of which {name} names none. Join the levels: "
                'X.columns = ["_".join(map(str, c)) for c in X.columns]; or give the '
                f"{kind}s as fit(..., {keyword}=...)."
            )
        if column not in names:
            raise ValueError(
                f"{given} is not a column of X, which has {_shorten(names)}. "
                "Inside a ColumnTransformer pass the column through under its own name: "
                'set_output(transform="pandas"), verbose_feature_names_out=False, and '
                f'("{kind}s", "passthrough", [{safe_repr(column)}]), which '
                f"public_preprocessor(..., passthrough=[{safe_repr(column)}]) does; or give the "
                f"{kind}s as fit(..., {keyword}=...)."
            )
        if names.count(column) > 1:
            raise ValueError(
                f"{given} is the name of {names.count(column)} columns of X. "
                f"Name each column once, or give the {kind}s as fit(..., {keyword}=...)."
            )
        return names.index(column)
    if not -n_columns <= column < n_columns:
        raise ValueError(f"{given} is out of range for X with {n_columns} columns.")
    at: int = column % n_columns
    return at


def _names(X: Any) -> list[Any]:
    return [str(c) if isinstance(c, str) else c for c in getattr(X, "columns", [])]


def encode(
    X: Any, y: np.ndarray, *, group_col: Any, sensitive_features: Any, levels: Any = None
) -> GroupCodes:
    """Return the groups of the rows of X.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features, ...)
        The table, which holds the columns that ``group_col`` names.
    y : ndarray of shape (n_samples,)
        Class labels, the groups where ``group_col`` is "target".
    group_col : as in DPFairClassifier
        Columns of the groups, and the declared groups.
    sensitive_features : array, Series, DataFrame or None
        The groups, one column or several, in place of columns.
    levels : list or None, default=None
        All groups, in place of those that ``group_col`` declares.

    Returns
    -------
    GroupCodes
        Codes and levels of all rows.

    Raises
    ------
    ValueError
        If both sources are given, groups are missing or undeclared, or there is only one.
    """
    named = Groups.of(group_col)
    group_col, levels = named.columns, named.levels if levels is None else levels
    if group_col is not None and sensitive_features is not None:
        raise ValueError("Give groups by group_col or by sensitive_features, not by both.")
    table = _group_table(in_pandas(X), y, group_col, in_pandas(sensitive_features))
    if table is None:
        if levels is not None:
            raise ValueError(
                "Groups(levels=...) declares levels, but no groups are given. Pass fit(..., "
                "sensitive_features=...), or name their columns."
            )
        return GroupCodes(np.zeros(len(y), dtype=np.int64), None, True)
    if len(table) != len(y):
        raise ValueError(f"sensitive_features has {len(table)} rows, but y has {len(y)}.")
    source = "sensitive_features" if group_col is None else "group_col"
    found = _coded(table, levels, source)
    n_groups = found.n_groups if found.declared else len(np.unique(found.code))
    if n_groups < 2:
        raise ValueError(
            f"{source} puts all rows in one group, so there is nothing to compare. Choose a "
            "column with two groups or more, or leave the groups out."
        )
    return found


def _names_of(sensitive_features: Any) -> list[str]:
    if isinstance(sensitive_features, Mapping):
        return list(map(str, sensitive_features))
    table = in_pandas(sensitive_features)
    if isinstance(table, pd.Series):
        return [] if table.name is None else [str(table.name)]
    return list(map(str, table.columns)) if isinstance(table, pd.DataFrame) else []


def within_columns(
    levels: Iterable[Any], sensitive_features: Any, reserved: Sequence[str] = ()
) -> dict[str, dict[str, list[Any]]]:
    """Return the groups of each column, if levels are intersections of several.

    Each name of a column maps to ``groups``, their names, none of which is ``reserved``, and
    ``of``, the position of each intersection among them.

    Examples
    --------
    >>> table = pd.DataFrame({"sex": ["F"], "race": ["A"]})
    >>> within_columns([("F", "A"), ("F", "B")], table)["sex"]
    {'groups': ['F'], 'of': [0, 0]}
    >>> within_columns(["F", "M"], ["F", "M"])
    {}
    """
    levels = list(levels)
    if not levels or not all(isinstance(level, tuple) for level in levels):
        return {}
    names = _names_of(sensitive_features)
    if len(set(names)) != len(levels[0]):
        names = [f"column {at}" for at in range(len(levels[0]))]
    found: dict[str, dict[str, list[Any]]] = {}
    for at, values in enumerate(zip(*levels, strict=True)):
        texts = _texts(values, "\0")
        groups = list(dict.fromkeys(texts))
        of = [groups.index(text) for text in texts]
        found[names[at]] = {"groups": apart(groups, reserved), "of": of}
    return found


def encode_features(
    sensitive_features: Any, n_samples: int, groups: Sequence[Any] | None = None
) -> GroupCodes:
    """Return the groups of records that are measured: those declared, or those that occur.

    Unlike `encode`, one group is enough, and intersections without a record are left out unless
    they are declared.

    Parameters
    ----------
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), or dict
        The groups; several columns, or the arrays of a dict, make intersections.
    n_samples : int
        Number of records.
    groups : list or None, default=None
        All groups there may be; None means those that occur, in sorted order.

    Returns
    -------
    GroupCodes

    Raises
    ------
    ValueError
        If lengths differ, values are missing or undeclared, or there are more than 10,000 groups.

    Examples
    --------
    >>> found = encode_features(["F", "M", "F"], 3, groups=["M", "F", "X"])
    >>> found.code.tolist(), found.levels.tolist()
    ([1, 0, 1], ['M', 'F', 'X'])
    """
    name = "sensitive_features"
    if sensitive_features is None:
        raise ValueError(
            f"{name} must hold one group for each record, got None. Pass the column itself, such "
            "as X['sex']."
        )
    if isinstance(sensitive_features, Mapping):
        with error_context_without_data(name, "must hold one group for each record"):
            columns = {k: _as_they_are(_array(v)) for k, v in sensitive_features.items()}
            sensitive_features = pd.DataFrame(columns)
    table = _frame(in_pandas(sensitive_features))
    if len(table) != n_samples:
        raise ValueError(
            f"{name} must have one entry for each of the {n_samples} records of y_true, got "
            f"{len(table)}."
        )
    found = _coded(table, groups, name)
    if groups is not None:
        return found
    assert found.levels is not None
    occurring, code = np.unique(found.code, return_inverse=True)
    return GroupCodes(code.astype(np.int64), found.levels[occurring], False)


def _group_table(
    X: Any, y: np.ndarray, group_col: Any, sensitive_features: Any
) -> pd.DataFrame | None:
    if sensitive_features is not None:
        return _frame(sensitive_features)
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
    return pd.DataFrame({name: _as_they_are(values) for name, values in columns.items()})


def _frame(values: Any) -> pd.DataFrame:
    """Return sensitive features as a table of one column or more."""
    if isinstance(values, pd.Series):
        return values.to_frame()
    if isinstance(values, pd.DataFrame):
        frame = values
    else:
        values = _array(values)
        if values.ndim == 0:
            raise ValueError(
                "sensitive_features must hold one group for each row, got a single "
                f"{outline(values.item())}. Give the column itself, or a DataFrame of several; to "
                "name a column of X, set group_col=."
            )
        if values.ndim > 2:
            raise ValueError(
                "sensitive_features must have one or two dimensions, got shape "
                f"{values.shape}. Give one column for each attribute."
            )
        frame = pd.DataFrame(values, dtype=object if values.dtype.kind in "OUT" else None)
    if frame.shape[1] == 0:
        raise ValueError("sensitive_features has no columns. Leave it None for no groups.")
    return frame


def _array(values: Any) -> np.ndarray:
    """Return one or several columns as an array, in which missing values stay what they are."""
    refuse_masked("sensitive_features", values)
    with error_context_without_data("sensitive_features", "must hold one group for each row"):
        # numpy would turn NaN and None beside texts to texts
        apart = not hasattr(values, "dtype") and isinstance(values, (list, tuple))
        return np.asarray(values, dtype=object if apart else None)


def _as_they_are(values: np.ndarray) -> pd.Series:
    """Return a column whose texts pandas does not rewrite, which fails for half characters."""
    return pd.Series(values, dtype=object if values.dtype.kind in "OUT" else None)


def _coded(table: pd.DataFrame, groups: Any, source: str) -> GroupCodes:
    values = [table.iloc[:, i].to_numpy(dtype=object) for i in range(table.shape[1])]
    rows = values[0] if len(values) == 1 else _tuples(zip(*values, strict=True))
    missing = np.logical_or.reduce([np.asarray(pd.isna(v)) for v in values])
    if groups is None:
        if missing.any():
            raise ValueError(
                f"{source} has missing values. Give them a level of their own, for instance "
                "fillna('unknown'), or declare one: groups=[..., None] (levels= of Groups)."
            )
        with error_context_without_data(source, "has values that cannot name groups"):
            found = [_sorted_unique(v) for v in values]
        levels = _crossed(found, source)
    else:
        levels = _declared(groups, len(values))
    with error_context_without_data(source, "has values that cannot name groups"):
        code = _codes_of(rows, levels)
    if (code < 0).any():
        remedy = "Declare every group, spelt as in the data."
        if missing[code < 0].all():
            remedy = "Missing values need a level too: add None to groups, or fill them."
        raise ValueError(
            f"{source} has values outside groups= (levels= of Groups), which must list them "
            f"all. {remedy}"
        )
    return GroupCodes(code.astype(np.int64), levels, groups is not None)


def _codes_of(rows: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the position of each row in ``levels``, -1 for none."""
    position = {_key(level): i for i, level in enumerate(levels)}
    each, distinct = pd.factorize(rows, use_na_sentinel=False)
    codes = np.array([position.get(_key(v), -1) for v in distinct], dtype=np.int64)
    found: np.ndarray = codes[np.asarray(each)]
    return found


def _crossed(levels: list[np.ndarray], source: str) -> np.ndarray:
    if prod(map(len, levels)) > _MOST_GROUPS:
        raise ValueError(
            f"{source} makes more than {_MOST_GROUPS} groups. Choose columns of few values, cut "
            "numbers into ranges, or declare the intersections by groups= (levels= of Groups)."
        )
    return levels[0] if len(levels) == 1 else _tuples(product(*levels))


def _sorted_unique(values: np.ndarray) -> np.ndarray:
    unique = list(dict.fromkeys(values))
    try:
        unique.sort()
    except TypeError:
        unique.sort(key=lambda v: (type(v).__name__, str(v)))
    return _objects(unique)


def _declared(groups: Any, n_columns: int) -> np.ndarray:
    levels = listed("groups", groups, "the groups")
    if n_columns > 1:
        if not all(isinstance(v, (tuple, list)) and len(v) == n_columns for v in levels):
            raise ValueError(
                f"groups must be tuples of {n_columns} values, one per group column, "
                f"got {_shorten(levels)}."
            )
        levels = [tuple(v) for v in levels]
    with error_context("groups", "has values that cannot name groups"):
        distinct = {_key(v) for v in levels}
    if not levels:
        raise ValueError("groups must name at least one group, got none.")
    if len(distinct) != len(levels):
        raise ValueError("groups names a level twice. Name each once.")
    return _objects(levels)


def _key(value: Any) -> Any:
    """Return a hashable stand-in, equal for all kinds of missing values and of numbers."""
    if isinstance(value, tuple):
        return tuple(_key(v) for v in value)
    missing = pd.isna(value)
    return "\0missing" if isinstance(missing, bool) and missing else value


def _tuples(rows: Iterable[tuple[Any, ...]]) -> np.ndarray:
    return _objects(list(rows))


def _objects(values: Sequence[Any]) -> np.ndarray:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _shorten(values: Sequence[Any], limit: int = 12) -> str:
    some = ", ".join(safe_repr(v) for v in values[:limit])
    return f"[{some}{', ...' if len(values) > limit else ''}]"
