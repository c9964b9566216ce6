"""Displays of values recorded along training, by group; NOT private."""

import numpy as np

from skdpfair._validate import safe_repr
from skdpfair.inputs.groups import group_names
from skdpfair.plotting._axes import PALETTE, colour_of, dress, label_ends, new_axes, plain

_NOT_PRIVATE = "(not private)"


class _RecordedDisplay:
    """A display of a table that has the columns ``columns``."""

    columns: tuple[str, ...] = ()
    _size: tuple[float, float, int]  # of a new figure: width, height, panels
    _remedy = "Pass the table that its docstring describes, from a GroupRecorder with terms=True."

    def __init__(self, frame):
        missing = [c for c in self.columns if c not in frame]
        if missing:
            drawn_by = type(self).__name__
            raise ValueError(
                f"frame lacks the columns {missing}, which {drawn_by} draws. {self._remedy}"
            )
        self.frame = frame

    def plot(self, ax=None):
        """Draw the table.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, sequence of one a panel, or None, default=None
            Axes to draw into; None makes a new figure. If the names of the groups are to the right
            of the axes, the figure must have ``layout="constrained"``.

        Returns
        -------
        display
            The display itself, with ``axes_`` and ``figure_``.
        """
        self.axes_ = np.atleast_1d(new_axes(*self._size) if ax is None else ax)
        self.figure_ = self.axes_[0].figure
        self._draw(self.axes_)
        return self

    def _draw(self, axes):
        raise NotImplementedError  # each display has its own

    def _draw_groups(self, ax, column):
        """Draw a curve for each group, with a band of two standard errors if there are any."""
        ends, by_group = [], dict(iter(self.frame.groupby("group", sort=False, dropna=False)))
        for i, (name, rows) in enumerate(
            zip(group_names(by_group), by_group.values(), strict=True)
        ):
            rows = rows.dropna(subset=column)
            ax.plot(rows["step"], rows[column], color=colour_of(i))
            if f"{column}_se" in rows:
                band = 2 * rows[f"{column}_se"]
                low, high = rows[column] - band, rows[column] + band
                ax.fill_between(rows["step"], low, high, color=colour_of(i), alpha=0.15, lw=0)
            if len(rows):
                last = rows.iloc[-1]
                ends.append((last[column], name, colour_of(i), last["step"]))
        return ends


