"""Privacy cost: the accuracy that private training costs."""

from skdpfair.inputs.columns import check_indexes
from skdpfair.metrics._arguments import (
    accuracy,
    as_vector,
    as_weights,
    check_labels,
    check_reference,
    metric_of,
    weighted,
)


def privacy_cost(y_true, y_pred, *, y_ref=None, metric=None, sample_weight=None):
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
        The reference model's predicted labels; required.
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
    check_reference("y_ref", y_ref)
    check_indexes(y_true=y_true, y_pred=y_pred, y_ref=y_ref, sample_weight=sample_weight)
    y_pred, y_ref = as_vector("y_pred", y_pred, y_true), as_vector("y_ref", y_ref, y_true)
    y_true = as_vector("y_true", y_true, y_true)
    if metric is None:
        for name, values in {"y_pred": y_pred, "y_ref": y_ref}.items():
            check_labels(name, values, y_true)
    sample_weight = as_weights(sample_weight, y_true)
    score = weighted(metric_of(metric, accuracy), sample_weight)
    return float(score(y_true, y_ref) - score(y_true, y_pred))
