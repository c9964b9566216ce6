"""Shares of the groups in the population, and sampling rates that balance them."""

from numbers import Real

import torch

SUM_TOLERANCE = 1e-6


def declared(probabilities, n_groups):
    """Return ``group_probabilities`` as a tensor, shape (n_groups,), or None if not given.

    Raises
    ------
    ValueError
        If it does not name each group, or is no distribution.
    """
    if probabilities is None:
        return None
    values = list(probabilities)
    if len(values) != n_groups:
        raise ValueError(
            f"group_probabilities={probabilities!r} has {len(values)} values for {n_groups} "
            "groups. Give one for each group, in the order of groups_ (sorted, or as declared "
            "by groups=)."
        )
    if not all(isinstance(v, Real) and 0 < v <= 1 for v in values):
        raise ValueError(f"group_probabilities must lie in (0, 1], got {probabilities!r}.")
    if abs(sum(values) - 1.0) > SUM_TOLERANCE:
        raise ValueError(
            f"group_probabilities={probabilities!r} sum to {sum(values):.6g}; they are shares of "
            "the population and must sum to 1."
        )
    return torch.tensor(values, dtype=torch.float64)


def balancing_rates(task, fractions, cap=1.0):
    """Return rates under which all groups are drawn equally often, q / (K q_k), at most ``cap``."""
    return (task.sample_rate / (task.n_groups * fractions.double())).clamp(max=cap)
