"""Transformers with public bounds and categories: they learn nothing from the rows."""

from skdpfair.preprocessing._public import outside_public, public_preprocessor
from skdpfair.preprocessing._scaler import BoundedScaler

__all__ = ["BoundedScaler", "outside_public", "public_preprocessor"]
