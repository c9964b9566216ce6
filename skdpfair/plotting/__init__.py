"""Displays of privacy costs, sweeps, recorded losses and curves of additive models."""

from skdpfair.plotting._group_losses import GroupLossDisplay
from skdpfair.plotting._privacy_cost import PrivacyCostDisplay
from skdpfair.plotting._shapes import ShapeDisplay
from skdpfair.plotting._tradeoff import TradeoffDisplay

__all__ = ["GroupLossDisplay", "PrivacyCostDisplay", "ShapeDisplay", "TradeoffDisplay"]
