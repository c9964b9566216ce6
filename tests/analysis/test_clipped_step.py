"""Thresholds, shares and norms of the records that a method clips, record by record."""

import numpy as np
import pytest

from .problems import case, gradient, mechanism, risk_of

THRESHOLDS = {"dpsgd": 0.3, "global": 1.5, "global_adapt": 0.6, "dpsgd_f": None}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_weighed_step_has_the_thresholds_and_clipped_shares_of_the_method(name):
    module, x, y, groups = case()
    norms = np.array([gradient(module, x[i : i + 1], y[i : i + 1]).norm() for i in range(len(x))])
    found = risk_of(module, x, y, groups, mechanism(name)).groups
    for level, row in found.iterrows():
        own, threshold = norms[groups == level], THRESHOLDS[name]
        if name == "dpsgd_f":  # by the share of the group that is above .3
            ratio = np.mean(own > 0.3) / np.mean(norms > 0.3)
            threshold = 0.3 * (1 + min(ratio, 2.0))
        rel = 1e-6 if THRESHOLDS[name] else 1e-4
        assert row["threshold"] == pytest.approx(threshold, rel=rel)
        assert row["clipped_share"] == pytest.approx(np.mean(own > threshold))
        assert row["gradient_norm"] == pytest.approx(np.mean(own))
