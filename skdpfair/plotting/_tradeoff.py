"""A picture of a sweep: one quantity against epsilon, one colour a method."""

import numpy as np

from skdpfair._validate import one_of
from skdpfair.plotting._bars import _PALETTE, _new_axes

__all__ = ["TradeoffDisplay"]

_MARKERS = "osD^vPX"
_TITLES = {
    "accuracy": "Accuracy",
    "accuracy_gap": "Accuracy gap between groups",
    "privacy_cost": "Privacy cost",
    "privacy_cost_gap": "Privacy cost gap between groups",
}


class TradeoffDisplay:
    """One quantity against the privacy budget, with standard errors over seeds as bands.

    Parameters
    ----------
    curves : dict of str to DataFrame
        By method: columns epsilon (inf: no privacy, drawn as a dashed line), mean and se, in [-1,
        1].
    y : str
        The quantity.

    Attributes
    ----------
    ax_, figure_
        Set by `plot`.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpfair.plotting import TradeoffDisplay
    >>> rows = pd.DataFrame({"epsilon": [0.5, 1.0], "mean": [0.7, 0.8], "se": [0.02, 0.01]})
    >>> display = TradeoffDisplay({"dpsgd": rows}, "accuracy").plot()
    >>> display.ax_.get_ylabel()
    'accuracy (%)'
    >>> display.figure_.clear()
    """

    def __init__(self, curves, y="accuracy"):
        self.curves, self.y = curves, y

    @classmethod
    def from_results(cls, results, *, y="accuracy"):
        """Make the display of a sweep's results.

        Parameters
        ----------
        results : TradeoffResults
            From `skdpfair.model_selection.sweep`.
        y : str, default="accuracy"
            A column of ``results.table()``, such as ``"privacy_cost[F]"``.

        Returns
        -------
        TradeoffDisplay
        """
        table = results.table()
        table = table[one_of("y", y, table.columns.get_level_values(0).unique())].reset_index()
        return cls(
            {m: part.sort_values("epsilon") for m, part in table.groupby("method", sort=False)}, y
        )

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        TradeoffDisplay
            Itself.
        """
        ax = _new_axes(1, 1) if ax is None else ax
        ends, budgets, drawn = [], set(), 0
        for method, rows in self.curves.items():
            mean, se = 100 * rows["mean"], 100 * rows["se"].fillna(0.0)
            if np.isinf(rows["epsilon"]).all():
                # costs are measured from the twin: zero is drawn anyway
                if not self.y.startswith("privacy_cost"):
                    ax.axhline(mean.iloc[0], color="0.35", linestyle="--", linewidth=1.2, zorder=1)
                    ends.append((mean.iloc[0], method, "0.35", None))
                continue
            colour = _PALETTE[drawn % len(_PALETTE)]
            ax.fill_between(rows["epsilon"], mean - se, mean + se, color=colour, alpha=0.18, lw=0)
            ax.plot(
                rows["epsilon"], mean, color=colour, marker=_MARKERS[drawn % len(_MARKERS)], ms=5
            )
            ends.append((mean.iloc[-1], method, colour, rows["epsilon"].iloc[-1]))
            budgets |= set(rows["epsilon"])
            drawn += 1
        self._dress(ax, sorted(budgets))
        if ax.collections and any(rows["se"].notna().any() for rows in self.curves.values()):
            ax.set_xlabel(ax.get_xlabel() + "; bands are ± 1 standard error")
        _label_ends(ax, ends)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _dress(self, ax, budgets):
        measure, _, group = self.y.partition("[")
        of_group = f" of {group.rstrip(']')}" if group else ""
        unit = "percentage points" if measure != "accuracy" else "%"
        ax.set(xlabel="privacy budget ε, log scale", ylabel=f"{measure.replace('_', ' ')} ({unit})")
        if budgets:
            ax.set_xscale("log")
            ax.set_xticks(budgets, [f"{b:g}" for b in budgets])
            ax.minorticks_off()
        if measure != "accuracy":
            ax.axhline(0, color="black", linewidth=1, zorder=1)
        ax.set_title(_TITLES[measure] + of_group, loc="left", fontweight="bold", pad=12)
        ax.grid(axis="y", color="0.88")
        ax.set_axisbelow(True)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)


def _label_ends(ax, ends):
    """Write each curve's name beside its last point, moved apart where they would touch."""
    low, high = ax.get_ylim()
    room = (high - low) * 0.055
    ends = sorted(ends, key=lambda end: end[0])
    places = []
    for value, *_ in ends:
        places.append(max(value, places[-1] + room) if places else value)
    # what was pushed up as a whole goes half the way back
    shift = np.mean([p - value for p, (value, *_) in zip(places, ends, strict=True)] or [0.0])
    for place, (value, name, colour, budget) in zip(places, ends, strict=True):
        ax.annotate(
            name,
            xy=(1.0 if budget is None else budget, value),
            xytext=(1.04, place - shift),
            xycoords=("axes fraction" if budget is None else "data", "data"),
            textcoords=("axes fraction", "data"),
            va="center",
            color=colour,
            fontweight="bold",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.8, "shrinkB": 4},
        )
