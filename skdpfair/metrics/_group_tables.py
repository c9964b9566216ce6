"""Tables of the groups' accuracies and privacy costs: exact, or differentially private."""

import math
from collections.abc import Hashable, Mapping
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.metrics import balanced_accuracy_score

from skdpfair._validate import number, safe_repr
from skdpfair.inputs.groups import encode_features
from skdpfair.metrics._arguments import accuracy, as_vector
from skdpfair.metrics._compare_groups import by_group, difference, label
from skdpfair.metrics._privacy_cost import privacy_cost
from skdpfair.privacy import ADJACENCY_IN_WORDS
from skdpfair.privacy.gdp import delta_for
from skdpfair.privacy.one_time_noise import (
    below_of,
    discrete_gaussian,
    discrete_gaussian_noise,
    discrete_laplace,
    generator_of,
    integer_counts,
)
from skdpfair.privacy.statement import rounded_up

_ADJACENCY = "zero_out"
_SMALLEST = 1e-6
_NOT_ACCOUNTED = (
    "the training of the model, if any of these records took part: add its epsilon",
    "other tables and scores of the same records: their epsilons add up",
    "the number of records, and delta where it is derived from it, are public",
)


def group_table(y_true, predictions, *, reference, sensitive_features):
    """Tabulate what several models score, and what privacy costs, for each group.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels.
    predictions : dict of str to array-like of shape (n_samples,)
        The predicted labels of each model, by the model's name.
    reference : str
        The name of the reference model, without clipping and noise; its own cost is 0.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.

    Returns
    -------
    pandas.DataFrame
        One row a model, in the order of ``predictions``, with columns ``accuracy``,
        ``balanced_accuracy``, ``accuracy[GROUP]`` in [0, 1] and ``privacy_cost[GROUP]`` in [-1, 1]
        for each group that occurs, and ``privacy_cost_difference`` >= 0, the largest
        minus the smallest of these. An intersection is called
        ``[Female, White]``. ``attrs["reference"]`` is ``reference``. Not itself private.

    Raises
    ------
    TypeError, ValueError
        If ``predictions`` is no dict, ``reference`` is not among the models, or an array has not
        one entry per label.

    Examples
    --------
    >>> from skdpfair.metrics import group_table
    >>> table = group_table(
    ...     [1, 0, 1, 0], {"sgd": [1, 0, 1, 1], "dpsgd": [1, 0, 0, 1]},
    ...     reference="sgd", sensitive_features=["F", "M", "F", "M"],
    ... )
    >>> table.T
    model                     sgd  dpsgd
    accuracy                 0.75    0.5
    balanced_accuracy        0.75    0.5
    accuracy[F]              1.00    0.5
    accuracy[M]              0.50    0.5
    privacy_cost[F]          0.00    0.5
    privacy_cost[M]          0.00    0.0
    privacy_cost_difference  0.00    0.5

    The columns of one model are those of fairlearn's frame:

    >>> from fairlearn.metrics import MetricFrame
    >>> from skdpfair.metrics import privacy_cost
    >>> MetricFrame(
    ...     metrics=privacy_cost, y_true=[1, 0, 1, 0], y_pred=[1, 0, 0, 1],
    ...     sensitive_features=["F", "M", "F", "M"], sample_params={"y_ref": [1, 0, 1, 1]},
    ... ).by_group.to_dict()
    {'F': 0.5, 'M': 0.0}
    """
    if not isinstance(predictions, Mapping):
        raise TypeError(
            "predictions must be a dict from the model's name to its predicted labels, got "
            f"{type(predictions).__name__}. Pass {{'reference': ..., 'dpsgd': ...}}, "
            "and reference='reference'."
        )
    if not isinstance(reference, Hashable) or reference not in predictions:
        raise ValueError(
            f"reference must name one of predictions, {safe_repr(list(predictions))}, got "
            f"{safe_repr(reference)}. Add the predictions of the model without clipping and noise."
        )
    y_true = as_vector("y_true", y_true, y_true)
    checked = {
        name: as_vector(f"predictions[{safe_repr(name)}]", y_pred, y_true)
        for name, y_pred in predictions.items()
    }
    rows = [
        _row(y_true, y_pred, checked[reference], sensitive_features) for y_pred in checked.values()
    ]
    table = pd.DataFrame(rows, index=pd.Index(list(checked), name="model"))
    table.attrs["reference"] = reference
    return table


