"""Tables of the groups' measures, exact or differentially private."""

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pandas as pd
from scipy import stats

from skdpfair._utils.group_names import group_names, read_from_rows
from skdpfair._utils.keystream import Keystream
from skdpfair._utils.validate import number, outline, safe_repr
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import persons as _persons
from skdpfair.inputs import target
from skdpfair.inputs.columns import check_indexes
from skdpfair.metrics import _measures as measuring
from skdpfair.metrics._arguments import as_vector, check_labels, hits, warn_undefined
from skdpfair.metrics._comparisons import check_distributions
from skdpfair.metrics._measures import LEVEL, columns_of
from skdpfair.privacy.one_time_noise import discrete_laplace
from skdpfair.privacy.privacy_report import ADJACENCY_IN_WORDS, PROTECTS, read_in_words, rounded_up

_NOT_ACCOUNTED = (
    "the training of the model, if it used any of these {}s: add its epsilon",
    "other tables and scores of the same {}s: their epsilons add up",
    "the number of {}s is public",
)


def group_table(
    y_true,
    predictions,
    *,
    reference,
    sensitive_features,
    probabilities=None,
    classes=None,
    pos_label=None,
    measures=None,
):
    """Tabulate measures of several models, and what privacy costs, for each group.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels.
    predictions : dict of str to array-like of shape (n_samples,)
        The predicted labels of each model, by the model's name.
    reference : str
        The name of the reference model, trained without clipping and noise; its cost is 0.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.
    probabilities : dict of str to array-like of shape (n_samples, n_classes), default=None
        The results of ``predict_proba`` of the same models, for the measures that need them:
        ``roc_auc``, ``log_loss``, ``calibration_error`` and ``excessive_risk``. Columns are in the
        order of scikit-learn's ``classes_``, which is sorted, not in that of ``classes``.
    classes : array-like of shape (n_classes,) or None, default=None
        All classes, the positive one of two last, as the classifier declares them. None means the
        sorted labels of ``y_true`` and ``predictions``.
    pos_label : label or None, default=None
        The positive class of two, by default the last: ``model.pos_label_``.
    measures : list of str or None, default=None
        Names of measures, see Notes. None is ``accuracy``, ``balanced_accuracy`` and
        ``privacy_cost``, and, if a class is rare, also ``rarest_class_recall``,
        ``balanced_accuracy_cost`` and ``rarest_class_recall_cost``.

    Returns
    -------
    pandas.DataFrame
        One row per model, in the order of ``predictions``. For each measure there are the columns
        ``MEASURE`` (all records), ``MEASURE[GROUP]`` for each group that occurs,
        ``MEASURE_difference`` >= 0, the largest minus the smallest value of a group, and the value
        of the worst group, ``MEASURE_group_min`` or, if less is better, ``MEASURE_group_max``.
        Selection and true-positive rates also have ``MEASURE_ratio``, the smallest over the largest
        value (the four-fifths rule asks for .8). An intersection is written ``[Female, White]``.
        ``attrs["n"]`` is the number of records by group, ``attrs["reference"]`` is ``reference``,
        and ``attrs["pos_label"]`` the positive class of two. The table is not private.

    Notes
    -----
    The measures are ``accuracy``, ``balanced_accuracy``, ``rarest_class_recall``,
    ``true_positive_rate``, ``false_positive_rate``, ``false_negative_rate``, ``selection_rate``
    (these four for two classes), ``roc_auc``, ``log_loss``, ``calibration_error`` (expected, over
    15 bins of equal width) and ``rarest_class_share``; and, against the reference model,
    ``privacy_cost`` (accuracy lost), ``balanced_accuracy_cost``, ``rarest_class_recall_cost`` and
    ``excessive_risk`` (log loss added). A class is rare if its share of ``y_true`` is below 30 %
    (of K > 2 classes, 0.6 / K). A measure is NaN for a group that lacks the records it needs, with
    an ``UndefinedMetricWarning``.

    Examples
    --------
    >>> from skdpfair.metrics import group_table
    >>> table = group_table(
    ...     [1, 0, 1, 0], {"sgd": [1, 0, 1, 1], "dpsgd": [1, 0, 0, 1]},
    ...     reference="sgd", sensitive_features=["F", "M", "F", "M"],
    ...     measures=["accuracy", "privacy_cost"],
    ... )
    >>> table.T
    model                     sgd  dpsgd
    accuracy                 0.75   0.50
    accuracy[F]              1.00   0.50
    accuracy[M]              0.50   0.50
    accuracy_difference      0.50   0.00
    accuracy_group_min       0.50   0.50
    privacy_cost             0.00   0.25
    privacy_cost[F]          0.00   0.50
    privacy_cost[M]          0.00   0.00
    privacy_cost_difference  0.00   0.50
    privacy_cost_group_max   0.00   0.50
    """
    if not isinstance(predictions, Mapping):
        raise TypeError(
            "predictions must be a dict from the model's name to its predicted labels, got "
            f"{type(predictions).__name__}. Pass {{'reference': ..., 'dpsgd': ...}}."
        )
    if reference not in predictions:
        raise ValueError(
            f"reference must name one of predictions, {safe_repr(list(predictions))}, got "
            f"{safe_repr(reference)}. Add the predictions of the model without clipping and noise."
        )
    features = {"sensitive_features": sensitive_features, "probabilities": probabilities}
    check_indexes(y_true=y_true, predictions=predictions, **features)
    y_true = as_vector("y_true", y_true, y_true)
    checked = {}
    for name, y_pred in predictions.items():
        checked[name] = as_vector(f"predictions[{safe_repr(name)}]", y_pred, y_true)
        check_labels("predictions", checked[name], y_true)
    known = np.unique(np.concatenate([y_true, *checked.values()]))
    if classes is not None:
        known = target.sorted_classes(classes)
        target.codes_in(known, y_true, "y_true")
        for name, y_pred in checked.items():
            target.codes_in(known, y_pred, f"predictions[{safe_repr(name)}]")
    order = target.declared_order(known, classes, pos_label)
    likely = _probabilities(probabilities, checked, y_true, known)
    likely, classes = {name: p[:, order] for name, p in likely.items()}, known[order]
    encoded = _groups.encode_features(sensitive_features, len(y_true))
    assert encoded.levels is not None
    levels = group_names(encoded.levels)
    values = {
        name: measuring.values_by_group(
            y_true, y_pred, likely.get(name), classes=classes, code=encoded.code, levels=levels
        )
        for name, y_pred in checked.items()
    }
    simple = values[reference]
    tables = [part.assign(**measuring.costs(part, simple)) for part in values.values()]
    leading = measuring.leading_measures(simple["rarest_class_share"].iloc[0], len(classes))
    default = ["accuracy", "balanced_accuracy", *leading]
    default += [measuring.COST[name] for name in ("accuracy", *leading)]
    wanted = measuring.chosen_measures(measures, tables[0].columns.drop("n"), default)
    rows = [
        {key: value for m in wanted for key, value in columns_of(m, part[m], levels).items()}
        for part in tables
    ]
    table = pd.DataFrame(rows, index=pd.Index(list(checked), name="model"))
    if table.isna().any(axis=None):
        warn_undefined(
            "Some measures of some groups are NaN: the groups lack the records that these need."
        )
    n = simple["n"].iloc[1:].astype(int)
    table.attrs |= {"reference": reference, "n": dict(zip(levels, n.tolist(), strict=True))}
    if len(classes) == 2:
        table.attrs["pos_label"] = classes.tolist()[1]
    return table


