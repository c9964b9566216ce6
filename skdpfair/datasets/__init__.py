"""Data sets: Adult (bundled), the Dutch census (local files), simulations."""

from skdpfair.datasets._adult import ADULT_BOUNDS, ADULT_CATEGORIES, load_adult
from skdpfair.datasets._dutch import DUTCH_CATEGORIES, fetch_dutch
from skdpfair.datasets._two_groups import make_two_groups

__all__ = [
    "ADULT_BOUNDS",
    "ADULT_CATEGORIES",
    "DUTCH_CATEGORIES",
    "fetch_dutch",
    "load_adult",
    "make_two_groups",
]
