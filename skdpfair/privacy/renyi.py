"""Renyi divergence curves: composition, epsilon, and the cost of private selection.

The selection theorems are those of Papernot and Steinke, "Hyperparameter Tuning with Renyi
Differential Privacy", 2022.
"""

import logging
import math
from collections.abc import Iterable
from functools import lru_cache

import dp_accounting as dpa
import numpy as np
from dp_accounting.rdp import rdp_privacy_accountant as rdp
from scipy.optimize import brentq

from skdpfair._utils.validate import number
from skdpfair.privacy.releases import MergedRelease, NoisyRelease, merged

ORDERS = np.asarray(rdp.DEFAULT_RDP_ORDERS, dtype=np.float64)
_MAX_TRIALS, _MIN_SHAPE, _MAX_SHAPE = 1e6, 1e-3, 1e3  # drawn from in time


def rdp_curve(releases: Iterable[NoisyRelease]) -> np.ndarray:
    """Return the Renyi divergence of the composition of ``releases`` at each of ``ORDERS``.

    Curves of mechanisms that run one after the other add up; if a record takes part in only one of
    two mechanisms, known beforehand, the larger value at each order holds.
    """
    return curve_of(merged(releases))


def curve_of(runs: Iterable[MergedRelease]) -> np.ndarray:
    """Return `rdp_curve` of merged releases.

    All records of a person count whenever one is sampled, which is an upper bound.
    """
    curves = (run.steps * np.max([_curve(v) for v in run.variants], axis=0) for run in runs)
    return sum(curves, np.zeros_like(ORDERS))


def _curve(run: MergedRelease) -> np.ndarray:
    """Return the curve of one step of a run without strata."""
    rate, records = run.sample_rate, run.records
    if records > 1 and rate < 1:
        rate = -math.expm1(records * math.log1p(-rate))
    return _step_curve(rate, run.noise_multiplier / records)


@lru_cache(maxsize=1024)  # the trials of a search differ in little else than learning rates
def _step_curve(sample_rate: float, noise_multiplier: float) -> np.ndarray:
    if noise_multiplier == 0:
        return np.full_like(ORDERS, np.inf)
    accountant = rdp.RdpAccountant(ORDERS)
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
    value = rdp.compute_epsilon(ORDERS[usable], curve[usable], delta)[0]
    return float(max(value, rdp_floor(delta)))


def curve_delta(curve: np.ndarray, epsilon: float) -> float:
    """Return the delta of a Renyi curve at ``epsilon``."""
    usable = np.isfinite(curve)
    if not usable.any():
        return 1.0
    return float(np.clip(rdp.compute_delta(ORDERS[usable], curve[usable], epsilon)[0], 0.0, 1.0))


def rdp_floor(delta: float) -> float:
    """Return the least epsilon that finitely many Renyi orders can certify at ``delta``."""
    return float(np.min(np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1)).clip(0))


# the library notes that it leaves out orders, which only loosens the bound
logging.getLogger("absl").addFilter(lambda note: note.module != "rdp_privacy_accountant")


def check_law(mean_trials: float, shape: float) -> tuple[float, float]:
    """Return the law of the number of trials as floats, or refuse it."""
    mean = number("mean_trials", mean_trials, low=1, high=_MAX_TRIALS)
    shape = number("shape", shape, low=0)
    if shape not in (0, math.inf) and not _MIN_SHAPE <= shape <= _MAX_SHAPE:
        raise ValueError(
            f"shape must be 0, infinite, or a number from {_MIN_SHAPE:g} to {_MAX_SHAPE:g}, "
            f"got {shape!r}. Outside this range, use 0 or infinity, which are almost the same."
        )
    if mean == 1 and shape < math.inf:
        raise ValueError(
            "mean_trials must be > 1 unless shape is infinite, got 1.0: exactly one trial needs "
            "no selection. Fit the estimator alone, or raise mean_trials."
        )
    return mean, shape


def selection_curve(curve: np.ndarray, mean_trials: float, shape: float) -> np.ndarray:
    """Return the Renyi curve of releasing the best of K independent trials.

    ``curve`` is that of one trial, its score included; ``mean_trials`` the mean of K; ``shape`` the
    kind of its law: infinity is Poisson, 1 geometric, 0 logarithmic, others truncated negative
    binomial.

    With e(a) the curve of a trial, Theorem 6 of the paper gives for the Poisson law
    ``e(a) + mean * d(a) + log(mean) / (a - 1)``, where a trial is (log(1 + 1/(a-1)), d(a))-DP.
    Theorem 2 gives for the others ``e(a) + log(mean) / (a - 1) + (1 + shape) min_b
    ((1 - 1/b) e(b) + log(1/gamma) / b)``.  A Renyi divergence grows with its order, so that the
    least value at any larger order holds as well.
    """
    mean, shape = check_law(mean_trials, shape)
    if not np.isfinite(curve).any():
        return np.full_like(ORDERS, np.inf)
    if shape == math.inf:
        deltas = [curve_delta(curve, math.log1p(1 / (a - 1))) for a in ORDERS]
        total = curve + mean * np.array(deltas) + math.log(mean) / (ORDERS - 1)
    else:
        stop = math.log(1 / stop_parameter(mean, shape))
        constant = (1 + shape) * np.min((1 - 1 / ORDERS) * curve + stop / ORDERS)
        total = curve + math.log(mean) / (ORDERS - 1) + constant
    return np.minimum.accumulate(total[::-1])[::-1]


def stop_parameter(mean_trials: float, shape: float) -> float:
    """Return gamma in (0, 1) at which the truncated negative binomial law has that mean."""

    def excess(log_gamma: float) -> float:  # in logs; the mean falls as gamma grows
        odds = math.expm1(-log_gamma)
        scale = -log_gamma if shape == 0 else -math.expm1(shape * log_gamma) / shape
        return math.log(odds / scale / mean_trials)

    low, high = -700.0, -1e-9  # where float64 ends
    root = high if excess(high) >= 0 else brentq(excess, low, high, xtol=1e-12)
    # the last factor outweighs the tolerance: a smaller gamma errs towards a larger epsilon
    return math.exp(root) * (1 - 1e-9)


def free_score_noise(curve: np.ndarray) -> float:
    """Return the least noise at which a score on held-out records costs no more than ``curve``."""
    finite = np.isfinite(curve)
    least = float(np.min(curve[finite] / ORDERS[finite]))
    return math.inf if least == 0 else math.sqrt(0.5 / least)
