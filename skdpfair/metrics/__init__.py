"""Privacy cost, excessive risk, generalisation gaps, bounds, intervals and private tables.

Measures of records are not private. `fairlearn.metrics.MetricFrame` takes those of a group.
"""

from skdpfair.metrics._bootstrap import bootstrap_interval, paired_wilcoxon
from skdpfair.metrics._bounds import (
    calibration_bound,
    dg_bound,
    dg_bound_from_epsilon,
    strong_dg_bound,
    tv_bound,
)
from skdpfair.metrics._derived import (
    accuracy_difference,
    excessive_risk_difference,
    excessive_risk_group_max,
    excessive_risk_ratio,
    privacy_cost_difference,
    privacy_cost_group_max,
    privacy_cost_ratio,
)
from skdpfair.metrics._excessive_risk import excessive_risk, own_class_probability
from skdpfair.metrics._generalisation import (
    calibration_gap,
    dg_gap,
    dg_gap_by_group,
    dg_gap_worst_group,
)
from skdpfair.metrics._group_tables import group_table, release_group_table
from skdpfair.metrics._measures import expected_calibration_error
from skdpfair.metrics._privacy_cost import privacy_cost

__all__ = [
    "accuracy_difference",
    "bootstrap_interval",
    "calibration_bound",
    "calibration_gap",
    "dg_bound",
    "dg_bound_from_epsilon",
    "dg_gap",
    "dg_gap_by_group",
    "dg_gap_worst_group",
    "excessive_risk",
    "excessive_risk_difference",
    "excessive_risk_group_max",
    "excessive_risk_ratio",
    "expected_calibration_error",
    "group_table",
    "own_class_probability",
    "paired_wilcoxon",
    "privacy_cost",
    "privacy_cost_difference",
    "privacy_cost_group_max",
    "privacy_cost_ratio",
    "release_group_table",
    "strong_dg_bound",
    "tv_bound",
]
