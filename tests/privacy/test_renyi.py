"""Private selection against an independent accountant and against simulation."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.dp_event import (
    GaussianDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.rdp import RdpAccountant

from skdpfair.privacy.renyi import (
    ORDERS,
    check_law,
    curve_epsilon,
    free_score_noise,
    rdp_curve,
    selection_curve,
)

from .builders import run

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_privacy.json"
CASES = json.loads(GOLDEN.read_text())["selection_cases"]
RUN = run(0.01, 1.0, steps=1000)


def selection_epsilon(releases, mean, shape, delta, score_noise=math.inf):
    """Return the epsilon of a search whose score reads records that no trial trains on."""
    curve = np.maximum(rdp_curve(releases), rdp_curve([run(1.0, score_noise)]))
    return curve_epsilon(selection_curve(curve, mean, shape), delta)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_selection_curve_has_the_golden_epsilon(case):
    own = run(case["q"], case["sigma_grad"], steps=case["T"])
    value = selection_epsilon([own], case["mean_trials"], float(case["shape"]), case["delta"])
    assert value == pytest.approx(case["epsilon_rdp"], abs=1e-3)
    alone = curve_epsilon(rdp_curve([own]), case["delta"])
    assert alone == pytest.approx(case["epsilon_rdp_single"], abs=1e-3)


@pytest.mark.parametrize("shape", [0.0, 0.3, 1.0, 5.0, math.inf])
@pytest.mark.parametrize("mean", [1.5, 10.0, 300.0])
@pytest.mark.parametrize("q, sigma, steps", [(0.01, 1.0, 1000), (1.0, 4.0, 3), (0.1, 0.7, 40)])
def test_selection_curve_agrees_with_the_event_of_dp_accounting(q, sigma, steps, mean, shape):
    step = PoissonSampledDpEvent(q, GaussianDpEvent(sigma))
    accountant = RdpAccountant()
    event = SelfComposedDpEvent(step, steps)
    accountant.compose(RepeatAndSelectDpEvent(event, mean, shape))
    golden = accountant.get_epsilon(1e-6)
    # the theorem for the Poisson law is tightened here by monotonicity, as the others are
    found = selection_epsilon([run(q, sigma, steps=steps)], mean, shape, 1e-6)
    assert golden * 0.98 <= found <= golden + 1e-6


def test_free_score_noise_costs_nothing_beside_the_larger_curve():
    train = rdp_curve([RUN])
    free = free_score_noise(train)
    silent = selection_epsilon([RUN], 10.0, 1.0, 1e-5)
    assert selection_epsilon([RUN], 10.0, 1.0, 1e-5, score_noise=free) == silent
    loud = selection_epsilon([RUN], 10.0, 1.0, 1e-5, score_noise=free / 4)
    both = [RUN, run(1.0, free / 4)]
    assert silent < loud < selection_epsilon(both, 10.0, 1.0, 1e-5)


def test_selection_curve_without_noise_is_infinite():
    assert selection_epsilon([run(0.1, 0.0, steps=3)], 10.0, 1.0, 1e-5) == math.inf
    assert np.isinf(selection_curve(np.full_like(ORDERS, np.inf), 3.0, math.inf)).all()


@pytest.mark.parametrize(
    "name, mean, shape",
    [
        *(("mean_trials", mean, 1.0) for mean in (0.5, 1.0)),
        # laws that cannot be drawn from in time
        *(("mean_trials", 1e308, 1.0), ("mean_trials", 10**30, math.inf)),
        *(("shape", 3.0, shape) for shape in (-1.0, 5e-324, 2**63, 1e308)),
    ],
)
def test_check_law_refuses_by_name(name, mean, shape):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        check_law(mean, shape)
