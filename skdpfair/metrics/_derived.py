"""Differences, maxima and ratios of the groups' accuracies, privacy costs and excessive risks."""

import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skdpfair.inputs.columns import check_indexes
from skdpfair.metrics._arguments import accuracy
from skdpfair.metrics._compare_groups import by_group, difference, group_max, ratio, warn_undefined
from skdpfair.metrics._excessive_risk import as_own_class, excessive_risk
from skdpfair.metrics._privacy_cost import privacy_cost


class _Measure(NamedTuple):
    """A measure of which every group may have its own value; larger is worse."""

    function: Callable[..., float]
    symbol: str
    arrays: str
    shape: str
    example: str
    values: dict


class _Aggregate(NamedTuple):
    """A function that makes one number of the groups' values."""

    summary: str
    returns: str
    notes: str
    of: Callable[..., float]


_AGGREGATES = {
    "difference": _Aggregate(
        "Compute the difference between the largest and the smallest {what} of the groups.",
        "At least 0; 0 if all groups have the same {what}, or there is only one group.\n"
        "        NaN if only one of several groups has a value.",
        "For two groups this is ``|{symbol}_a - {symbol}_b|`` of [esipova2023]_.",
        difference,
    ),
    "group_max": _Aggregate(
        "Compute the largest {what} of the groups.",
        "At least the {what} of all records; negative if every group gains.",
        "",
        group_max,
    ),
    "ratio": _Aggregate(
        "Compute the ratio of the smallest to the largest {what} of the groups.",
        "In [0, 1]; 1 if all groups have the same {what}. NaN, with an\n"
        "        ``UndefinedMetricWarning``, if a group has a negative {what}, all are 0, or only\n"
        "        one of several groups has a value.",
        "A ratio of small values is unstable: report the difference as well.",
        ratio,
    ),
}

_MEASURES = {
    "privacy_cost": _Measure(
        privacy_cost,
        "pi",
        "y_true, y_pred, y_ref",
        "(n_samples,)",
        "private, reference = [0, 0, 1, 0, 0, 1], [1, 0, 1, 0, 0, 0]",
        {"difference": 0.25, "group_max": 0.5, "ratio": 0.5},
    ),
    "excessive_risk": _Measure(
        excessive_risk,
        "R",
        "y_true, y_prob, y_prob_ref",
        "(n_samples,), or of shape\n        (n_samples, n_classes) for probabilities",
        "private, reference = [0.2, 0.4, 0.8, 0.8, 0.8, 0.8], [0.8] * 6",
        {"difference": 0.5199, "group_max": 0.6931, "ratio": 0.25},
    ),
}

_DOC = """{summary}

    Parameters
    ----------
    {arrays} : array-like of shape {shape}
        As in `{measure}`.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.
    {options} : optional
        As in `{measure}`.

    Returns
    -------
    float
        {returns} The value is not private.

    Raises
    ------
    TypeError, ValueError
        As in `{measure}`, or if ``sensitive_features`` has missing values or a different length.

    Notes
    -----
    Groups whose value is undefined are left out, with an ``UndefinedMetricWarning``. To average
    over seeds, average the groups' values first. {notes}

    References
    ----------
    .. [esipova2023] M. Esipova et al., "Disparate Impact in Differential Privacy from Gradient
       Misalignment", ICLR 2023.

    Examples
    --------
    >>> from skdpfair.metrics import {name}
    >>> y_true, sex = [1, 0, 1, 0, 0, 0], ["F", "M", "F", "M", "M", "M"]
    >>> {example}
    >>> value = {name}(y_true, private, {ref}=reference, sensitive_features=sex)
    >>> round(value, 4)
    {value}
    """


