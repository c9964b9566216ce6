"""Bar charts of group tables."""

import math

from skdpfair.metrics._measures import described
from skdpfair.plotting._axes import (
    PALETTE,
    axes_width,
    check_axes,
    colour_of,
    dress,
    drop_overlapping,
    legend_above,
    mark_break,
    new_axes,
    plain,
    text_width,
)

_CLUSTER = 0.8  # share of a cluster's room that its bars fill
_MOST_UPRIGHT = 6  # bars of a cluster; more lie, so that names and values have room
_TALLEST = 24.0  # inches of a figure


def plot_group_bars(
    table, columns, *, ax=None, ylabel="", title="", value_format="{:.1f}", baseline=0.0
):
    """Draw one cluster of bars per row and one bar per column, with a value on each bar.

    More than six columns are drawn as horizontal bars: one cluster per column, one bar per row.

    Parameters
    ----------
    table : pandas.DataFrame of shape (n_rows, n_columns)
        The values; its index names the clusters. NaN draws no bar.
    columns : dict of str to str, or sequence of str
        The columns to draw; the values of a dict are their names in the legend.
    ax : matplotlib.axes.Axes or None, default=None
        Axes to draw into; None makes a new figure of suitable size.
    ylabel, title : str, default=""
        Label of the value axis, and title of the axes.
    value_format : str, default="{:.1f}"
        Format of the values on the bars; values that would overlap are left out.
    baseline : float, default=0.0
        Start of the bars, in the unit of the table.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the table lacks a column, or there is nothing to draw.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpfair.plotting import plot_group_bars
    >>> table = pd.DataFrame({"F": [1.0, 2.0], "M": [3.0, 4.0]}, index=["sgd", "dpsgd"])
    >>> ax = plot_group_bars(table, ["F", "M"], ylabel="loss")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['F', 'M']
    >>> ax.figure.clear()
    """
    names = dict(columns) if hasattr(columns, "items") else {c: str(c) for c in columns}
    ax = _draw(table, names, ax, ylabel, title, value_format, baseline)
    drop_overlapping(ax)
    return ax


def _draw(table, names, ax, label, title, value_format, baseline):
    """Draw all but what depends on the limits of the axis of values."""
    check_axes(ax)
    _check_table(table, names)
    lying = _is_lying(names)
    values = table[list(names)].to_numpy(float)
    clusters, bars = [*map(plain, table.index)], [*map(plain, names.values())]
    if lying:
        values, clusters, bars = values.T, bars, clusters
    own = ax is None
    ax = _axes_for(len(clusters), len(bars), lying) if own else ax
    width = _CLUSTER / len(bars)
    for j, name in enumerate(bars):
        places = [i - _CLUSTER / 2 + (j + 0.5) * width for i in range(len(clusters))]
        draw, start = (ax.barh, "left") if lying else (ax.bar, "bottom")
        drawn = draw(
            places,
            values[:, j] - baseline,
            width * 0.94,
            **{start: baseline},
            label=name,
            color=colour_of(j),
            hatch=None if j < len(PALETTE) else "//",
        )
        texts = [_written(value_format, v) for v in values[:, j]]
        size = 10 if values.size <= 12 or lying else 8
        ax.bar_label(drawn, texts, padding=2, fontsize=size)
    _name_clusters(ax, clusters, lying)
    (ax.set_xlabel if lying else ax.set_ylabel)(label)
    legend_rows = legend_above(ax, bars)
    dress(ax, title, pad=12 + 17 * legend_rows, grid="x" if lying else "y")
    if own and legend_rows > 2:
        ax.figure.set_figheight(ax.figure.get_figheight() + 0.24 * (legend_rows - 2))
    return ax


def plot_group_measure(table, measure="accuracy", ax=None):
    """Draw a measure of each group for each model of a group table.

    The axis of a share starts just below the lowest value to make differences visible, and is
    marked so.

    Parameters
    ----------
    table : pandas.DataFrame
        From `skdpfair.metrics.group_table`, with the columns ``MEASURE[GROUP]``.
    measure : str, default="accuracy"
        The measure, such as ``"rarest_class_recall"`` or ``"excessive_risk"``.
    ax : matplotlib.axes.Axes or None, default=None
        Axes to draw into; None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, in per cent, percentage points or nats.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the table has no column ``MEASURE[GROUP]``.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpfair.plotting import plot_group_measure
    >>> table = pd.DataFrame({"log_loss[F]": [0.31], "log_loss[M]": [0.42]}, index=["dpsgd"])
    >>> ax = plot_group_measure(table, "log_loss")
    >>> ax.get_ylabel(), ax.get_title(loc="left")
    ('log loss (nats)', 'Log loss of each group')
    >>> ax.figure.clear()
    """
    columns = _group_columns(table, measure)
    title, unit, factor = described(measure)
    values = table[list(columns)] * factor
    start = _axis_start(values) if unit == "%" else 0
    label = f"{measure.replace('_', ' ')} ({unit})" + (
        f", axis starts at {start:g}" if start else ""
    )
    value_format = "{:.1f}" if factor == 100 else "{:.3f}"
    ax = _draw(values, columns, ax, label, f"{title} of each group", value_format, start)
    if unit == "%":
        lying = _is_lying(columns)
        # room for the labels of the highest bars
        end = start + (max(values.max().max(), start + 1) - start) * 1.1
        (ax.set_xlim if lying else ax.set_ylim)(start, end)
        axis = ax.xaxis if lying else ax.yaxis
        axis.set_ticks([tick for tick in axis.get_ticklocs() if start <= tick <= 100])
        if start:
            mark_break(ax, lying)
    drop_overlapping(ax)
    return ax


