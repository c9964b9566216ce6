"""Steps in which a record has one of several rates and sensitivities, by earlier releases."""

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm

from skdpfair.privacy import compute_epsilon
from skdpfair.privacy.accounting import delta_curve
from skdpfair.privacy.releases import merged

from .builders import run

RARE, OFTEN = (0.05, 1.0), (0.2, 0.28)
STEP = run(0.2, 1.2, strata=(RARE, OFTEN))
DELTA = 1e-5


def plain(stratum):
    rate, factor = stratum
    return run(rate, 1.2 / factor)


def test_delta_curve_of_a_step_is_that_of_its_worst_stratum():
    epsilons = np.linspace(0, 2, 9)
    worst, *each = (
        delta_curve(merged([release]), epsilons, 1) for release in (STEP, plain(RARE), plain(OFTEN))
    )
    np.testing.assert_allclose(worst, np.max(each, axis=0), rtol=2e-3, atol=1e-13)
    assert (each[0] > 1.1 * each[1]).any() and (each[1] > 1.1 * each[0]).any()


def test_compute_epsilon_of_strata_covers_every_order_of_them():
    steps = [replace(STEP, steps=6)]
    claimed = min(compute_epsilon(steps, DELTA, name) for name in ("pld", "prv", "rdp"))
    for sequence in combinations_with_replacement((RARE, OFTEN), 6):
        spent = PLDAccountant(value_discretization_interval=1e-3)
        for rate, factor in sequence:
            spent.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(1.2 / factor)))
        assert spent.get_epsilon(DELTA) <= claimed * 1.001


def test_delta_curve_covers_a_stratum_that_an_earlier_release_chooses():
    """Two steps by quadrature; the second one's stratum is the worse, given the first output."""
    x, y = np.linspace(-12, 13, 1501), np.linspace(-30, 31, 3001)
    cell = (x[1] - x[0]) * (y[1] - y[0])

    def densities(stratum, at):
        rate, factor = stratum
        without = norm.pdf(at, 0, 1.2 / factor)
        return rate * norm.pdf(at, 1, 1.2 / factor) + (1 - rate) * without, without

    first, second = densities(RARE, x), [densities(s, y) for s in (RARE, OFTEN)]
    for level in (0.05, 0.2, 0.5):
        spent = []
        for p in (0, 1):  # the record is removed, or added
            likely, unlikely = (np.outer(first[i], [1.0]) for i in (p, 1 - p))
            by_output = [
                np.maximum(likely * s[p] - np.exp(level) * unlikely * s[1 - p], 0).sum(1)
                for s in second
            ]
            spent.append(cell * np.max(by_output, axis=0).sum())
        (bound,) = delta_curve(merged([replace(STEP, steps=2)]), np.array([level]), 1)
        assert 0.7 * bound < max(spent) <= 1.001 * bound


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_records_of_a_person_may_be_in_any_strata(accountant):
    found = [compute_epsilon([r], DELTA, accountant, 3) for r in (STEP, replace(STEP, strata=None))]
    assert found[0] == found[1]


def test_compute_epsilon_of_a_stratum_with_rate_one():
    full, rare = (1.0, 0.2), (0.1, 1.0)
    claimed = compute_epsilon([run(1.0, 2.0, steps=20, strata=(rare, full))], DELTA)
    alone = [compute_epsilon([run(q, 2.0 / f, steps=20)], DELTA) for q, f in (rare, full)]
    assert max(alone) <= claimed <= 1.5 * max(alone)
