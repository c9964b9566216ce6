"""Plot of the trade-off curve of a fit: what an attacker finds at a rate of false alarms."""

import numpy as np

from skdpfair._validate import number, safe_repr
from skdpfair.plotting._axes import check_axes, colour_of, dress, new_axes
from skdpfair.privacy import PrivacyReport
from skdpfair.privacy.statement import percent

_N_POINTS = 400


def plot_tradeoff(report, *, false_alarm_rate=0.01, ax=None):
    """Plot what an attacker finds at most, against the rate of false alarms.

    Parameters
    ----------
    report : PrivacyReport
        Of a fit, ``clf.privacy_``.
    false_alarm_rate : float, default=0.01
        In [0, 1]; the rate at which the curve is labelled.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.plotting import plot_tradeoff
    >>> X, y = [[0.0], [1.0]] * 1500, [0, 1] * 1500
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, module="logistic", max_steps=5).fit(X, y)
    >>> plot_tradeoff(clf.privacy_).get_xlabel()
    'false alarms, %'
    """
    if not isinstance(report, PrivacyReport):
        raise TypeError(
            f"report must be a PrivacyReport, got {safe_repr(report)}. Pass clf.privacy_."
        )
    check_axes(ax)
    at = number("false_alarm_rate", false_alarm_rate, low=0, high=1)
    ax = new_axes(5.6, 4.8) if ax is None else ax
    rates = np.linspace(0, 1, _N_POINTS) ** 2  # closer together where the curve bends
    ax.plot(100 * rates, 100 * (1 - report.false_negative_rate(rates)), color=colour_of(0))
    ax.plot([0, 100], [0, 100], color="0.45", linestyle="--")
    ax.text(62, 55, "guessing", color="0.35")
    found = 100 * report.detection_rate(at)
    ax.plot([100 * at], [found], marker="o", color=colour_of(5), linestyle="none")
    ax.annotate(
        f"{100 * at:g} % false alarms:\nat most {percent(found / 100)} %",
        (100 * at, found),
        xytext=(52, 6),  # below the line of guessing, which the curve never is
        color=colour_of(5),
        fontweight="bold",
        arrowprops={"arrowstyle": "-", "color": colour_of(5), "lw": 0.8, "shrinkB": 4},
    )
    ax.set(
        xlabel="false alarms, %",
        ylabel=f"found, % of the {report.unit}s that were used",
        xlim=(-1, 101),
        ylim=(-1, 101),
    )
    dress(ax, "What an attacker finds at most", grid="both")
    return ax
