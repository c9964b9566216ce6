"""Displays in the manner of scikit-learn: made from an estimator, predictions or results."""

from skdpfair.metrics import group_table
from skdpfair.plotting._bars import _PALETTE, plot_privacy_cost
from skdpfair.plotting._tradeoff import label_ends


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
        """
        if hasattr(estimator, "steps"):
            X, estimator = estimator[:-1].transform(X), estimator[-1]
        predictions = {
            "twin": estimator.reference_.predict(X),
            estimator.method_.name: estimator.predict(X),
        }
        return cls.from_predictions(
            y, predictions, reference="twin", sensitive_features=sensitive_features
        )

    @classmethod
    def from_results(cls, frame, *, epsilon=None):
        """Return the display of a sweep's means over seeds, one row per method.

        Parameters
        ----------
        frame : pandas.DataFrame
            With columns ``method``, ``group`` and ``privacy_cost``, and ``epsilon`` if that is
            given; rows of group "overall" are left out.
        epsilon : float or None, default=None
            Budget to show; None takes all rows.
        """
        frame = getattr(frame, "frame", frame)
        if epsilon is not None:
            frame = frame[frame["epsilon"] == epsilon]
        frame = frame[frame["group"] != "overall"]
        if frame.empty:
            raise ValueError(f"frame has no row to show at epsilon={epsilon!r}.")
        means = frame.pivot_table(
            index="method", columns="group", values="privacy_cost", aggfunc="mean"
        )
        return cls(means.rename(columns=lambda group: f"privacy_cost[{group}]"))

    def plot(self, ax=None):
        """Draw; return the display itself."""
        self.ax_ = plot_privacy_cost(self.table, ax=ax)
        self.figure_ = self.ax_.figure
        return self


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
            For loss and gradient norm; None makes a new figure.
        """
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
        groups = list(dict.fromkeys(self.frame["group"]))
        titles = {"loss": "mean loss", "gradient_norm": "mean gradient norm"}
        for axes, (column, title) in zip(ax, titles.items(), strict=True):
            ends = []
            for i, group in enumerate(groups):
                rows = self.frame[self.frame["group"] == group]
                color = _PALETTE[i % len(_PALETTE)]
                axes.plot(rows["step"], rows[column], color=color)
                last = rows[column].dropna()
                ends += [(last.iloc[-1], str(group), color, rows["step"].iloc[-1])] * (
                    len(last) > 0
                )
            label_ends(axes, ends)
            axes.set(xlabel="step", ylabel=title, title=f"{title} by group (not private)")
            axes.grid(color="0.9")
            axes.spines[["top", "right"]].set_visible(False)
        self.axes_, self.figure_ = ax, ax[0].figure
        return self
