"""Privacy accounting by numbers only: releases, their epsilon, calibration and reports."""

from skdpfair.privacy.accounting import epsilon
from skdpfair.privacy.calibration import calibrated
from skdpfair.privacy.gdp import gdp_parameter
from skdpfair.privacy.ledger import Ledger
from skdpfair.privacy.releases import Release
from skdpfair.privacy.statement import PrivacyReport

__all__ = [
    "Ledger",
    "PrivacyReport",
    "Release",
    "calibrated",
    "epsilon",
    "gdp_parameter",
]
