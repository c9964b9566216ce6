"""Decision-dependent data: people react to the deployed model, and the next one learns from that.

`repeated_deployment` trains and deploys against a population such as `StrategicResponse` or
`LocationShift`.  `ScalarProblem` is the case of one number, whose clipping bias has a closed form.
"""

from skdpfair.performative.deployment import repeated_deployment
from skdpfair.performative.experiments import (
    bias_by_beta,
    bias_by_epsilon,
    bias_over_iterations,
)
from skdpfair.performative.figures import (
    plot_bias_by_beta,
    plot_bias_by_epsilon,
    plot_bias_over_iterations,
)
from skdpfair.performative.location import LocationShift
from skdpfair.performative.protocol import DistributionMap
from skdpfair.performative.scalar import ScalarProblem
from skdpfair.performative.simulation import expected_path, simulate
from skdpfair.performative.strategic import StrategicResponse
from skdpfair.performative.theory import corollary_noise_multiplier, privacy_plan, upper_bound

__all__ = [
    "DistributionMap",
    "LocationShift",
    "ScalarProblem",
    "StrategicResponse",
    "bias_by_beta",
    "bias_by_epsilon",
    "bias_over_iterations",
    "corollary_noise_multiplier",
    "expected_path",
    "plot_bias_by_beta",
    "plot_bias_by_epsilon",
    "plot_bias_over_iterations",
    "privacy_plan",
    "repeated_deployment",
    "simulate",
    "upper_bound",
]
