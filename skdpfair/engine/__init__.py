"""Tensors only: per-record gradients, noise, sampling, and the step that joins them."""

from skdpfair.engine.noise import Noise, Streams
from skdpfair.engine.per_sample import select_strategy
from skdpfair.engine.sampling import PoissonSampler
from skdpfair.engine.step import Batch, Step, private_step
from skdpfair.engine.warmup import ScaleSearch

__all__ = [
    "Batch",
    "Noise",
    "PoissonSampler",
    "ScaleSearch",
    "Step",
    "Streams",
    "private_step",
    "select_strategy",
]
