"""What privacy costs, and how unequally the groups pay; all usable in fairlearn's MetricFrame."""

from skdpfair.metrics._disparity import accuracy_disparity
from skdpfair.metrics._excessive_risk import (
    excessive_risk,
    excessive_risk_gap,
    own_class_probability,
)
from skdpfair.metrics._privacy_cost import privacy_cost, privacy_cost_gap
from skdpfair.metrics._table import group_table

__all__ = [
    "accuracy_disparity",
    "excessive_risk",
    "excessive_risk_gap",
    "group_table",
    "own_class_probability",
    "privacy_cost",
    "privacy_cost_gap",
]
