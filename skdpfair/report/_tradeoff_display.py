"""Display of the trade-off between privacy and a measure."""

import numpy as np

from skdpfair._utils.validate import one_of
from skdpfair.metrics._measures import MEASURES, described, measure_of
from skdpfair.report._axes import PALETTE, colour_of, dress, legend_aside, new_axes, plain

_MARKERS, _LINES = "osD^vPX", ("-", "-.", ":")
_MAX_TICKS = 7


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
    >>> from skdpfair.report._tradeoff_display import TradeoffDisplay
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
        """Return the display of one column of ``results.table()``, such as ``privacy_cost[F]``.

        Parameters
        ----------
        results : TradeoffResults
            From `skdpfair.model_selection.sweep`.
        measure : str, default="accuracy"
            The column.

        Returns
        -------
        TradeoffDisplay
        """
        table = results.table()
        one_of("measure", measure, table.columns.get_level_values(0).unique())
        by_method = table[measure].reset_index().groupby("method", sort=False)
        return cls({name: part.sort_values("epsilon") for name, part in by_method}, measure)

    def plot(self, ax=None):
        """Draw a curve for each method into ``ax``, or a new figure; return self.

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
        ax = new_axes(ax=ax)
        is_cost = MEASURES[measure_of(self.measure)].against == "reference"
        budgets, n_drawn = set(), 0
        for method, rows in curves.items():
            mean, se, name = factor * rows["mean"], factor * rows["se"].fillna(0.0), plain(method)
            if np.isinf(rows["epsilon"]).all():
                # measured from the reference model: zero is drawn anyway
                if not is_cost:
                    ax.axhline(mean.iloc[0], color="0.35", linestyle="--", lw=1.2, label=name)
                continue
            # the markers are shifted when the colours start again, so that each curve differs
            cycle, place = divmod(n_drawn, len(PALETTE))
            colour = colour_of(n_drawn)
            ax.fill_between(rows["epsilon"], mean - se, mean + se, color=colour, alpha=0.18, lw=0)
            style = {
                "linestyle": _LINES[cycle % len(_LINES)],
                "marker": _MARKERS[(place + cycle) % len(_MARKERS)],
            }
            ax.plot(rows["epsilon"], mean, color=colour, ms=5, label=name, **style)
            budgets |= set(rows["epsilon"])
            n_drawn += 1
        kind = self.measure.partition("[")[0].replace("_", " ")
        band = any(rows["se"].notna().any() for rows in curves.values())
        label = "privacy budget ε, log scale" + "; bands are ± 1 standard error" * band
        ax.set(xlabel=label, ylabel=f"{kind} ({unit})")
        if budgets:
            ax.set_xscale("log")
            ticks = sorted(budgets)[:: -(-len(budgets) // _MAX_TICKS)]
            ax.set_xticks(ticks, [f"{b:.3g}" for b in ticks])
            ax.minorticks_off()
        if is_cost:
            ax.axhline(0, color="black", linewidth=1, zorder=1)
        dress(ax, plain(title))
        legend_aside(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self
