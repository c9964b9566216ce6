"""Model selection: scores by group, sweeps, private search, thresholds within the budget."""

from skdpfair.model_selection._forecast import forecast
from skdpfair.model_selection._randomized_search import DPRandomizedSearch
from skdpfair.model_selection._results import TradeoffResults
from skdpfair.model_selection._scorers import GroupScorer, comparison_scorer
from skdpfair.model_selection._sweep import sweep
from skdpfair.model_selection._threshold_classifier import DPThresholdClassifier

__all__ = [
    "DPRandomizedSearch",
    "DPThresholdClassifier",
    "GroupScorer",
    "TradeoffResults",
    "comparison_scorer",
    "forecast",
    "sweep",
]
