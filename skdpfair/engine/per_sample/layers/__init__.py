"""Grad samplers: per-record norms and weighted sums of the layers that book-keeping covers."""

from skdpfair.engine.per_sample.layers import convolution, embedding, linear, normalisation
from skdpfair.engine.per_sample.layers.grad_sampler import (
    GradSampler,
    find,
    register_grad_sampler,
    sampler_of,
    takes_rows,
)

__all__ = [
    "GradSampler",
    "convolution",
    "embedding",
    "find",
    "linear",
    "normalisation",
    "register_grad_sampler",
    "sampler_of",
    "takes_rows",
]
