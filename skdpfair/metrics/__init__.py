"""Privacy cost, excessive risk, generalisation gaps, bounds and private tables.

Measures of records are not private. `fairlearn.metrics.MetricFrame` takes those of a group. Errors
(ValueError, TypeError) name the argument that does not fit: arrays have one entry per label.

"Esipova et al." is M. Esipova et al., "Disparate Impact in Differential Privacy from Gradient
Misalignment", ICLR 2023; "Kulynych et al." is B. Kulynych et al., "What You See is What You Get:
Principled Deep Learning via Distributional Generalization", NeurIPS 2022.
"""

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
    privacy_cost_difference,
    privacy_cost_group_max,
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
    "expected_calibration_error",
    "group_table",
    "own_class_probability",
    "privacy_cost",
    "privacy_cost_difference",
    "privacy_cost_group_max",
    "release_group_table",
    "strong_dg_bound",
    "tv_bound",
]
