"""Colours, axes, widths of texts and labels of curves, for all displays."""

import numpy as np

from skdpfair._utils.validate import safe_repr

# Okabe and Ito's colours for the colour-blind, without black, and yellow last: it is faint
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_MAX_NAME = 60  # letters
_MIN_SPACE = 34.0  # points from one budget to the next, of up to five digits
_INK = {"#F0E442": "#857A00"}  # yellow letters are illegible


def colour_of(i):
    """Return the colour of the i-th curve or bar."""
    return PALETTE[i % len(PALETTE)]


def new_axes(width=8.0, height=4.8, n_columns=1, n_rows=1):
    """Return the axes of a new figure, whose size is in inches."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'plotting needs matplotlib: pip install "skdpfair[plot]", or pass ax.'
        ) from error
    figure, axes = plt.subplots(n_rows, n_columns, figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)  # inches
    return axes


def check_axes(ax):
    """Raise TypeError for anything but axes, or None for new ones."""
    if ax is not None and not hasattr(ax, "get_legend_handles_labels"):
        raise TypeError(f"ax must be matplotlib's Axes or None, got {safe_repr(ax)}.")


def dress(ax, title, *, pad=12, grid="y"):
    """Write the title, draw a grid, and hide the spines that are not needed."""
    ax.set_title(title, loc="left", fontweight="bold", pad=pad)
    ax.grid(axis=grid, color="0.88")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def plain(name):
    """Return the name of a group, column or model as a text that matplotlib writes as it is.

    It would take dollars for mathematics, leave empty names and ``_name`` out of legends, and have
    no room for very long names, whose middle is left out.
    """
    text = str(name) if str(name).strip() else "(missing)"
    text = text if len(text) <= _MAX_NAME else f"{text[:30]}…{text[-20:]}"
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def label_ends(ax, ends):
    """Write each curve's name beside its last point, moved apart where they would touch.

    ``ends`` are (height, name, colour, place on the x axis, or None for a line across).
    """
    low, high = ax.get_ylim()
    room = (high - low) * 0.055
    ends = sorted(ends, key=lambda end: end[0])
    places = []
    for value, *_ in ends:
        places.append(max(value, places[-1] + room) if places else value)
    # what was pushed up as a whole goes half the way back
    shift = np.mean([p - value for p, (value, *_) in zip(places, ends, strict=True)] or [0.0])
    fraction = ax.transData + ax.transAxes.inverted()  # of the axis, from 0 to 1
    for place, (value, name, colour, x) in zip(places, ends, strict=True):
        at = 1.0 if x is None else fraction.transform((x, low))[0]
        # a line across half the picture would look like a curve: name such a point where it is
        label = 1.04 if at > 0.6 else at + 0.04
        ax.annotate(
            plain(name),
            xy=(1.0 if x is None else x, value),
            xytext=(label, place - shift),
            xycoords=("axes fraction" if x is None else "data", "data"),
            textcoords=("axes fraction", "data"),
            va="center",
            color=_INK.get(colour, colour),
            fontweight="bold",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.8, "shrinkB": 4},
        )


def spaced(budgets, room):
    """Return the budgets, sorted, whose names do not touch on a log axis of ``room`` points."""
    if len(budgets) < 3:
        return budgets
    at = room * np.log(budgets) / np.log(budgets[-1] / budgets[0])
    kept = [0]
    for i in range(1, len(budgets) - 1):
        if at[i] - at[kept[-1]] >= _MIN_SPACE <= at[-1] - at[i]:
            kept.append(i)
    return [budgets[i] for i in (*kept, -1)]
