"""Display of the trade-off between privacy and a measure."""

import numpy as np

from skdpfair._utils.validate import one_of
from skdpfair.metrics._measures import MEASURES, described, measure_of
from skdpfair.report._axes import (
    PALETTE,
    check_axes,
    colour_of,
    dress,
    label_ends,
    new_axes,
    plain,
    spaced,
)

_MARKERS = "osD^vPX"
_LINES = ("-", "-.", ":")


class TradeoffDisplay:
    """Curves of one measure by privacy budget, with standard errors over seeds as bands.

    Parameters
    ----------
    curves : dict of str to DataFrame
        For each method, a frame with columns epsilon (inf without privacy, which is drawn as a
        dashed line), mean and se: shares, or nats for ``log_loss`` and ``excessive_risk``.
    measure : str, default="accuracy"
        The measure: a column of `skdpfair.metrics.group_table` or of a sweep's ``table()``.

    Attributes
    ----------
    ax_, figure_
        Set by `plot`.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpfair.report import TradeoffDisplay
    >>> rows = pd.DataFrame({"epsilon": [0.5, 1.0], "mean": [0.7, 0.8], "se": [0.02, 0.01]})
    >>> display = TradeoffDisplay({"dpsgd": rows}, "accuracy").plot()
    >>> display.ax_.get_ylabel()
    'accuracy (%)'
    >>> display.figure_.clear()
    """

    def __init__(self, curves, measure="accuracy"):
        self.curves, self.measure = curves, measure

    @classmethod
    def from_results(cls, results, *, measure="accuracy"):
        """Make the display of a sweep's results.

        Parameters
        ----------
        results : TradeoffResults
            From `skdpfair.model_selection.sweep`.
        measure : str, default="accuracy"
            A column of ``results.table()``, such as ``"privacy_cost[F]"``.

        Returns
        -------
        TradeoffDisplay
        """
        if not callable(getattr(results, "table", None)):
            raise TypeError(
                "results must be the TradeoffResults that sweep returned, got "
                f"{type(results).__name__}. Pass results itself; of a kept results.frame, "
                "TradeoffResults(frame)."
            )
        table = results.with_one_ceiling().table()
        known = table.columns.get_level_values(0).unique()
        rows = table[_known(measure, known)].reset_index()
        by_method = rows.groupby("method", sort=False)
        return cls({name: part.sort_values("epsilon") for name, part in by_method}, measure)

    def plot(self, ax=None):
        """Draw a curve for each method into ``ax``, or a new figure, and return the display.

        The names of the curves are to the right of the axes, so the figure must have
        ``layout="constrained"``.
        """
        title, unit, factor = described(self.measure)
        curves = {m: rows[np.isfinite(rows["mean"])] for m, rows in self.curves.items()}
        curves = {method: rows for method, rows in curves.items() if len(rows)}
        if not curves:
            raise ValueError(
                f"There is no {self.measure!r} to draw: all are NaN. Costs need the runs of the "
                "reference model, and a group needs test records."
            )
        check_axes(ax)
        ax = new_axes() if ax is None else ax
        is_cost = MEASURES[measure_of(self.measure)].against == "reference"
        ends, budgets, drawn = [], set(), 0
        for method, rows in curves.items():
            mean, se = factor * rows["mean"], factor * rows["se"].fillna(0.0)
            if np.isinf(rows["epsilon"]).all():
                if not is_cost:  # measured from the reference model: zero is drawn anyway
                    line = ":" if method.startswith("ceiling") else "--"
                    ax.axhline(mean.iloc[0], color="0.35", linestyle=line, linewidth=1.2, zorder=1)
                    ends.append((mean.iloc[0], method, "0.35", None))
                continue
            cycle, place = divmod(drawn, len(PALETTE))
            colour = colour_of(drawn)
            ax.fill_between(rows["epsilon"], mean - se, mean + se, color=colour, alpha=0.18, lw=0)
            ax.plot(
                rows["epsilon"],
                mean,
                color=colour,
                linestyle=_LINES[cycle % len(_LINES)],
                marker=_MARKERS[(place + cycle) % len(_MARKERS)],
                ms=5,
            )
            ends.append((mean.iloc[-1], method, colour, rows["epsilon"].iloc[-1]))
            budgets |= set(rows["epsilon"])
            drawn += 1
        kind = self.measure.partition("[")[0].replace("_", " ")
        ax.set(xlabel="privacy budget ε, log scale", ylabel=f"{kind} ({unit})")
        if budgets:
            ax.set_xscale("log")
            width = ax.bbox.width * 72 / ax.figure.dpi  # points
            ticks = spaced(sorted(budgets), 0.8 * width)  # the rest is for the names
            ax.set_xticks(ticks, [f"{b:.3g}" for b in ticks])
            ax.minorticks_off()
        if is_cost:
            ax.axhline(0, color="black", linewidth=1, zorder=1)
        dress(ax, plain(title))
        if ax.collections and any(rows["se"].notna().any() for rows in self.curves.values()):
            ax.set_xlabel(ax.get_xlabel() + "; bands are ± 1 standard error")
        label_ends(ax, ends)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _known(measure, known):
    """Return the measure if it is among those known."""
    kind, _, group = str(measure).partition("[")
    groups = [k[len(kind) + 1 : -1] for k in known if k.startswith(f"{kind}[")]
    if group and groups and measure not in known:
        raise ValueError(
            f"measure={measure!r} names no group of the table. Write {kind}[GROUP], with a group "
            "spelt as in the table's columns."
        )
    return one_of("measure", measure, known)
