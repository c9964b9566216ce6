"""Displays: curves of an additive model, losses and privacy costs of groups, a trade-off."""

import math

import numpy as np
import pandas as pd

from skdpfair._utils.group_names import group_names
from skdpfair._utils.validate import one_of, safe_repr
from skdpfair.metrics._measures import MEASURES, described, measure_of
from skdpfair.report._recommendation import is_unsure, small_groups

# Okabe and Ito's colours for the colour-blind, without black, and yellow last: it is faint
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_MAX_NAME = 60  # letters


def colour_of(i):
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


class GroupLossDisplay:
    """Loss and gradient norm of each group over training, or other recorded values; NOT private.

    Parameters
    ----------
    frame : pandas.DataFrame
        The ``diagnostics_`` of an estimator, ``frame_`` of a `skdpfair.analysis.GroupRecorder`.
    measures : sequence of str, default=("loss", "gradient_norm")
        The columns to draw, one panel for each, with bands of two standard errors if the recorder
        has them.

    Attributes
    ----------
    axes_, figure_
        The axes and figure of :meth:`plot`.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpfair.report import GroupLossDisplay
    >>> rows = [(0, "a", 0.7, 1.0), (0, "b", 0.7, 1.2), (9, "a", 0.3, 0.6), (9, "b", 0.5, 1.1)]
    >>> frame = pd.DataFrame(rows, columns=["step", "group", "loss", "gradient_norm"])
    >>> display = GroupLossDisplay(frame).plot()  # from_estimator takes a fit
    >>> [axes.get_ylabel() for axes in display.axes_]
    ['loss', 'gradient norm']
    >>> display.figure_.clear()
    """

    def __init__(self, frame, measures=("loss", "gradient_norm")):
        missing = [c for c in ("step", "group", *measures) if c not in frame]
        if missing:
            raise ValueError(
                f"frame lacks the columns {missing}. Pass the diagnostics_ of an estimator fitted "
                "with a GroupRecorder; the parts of the step risk need its terms=True."
            )
        self.frame, self.measures = frame, measures

    @classmethod
    def from_estimator(cls, estimator, *, measures=("loss", "gradient_norm")):
        """Return the display of an estimator fitted with a `GroupRecorder` among its callbacks."""
        if not hasattr(estimator, "diagnostics_"):
            raise ValueError(
                "The estimator has no recorded values. Fit it with callbacks=[GroupRecorder()] of "
                "skdpfair.analysis; the fitted object must then not be released."
            )
        return cls(estimator.diagnostics_, measures)

    def plot(self, ax=None):
        """Draw a curve for each group into ``ax``, one a panel, or a new figure; return self."""
        n = len(self.measures)
        self.axes_ = np.atleast_1d(new_axes(1.5 + 4.2 * n, 4.0, n, ax=ax))
        self.figure_ = self.axes_[0].figure
        by_group = dict(iter(self.frame.groupby("group", sort=False, dropna=False)))
        names = group_names(by_group)
        for panel, measure in zip(self.axes_, self.measures, strict=True):
            for i, (name, group) in enumerate(zip(names, by_group, strict=True)):
                rows = by_group[group].dropna(subset=measure)
                panel.plot(rows["step"], rows[measure], color=colour_of(i), label=plain(name))
                if f"{measure}_se" in rows:
                    band = 2 * rows[f"{measure}_se"]
                    edges = rows[measure] - band, rows[measure] + band
                    panel.fill_between(rows["step"], *edges, color=colour_of(i), alpha=0.15, lw=0)
            words = measure.replace("_", " ")
            panel.set(xlabel="step", ylabel=words)
            dress(panel, f"{words.capitalize()} (not private)")
        legend_aside(self.axes_[-1])
        return self


_UNSURE = "no interval, or too few test records"
_COLUMN = "privacy_cost["
_MAX_HEIGHT = 24.0  # inches


