"""Pages of sweeps and models without scripts, model cards, displays, the Fairlearn dashboard."""

from skdpfair.report._exports import export_statement
from skdpfair.report._group_loss_display import GroupLossDisplay
from skdpfair.report._model_page import model_page
from skdpfair.report._privacy_cost_display import PrivacyCostDisplay
from skdpfair.report._shape_display import ShapeDisplay

__all__ = [
    "GroupLossDisplay",
    "PrivacyCostDisplay",
    "ShapeDisplay",
    "export_statement",
    "model_page",
]
