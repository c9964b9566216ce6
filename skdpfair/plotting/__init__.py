"""Pictures: DataFrames in, matplotlib axes out."""

from skdpfair.plotting._bars import (
    _PALETTE as _PALETTE,
)
from skdpfair.plotting._bars import plot_group_accuracy, plot_group_bars, plot_privacy_cost
from skdpfair.plotting._displays import GroupLossDisplay, PrivacyCostDisplay

__all__ = [
    "GroupLossDisplay",
    "PrivacyCostDisplay",
    "plot_group_accuracy",
    "plot_group_bars",
    "plot_privacy_cost",
]
