"""Why disparate impact happens, measured on your own data; NOT private, and no part of training.

Curvature and gradients of each group, excessive risk of a step and its parts, bias of the clipped
gradient, robustness and its gap.
"""

from skdpfair.analysis._bias import GradientBias, bias_by_batch_size, gradient_bias
from skdpfair.analysis._curvature import GroupCurvature
from skdpfair.analysis._errors import ErrorRun, train_with_error
from skdpfair.analysis._excessive_risk import ExcessiveRisk, excessive_risk_terms
from skdpfair.analysis._gradients import GroupGradients, group_gradients
from skdpfair.analysis._recorder import GroupRecorder
from skdpfair.analysis._robust import robust_accuracy, robust_generalisation_gap
from skdpfair.analysis._terms import StepTerms, noise_term, step_terms

__all__ = [
    "ErrorRun",
    "ExcessiveRisk",
    "GradientBias",
    "GroupCurvature",
    "GroupGradients",
    "GroupRecorder",
    "StepTerms",
    "bias_by_batch_size",
    "excessive_risk_terms",
    "gradient_bias",
    "group_gradients",
    "noise_term",
    "robust_accuracy",
    "robust_generalisation_gap",
    "step_terms",
    "train_with_error",
]
