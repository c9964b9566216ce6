"""Which group each record belongs to, when the groups may be declared."""

import warnings

import numpy as np
import pandas as pd
from sklearn.exceptions import UndefinedMetricWarning

from skdpfair._validate import error_context, error_context_without_data, listed, safe_repr
from skdpfair.metrics._checks import as_pandas


def encode(sensitive_features, like, groups=None):
    """Return the group of each record as a position in a list of groups.

    Parameters
    ----------
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections, named by tuples.
    like : sized
        Has one entry per record.
    groups : list or None, default=None
        All groups there may be, also those without a record; None means those that occur.

    Returns
    -------
    codes : ndarray of shape (n_samples,), int
        Positions in ``levels``.
    levels : list
        The groups.

    Raises
    ------
    ValueError
        If lengths differ, values are missing, or a value is not among ``groups``.

    Examples
    --------
    >>> encode(["F", "M", "F"], like=[1, 0, 1], groups=["M", "F", "X"])
    (array([1, 0, 1]), ['M', 'F', 'X'])
    """
    rows = _as_rows(sensitive_features, like)
    if groups is None:
        with error_context_without_data("sensitive_features", "has values that cannot name groups"):
            levels = list(dict.fromkeys(rows))
        try:
            levels.sort()
        except TypeError:
            levels.sort(key=str)
    else:
        levels = _as_levels(groups)
    position = {level: i for i, level in enumerate(levels)}
    with error_context_without_data("sensitive_features", "has values that cannot name groups"):
        codes = [position.get(row, -1) for row in rows]
    if -1 in codes:
        raise ValueError(
            f"groups must hold every value of sensitive_features, got {safe_repr(levels)}, but the "
            "data hold others, too. Declare every group, spelt as in the data."
        )
    return np.array(codes, dtype=np.intp), levels


def _as_levels(groups):
    given = listed("groups", groups, "all groups")
    levels = [tuple(g) if isinstance(g, list) else g for g in given]
    with error_context("groups", "has values that cannot name groups"):
        n_distinct = len(set(levels))
    if not levels or n_distinct != len(levels):
        raise ValueError(
            f"groups must name each group once, and at least one, got {safe_repr(levels)}."
        )
    return levels


def _as_rows(sensitive_features, like):
    """Return one hashable value per record: tuples where there are several columns."""
    table = pd.DataFrame(as_pandas(sensitive_features, like))
    if table.shape[1] == 1:
        return table.iloc[:, 0].tolist()
    return list(table.itertuples(index=False, name=None))


def label(group):
    """Return a group's name in brackets; intersections are joined by commas.

    Examples
    --------
    >>> label("F"), label(("F", "White"))
    ('[F]', '[F, White]')
    """
    return f"[{', '.join(map(str, group)) if isinstance(group, tuple) else group}]"


def warn_undefined(what, why):
    """Warn that ``what`` is NaN, and say why."""
    warnings.warn(f"{what} is NaN: {why}", UndefinedMetricWarning, stacklevel=3)
