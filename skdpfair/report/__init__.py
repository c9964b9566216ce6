"""Pages of sweeps and models without scripts, model cards, and the Fairlearn dashboard."""

from skdpfair.report._exports import export_statement
from skdpfair.report._fairness_dashboard import launch_fairness_dashboard, to_fairness_dashboard
from skdpfair.report._model_page import model_card, model_page
from skdpfair.report._sweep_page import results_page

__all__ = [
    "export_statement",
    "launch_fairness_dashboard",
    "model_card",
    "model_page",
    "results_page",
    "to_fairness_dashboard",
]
