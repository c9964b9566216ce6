"""One row a model: accuracies and privacy costs, overall and for each group."""

from collections.abc import Hashable, Mapping

import pandas as pd
from sklearn.metrics import balanced_accuracy_score

from skdpfair._validate import safe_repr
from skdpfair.metrics._checks import accuracy, as_vector, by_group
from skdpfair.metrics._privacy_cost import privacy_cost


def group_table(y_true, predictions, *, reference, sensitive_features):
    """Tabulate what several models score, and what privacy costs, for each group.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels.
    predictions : dict of str to array-like of shape (n_samples,)
        The predicted labels of each model, by the model's name.
    reference : str
        The name of the twin, the model without clipping and noise; its own cost is 0.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.

    Returns
    -------
    pandas.DataFrame
        One row a model, in the order of ``predictions``, with columns ``accuracy``,
        ``balanced_accuracy``, ``accuracy[GROUP]`` in [0, 1] and ``privacy_cost[GROUP]`` in [-1, 1]
        for each group that occurs, and ``privacy_cost_gap`` >= 0. An intersection is called
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
    model               sgd  dpsgd
    accuracy           0.75    0.5
    balanced_accuracy  0.75    0.5
    accuracy[F]        1.00    0.5
    accuracy[M]        0.50    0.5
    privacy_cost[F]    0.00    0.5
    privacy_cost[M]    0.00    0.0
    privacy_cost_gap   0.00    0.5

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
            f"{type(predictions).__name__}. Pass {{'twin': ..., 'dpsgd': ...}}, and "
            "reference='twin'."
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
    """Return one model's row as a dict, in the order of the columns."""
    accuracies = by_group(accuracy, y_true, y_pred, sensitive_features=groups)
    cost = by_group(privacy_cost, y_true, y_pred, sensitive_features=groups, y_ref=y_ref)
    return {
        "accuracy": accuracy(y_true, y_pred),
        "balanced_accuracy": balanced_accuracy_score(y_true, y_pred),
        **{f"accuracy[{_label(group)}]": value for group, value in accuracies.items()},
        **{f"privacy_cost[{_label(group)}]": value for group, value in cost.items()},
        "privacy_cost_gap": cost.max() - cost.min(),
    }


def _label(group):
    """Return a group's name; intersections are joined by commas."""
    return ", ".join(map(str, group)) if isinstance(group, tuple) else str(group)
