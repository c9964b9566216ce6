"""Privacy accounting by numbers only: releases, their epsilon, calibration and reports."""

from skdpfair.privacy.accounting import compute_epsilon
from skdpfair.privacy.calibration import calibrate_noise
from skdpfair.privacy.releases import NoisyRelease

__all__ = ["NoisyRelease", "calibrate_noise", "compute_epsilon"]
