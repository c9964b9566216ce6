"""Differences and maxima of the groups' accuracies, privacy costs and excessive risks."""

import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple

from skdpfair.inputs.columns import check_indexes
from skdpfair.metrics._arguments import accuracy
from skdpfair.metrics._compare_groups import by_group, difference, group_max, warn_undefined
from skdpfair.metrics._excessive_risk import as_own_class, excessive_risk
from skdpfair.metrics._privacy_cost import privacy_cost


class _Measure(NamedTuple):
    """A measure of which every group has its own value, and what its docstrings say."""

    function: Callable[..., float]
    definition: str
    predictions: str
    reference: str | None
    example: str


_TRANSFORMS = {
    "difference": (difference, "difference between the largest and the smallest {}"),
    "group_max": (group_max, "largest {}"),
}
_MEASURES = {
    "accuracy": _Measure(
        accuracy,
        "equation 3 of Kulynych et al., NeurIPS 2022",
        "array-like of shape (n_samples,)\n        Labels and predicted labels.",
        None,
        "y_true, [0, 0, 1, 0, 0, 1]",
    ),
    "privacy_cost": _Measure(
        privacy_cost,
        "equation 1 of Esipova et al., ICLR 2023",
        "array-like of shape (n_samples,)\n        As in `privacy_cost`.",
        "y_ref",
        "y_true, [0, 0, 1, 0, 0, 1], y_ref=[1, 0, 1, 0, 0, 0]",
    ),
    "excessive_risk": _Measure(
        excessive_risk,
        "equation 2 of Esipova et al., ICLR 2023",
        "array-like of shape (n_samples,) or (n_samples, n_classes)\n"
        "        As in `excessive_risk`.",
        "y_prob_ref",
        "y_true, [0.2, 0.4, 0.8, 0.8, 0.8, 0.8], y_prob_ref=[0.8] * 6",
    ),
}
# measure, transform, and the value of the example
_DERIVED = {
    "accuracy_difference": ("accuracy", "difference", 0.25),
    "privacy_cost_difference": ("privacy_cost", "difference", 0.25),
    "privacy_cost_group_max": ("privacy_cost", "group_max", 0.5),
    "excessive_risk_difference": ("excessive_risk", "difference", 0.5199),
    "excessive_risk_group_max": ("excessive_risk", "group_max", 0.6931),
}
_DOC = """Compute the {what} of the groups.

    Parameters
    ----------
    {arrays} : {predictions}
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.
    {options} : optional
        As in `{measure}`; ``sample_weight`` holds weights of the records within their groups.

    Returns
    -------
    float
        The value is not private. Groups whose value is undefined are left out, with an
        ``UndefinedMetricWarning``; a difference is 0 if there is only one group, and NaN if only
        one of several has a value.

    Notes
    -----
    For two groups, the difference is that of {definition}. To average over seeds, average the
    groups' values first: `fairlearn.metrics.MetricFrame` computes them.

    Examples
    --------
    >>> from skdpfair.metrics import {name}
    >>> y_true, sex = [1, 0, 1, 0, 0, 0], ["F", "M", "F", "M", "M", "M"]
    >>> value = {name}({example}, sensitive_features=sex)
    >>> round(value, 4)
    {value}
    """


def _derive(name):
    """Return a function of the table above, with its signature and docstring."""
    measure, transform, value = _DERIVED[name]
    function, definition, predictions, reference, example = _MEASURES[measure]
    aggregate, what = _TRANSFORMS[transform]
    of_measure = inspect.signature(function)
    arrays = [p for p in of_measure.parameters.values() if p.default is p.empty]
    options = [p for p in of_measure.parameters.values() if p.default is not p.empty]
    if reference is not None:  # compulsory here
        arrays.append(options.pop(0).replace(default=inspect.Parameter.empty))
    groups = inspect.Parameter("sensitive_features", inspect.Parameter.KEYWORD_ONLY)
    signature = of_measure.replace(parameters=[*arrays, groups, *options])

    def derived(*args, **kwargs):
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            remark = (
                f" {reference} holds the predictions of the model without clipping and noise."
                if reference is not None
                else ""
            )
            raise TypeError(f"{name}{signature}: {error}.{remark}") from None
        check_indexes(**arguments)
        groups = arguments.pop("sensitive_features")
        function(**arguments)  # on all records: names what does not fit, before it is cut
        chosen = {key: arguments.pop(key) for key in ("metric", "loss") if key in arguments}
        if "y_prob" in arguments and chosen.get("loss") is None:
            # a group may lack a class: take each record's own while all classes are there
            classes = arguments.pop("classes", None)
            for part in ("y_prob", "y_prob_ref"):
                arguments[part] = as_own_class(part, arguments[part], arguments["y_true"], classes)
        y_true, y_pred = (arguments.pop(array.name) for array in arrays[:2])
        values = by_group(
            functools.partial(function, **chosen),
            y_true,
            y_pred,
            sensitive_features=groups,
            **arguments,
        )
        if n_undefined := int(values.isna().sum()):
            warn_undefined(
                f"{name} leaves out {n_undefined} of {len(values)} groups, whose value is "
                "undefined."
            )
        return aggregate(values)

    derived.__name__ = derived.__qualname__ = name
    derived.__signature__ = signature  # type: ignore[attr-defined]
    derived.__doc__ = _DOC.format(
        name=name,
        measure=measure,
        what=what.format(measure.replace("_", " ")),
        arrays=", ".join(p.name for p in arrays),
        predictions=predictions,
        options=", ".join(p.name for p in options),
        definition=definition,
        example=example,
        value=value,
    )
    return derived


accuracy_difference = _derive("accuracy_difference")
privacy_cost_difference = _derive("privacy_cost_difference")
privacy_cost_group_max = _derive("privacy_cost_group_max")
excessive_risk_difference = _derive("excessive_risk_difference")
excessive_risk_group_max = _derive("excessive_risk_group_max")
