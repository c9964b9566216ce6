"""Numbers only: what a run costs, how much noise a budget takes, and what was spent."""

from skdpfair.privacy.accounting import ACCOUNTANTS, SampledGaussian, epsilon, total_variation
from skdpfair.privacy.calibration import MAX_NOISE_MULTIPLIER, PrivacyPlan, calibrate
from skdpfair.privacy.gdp import gdp_epsilon, gdp_parameter
from skdpfair.privacy.ledger import Ledger, LedgerEntry
from skdpfair.privacy.statement import ADJACENCY_IN_WORDS, NOT_ACCOUNTED, PrivacyReport

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
    "calibrate",
    "epsilon",
    "gdp_epsilon",
    "gdp_parameter",
    "total_variation",
]
