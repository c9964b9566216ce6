"""Displays in the manner of scikit-learn: made from an estimator, predictions or results."""

from skdpfair.metrics import group_table
from skdpfair.plotting._axes import PALETTE, dress, label_ends, new_axes
from skdpfair.plotting._bars import plot_privacy_cost
from skdpfair.plotting._models import final_step

_TWIN = "reference"  # sweeps call it so, or "reference (...)" where there are several


class PrivacyCostDisplay:
    """What privacy costs each group, as bars.

    Parameters
    ----------
    table : pandas.DataFrame
        From :func:`skdpfair.metrics.group_table`, one row per model.

    Attributes
    ----------
    ax_, figure_
        Where :meth:`plot` drew.

    Examples
    --------
    >>> display = PrivacyCostDisplay.from_predictions(
    ...     [0, 1, 1, 0], {"twin": [0, 1, 1, 0], "dpsgd": [0, 1, 0, 0]},
    ...     reference="twin", sensitive_features=["F", "F", "M", "M"])
    >>> float(display.table.loc["dpsgd", "privacy_cost[M]"])
    0.5
    >>> display.plot().figure_.clear()
    """

    def __init__(self, table):
        self.table = table

    @classmethod
    def from_predictions(cls, y_true, y_pred, *, reference, sensitive_features):
        """Return the display of models by name, against the one named ``reference``.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True labels.
        y_pred : dict of str to array-like of shape (n_samples,)
            Each model's predicted labels.
        reference : str
            Key of the non-private twin.
        sensitive_features : array-like of shape (n_samples,)
            Groups.
        """
        return cls(
            group_table(y_true, y_pred, reference=reference, sensitive_features=sensitive_features)
        )

    @classmethod
    def from_estimator(cls, estimator, X, y, *, sensitive_features):
        """Return the display of a fitted estimator, or pipeline, that has kept its twin.

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

        Raises
        ------
        NotFittedError, TypeError, ValueError
            If the estimator is not fitted, is another model, or has kept no twin.
        """
        model, rows = final_step(estimator, X)
        if not hasattr(model, "reference_"):
            raise ValueError(
                "estimator has no twin, reference_, to compare with. Fit it with "
                "keep_reference=True, and draw in the same process: pickles do not hold the twin."
            )
        predictions = {
            _TWIN: model.reference_.predict(rows),
            model.method_.name: model.predict(rows),
        }
        return cls.from_predictions(
            y, predictions, reference=_TWIN, sensitive_features=sensitive_features
        )

    @classmethod
    def from_results(cls, frame, *, epsilon=None):
        """Return the display of a sweep's means over seeds, one row per method, in its order.

        The twin, whose cost is 0 by definition, is left out.

        Parameters
        ----------
        frame : pandas.DataFrame or TradeoffResults
            A sweep's results, or their frame, with columns ``method``, ``group`` and
            ``privacy_cost``, and ``epsilon`` if that varies; rows of group "overall" are left out.
        epsilon : float or None, default=None
            Budget to show, named in the title; None is the only one there is.

        Raises
        ------
        TypeError, ValueError
            If ``frame`` is nothing of the kind, there are several budgets, or not this one.
        """
        rows = _rows_at(getattr(frame, "frame", frame), epsilon)
        means = rows.groupby(["method", "group"], sort=False)["privacy_cost"].mean()
        table = means.unstack("group").reindex(rows["method"].unique())[rows["group"].unique()]
        table.columns = [f"privacy_cost[{group}]" for group in table]
        table.attrs["reference"] = _TWIN
        if "epsilon" in rows:
            table.attrs["epsilon"] = float(rows["epsilon"].iloc[0])
        return cls(table)

    def plot(self, ax=None):
        """Draw; return the display itself."""
        self.ax_ = plot_privacy_cost(self.table, ax=ax)
        self.figure_ = self.ax_.figure
        return self


