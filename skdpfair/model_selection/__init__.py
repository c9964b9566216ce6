"""Model selection: scores by group, sweeps, private search, thresholds within the budget."""

from skdpfair.budget.privacy_ledger import PrivacyLedger
from skdpfair.model_selection._forecast import plan
from skdpfair.model_selection._private_search import DPRandomizedSearch
from skdpfair.model_selection._results import TradeoffResults
from skdpfair.model_selection._scorers import GroupScorer, comparison_scorer
from skdpfair.model_selection._sweep import sweep
from skdpfair.model_selection._threshold import DPThresholdClassifier

__all__ = [
    "DPRandomizedSearch",
    "DPThresholdClassifier",
    "GroupScorer",
    "PrivacyLedger",
    "TradeoffResults",
    "comparison_scorer",
    "plan",
    "sweep",
]
