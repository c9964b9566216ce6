"""Grad samplers: per-record norms and weighted sums of the layers that book-keeping covers."""

from skdpfair.engine.per_sample.layers import convolution, embedding, linear, normalisation
from skdpfair.engine.per_sample.layers.grad_sampler import (
    GradSampler,
    is_covered,
    register_grad_sampler,
    sampler_of,
    takes_rows,
)

__all__ = [
    "GradSampler",
    "convolution",
    "embedding",
    "is_covered",
    "linear",
    "normalisation",
    "register_grad_sampler",
    "sampler_of",
    "takes_rows",
]
