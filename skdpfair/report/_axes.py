"""Colours and axes of all displays."""

import numpy as np

from skdpfair._utils.validate import safe_repr

# Okabe and Ito's colours for the colour-blind, without black, and yellow last: it is faint
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_MAX_NAME = 60  # letters


def colour_of(i):
    """Return the colour of the i-th curve or bar."""
    return PALETTE[i % len(PALETTE)]


def new_axes(width=8.0, height=4.8, n_columns=1, n_rows=1, ax=None):
    """Return axes that were passed, or those of a new figure, whose size is in inches."""
    if ax is not None and not all(hasattr(a, "get_legend") for a in np.ravel(ax)):
        raise TypeError(f"ax must be matplotlib's Axes or None, got {safe_repr(ax)}.")
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'plotting needs matplotlib: pip install "skdpfair[plot]", or pass ax.'
        ) from error
    return plt.subplots(n_rows, n_columns, figsize=(width, height), layout="constrained")[1]


def dress(ax, title, *, grid="y"):
    """Write the title, draw a grid, and hide the spines that are not needed."""
    ax.set_title(title, loc="left", fontweight="bold")
    ax.grid(axis=grid, color="0.88")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def legend_aside(ax):
    """Write the names of curves or bars to the right of the axes, where they cover nothing."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def plain(name):
    """Return the name of a group, column or model as a text that matplotlib writes as it is."""
    text = str(name) if str(name).strip() else "(missing)"
    text = text if len(text) <= _MAX_NAME else f"{text[:30]}…{text[-20:]}"
    # matplotlib takes dollars for mathematics, and leaves _names out of legends
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
