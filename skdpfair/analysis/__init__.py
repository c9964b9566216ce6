"""Diagnostics of disparate impact, on your own data; NOT private, and not used in training."""

from skdpfair.analysis._recorder import GroupRecorder
from skdpfair.analysis._step_risk import step_risk_terms

__all__ = ["GroupRecorder", "step_risk_terms"]
