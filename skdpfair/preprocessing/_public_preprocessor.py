"""Scaling and encoding of tables by public bounds and categories."""

from collections.abc import Mapping

from skdpfair._utils.validate import error_context, one_of, safe_repr
from skdpfair._utils.validate import listed as as_list
from skdpfair.preprocessing import _public
from skdpfair.preprocessing._piecewise_linear import (
    DIRECTIONS,
    PiecewiseLinearEncoder,
    log_columns_of,
)
from skdpfair.preprocessing._public_bounds import pair_of


def public_preprocessor(
    bounds,
    categories=None,
    *,
    encoding="auto",
    epsilon=1.0,
    n_intervals="auto",
    log_columns="auto",
    passthrough=(),
    missing="middle",
    monotone=None,
):
    """Make a ColumnTransformer that learns only the number of the rows it is fitted on.

    Parameters
    ----------
    bounds : dict of str to (low, high)
        Public bounds of the numeric columns, in their units; see `BoundedScaler`.
    categories : dict of str to sequence, "dtype" or None, default=None
        Public categories of each categorical column, spelt as in the table; "1", 1 and 1.0 are
        equal, as are "True" and True. "dtype" takes those that pandas' Categorical and polars' Enum
        list, for all such columns outside ``passthrough``. Declare these types:
        ``astype("category")`` would read them from the rows.
    encoding : {"auto", "linear"}, default="auto"
        "auto" encodes each numeric column by piecewise-linear functions, so that a linear model,
        ``DPFairClassifier(module="logistic")``, fits a curve; "linear" scales it to [-1, 1], for a
        straight line.
    epsilon : float > 0 or None, default=1.0
        Budget of the fit that uses the columns; None for a fit without privacy. It affects
        ``n_intervals="auto"`` only. Nothing is spent.
    n_intervals : int >= 0 or "auto", default="auto"
        Number of intervals between knots on each axis. ``"auto"``: 8, or fewer if budget and
        records are small for the columns. It depends on the number of rows: fit on training rows,
        and only transform others.
    log_columns : list of str or "auto", default="auto"
        Columns that also get a logarithmic axis. ``"auto"``: those with a bound of at least 1,000
        in absolute value and with ``low <= 0`` or ``high >= 1000 * low``. (Years have none.)
    passthrough : sequence of str, default=()
        Columns to keep unchanged, such as the group column. A column may be both here and in
        ``categories``: it is then both encoded and kept.
    missing : {"middle", "indicator"} or list of str, default="middle"
        "middle" replaces a missing number by the middle of its bounds; "indicator" by zeros, and by
        1 in a further column ``{column}_missing``, which every numeric column gets. A list names
        the columns that get one.
    monotone : dict of str to {"increasing", "decreasing"}, optional
        Numeric columns with which the logit of ``pos_label_``, or the prediction of a regression,
        must not fall, or rise. A `DPFairClassifier` or `DPFairRegressor` with a linear module
        projects their curves after training, which costs no privacy; other estimators ignore it.
        The names of their columns say so, so pass on the DataFrame.

    Returns
    -------
    sklearn.compose.ColumnTransformer
        The unfitted transformer. Its output is a DataFrame of the encoded numbers,
        ``column_category`` for each category (float32), and the columns of ``passthrough``. A
        category that is missing or not listed becomes a row of zeros, and a number beyond its
        bounds is moved to the nearer bound. Neither raises a warning, which would reveal
        information about the rows; `outside_public` counts such values.

    Examples
    --------
    >>> from skdpfair.datasets import load_adult
    >>> from skdpfair.preprocessing import public_preprocessor
    >>> adult = load_adult(subset="test")
    >>> races = {"race": ("Black", "White")}
    >>> make = public_preprocessor({"age": (17, 90)}, races, passthrough=["sex"])
    >>> make.fit_transform(adult.data)[["age", "race_Black", "race_White", "sex"]].head(2).round(2)
        age  race_Black  race_White   sex
    0 -0.78         1.0         0.0  Male
    1 -0.42         0.0         1.0  Male
    """
    of_types = isinstance(categories, str) and one_of("categories", categories, ("dtype",))
    categories = {} if categories is None or of_types else categories
    for name, part in (("bounds", bounds), ("categories", categories)):
        if not isinstance(part, Mapping) or not all(isinstance(column, str) for column in part):
            raise TypeError(
                f"{name} must be a dict by column names, which are texts, got {safe_repr(part)}."
            )
    with error_context("bounds"):
        bounds = {column: pair_of(pair, column) for column, pair in bounds.items()}
    if isinstance(missing, str):
        one_of("missing", missing, ("middle", "indicator"))
        missing = list(bounds) if missing == "indicator" else []
    if one_of("encoding", encoding, ("auto", "linear")) == "linear":
        n_intervals, log_columns = 0, []
    missing = as_list("missing", missing, "column names")
    log_columns = log_columns_of(log_columns, bounds)
    for name, columns in (("missing", missing), ("log_columns", log_columns)):
        if unknown := [column for column in columns if column not in bounds]:
            raise ValueError(
                f"{name} names {safe_repr(unknown)}, which bounds lacks. Name numeric columns, "
                "spelt as in bounds."
            )
    monotone = {} if monotone is None else monotone
    if not isinstance(monotone, Mapping) or not {*monotone} <= {*bounds}:
        raise ValueError(
            "monotone must be a dict by columns that bounds names, to 'increasing' or "
            f"'decreasing', got {safe_repr(monotone)}."
        )
    for direction in monotone.values():
        one_of("monotone", direction, DIRECTIONS)
    numeric = PiecewiseLinearEncoder(
        bounds,
        n_intervals=n_intervals,
        log_columns=log_columns,
        epsilon=epsilon,
        missing=missing,
        monotone=monotone,
    )
    passthrough = [passthrough] if isinstance(passthrough, str) else passthrough
    passthrough = as_list("passthrough", passthrough, "column names")
    for name, columns in (("categories", categories), ("passthrough", passthrough)):
        if both := [column for column in columns if column in bounds]:
            raise ValueError(
                f"{name} and bounds both name {safe_repr(both)}, but a column is either scaled or "
                "kept. Remove it from one of them."
            )
    chosen = _public.CategoryColumns([*bounds, *passthrough])
    listed = {c: _public.category_list(c, listed) for c, listed in categories.items()}
    encoder = _public.PublicEncoder("dtype" if of_types else listed)
    parts = [
        ("numeric", numeric, list(bounds)),
        ("categorical", encoder, chosen if of_types else list(categories)),
        ("passthrough", "passthrough", passthrough),
    ]
    # names and pandas output: without both, the group column's name would not survive
    return _public.ColumnTransformer(
        [part for part in parts if part[2]], remainder="drop", verbose_feature_names_out=False
    ).set_output(transform="pandas")
