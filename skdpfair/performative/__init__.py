"""Performative prediction: training on populations that react to the deployed model.

`repeated_deployment` trains and deploys in rounds against a population such as `StrategicResponse`
or `LocationShift`.
"""

from skdpfair.performative.deployment import repeated_deployment
from skdpfair.performative.environments import DistributionMap, LocationShift, StrategicResponse

__all__ = ["DistributionMap", "LocationShift", "StrategicResponse", "repeated_deployment"]
