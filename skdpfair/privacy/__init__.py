"""Privacy accounting by numbers only: releases, their epsilon, calibration and reports."""

from skdpfair.privacy.accounting import epsilon
from skdpfair.privacy.calibration import calibrated
from skdpfair.privacy.gdp import gdp_epsilon, gdp_parameter
from skdpfair.privacy.ledger import Ledger
from skdpfair.privacy.releases import Release
from skdpfair.privacy.statement import NOT_ACCOUNTED, PrivacyReport

__all__ = [
    "NOT_ACCOUNTED",
    "Ledger",
    "PrivacyReport",
    "Release",
    "calibrated",
    "epsilon",
    "gdp_epsilon",
    "gdp_parameter",
]
