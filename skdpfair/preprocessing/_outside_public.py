"""Counts of the values outside public bounds and categories."""

import pandas as pd

from skdpfair._utils.validate import outline, safe_repr
from skdpfair.inputs.columns import in_pandas, refuse_dates
from skdpfair.preprocessing._public import codes_in


def outside_public(table, bounds, categories=None):
    """Count values outside public bounds and categories, such as typing errors.

    Parameters
    ----------
    table : DataFrame
        Rows, which the caller may look at.
    bounds : dict of column to (low, high)
        Public bounds of numbers.
    categories : dict of column to list, or None, default=None
        Public lists of values.

    Returns
    -------
    DataFrame
        For each column, the shares ``missing`` and ``outside``, and ``example``, a value that is
        outside, None if there is none.  It is NOT private.

    Raises
    ------
    TypeError, ValueError
        If ``table`` is not a DataFrame, lacks a column, has one twice, or holds dates in one.

    Examples
    --------
    >>> from skdpfair.preprocessing import outside_public
    >>> rows = pd.DataFrame({"age": [30, 150, None, 40], "ward": ["A", "b", "A", "A"]})
    >>> outside_public(rows, {"age": (0, 120)}, {"ward": ["A", "B"]})
            missing  outside example
    column
    age        0.25     0.25   150.0
    ward       0.00     0.25       b
    """
    categories = categories or {}
    table = with_columns(table, [*bounds, *categories], "bounds and categories")
    refuse_dates("table", table[list(bounds)])
    beyond = {column: ~table[column].between(*pair) for column, pair in bounds.items()}
    beyond |= {c: codes_in(listed, table[c]) < 0 for c, listed in categories.items()}
    out = []
    for column, is_beyond in beyond.items():
        outside = table[column][is_beyond & table[column].notna()]
        example = None if outside.empty else outside.iloc[0]
        out.append((table[column].isna().mean(), len(outside) / len(table), example))
    index = pd.Index(list(beyond), name="column")
    return pd.DataFrame(out, index=index, columns=["missing", "outside", "example"])


def with_columns(table, wanted, of="The schema"):
    """Return a table as pandas', which must have each of some columns once."""
    table = in_pandas(table)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"table must be a DataFrame with named columns, got {outline(table)}.")
    names = list(table.columns)
    if wrong := [column for column in dict.fromkeys(wanted) if names.count(column) != 1]:
        raise ValueError(
            f"{of} must name columns of table, got {safe_repr(wrong)}, which table lacks, or has "
            "several times. Spell them alike."
        )
    return table