def _rows_at(frame, epsilon):
    """Return the private models' rows of a sweep's frame at one budget."""
    missing = [c for c in ("method", "group", "privacy_cost") if c not in frame]
    if missing or not hasattr(frame, "groupby"):
        raise TypeError(
            "frame must be the TradeoffResults of a sweep, or its frame, got "
            f"{type(frame).__name__} without the columns {missing}. Pass sweep(...).frame."
        )
    rows = frame[(frame["group"] != "overall") & ~frame["method"].str.startswith(_TWIN)]
    if "epsilon" in rows:
        budgets = rows["epsilon"].unique().tolist()
        if epsilon is None and len(budgets) > 1:
            raise ValueError(
                f"epsilon=None, but the sweep has several budgets: {budgets}. Show one, such as "
                f"epsilon={budgets[0]!r}; results.plot('privacy_cost_difference') shows all."
            )
        if epsilon is not None and epsilon not in budgets:
            raise ValueError(f"epsilon must be a budget of the sweep, {budgets}, got {epsilon!r}.")
        rows = rows if epsilon is None else rows[rows["epsilon"] == epsilon]
    if rows.empty:
        raise ValueError("frame has no row of a group and a private model. Pass a whole sweep.")
    return rows


class GroupLossDisplay:
    """Loss and gradient norm of each group over training; NOT private.

    Parameters
    ----------
    frame : pandas.DataFrame
        With columns ``step``, ``group``, ``loss`` and ``gradient_norm``.

    Attributes
    ----------
    axes_, figure_
        Where :meth:`plot` drew.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(0, "a", 0.7, 1.0), (0, "b", 0.7, 1.2), (9, "a", 0.3, 0.6), (9, "b", 0.5, 1.1)]
    >>> kept = pd.DataFrame(rows, columns=["step", "group", "loss", "gradient_norm"])
    >>> display = GroupLossDisplay.from_results(kept).plot()  # from_estimator takes a fit
    >>> [axes.get_ylabel() for axes in display.axes_]
    ['mean loss', 'mean gradient norm']
    >>> display.figure_.clear()
    """

    def __init__(self, frame):
        self.frame = frame

    @classmethod
    def from_estimator(cls, estimator):
        """Return the display of an estimator fitted with ``diagnostics=True``."""
        if not hasattr(estimator, "diagnostics_"):
            raise ValueError(
                "The estimator has recorded nothing. Fit it with diagnostics=True, which makes it "
                "an object that must not be released."
            )
        return cls(estimator.diagnostics_)

    @classmethod
    def from_results(cls, frame):
        """Return the display of what a fit recorded, for instance read from a file.

        Parameters
        ----------
        frame : pandas.DataFrame
            An estimator's ``diagnostics_``.
        """
        missing = [c for c in ("step", "group", "loss", "gradient_norm") if c not in frame]
        if missing:
            raise ValueError(
                f"frame must have the columns of diagnostics_, but lacks {missing}. Pass the "
                "diagnostics_ of an estimator fitted with diagnostics=True."
            )
        return cls(frame)

    def plot(self, ax=None):
        """Draw; return the display itself.

        Parameters
        ----------
        ax : sequence of two matplotlib.axes.Axes or None, default=None
            For loss and gradient norm; None makes a new figure. The groups' names stand right of
            the axes: only a figure with ``layout="constrained"`` makes room for them.
        """
        ax = new_axes(10.0, 4.0, 2) if ax is None else ax
        groups = list(dict.fromkeys(self.frame["group"]))
        titles = {"loss": "Loss", "gradient_norm": "Gradient norm"}
        for axes, (column, title) in zip(ax, titles.items(), strict=True):
            ends = []
            for i, group in enumerate(groups):
                rows = self.frame[self.frame["group"] == group]
                color = PALETTE[i % len(PALETTE)]
                axes.plot(rows["step"], rows[column], color=color)
                last = rows[column].dropna()
                ends += [(last.iloc[-1], str(group), color, rows["step"].iloc[-1])] * (
                    len(last) > 0
                )
            label_ends(axes, ends)
            axes.set(xlabel="step", ylabel=f"mean {title.lower()}")
            dress(axes, f"{title} (not private)")
        self.axes_, self.figure_ = ax, ax[0].figure
        return self
