"""A choice among the candidates of a search, for refit=."""

import re
from collections.abc import Mapping

import pandas as pd

from skdpfair._validate import number
from skdpfair.model_selection._tables import dg_gap_table, privacy_cost_table, private_rows


class select_by:
    """Choose, as ``refit=`` of a search, the private candidate that is best by one column.

    Parameters
    ----------
    column : str, default="privacy_cost_difference"
        A column of `privacy_cost_table` or `dg_gap_table` (the one nearest to 0 wins for
        ``dg_gap...``, the smallest for all others), or a key of the scorer (the largest wins; the
        smallest for its ``..._difference``).
    at_least : dict of str to float or None, default=None
        Bounds on mean scores, such as ``{"accuracy": 0.8}``. Without one, a model that always
        answers the same may win a comparison of groups.
    metric : str, default="accuracy"
        The scorer's metric that costs and gaps are of.

    Raises
    ------
    TypeError, ValueError
        If ``column`` or ``at_least`` has no such form; in the search, after its fits, if there is
        no such score, or no candidate meets the bounds. scikit-learn then keeps nothing of the
        search: set ``refit=False`` to choose afterwards, by ``select_by(...)(search.cv_results_)``.

    Notes
    -----
    The twin is never chosen. Choosing by scores on private records is not private.

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

    def __init__(self, column="privacy_cost_difference", *, at_least=None, metric="accuracy"):
        _check_form(column, at_least)
        self.column, self.at_least, self.metric = column, at_least, metric

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
                "or add candidates to the grid; refit=False keeps the scores of a search, from "
                "which select_by(...)(search.cv_results_) chooses afterwards."
            )
        return int(loss.idxmin())

    def _loss(self, results):
        if self.column.startswith("privacy_cost"):
            return self._of(privacy_cost_table(results, self.metric))
        if self.column.startswith("dg_gap"):
            return self._of(dg_gap_table(results, self.metric)).abs()[private_rows(results)]
        scores = pd.Series(_mean_score(results, self.column, "column"))
        return (scores if self.column.endswith("_difference") else -scores)[private_rows(results)]

    def _of(self, table):
        if self.column not in table:
            columns = [c for c in table if c.startswith(self.column[:6])]
            raise ValueError(f"column must be one of {columns}, got {self.column!r}.")
        return table[self.column]


def _check_form(column, at_least):
    if not isinstance(column, str):
        raise TypeError(f"column must be a text such as 'privacy_cost_difference', got {column!r}.")
    for table in ("privacy_cost", "dg_gap"):
        pattern = rf"{table}(_difference|\[.+\])?"
        if column.startswith(table) and not re.fullmatch(pattern, column, re.S):
            raise ValueError(
                f"column must be '{table}', '{table}_difference' or '{table}[GROUP]', got "
                f"{column!r}."
            )
    if at_least is not None and not isinstance(at_least, Mapping):
        raise TypeError(
            f"at_least must be a dict from scores to least values, got {at_least!r}. Pass for "
            'instance {"accuracy": 0.8}.'
        )
    for value in (at_least or {}).values():
        number("at_least", value)


def _mean_score(results, key, name):
    if f"mean_test_{key}" not in results:
        known = [k[len("mean_test_") :] for k in results if k.startswith("mean_test_")]
        derived = (
            ""
            if name == "at_least"
            else (
                ", or of the tables, 'privacy_cost', 'dg_gap', and their '..._difference' and "
                "'...[GROUP]'"
            )
        )
        raise ValueError(f"{name} must name a score of the search, {known}{derived}, got {key!r}.")
    return results[f"mean_test_{key}"]
