"""Displays: curves of an additive model, losses and privacy costs of groups, a trade-off."""

import math
from functools import partial
from textwrap import fill

import numpy as np
import pandas as pd
from sklearn.isotonic import isotonic_regression

from skdpfair._networks import n_cells
from skdpfair._utils.group_names import group_names
from skdpfair._utils.validate import one_of, safe_repr
from skdpfair.inputs.columns import names_of_features
from skdpfair.metrics._measures import MEASURES, described, measure_of
from skdpfair.report._charts import range_of, spaced
from skdpfair.report._recommendation import is_unsure, small_groups

# as in the pages: Okabe and Ito's colours for the colour-blind, the light ones darker
PALETTE = ("#0072B2", "#BF8300", "#009E73", "#CC79A7", "#3A9BD9", "#D55E00", "#8C8000")
_MARKERS, _LINES = "os^Dv", ("-", (0, (7, 3)), (0, (2, 3)))
_MAX_NAME, _MAX_LINE = 60, 28  # letters
_UNSURE, _COLUMN = "no interval, or too few test records", "privacy_cost["
_MAX_HEIGHT, _MAX_BARS, _N_TRIED = 24.0, 12, 64  # inches
_TOLERANCE = 1e-3  # of logits: two columns interact beyond it


def look_of(i):
    """Return the colour, marker and dashes of a series, the same in all figures."""
    cycle, place = divmod(i, len(PALETTE))
    marker = _MARKERS[(place + cycle) % len(_MARKERS)]
    return {"color": PALETTE[place], "marker": marker, "ls": _LINES[cycle % len(_LINES)], "ms": 5}


def new_axes(width=8.0, height=4.8, n_columns=1, n_rows=1, ax=None):
    """Return axes that were passed, or those of a new figure, whose size is in inches."""
    if ax is not None and not all(hasattr(a, "get_legend") for a in np.ravel(ax)):
        raise TypeError(f"ax must be matplotlib's Axes or None, got {safe_repr(ax)}.")
    if ax is not None:
        figure = np.ravel(ax)[0].figure.figure
        if figure.get_layout_engine() is None:  # names beside the axes need room
            figure.set_layout_engine("constrained")
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'plotting needs matplotlib: pip install "skdpfair[plot]", or pass ax.'
        ) from error
    return plt.subplots(n_rows, n_columns, figsize=(width, height), layout="constrained")[1]


def dress(ax, title, *, grid="y", notes=()):
    """Write the title, and notes below the axes; draw a grid, and hide spines."""
    ink, per_point = ax.title.get_color(), 72 / ax.figure.dpi  # white on black pages
    n_letters = max(20, int(ax.bbox.width * per_point / 7.5))
    ax.set_title(fill(title, n_letters), loc="left", fontweight="bold", wrap=True)
    ax.grid(axis=grid, color=ink, alpha=0.12)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if any(notes):
        below = (ax.xaxis.get_tightbbox().y0 - ax.bbox.y0) * per_point - 3
        look = {"color": ink, "alpha": 0.75, "fontsize": "small", "ha": "center", "va": "top"}
        place = (0.5, 0), (0, below), "axes fraction", "offset points"
        ax.annotate("\n".join(filter(None, notes)), *place, **look)


def name_ends(ax, lines):
    """Write the labels of lines to the right of the axes, beside their ends, so that none touch."""
    from matplotlib.legend import Legend

    look: dict = {"loc": "center left", "frameon": False, "borderpad": 0.15}
    ends = {line: line.get_ydata(orig=False)[-1] for line in lines if len(line.get_ydata())}
    ends = pd.Series(ends, dtype=float).sort_values()
    keys = [Legend(ax, [line], [line.get_label()], **look) for line in ends.index]
    heights = np.array([key.get_window_extent().height / ax.bbox.height for key in keys])
    places, (low, high) = np.cumsum(heights) - heights / 2, ax.get_ylim()
    shifts, free = (ends.to_numpy() - low) / (high - low) - places, max(0.0, 1 - heights.sum())
    places = places + (isotonic_regression(shifts, y_min=0.0, y_max=free) if keys else 0)
    for key, place in zip(keys, places, strict=True):
        key.set_bbox_to_anchor((1.0, place), ax.transAxes)
        ax.add_artist(key).set_clip_on(False)  # the layout leaves it room


