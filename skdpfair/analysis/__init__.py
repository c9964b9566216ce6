"""Diagnostics of disparate impact, computed on your own data; NOT private.

They cover gradients and curvature of each group, step risk and its parts, bias of the clipped
gradient, and robustness. Training does not use them.
"""

from skdpfair.analysis._bias import GradientBias, bias_by_batch_size, gradient_bias
from skdpfair.analysis._clipping_bound import clipping_error_bound
from skdpfair.analysis._clipping_errors import ErrorRun, train_with_error
from skdpfair.analysis._curvature import GroupCurvature
from skdpfair.analysis._gradients import GroupGradients, group_gradients
from skdpfair.analysis._recorder import GroupRecorder
from skdpfair.analysis._robust import robust_accuracy, robust_generalisation_gap
from skdpfair.analysis._step_risk import StepRisk, step_risk_terms
from skdpfair.analysis._step_terms import StepTerms, noise_term, step_terms

__all__ = [
    "ErrorRun",
    "GradientBias",
    "GroupCurvature",
    "GroupGradients",
    "GroupRecorder",
    "StepRisk",
    "StepTerms",
    "bias_by_batch_size",
    "clipping_error_bound",
    "gradient_bias",
    "group_gradients",
    "noise_term",
    "robust_accuracy",
    "robust_generalisation_gap",
    "step_risk_terms",
    "step_terms",
    "train_with_error",
]
