"""Display of the privacy cost of each group."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdpfair._utils.validate import safe_repr
from skdpfair.inputs.columns import check_indexes
from skdpfair.metrics import group_table
from skdpfair.report._axes import check_axes, colour_of, dress, new_axes, plain

REFERENCE = "reference"
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
    def from_estimator(cls, estimator, X, y, *, sensitive_features):
        """Return the display of a fitted estimator or pipeline that has a reference model.

        Parameters
        ----------
        estimator : DPFairClassifier or Pipeline
            Fitted with ``keep_reference=True``.
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            True labels.
        sensitive_features : array-like of shape (n_samples,)
            Groups.

        Returns
        -------
        PrivacyCostDisplay
        """
        check_indexes(X=X, y=y, sensitive_features=sensitive_features)
        model, rows = _final_step(estimator, X)
        if not hasattr(model, "reference_"):
            raise ValueError(
                "estimator has no reference model, reference_, to compare with. Fit it with "
                "keep_reference=True, and draw in the same process: pickles do not hold it."
            )
        predictions = {REFERENCE: model.reference_.predict(rows)}
        predictions[model.method_.name] = model.predict(rows)
        groups = {"sensitive_features": sensitive_features}
        table = group_table(
            y, predictions, reference=REFERENCE, measures=["privacy_cost"], **groups
        )
        return cls(table)

    @classmethod
    def from_results(cls, frame, *, epsilon=None):
        """Return the display of a sweep's means over seeds, with one bar per method.

        Parameters
        ----------
        frame : pandas.DataFrame or TradeoffResults
            A sweep's results, or their frame; rows of group "overall" are left out.
        epsilon : float or None, default=None
            Budget to show, which the title names; None is allowed if there is only one.

        Returns
        -------
        PrivacyCostDisplay
        """
        rows, reference = _rows_at(getattr(frame, "frame", frame), epsilon)
        means = rows.groupby(["method", "group"], sort=False)["privacy_cost"].mean()
        table = means.unstack("group").reindex(rows["method"].unique())[rows["group"].unique()]
        table.columns = [f"{_COLUMN}{group}]" for group in table]
        table.attrs["reference"] = reference
        table.attrs["epsilon"] = float(rows["epsilon"].iloc[0])
        return cls(table)

    def plot(self, ax=None):
        """Draw a bar for each group and private model into ``ax``, or a new figure.

        Return the display. The names of the models are to the right of the axes, so the figure must
        have ``layout="constrained"``.
        """
        check_axes(ax)
        bars, attrs = _bars(self.table), self.table.attrs
        if ax is None:
            ax = new_axes(height=min(1.6 + 0.26 * (bars.size + len(bars)), _MAX_HEIGHT))
        colours = [colour_of(i) for i in range(bars.shape[1])]
        bars.plot.barh(ax=ax, color=colours, width=0.8, legend=False)
        for container, costs in zip(ax.containers, bars.to_numpy().T, strict=True):
            texts = [f"{v:+.1f}".replace("-", "\N{MINUS SIGN}") for v in costs]
            ax.bar_label(container, [t.replace("+nan", "") for t in texts], padding=2)
        ax.invert_yaxis()  # the first on top
        ax.axvline(0, color="black", linewidth=1)
        ax.margins(x=0.12)
        # at least one point of width: a tenth of a point must not look like a tower
        ax.set_xlim(right=max(ax.get_xlim()[1], 1.0))
        ax.set(xlabel="accuracy lost (percentage points)", ylabel="")
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        against = f", against {plain(attrs['reference'])}" if "reference" in attrs else ""
        at = f" at ε = {attrs['epsilon']:g}" if "epsilon" in attrs else ""
        dress(ax, f"Privacy cost of each group{at}{against}", grid="x")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _bars(table):
    """Return the costs in percentage points, a row for each group and a column for each model."""
    columns = [c for c in table.columns if str(c).startswith(_COLUMN)]
    models = [name for name in table.index if name != table.attrs.get("reference")]
    if not columns or not models:
        raise ValueError(
            "table must have columns privacy_cost[GROUP], and a row besides the reference. Pass "
            "the result of skdpfair.metrics.group_table."
        )
    bars = 100 * table.loc[models, columns].T
    if bars.isna().all(axis=None):
        raise ValueError(
            "table holds no number to draw: all are NaN, as without a reference model, or without "
            "test records."
        )
    empty = bars.isna().all(axis=1)
    names = [plain(c[len(_COLUMN) : -1]) for c in columns]
    bars.index = [n + " (no test records)" * e for n, e in zip(names, empty, strict=True)]
    return bars.set_axis([*map(plain, models)], axis=1)


def _rows_at(frame, epsilon):
    """Return the private models' rows of a sweep's frame at one budget, and the reference."""
    missing = [c for c in ("method", "epsilon", "group", "privacy_cost") if c not in frame]
    if missing or not hasattr(frame, "groupby"):
        raise TypeError(
            "frame must be the TradeoffResults of a sweep, or its frame, got "
            f"{type(frame).__name__} without the columns {missing}. Pass sweep(...).frame."
        )
    is_reference = frame["method"].str.startswith(REFERENCE) | np.isinf(frame["epsilon"])
    names = frame.loc[is_reference, "method"].unique()
    rows = frame[(frame["group"] != "overall") & ~is_reference]
    if rows.empty:
        raise ValueError("frame has no row of a group and a private model. Pass a whole sweep.")
    budgets = rows["epsilon"].unique().tolist()
    if epsilon is None and len(budgets) > 1:
        raise ValueError(
            f"epsilon=None, but the sweep has several budgets: {budgets}. Show one, such as "
            f"epsilon={budgets[0]!r}; results.plot('privacy_cost_difference') shows all."
        )
    if epsilon is not None and epsilon not in budgets:
        raise ValueError(
            f"epsilon must be a budget of the sweep, {budgets}, got {safe_repr(epsilon)}."
        )
    rows = rows if epsilon is None else rows[rows["epsilon"] == epsilon]
    return rows, names[0] if len(names) == 1 else REFERENCE


def _final_step(estimator, X):
    """Return the fitted classifier at the end of a pipeline, and the rows that it sees."""
    last = getattr(estimator, "steps", [("", estimator)])[-1][1]
    if not hasattr(last, "privacy_statement"):
        raise TypeError(
            "estimator must be a fitted DPFairClassifier, or a Pipeline that ends in one, got "
            f"{type(last).__name__}. Use group_table and PrivacyCostDisplay(table)."
        )
    check_is_fitted(last)
    is_pipeline = last is not estimator and len(estimator.steps) > 1
    return last, estimator[:-1].transform(X) if is_pipeline else X
