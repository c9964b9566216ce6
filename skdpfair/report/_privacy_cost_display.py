"""Display of the privacy cost of each group."""

import numpy as np

from skdpfair._utils.validate import safe_repr
from skdpfair.report._axes import colour_of, dress, legend_aside, new_axes, plain

_COLUMN = "privacy_cost["
_MAX_HEIGHT = 24.0  # inches


class PrivacyCostDisplay:
    """Privacy cost of each group, as bars.

    Parameters
    ----------
    table : pandas.DataFrame
        From :func:`skdpfair.metrics.group_table`, one row per model; the reference, whose cost is 0
        by definition, is not drawn.

    Attributes
    ----------
    ax_, figure_
        The axes and figure of :meth:`plot`.

    Examples
    --------
    >>> from skdpfair.metrics import group_table
    >>> from skdpfair.report import PrivacyCostDisplay
    >>> table = group_table(
    ...     [0, 1, 1, 0], {"sgd": [0, 1, 1, 0], "dpsgd": [0, 1, 0, 0]},
    ...     reference="sgd", sensitive_features=["F", "F", "M", "M"])
    >>> PrivacyCostDisplay(table).plot().ax_.get_xlabel()
    'accuracy lost (percentage points)'
    """

    def __init__(self, table):
        self.table = table

    @classmethod
    def from_results(cls, results, epsilon):
        """Return the display of the means of a sweep over its seeds at one budget, a bar a method.

        Parameters
        ----------
        results : TradeoffResults
            From `skdpfair.model_selection.sweep`.
        epsilon : float
            Budget of the sweep, which the title names.

        Returns
        -------
        PrivacyCostDisplay
        """
        means = results.table().xs("mean", axis=1, level=1)
        budgets = means.index.get_level_values("epsilon").unique()
        budgets = budgets[np.isfinite(budgets)].tolist()
        if epsilon not in budgets:
            raise ValueError(f"epsilon must be one of {budgets}, got {safe_repr(epsilon)}.")
        table = means.xs(epsilon, level="epsilon")
        table.attrs["epsilon"] = epsilon
        return cls(table)

    def plot(self, ax=None):
        """Draw a bar for each group and private model into ``ax``, or a new figure; return self.

        The names of the models are to the right of the axes, so the figure must have
        ``layout="constrained"``.
        """
        bars, attrs = _bars(self.table), self.table.attrs
        ax = new_axes(height=min(1.6 + 0.26 * (bars.size + len(bars)), _MAX_HEIGHT), ax=ax)
        colours = [colour_of(i) for i in range(bars.shape[1])]
        bars.plot.barh(ax=ax, color=colours, width=0.8, legend=False)
        for container, costs in zip(ax.containers, bars.to_numpy().T, strict=True):
            texts = ["" if np.isnan(v) else f"{v:+.1f}" for v in costs]
            ax.bar_label(container, texts, padding=2)
        ax.invert_yaxis()  # the first on top
        ax.axvline(0, color="black", linewidth=1)
        ax.margins(x=0.12)
        # at least one point of width: a tenth of a point must not look like a tower
        ax.set_xlim(right=max(ax.get_xlim()[1], 1.0))
        ax.set(xlabel="accuracy lost (percentage points)", ylabel="")
        legend_aside(ax)
        against = f", against {plain(attrs['reference'])}" if "reference" in attrs else ""
        at = f" at ε = {attrs['epsilon']:g}" if "epsilon" in attrs else ""
        dress(ax, f"Privacy cost of each group{at}{against}", grid="x")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _bars(table):
    """Return the costs in percentage points, a row for each group and a column for each model."""
    columns = [c for c in table.columns if str(c).startswith(_COLUMN)]
    models = [name for name in table.index if name != table.attrs.get("reference")]
    bars = 100 * table.loc[models, columns].T
    if bars.isna().all(axis=None):  # also without any
        raise ValueError(
            "table must have numbers in columns privacy_cost[GROUP], and a row besides the "
            "reference. Pass the result of skdpfair.metrics.group_table."
        )
    empty = bars.isna().all(axis=1)
    names = [plain(c[len(_COLUMN) : -1]) for c in columns]
    bars.index = [n + " (no test records)" * e for n, e in zip(names, empty, strict=True)]
    return bars.set_axis([*map(plain, models)], axis=1)
