"""Privacy cost, excessive risk, generalisation gap, and tables of groups, exact or private.

Measures of records are not private. `fairlearn.metrics.MetricFrame` takes those of a group, and
`fairlearn.metrics.make_derived_metric` their differences. Errors (ValueError, TypeError) name the
argument that does not fit: arrays have one entry per label.

"Esipova et al." is M. Esipova et al., "Disparate Impact in Differential Privacy from Gradient
Misalignment", ICLR 2023; "Kulynych et al." is B. Kulynych et al., "What You See is What You Get:
Principled Deep Learning via Distributional Generalization", NeurIPS 2022.
"""

from skdpfair.metrics._comparisons import dg_gap, excessive_risk, privacy_cost
from skdpfair.metrics._group_tables import group_table, release_group_table

__all__ = ["dg_gap", "excessive_risk", "group_table", "privacy_cost", "release_group_table"]
