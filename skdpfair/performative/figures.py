"""Pictures of the scalar simulation: tables of `experiments` in, matplotlib axes out."""

from skdpfair._validate import safe_repr
from skdpfair.plotting._axes import PALETTE, new_axes

__all__ = ["plot_bias_by_beta", "plot_bias_by_epsilon", "plot_bias_over_iterations"]

_DISTANCE = "squared distance to the stable point"


def plot_bias_over_iterations(table, ax=None):
    """Draw the distance to the stable point over the iterations, one colour per beta.

    Parameters
    ----------
    table : pandas.DataFrame
        From `bias_over_iterations`.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        With logarithmic axes.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the table lacks a column.

    Examples
    --------
    >>> from skdpfair.performative import bias_over_iterations, plot_bias_over_iterations
    >>> table = bias_over_iterations([0.01], 200, noise_multiplier=0.5, random_state=0)
    >>> ax = plot_bias_over_iterations(table)
    >>> ax.get_xlabel()
    'iteration'
    >>> ax.figure.clear()
    """
    _check(table, ("beta", "iteration", "simulated", "expected", "limit"))
    ax = new_axes() if ax is None else ax
    for colour, (beta, rows) in zip(PALETTE, table.groupby("beta"), strict=False):
        ax.plot(rows["iteration"], rows["simulated"], color=colour, label=f"β = {beta:g}")
        ax.plot(rows["iteration"], rows["expected"], color=colour, linestyle=":", linewidth=2.5)
        limit = rows["limit"].iloc[-1]
        ax.axhline(limit, color=colour, linestyle="--", linewidth=1)
        ax.annotate(f"{limit:.4f}", (1.01, limit), xycoords=("axes fraction", "data"), va="center")
    _explain(ax, {"expected path": ":", "closed form": "--"})
    ax.set(xscale="log", yscale="log", xlabel="iteration", ylabel=_DISTANCE)
    return _dress(ax, "Clipping leaves a bias that grows with the reaction β")


def plot_bias_by_epsilon(table, ax=None):
    """Draw the distance to the stable point against the budget, one colour per clipping bound.

    Parameters
    ----------
    table : pandas.DataFrame
        From `bias_by_epsilon`.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        With a logarithmic x axis.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the table lacks a column.

    Examples
    --------
    >>> from skdpfair.performative import bias_by_epsilon, plot_bias_by_epsilon
    >>> ax = plot_bias_by_epsilon(bias_by_epsilon([1.0], [1.0], n_repetitions=5, random_state=0))
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['c = 1', 'bias alone']
    >>> ax.figure.clear()
    """
    _check(table, ("max_grad_norm", "epsilon", "simulated", "squared_bias"))
    ax = new_axes() if ax is None else ax
    for colour, (c, rows) in zip(PALETTE, table.groupby("max_grad_norm"), strict=False):
        ax.plot(rows["epsilon"], rows["simulated"], "o-", color=colour, label=f"c = {c:g}")
        limit = rows["squared_bias"].iloc[0]
        ax.axhline(limit, color=colour, linestyle="--", linewidth=1)
    _explain(ax, {"bias alone": "--"})
    ticks = sorted(set(table["epsilon"]))
    ax.set(xscale="log", xlabel="ε", ylabel=_DISTANCE)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    return _dress(ax, "A tight clipping bound c is biased, a wide one is noisy")


def plot_bias_by_beta(table, ax=None):
    """Draw the bias against the population's reaction, with the curve of the theory.

    Parameters
    ----------
    table : pandas.DataFrame
        From `bias_by_beta`.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        With a logarithmic y axis.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the table lacks a column.

    Examples
    --------
    >>> from skdpfair.performative import bias_by_beta, plot_bias_by_beta
    >>> ax = plot_bias_by_beta(bias_by_beta([0.01, 0.05], 200, noise_multiplier=0.5))
    >>> ax.get_yscale()
    'log'
    >>> ax.figure.clear()
    """
    _check(table, ("beta", "rate", "simulated", "squared_bias"))
    ax = new_axes() if ax is None else ax
    curve = _curve(table)
    ax.plot(*curve, color="0.5", linestyle="--", label="theory, proportional to 1/(μ − Lβ)²")
    ax.plot(table["beta"], table["simulated"], "o", color=PALETTE[0], label="simulated")
    ax.set(yscale="log", xlabel="β", ylabel=_DISTANCE)
    return _dress(ax, "The bias grows without limit as β nears μ / L")


def _curve(table):
    """Return the closed form on a fine grid: its scale is the same for every beta."""
    import numpy as np

    scale = float((table["squared_bias"] * table["rate"] ** 2).mean())
    beta = np.linspace(table["beta"].min(), table["beta"].max(), 200)
    rate = np.interp(beta, table["beta"], table["rate"])  # linear in beta
    return beta, scale / rate**2


def _check(table, columns):
    if not hasattr(table, "columns"):
        raise TypeError(f"table must be a DataFrame, got {safe_repr(table)}.")
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise ValueError(
            f"table lacks the columns {missing}, got {safe_repr(list(table.columns))}."
        )


def _explain(ax, styles):
    """Add what the line styles mean to the legend."""
    for label, style in styles.items():
        ax.plot([], [], color="0.4", linestyle=style, label=label)


def _dress(ax, title):
    ax.set_title(title, loc="left", fontweight="bold", pad=29)
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=5,
        frameon=False,
        borderaxespad=0.3,
        handlelength=2.0,
    )
    ax.grid(color="0.88")
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax
