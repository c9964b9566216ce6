"""The papers' tables and figures, trained again and compared with print; NOT private."""

from skdpfair.reproduce._data import Split, prepared
from skdpfair.reproduce._reproduce import STUDIES, Reproduction, compared, reproduce
from skdpfair.reproduce._study import Options

__all__ = ["STUDIES", "Options", "Reproduction", "Split", "compared", "prepared", "reproduce"]
