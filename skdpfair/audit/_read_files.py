"""Files that hold pickles and tensors: compression, torch files of both formats, safetensors."""

import bz2
import io
import json
import lzma
import os
import re
import struct
import time
import zipfile
import zlib
from collections import namedtuple
from dataclasses import dataclass, field

import numpy as np

from skdpfair.audit._arrays import Array
from skdpfair.audit._findings import ARRAY, NOT_JUDGED, UNREADABLE, ArtifactFinding
from skdpfair.audit._read_pickles import read_stream

_COMPRESSED = {
    b"\x1f\x8b": lambda: zlib.decompressobj(31),
    **{b"\x78" + level: zlib.decompressobj for level in (b"\x01", b"\x5e", b"\x9c", b"\xda")},
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": lzma.LZMADecompressor,
    b"\x5d\x00\x00": lzma.LZMADecompressor,
}
_STEP, _SLACK = 1 << 22, 16  # bytes unpacked at once, and bytes that padding may take
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # of torch files that are no zip
Tensors = namedtuple("Tensors", "arrays metadata")  # of a safetensors file
Text = namedtuple("Text", "text")  # of a file in UTF-8
# members of a torch file beside its pickle and tensors
_OF_TORCH = {"version", "byteorder", ".format_version", ".storage_alignment"}
_OF_TORCH |= {".data/serialization_id"}


class Exhausted(Exception):
    """More was asked for than the limits allow."""


class Limits:
    """Bytes to read, operations and seconds that are left, so that a hostile file costs no more."""

    def __init__(self, n_bytes=2**29, operations=5_000_000, seconds=120.0):
        self.left, self.operations = n_bytes, operations
        self.end = time.monotonic() + seconds

    def take_bytes(self, n: int) -> None:
        """Spend bytes."""
        self.left -= n
        if self.left < 0:
            raise Exhausted("it unpacks to more bytes than are read")

    def take_operation(self, n=1) -> None:
        """Spend an opcode or a node, or what costs as much as ``n``."""
        before = self.operations >> 12
        self.operations -= n
        if self.operations < 0:
            raise Exhausted("it has more opcodes than are read")
        if self.operations >> 12 != before and time.monotonic() > self.end:
            raise Exhausted("it takes longer than is waited")

    def read(self, file) -> bytes:
        """Return all of a binary file, if the limits allow it."""
        pieces = []
        while piece := file.read(min(self.left + 1, _STEP)):
            self.take_bytes(len(piece))
            pieces.append(piece)
        return b"".join(pieces)


