"""Shares of the groups in the population, and sampling rates that balance them."""

import abc
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skdpfair._utils.validate import listed, number, safe_repr
from skdpfair.engine.mechanism import Method, Task


def declared(probabilities: Any, n_groups: int) -> Tensor | None:
    """Return ``group_probabilities`` as a tensor, shape (n_groups,), or None if not given."""
    if probabilities is None:
        return None
    values = [
        number("group_probabilities", v, low=0, high=1, low_open=True)
        for v in listed("group_probabilities", probabilities, "one share for each group")
    ]
    if len(values) != n_groups or not math.isclose(sum(values), 1.0, abs_tol=1e-6):
        raise ValueError(
            f"group_probabilities={safe_repr(probabilities)} must be one share for each of the "
            f"{n_groups} groups, in the order of levels_ (sorted, or as declared by Groups), and "
            "sum to 1."
        )
    return torch.tensor(values, dtype=torch.float64)


@dataclass(kw_only=True, repr=False, eq=False)
class MethodByFractions(Method, abc.ABC):
    """A method that balances groups by their shares.

    Parameters
    ----------
    group_probabilities : sequence of float or None, default=None
        Public shares :math:`q_k`, in the order of the groups.  None counts them, with noise if the
        method is private.
    """

    group_probabilities: object = None

    needs_groups = True
    needs_group_fractions = True
    _parameter_constraints = {"group_probabilities": ["array-like", tuple, None]}

    def group_fractions(self, task: Task) -> Tensor | None:
        """Return the shares, as declared or counted, or None before they are known."""
        fractions = declared(self.group_probabilities, task.n_groups)
        return task.group_fractions if fractions is None else fractions


def balancing_rates(task: Task, fractions: Tensor, cap: float = 1.0) -> Tensor:
    """Return rates under which all groups are drawn equally often, q / (K q_k), at most ``cap``."""
    return (task.sample_rate / (task.n_groups * fractions.double())).clamp(max=cap)
