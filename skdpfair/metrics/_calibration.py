"""The binned calibration gap of a binary classifier."""

import numpy as np

from skdpfair._validate import number
from skdpfair.metrics._checks import as_vector, as_weights
from skdpfair.metrics._values import check_probabilities


def calibration_gap(y_true, y_prob, *, tau=0.1, sample_weight=None):
    """Measure how far the labels are from the predicted probabilities, over bins of width tau.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels, 0 or 1.
    y_prob : array-like of shape (n_samples,)
        The predicted probability of class 1, in [0, 1].
    tau : float, default=0.1
        Width of the bins: 1/m for an integer m.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weights of the mean, >= 0, not all zero.

    Returns
    -------
    float
        In [0, 1]. Not itself private.

    Raises
    ------
    TypeError, ValueError
        If an array has not one entry per label, labels are not 0 or 1, probabilities lie outside
        [0, 1], or ``tau`` does not divide 1.

    Notes
    -----
    The sum over p in {0, tau, ..., 1} of abs(mean(1{p <= y_prob < p + tau} (y_true - p))),
    Definition C.7 of [kulynych2022]_, whose bins are open; here the lower end belongs to its bin,
    so that none of the probabilities p is lost. As p is the LOWER end of a bin, perfectly
    calibrated probabilities have a gap of up to tau: compare train with test, or models with one
    tau. For the gap between train and test, use `dg_gap` with ``metric=calibration_gap``. By
    Theorem C.8 the paper bounds its mean by delta / tau under delta-strong distributional
    generalisation.

    References
    ----------
    .. [kulynych2022] B. Kulynych et al., "What You See is What You Get: Principled Deep Learning
       via Distributional Generalization", NeurIPS 2022.

    Examples
    --------
    >>> from skdpfair.metrics import calibration_gap
    >>> y_true, y_prob = [0, 1, 1, 1], [0.5, 0.5, 0.9, 0.9]
    >>> round(calibration_gap(y_true, y_prob), 4)  # |1 - 2 * 0.5| / 4 + |2 - 2 * 0.9| / 4
    0.05

    For each group, with fairlearn:

    >>> from fairlearn.metrics import MetricFrame
    >>> frame = MetricFrame(
    ...     metrics=calibration_gap, y_true=y_true, y_pred=y_prob,
    ...     sensitive_features=["F", "F", "M", "M"],
    ... )
    >>> frame.by_group.round(4).to_dict()
    {'F': 0.0, 'M': 0.1}
    """
    tau = number("tau", tau, low=0, low_open=True, high=1)
    n_bins = round(1 / tau)
    if abs(n_bins * tau - 1) > 1e-9:
        raise ValueError(f"tau must divide 1, got {tau!r}. Use tau=1/{n_bins}.")
    y_true = as_vector("y_true", y_true, y_true)
    if not np.isin(y_true, [0, 1]).all():
        raise ValueError(
            "y_true must hold labels 0 and 1, got others. Pass y_true == the class whose "
            "probability y_prob is."
        )
    y_prob = as_vector("y_prob", y_prob, y_true)
    check_probabilities("y_prob", y_prob, "Pass predict_proba(X)[:, 1].")
    y_prob = y_prob.astype(float)
    sample_weight = as_weights(sample_weight, y_true)
    lower = np.arange(n_bins + 1) / n_bins
    bins = np.searchsorted(lower, y_prob, side="right") - 1
    share = np.ones(len(y_true)) if sample_weight is None else sample_weight
    residual = (y_true.astype(float) - lower[bins]) * share / share.sum()
    return float(np.abs(np.bincount(bins, weights=residual)).sum())
