"""Private training steps on tensors: per-record gradients, sampling, noise, the step itself."""

from skdpfair.engine.batch import Batch
from skdpfair.engine.noise import Noise
from skdpfair.engine.per_sample import select_strategy
from skdpfair.engine.sampling import PoissonSampler
from skdpfair.engine.step import Step, private_step
from skdpfair.engine.streams import Streams
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
