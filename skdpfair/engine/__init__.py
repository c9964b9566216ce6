"""Private training steps on tensors: per-record gradients, sampling, noise, the step itself."""

from skdpfair.engine.batch import Batch as Batch
from skdpfair.engine.noise import Noise as Noise
from skdpfair.engine.per_sample import select_strategy as select_strategy
from skdpfair.engine.sampling import PoissonSampler as PoissonSampler
from skdpfair.engine.step import Step as Step
from skdpfair.engine.step import private_step as private_step
from skdpfair.engine.streams import Streams as Streams
from skdpfair.engine.warmup import ScaleSearch as ScaleSearch

# an inner room, which is promised to no user
__all__: list[str] = []
