"""Public features of pictures: transformers that learn nothing from the private records."""

from skdpfair.features._frozen import FrozenFeatures
from skdpfair.features._scattering import Scattering2D

__all__ = ["FrozenFeatures", "Scattering2D"]