def _derive(measure, aggregate):
    """Return the function of a measure and an aggregate, with its signature and docstring."""
    definition, form, name = _MEASURES[measure], _AGGREGATES[aggregate], f"{measure}_{aggregate}"
    own = inspect.signature(definition.function)
    first, second, reference, *options = own.parameters.values()
    reference = reference.replace(default=inspect.Parameter.empty)  # compulsory
    groups = inspect.Parameter("sensitive_features", inspect.Parameter.KEYWORD_ONLY)
    signature = own.replace(parameters=[first, second, reference, groups, *options])

    def derived(*args, **kwargs):
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(
                f"{name}{signature}: {error}. {reference.name} holds the predictions of the model "
                "without clipping and noise. bootstrap_interval takes "
                f'sample_params={{"{reference.name}": ...}}.'
            ) from None
        check_indexes(**given)
        groups = given.pop("sensitive_features")
        definition.function(**given)  # on all records: names what does not fit, before it is cut
        function = definition.function
        chosen = {key: given.pop(key) for key in ("metric", "loss") if key in given}
        function = functools.partial(function, **chosen)
        if "y_prob" in given and chosen.get("loss") is None:
            # a group may lack a class: take each record's own while all classes are there
            classes = given.pop("classes", None)
            for part in ("y_prob", "y_prob_ref"):
                given[part] = as_own_class(part, given[part], given["y_true"], classes)
        y_true, y_pred = given.pop(first.name), given.pop(second.name)
        values = by_group(function, y_true, y_pred, sensitive_features=groups, **given)
        return _aggregated(name, values, form.of)

    derived.__name__ = derived.__qualname__ = name
    derived.__signature__ = signature  # type: ignore[attr-defined]
    derived.__doc__ = _DOC.format(
        name=name,
        measure=measure,
        summary=form.summary.format(what=measure.replace("_", " ")),
        arrays=definition.arrays,
        shape=definition.shape,
        ref=reference.name,
        options=", ".join(p.name for p in options),
        returns=form.returns.format(what=measure.replace("_", " ")),
        notes=form.notes.format(symbol=definition.symbol),
        example=definition.example,
        value=definition.values[aggregate],
    )
    return derived


def _aggregated(name, values, aggregate):
    """Return the aggregate of the groups' values; warn of groups without one."""
    n_undefined = int(values.isna().sum())
    if n_undefined:
        warn_undefined(
            f"{name} leaves out {n_undefined} of {len(values)} groups, whose value is undefined."
        )
    value = aggregate(values)
    if aggregate is ratio and np.isnan(value):
        warn_undefined(
            f"{name} is NaN: a ratio needs the values of two groups, every one >= 0 and one > 0. "
            "Use the difference instead."
        )
    return value


privacy_cost_difference = _derive("privacy_cost", "difference")
privacy_cost_group_max = _derive("privacy_cost", "group_max")
privacy_cost_ratio = _derive("privacy_cost", "ratio")
excessive_risk_difference = _derive("excessive_risk", "difference")
excessive_risk_group_max = _derive("excessive_risk", "group_max")
excessive_risk_ratio = _derive("excessive_risk", "ratio")


def accuracy_difference(y_true, y_pred, *, sensitive_features, sample_weight=None):
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
        In [0, 1]; 0 if all groups have the same accuracy. The value is not private.

    Raises
    ------
    TypeError, ValueError
        If an array does not have one entry per label, or a group is missing.

    Notes
    -----
    The value is the maximum over groups z, z' of ``|acc(D_z) - acc(D_z')|``, the accuracy
    disparity of equation 3 of [kulynych2022]_.

    References
    ----------
    .. [kulynych2022] B. Kulynych et al., "What You See is What You Get: Principled Deep Learning
       via Distributional Generalization", NeurIPS 2022.

    Examples
    --------
    >>> from skdpfair.metrics import accuracy_difference
    >>> y_true, y_pred, sex = [1, 0, 1, 0], [1, 0, 0, 0], ["F", "M", "F", "M"]
    >>> accuracy_difference(y_true, y_pred, sensitive_features=sex)
    0.5

    The accuracies of the groups, with fairlearn:

    >>> from fairlearn.metrics import MetricFrame
    >>> from sklearn.metrics import accuracy_score
    >>> frame = MetricFrame(
    ...     metrics=accuracy_score, y_true=y_true, y_pred=y_pred, sensitive_features=sex
    ... )
    >>> frame.by_group.to_dict(), float(frame.difference())
    ({'F': 0.5, 'M': 1.0}, 0.5)
    """
    values = by_group(
        accuracy, y_true, y_pred, sensitive_features=sensitive_features, sample_weight=sample_weight
    )
    return _aggregated("accuracy_difference", values, difference)
