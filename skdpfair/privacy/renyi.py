"""Renyi divergence curves: composition, epsilon, and the cost of private selection.

The selection theorem is that of Papernot and Steinke, "Hyperparameter Tuning with Renyi
Differential Privacy", 2022.
"""

import logging
import math
from collections.abc import Iterable
from functools import lru_cache

import dp_accounting as dpa
import numpy as np
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import (
    DEFAULT_RDP_ORDERS,
    compute_delta,
    compute_epsilon,
)

from skdpfair._utils.validate import number
from skdpfair.privacy.releases import Release, Run, merged

ORDERS = np.asarray(DEFAULT_RDP_ORDERS, dtype=np.float64)


def rdp_curve(releases: Iterable[Release]) -> np.ndarray:
    """Return the Renyi divergence of the composition of ``releases`` at each of ``ORDERS``.

    Curves of mechanisms that run one after the other add up; for two mechanisms of which a
    record meets only one, known beforehand, the larger value at each order holds.
    """
    return curve_of(merged(releases))


def curve_of(runs: Iterable[Run]) -> np.ndarray:
    """Return `rdp_curve` of merged releases.

    Of several records of a person, all count whenever any is sampled, an upper bound.
    """
    total = np.zeros_like(ORDERS)
    for rate, noise_multiplier, steps, records in runs:
        if records > 1 and rate < 1:
            rate = -math.expm1(records * math.log1p(-rate))
        total = total + steps * _step_curve(rate, noise_multiplier / records)
    return total


@lru_cache(maxsize=1024)  # the trials of a search differ in little else than learning rates
def _step_curve(sample_rate: float, noise_multiplier: float) -> np.ndarray:
    if noise_multiplier == 0:
        return np.full_like(ORDERS, np.inf)
    accountant = RdpAccountant(ORDERS)
    event = dpa.GaussianDpEvent(noise_multiplier)
    if sample_rate < 1:
        event = dpa.PoissonSampledDpEvent(sample_rate, event)
    with np.errstate(all="ignore"):
        accountant.compose(event)
    curve = np.asarray(accountant.rdp, dtype=np.float64)
    return np.where(np.isnan(curve), np.inf, np.maximum(curve, 0.0))


def curve_epsilon(curve: np.ndarray, delta: float) -> float:
    """Return the epsilon of a Renyi curve at ``delta``."""
    delta = number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    if not np.any(curve):
        return 0.0
    if not np.isfinite(curve).any():
        return math.inf
    usable = np.isfinite(curve)
    value = compute_epsilon(ORDERS[usable], curve[usable], delta)[0]
    return float(max(value, rdp_floor(delta)))


def curve_delta(curve: np.ndarray, epsilon: float) -> float:
    """Return the delta of a Renyi curve at ``epsilon``."""
    usable = np.isfinite(curve)
    if not usable.any():
        return 1.0
    return float(np.clip(compute_delta(ORDERS[usable], curve[usable], epsilon)[0], 0.0, 1.0))


def rdp_floor(delta: float) -> float:
    """Return the least epsilon that finitely many Renyi orders can certify at ``delta``."""
    return float(np.min(np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1)).clip(0))


# the library notes that it leaves out orders, which only loosens the bound
logging.getLogger("absl").addFilter(lambda note: note.module != "rdp_privacy_accountant")


def selection_curve(curve: np.ndarray, mean_trials: float) -> np.ndarray:
    """Return the Renyi curve of releasing the best of a Poisson number of independent trials.

    ``curve`` is that of one trial, its score included.  With e(a) this curve, Theorem 6 of the
    paper gives ``e(a) + mean * d(a) + log(mean) / (a - 1)``, where a trial is
    (log(1 + 1/(a-1)), d(a))-DP.  A Renyi divergence grows with its order, so that the least value
    at any larger order holds as well.
    """
    # more could not be drawn in time
    mean = number("mean_trials", mean_trials, low=1, high=1e6)
    if not np.isfinite(curve).any():
        return np.full_like(ORDERS, np.inf)
    deltas = [curve_delta(curve, math.log1p(1 / (a - 1))) for a in ORDERS]
    whole = curve + mean * np.array(deltas) + math.log(mean) / (ORDERS - 1)
    return np.minimum.accumulate(whole[::-1])[::-1]


def free_score_noise(curve: np.ndarray) -> float:
    """Return the least noise at which a score on held-out records costs no more than ``curve``."""
    finite = np.isfinite(curve)
    least = float(np.min(curve[finite] / ORDERS[finite]))
    return math.inf if least == 0 else math.sqrt(0.5 / least)
