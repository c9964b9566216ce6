"""Measures that compare two models, or two sets of records: cost, excessive risk, DG gap."""

import numpy as np

from skdpfair._utils.validate import error_context_without_data, safe_repr
from skdpfair.inputs.columns import check_indexes
from skdpfair.inputs.target import positions
from skdpfair.metrics import _arguments as arguments
from skdpfair.metrics._arguments import accuracy, as_vector, as_weights, metric_of


def privacy_cost(y_true, y_pred, *, y_ref, metric=None, sample_weight=None):
    """Measure the score of the reference model minus the score of the private model.

    The reference model is trained without clipping and noise, but with the same architecture,
    data and initial weights. Training is random, so average the cost over several seeds.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels.
    y_pred : array-like of shape (n_samples,)
        The private model's predicted labels.
    y_ref : array-like of shape (n_samples,)
        The reference model's predicted labels.
    metric : callable or None, default=None
        A score ``metric(y_true, y_pred)``, larger is better; None is accuracy.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Passed to ``metric`` if given; numbers >= 0.

    Returns
    -------
    float
        In [-1, 1] for accuracy; negative if the private model does better. It is not private.

    Notes
    -----
    This is pi(D) = acc(reference; D) - E[acc(private; D)], equation 1 of Esipova et al.. For a
    group, D holds the records of the group.

    Examples
    --------
    >>> from skdpfair.metrics import privacy_cost
    >>> y_true, reference, private = [1, 0, 1, 0], [1, 0, 1, 1], [1, 0, 0, 1]
    >>> privacy_cost(y_true, private, y_ref=reference)
    0.25
    """
    check_indexes(y_true=y_true, y_pred=y_pred, y_ref=y_ref, sample_weight=sample_weight)
    y_pred, y_ref = as_vector("y_pred", y_pred, y_true), as_vector("y_ref", y_ref, y_true)
    y_true = as_vector("y_true", y_true, y_true)
    if metric is None:
        for name, values in {"y_pred": y_pred, "y_ref": y_ref}.items():
            arguments.check_labels(name, values, y_true)
    score = metric_of(metric, accuracy, as_weights(sample_weight, y_true))
    return float(score(y_true, y_ref) - score(y_true, y_pred))


def dg_gap(y_true, y_pred, *, is_train, metric=None, sample_weight=None):
    """Measure the distributional-generalisation gap: the train score minus the test score.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels of training and test records together.
    y_pred : array-like of shape (n_samples,)
        The predictions, in the form that ``metric`` takes.
    is_train : array-like of shape (n_samples,), bool
        Which records the model was trained on.
    metric : callable or None, default=None
        ``metric(y_true, y_pred)`` in [0, 1], the mean of a test function of the records; None is
        accuracy.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Passed to ``metric`` if given; numbers >= 0.

    Returns
    -------
    float
        In [-1, 1]; positive if the model does better on training records. NaN, with an
        ``UndefinedMetricWarning``, without training or test records. The value is not private.

    Notes
    -----
    The gap is defined in section 2 of Kulynych et al.. By their Theorem 2.5, its average over
    training sets is, for every test function with values in [0, 1], at most the total variation by
    which the output of training changes when one record is replaced.

    Examples
    --------
    >>> from skdpfair.metrics import dg_gap
    >>> y_true, y_pred = [1, 0, 1, 0, 1, 0, 1, 0], [1, 0, 1, 0, 0, 0, 1, 0]
    >>> is_train = [True] * 4 + [False] * 4
    >>> dg_gap(y_true, y_pred, is_train=is_train)
    0.25
    """
    check_indexes(y_true=y_true, y_pred=y_pred, is_train=is_train, sample_weight=sample_weight)
    is_train, y_pred = as_vector("is_train", is_train, y_true), as_vector("y_pred", y_pred, y_true)
    y_true = as_vector("y_true", y_true, y_true)
    if not np.isin(is_train, [True, False]).all():
        raise ValueError(
            "is_train must hold only True, for training records, and False, for test records. "
            "Pass a boolean array."
        )
    is_train, weight = is_train.astype(bool), as_weights(sample_weight, y_true)
    scores = []
    for part, rows in {"training": is_train, "test": ~is_train}.items():
        if not rows.any():
            arguments.warn_undefined(
                f"dg_gap is NaN: there is no {part} record. Pass both in is_train."
            )
            return float("nan")
        score = metric_of(metric, accuracy, None if weight is None else weight[rows])
        value = float(score(y_true[rows], y_pred[rows]))
        if not (np.isnan(value) or 0 <= value <= 1):
            raise ValueError(
                f"metric must lie in [0, 1], got {safe_repr(value)}: the bound holds only for "
                "bounded test functions. Clip the loss and divide it by its largest value."
            )
        scores.append(value)
    return scores[0] - scores[1]