def _row(y_true, y_pred, y_ref, groups):
    """Return the columns of one model as a dict, in their order."""
    accuracies = by_group(accuracy, y_true, y_pred, sensitive_features=groups)
    cost = by_group(privacy_cost, y_true, y_pred, sensitive_features=groups, y_ref=y_ref)
    return {
        "accuracy": accuracy(y_true, y_pred),
        "balanced_accuracy": balanced_accuracy_score(y_true, y_pred),
        **{f"accuracy{label(group)}": value for group, value in accuracies.items()},
        **{f"privacy_cost{label(group)}": value for group, value in cost.items()},
        "privacy_cost_difference": difference(cost),
    }


def release_group_table(
    y_true,
    y_pred,
    *,
    sensitive_features,
    epsilon,
    delta=0.0,
    groups=None,
    confidence_level=0.95,
    random_state=None,
):
    """Release how many predictions are right and wrong in each group, under privacy.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Labels and predicted labels. Each person must have one record only.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.
    epsilon : float
        Spent by the table, at least 1e-6.
    delta : float in [0, 1/n_samples) or "auto", default=0.0
        0 adds discrete Laplace noise. Above 0 discrete Gaussian noise is added, whose tails are
        lighter but whose deviation is larger here (3.7 instead of 1.4 at epsilon 1 and delta
        1e-5). "auto" is the largest power of ten that is at most 1/(10 n_samples).
    groups : list or None, default=None
        All groups there may be, in the table's order, tuples for intersections. None takes those
        that occur as public, which is put on record.
    confidence_level : float, default=0.95
        Of the intervals, in (0, 1).
    random_state : int or None, default=None
        None draws the noise from the operating system's entropy. An int makes it reproducible,
        and warns: whoever knows it can remove the noise.

    Returns
    -------
    pandas.DataFrame
        One row a group, named ``[GROUP]``: noisy counts ``correct`` and ``incorrect``, ``accuracy``
        with ``low`` and ``high``, all computed from the noisy counts alone. A group whose noisy
        counts are not positive has accuracy NaN and the interval [0, 1].
        ``attrs["privacy"]`` is a dict, ready for JSON: ``statement``, ``epsilon``, ``delta``,
        ``adjacency``, ``mechanism``, ``sensitivity``, ``noise_scale``, ``seeded``,
        ``assumptions``, ``not_accounted``.

    Raises
    ------
    TypeError, ValueError
        If an array has not one entry per label, epsilon or delta is out of range, or a record is
        in none of ``groups``.

    Warns
    -----
    InsecureSeedWarning
        If ``random_state`` is given.

    Notes
    -----
    A record adds 1 to a single one of the 2K counts, so that they have sensitivity 1 in the L1
    and in the L2 norm if a record is zeroed, added or removed; to replace one costs twice epsilon
    at most. The intervals are for the accuracy that the group would have with endlessly many
    records: they count the choice of the records and the noise. They invert the test of
    (1 - a) correct - a incorrect, of variance n a (1 - a) + v ((1 - a)^2 + a^2), for the accuracy
    a, v the variance of the noise, as Wilson's do without noise.

    The noise is drawn by exact sampling of whole numbers [canonne2020]_: no rounding of floating
    point numbers limits its tails, or tells the count below it.

    References
    ----------
    .. [canonne2020] C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential
       Privacy", NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpfair.metrics import release_group_table
    >>> y_true, sex = np.tile([1, 0], 500), np.repeat(["F", "M"], 500)
    >>> y_pred = np.where(np.arange(1000) % 5 == 0, 1 - y_true, y_true)
    >>> table = release_group_table(
    ...     y_true, y_pred, sensitive_features=sex, epsilon=1.0, groups=["F", "M"]
    ... )
    >>> list(table), list(table.index)
    (['correct', 'incorrect', 'accuracy', 'low', 'high'], ['[F]', '[M]'])
    >>> bool((table["accuracy"] - 0.8).abs().max() < 0.1)
    True
    >>> table.attrs["privacy"]["mechanism"]
    'discrete Laplace'
    """
    y_true = as_vector("y_true", y_true, y_true)
    y_pred = as_vector("y_pred", y_pred, y_true)
    epsilon = number("epsilon", epsilon, low=_SMALLEST)
    if math.isinf(epsilon):
        raise ValueError(
            "epsilon must be finite, got inf: that would be no privacy. Give a number such as 1.0."
        )
    delta = delta_for(delta, len(y_true), low=0)
    level = number(
        "confidence_level", confidence_level, low=0, high=1, low_open=True, high_open=True
    )
    found = encode_features(sensitive_features, len(y_true), groups)
    assert found.levels is not None
    levels = list(found.levels)
    codes = 2 * found.code + (y_true != y_pred)
    generator = generator_of(random_state, codes, (epsilon, delta, levels))
    below = below_of(None if random_state is None else generator)
    if delta == 0:
        scale = 1 / epsilon
        deviation = 1 / (math.sqrt(2) * math.sinh(min(epsilon, 1e3) / 2))
        draw = partial(discrete_laplace, Fraction(epsilon))
        quantile = math.log(1 / (1 - level)) / math.sqrt(2)  # of Laplace's law, in deviations
    else:
        scale = deviation = discrete_gaussian_noise(epsilon, delta)
        draw = partial(discrete_gaussian, Fraction(scale))
        quantile = 0.0
    counts = integer_counts(codes, 2 * len(levels), lambda: draw(below))
    correct, incorrect = counts.reshape(-1, 2).T
    accuracy, low, high = accuracy_interval(correct, incorrect, deviation, level, quantile)
    table = pd.DataFrame(
        {
            "correct": correct,
            "incorrect": incorrect,
            "accuracy": accuracy,
            "low": low,
            "high": high,
        },
        index=pd.Index([label(group) for group in levels], name="group"),
    )
    table.attrs["privacy"] = _privacy(epsilon, delta, scale, random_state, groups)
    return table


