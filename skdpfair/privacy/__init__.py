"""Privacy accounting by numbers only: releases, their epsilon, calibration and attacks."""

from skdpfair.privacy.accounting import compute_epsilon
from skdpfair.privacy.calibration import calibrate_noise
from skdpfair.privacy.gdp import gdp_parameter
from skdpfair.privacy.releases import NoisyRelease
from skdpfair.privacy.tradeoff import trade_off

__all__ = ["NoisyRelease", "calibrate_noise", "compute_epsilon", "gdp_parameter", "trade_off"]
