"""Display of values that a recorder kept along training, by group; NOT private."""

import numpy as np

from skdpfair.inputs.groups import group_names
from skdpfair.report._axes import colour_of, dress, legend_aside, new_axes, plain


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
        for panel, measure in zip(self.axes_, self.measures, strict=True):
            for i, (name, rows) in enumerate(
                zip(group_names(by_group), by_group.values(), strict=True)
            ):
                rows = rows.dropna(subset=measure)
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