def _probabilities(probabilities, checked, y_true, classes):
    if probabilities is None:
        return {}
    if not isinstance(probabilities, Mapping) or probabilities.keys() != checked.keys():
        raise ValueError(
            "probabilities must be a dict with the models of predictions, "
            f"{safe_repr([*checked])}, got {outline(probabilities)}. Pass predict_proba(X) of each."
        )
    return {
        name: check_distributions(f"probabilities[{safe_repr(name)}]", values, y_true, classes)[0]
        for name, values in probabilities.items()
    }


def release_group_table(y_true, y_pred, *, sensitive_features, epsilon, levels=None, persons=None):
    """Release a private count of the correct and incorrect predictions in each group.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Labels and predicted labels. Without ``persons``, each person must have one record only.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.
    epsilon : float
        The epsilon that the table spends, in [1e-6, 1000]; its delta is 0.
    levels : list or None, default=None
        All possible groups, in the order of the table; intersections are tuples. None uses the
        groups that occur, at most 30, and lists them as an assumption.
    persons : array-like of shape (n_samples,) or None, default=None
        The person of each record, if persons have several. One record of each person, drawn at
        random, is counted.

    Returns
    -------
    pandas.DataFrame
        One row per group, named ``[GROUP]``, with the noisy counts ``correct`` and ``incorrect``,
        and with ``accuracy``, ``low`` and ``high``, computed from the noisy counts alone. A group
        without a positive noisy count has the accuracy NaN and the interval [0, 1]; intervals have
        the level 95 %.
        ``attrs["privacy"]`` is a dict that can be written as JSON, with the keys ``statement``,
        ``epsilon``, ``delta``, ``adjacency``, ``mechanism``, ``sensitivity``, ``noise_scale``,
        ``assumptions`` and ``not_accounted``.

    Notes
    -----
    Each counted record, one of each person, adds 1 to one of the 2K counts, so the counts have
    sensitivity 1 in the L1 and in the L2 norm if a record or a person is zeroed, added or removed.
    Replacing one costs at most twice epsilon. The intervals are for the accuracy of the group in
    the population: they cover both the sampling of the records and the noise. They invert the test
    of (1 - a) correct - a incorrect, which has the variance n a (1 - a) + v ((1 - a)^2 + a^2) for
    accuracy a and noise variance v. Without noise they are Wilson's intervals. Each interval holds
    for its own group, not for the best or the worst of all groups.

    The noise has the discrete Laplace distribution and is drawn by exact sampling of integers
    (Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020), so
    that rounding of floating point numbers neither limits its tails nor reveals the count; its bits
    come from AES-256 in counter mode, with a new key from the operating system.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpfair.metrics import release_group_table
    >>> y_true, sex = np.tile([1, 0], 500), np.repeat(["F", "M"], 500)
    >>> y_pred = np.where(np.arange(1000) % 5 == 0, 1 - y_true, y_true)
    >>> table = release_group_table(
    ...     y_true, y_pred, sensitive_features=sex, epsilon=1.0, levels=["F", "M"]
    ... )
    >>> list(table), list(table.index)
    (['correct', 'incorrect', 'accuracy', 'low', 'high'], ['[F]', '[M]'])
    >>> bool((table["accuracy"] - 0.8).abs().max() < 0.1)
    True
    >>> table.attrs["privacy"]["mechanism"]
    'discrete Laplace'
    """
    features = {"sensitive_features": sensitive_features, "persons": persons}
    check_indexes(y_true=y_true, y_pred=y_pred, **features)
    y_true = as_vector("y_true", y_true, y_true)
    right = hits(y_true, y_pred)
    epsilon = number("epsilon", epsilon, low=1e-6, high=1e3)
    person = _persons.encode(None, len(y_true), persons).code
    counted, generator = np.arange(len(y_true)), Keystream.fresh()
    if person is not None:
        counted = np.flatnonzero(_persons.thinned(person, 1, generator) >= 0)
    encoded = _groups.encode_features(sensitive_features, len(y_true), levels, _groups.MAX_READ)
    assert encoded.levels is not None
    levels = list(encoded.levels)
    codes = (2 * encoded.code + ~right)[counted]
    counts = np.bincount(codes, minlength=2 * len(levels)).astype(float)
    # a record is in one count, so that the sensitivity of all is 1
    counts += [discrete_laplace(Fraction(epsilon), generator.integers) for _ in counts]
    correct, incorrect = counts.reshape(-1, 2).T
    deviation = 1 / (math.sqrt(2) * math.sinh(epsilon / 2))
    quantile = math.log(1 / (1 - LEVEL)) / math.sqrt(2)  # of Laplace's law, in deviations
    accuracy, low, high = accuracy_interval(correct, incorrect, deviation, LEVEL, quantile)
    columns = {"correct": correct, "incorrect": incorrect, "accuracy": accuracy}
    index = pd.Index([f"[{name}]" for name in group_names(levels)], name="group")
    table = pd.DataFrame(columns | {"low": low, "high": high}, index=index)
    variables = _groups.variables_of(None, None, None, sensitive_features)
    read = read_in_words(read_from_rows(variables, None, encoded.undeclared))
    table.attrs["privacy"] = _privacy(epsilon, persons, read)
    return table


