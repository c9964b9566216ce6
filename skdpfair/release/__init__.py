"""Releases of fitted estimators without records: safetensors files, read back or looked into."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skdpfair.release._release import load_release

__all__ = ["load_release"]


# late, so that statements are read without torch
def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"{__name__}._release"), name)
    return value


def __dir__():
    return sorted({*globals(), *__all__})
