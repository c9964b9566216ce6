"""A picture of a sweep: one quantity against epsilon, one colour a method."""

import numpy as np
import pandas as pd

from skdpfair._validate import one_of
from skdpfair.metrics import group_table
from skdpfair.plotting._axes import (
    PALETTE,
    axes_width,
    check_axes,
    dress,
    label_ends,
    new_axes,
    text_width,
)
from skdpfair.plotting._models import by_budget, final_step

__all__ = ["TradeoffDisplay"]

_MARKERS = "osD^vPX"
_LINES = ("-", "-.", ":")
_TITLES = {
    "accuracy": "Accuracy",
    "accuracy_difference": "Accuracy gap between groups",
    "privacy_cost": "Privacy cost",
    "privacy_cost_difference": "Privacy cost gap between groups",
    "dg_gap": "Accuracy on training records minus on test records",
    "dg_gap_difference": "Generalisation gap between groups",
}


class TradeoffDisplay:
    """One quantity against the privacy budget, with standard errors over seeds as bands.

    Parameters
    ----------
    curves : dict of str to DataFrame
        By method: columns epsilon (inf: no privacy, drawn as a dashed line), mean and se, in [-1,
        1].
    measure : str, default="accuracy"
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

    def __init__(self, curves, measure="accuracy"):
        self.curves, self.measure = curves, measure

    @classmethod
    def from_predictions(cls, y_true, y_pred, *, sensitive_features, measure="accuracy"):
        """Make the display of models that were run once each.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True labels.
        y_pred : dict of (str, float or None) to array-like of shape (n_samples,)
            Predicted labels by (method, epsilon); None or infinity is the twin, of which there
            must be one for costs.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
            Groups.
        measure : str, default="accuracy"
            ``"accuracy"``, ``"privacy_cost"``, either of a group (``"accuracy[F]"``), or either's
            gap (``"accuracy_difference"``).

        Returns
        -------
        TradeoffDisplay

        Raises
        ------
        TypeError, ValueError
            If ``y_pred`` is no such dict, a budget is not above 0, or the measure is unknown.

        Examples
        --------
        >>> from skdpfair.plotting import TradeoffDisplay
        >>> display = TradeoffDisplay.from_predictions(
        ...     [0, 1, 1, 0], {("twin", None): [0, 1, 1, 0], ("dpsgd", 1.0): [0, 1, 0, 0]},
        ...     sensitive_features=["F", "F", "M", "M"], measure="privacy_cost[M]")
        >>> display.curves["dpsgd"][["epsilon", "mean"]].values.tolist()
        [[1.0, 0.5]]
        """
        models = by_budget(y_pred, y_true)
        twins = [model for model in models if np.isinf(model[1])]
        if len(twins) != 1 and measure.startswith("privacy_cost"):
            raise ValueError(
                f"y_pred must hold one model with epsilon None for measure={measure!r}, got "
                f"{len(twins)}. Add the twin's predictions, by ('twin', None)."
            )
        keys = list(models)
        table = group_table(
            y_true,
            {i: models[key] for i, key in enumerate(keys)},
            reference=keys.index(twins[0]) if twins else 0,
            sensitive_features=sensitive_features,
        )
        by_group = table.filter(like="accuracy[")
        table["accuracy_difference"] = by_group.max(axis=1) - by_group.min(axis=1)
        table["privacy_cost"] = table["accuracy"].iloc[table.attrs["reference"]] - table["accuracy"]
        known = [c for c in table if c != "balanced_accuracy"]
        rows = pd.DataFrame(keys, columns=["method", "epsilon"]).assign(
            mean=table[_known(measure, known)].to_numpy(), se=np.nan
        )
        return cls(_by_method(rows), measure)

    @classmethod
    def from_estimator(cls, estimator, X, y, *, sensitive_features, measure="accuracy"):
        """Make the display of fitted models, one point each.

        Parameters
        ----------
        estimator : DPFairClassifier or Pipeline, or list of these
            One that kept its twin brings it along.
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            True labels.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
            Groups.
        measure : str, default="accuracy"
            As in `from_predictions`.

        Returns
        -------
        TradeoffDisplay

        Raises
        ------
        TypeError
            If ``estimator`` is nothing of the kind.
        NotFittedError
            If a model is not fitted.
        """
        predictions = {}
        for model in estimator if isinstance(estimator, (list, tuple)) else [estimator]:
            last, inner = final_step(model, X)
            private = last.privacy_.is_private
            budget = last.privacy_.epsilon if last.epsilon is None else last.epsilon
            name = (last.method_.name, budget) if private else ("twin", None)
            predictions[name] = model.predict(X)
            if hasattr(last, "reference_"):
                predictions["twin", None] = last.reference_.predict(inner)
        return cls.from_predictions(
            y, predictions, sensitive_features=sensitive_features, measure=measure
        )

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
        table = results.table()
        known = table.columns.get_level_values(0).unique()
        return cls(_by_method(table[_known(measure, known)].reset_index()), measure)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            Where to draw; None makes a new figure. The curves' names stand right of the axes:
            only a figure with ``layout="constrained"`` makes room for them.

        Returns
        -------
        TradeoffDisplay
            Itself.

        Raises
        ------
        ValueError
            If no point is a number.
        """
        curves = {m: rows[np.isfinite(rows["mean"])] for m, rows in self.curves.items()}
        curves = {method: rows for method, rows in curves.items() if len(rows)}
        if not curves:
            raise ValueError(
                f"There is no {self.measure!r} to draw: all are NaN. Costs need the twin's runs, "
                "and a group needs test records."
            )
        check_axes(ax)
        ax = new_axes() if ax is None else ax
        ends, budgets, drawn = [], set(), 0
        for method, rows in curves.items():
            mean, se = 100 * rows["mean"], 100 * rows["se"].fillna(0.0)
            if np.isinf(rows["epsilon"]).all():
                # costs are measured from the twin: zero is drawn anyway
                if not self.measure.startswith("privacy_cost"):
                    ax.axhline(mean.iloc[0], color="0.35", linestyle="--", linewidth=1.2, zorder=1)
                    ends.append((mean.iloc[0], method, "0.35", None))
                continue
            cycle, place = divmod(drawn, len(PALETTE))
            colour = PALETTE[place]
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
        self._dress(ax, sorted(budgets))
        if ax.collections and any(rows["se"].notna().any() for rows in self.curves.values()):
            ax.set_xlabel(ax.get_xlabel() + "; bands are ± 1 standard error")
        label_ends(ax, ends)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _dress(self, ax, budgets):
        measure, _, group = self.measure.partition("[")
        of_group = f" of group {group.removesuffix(']')}" if group else ""
        unit = "percentage points" if measure != "accuracy" else "%"
        ax.set(xlabel="privacy budget ε, log scale", ylabel=f"{measure.replace('_', ' ')} ({unit})")
        if budgets:
            ax.set_xscale("log")
            shown = _spaced(budgets, 0.8 * axes_width(ax))  # the rest is for the curves' names
            ax.set_xticks(shown, [f"{b:.3g}" for b in shown])
            ax.minorticks_off()
        if measure.startswith("privacy_cost"):
            ax.axhline(0, color="black", linewidth=1, zorder=1)
        dress(ax, _TITLES[measure] + of_group)


def _by_method(rows):
    return {m: part.sort_values("epsilon") for m, part in rows.groupby("method", sort=False)}


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


def _spaced(budgets, room):
    """Return the budgets whose names do not touch on a log axis of ``room`` points; the last is."""
    if len(budgets) < 2:
        return budgets
    at = room * np.log(budgets) / np.log(budgets[-1] / budgets[0])
    need = [text_width(f"{b:.3g}") / 2 + 2 for b in budgets]
    kept = []
    for i, budget in enumerate(budgets):
        while kept and at[i] - at[kept[-1]] < need[i] + need[kept[-1]]:
            if budget != budgets[-1] or len(kept) == 1:
                break
            kept.pop()
        else:
            kept.append(i)
    return [budgets[i] for i in kept]