def plain(name, width=_MAX_NAME):
    """Return the name of a group, column or model as a text that matplotlib writes as it is."""
    text = str(name) if str(name).strip() else "(missing)"
    text = text if len(text) <= _MAX_NAME else f"{text[:30]}…{text[-20:]}"
    # matplotlib takes dollars for mathematics, and leaves _names out of legends
    text = fill(text, width).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _whiskers(ax, axis, color, at, mean, low, high, **where):
    """Draw intervals with caps, or arrows beyond the limits; return a note on them."""
    has, turn, limits = low < high, 1 if axis == "y" else -1, getattr(ax, f"get_{axis}lim")()
    look = {"ecolor": color, "elinewidth": 1.2, "capsize": 3, "fmt": "none"} | where
    look[f"{axis}err"] = [(mean - low)[has], (high - mean)[has]]
    ax.errorbar(*(at[has], mean[has])[::turn], **look)
    carets, ends = ((7, 6) if axis == "y" else (4, 5)), (low < limits[0], high > limits[1])
    for marker, limit, beyond in zip(carets, limits, ends, strict=True):
        if (cut := has & beyond).any():
            look = {"color": color, "marker": marker, "ls": "none", "clip_on": False} | where
            ax.plot(*(at[cut], np.full(cut.sum(), limit))[::turn], **look)
    is_cut = bool((has & (ends[0] | ends[1])).any())
    return "whiskers: 95 % intervals" * bool(has.any()) + ", with arrows beyond the panel" * is_cut


def _size(n):
    return f" (n = {n:,})" if n else ""


def _sizes(results):
    """Return the fewest test records of a run of each group, where they are known."""
    return results.frame.groupby("group")["n"].min().dropna().astype(int).to_dict()


