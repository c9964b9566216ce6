"""Plots of group tables, sweeps and recorded values, with matplotlib."""

from skdpfair.plotting._attacker import plot_tradeoff
from skdpfair.plotting._bars import (
    plot_group_accuracy,
    plot_group_bars,
    plot_group_measure,
    plot_privacy_cost,
)
from skdpfair.plotting._comparison import PrivacyCostDisplay, TradeoffDisplay
from skdpfair.plotting._shapes import ShapeDisplay
from skdpfair.plotting._training import (
    BatchSizeDisplay,
    CurvatureDisplay,
    GroupLossDisplay,
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
    "ShapeDisplay",
    "TradeoffDisplay",
    "plot_group_accuracy",
    "plot_group_bars",
    "plot_group_measure",
    "plot_privacy_cost",
    "plot_tradeoff",
]
