"""A classifier, records and their groups -> counts and shares with intervals; NOT private."""

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from skdpfair.inputs import groups as _groups

LEVEL = 0.95


def group_rows(classifier, X, y, sensitive_features) -> pd.DataFrame:
    """Return one row for all records and for each group: NOT private.

    Parameters
    ----------
    classifier : DPFairClassifier
        Fitted.
    X, y, sensitive_features
        Test records; without groups there is a row for all only.

    Returns
    -------
    pandas.DataFrame
        ``n``, ``accuracy`` with Wilson's 95 % interval ``low`` and ``high``, and one column
        ``predicted[class]`` for each class: its share of the predictions.
    """
    predicted, y = classifier.predict(X), np.asarray(y)
    parts = {"all": np.ones(len(y), dtype=bool)}
    if sensitive_features is not None or classifier.group_col is not None:
        found = _groups.encode(
            X,
            y,
            group_col=classifier.group_col if sensitive_features is None else None,
            groups=None if classifier.groups_ is None else list(classifier.groups_),
            sensitive_features=sensitive_features,
        )
        names = [_groups.group_name(level) for level in found.levels]
        parts |= {name: found.code == i for i, name in enumerate(names)}
    rows = {}
    for name, rows_in in parts.items():
        n, right = int(rows_in.sum()), int((predicted == y)[rows_in].sum())
        row = {"n": n, "accuracy": right / n if n else np.nan, "low": np.nan, "high": np.nan}
        if n:
            row["low"], row["high"] = binomtest(right, n).proportion_ci(LEVEL, method="wilson")
        for label in classifier.classes_:
            row[f"predicted[{label}]"] = (predicted[rows_in] == label).mean() if n else np.nan
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index")