@dataclass
class Reader:
    """Opens files and bytes, and notes what cannot be read."""

    limits: Limits = field(default_factory=Limits)
    findings: list[ArtifactFinding] = field(default_factory=list)
    regions: list[tuple[str, bytes]] = field(default_factory=list)  # all bytes seen, with paths

    def add(self, kind, where, what, n_bytes=None, shape=None):
        """Note a finding."""
        where = where.removesuffix("!") or "(root)"
        self.findings.append(ArtifactFinding(kind, where, what, shape, n_bytes))

    def open_path(self, path) -> list[tuple[str, object]]:
        """Return the graphs of a file, or of all files under a folder."""
        if not os.path.isdir(path):
            return self._open_file(path, "")
        places = []
        for folder, subfolders, names in os.walk(path):
            subfolders.sort()
            for name in sorted(names):
                full = os.path.join(folder, name)
                where = os.path.relpath(full, path).replace(os.sep, "/")
                if os.path.islink(full) or not os.path.isfile(full):
                    self.add(UNREADABLE, where, "a link or a special file, not followed")
                else:
                    places += self._open_file(full, where)
        return places

    def _open_file(self, path, where):
        with open(path, "rb") as file:
            return self.open(file, where)

    def open(self, data, where, packed=False) -> list[tuple[str, object]]:
        """Return the graphs in bytes, or in a file; what cannot be read becomes a finding."""
        try:
            return self._open(data, where, packed)
        except Exhausted as error:
            self.add(UNREADABLE, where, f"not read in full: {error}")
        except Exception as error:  # a hostile file may break any of the libraries that read it
            self.add(UNREADABLE, where, f"broken: {type(error).__name__}")
        return []

    def _open(self, data, where, packed):
        if not isinstance(data, bytes):
            self.limits.take_operation(256)
            data = self.limits.read(data)
        self.regions.append((where, data))
        unpacker = next((u for magic, u in _COMPRESSED.items() if data.startswith(magic)), None)
        if unpacker and not packed:
            inner, rest = self._unpacked(data, unpacker(), where)
            return self.open(inner, where, packed=True) + self._rest(rest, where)
        if data[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            return self._open_zip(data, where)
        if data[8:9] == b"{" and 2 <= int.from_bytes(data[:8], "little") <= len(data) - 8:
            tensors, slack = read_safetensors(data)
            return [(where, tensors), *self._rest(slack, where)]
        return self._open_pickles(data, where) or self._open_other(data, where)

    def _open_other(self, data, where):
        """Return a text, which may be of this package; all else is not judged."""
        try:
            text = data.decode()
            if text.strip() and "\0" not in text:
                return [(where, Text(text))]
        except UnicodeDecodeError:
            pass
        if data:
            self.add(NOT_JUDGED, where, "a file of a kind that is not judged", len(data))
        elif not where:
            self.add(UNREADABLE, where, "it is empty", 0)
        return []

    def _unpacked(self, data, opened, where):
        """Return the unpacked bytes, and what follows the packed ones."""
        pieces, pending = [], data
        try:
            while not opened.eof:
                piece = opened.decompress(pending, min(_STEP, self.limits.left + 1))
                pending = getattr(opened, "unconsumed_tail", b"")
                self.limits.take_bytes(len(piece))
                pieces.append(piece)
                if not piece and not pending and not opened.eof:
                    raise EOFError
        except (zlib.error, OSError, lzma.LZMAError, EOFError, ValueError):
            self.add(UNREADABLE, where, "the packed bytes are broken, or end early", len(data))
            return b"".join(pieces), b""
        return b"".join(pieces), opened.unused_data

    def _open_pickles(self, data, where):
        roots, dropped, rest, broken = read_stream(data, self.limits)
        if broken is not None:
            self.add(UNREADABLE, where, f"broken: {broken}", len(data))
        if roots[:1] == [_TORCH_MAGIC] and len(roots) == 5:  # the tensors' numbers follow
            roots = [roots[3], roots[2], roots[4]]
            if rest:
                self.add(ARRAY, where, "the numbers of tensors", len(rest))
                rest = b""
        places = [(where if len(roots) == 1 else beside(where, i), r) for i, r in enumerate(roots)]
        places += [(beside(where, "(dropped)"), dropped)] if dropped else []
        return places + self._rest(rest, where) if roots else []

    def _rest(self, data, where):
        """Return the graphs in what follows the end of something."""
        if len(data) <= _SLACK or not data.strip(b"\0\r\n "):
            return []
        return self.open(data, beside(where, "(after its end)"))

    def _open_zip(self, data, where):
        """Return the graph of a torch file's pickle; other archives and members are not judged."""
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            pickled = [info for info in infos if info.filename.endswith("data.pkl")]
            if not pickled:
                what = "an archive: unpack it, and audit the folder"
                self.add(NOT_JUDGED, where, what, len(data))
                return []
            prefix, places = pickled[0].filename.removesuffix("data.pkl"), []
            for info in infos:
                self.limits.take_operation(256)
                with archive.open(info) as file:
                    content = self.limits.read(file)
                name = info.filename.removeprefix(prefix)
                if name == "data.pkl":
                    self.regions.append((where, content))
                    places += self._open_pickles(content, where) or self._open_other(content, where)
                elif name not in _OF_TORCH or len(content) > 64:
                    kind = ARRAY if name.startswith("data/") else NOT_JUDGED
                    self.add(kind, beside(where, name[:80]), "a member", len(content))
                    self.regions.append((where, content))
            spans = [_span(info, data) for info in infos]
            slack = uncovered(data[: archive.start_dir], spans) + archive.comment
        return places + self._rest(slack, where)


def beside(where, name):
    """Return the path of a part of what lies at ``where``."""
    return f"{where}!{name}" if where else str(name)


def uncovered(data, spans) -> bytes:
    """Return the bytes outside all spans (start, end)."""
    pieces, at = [], 0
    for start, end in sorted(spans):
        pieces.append(data[at : max(at, start)])
        at = max(at, end)
    return b"".join([*pieces, data[at:]])


def _span(info, data):
    """Return where a zip file's member lies, with what the format writes around it."""
    at, trailer = info.header_offset, 24 if info.flag_bits & 8 else 0
    around = 30 + sum(struct.unpack("<HH", data[at + 26 : at + 30])) + trailer
    return at, at + around + info.compress_size


def read_safetensors(data):
    """Return the tensors of a file, and the bytes that belong to none."""
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    metadata, arrays, spans = header.pop("__metadata__", {}), {}, []
    for name, facts in header.items():
        (start, end), form = facts["data_offsets"], re.fullmatch(r"([FIU])(\d+)", facts["dtype"])
        dtype = np.dtype(f"{form[1].lower()}{int(form[2]) // 8}") if form else None
        arrays[name] = Array(tuple(facts["shape"]), dtype, body[start:end])
        spans.append((start, end))
        if dtype is not None and end - start != arrays[name].n_bytes:
            raise ValueError("a shape that does not fit its bytes")
    return Tensors(arrays, metadata), uncovered(body, spans)
