"""Grad samplers: per-record norms and weighted sums of the layers that book-keeping covers."""

from skdpfair.engine.per_sample.layers import convolution as convolution
from skdpfair.engine.per_sample.layers import embedding as embedding
from skdpfair.engine.per_sample.layers import linear as linear
from skdpfair.engine.per_sample.layers import normalisation as normalisation
from skdpfair.engine.per_sample.layers.grad_sampler import is_covered as is_covered
from skdpfair.engine.per_sample.layers.grad_sampler import sampler_of as sampler_of
from skdpfair.engine.per_sample.layers.grad_sampler import takes_rows as takes_rows