def plot_group_accuracy(table, ax=None):
    """Draw the accuracy of each group for each model of a group table.

    This is `plot_group_measure` with ``measure="accuracy"``.

    Parameters
    ----------
    table : pandas.DataFrame
        From `skdpfair.metrics.group_table`.
    ax : matplotlib.axes.Axes or None, default=None
        Axes to draw into; None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, in per cent.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the table has no column ``accuracy[GROUP]``.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpfair.plotting import plot_group_accuracy
    >>> table = pd.DataFrame({"accuracy[F]": [0.93], "accuracy[M]": [0.81]}, index=["sgd"])
    >>> ax = plot_group_accuracy(table)
    >>> ax.get_ylabel()
    'accuracy (%), axis starts at 70'
    >>> ax.figure.clear()
    """
    return plot_group_measure(table, "accuracy", ax)


def plot_privacy_cost(table, ax=None):
    """Draw the privacy cost of each group for each private model of a group table.

    The reference, whose cost is 0 by definition, is left out.

    Parameters
    ----------
    table : pandas.DataFrame
        From `skdpfair.metrics.group_table`.
    ax : matplotlib.axes.Axes or None, default=None
        Axes to draw into; None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, in percentage points of accuracy; below zero, the private model does better.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the table has no column ``privacy_cost[GROUP]``, or no row besides the reference.

    Examples
    --------
    >>> from skdpfair.metrics import group_table
    >>> from skdpfair.plotting import plot_privacy_cost
    >>> table = group_table(
    ...     [1, 0, 1, 0], {"sgd": [1, 0, 1, 1], "dpsgd": [1, 0, 0, 1]},
    ...     reference="sgd", sensitive_features=["F", "M", "F", "M"], measures=["privacy_cost"],
    ... )
    >>> ax = plot_privacy_cost(table)
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['dpsgd']
    >>> ax.figure.clear()
    """
    columns = _group_columns(table, "privacy_cost")
    reference = table.attrs.get("reference")
    points = table.loc[[name != reference for name in table.index], list(columns)] * 100
    against = f", against {plain(reference)}" if reference is not None else ""
    at = f" at ε = {table.attrs['epsilon']:g}" if "epsilon" in table.attrs else ""
    title = f"Privacy cost of each group{at}{against}"
    label = "accuracy lost (percentage points)"
    ax = _draw(points, columns, ax, label, title, "{:+.1f}", 0.0)
    # at least one point of height: a tenth of a point must not look like a tower
    if _is_lying(columns):
        ax.axvline(0, color="black", linewidth=1)
        ax.margins(x=0.12)
        ax.set_xlim(right=max(ax.get_xlim()[1], 1.0))
    else:
        ax.axhline(0, color="black", linewidth=1)
        ax.margins(y=0.12)
        ax.set_ylim(top=max(ax.get_ylim()[1], 1.0))
    drop_overlapping(ax)
    return ax


def _written(value_format, value):
    """Return a bar's label: empty for NaN, with a true minus sign below zero."""
    return "" if math.isnan(value) else value_format.format(value).replace("-", "\N{MINUS SIGN}")


def _group_columns(table, measure):
    """Return the columns ``measure[GROUP]`` with their groups' names."""
    start = f"{measure}["
    columns = {c: c[len(start) : -1] for c in table.columns if str(c).startswith(start)}
    empty = " (no test records)"
    columns = {c: g + empty * bool(table[c].isna().all()) for c, g in columns.items()}
    if not columns:
        raise ValueError(
            f"table must have columns {measure}[GROUP]. Pass the result of "
            "skdpfair.metrics.group_table."
        )
    return columns


def _check_table(table, names):
    missing = [column for column in names if column not in table.columns]
    if missing:
        raise ValueError(f"table lacks the columns {missing}.")
    if table.empty or not names:
        raise ValueError("table must have at least one row and columns one column to draw.")
    if table[list(names)].isna().all(axis=None):
        raise ValueError(
            "table holds no number to draw: all are NaN, as without a reference model, or without "
            "test records."
        )


def _is_lying(names):
    return len(names) > _MOST_UPRIGHT


def _axis_start(percent):
    """Return a multiple of 10 at least 5 points below the lowest value, so every bar is seen."""
    return max(0, math.floor((percent.min().min() - 5) / 10) * 10)


def _axes_for(n_clusters, n_bars, lying):
    """Return the axes of a new figure, large enough for its bars."""
    n = n_clusters * n_bars
    if lying:
        return new_axes(height=min(max(4.8, 1.6 + 0.2 * n + 0.08 * n_clusters), _TALLEST))
    return new_axes(width=min(max(8.0, 0.5 * n), 20.0))


def _name_clusters(ax, names, lying):
    """Write the clusters' names beside or below them, tilted if they would touch."""
    # a single cluster would otherwise fill the axes with two slabs
    margin = 0.6 if len(names) > 1 else 1.0
    ends = (-margin, len(names) - 1 + margin)
    if lying:
        ax.set_yticks(range(len(names)), names)
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(ends[::-1])  # the first on top
        return
    ax.set_xticks(range(len(names)), names)
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(ends)
    if (max(map(text_width, names)) + 4) * len(names) > axes_width(ax):
        for text in ax.get_xticklabels():
            text.set(rotation=20, ha="right", rotation_mode="anchor")
