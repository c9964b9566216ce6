"""From a search's cv_results_: privacy cost and DG gap."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError

_BUDGETS = ("epsilon", "noise_multiplier")


def privacy_cost_table(search, metric="accuracy"):
    """Tabulate what privacy costs each candidate of a search, against the twin in its grid.

    Parameters
    ----------
    search : fitted search, or its ``cv_results_``
        Scored by `GroupScorer`; one candidate, the twin, has ``epsilon=None``.
    metric : str, default="accuracy"
        One of the scorer's metrics.

    Returns
    -------
    pandas.DataFrame
        One row a private candidate, indexed by its row in ``cv_results_``: its parameters, by
        their last names, ``privacy_cost``, ``privacy_cost[GROUP]``, ``privacy_cost_difference``
        >= 0, all shares: 0.01 is one percentage point of accuracy. Costs are
        the twin's score minus the candidate's, fold by fold, then averaged over the folds in
        which a group occurs; the gap is that of the averages, among the groups that have one. Not
        itself private. ``to_string()`` prints it whole.

    Raises
    ------
    ValueError
        If the grid has no twin, or several that fit a candidate equally well.

    Examples
    --------
    >>> results = {
    ...     "params": [{"epsilon": None}, {"epsilon": 1.0}],
    ...     "split0_test_accuracy": [0.9, 0.8],
    ...     "split0_test_accuracy[F]": [0.9, 0.6], "split0_test_accuracy[M]": [0.9, 0.8],
    ... }
    >>> print(privacy_cost_table(results).round(2).to_string())
         epsilon  privacy_cost  privacy_cost[F]  privacy_cost[M]  privacy_cost_difference
    row
    1        1.0           0.1              0.3              0.1                      0.2
    """
    results = _results(search)
    scores = {key: _folds(results, "test", key) for key in _keys(results, metric)}
    rows, twins = private_rows(results), _twins(results)
    costs = {}
    for key, folds in scores.items():
        paired = [folds[twins[i]] - folds[i] if i in twins else folds[i] * np.nan for i in rows]
        costs["privacy_cost" + key[len(metric) :]] = _mean(paired)
    return _table(results, rows, costs, "privacy_cost")


def dg_gap_table(search, metric="accuracy"):
    """Tabulate how much better each candidate does on its training rows than on held-out ones.

    Parameters
    ----------
    search : fitted search, or its ``cv_results_``
        Scored by `GroupScorer`, with ``return_train_score=True``.
    metric : str, default="accuracy"
        One of the scorer's metrics.

    Returns
    -------
    pandas.DataFrame
        One row a candidate, the twin included (its epsilon is inf, and its method "twin"), indexed
        by its row in ``cv_results_``: its parameters, by their last names, ``dg_gap`` and
        ``dg_gap[GROUP]``, training minus held-out score averaged over folds, and
        ``dg_gap_difference`` >= 0, how far these are apart; all are shares. Not itself private.

    Raises
    ------
    ValueError
        If the search kept no training scores.

    Examples
    --------
    >>> results = {
    ...     "params": [{"epsilon": 1.0}],
    ...     "split0_train_accuracy": [0.9], "split0_test_accuracy": [0.8],
    ...     "split0_train_accuracy[F]": [0.9], "split0_test_accuracy[F]": [0.6],
    ...     "split0_train_accuracy[M]": [0.9], "split0_test_accuracy[M]": [0.9],
    ... }
    >>> dg_gap_table(results).round(2)
         epsilon  dg_gap  dg_gap[F]  dg_gap[M]  dg_gap_difference
    row
    0        1.0     0.1        0.3        0.0                0.3
    """
    results = _results(search)
    if f"split0_train_{metric}" not in results:
        raise ValueError(
            f"The search has no training scores of {metric!r}, from which the DG gap is taken. "
            "Set return_train_score=True, and fit again."
        )
    rows = list(range(len(results["params"])))
    gaps = {
        "dg_gap" + key[len(metric) :]: _mean(
            _folds(results, "train", key) - _folds(results, "test", key)
        )
        for key in _keys(results, metric)
    }
    return _table(results, rows, gaps, "dg_gap")


def _results(search):
    results = getattr(search, "cv_results_", search)
    if hasattr(search, "fit") and results is search:
        raise NotFittedError(
            f"This {type(search).__name__} has no cv_results_ yet. Call fit(X, y) first."
        )
    if not isinstance(results, Mapping) or "params" not in results:
        raise TypeError(
            "search must be a fitted search, or its cv_results_, got "
            f"{type(search).__name__}. Pass what was fitted with scoring=GroupScorer(...)."
        )
    return results


def _keys(results, metric):
    """Return the metric's keys: overall, then one for each group."""
    found = [
        key.removeprefix("split0_test_")
        for key in results
        if re.fullmatch(rf"split0_test_{re.escape(metric)}(\[.*\])?", key, flags=re.DOTALL)
    ]
    if metric not in found or len(found) < 2:
        raise ValueError(
            f"The search has no scores of metric={metric!r} by group. Fit it with scoring="
            "GroupScorer(...), and name one of its metrics."
        )
    return found


