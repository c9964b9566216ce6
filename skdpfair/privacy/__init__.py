"""Privacy accounting by numbers only: releases, their epsilon, calibration and reports."""

from skdpfair.privacy.accounting import ACCOUNTANTS, epsilon, total_variation
from skdpfair.privacy.calibration import MAX_NOISE_MULTIPLIER, calibrated, max_steps
from skdpfair.privacy.gdp import gdp_epsilon, gdp_parameter
from skdpfair.privacy.ledger import Ledger
from skdpfair.privacy.releases import Release
from skdpfair.privacy.statement import ADJACENCY_IN_WORDS, NOT_ACCOUNTED, PrivacyReport
from skdpfair.privacy.tradeoff import TradeOff, trade_off, trade_off_from_epsilon

__all__ = [
    "ACCOUNTANTS",
    "ADJACENCY_IN_WORDS",
    "MAX_NOISE_MULTIPLIER",
    "NOT_ACCOUNTED",
    "Ledger",
    "PrivacyReport",
    "Release",
    "TradeOff",
    "calibrated",
    "epsilon",
    "gdp_epsilon",
    "gdp_parameter",
    "max_steps",
    "total_variation",
    "trade_off",
    "trade_off_from_epsilon",
]