class GroupLossDisplay(_RecordedDisplay):
    """Loss and gradient norm of each group over training; NOT private.

    Parameters
    ----------
    frame : pandas.DataFrame
        With columns ``step``, ``group``, ``loss`` and ``gradient_norm``.

    Attributes
    ----------
    axes_, figure_
        The axes and figure of :meth:`plot`.

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

    columns = ("step", "group", "loss", "gradient_norm")
    _size = (10.0, 4.0, 2)
    _remedy = "Pass the diagnostics_ of an estimator fitted with a GroupRecorder."

    @classmethod
    def from_estimator(cls, estimator):
        """Return the display of an estimator fitted with a `GroupRecorder` among its callbacks.

        Parameters
        ----------
        estimator : DPFairClassifier
            The fitted estimator.

        Returns
        -------
        GroupLossDisplay

        Raises
        ------
        ValueError
            If the estimator has no recorded values.
        """
        if not hasattr(estimator, "diagnostics_"):
            raise ValueError(
                "The estimator has no recorded values. Fit it with callbacks=[GroupRecorder()] of "
                "skdpfair.analysis; the fitted object must then not be released."
            )
        return cls(estimator.diagnostics_)

    @classmethod
    def from_results(cls, frame):
        """Return the display of recorded values, for example from a file.

        Parameters
        ----------
        frame : pandas.DataFrame
            An estimator's ``diagnostics_``.

        Returns
        -------
        GroupLossDisplay

        Raises
        ------
        ValueError
            If the frame lacks a column.
        """
        return cls(frame)

    def _draw(self, axes):
        titles = {"loss": "Loss", "gradient_norm": "Gradient norm"}
        for ax, (column, title) in zip(axes, titles.items(), strict=True):
            label_ends(ax, self._draw_groups(ax, column))
            ax.set(xlabel="step", ylabel=f"mean {title.lower()}")
            dress(ax, f"{title} {_NOT_PRIVATE}")


class RiskTermsDisplay(_RecordedDisplay):
    """Step risk of each group from direction, magnitude and noise, over training.

    As in Figure 4 of Esipova et al., ICLR 2023.

    Parameters
    ----------
    frame : pandas.DataFrame
        ``frame_`` of a :class:`skdpfair.analysis.GroupRecorder`.

    Attributes
    ----------
    axes_, figure_
        The axes and figure of :meth:`plot`.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(s, g, s / 10, s / 20, 0.0) for s in (0, 50) for g in "ab"]
    >>> columns = ["step", "group", "direction", "magnitude", "noise"]
    >>> display = RiskTermsDisplay(pd.DataFrame(rows, columns=columns)).plot()
    >>> [axes.get_title(loc="left").split(" (")[0] for axes in display.axes_]
    ['Direction error', 'Magnitude error', 'Noise']
    >>> display.figure_.clear()
    """

    columns = ("step", "group", "direction", "magnitude", "noise")
    _size = (13.0, 3.8, 3)
    _titles = {"direction": "Direction error", "magnitude": "Magnitude error", "noise": "Noise"}

    def _draw(self, axes):
        for ax, (column, title) in zip(axes, self._titles.items(), strict=True):
            ends = self._draw_groups(ax, column)
            ax.axhline(0.0, color="0.6", linewidth=0.8)
            label_ends(ax, ends)
            ax.set(xlabel="step", ylabel="risk of one step, nats")
            ax.ticklabel_format(axis="y", scilimits=(-2, 3))
            dress(ax, f"{title} {_NOT_PRIVATE}", pad=16)


class RiskBoundDisplay(_RecordedDisplay):
    """Difference in step risk between two groups, and lower bounds on it.

    As in Figure 5 of Esipova et al., ICLR 2023.  Left: the difference from clipping, with the bound
    of Tran et al.  Right: the difference from direction, with the bound of Proposition 3.

    Parameters
    ----------
    frame : pandas.DataFrame
        ``pairs_`` of a :class:`skdpfair.analysis.GroupRecorder`.
    group_a, group_b : object, optional
        The pair; by default the pair with the largest mean difference from direction.

    Attributes
    ----------
    axes_, figure_
        The axes and figure of :meth:`plot`.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(0, "a", "b", -0.2, -0.2, -0.5, -0.9), (0, "b", "a", 0.2, 0.2, -0.1, -0.9)]
    >>> display = RiskBoundDisplay(pd.DataFrame(rows, columns=RiskBoundDisplay.columns)).plot()
    >>> display.pair  # where the difference is largest
    ('b', 'a')
    >>> display.figure_.clear()
    """

    columns = (
        *("step", "group_a", "group_b", "clip_difference", "direction_difference"),
        *("prop3_bound", "tran_bound"),
    )
    _size = (10.0, 3.8, 2)

    def __init__(self, frame, group_a=None, group_b=None):
        super().__init__(frame)
        if group_a is None or group_b is None:
            means = frame.groupby(["group_a", "group_b"], sort=False)["direction_difference"].mean()
            group_a, group_b = means.idxmax()
        self.pair = group_a, group_b
        pairs = zip(frame["group_a"], frame["group_b"], strict=True)
        self.frame = frame[np.array([pair == self.pair for pair in pairs], dtype=bool)]
        if self.frame.empty:
            raise ValueError(
                f"frame has no row of group_a={safe_repr(group_a)} and "
                f"group_b={safe_repr(group_b)}."
            )

    def _draw(self, axes):
        panels = (
            ("clip_difference", "tran_bound", "Clipping", "bound of Tran et al."),
            ("direction_difference", "prop3_bound", "Direction", "Proposition 3"),
        )
        a, b = self.pair
        for ax, (column, bound, title, name) in zip(axes, panels, strict=True):
            ax.plot(self.frame["step"], self.frame[column], color=PALETTE[0], label="measured")
            ax.plot(self.frame["step"], self.frame[bound], "--", color=PALETTE[5], label=name)
            ax.axhline(0.0, color="0.6", linewidth=0.8)
            ax.set(xlabel="step", ylabel=f"risk of {plain(a)} less that of {plain(b)}, nats")
            ax.ticklabel_format(axis="y", scilimits=(-2, 3))
            ax.legend(frameon=False)
            dress(ax, f"{title} {_NOT_PRIVATE}", pad=16)


class CurvatureDisplay(_RecordedDisplay):
    """The largest eigenvalue of each group's Hessian, compared with one over the learning rate.

    If it is smaller, Proposition 3 of Esipova et al. (ICLR 2023, Figure 7) holds for convex losses.

    Parameters
    ----------
    frame : pandas.DataFrame
        ``frame_`` of a :class:`skdpfair.analysis.GroupRecorder`.

    Attributes
    ----------
    axes_, figure_
        The axes and figure of :meth:`plot`.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(s, g, 2.0, 0.1) for s in (0, 50) for g in "ab"]
    >>> columns = ["step", "group", "lambda_max", "lr"]
    >>> display = CurvatureDisplay(pd.DataFrame(rows, columns=columns)).plot()
    >>> display.axes_[0].get_ylabel()
    'largest eigenvalue'
    >>> display.figure_.clear()
    """

    columns = ("step", "group", "lambda_max", "lr")
    _size = (6.5, 4.0, 1)

    def _draw(self, axes):
        (ax,) = axes
        ends = self._draw_groups(ax, "lambda_max")
        steps = self.frame.drop_duplicates("step")
        ax.plot(steps["step"], 1 / steps["lr"], "--", color="0.3", label="1 / learning rate")
        ax.set(xlabel="step", ylabel="largest eigenvalue", yscale="log")
        ax.legend(frameon=False)
        _name_on_log_axis(ax, ends)
        dress(ax, f"Curvature {_NOT_PRIVATE}", pad=16)


class BatchSizeDisplay(_RecordedDisplay):
    """Bias of the clipped gradient, in length and angle, by batch size.

    As in Figures 5 and 6 of Knolle et al., 2023.

    Parameters
    ----------
    frame : pandas.DataFrame
        From :func:`skdpfair.analysis.bias_by_batch_size`.

    Attributes
    ----------
    axes_, figure_
        The axes and figure of :meth:`plot`.

    Examples
    --------
    >>> import pandas as pd
    >>> columns = {"batch_size": [32, 128], "norm": [0.4, 0.2], "cosine": [0.8, 0.9]}
    >>> display = BatchSizeDisplay(pd.DataFrame(columns)).plot()
    >>> [axes.get_ylabel() for axes in display.axes_]
    ['length of the bias', 'cosine with the gradient']
    >>> display.figure_.clear()
    """

    columns = ("batch_size", "norm", "cosine")
    _size = (9.0, 3.6, 2)

    def _draw(self, axes):
        titles = {"norm": "Length of the bias", "cosine": "Cosine with the gradient"}
        groups = self.frame.groupby("batch_size")
        for ax, (column, title) in zip(axes, titles.items(), strict=True):
            mean, error = groups[column].mean(), groups[column].sem()
            ax.errorbar(mean.index, mean, 2 * error, fmt="o-", color=PALETTE[0], capsize=3)
            ax.set_xscale("log", base=2)
            ax.set_xticks(mean.index, [f"{size:g}" for size in mean.index])
            ax.minorticks_off()
            ax.set(xlabel="expected batch size", ylabel=title.lower())
            dress(ax, f"{title} {_NOT_PRIVATE}")


def _name_on_log_axis(ax, ends):
    for value, name, colour, step in ends:
        ax.annotate(
            plain(name),
            (step, value),
            xytext=(6, 0),
            textcoords="offset points",
            color=colour,
            fontweight="bold",
            va="center",
            annotation_clip=False,
        )
