"""Decision-dependent data: people react to the deployed model, and the next one learns from that.

`repeated_deployment` trains and deploys against a population such as `StrategicResponse` or
`LocationShift`.
"""

from skdpfair.performative.deployment import repeated_deployment
from skdpfair.performative.environments import DistributionMap, LocationShift, StrategicResponse

__all__ = ["DistributionMap", "LocationShift", "StrategicResponse", "repeated_deployment"]
