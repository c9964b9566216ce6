"""Data sets: Adult (bundled), the Dutch census (local files), simulations."""

from skdpfair.datasets._adult import load_adult
from skdpfair.datasets._dutch import fetch_dutch
from skdpfair.datasets._public_facts import public_facts
from skdpfair.datasets._two_groups import make_two_groups

__all__ = ["fetch_dutch", "load_adult", "make_two_groups", "public_facts"]
