"""Gaps, worst groups and ratios: one table of measures, one of forms, functions from both."""

import functools
import inspect
from typing import NamedTuple

from skdpfair.metrics._checks import by_group
from skdpfair.metrics._excessive_risk import as_own_class, excessive_risk
from skdpfair.metrics._levels import warn_undefined
from skdpfair.metrics._privacy_cost import privacy_cost


class _Measure(NamedTuple):
    """A measure of which every group may have its own value; larger is worse."""

    function: object
    what: str
    of_group: str
    arrays: str
    example: str
    values: dict
    shape: str = "(n_samples,)"
    by_record: object = dict  # from the arguments, what can be cut into groups


class _Form(NamedTuple):
    """How the groups' values become one number."""

    summary: str
    returns: str
    notes: str
    reduce: object


def _own_class(given):
    """Pick each record's own class while all classes are there: a group may lack one."""
    classes = given.get("classes")
    return {
        name: as_own_class(name, values, given["y_true"], classes)
        if name.startswith("y_prob")
        else values
        for name, values in given.items()
        if name != "classes"
    }


def _gap(name, values):
    # a measure undefined in some group makes the result NaN, rather than hiding the group
    return float(values.max(skipna=False) - values.min(skipna=False))


def _worst_group(name, values):
    return float(values.max(skipna=False))


def _ratio(name, values):
    least, largest = values.min(skipna=False), values.max(skipna=False)
    if not (least >= 0 and largest > 0):  # also where one is NaN
        warn_undefined(
            name,
            "a ratio needs every group's value >= 0 and one > 0. Use the gap instead.",
        )
        return float("nan")
    return float(least / largest)


_FORMS = {
    "gap": _Form(
        "Measure how unequally the groups pay: the largest minus the smallest {what} of a group.",
        "At least 0; 0 if all groups have the same, or there is one group only.",
        "For two groups this is ``|{symbol}_a - {symbol}_b|`` of [esipova2023]_. To average over "
        "seeds,\n    average the groups' values first, then take the gap.",
        _gap,
    ),
    "worst_group": _Form(
        "Measure what the group that pays most pays: the largest {what} of a group.",
        "At least that of all records together; negative if every group gains.",
        "To average over seeds, average the groups' values first, then take the largest.",
        _worst_group,
    ),
    "ratio": _Form(
        "Compare the groups by the smallest over the largest {what} of a group.",
        "In [0, 1]; 1 if all groups pay the same. NaN, with an ``UndefinedMetricWarning``, if a\n"
        "        group gains from privacy or none pays.",
        "A ratio of small values is unstable: read it beside the gap.",
        _ratio,
    ),
}

_MEASURES = {
    "privacy_cost": _Measure(
        privacy_cost,
        "privacy cost",
        "pi",
        "y_true, y_pred, y_ref",
        "private, twin = [0, 0, 1, 0, 0, 1], [1, 0, 1, 0, 0, 0]",
        {"gap": 0.25, "worst_group": 0.5, "ratio": 0.5},
    ),
    "excessive_risk": _Measure(
        excessive_risk,
        "excessive risk",
        "R",
        "y_true, y_prob, y_prob_ref",
        "private, twin = [0.2, 0.4, 0.8, 0.8, 0.8, 0.8], [0.8] * 6",
        {"gap": 0.5199, "worst_group": 0.6931, "ratio": 0.25},
        "(n_samples,), or of shape\n        (n_samples, n_classes) for probabilities",
        _own_class,
    ),
}

_DOC = """{summary}

    Parameters
    ----------
    {arrays} : array-like of shape {shape}
        As in `{measure}`.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.
    {options}

    Returns
    -------
    float
        {returns} Not itself private.

    Raises
    ------
    TypeError, ValueError
        As `{measure}`, or if ``sensitive_features`` has missing values or another length.

    Notes
    -----
    {notes}

    References
    ----------
    .. [esipova2023] M. Esipova et al., "Disparate Impact in Differential Privacy from Gradient
       Misalignment", ICLR 2023.

    Examples
    --------
    >>> from skdpfair.metrics import {name}
    >>> y_true, sex = [1, 0, 1, 0, 0, 0], ["F", "M", "F", "M", "M", "M"]
    >>> {example}
    >>> value = {name}(y_true, private, {ref}=twin, sensitive_features=sex)
    >>> round(value, 4)
    {value}

    The same from the values of each group:

    >>> from fairlearn.metrics import MetricFrame
    >>> from skdpfair.metrics import {measure}
    >>> values = MetricFrame(
    ...     metrics={measure}, y_true=y_true, y_pred=private, sensitive_features=sex,
    ...     sample_params={{"{ref}": twin}},
    ... ).by_group
    >>> round(float({by_hand}), 4)
    {value}
    """
_BY_HAND = {
    "gap": "values.max() - values.min()",
    "worst_group": "values.max()",
    "ratio": "values.min() / values.max()",
}


def _derive(measure, form):
    """Return the function of one row of each table, with a name, a signature and a docstring."""
    definition, shape, name = _MEASURES[measure], _FORMS[form], f"{measure}_{form}"
    own = inspect.signature(definition.function)
    new = inspect.Parameter("sensitive_features", inspect.Parameter.KEYWORD_ONLY)
    parameters = list(own.parameters.values())
    first_option, reference = 3, parameters[2].name
    parameters[2] = parameters[2].replace(default=inspect.Parameter.empty)  # compulsory
    signature = own.replace(
        parameters=[*parameters[:first_option], new, *parameters[first_option:]]
    )

    def derived(*args, **kwargs):
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(
                f"{name}{signature}: {error}. {reference} is what the model without clipping and "
                f'noise predicts. bootstrap_interval takes sample_params={{"{reference}": ...}}.'
            ) from None
        groups = given.pop("sensitive_features")
        function = definition.function
        if "metric" in given:
            function = functools.partial(function, metric=given.pop("metric"))
        function(**given)  # on all records: names what does not fit, before it is cut
        given = definition.by_record(given)
        (_, y_true), (_, y_pred), *rest = given.items()
        values = by_group(function, y_true, y_pred, sensitive_features=groups, **dict(rest))
        return shape.reduce(name, values)

    derived.__name__ = derived.__qualname__ = name
    derived.__signature__ = signature
    options = [p.name for p in parameters[first_option:]]
    derived.__doc__ = _DOC.format(
        name=name,
        measure=measure,
        summary=shape.summary.format(what=definition.what),
        arrays=definition.arrays,
        shape=definition.shape,
        ref=reference,
        options=f"{', '.join(options)} : optional\n        As in `{measure}`.",
        returns=shape.returns,
        notes=shape.notes.format(symbol=definition.of_group),
        example=definition.example,
        value=definition.values[form],
        by_hand=_BY_HAND[form],
    )
    return derived


privacy_cost_gap = _derive("privacy_cost", "gap")
privacy_cost_worst_group = _derive("privacy_cost", "worst_group")
privacy_cost_ratio = _derive("privacy_cost", "ratio")
excessive_risk_gap = _derive("excessive_risk", "gap")
excessive_risk_worst_group = _derive("excessive_risk", "worst_group")
excessive_risk_ratio = _derive("excessive_risk", "ratio")
