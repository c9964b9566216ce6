"""Releases of fitted estimators without records: copies, safetensors files and ONNX files."""

from importlib import import_module
from typing import TYPE_CHECKING

from skdpfair.release._read_statement import read_statement, statement

if TYPE_CHECKING:
    from skdpfair.release._facts import packed, unpacked
    from skdpfair.release._release import (
        export_onnx,
        load_release,
        release,
        save_release,
        schema_of,
    )

__all__ = [
    "export_onnx",
    "load_release",
    "packed",
    "read_statement",
    "release",
    "save_release",
    "schema_of",
    "statement",
    "unpacked",
]


def __getattr__(name):  # so that statements are read without torch
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "_facts" if name in ("packed", "unpacked") else "_release"
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
