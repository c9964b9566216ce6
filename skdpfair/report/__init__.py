"""Pages of sweeps and models without scripts, model cards, and the Fairlearn dashboard."""

from skdpfair.report._exports import export_statement
from skdpfair.report._fairness_dashboard import launch_fairness_dashboard
from skdpfair.report._model_page import model_card, model_page

__all__ = [
    "export_statement",
    "launch_fairness_dashboard",
    "model_card",
    "model_page",
]
