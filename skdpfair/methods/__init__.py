"""The algorithms, one per file; a new file is found, tested and documented automatically.

Their base class ``Method``, with ``Query``, ``Clip`` and the registry ``METHODS``, is defined in
``engine/mechanism.py``.
"""

from importlib import import_module
from pkgutil import iter_modules

from skdpfair.engine.mechanism import METHODS as METHODS
from skdpfair.engine.mechanism import Clip, Method, Query

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Clip", "Method", "Query"]