def _folds(results, part, key):
    """Return scores of shape (n_candidates, n_folds)."""
    folds = []
    while (name := f"split{len(folds)}_{part}_{key}") in results:
        folds.append(np.asarray(results[name], dtype=float))
    return np.stack(folds, axis=1)


def _mean(folds):
    """Return the mean of each row over the folds that are not NaN."""
    folds = np.asarray(folds, dtype=float)
    known = ~np.isnan(folds)
    with np.errstate(invalid="ignore"):  # no fold at all: NaN
        return np.where(known, folds, 0.0).sum(axis=1) / known.sum(axis=1)


def _table(results, rows, columns, name):
    params = _params_table(results, rows)
    table = pd.concat([params, pd.DataFrame(columns, index=params.index)], axis=1)
    by_group = table[[c for c in columns if c.startswith(f"{name}[")]]
    table[f"{name}_difference"] = by_group.max(axis=1) - by_group.min(axis=1)
    return table


def _params_table(results, rows):
    """Return the candidates' parameters, by their last names where these differ; twins named."""
    keys = dict.fromkeys(key for params in results["params"] for key in params)
    last = [key.rpartition("__")[2] for key in keys]
    names = {k: n if last.count(n) == 1 else k for k, n in zip(keys, last, strict=True)}
    params = [{names[k]: v for k, v in results["params"][i].items()} for i in rows]
    table = pd.DataFrame(params, index=pd.Index(rows, name="row"))
    twins = [i for i in rows if _is_twin(results["params"][i])]
    for name, value in {"epsilon": np.inf, "method": "twin"}.items():
        if twins and name in table:
            table.loc[twins, name] = value
    return table


def _budget(params):
    """Return the privacy parameters of a candidate, by their last name."""
    last = {key.rpartition("__")[2]: value for key, value in params.items()}
    return {name: last[name] for name in _BUDGETS if name in last}


def private_rows(results):
    rows = [i for i, p in enumerate(results["params"]) if not _is_twin(p)]
    if not rows:
        raise ValueError("The search has no private candidate: give epsilon other values, too.")
    return rows


def _is_twin(params):
    budget = _budget(params)
    return "epsilon" in budget and all(value is None for value in budget.values())


def _twins(results):
    """Return, for each private row, the row of its twin: all else equal, as far as named."""
    params = results["params"]
    twins = [i for i, p in enumerate(params) if _is_twin(p)]
    if not twins:
        raise ValueError(
            "The search has no twin to compare with. Add a candidate without privacy to the grid: "
            'param_grid=[{...}, {"epsilon": [None]}], with the step\'s prefix in a pipeline.'
        )
    return {i: found for i in private_rows(results) if (found := _twin_of(results, i, twins)) >= 0}


def _twin_of(results, row, twins):
    """Return the twin that agrees with a row; -1 if there is none (a halving search drops some)."""
    halving = results.get("iter")
    agreeing = [
        twin
        for twin in twins
        if (halving is None or halving[twin] == halving[row])
        and _same(results["params"][row], results["params"][twin], but=("method", *_BUDGETS))
    ]
    # the twin of every private method is plain SGD: prefer the one that names the same method
    named = [t for t in agreeing if _same(results["params"][row], results["params"][t], _BUDGETS)]
    best = named or agreeing
    if len(best) > 1:
        raise ValueError(
            f"Rows {best} of the search are twins of row {row}, {results['params'][row]}. Leave "
            "one, or name in every twin the parameters that are searched."
        )
    return best[0] if best else -1


def _same(one, other, but):
    """Tell whether two candidates agree in all that both name, except ``but``."""
    shared = [k for k in one if k in other and k.rpartition("__")[2] not in but]
    return all(one[k] is other[k] or repr(one[k]) == repr(other[k]) for k in shared)
