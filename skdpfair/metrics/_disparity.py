"""Accuracy disparity: how far apart the groups' accuracies are."""

from skdpfair.metrics._checks import accuracy, gap


def accuracy_disparity(y_true, y_pred, *, sensitive_features, sample_weight=None):
    """Measure the largest difference in accuracy between two groups.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Labels and predicted labels.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weights of the records within their groups, >= 0.

    Returns
    -------
    float
        In [0, 1]; 0 if all groups have the same accuracy. Not itself private.

    Raises
    ------
    ValueError
        If an array has not one entry per label, or ``sensitive_features`` has missing values.

    Notes
    -----
    max over groups z, z' of ``|acc(D_z) - acc(D_z')|``, equation 3 of [kulynych2022]_.

    References
    ----------
    .. [kulynych2022] B. Kulynych et al., "What You See is What You Get: Principled Deep Learning
       via Distributional Generalization", NeurIPS 2022.

    Examples
    --------
    >>> from skdpfair.metrics import accuracy_disparity
    >>> y_true, y_pred, sex = [1, 0, 1, 0], [1, 0, 0, 0], ["F", "M", "F", "M"]
    >>> accuracy_disparity(y_true, y_pred, sensitive_features=sex)
    0.5

    The accuracies behind it, with fairlearn:

    >>> from fairlearn.metrics import MetricFrame
    >>> from sklearn.metrics import accuracy_score
    >>> frame = MetricFrame(
    ...     metrics=accuracy_score, y_true=y_true, y_pred=y_pred, sensitive_features=sex
    ... )
    >>> frame.by_group.to_dict(), float(frame.difference())
    ({'F': 0.5, 'M': 1.0}, 0.5)
    """
    return gap(
        accuracy,
        y_true,
        y_pred,
        sensitive_features=sensitive_features,
        sample_weight=sample_weight,
    )
