"""Excessive risk: the loss that private training adds, for all and for each group."""

import numpy as np

from skdpfair.metrics._checks import as_vector


def excessive_risk(y_true, y_prob, *, y_prob_ref, sample_weight=None):
    """Measure the log loss that private training adds: the private model's minus the twin's.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels. Only their number is used: the probabilities are already those of the labels.
    y_prob : array-like of shape (n_samples,)
        The probability that the private model gives each record's own class, in [0, 1]; see
        `own_class_probability`.
    y_prob_ref : array-like of shape (n_samples,)
        The same of the twin.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weights of the mean, >= 0, not all zero.

    Returns
    -------
    float
        In nats; negative if the private model does better. Not itself private.

    Raises
    ------
    ValueError
        If an array has not one entry per label, or a probability lies outside [0, 1].

    Notes
    -----
    R(D) = E[loss(private; D)] - loss(twin; D), equation 2 of [esipova2023]_, with the loss
    -log p(own class). Probabilities are clipped to at least the machine epsilon of their type, as
    in `sklearn.metrics.log_loss`.

    References
    ----------
    .. [esipova2023] M. Esipova et al., "Disparate Impact in Differential Privacy from Gradient
       Misalignment", ICLR 2023.

    Examples
    --------
    >>> from skdpfair.metrics import excessive_risk
    >>> y_true, twin, private = [1, 0, 1, 0], [0.8, 0.8, 0.8, 0.8], [0.4, 0.8, 0.4, 0.8]
    >>> round(excessive_risk(y_true, private, y_prob_ref=twin), 4)
    0.3466

    For each group, with fairlearn, whose ``y_pred`` are then the probabilities:

    >>> from fairlearn.metrics import MetricFrame
    >>> frame = MetricFrame(
    ...     metrics={"excessive_risk": excessive_risk}, y_true=y_true, y_pred=private,
    ...     sensitive_features=["F", "M", "F", "M"],
    ...     sample_params={"excessive_risk": {"y_prob_ref": twin}},
    ... )
    >>> frame.by_group["excessive_risk"].round(4).to_dict()
    {'F': 0.6931, 'M': 0.0}
    """
    losses = _log_loss("y_prob", y_prob, y_true) - _log_loss("y_prob_ref", y_prob_ref, y_true)
    if sample_weight is not None:
        sample_weight = as_vector("sample_weight", sample_weight, y_true)
    return float(np.average(losses, weights=sample_weight))


def own_class_probability(y_true, y_prob, *, classes=None):
    """Pick, for each record, the probability given to its own class.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels.
    y_prob : array-like of shape (n_samples, n_classes)
        What ``predict_proba`` returns: in [0, 1], every row sums to 1.
    classes : array-like of shape (n_classes,) or None, default=None
        The label of each column: ``model.classes_``. None means the sorted labels of ``y_true``.

    Returns
    -------
    ndarray of shape (n_samples,)
        In [0, 1].

    Raises
    ------
    ValueError
        If shapes do not fit, a label is not among ``classes``, or a row is no distribution.

    Examples
    --------
    >>> from skdpfair.metrics import own_class_probability
    >>> own_class_probability(["no", "yes"], [[0.9, 0.1], [0.3, 0.7]], classes=["no", "yes"])
    array([0.9, 0.7])

    The excessive risk of each group, from there:

    >>> from fairlearn.metrics import MetricFrame
    >>> from skdpfair.metrics import excessive_risk
    >>> y = ["no", "yes"]
    >>> twin = own_class_probability(y, [[0.9, 0.1], [0.1, 0.9]])
    >>> private = own_class_probability(y, [[0.9, 0.1], [0.4, 0.6]])
    >>> MetricFrame(
    ...     metrics=excessive_risk, y_true=y, y_pred=private, sensitive_features=["F", "M"],
    ...     sample_params={"y_prob_ref": twin},
    ... ).by_group.round(3).to_dict()
    {'F': 0.0, 'M': 0.405}
    """
    y_true = as_vector("y_true", y_true, y_true)
    y_prob = np.asarray(y_prob)
    classes = np.unique(y_true) if classes is None else np.asarray(classes)
    if y_prob.shape != (len(y_true), len(classes)):
        raise ValueError(
            f"y_prob must be of shape (n_samples, n_classes) = {(len(y_true), len(classes))}, got "
            f"{y_prob.shape}: pass predict_proba's result, and classes=model.classes_."
        )
    _check_distributions(y_prob)
    columns = [{c: j for j, c in enumerate(classes.tolist())}.get(c) for c in y_true.tolist()]
    if None in columns:
        raise ValueError(
            f"classes must hold every label of y_true, got {classes.tolist()} and the label "
            f"{y_true.tolist()[columns.index(None)]!r}. Pass classes=model.classes_."
        )
    return y_prob[np.arange(len(y_true)), columns]


def _check_distributions(y_prob):
    """Raise unless every row of ``y_prob`` is a distribution."""
    # 1e-3: room for float16, none for scores or logits
    fits = (y_prob >= 0).all() and np.allclose(y_prob.sum(axis=1), 1, rtol=0, atol=1e-3)
    if not fits:
        raise ValueError(
            "y_prob must hold probabilities that sum to 1 in every row: pass predict_proba's "
            "result, not that of decision_function."
        )


def _log_loss(name, values, y_true):
    """Return -log of probabilities, clipped away from zero."""
    values = _as_probability(name, values, y_true)
    return -np.log(np.maximum(values, np.finfo(values.dtype).eps), dtype=float)


def _as_probability(name, values, y_true):
    """Return ``values`` as a float vector in [0, 1], else raise."""
    remedy = "Pass own_class_probability(y_true, predict_proba(X), classes=classes_)."
    if np.ndim(values) != 1:
        raise ValueError(
            f"{name} must be of shape (n_samples,), the probability of each record's own class, "
            f"got shape {np.shape(values)}. {remedy}"
        )
    values = as_vector(name, values, y_true)
    values = values if values.dtype in (np.float32, np.float64) else values.astype(float)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"{name} must hold probabilities in [0, 1], got others. {remedy}")
    return values
