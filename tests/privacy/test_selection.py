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

from skdpfair.privacy import NoisyRelease
from skdpfair.privacy.renyi import (
    ORDERS,
    curve_epsilon,
    free_score_noise,
    rdp_curve,
    selection_curve,
    stop_parameter,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_privacy.json"
CASES = json.loads(GOLDEN.read_text())["selection_cases"]
RUN = NoisyRelease("steps", 0.01, (1.0,), 1000)


def selection_epsilon(releases, mean, shape, delta, score_noise=math.inf):
    """Return the epsilon of a search whose score reads records that no trial trains on."""
    curve = np.maximum(rdp_curve(releases), rdp_curve([NoisyRelease("score", 1.0, (score_noise,))]))
    return curve_epsilon(selection_curve(curve, mean, shape), delta)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_golden(case):
    run = NoisyRelease("steps", case["q"], (case["sigma_grad"],), case["T"])
    value = selection_epsilon([run], case["mean_trials"], float(case["shape"]), case["delta"])
    assert value == pytest.approx(case["epsilon_rdp"], abs=1e-3)
    alone = curve_epsilon(rdp_curve([run]), case["delta"])
    assert alone == pytest.approx(case["epsilon_rdp_single"], abs=1e-3)


@pytest.mark.parametrize("shape", [0.0, 0.3, 1.0, 5.0, math.inf])
@pytest.mark.parametrize("mean", [1.5, 10.0, 300.0])
@pytest.mark.parametrize("q, sigma, steps", [(0.01, 1.0, 1000), (1.0, 4.0, 3), (0.1, 0.7, 40)])
def test_agrees_with_the_event_of_dp_accounting(q, sigma, steps, mean, shape):
    run = NoisyRelease("steps", q, (sigma,), steps)
    step = PoissonSampledDpEvent(q, GaussianDpEvent(sigma))
    accountant = RdpAccountant()
    event = SelfComposedDpEvent(step, steps)
    accountant.compose(RepeatAndSelectDpEvent(event, mean, shape))
    golden = accountant.get_epsilon(1e-6)
    # the theorem for the Poisson law is tightened here by monotonicity, as the others are
    assert golden * 0.98 <= selection_epsilon([run], mean, shape, 1e-6) <= golden + 1e-6


@pytest.mark.parametrize("shape", [0.0, 0.3, 1.0, 4.0])
def test_stop_parameter_has_the_mean_asked_for(shape):
    gamma = stop_parameter(7.0, shape)
    terms, mass, mean = 1.0, 0.0, 0.0
    for k in range(1, 4000):
        terms *= (1 - gamma) * ((k - 1 + shape) / k if k > 1 or shape else 1.0)
        mass, mean = mass + terms, mean + k * terms
    assert mean / mass == pytest.approx(7.0, rel=1e-6)


def test_a_score_on_other_records_costs_the_larger_curve_only():
    train = rdp_curve([RUN])
    free = free_score_noise(train)
    silent = selection_epsilon([RUN], 10.0, 1.0, 1e-5)
    assert selection_epsilon([RUN], 10.0, 1.0, 1e-5, score_noise=free) == silent
    loud = selection_epsilon([RUN], 10.0, 1.0, 1e-5, score_noise=free / 4)
    both = [RUN, NoisyRelease("steps", 1.0, (free / 4,), 1)]
    assert silent < loud < selection_epsilon(both, 10.0, 1.0, 1e-5)


def test_without_noise_nothing_is_private():
    assert selection_epsilon([NoisyRelease("steps", 0.1, (0.0,), 3)], 10.0, 1.0, 1e-5) == math.inf
    assert np.isinf(selection_curve(np.full_like(ORDERS, np.inf), 3.0, math.inf)).all()