def accuracy_interval(correct, incorrect, deviation, level, noise_quantile=0.0):
    """Return accuracies and the ends of their intervals, from noisy counts.

    The counts have independent noise of standard deviation ``deviation``, whose two-sided quantile
    in deviations is ``noise_quantile`` where that is beyond the Gaussian one. Without noise the
    intervals are Wilson's. A group without records has NaN and the interval [0, 1].
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


def _privacy(epsilon, persons, read):
    adjacency = "zero_out" if persons is None else "zero_out_person"
    protects, drawn = PROTECTS[adjacency], ""
    fact = "each person has one record"
    if persons is not None:
        drawn = " One record of each person, drawn at random, was counted."
        fact = "each record names its person"
    return {
        "statement": f"The counts are ({rounded_up(epsilon)}, 0)-differentially private (discrete "
        f"Laplace noise of scale {1 / epsilon:.4g}, sensitivity 1), where "
        f"{ADJACENCY_IN_WORDS[adjacency]}.{drawn}{f' {read}' * bool(read)}",
        "epsilon": epsilon,
        "delta": 0.0,
        "adjacency": adjacency,
        "mechanism": "discrete Laplace",
        "sensitivity": 1.0,
        "noise_scale": 1 / epsilon,
        "assumptions": [fact, f"the number of {protects}s is public", *[read] * bool(read)],
        "not_accounted": [text.format(protects) for text in _NOT_ACCOUNTED],
    }
