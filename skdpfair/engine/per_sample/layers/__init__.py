"""The layer types that book-keeping covers, one file a kind; see :mod:`.book`."""

from skdpfair.engine.per_sample.layers import convolution, embedding, linear, normalisation
from skdpfair.engine.per_sample.layers.book import LAYERS, Book, find, over_batch, register, trains

__all__ = [
    "LAYERS",
    "Book",
    "convolution",
    "embedding",
    "find",
    "linear",
    "normalisation",
    "over_batch",
    "register",
    "trains",
]
