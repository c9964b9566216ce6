"""Scores by group, and sweeps over methods and budgets, for choosing and comparing."""

from skdpfair.budget.privacy_ledger import PrivacyLedger
from skdpfair.exceptions import BudgetExceeded
from skdpfair.model_selection._budget import SearchPlan, plan
from skdpfair.model_selection._private_search import DPRandomizedSearch
from skdpfair.model_selection._results import TradeoffResults
from skdpfair.model_selection._scorers import GroupScorer
from skdpfair.model_selection._select import select_by
from skdpfair.model_selection._sweep import sweep
from skdpfair.model_selection._tables import dg_gap_table, privacy_cost_table
from skdpfair.model_selection._twin_scorers import dg_gap_scorer, privacy_cost_scorer

__all__ = [
    "BudgetExceeded",
    "DPRandomizedSearch",
    "GroupScorer",
    "PrivacyLedger",
    "SearchPlan",
    "TradeoffResults",
    "dg_gap_scorer",
    "dg_gap_table",
    "plan",
    "privacy_cost_scorer",
    "privacy_cost_table",
    "select_by",
    "sweep",
]
