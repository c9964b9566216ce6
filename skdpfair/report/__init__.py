"""Reports: frames -> dict -> template -> one self-contained page; model cards; the dashboard."""

from skdpfair.report._dashboard import launch_fairness_dashboard, to_fairness_dashboard
from skdpfair.report._model import model_card, model_page
from skdpfair.report._results import results_page

__all__ = [
    "launch_fairness_dashboard",
    "model_card",
    "model_page",
    "results_page",
    "to_fairness_dashboard",
]
