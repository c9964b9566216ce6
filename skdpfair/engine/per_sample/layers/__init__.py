"""Grad samplers: per-record norms and weighted sums of the layers that book-keeping covers."""

from skdpfair.engine.per_sample.layers import convolution, embedding, linear, normalisation
from skdpfair.engine.per_sample.layers.grad_sampler import is_covered, sampler_of, takes_rows

__all__ = [
    "convolution",
    "embedding",
    "is_covered",
    "linear",
    "normalisation",
    "sampler_of",
    "takes_rows",
]
