"""Accuracy under attack, and its generalisation gap."""

import copy

import torch

from skdpfair import _validate
from skdpfair.analysis._problem import of_estimator
from skdpfair.attacks import check_attack
from skdpfair.engine.precision import full_precision
from skdpfair.inputs.streaming import as_rows


@full_precision()
def robust_accuracy(estimator, X, y, attack, *, batch_size=1024):
    """Measure the accuracy on adversarial inputs, computed with the estimator's own module.

    Parameters
    ----------
    estimator : DPFairClassifier
        Fitted.
    X : DataFrame or array of shape (n_samples, n_features) or (n_samples, ...)
        As in ``predict``.
    y : array of shape (n_samples,)
        The labels, all among ``estimator.classes_``; the attack sees them.
    attack : callable
        :class:`skdpfair.attacks.PGD`, or any ``attack(module, x, y)`` that returns other inputs.
    batch_size : int, default=1024
        Number of records to attack at once; it does not affect the result of a per-record attack.

    Returns
    -------
    float
        In [0, 1].  The value is not private.

    Raises
    ------
    ValueError, TypeError
        If the attack cannot be used on X, or ``y`` has labels outside the estimator's classes.

    Notes
    -----
    The value is the share of records with argmax f(A(x, y)) = y.  It is an upper bound on the
    accuracy under the worst input of the ball, which a stronger attack can lower.

    References
    ----------
    Madry et al., "Towards Deep Learning Models Resistant to Adversarial Attacks", 2018.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.analysis import robust_accuracy
    >>> from skdpfair.attacks import PGD
    >>> from skdpfair.datasets import make_two_groups
    >>> data = make_two_groups(2000, random_state=0)
    >>> X, y = data.data, data.target
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0).fit(X, y)
    >>> attack = PGD(radius=0.3, input_range=None)
    >>> robust_accuracy(clf, X, y, attack) < clf.score(X, y)
    True
    """
    size = _validate.integer("batch_size", batch_size)
    if not callable(attack):
        raise TypeError(f"attack must be a callable (module, x, y) -> x, got {attack!r}.")
    module, x, codes = of_estimator(estimator, X, y)
    module = copy.deepcopy(module).eval()  # an attack may leave gradients behind
    device = next(module.parameters()).device
    example = torch.from_numpy(as_rows(x, slice(1))).to(device)
    check_attack(attack, module, example, len(estimator.classes_))
    right = 0
    for start in range(0, len(codes), size):
        rows = slice(start, start + size)
        part = torch.from_numpy(as_rows(x, rows)).to(device)
        labels = torch.from_numpy(codes[rows]).to(device)
        with torch.enable_grad():
            found = attack(module, part, labels).detach()
        with torch.no_grad():
            right += int((module(found).argmax(1) == labels).sum())
    return right / len(codes)


def robust_generalisation_gap(
    estimator, X_train, y_train, X_test, y_test, attack, *, batch_size=1024
):
    """Measure robust overfitting: the robust accuracy on training data minus that on test data.

    Parameters
    ----------
    estimator : DPFairClassifier
        Fitted on ``X_train``, ``y_train``.
    X_train, X_test : DataFrame or array of shape (n_samples, n_features) or (n_samples, ...)
        As in ``predict``.
    y_train, y_test : array of shape (n_samples,)
        The labels.
    attack : callable
        As in `robust_accuracy`.
    batch_size : int, default=1024
        As in `robust_accuracy`.

    Returns
    -------
    float
        In [-1, 1]; near 0 without robust overfitting.  The value is not private.

    Raises
    ------
    ValueError, TypeError
        As in `robust_accuracy`.

    Notes
    -----
    Differential privacy bounds the gap: if training hardly depends on any one record, every loss
    is similar on training records and on new records [kulynych2022]_.

    References
    ----------
    .. [kulynych2022] B. Kulynych et al., "What You See is What You Get: Principled Deep Learning
       via Distributional Generalization", NeurIPS 2022.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.analysis import robust_generalisation_gap
    >>> from skdpfair.attacks import PGD
    >>> from skdpfair.datasets import make_two_groups
    >>> data = make_two_groups(2000, random_state=0)
    >>> train, test = slice(1000), slice(1000, None)
    >>> X, y = data.data.to_numpy(), data.target.to_numpy()
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0).fit(X[train], y[train])
    >>> attack = PGD(radius=0.3, input_range=None)
    >>> gap = robust_generalisation_gap(clf, X[train], y[train], X[test], y[test], attack)
    >>> abs(gap) < 0.1
    True
    """
    parts = (X_train, y_train), (X_test, y_test)
    train, test = (
        robust_accuracy(estimator, X, y, attack, batch_size=batch_size) for X, y in parts
    )
    return train - test
