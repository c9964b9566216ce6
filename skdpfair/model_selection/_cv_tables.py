"""Tables of a search's ``cv_results_``, and the choice of a candidate."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError

from skdpfair._validate import number
from skdpfair.metrics._compare_groups import difference, group_max, group_min

_BUDGETS = ("epsilon", "noise_multiplier")


def privacy_cost_table(search, metric="accuracy"):
    """Tabulate the privacy cost of each candidate of a search with a reference model in its grid.

    Parameters
    ----------
    search : fitted search, or its ``cv_results_``
        A search scored by `GroupScorer`, in which one candidate, the non-private reference
        model, has ``epsilon=None``.
    metric : str, default="accuracy"
        One of the scorer's metrics.

    Returns
    -------
    pandas.DataFrame
        One row per private candidate, indexed by its row in ``cv_results_``, with its parameters
        (without prefix), ``privacy_cost``, ``privacy_cost[GROUP]``, ``privacy_cost_difference``
        >= 0 and ``privacy_cost_group_max``, all as shares: 0.01 is one percentage point of
        accuracy. A cost is the reference model's score minus the candidate's, averaged over the
        folds in which the group occurs. Difference and maximum are those of these averages; groups
        without one are left out. The table is not private. ``to_string()`` prints all of it.

    Raises
    ------
    ValueError
        If the grid has no reference model, or several that match a candidate equally well.

    Examples
    --------
    >>> results = {
    ...     "params": [{"epsilon": None}, {"epsilon": 1.0}],
    ...     "split0_test_accuracy": [0.9, 0.8],
    ...     "split0_test_accuracy[F]": [0.9, 0.6], "split0_test_accuracy[M]": [0.9, 0.8],
    ... }
    >>> print(privacy_cost_table(results).round(2).iloc[0].to_string())
    epsilon                    1.0
    privacy_cost               0.1
    privacy_cost[F]            0.3
    privacy_cost[M]            0.1
    privacy_cost_difference    0.2
    privacy_cost_group_max     0.3
    """
    return _against_reference(search, metric, "privacy_cost")


def excessive_risk_table(search, metric="neg_log_loss"):
    """Tabulate the excessive risk of each candidate of a search that has a reference model.

    Parameters
    ----------
    search : fitted search, or its ``cv_results_``
        A search scored by `GroupScorer`, such as ``GroupScorer(measures=["accuracy",
        "log_loss"])``, in which one candidate, the reference model, has ``epsilon=None``.
    metric : str, default="neg_log_loss"
        The scorer's name of the negated log loss.

    Returns
    -------
    pandas.DataFrame
        One row per private candidate, indexed by its row in ``cv_results_``, with its parameters
        (without prefix), ``excessive_risk``, ``excessive_risk[GROUP]``,
        ``excessive_risk_difference`` >= 0 and ``excessive_risk_group_max``, in nats: the
        candidate's log loss minus that of the reference model, averaged as in
        `privacy_cost_table`. The table is not private.

    Raises
    ------
    ValueError
        If the search has no log loss by group, or the grid has no reference model, or several that
        match a candidate equally well.

    Examples
    --------
    >>> results = {
    ...     "params": [{"epsilon": None}, {"epsilon": 1.0}],
    ...     "split0_test_neg_log_loss": [-0.3, -0.4],
    ...     "split0_test_neg_log_loss[F]": [-0.3, -0.6],
    ...     "split0_test_neg_log_loss[M]": [-0.3, -0.4],
    ... }
    >>> excessive_risk_table(results).round(2).loc[1, "excessive_risk[F]"].item()
    0.3
    """
    return _against_reference(search, metric, "excessive_risk")


def _against_reference(search, metric, name):
    results = _results(search)
    scores = {key: _folds(results, "test", key) for key in _keys(results, metric)}
    rows, references = private_rows(results), _references(results)
    costs = {}
    for key, folds in scores.items():
        paired = [
            folds[references[i]] - folds[i] if i in references else folds[i] * np.nan for i in rows
        ]
        costs[name + key[len(metric) :]] = _mean(paired)
    table = _table(results, rows, costs, name)
    return table.assign(**{f"{name}_group_max": group_max(table.filter(like=f"{name}["))})


def dg_gap_table(search, metric="accuracy"):
    """Tabulate the training score minus the held-out score of each candidate of a search.

    Parameters
    ----------
    search : fitted search, or its ``cv_results_``
        A search scored by `GroupScorer`, with ``return_train_score=True``.
    metric : str, default="accuracy"
        One of the scorer's metrics.

    Returns
    -------
    pandas.DataFrame
        One row per candidate, including the reference model (epsilon inf, method "reference"),
        indexed by its row in ``cv_results_``, with its parameters (without prefix), ``dg_gap`` and
        ``dg_gap[GROUP]``, training minus held-out score averaged over folds,
        ``dg_gap_difference`` >= 0 between groups, and ``dg_gap_worst_group``, the worst average
        training score of a group minus the worst average held-out score of a group, all as shares.
        The table is not private.

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
    >>> print(dg_gap_table(results).round(2).iloc[0].to_string())
    epsilon               1.0
    dg_gap                0.1
    dg_gap[F]             0.3
    dg_gap[M]             0.0
    dg_gap_difference     0.3
    dg_gap_worst_group    0.3
    """
    results = _results(search)
    if f"split0_train_{metric}" not in results:
        raise ValueError(
            f"The search has no training scores of {metric!r}, which the DG gap needs. Set "
            "return_train_score=True, and fit again."
        )
    rows, keys = list(range(len(results["params"]))), _keys(results, metric)
    parts = {part: {key: _folds(results, part, key) for key in keys} for part in ("train", "test")}
    gaps = {
        "dg_gap" + key[len(metric) :]: _mean(parts["train"][key] - parts["test"][key])
        for key in keys
    }
    train, test = (
        group_min(pd.DataFrame({key: _mean(folds[key]) for key in keys[1:]}))
        for folds in parts.values()
    )
    table = _table(results, rows, gaps, "dg_gap")
    return table.assign(dg_gap_worst_group=(train - test).to_numpy())


class select_by:
    """Select the best private candidate by one column, as ``refit=`` of a search.

    Parameters
    ----------
    column : str, default="privacy_cost_difference"
        A column of `privacy_cost_table` or `excessive_risk_table` (the smallest wins) or of
        `dg_gap_table` (the nearest to 0 wins), such as ``"dg_gap_worst_group"``, or a key of the
        scorer (the largest wins; for its ``..._difference`` the smallest).
        ``"excessive_risk_gap"`` and ``"privacy_cost_gap"`` are the papers' names of the
        differences.
    at_least : dict of str to float or None, default=None
        Lower bounds on mean scores, such as ``{"accuracy": 0.8}``. Without a bound, a constant
        model may win a comparison of groups.
    metric : str or None, default=None
        The scorer's metric from which costs and gaps are computed; None is ``"neg_log_loss"`` for
        the excessive risk, and ``"accuracy"`` otherwise.

    Raises
    ------
    TypeError, ValueError
        If ``column`` or ``at_least`` has another form; after the fits of the search, if a score
        does not exist or no candidate meets the bounds. scikit-learn then discards the search: to
        select afterwards, set ``refit=False`` and call ``select_by(...)(search.cv_results_)``.

    Notes
    -----
    The reference model is never selected. Selection by scores on private records is not private.

    Examples
    --------
    >>> from skdpfair.model_selection import select_by
    >>> results = {
    ...     "params": [{"epsilon": None}, {"epsilon": 1.0}, {"epsilon": 2.0}],
    ...     "split0_test_accuracy": [0.9, 0.6, 0.8], "mean_test_accuracy": [0.9, 0.6, 0.8],
    ...     "split0_test_accuracy[F]": [0.9, 0.6, 0.7], "split0_test_accuracy[M]": [0.9, 0.6, 0.9],
    ... }
    >>> select_by("privacy_cost_difference")(results)
    1
    >>> select_by("privacy_cost_difference", at_least={"accuracy": 0.75})(results)
    2
    """

    def __init__(self, column="privacy_cost_difference", *, at_least=None, metric=None):
        if column in ("privacy_cost_gap", "excessive_risk_gap"):
            column = column.replace("_gap", "_difference")
        _check_form(column, at_least)
        self.column = column
        self.at_least = at_least
        self.metric = metric

    def __repr__(self):
        return f"select_by({self.column!r}, at_least={self.at_least!r}, metric={self.metric!r})"

    def __call__(self, results):
        """Return the row of ``cv_results_`` that wins."""
        loss = self._loss(results).dropna()
        if loss.empty:
            raise ValueError(f"No private candidate has a {self.column!r}: all are NaN.")
        best = {}
        for key, least in (self.at_least or {}).items():
            scores = pd.Series(_mean_score(results, key, "at_least"))
            best[key] = f"{scores[private_rows(results)].max():.4g}"
            loss = loss[scores[loss.index] >= least]
        if loss.empty:
            raise ValueError(
                f"No private candidate reaches at_least={self.at_least!r}. The best values are "
                f"{', '.join(f'{key}: {value}' for key, value in best.items())}. Lower the bounds, "
                "or add candidates to the grid. To keep the scores, set refit=False and call "
                "select_by(...)(search.cv_results_) after the search."
            )
        return int(loss.idxmin())

    def _loss(self, results):
        name = next((n for n in _TABLES if self.column.startswith(n)), None)
        rows = private_rows(results)
        if name is None or f"mean_test_{self.column}" in results:
            scores = pd.Series(_mean_score(results, self.column, "column"))
            negated = self.column.removeprefix("neg_").startswith(tuple(_TABLES))
            is_loss = name is not None or (self.column.endswith("_difference") and not negated)
            values = scores if is_loss else -scores
        else:
            metric = self.metric or ("neg_log_loss" if name == "excessive_risk" else "accuracy")
            values = self._of(_TABLES[name](results, metric))
        return (values.abs() if name == "dg_gap" else values)[rows]

    def _of(self, table):
        if self.column not in table:
            columns = [c for c in table if c.startswith(self.column[:6])]
            raise ValueError(f"column must be one of {columns}, got {self.column!r}.")
        return table[self.column]


def _check_form(column, at_least):
    if not isinstance(column, str):
        raise TypeError(f"column must be a text such as 'privacy_cost_difference', got {column!r}.")
    for table in _TABLES:
        worst = "_worst_group" if table == "dg_gap" else "_group_max"
        pattern = rf"{table}(_difference|{worst}|\[.+\])?"
        if column.startswith(table) and not re.fullmatch(pattern, column, re.S):
            raise ValueError(
                f"column must be '{table}', '{table}_difference', '{table}{worst}' or "
                f"'{table}[GROUP]', got {column!r}."
            )
    if at_least is not None and not isinstance(at_least, Mapping):
        raise TypeError(
            f"at_least must be a dict from scores to lower bounds, got {at_least!r}. Pass for "
            'example {"accuracy": 0.8}.'
        )
    for value in (at_least or {}).values():
        number("at_least", value)


_TABLES = {
    "privacy_cost": privacy_cost_table,
    "excessive_risk": excessive_risk_table,
    "dg_gap": dg_gap_table,
}


def _mean_score(results, key, name):
    if f"mean_test_{key}" not in results:
        known = [k[len("mean_test_") :] for k in results if k.startswith("mean_test_")]
        derived = (
            f", or of the tables, {', '.join(map(repr, _TABLES))}, and their '..._difference' "
        )
        derived = "" if name == "at_least" else f"{derived}and '...[GROUP]'"
        raise ValueError(f"{name} must name a score of the search, {known}{derived}, got {key!r}.")
    return results[f"mean_test_{key}"]


def _results(search):
    results = getattr(search, "cv_results_", search)
    if hasattr(search, "fit") and results is search:
        raise NotFittedError(
            f"This {type(search).__name__} has no cv_results_ yet. Call fit(X, y) first."
        )
    if not isinstance(results, Mapping) or "params" not in results:
        raise TypeError(
            "search must be a fitted search, or its cv_results_, got "
            f"{type(search).__name__}. Pass a search fitted with scoring=GroupScorer(...)."
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
    table[f"{name}_difference"] = difference(by_group)
    return table


def _params_table(results, rows):
    """Return the candidates' parameters, by their last names where these differ."""
    keys = dict.fromkeys(key for params in results["params"] for key in params)
    last = [key.rpartition("__")[2] for key in keys]
    names = {k: n if last.count(n) == 1 else k for k, n in zip(keys, last, strict=True)}
    params = [{names[k]: v for k, v in results["params"][i].items()} for i in rows]
    table = pd.DataFrame(params, index=pd.Index(rows, name="row"))
    references = [i for i in rows if _is_reference(results["params"][i])]
    for name, value in {"epsilon": np.inf, "method": "reference"}.items():
        if references and name in table:
            table.loc[references, name] = value
    return table


