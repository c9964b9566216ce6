"""The layer types that book-keeping covers, one file a kind; see :mod:`.book`."""

from skdpfair.engine.per_sample.layers import convolution, embedding, linear, normalisation
from skdpfair.engine.per_sample.layers.book import Book, find, register, takes_rows

__all__ = [
    "Book",
    "convolution",
    "embedding",
    "find",
    "linear",
    "normalisation",
    "register",
    "takes_rows",
]
