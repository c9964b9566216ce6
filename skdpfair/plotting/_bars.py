"""Pictures of group tables: DataFrames in, matplotlib axes out."""

import math

__all__ = ["plot_group_accuracy", "plot_group_bars", "plot_privacy_cost"]

# Okabe and Ito's colours for the colour-blind, without black, and yellow last: it is faint
_PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_CLUSTER = 0.8  # share of a model's room that its bars fill


def plot_group_bars(
    table, columns, *, ax=None, ylabel="", title="", value_format="{:.1f}", baseline=0.0
):
    """Draw one cluster of bars per row, one bar per column, with the value on every bar.

    Parameters
    ----------
    table : pandas.DataFrame of shape (n_rows, n_columns)
        Its index names the clusters. NaN draws no bar.
    columns : dict of str to str, or sequence of str
        The columns to draw, and how the legend calls them.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw; None makes a new figure.
    ylabel, title : str, default=""
        The text beside and above the axes.
    value_format : str, default="{:.1f}"
        How the value on a bar is written.
    baseline : float, default=0.0
        Where the bars start, in the unit of the table.

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
    _check_table(table, names)
    ax = _new_axes(len(table), len(names)) if ax is None else ax
    width = _CLUSTER / len(names)
    for j, (column, label) in enumerate(names.items()):
        places = [i - _CLUSTER / 2 + (j + 0.5) * width for i in range(len(table))]
        values = table[column].to_numpy(float)
        bars = ax.bar(
            places,
            values - baseline,
            width * 0.94,
            bottom=baseline,
            label=label,
            color=_PALETTE[j % len(_PALETTE)],
            hatch=None if j < len(_PALETTE) else "//",
        )
        texts = [_written(value_format, v) for v in values]
        ax.bar_label(bars, texts, padding=2, fontsize=_label_size(len(table) * len(names)))
    _dress(ax, table.index, ylabel, title, len(names))
    return ax


def plot_group_accuracy(table, ax=None):
    """Draw every group's accuracy, for each model of a group table.

    The axis starts just below the lowest accuracy, where differences are visible, and says so.

    Parameters
    ----------
    table : pandas.DataFrame
        From `skdpfair.metrics.group_table`.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        In per cent.

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
    columns = _group_columns(table, "accuracy")
    percent = table[list(columns)] * 100
    start = _axis_start(percent)
    ylabel = "accuracy (%)" + (f", axis starts at {start:g}" if start else "")
    title = "Accuracy of each group"
    ax = plot_group_bars(percent, columns, ax=ax, ylabel=ylabel, title=title, baseline=start)
    # room for the labels of the highest bars
    ax.set_ylim(start, start + (max(percent.max().max(), start + 1) - start) * 1.1)
    ax.set_yticks([tick for tick in ax.get_yticks() if start <= tick <= 100])
    if start:
        _mark_break(ax)
    return ax


def plot_privacy_cost(table, ax=None):
    """Draw every group's privacy cost, for each private model of a group table.

    The reference itself, whose cost is 0 by definition, is left out.

    Parameters
    ----------
    table : pandas.DataFrame
        From `skdpfair.metrics.group_table`.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        In percentage points of accuracy; below zero, the private model does better.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the table has no column ``privacy_cost[GROUP]``, or no other row than the reference.

    Examples
    --------
    >>> from skdpfair.metrics import group_table
    >>> from skdpfair.plotting import plot_privacy_cost
    >>> table = group_table(
    ...     [1, 0, 1, 0], {"sgd": [1, 0, 1, 1], "dpsgd": [1, 0, 0, 1]},
    ...     reference="sgd", sensitive_features=["F", "M", "F", "M"],
    ... )
    >>> ax = plot_privacy_cost(table)
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['dpsgd']
    >>> ax.figure.clear()
    """
    columns = _group_columns(table, "privacy_cost")
    reference = table.attrs.get("reference")
    points = table.loc[[name != reference for name in table.index], list(columns)] * 100
    against = f", against {reference}" if reference is not None else ""
    ax = plot_group_bars(
        points,
        columns,
        ax=ax,
        ylabel="accuracy lost (percentage points)",
        title=f"Privacy cost of each group{against}",
        value_format="{:+.1f}",
    )
    ax.axhline(0, color="black", linewidth=1)
    ax.margins(y=0.12)
    # at least one point of height: a tenth of a point must not look like a tower
    ax.set_ylim(top=max(ax.get_ylim()[1], 1.0))
    return ax


def _written(value_format, value):
    """Return a bar's label: empty for NaN, with a true minus sign below zero."""
    return "" if math.isnan(value) else value_format.format(value).replace("-", "\N{MINUS SIGN}")


def _group_columns(table, measure):
    """Return the columns ``measure[GROUP]`` with their groups."""
    start = f"{measure}["
    columns = {c: c[len(start) : -1] for c in table.columns if str(c).startswith(start)}
    if not columns:
        raise ValueError(
            f"table must have columns {measure}[GROUP], got {list(table.columns)}. Pass the result "
            "of skdpfair.metrics.group_table."
        )
    return columns


def _check_table(table, names):
    missing = [column for column in names if column not in table.columns]
    if missing:
        raise ValueError(f"table lacks the columns {missing}, got {list(table.columns)}.")
    if table.empty or not names:
        raise ValueError("table must have at least one row and columns one column to draw.")


def _axis_start(percent):
    """Return a multiple of 10 at least 5 points below the lowest value, so every bar is seen."""
    return max(0, math.floor((percent.min().min() - 5) / 10) * 10)


def _new_axes(n_rows, n_columns):
    """Return the axes of a new figure, wide enough for its bars."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'plotting needs matplotlib: pip install "skdpfair[plot]", or pass ax.'
        ) from error
    width = min(max(8.0, 0.5 * n_rows * n_columns), 20.0)
    figure, ax = plt.subplots(figsize=(width, 4.8), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)  # inches
    return ax


def _label_size(n_bars):
    """Return the font size at which the labels of so many bars do not touch."""
    return 10 if n_bars <= 12 else 8


def _dress(ax, rows, ylabel, title, n_columns):
    """Add everything but the bars: ticks, legend, grid, texts."""
    _name_clusters(ax, [str(row) for row in rows])
    legend_rows = math.ceil(n_columns / 5)
    ax.set_ylabel(ylabel)
    ax.set_title(title, loc="left", fontweight="bold", pad=12 + 17 * legend_rows)
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=math.ceil(n_columns / legend_rows),
        frameon=False,
        borderaxespad=0.3,
        handlelength=1.2,
    )
    ax.grid(axis="y", color="0.88")
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _name_clusters(ax, names):
    """Write the clusters' names below them, tilted if they would touch."""
    ax.set_xticks(range(len(names)), names)
    ax.tick_params(axis="x", length=0)
    if max(map(len, names)) * len(names) > 75:
        for text in ax.get_xticklabels():
            text.set(rotation=20, ha="right", rotation_mode="anchor")
    # a single cluster would otherwise fill the axes with two slabs
    margin = 0.6 if len(names) > 1 else 1.0
    ax.set_xlim(-margin, len(names) - 1 + margin)


def _mark_break(ax):
    """Draw the sign of an axis that does not start at zero."""
    ax.plot(
        [0, 0],
        [0.045, 0.07],
        transform=ax.transAxes,
        linestyle="none",
        clip_on=False,
        marker=[(-1, -0.5), (1, 0.5)],
        markersize=12,
        color="black",
    )
