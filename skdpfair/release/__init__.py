"""Releases of fitted estimators without records: copies, safetensors files and ONNX files."""

from skdpfair.release._facts import packed, statement, unpacked
from skdpfair.release._release import export_onnx, load_release, release, save_release, schema_of

__all__ = [
    "export_onnx",
    "load_release",
    "packed",
    "release",
    "save_release",
    "schema_of",
    "statement",
    "unpacked",
]
