"""Pictures: DataFrames in, matplotlib axes out."""

from skdpfair.plotting._bars import plot_group_accuracy, plot_group_bars, plot_privacy_cost
from skdpfair.plotting._displays import GroupLossDisplay, PrivacyCostDisplay
from skdpfair.plotting._tradeoff import TradeoffDisplay
from skdpfair.plotting._training import (
    BatchSizeDisplay,
    CurvatureDisplay,
    RiskBoundDisplay,
    RiskTermsDisplay,
)

__all__ = [
    "BatchSizeDisplay",
    "CurvatureDisplay",
    "GroupLossDisplay",
    "PrivacyCostDisplay",
    "RiskBoundDisplay",
    "RiskTermsDisplay",
    "TradeoffDisplay",
    "plot_group_accuracy",
    "plot_group_bars",
    "plot_privacy_cost",
]
