"""Privacy accounting by numbers only: epsilon of a run, calibration, ledgers and reports."""

from skdpfair.privacy.accounting import ACCOUNTANTS, SampledGaussian, epsilon, total_variation
from skdpfair.privacy.calibration import MAX_NOISE_MULTIPLIER, PrivacyPlan, calibrate
from skdpfair.privacy.gdp import gdp_epsilon, gdp_parameter
from skdpfair.privacy.ledger import Ledger, LedgerEntry
from skdpfair.privacy.statement import ADJACENCY_IN_WORDS, NOT_ACCOUNTED, PrivacyReport
from skdpfair.privacy.tradeoff import TradeOff, trade_off, trade_off_from_epsilon

__all__ = [
    "ACCOUNTANTS",
    "ADJACENCY_IN_WORDS",
    "MAX_NOISE_MULTIPLIER",
    "NOT_ACCOUNTED",
    "Ledger",
    "LedgerEntry",
    "PrivacyPlan",
    "PrivacyReport",
    "SampledGaussian",
    "TradeOff",
    "calibrate",
    "epsilon",
    "gdp_epsilon",
    "gdp_parameter",
    "total_variation",
    "trade_off",
    "trade_off_from_epsilon",
]
