"""Diagnostics of disparate impact, on your own data; NOT private, and not used in training."""

from skdpfair.analysis._curvature import GroupCurvature
from skdpfair.analysis._recorder import GroupRecorder
from skdpfair.analysis._step_risk import StepRisk, step_risk_terms

__all__ = ["GroupCurvature", "GroupRecorder", "StepRisk", "step_risk_terms"]
