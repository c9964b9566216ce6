"""What training did, measured: bias of the clipped gradient, robustness and its gap."""

from skdpfair.analysis._bias import GradientBias, gradient_bias
from skdpfair.analysis._robust import robust_accuracy, robust_generalisation_gap

__all__ = ["GradientBias", "gradient_bias", "robust_accuracy", "robust_generalisation_gap"]
