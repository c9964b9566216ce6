"""Tables and figures of published papers, trained again and compared with print; NOT private.

``python -m benchmarks.papers --list`` names them; ``python -m benchmarks.papers NAME`` trains one.
"""

from benchmarks.papers.runner import STUDIES, Reproduction, compare, reproduce
from benchmarks.papers.study import Options, Run, Study

__all__ = ["STUDIES", "Options", "Reproduction", "Run", "Study", "compare", "reproduce"]
