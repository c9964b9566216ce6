"""Display of the curve that an additive model has learned for each column."""

import math

import numpy as np
import pandas as pd

from skdpfair.report._axes import colour_of, dress, new_axes, plain

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
        values[column] = np.unique([axis.values(np.linspace(0, 1, n_points)) for axis in axes])
        log_columns += [column] * (len(axes) > 1)
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

    start, whole = logits({}), logits(drawn)
    added = start + sum(logits({c: v}) - start for c, v in drawn.items())
    if np.abs(whole - added).max() > _TOLERANCE * max(1.0, np.abs(whole).max()):
        raise ValueError(
            "estimator is not additive: what one column adds depends on the others. Fit it with "
            'module="logistic".'
        )