def accuracy_interval(correct, incorrect, deviation, level, noise_quantile=0.0):
    """Return accuracies and the ends of their intervals, from noisy counts.

    The counts have independent noise of standard deviation ``deviation``, whose two-sided quantile
    in deviations is ``noise_quantile`` where that is beyond the Gaussian one. Without noise the
    intervals are Wilson's. A group without records has NaN and the interval [0, 1].

    Examples
    --------
    >>> ends = accuracy_interval(np.array([80.0]), np.array([20.0]), 0.0, 0.95)
    >>> [f"{float(x[0]):.4f}" for x in ends]  # Wilson's interval
    ['0.8000', '0.7112', '0.8666']
    """
    correct, incorrect = np.maximum(correct, 0.0), np.maximum(incorrect, 0.0)
    z = stats.norm.ppf((1 + level) / 2)
    noise = (max(z, noise_quantile) * deviation) ** 2
    with np.errstate(all="ignore"):
        accuracy = correct / (correct + incorrect)
    low = np.fmin(_lower_end(correct, incorrect, z**2, noise), accuracy)
    high = np.fmax(1 - _lower_end(incorrect, correct, z**2, noise), accuracy)
    is_empty = correct + incorrect == 0
    return accuracy, np.where(is_empty, 0.0, low), np.where(is_empty, 1.0, high)


def _lower_end(hits, misses, squared_z, v):
    """Return the least a with (hits - a n)^2 <= z^2 n a (1 - a) + v ((1 - a)^2 + a^2)."""
    n = hits + misses
    a, b, c = n**2 + squared_z * n - 2 * v, 2 * v - squared_z * n - 2 * hits * n, hits**2 - v
    with np.errstate(all="ignore"):
        # the form of the root that does not cancel, and does for a <= 0 too
        return np.where(c <= 0, 0.0, 2 * c / (np.sqrt(np.maximum(b**2 - 4 * a * c, 0.0)) - b))


def _privacy(epsilon, delta, scale, random_state, groups):
    mechanism = "discrete Laplace" if delta == 0 else "discrete Gaussian"
    seeded = random_state is not None
    assumptions = ["each person has one record", "the number of records is public"]
    if groups is None:
        assumptions.append("the groups were read off the data and taken as public")
    statement = (
        f"The counts are ({rounded_up(epsilon)}, {rounded_up(delta, 3)})-differentially private "
        f"({mechanism} noise of scale {scale:.4g}, sensitivity 1), where "
        f"{ADJACENCY_IN_WORDS[_ADJACENCY]}."
    )
    if seeded:
        statement += " The noise was seeded: whoever knows the seed can remove it."
    return {
        "statement": statement,
        "epsilon": epsilon,
        "delta": delta,
        "adjacency": _ADJACENCY,
        "mechanism": mechanism,
        "sensitivity": 1.0,
        "noise_scale": scale,
        "seeded": seeded,
        "assumptions": assumptions,
        "not_accounted": list(_NOT_ACCOUNTED),
    }
