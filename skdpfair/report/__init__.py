"""Pages of sweeps and models without scripts, model cards, displays, the Fairlearn dashboard."""

from skdpfair.report._displays import GroupLossDisplay, PrivacyCostDisplay, ShapeDisplay
from skdpfair.report._exports import export_statement
from skdpfair.report._model_page import model_card, model_page

__all__ = [
    "GroupLossDisplay",
    "PrivacyCostDisplay",
    "ShapeDisplay",
    "export_statement",
    "model_card",
    "model_page",
]
