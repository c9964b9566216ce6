"""Data sets: Adult (bundled), the Dutch census and images (local files), simulations."""

from skdpfair.datasets._adult import ADULT_BOUNDS, ADULT_CATEGORIES, load_adult
from skdpfair.datasets._adult_panel import make_adult_panel
from skdpfair.datasets._dutch import DUTCH_CATEGORIES, fetch_dutch
from skdpfair.datasets._images import fetch_cifar10, fetch_faces, fetch_mnist
from skdpfair.datasets._two_groups import make_two_groups

__all__ = [
    "ADULT_BOUNDS",
    "ADULT_CATEGORIES",
    "DUTCH_CATEGORIES",
    "fetch_cifar10",
    "fetch_dutch",
    "fetch_faces",
    "fetch_mnist",
    "load_adult",
    "make_adult_panel",
    "make_two_groups",
]