class PrivacyCostDisplay:
    """Privacy cost of each group, as bars, with 95 % intervals over the runs of a sweep.

    A bar that has no interval, such as that of a single run, is hatched.

    Parameters
    ----------
    table : pandas.DataFrame
        From :func:`skdpfair.metrics.group_table`, one row per model; the reference, whose cost is 0
        by definition, is not drawn.
    intervals : pandas.DataFrame or None, default=None
        The ends of the intervals of the same rows, in columns (quantity, "low" or "high").

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

    def __init__(self, table, intervals=None):
        self.table, self.intervals = table, intervals

    @classmethod
    def from_results(cls, results, epsilon):
        """Return the display of the results of a sweep at one of its budgets, a bar a method.

        Groups with too few test records are hatched.
        """
        estimates = results.estimates()
        budgets = estimates.index.get_level_values("epsilon").unique()
        budgets = budgets[np.isfinite(budgets)].tolist()
        if epsilon not in budgets:
            raise ValueError(f"epsilon must be one of {budgets}, got {safe_repr(epsilon)}.")
        estimates = estimates.xs(epsilon, level="epsilon")
        table = estimates.xs("mean", axis=1, level=1).astype(float)
        table.attrs |= {"epsilon": epsilon, "small": small_groups(results)}
        return cls(table, estimates)

    def plot(self, ax=None):
        """Draw a bar for each group and private model into ``ax``, or a new figure; return self.

        The names of the models are to the right of the axes, so the figure must have
        ``layout="constrained"``.
        """
        (bars, low, high, is_sure), attrs = self._bars(), self.table.attrs
        ax = new_axes(height=min(1.6 + 0.26 * (bars.size + len(bars)), _MAX_HEIGHT), ax=ax)
        colours = [colour_of(i) for i in range(bars.shape[1])]
        bars.plot.barh(ax=ax, color=colours, width=0.8, legend=False)
        for i, container in enumerate(ax.containers):
            columns = (part[:, i] for part in (bars.to_numpy(), low, high, is_sure))
            for bar, cost, lower, upper, sure in zip(container, *columns, strict=True):
                y, side = bar.get_y() + bar.get_height() / 2, -1 if cost < 0 else 1
                ax.hlines(y, lower, upper, color="black", linewidth=1)
                if not sure:
                    bar.set(facecolor="none", edgecolor=colours[i], hatch="////")
                ends = [v for v in (0.0, cost, lower, upper) if not np.isnan(v)]
                text = "" if np.isnan(cost) else f"{cost:+.1f}"
                end = max(ends, key=lambda v: side * v)
                place = {"textcoords": "offset points", "ha": "left" if side > 0 else "right"}
                ax.annotate(text, (end, y), (3 * side, 0), va="center", **place)
        if not is_sure[~np.isnan(bars)].all():
            ax.fill([], [], facecolor="none", edgecolor="0.35", hatch="////", label=_UNSURE)
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

    def _bars(self):
        """Return costs, a row a group and a column a model, ends of intervals, and which are sure.

        All are in percentage points.
        """
        table = self.table
        columns = [c for c in table.columns if str(c).startswith(_COLUMN)]
        models = [name for name in table.index if name != table.attrs.get("reference")]
        bars = 100 * table.loc[models, columns].T
        if bars.isna().all(axis=None):  # also without any
            raise ValueError(
                "table must have numbers in columns privacy_cost[GROUP], and a row besides the "
                "reference. Pass the result of skdpfair.metrics.group_table."
            )
        ends = [np.full(bars.shape, np.nan)] * 2
        if self.intervals is not None:
            parts = (self.intervals.xs(end, axis=1, level=1) for end in ("low", "high"))
            ends = [100 * part.loc[models, columns].T.to_numpy(float) for part in parts]
        names = [c[len(_COLUMN) : -1] for c in columns]
        is_small = np.isin(names, table.attrs.get("small", []))
        empty = bars.isna().all(axis=1)
        bars.index = [
            plain(n) + " (no test records)" * e for n, e in zip(names, empty, strict=True)
        ]
        bars = bars.set_axis([*map(plain, models)], axis=1)
        return bars, *ends, (ends[0] < ends[1]) & ~is_small[:, None]


_MARKERS, _LINES = "osD^vPX", ("-", "-.", ":")
_MAX_TICKS = 7


class TradeoffDisplay:
    """Curves of one measure by privacy budget, with 95 % intervals over the runs as bands.

    A point without an interval, or of a group with too few test records, is hollow. ``curves`` has
    for each method a frame with columns epsilon (inf without privacy, which is drawn as a dashed
    line), mean, low and high.
    """

    def __init__(self, curves, measure="accuracy", *, is_small=False, classes=()):
        self.curves, self.measure, self.classes = curves, measure, classes
        self.is_small = is_small

    @classmethod
    def from_results(cls, results, *, measure="accuracy"):
        """Return the display of one column of ``results.estimates()``."""
        estimates = results.estimates()
        one_of("measure", measure, estimates.columns.get_level_values(0).unique())
        by_method = estimates[measure].reset_index().groupby("method", sort=False)
        curves = {name: part.sort_values("epsilon") for name, part in by_method}
        return cls(
            curves, measure, is_small=is_unsure(results, measure), classes=results.spec.classes
        )

    def plot(self, ax=None):
        """Draw a curve for each method into ``ax``, or a new figure; return self."""
        title, unit, factor = described(self.measure, self.classes)
        curves = {m: rows[np.isfinite(rows["mean"])] for m, rows in self.curves.items()}
        curves = {method: rows for method, rows in curves.items() if len(rows)}
        if not curves:
            raise ValueError(
                f"There is no {self.measure!r} to draw: all are NaN. Costs need the runs of the "
                "reference model, and a group needs test records."
            )
        ax = new_axes(ax=ax)
        is_cost = MEASURES[measure_of(self.measure)].against == "reference"
        budgets, n_drawn, all_sure = set(), 0, True
        for method, rows in curves.items():
            mean, low, high = (factor * rows[name] for name in ("mean", "low", "high"))
            name, sure = plain(method), (low < high) & (not self.is_small)
            if np.isinf(rows["epsilon"]).all():
                # measured from the reference model: zero is drawn anyway
                if not is_cost:
                    dash, text = ("--", name) if sure.all() else (":", f"{name}, not sure")
                    ax.axhline(mean.iloc[0], color="0.35", linestyle=dash, lw=1.2, label=text)
                    ax.axhspan(low.iloc[0], high.iloc[0], color="0.35", alpha=0.08, lw=0)
                continue
            # the markers are shifted when the colours start again, so that each curve differs
            cycle, place = divmod(n_drawn, len(PALETTE))
            line = _LINES[cycle % len(_LINES)]
            look = {
                "color": colour_of(n_drawn),
                "marker": _MARKERS[(place + cycle) % len(_MARKERS)],
            }
            ax.fill_between(rows["epsilon"], low, high, color=look["color"], alpha=0.18, lw=0)
            # a single budget has no band
            ax.vlines(rows["epsilon"], low, high, color=look["color"], lw=1, alpha=0.6)
            at = np.flatnonzero(sure).tolist()
            ax.plot(rows["epsilon"], mean, label=name, markevery=at, ls=line, ms=5, **look)
            if not sure.all():
                ax.plot(rows["epsilon"][~sure], mean[~sure], mfc="white", ls="none", ms=5, **look)
                all_sure = False
            budgets |= set(rows["epsilon"])
            n_drawn += 1
        kind = self.measure.partition("[")[0].replace("_", " ")
        band = any((rows["low"] < rows["high"]).any() for rows in curves.values())
        label = "privacy budget ε, log scale" + "; bands are 95 % intervals" * band
        if not all_sure:
            ax.plot([], [], "o", color="0.35", mfc="white", ms=5, label=_UNSURE)
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


_TOLERANCE = 1e-3  # of logits: two columns interact beyond it
_N_TRIED = 64
_MAX_BARS = 12


class ShapeDisplay:
    """Curves of an additive model: the logit of a class as a function of each column.

    They are computed from the weights and the public bounds and categories alone. If the fit was
    private, so are the curves.

    Parameters
    ----------
    frame : pandas.DataFrame
        With columns ``column``, ``value`` and ``logit``: one row for each point of each curve.
        Numbers make a line, texts make bars.
    log_columns : collection of str, default=()
        Columns that are drawn on a logarithmic axis.

    Attributes
    ----------
    axes_, figure_
        Where :meth:`plot` drew.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.report import ShapeDisplay
    >>> from skdpfair.preprocessing import public_preprocessor
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"age": rng.uniform(20, 80, 2000), "ward": rng.choice(["A", "B"], 2000)})
    >>> y = (abs(X["age"] - 50) < 15).astype(int)
    >>> features = public_preprocessor({"age": (20, 80)}, {"ward": ["A", "B"]}, encoding="auto")
    >>> model = make_pipeline(features, DPFairClassifier(epsilon=8.0)).fit(X, y)
    >>> display = ShapeDisplay.from_estimator(model)
    >>> age = display.frame.query("column == 'age'").set_index("value")["logit"]
    >>> bool(age[50.0] > age[20.0]), sorted(set(display.frame["column"]))
    (True, ['age', 'ward'])
    """

    def __init__(self, frame, log_columns=()):
        self.frame = frame
        self.log_columns = log_columns

    @classmethod
    def from_estimator(cls, estimator, *, n_points=121):
        """Return the display of a fitted pipeline.

        Parameters
        ----------
        estimator : Pipeline
            Fitted: the result of `public_preprocessor`, then a classifier of two classes whose
            ``decision_function`` is a sum of functions of one column each, such as a
            `DPFairClassifier` with ``module="logistic"``. For the file of a model:
            ``make_pipeline(loaded.schema_.preprocessor(), loaded)`` with ``load_release(path)``.
        n_points : int, default=121
            Number of points of each line, from the lower to the upper public bound; as many again
            on a logarithmic axis.

        Returns
        -------
        ShapeDisplay
            The mean of each curve over its points is 0.
        """
        values, log_columns = _public_facts(estimator, n_points)
        names = list(estimator.feature_names_in_)
        base = {c: values[c][0] if c in values else None for c in names}
        _check_additive(estimator, names, base, values)
        parts = []
        for column, points in values.items():
            rows = pd.DataFrame([base] * len(points), columns=names)
            rows[column] = points
            logits = _logits(estimator, rows)
            part = {"column": column, "value": points, "logit": logits - logits.mean()}
            parts.append(pd.DataFrame(part).astype({"column": object, "value": object}))
        return cls(pd.concat(parts, ignore_index=True), log_columns)

    def plot(self, ax=None):
        """Draw one panel for each column; of many categories, those with the longest bars.

        Return the display. ``ax`` has an axes for each column, or is None for a new figure.
        """
        groups = list(self.frame.groupby("column", sort=False))
        n_across = min(len(groups), 3)
        n_down = math.ceil(len(groups) / n_across)
        ax = new_axes(4.0 * n_across, 3.0 * n_down, n_across, n_down, ax=ax)
        self.axes_ = np.atleast_1d(ax).ravel()
        self.figure_ = self.axes_[0].figure
        for panel, (column, rows) in zip(self.axes_, groups, strict=False):
            if isinstance(rows["value"].iloc[0], str):
                bars = rows.loc[rows["logit"].abs().nlargest(_MAX_BARS).index].sort_values("logit")
                part = f" ({len(bars)} of {len(rows)})" if len(bars) < len(rows) else ""
                panel.barh([*map(plain, bars["value"])], bars["logit"], color=colour_of(0))
                panel.set(xlabel="logit")
                dress(panel, f"{plain(column)}{part}", grid="x")
            else:
                panel.plot(rows["value"].astype(float), rows["logit"], color=colour_of(0))
                panel.set(ylabel="logit")
                if column in self.log_columns:
                    panel.set_xscale("symlog", linthresh=1.0)
                dress(panel, plain(column))
        for panel in self.axes_[len(groups) :]:
            panel.set_visible(False)
        return self


def _public_facts(estimator, n_points):
    """Return points of the numbers, and categories, by column; and the logarithmic columns."""
    steps = getattr(estimator, "steps", None) or [("", None)]
    parts = getattr(steps[0][1], "named_transformers_", {})
    numeric, categories = parts.get("numeric"), getattr(parts.get("categorical"), "categories", {})
    if numeric is None and not categories:
        raise ValueError(
            "estimator must be a fitted pipeline that begins with public_preprocessor(...), got "
            f"{type(estimator).__name__}."
        )
    values, log_columns = {}, []
    for column, axes in [] if numeric is None else numeric.axes():
        is_amount = len(axes) > 1
        # a curve of fine knots has 512 straight pieces
        n_knots = 513 if is_amount else 2
        points = np.union1d(np.linspace(0, 1, n_points), np.linspace(0, 1, n_knots))
        values[column] = np.unique([axis.values(points) for axis in axes])
        log_columns += [column] * is_amount
    return values | {c: list(map(str, listed)) for c, listed in categories.items()}, log_columns


def _logits(estimator, rows):
    logits = np.asarray(estimator.decision_function(rows), dtype=float)
    if logits.ndim != 1:
        raise ValueError("estimator has more than two classes: there is no one logit to show.")
    return logits


def _check_additive(estimator, names, base, values):
    """Raise ValueError unless logits of made-up rows are sums over the columns."""
    rng = np.random.default_rng(0)
    drawn = {c: rng.choice(np.asarray(v, object), _N_TRIED) for c, v in values.items()}
    rows = pd.DataFrame([base] * _N_TRIED, columns=names)

    def logits(changed):
        # no assign(**...), which some names of columns would break
        table = pd.DataFrame({c: changed.get(c, rows[c]) for c in rows}, columns=names)
        return _logits(estimator, table.astype(rows.dtypes))

    start, joint = logits({}), logits(drawn)
    added = start + sum(logits({c: v}) - start for c, v in drawn.items())
    if np.abs(joint - added).max() > _TOLERANCE * max(1.0, np.abs(joint).max()):
        raise ValueError(
            "estimator is not additive: what one column adds depends on the others. Fit it with "
            'module="logistic".'
        )