def _budget(params):
    """Return the privacy parameters of a candidate, by their last name."""
    last = {key.rpartition("__")[2]: value for key, value in params.items()}
    return {name: last[name] for name in _BUDGETS if name in last}


def private_rows(results):
    """Return the rows of the private candidates."""
    rows = [i for i, p in enumerate(results["params"]) if not _is_reference(p)]
    if not rows:
        raise ValueError("The search has no private candidate. Add finite values of epsilon.")
    return rows


def _is_reference(params):
    budget = _budget(params)
    return "epsilon" in budget and all(value is None for value in budget.values())


def _references(results):
    """Return, for each private row, that of its reference: all else equal, as far as named."""
    params = results["params"]
    references = [i for i, p in enumerate(params) if _is_reference(p)]
    if not references:
        raise ValueError(
            "The search has no reference model to compare with. Add a candidate without privacy to "
            'the grid: param_grid=[{...}, {"epsilon": [None]}], with the prefix of the step in a '
            "pipeline."
        )
    found = {i: _reference_of(results, i, references) for i in private_rows(results)}
    return {i: reference for i, reference in found.items() if reference is not None}


def _reference_of(results, row, references):
    """Return the reference that agrees with a row, or None: a halving search drops some."""
    halving = results.get("iter")
    agreeing = [
        r
        for r in references
        if (halving is None or halving[r] == halving[row])
        and _same(results["params"][row], results["params"][r], but=("method", *_BUDGETS))
    ]
    # the reference of every private method is plain SGD: prefer that which names the same method
    named = [r for r in agreeing if _same(results["params"][row], results["params"][r], _BUDGETS)]
    best = _of_one_network(results, row, named or agreeing)
    if len(best) > 1:
        raise ValueError(
            f"Rows {best} of the search are all references of row {row}, {results['params'][row]}. "
            "Keep one of them, or set all searched parameters in each reference."
        )
    return best[0] if best else None


def _of_one_network(results, row, references):
    """Return the references with as many weights as a row; one of those that are the same model."""
    if not references or "split0_test_n_weights" not in results:
        return references
    params, weights = results["params"], _folds(results, "test", "n_weights")
    alike = [r for r in references if not np.any(np.abs(weights[r] - weights[row]) > 0)]
    if not alike:
        low, high = (np.nanmax(weights[i]) for i in (row, references[0]))
        raise ValueError(
            f"Row {row} of the search, {params[row]}, has a network of {low:.0f} weights, and its "
            f'reference, row {references[0]}, one of {high:.0f}: what "auto" means depends on '
            "epsilon. Set module in all candidates, or add the reference of this network: "
            '{"epsilon": [None], "module": ["logistic"]}.'
        )
    return (
        alike[:1] if all(_same(params[alike[0]], params[r], ("module",)) for r in alike) else alike
    )


def _same(one, other, but):
    """Return whether two candidates agree in all that both name, except ``but``."""
    shared = [k for k in one if k in other and k.rpartition("__")[2] not in but]
    return all(one[k] is other[k] or repr(one[k]) == repr(other[k]) for k in shared)