def excessive_risk(y_true, y_pred, *, y_ref, classes=None, loss=None, sample_weight=None):
    """Measure how much larger the loss is than that of a reference model.

    The loss is log loss, or that of a regression.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels; with ``loss``, the targets.
    y_pred : array-like of shape (n_samples, n_classes) or (n_samples,)
        The private model's ``predict_proba(X)``, or the probability of each record's OWN class, as
        `fairlearn.metrics.MetricFrame` requires one number for each record. Do not pass
        ``predict_proba(X)[:, 1]``, the probability of class 1: the result would be meaningless, and
        this error cannot be detected. With ``loss``, its ``predict(X)``.
    y_ref : array-like of shape (n_samples, n_classes) or (n_samples,)
        The same for the reference model.
    classes : array-like of shape (n_classes,) or None, default=None
        The label of each column: ``model.classes_``. None means the sorted labels of ``y_true``.
    loss : callable or None, default=None
        A mean loss ``loss(y_true, y_pred)``, smaller is better, of predictions, such as
        `sklearn.metrics.mean_absolute_error`; None is log loss, of probabilities.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weights of the mean, >= 0, not all zero; passed to ``loss`` if given.

    Returns
    -------
    float
        In nats, or in the unit of ``loss``; negative if the private model does better. The value
        is not private.

    Notes
    -----
    R(D) = E[loss(private; D)] - loss(reference; D), equation 2 of Esipova et al., with the loss
    -log p(own class) by default. Probabilities are clipped to at least the machine epsilon of their
    type, as in `sklearn.metrics.log_loss`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpfair.metrics import excessive_risk
    >>> y_true = [1, 0, 1, 0]
    >>> reference = np.array([[0.2, 0.8], [0.8, 0.2], [0.2, 0.8], [0.8, 0.2]])  # predict_proba(X)
    >>> private = np.array([[0.6, 0.4], [0.8, 0.2], [0.6, 0.4], [0.8, 0.2]])
    >>> round(excessive_risk(y_true, private, y_ref=reference), 4)
    0.3466

    For a regression:

    >>> from sklearn.metrics import mean_absolute_error
    >>> ages, private, reference = [20, 30, 40], [26, 33, 37], [23, 30, 37]
    >>> excessive_risk(ages, private, y_ref=reference, loss=mean_absolute_error)
    2.0
    """
    check_indexes(y_true=y_true, y_pred=y_pred, y_ref=y_ref, sample_weight=sample_weight)
    models = {"y_pred": y_pred, "y_ref": y_ref}
    if loss is not None:
        of = metric_of(loss, None, as_weights(sample_weight, y_true), "loss")
        private, reference = (
            of(y_true, as_vector(name, values, y_true)) for name, values in models.items()
        )
        return float(private - reference)
    losses = []
    for name, values in models.items():
        own = _own_class(name, values, y_true, classes)
        own = own if own.dtype.kind == "f" else own.astype(float)
        # clipped as in `sklearn.metrics.log_loss`
        losses.append(-np.log(np.maximum(own, np.finfo(own.dtype).eps), dtype=float))
    return float(np.average(losses[0] - losses[1], weights=as_weights(sample_weight, y_true)))


def _own_class(name, values, y_true, classes):
    """Return the probability of each record's own class, from a vector of these or a matrix."""
    if np.ndim(values) == 2:
        y_true = as_vector("y_true", y_true, y_true)
        values, classes = check_distributions(name, values, y_true, classes)
        codes = positions(classes, y_true)
        if (codes < 0).any():
            raise ValueError(
                "classes must hold every label of y_true, but lacks some. Pass "
                "classes=model.classes_."
            )
        return values[np.arange(len(codes)), codes]
    values = as_vector(name, values, y_true)
    arguments.check_probabilities(name, values, "Pass predict_proba(X).")
    return values


def check_distributions(name, values, y_true, classes=None):
    with error_context_without_data(name, "must hold probabilities"):
        values = np.asarray(values)
    classes = np.unique(y_true) if classes is None else np.asarray(classes)
    if values.shape != (len(y_true), len(classes)):
        raise ValueError(
            f"{name} must be of shape (n_samples, n_classes) = {(len(y_true), len(classes))}, got "
            f"{values.shape}. Pass the result of predict_proba, and classes=model.classes_."
        )
    remedy = "Pass the result of predict_proba, not of decision_function."
    arguments.check_probabilities(name, values, remedy)
    sums = values.sum(axis=1, dtype=float)
    # 1e-3: room for float16, none for scores or logits
    if (np.abs(sums - 1) > 1e-3).any():
        raise ValueError(
            f"{name} must hold probabilities that sum to 1 in every row, but some rows do not. "
            f"{remedy}"
        )
    return values, classes
