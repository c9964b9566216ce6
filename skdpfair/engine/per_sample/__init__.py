"""Norms and weighted sums of per-record gradients, by the cheapest strategy that is exact."""

from skdpfair.engine.per_sample.closed_form import ClosedForm, forward_of, linear_layers
from skdpfair.engine.per_sample.records import (
    GradientMatrix,
    Gradients,
    Strategy,
    capped,
    in_two_passes,
)
from skdpfair.engine.per_sample.selection import select_strategy

__all__ = [
    "ClosedForm",
    "GradientMatrix",
    "Gradients",
    "Strategy",
    "capped",
    "forward_of",
    "in_two_passes",
    "linear_layers",
    "select_strategy",
]
