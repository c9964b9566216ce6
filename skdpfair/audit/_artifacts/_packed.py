"""Unpack gzip, zlib, bz2, xz and lz4, and tell formats by their first bytes."""

import bz2
import lzma
import zlib

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x5d\x00\x00": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\x93NUMPY": "npy",
    b"PAR1": "table",
    b"ARROW1": "table",
    b"FEA1": "table",
    b"\x89HDF": "table",
    b"SQLite format 3": "table",
}
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_OPENERS = {
    "gzip": lambda: zlib.decompressobj(31),
    "zlib": zlib.decompressobj,
    "bz2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
}
_STEP = 1 << 22


def format_of(data: bytes) -> str | None:
    """Return what bytes are by their first few: a compression, "zip", "tar", "npy", "table"."""
    for magic, name in _MAGIC.items():
        if data.startswith(magic):
            return name
    if data[257:262] == b"ustar":
        return "tar"
    if data[:2] in _ZLIB and _starts_zlib(data):
        return "zlib"
    length = int.from_bytes(data[:8], "little")
    if data[8:9] == b"{" and 2 <= length <= len(data) - 8:
        return "safetensors"
    return None


def _starts_zlib(data):
    try:
        zlib.decompressobj().decompress(data[:4096], 64)
    except zlib.error:
        return False
    return True


def unpack(data, name, budget):
    """Return the unpacked bytes, what follows the packed ones, and what went wrong, or None."""
    if name in ("lz4", "zstd"):
        return _unpack_frames(data, name, budget)
    pieces, magic = [], data[:2]
    while True:
        rest, error = _unpack_one(data, _OPENERS[name](), pieces, budget)
        rest = rest.lstrip(b"\0")
        if error is not None or rest[:2] != magic:
            return b"".join(pieces), rest, error
        data = rest


def _unpack_one(data, opened, pieces, budget):
    pending = data
    try:
        while not opened.eof:
            piece = opened.decompress(pending, min(_STEP, budget.left + 1))
            pending = getattr(opened, "unconsumed_tail", b"")
            budget.take_bytes(len(piece))
            pieces.append(piece)
            if not piece and not pending and not opened.eof:
                return b"", "the packed bytes end early"
    except (zlib.error, OSError, lzma.LZMAError, EOFError, ValueError):
        return b"", "the packed bytes are broken"
    return opened.unused_data, None


def _unpack_frames(data, name, budget):
    """Unpack formats that the standard library lacks."""
    try:
        if name == "zstd":
            return b"", b"", "zstd is not read"
        import lz4.frame  # an optional package of joblib
    except ImportError:
        return b"", b"", "lz4 is not installed"
    opened, pieces = lz4.frame.LZ4FrameDecompressor(), []
    try:
        while not opened.eof:
            piece = opened.decompress(data, min(_STEP, budget.left + 1))
            data = b""
            budget.take_bytes(len(piece))
            pieces.append(piece)
            if not piece and opened.needs_input:
                return b"".join(pieces), b"", "the packed bytes end early"
    except (RuntimeError, OSError, EOFError, ValueError):
        return b"".join(pieces), b"", "the packed bytes are broken"
    return b"".join(pieces), opened.unused_data or b"", None
