"""Display of the trade-off between privacy and a measure."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from skdpfair._validate import number, one_of, outline, safe_repr
from skdpfair.inputs.columns import check_indexes
from skdpfair.metrics import group_table
from skdpfair.metrics._arguments import as_vector
from skdpfair.metrics._measures import MEASURES, described, measure_of
from skdpfair.plotting._axes import (
    PALETTE,
    check_axes,
    colour_of,
    dress,
    label_ends,
    new_axes,
    plain,
    spaced,
)
from skdpfair.plotting._privacy_cost import REFERENCE, final_step

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
    def from_predictions(
        cls, y_true, y_pred, *, sensitive_features, y_prob=None, classes=None, measure="accuracy"
    ):
        """Make the display of models that were run once each.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True labels.
        y_pred : dict of (str, float or None) to array-like of shape (n_samples,)
            Predicted labels by (method, epsilon). An epsilon of None or infinity is the reference
            model; costs need exactly one.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
            Groups.
        y_prob : dict of (str, float or None) to array-like, or None, default=None
            Each model's ``predict_proba``, for the measures that need it.
        classes : array-like of shape (n_classes,) or None, default=None
            The label of each column of ``y_prob``.
        measure : str, default="accuracy"
            A measure of `skdpfair.metrics.group_table`, or the same of a group
            (``"accuracy[F]"``), its difference between groups (``"accuracy_difference"``) or its
            value for the worst group (``"accuracy_group_min"``).

        Returns
        -------
        TradeoffDisplay

        Examples
        --------
        >>> from skdpfair.plotting import TradeoffDisplay
        >>> display = TradeoffDisplay.from_predictions(
        ...     [0, 1, 1, 0], {("sgd", None): [0, 1, 1, 0], ("dpsgd", 1.0): [0, 1, 0, 0]},
        ...     sensitive_features=["F", "F", "M", "M"], measure="privacy_cost[M]")
        >>> display.curves["dpsgd"][["epsilon", "mean"]].values.tolist()
        [[1.0, 0.5]]
        """
        models = _by_budget(y_pred, y_true)
        references = [model for model in models if np.isinf(model[1])]
        name = measure_of(measure)
        if len(references) != 1 and MEASURES[name].against is not None:
            raise ValueError(
                f"y_pred must hold one model with epsilon None for measure={measure!r}, got "
                f"{len(references)}. Add the predictions of the reference model, by "
                "('reference', None)."
            )
        keys = list(models)
        if y_prob is not None and (
            not isinstance(y_prob, Mapping) or y_prob.keys() != y_pred.keys()
        ):
            raise ValueError(
                f"y_prob must be a dict with the keys of y_pred, {[*y_pred]!r}, got "
                f"{outline(y_prob)}. Pass predict_proba(X) of each model."
            )
        table = group_table(
            y_true,
            {i: models[key] for i, key in enumerate(keys)},
            reference=keys.index(references[0] if references else keys[0]),
            sensitive_features=sensitive_features,
            probabilities=None if y_prob is None else dict(enumerate(y_prob[k] for k in y_pred)),
            classes=classes,
            measures=[name],
        )
        rows = pd.DataFrame(keys, columns=["method", "epsilon"]).assign(
            mean=table[_known(measure, table.columns)].to_numpy(), se=np.nan
        )
        return cls(_by_method(rows), measure)

    @classmethod
    def from_estimator(cls, estimator, X, y, *, sensitive_features, measure="accuracy"):
        """Make the display of fitted models, one point each.

        Parameters
        ----------
        estimator : DPFairClassifier or Pipeline, or list of these
            If one was fitted with ``keep_reference=True``, its ``reference_`` is shown, too.
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
        """
        check_indexes(X=X, y=y, sensitive_features=sensitive_features)
        predictions, likely = {}, {}
        for model in estimator if isinstance(estimator, (list, tuple)) else [estimator]:
            last, inner = final_step(model, X)
            private = last.privacy_.is_private
            budget = last.privacy_.epsilon if last.epsilon is None else last.epsilon
            name = (last.method_.name, budget) if private else (REFERENCE, None)
            predictions[name], likely[name] = model.predict(X), model.predict_proba(X)
            if hasattr(last, "reference_"):
                reference = last.reference_
                predictions[REFERENCE, None] = reference.predict(inner)
                likely[REFERENCE, None] = reference.predict_proba(inner)
        return cls.from_predictions(
            y,
            predictions,
            sensitive_features=sensitive_features,
            y_prob=likely,
            classes=last.classes_,
            measure=measure,
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
        table = results.with_one_ceiling().table()
        known = table.columns.get_level_values(0).unique()
        return cls(_by_method(table[_known(measure, known)].reset_index()), measure)

    def plot(self, ax=None):
        """Draw a curve for each method.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            Axes to draw into; None makes a new figure. The names of the curves are to the right of
            the axes, so the figure must have ``layout="constrained"``.

        Returns
        -------
        TradeoffDisplay
            The display itself.
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
        ends, budgets, drawn = [], set(), 0
        for method, rows in curves.items():
            mean, se = factor * rows["mean"], factor * rows["se"].fillna(0.0)
            if np.isinf(rows["epsilon"]).all():
                if not self._is_cost():  # measured from the reference model: zero is drawn anyway
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
        if self._is_cost():
            ax.axhline(0, color="black", linewidth=1, zorder=1)
        dress(ax, plain(title))
        if ax.collections and any(rows["se"].notna().any() for rows in self.curves.values()):
            ax.set_xlabel(ax.get_xlabel() + "; bands are ± 1 standard error")
        label_ends(ax, ends)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _is_cost(self):
        return MEASURES[measure_of(self.measure)].against == "reference"


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


def _by_budget(y_pred, y_true):
    """Return checked predictions by (method, epsilon), epsilon inf without privacy."""
    if not isinstance(y_pred, Mapping):
        raise TypeError(
            "y_pred must be a dict from (method, epsilon) to predicted labels, got "
            f"{type(y_pred).__name__}. Pass {{('reference', None): ..., ('dpsgd', 1.0): ...}}."
        )
    models = {}
    for key, values in y_pred.items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(
                f"y_pred must have keys (method, epsilon), got {safe_repr(key)}. Write ('dpsgd', "
                "1.0), and ('reference', None) for the model without privacy."
            )
        method, epsilon = key
        if epsilon is not None:
            epsilon = number(f"epsilon of y_pred[{safe_repr(key)}]", epsilon, low=0, low_open=True)
        budget = np.inf if epsilon is None else epsilon
        models[str(method), budget] = as_vector(f"y_pred[{safe_repr(key)}]", values, y_true)
    return models
