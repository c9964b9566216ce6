"""The papers' tables and figures, trained again and compared with print; NOT private."""

from skdpfair.reproduce._reproduce import STUDIES, Reproduction, reproduce
from skdpfair.reproduce._written import lines

__all__ = ["STUDIES", "Reproduction", "lines", "reproduce"]