class GroupLossDisplay:
    """Loss and gradient norm of each group over training, or other recorded values; NOT private.

    Parameters
    ----------
    frame : pandas.DataFrame
        The ``diagnostics_`` of an estimator, ``frame_`` of a `skdpfair.analysis.GroupRecorder`.
    measures : sequence of str, default=("loss", "gradient_norm")
        The columns to draw, one panel for each, with bands of two standard errors if the recorder
        has them.

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
        """Draw a curve for each group into ``ax``, one a panel, or a new figure.

        Return self, with ``figure_``, ``axes_`` and ``ax_``, the first of them.
        """
        n = len(self.measures)
        self.axes_ = np.atleast_1d(new_axes(1.5 + 4.2 * n, 4.0, n, ax=ax))
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        by_group = dict(iter(self.frame.groupby("group", sort=False, dropna=False)))
        names = group_names(by_group)
        for panel, measure in zip(self.axes_, self.measures, strict=True):
            lines, error = [], f"{measure}_se"
            for i, (name, rows) in enumerate(zip(names, by_group.values(), strict=True)):
                size = f" (n = {rows['n_samples'].max():,.0f})" if "n_samples" in rows else ""
                look = look_of(i) | {"label": plain(name, _MAX_LINE) + size, "markevery": 0.15}
                rows = rows.dropna(subset=measure)
                lines += panel.plot(rows["step"], rows[measure], **look)
                if error in rows:
                    edges = (rows[measure] + k * rows[error] for k in (-2, 2))
                    panel.fill_between(rows["step"], *edges, color=look["color"], alpha=0.15, lw=0)
            mean, errors = self.frame[measure], 2 * self.frame.get(error, 0.0)
            ends = np.transpose([mean, mean - errors, mean + errors])
            panel.set_ylim(range_of(ends), auto=True)  # more that is drawn may move them
            words = measure.replace("_", " ")
            panel.set(xlabel="step", ylabel=words)
            dress(panel, f"{words.capitalize()} (not private)")
        name_ends(panel, lines)
        return self


class PrivacyCostDisplay:
    """Privacy cost of each group, as bars, with 95 % intervals over the runs of a sweep.

    A bar that has no interval, such as that of a single run, is light.

    Parameters
    ----------
    table : pandas.DataFrame
        From :func:`skdpfair.metrics.group_table`, one row per model; the reference, whose cost is 0
        by definition, is not drawn.
    intervals : pandas.DataFrame or None, default=None
        The ends of the intervals of the same rows, in columns (quantity, "low" or "high").

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

        The bars of groups with too few test records are light.
        """
        estimates = results.estimates()
        private = estimates[np.isfinite(estimates.index.get_level_values("epsilon"))]
        if epsilon not in (budgets := private.index.unique("epsilon").tolist()):
            raise ValueError(f"epsilon must be one of {budgets}, got {safe_repr(epsilon)}.")
        own = private.xs(epsilon, level="epsilon")
        table = own.xs("mean", axis=1, level=1).astype(float)
        facts = {"methods": private.index.unique("method").tolist(), "small": small_groups(results)}
        table.attrs |= facts | {"epsilon": epsilon, "n": _sizes(results)}
        return cls(table, own)

    def plot(self, ax=None):
        """Draw bars into ``ax``, or a new figure; return self, with ``ax_`` and ``figure_``."""
        attrs, (rows, models) = self.table.attrs, self._rows()
        n_lines = rows["label"].str.count("\n") + 1
        height, rows["y"] = n_lines.sum(), n_lines.cumsum() - n_lines / 2
        ax = new_axes(height=min(1.5 + 0.26 * height, _MAX_HEIGHT), ax=ax)
        bars, ink = rows[rows["colour"] != ""], ax.title.get_color()
        y, *values = bars[["y", "cost", "low", "high"]].to_numpy(float).T
        first, last = range_of(np.transpose(values), zero=True)
        # a tenth of a point must not look like a tower
        ax.set(xlim=(first, max(last, first + 0.2)), ylim=(height + 0.2, -0.2))
        size = min(ax.xaxis.label.get_size(), 61 * ax.bbox.height / ax.figure.dpi / height)
        ax.set_yticks(rows["y"], rows["label"], fontsize=size)
        for text, colour in zip(ax.get_yticklabels(), rows["colour"], strict=True):
            text.set_fontweight("normal" if colour else "bold")
        ax.axvline(0, color=ink, linewidth=1)
        faces = [*zip(bars["colour"], np.where(bars["sure"], 1.0, 0.25), strict=True)]
        ax.barh(y, values[0], height=0.7, color=faces, edgecolor=bars["colour"])
        where = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points"}
        for place, *numbers in zip(y, *values, strict=True):
            mean, *ends = (f"{round(v, 1) + 0.0:+.1f}".replace("-", "−") for v in numbers)
            text = mean + " ({} to {})".format(*ends) * bool(numbers[1] < numbers[2])
            ax.annotate(text, (1, place), (6, 0), va="center", fontsize=size, **where)
        ax.tick_params(axis="y", length=0)
        ax.locator_params(axis="x", nbins=6)
        ax.spines["left"].set_visible(False)
        ax.set(xlabel="accuracy lost (percentage points)")
        light = f"light: {_UNSURE}" * (not bars["sure"].all())
        notes = _whiskers(ax, "x", ink, y, *values), light
        at = f" at ε = {attrs['epsilon']:g}" if "epsilon" in attrs else ""
        of = f": {plain(models[0])}" if len(models) == 1 else ""
        against = f", against {plain(attrs['reference'])}" if "reference" in attrs else ""
        dress(ax, f"Privacy cost of each group{at}{of}{against}", grid="x", notes=notes)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _rows(self):
        """Return a row for each line of text, a bar or a group's name above, and the models.

        Costs and ends of intervals are in percentage points.
        """
        table, attrs, rows = self.table, self.table.attrs, []
        columns = [c for c in table.columns if str(c).startswith(_COLUMN)]
        models = [name for name in table.index if name != attrs.get("reference")]
        if table.loc[models, columns].isna().all(axis=None):  # also without any
            raise ValueError(
                "table must have numbers in columns privacy_cost[GROUP], and a row besides the "
                "reference. Pass the result of skdpfair.metrics.group_table."
            )
        for column in columns:
            name, known = column[len(_COLUMN) : -1], table.loc[models, column].dropna()
            size = _size(attrs.get("n", {}).get(name))
            head = plain(name, _MAX_LINE) + (" (no test records)" if known.empty else size)
            if len(models) > 1 or known.empty:
                rows.append({"label": head, "colour": ""})
            for model, cost in known.items():
                own = {} if self.intervals is None else self.intervals.loc[model, column]
                low, high = (100 * own.get(end, np.nan) for end in ("low", "high"))
                row = {"cost": 100 * cost, "low": low, "high": high}
                row["label"] = head if len(models) == 1 else plain(model, _MAX_LINE)
                row["colour"] = look_of(attrs.get("methods", models).index(model))["color"]
                row["sure"] = low < high and name not in attrs.get("small", [])
                rows.append(row)
        return pd.DataFrame(rows), models


class TradeoffDisplay:
    """Curves of one measure by privacy budget, with 95 % intervals over the runs as whiskers.

    A point without an interval, or of a group with too few test records, is hollow. ``curves`` has
    for each method a frame with columns epsilon (inf without privacy, which is drawn as a dashed
    line), mean, low and high.
    """

    def __init__(self, curves, measure="accuracy", *, is_small=False, classes=(), size=""):
        self.curves, self.measure, self.classes = curves, measure, classes
        self.is_small, self.size = is_small, size

    @classmethod
    def from_results(cls, results, *, measure="accuracy"):
        """Return the display of one column of ``results.estimates()``."""
        estimates = results.estimates()
        one_of("measure", measure, estimates.columns.get_level_values(0).unique())
        by_method = estimates[measure].reset_index().groupby("method", sort=False)
        curves = {name: part.sort_values("epsilon") for name, part in by_method}
        facts = {"is_small": is_unsure(results, measure), "classes": results.spec.classes}
        size = _size(_sizes(results).get(measure.partition("[")[2][:-1]))
        return cls(curves, measure, **facts, size=size)

    def plot(self, ax=None):
        """Draw curves into ``ax``, or a new figure; return self, with ``ax_`` and ``figure_``."""
        title, unit, factor = described(self.measure, self.classes)
        names, scale = ["epsilon", "mean", "low", "high"], [[1.0], [factor], [factor], [factor]]
        curves = {m: rows[names].to_numpy(float).T * scale for m, rows in self.curves.items()}
        private = [method for method, rows in curves.items() if not np.isinf(rows[0]).all()]
        curves = {m: rows[:, np.isfinite(rows[1])] for m, rows in curves.items()}
        curves = {method: rows for method, rows in curves.items() if rows.size}
        if not curves:
            raise ValueError(
                f"There is no {self.measure!r} to draw: all are NaN. Costs need the runs of the "
                "reference model, and a group needs test records."
            )
        from matplotlib.transforms import ScaledTranslation

        ax, is_cost = new_axes(ax=ax), MEASURES[measure_of(self.measure)].against == "reference"
        ink, every, lines, notes = ax.title.get_color(), np.hstack([*curves.values()]), [], [""]
        ax.set_ylim(range_of(every[1:].T, zero=is_cost))
        budgets, all_sure = sorted({*every[0][np.isfinite(every[0])].tolist()}), True
        # points of one budget stand side by side
        apart = min(7.0, 42 / max(1, len(private))) * (3 if len(budgets) == 1 else 1)
        for method, (at, mean, low, high) in curves.items():
            look = {"label": plain(method, _MAX_LINE), "lw": 1.2, "color": ink}
            where = {"transform": ax.get_yaxis_transform()}
            sure = (low < high) & (not self.is_small)
            if method in private:
                look |= look_of(i := private.index(method))
                aside = apart * (i - (len(private) - 1) / 2)
                move = ScaledTranslation(aside / 72, 0, ax.figure.dpi_scale_trans)
                where["transform"] = ax.transData + move
                full = np.flatnonzero(sure).tolist()
                lines += ax.plot(at, mean, markevery=full, **look, **where)
                look |= {"ls": "none", "mfc": ax.get_facecolor(), "label": None}
                ax.plot(at[~sure], mean[~sure], **look, **where)
                all_sure &= bool(sure.all())
            elif is_cost:  # measured from the reference model: zero is drawn anyway
                continue
            else:
                at = np.array([0.985 - 0.02 * len(lines)])
                lines.append(ax.axhline(mean[0], ls="--", **look))
            notes.append(_whiskers(ax, "y", look["color"], at, mean, low, high, **where))
        if budgets:
            room = (budgets[-1] / budgets[0]) ** 0.1 if len(budgets) > 1 else 2.0
            ax.set(xscale="log", xlim=(budgets[0] / room, budgets[-1] * room))
            ticks = [b for _, b in spaced([(math.log(b, room), b) for b in budgets], 1.0)]
            ax.set_xticks(ticks, [f"{b:.3g}" for b in ticks])
            ax.minorticks_off()
        if is_cost:
            ax.axhline(0, color=ink, linewidth=1, zorder=1)
        n_letters = max(20, int(13 * ax.bbox.height / ax.figure.dpi))
        kind = self.measure.partition("[")[0].replace("_", " ")
        ax.set(xlabel="privacy budget ε, log scale", ylabel=fill(f"{kind} ({unit})", n_letters))
        hollow = f"hollow: {_UNSURE}" * (not all_sure)
        dress(ax, plain(title) + self.size, notes=(max(notes, key=len), hollow))
        name_ends(ax, lines)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class ShapeDisplay:
    """Curves of an additive model: the logit of a class as a function of each column.

    They are computed from the weights and the public bounds and categories alone. If the fit was
    private, so are the curves.

    Parameters
    ----------
    frame : pandas.DataFrame
        With columns ``column``, ``value`` and ``logit``: one row for each point of each curve.
        Numbers make a line, texts make bars. Where ``other`` is not missing, it is the value of a
        second column, and a heat map shows what the pair adds to the curves of both.
    log_columns : collection of str, default=()
        Columns that are drawn on a logarithmic axis.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpfair.report import ShapeDisplay
    >>> frame = pd.DataFrame({"column": "ward", "value": ["A", "B"], "logit": [-0.4, 0.4]})
    >>> ShapeDisplay(frame).plot().ax_.get_title(loc="left")  # from_estimator takes a pipeline
    'ward'
    """

    def __init__(self, frame, log_columns=()):
        self.frame, self.log_columns = frame, log_columns

    @classmethod
    def from_estimator(cls, estimator, *, n_points=121):
        """Return the display of a fitted pipeline; the mean of a curve over its points is 0.

        Parameters
        ----------
        estimator : Pipeline
            Fitted: the result of `public_preprocessor`, then a classifier of two classes whose
            ``decision_function`` is a sum of functions of one column each, and of the pairs of
            columns that a `DPFairClassifier` chose. With ``module="logistic"``, it chooses none.
            For the file of a model: ``make_pipeline(loaded.schema_.preprocessor(), loaded)`` with
            ``load_release(path)``.
        n_points : int, default=121
            Number of points of each line, from the lower to the upper public bound; as many again
            on a logarithmic axis.
        """
        values, cells, log_columns = _public_facts(estimator, n_points)
        pairs = _pairs_of(estimator, values)
        base = {c: values[c][0] if c in values else None for c in estimator.feature_names_in_}
        _check_additive(estimator, base, values, pairs)

        def logits(points):
            """Return logits at all combinations of points of some columns, on one axis for each."""
            grid = pd.MultiIndex.from_product(points.values(), names=points).to_frame(index=False)
            return _logits(estimator, base, dict(grid)).reshape(*map(len, points.values()))

        parts = []
        for column, points in values.items():
            curve = alone = logits({column: points})
            # the mean over the cells of the other column of a pair
            for other in (b if a == column else a for a, b in pairs if column in (a, b)):
                curve = curve + logits({column: points, other: cells[other]}).mean(1) - alone
            part = {"column": column, "value": points, "logit": curve - curve.mean(), "other": None}
            parts.append(pd.DataFrame(part).astype({"column": object, "value": object}))
        for a, b in pairs:
            joint = logits({a: cells[a], b: cells[b]})
            added = joint - joint.mean(0) - joint.mean(1, keepdims=True) + joint.mean()
            grid = pd.MultiIndex.from_product([cells[a], cells[b]], names=["value", "other"])
            part = grid.to_frame(index=False).astype(object)
            parts.append(part.assign(column=f"{a} × {b}", logit=added.ravel()))
        return cls(pd.concat(parts, ignore_index=True), log_columns)

    def plot(self, ax=None):
        """Draw one panel for each column; of many categories, those with the longest bars.

        ``ax`` has an axes for each column, or is None for a new figure. Return self, with
        ``figure_``, ``axes_`` and ``ax_``, the first of them.
        """
        groups = list(self.frame.groupby("column", sort=False))
        n_across = min(len(groups), 3)
        n_down = math.ceil(len(groups) / n_across)
        ax = new_axes(4.0 * n_across, 3.0 * n_down, n_across, n_down, ax=ax)
        self.axes_ = np.atleast_1d(ax).ravel()
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        colour, limits = look_of(0)["color"], range_of([*self.frame["logit"]], zero=True)
        for panel, (column, rows) in zip(self.axes_, groups, strict=False):
            part = ""
            if "other" in rows and rows["other"].notna().any():
                _draw_pair(panel, column, rows)
                continue
            if is_text := isinstance(rows["value"].iloc[0], str):
                bars = rows.loc[rows["logit"].abs().nlargest(_MAX_BARS).index].sort_values("logit")
                part = f" ({len(bars)} of {len(rows)})" if len(bars) < len(rows) else ""
                names = [plain(v, _MAX_LINE) for v in bars["value"]]
                panel.barh(range(len(bars)), bars["logit"], 0.7, tick_label=names, color=colour)
                room = 0.6 + max(0.0, 5 - len(bars)) / 2  # two bars are no thicker than five
                panel.set(ylim=(-room, len(bars) - 1 + room), xlim=limits, xlabel="logit")
                panel.tick_params(axis="y", length=0)
            else:
                panel.plot(rows["value"].astype(float), rows["logit"], color=colour)
                panel.set(ylim=limits, ylabel="logit")
                if column in self.log_columns:
                    panel.set_xscale("symlog", linthresh=1.0)
                    panel.margins(x=0.0)
                    panel.xaxis.get_major_locator().set_params(numticks=4)
                    panel.xaxis.set_major_formatter("{x:,g}")
            zero = panel.axvline if is_text else panel.axhline
            zero(0, color=panel.title.get_color(), linewidth=1)
            dress(panel, f"{plain(column)}{part}", grid="x" if is_text else "y")
        for panel in self.axes_[len(groups) :]:
            panel.set_visible(False)
        return self


def _draw_pair(panel, column, rows):
    table = rows.pivot_table("logit", "value", "other", sort=False)
    limit = max(float(table.abs().to_numpy().max()), 1e-9)
    drawn = panel.imshow(table.astype(float), cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
    for axis, labels in (("y", table.index), ("x", table.columns)):
        texts = [plain(v if isinstance(v, str) else f"{v:,.3g}", 12) for v in labels]
        panel.set(**{f"{axis}ticks": range(len(texts)), f"{axis}ticklabels": texts})
        panel.tick_params(axis=axis, length=0, labelsize="small", rotation=45 * (axis == "x"))
    panel.figure.colorbar(drawn, ax=panel, label="logit")
    dress(panel, plain(column))
    panel.grid(visible=False)


def _pairs_of(estimator, columns):
    """Return the columns of the pairs that the classifier of a pipeline has."""
    model = estimator.steps[-1][1]
    model = getattr(model, "estimator_", model)
    params = getattr(getattr(getattr(model, "net_", None), "module", None), "params", {})
    pairs = params.get("pairs", ())
    names = names_of_features(model, model._group_positions) if pairs else None
    if names is None:
        return []

    def column_at(i):
        """Return the column with whose name that of a feature begins."""
        return max((c for c in columns if f"{names[i]}_".startswith(f"{c}_")), key=len)

    return [(column_at(i), column_at(j)) for i, _, j, _ in pairs]


def _public_facts(estimator, n_points):
    """Return points of numbers and categories by column; those in cells; logarithmic columns."""
    steps = getattr(estimator, "steps", None) or [("", None)]
    parts = getattr(steps[0][1], "named_transformers_", {})
    numeric, categories = parts.get("numeric"), getattr(parts.get("categorical"), "categories", {})
    if numeric is None and not categories:
        raise ValueError(
            "estimator must be a fitted pipeline that begins with public_preprocessor(...), got "
            f"{type(estimator).__name__}."
        )
    values, cells, log_columns = {}, {}, []
    for column, axes in [] if numeric is None else numeric.axes():
        is_amount = len(axes) > 1
        # a curve of fine knots has 512 straight pieces
        n_knots = 513 if is_amount else 2
        points = np.union1d(np.linspace(0, 1, n_points), np.linspace(0, 1, n_knots))
        values[column] = np.unique([axis.values(points) for axis in axes])
        cells[column] = axes[-1].values((np.arange(n_cells(1)) + 0.5) / n_cells(1))
        log_columns += [column] * is_amount
    levels = {c: list(map(str, listed)) for c, listed in categories.items()}
    return values | levels, cells | levels, log_columns


def _logits(estimator, base, columns):
    """Return logits of rows with values in some columns, and those of ``base`` in the others."""
    logits = np.asarray(estimator.decision_function(pd.DataFrame(base | columns)), dtype=float)
    if logits.ndim != 1:
        raise ValueError("estimator has more than two classes: there is no one logit to show.")
    return logits


def _check_additive(estimator, base, values, pairs):
    """Raise ValueError unless logits of made-up rows are sums over the columns and pairs."""
    rng, logits = np.random.default_rng(0), partial(_logits, estimator, base)
    drawn = {c: rng.choice(v, _N_TRIED) for c, v in values.items()}
    start, joint = logits({c: v[:1] for c, v in values.items()}), logits(drawn)
    of = {c: logits({c: v}) - start for c, v in drawn.items()}
    added = start + sum(of.values())
    added += sum(logits({c: drawn[c] for c in ab}) - start - of[ab[0]] - of[ab[1]] for ab in pairs)
    if np.abs(joint - added).max() > _TOLERANCE * max(1.0, np.abs(joint).max()):
        raise ValueError(
            "estimator is not additive: what one column adds depends on the others. Fit it with "
            'module="logistic".'
        )
