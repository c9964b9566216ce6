"""A choice among the candidates of a search, for refit=."""

import pandas as pd

from skdpfair.model_selection._tables import dg_gap_table, privacy_cost_table, private_rows


class select_by:
    """Choose, as ``refit=`` of a search, the private candidate that is best by one column.

    Parameters
    ----------
    column : str, default="privacy_cost_gap"
        A column of `privacy_cost_table` or `dg_gap_table` (the one nearest to 0 wins for
        ``dg_gap...``, the smallest for all others), or a key of the scorer (the largest wins; the
        smallest for its ``..._gap``).
    at_least : dict of str to float or None, default=None
        Bounds on mean scores, such as ``{"accuracy": 0.8}``. Without one, a model that always
        answers the same may win a comparison of groups.
    metric : str, default="accuracy"
        The scorer's metric that costs and gaps are of.

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
    >>> select_by("privacy_cost_gap")(results)
    1
    >>> select_by("privacy_cost_gap", at_least={"accuracy": 0.75})(results)
    2
    """

    def __init__(self, column="privacy_cost_gap", *, at_least=None, metric="accuracy"):
        self.column, self.at_least, self.metric = column, at_least, metric

    def __repr__(self):
        return f"select_by({self.column!r}, at_least={self.at_least!r}, metric={self.metric!r})"

    def __call__(self, results):
        """Return the row of ``cv_results_`` that wins."""
        loss = self._loss(results)
        for key, least in (self.at_least or {}).items():
            scores = pd.Series(_mean_score(results, key, "at_least"))
            loss = loss[scores[loss.index] >= least]
        loss = loss.dropna()
        if loss.empty:
            raise ValueError(
                f"No private candidate has a {self.column!r} and at_least={self.at_least!r}. Lower "
                "the bounds, or add candidates to the grid."
            )
        return int(loss.idxmin())

    def _loss(self, results):
        if self.column.startswith("privacy_cost"):
            return self._of(privacy_cost_table(results, self.metric))
        if self.column.startswith("dg_gap"):
            return self._of(dg_gap_table(results, self.metric)).abs()[private_rows(results)]
        scores = pd.Series(_mean_score(results, self.column, "column"))
        return (scores if self.column.endswith("_gap") else -scores)[private_rows(results)]

    def _of(self, table):
        if self.column not in table:
            columns = [c for c in table if c.startswith(self.column[:6])]
            raise ValueError(f"column must be one of {columns}, got {self.column!r}.")
        return table[self.column]


def _mean_score(results, key, name):
    if f"mean_test_{key}" not in results:
        known = [k[len("mean_test_") :] for k in results if k.startswith("mean_test_")]
        raise ValueError(f"{name} must name a score of the search, {known}, got {key!r}.")
    return results[f"mean_test_{key}"]
