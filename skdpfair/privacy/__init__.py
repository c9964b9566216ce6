"""Privacy accounting by numbers only: releases, their epsilon, calibration and reports."""

from skdpfair.privacy.accounting import epsilon
from skdpfair.privacy.calibration import calibrated
from skdpfair.privacy.releases import Release

__all__ = ["Release", "calibrated", "epsilon"]
