"""Renyi divergences of sampled Gaussians: curves that add up, and their epsilon."""

import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import dp_accounting as dpa
import numpy as np
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS, compute_epsilon

from skdpfair._validate import number

ORDERS = np.asarray(DEFAULT_RDP_ORDERS, dtype=np.float64)
_SILENT = ContextVar("skdpfair_absl_silent", default=False)  # per thread, unlike a logger's level


def rdp_curve(runs: Iterable[tuple[float, float, int]]) -> np.ndarray:
    """Return the Renyi divergence of the composition of ``runs`` at each of ``ORDERS``.

    Parameters
    ----------
    runs : iterable of SampledGaussian
        Sample rate, noise multiplier, steps.

    Returns
    -------
    ndarray of shape (n_orders,)

    Notes
    -----
    Curves of mechanisms that run one after the other add up; for two mechanisms of which a
    record meets only one, known beforehand, the larger value at each order holds.

    Examples
    --------
    >>> curve = rdp_curve([(1.0, 2.0, 1)])
    >>> bool(np.allclose(curve, ORDERS / 8))
    True
    """
    total = np.zeros_like(ORDERS)
    for sample_rate, noise_multiplier, steps in runs:
        if steps:
            total = total + steps * _step_curve(float(sample_rate), float(noise_multiplier))
    return total


@lru_cache(maxsize=1024)  # the trials of a search differ in little else than learning rates
def _step_curve(sample_rate, noise_multiplier):
    if noise_multiplier == 0:
        return np.full_like(ORDERS, np.inf)
    accountant = RdpAccountant(ORDERS)
    event = dpa.GaussianDpEvent(noise_multiplier)
    if sample_rate < 1:
        event = dpa.PoissonSampledDpEvent(sample_rate, event)
    with _quiet_absl(), np.errstate(all="ignore"):
        accountant.compose(event)
    curve = np.asarray(accountant.rdp, dtype=np.float64)
    return np.where(np.isnan(curve), np.inf, np.maximum(curve, 0.0))


def curve_epsilon(curve: np.ndarray, delta: float) -> float:
    """Return the epsilon of a Renyi curve at ``delta``.

    Examples
    --------
    >>> print(f"{curve_epsilon(rdp_curve([(1 / 92, 1.0, 1840)]), 1e-6):.2f}")
    3.41
    >>> curve_epsilon(np.zeros_like(ORDERS), 1e-6)
    0.0
    """
    delta = number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    if not np.any(curve):
        return 0.0
    if not np.isfinite(curve).any():
        return math.inf
    usable = np.isfinite(curve)
    value = compute_epsilon(ORDERS[usable], curve[usable], delta)[0]
    return float(max(value, rdp_floor(delta)))


def rdp_floor(delta: float) -> float:
    """Return the least epsilon that finitely many Renyi orders can certify at ``delta``.

    Examples
    --------
    >>> print(f"{rdp_floor(1e-5):.4f}")
    0.0035
    """
    return float(np.min(np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1)).clip(0))


@contextmanager
def _quiet_absl() -> Iterator[None]:
    """Silence the library's notes on orders that it leaves out, which only loosens the bound."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


logging.getLogger("absl").addFilter(lambda record: not _SILENT.get())
