"""What privacy costs, and how unequally the groups pay; per-group ones fit fairlearn's frames."""

from skdpfair.metrics._bootstrap import bootstrap_interval, paired_wilcoxon
from skdpfair.metrics._bounds import dg_bound, tv_bound
from skdpfair.metrics._calibration import calibration_gap
from skdpfair.metrics._derived import (
    excessive_risk_gap,
    excessive_risk_ratio,
    excessive_risk_worst_group,
    privacy_cost_gap,
    privacy_cost_ratio,
    privacy_cost_worst_group,
)
from skdpfair.metrics._dg import dg_gap, dg_gap_by_group, dg_gap_worst_group
from skdpfair.metrics._disparity import accuracy_disparity
from skdpfair.metrics._excessive_risk import excessive_risk, own_class_probability
from skdpfair.metrics._privacy_cost import privacy_cost
from skdpfair.metrics._release import release_group_table
from skdpfair.metrics._table import group_table

__all__ = [
    "accuracy_disparity",
    "bootstrap_interval",
    "calibration_gap",
    "dg_bound",
    "dg_gap",
    "dg_gap_by_group",
    "dg_gap_worst_group",
    "excessive_risk",
    "excessive_risk_gap",
    "excessive_risk_ratio",
    "excessive_risk_worst_group",
    "group_table",
    "own_class_probability",
    "paired_wilcoxon",
    "privacy_cost",
    "privacy_cost_gap",
    "privacy_cost_ratio",
    "privacy_cost_worst_group",
    "release_group_table",
    "tv_bound",
]
