"""Files that hold pickles and tensors: compression, torch files of both formats, safetensors."""

import bz2
import io
import json
import lzma
import math
import os
import time
import zipfile
import zlib
from dataclasses import dataclass, field

from skdpfair.audit._arrays import Array, Storage, data_of, size_of
from skdpfair.audit._findings import NOT_JUDGED, UNREADABLE, ArtifactFinding
from skdpfair.audit._pickles import (
    BrokenPickle,
    Global,
    Persistent,
    Recorder,
    looks_like_pickle,
    read_stream,
)

_COMPRESSED = {
    b"\x1f\x8b": lambda: zlib.decompressobj(31),
    **{b"\x78" + level: zlib.decompressobj for level in (b"\x01", b"\x5e", b"\x9c", b"\xda")},
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": lzma.LZMADecompressor,
    b"\x5d\x00\x00": lzma.LZMADecompressor,
}
_STEP = 1 << 22  # bytes unpacked at once
_SLACK = 16  # bytes that padding may take
_STORAGES = {
    **{"DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": "bf16"},
    **{"LongStorage": "i8", "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1"},
    **{"ByteStorage": "u1", "UntypedStorage": "u1", "BoolStorage": "b1"},
    **{"ComplexFloatStorage": "c8", "ComplexDoubleStorage": "c16"},
}
_SAFETENSORS = {
    **{"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "bf16", "BOOL": "b1", "U8": "u1"},
    **{"I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U16": "u2", "U32": "u4", "U64": "u8"},
}
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C.to_bytes(10, "little")
_OF_TORCH = (
    *("version", "byteorder", ".format_version", ".storage_alignment"),
    ".data/serialization_id",
)


class Exhausted(Exception):
    """More was asked for than the limits allow."""


class Limits:
    """Bytes, operations, files and seconds that are left, so that a hostile file costs no more.

    Parameters
    ----------
    n_bytes : int, default=2**29
        Read or unpacked, in all.
    operations : int, default=5_000_000
        Opcodes and values; a file counts as many.
    seconds : float, default=120.0
        Of wall time.
    """

    def __init__(self, n_bytes=2**29, operations=5_000_000, seconds=120.0):
        self.left, self.operations = n_bytes, operations
        self.end = time.monotonic() + seconds

    def take_bytes(self, n: int) -> None:
        """Spend bytes."""
        if n > self.left:
            raise Exhausted("it unpacks to more bytes than are read")
        self.left -= n

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


@dataclass(eq=False)
class Tensors:
    """A safetensors file: arrays by name, and the metadata beside them."""

    arrays: dict
    metadata: object


@dataclass(eq=False)
class Text:
    """A file that is text in UTF-8."""

    text: str


@dataclass
class Reader:
    """Opens files and bytes, and notes what cannot be read.

    Parameters
    ----------
    limits : Limits
    findings : list of ArtifactFinding
    regions : list of (where, bytes)
        All bytes seen, unpacked ones included, for the search for known rows.
    """

    limits: Limits = field(default_factory=Limits)
    findings: list[ArtifactFinding] = field(default_factory=list)
    regions: list[tuple[str, bytes]] = field(default_factory=list)
    storages: dict = field(default_factory=dict, repr=False)

    def add(self, kind, where, what, n_bytes=None, shape=None):
        """Note a finding."""
        self.findings.append(ArtifactFinding(kind, where or "(root)", what, shape, n_bytes))

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
        try:
            self.limits.take_operation(256)
            with open(path, "rb") as file:
                data = self.limits.read(file)
        except Exhausted as error:
            self.add(UNREADABLE, where, f"not read in full: {error}")
            return []
        return self.open(data, where)

    def open(self, data, where, packed=False) -> list[tuple[str, object]]:
        """Return the graphs in bytes; what cannot be read becomes a finding."""
        self.regions.append((where, data))
        try:
            return self._open(data, where, packed)
        except Exhausted as error:
            self.add(UNREADABLE, where, f"not read in full: {error}", len(data))
        except Exception as error:  # a hostile file may break any of the libraries that read it
            why = str(error)[:80] if isinstance(error, BrokenPickle) else type(error).__name__
            self.add(UNREADABLE, where, f"broken: {why}", len(data))
            found = getattr(error, "found", None)
            return [] if found is None else [(where, found)]
        return []

    def _open(self, data, where, packed):
        unpacker = next((make for magic, make in _COMPRESSED.items() if data.startswith(magic)), 0)
        if unpacker and not packed:
            inner, rest = self._unpacked(data, unpacker(), where)
            return self.open(inner, where, packed=True) + self._rest(rest, where)
        if data[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            return self._open_zip(data, where)
        if data[8:9] == b"{" and 2 <= int.from_bytes(data[:8], "little") <= len(data) - 8:
            return self._open_safetensors(data, where)
        if looks_like_pickle(data[:2]):
            places = self._open_pickles(data, where)
            if places is not None:
                return places
        return self._open_other(data, where)

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
        if _LEGACY_MAGIC in data[:16]:
            roots, storages, rest = read_legacy_torch(data, self.limits)
            places = [(where, node) for node in (*roots[:0:-1], *storages)]
            return places + self._rest(rest, where)
        roots, rest, broken = read_stream(data, self.limits)
        if not roots:
            return None
        if broken is not None:
            self.add(UNREADABLE, where, f"broken: {broken}", len(data))
        names = [where] if len(roots) == 1 else [beside(where, i) for i in range(len(roots))]
        return list(zip(names, roots, strict=True)) + self._rest(rest, where)

    def _rest(self, data, where):
        """Return the graphs in what follows the end of something."""
        if len(data) <= _SLACK or not data.strip(b"\0\r\n "):
            return []
        return self.open(data, beside(where, "(after its end)"))

    def _open_safetensors(self, data, where):
        tensors, slack = read_safetensors(data)
        return [(where, tensors), *self._rest(slack, where)]

    def _open_zip(self, data, where):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            pickled = [i.filename for i in infos if i.filename.endswith("data.pkl")]
            if not pickled:
                what = "an archive: unpack it, and audit the folder"
                self.add(NOT_JUDGED, where, what, len(data))
                return []
            members = {}
            for info in infos:
                self.limits.take_operation(256)
                with archive.open(info) as file:
                    members[info.filename] = self.limits.read(file)
            slack = uncovered(data[: archive.start_dir], _spans(infos, data)) + archive.comment
        prefix = pickled[0].removesuffix("data.pkl")
        places = self._open_torch(members, prefix, where)
        return places + self._rest(slack, where)

    def _open_torch(self, members, prefix, where):
        """Return the graph of a torch file's pickle; other members are not judged."""
        persistent, storages = _storages(lambda key: members.get(f"{prefix}data/{key}"))
        content = members.pop(f"{prefix}data.pkl")
        self.regions.append((where, content))
        try:
            file = io.BytesIO(content)
            places = [(where, Recorder(file, self.limits, persistent).record())]
            places += self._rest(file.read(), where)
        except BrokenPickle as error:
            self.add(UNREADABLE, where, f"broken: {error}")
            places = [(where, error.found)]
        for key, storage in storages.items():
            places.append((where, storage))
            members.pop(f"{prefix}data/{key}", None)
            self.regions.append((beside(where, f"data/{key}"), storage.data or b""))
        for name, content in members.items():
            if name.removeprefix(prefix) not in _OF_TORCH or len(content) > 64:
                what = "a member that is neither the pickle of a torch file nor a tensor of it"
                self.add(NOT_JUDGED, beside(where, name[:80]), what, len(content))
                self.regions.append((where, content))
        return places

    def storage_of(self, node) -> Storage | None:
        """Return the storage that a tensor is a view of, opened once."""
        if isinstance(node, Storage):
            return node
        data = data_of(node) or b""  # of torch.storage._load_from_bytes
        if _LEGACY_MAGIC not in data[:16]:
            return None
        if id(node) not in self.storages:
            try:
                roots, found, rest = read_legacy_torch(data, self.limits)
            except ValueError:
                return None
            one = isinstance(roots[3], Storage) and len(found) == 1 and len(rest) <= _SLACK
            one = one and all(isinstance(root, (int, dict)) for root in roots[:3])
            self.storages[id(node)] = (node, found[0] if one else None)
            self.regions += [("", s.data) for s in found if s.data is not None]
        return self.storages[id(node)][1]


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


def _spans(infos, data):
    """Return where a zip file's members lie, with what the format writes around them."""
    for info in infos:
        at = info.header_offset
        lengths = data[at + 26 : at + 30]
        size = 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
        trailer = 24 if info.flag_bits & 8 else 0
        yield at, at + size + info.compress_size + trailer


def read_safetensors(data):
    """Return the tensors of a file, and the bytes that belong to none.

    Raises
    ------
    ValueError
        If the header is broken.
    """
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
        metadata = header.pop("__metadata__", {})
        body, arrays, spans = data[8 + length :], {}, []
        for name, facts in header.items():
            start, end = (int(v) for v in facts["data_offsets"])
            shape, dtype = tuple(map(int, facts["shape"])), _SAFETENSORS.get(facts["dtype"], "u1")
            arrays[name] = Array(shape, dtype, body[start:end], subclass="Tensor")
            spans.append((start, end))
            if end - start != math.prod(shape) * size_of(dtype):
                raise ValueError("a shape that does not fit its bytes")
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise ValueError("a broken safetensors header") from None
    return Tensors(arrays, metadata), uncovered(body, spans)


def _storages(content_of):
    """Return a reader of persistent ids that makes storages, and the table it fills.

    ``content_of`` returns the bytes of a key, or None.
    """
    table = {}

    def persistent(pid):
        if not isinstance(pid, tuple) or len(pid) < 4:
            return Persistent(pid)
        if pid[0] == "module" and isinstance(pid[1], Global):  # a class, with its source code
            return pid[1]
        if pid[0] != "storage" or not isinstance(pid[1], Global) or len(pid) not in (5, 6):
            return Persistent(pid)
        key = str(pid[2])
        if key not in table:
            numel = pid[4] if isinstance(pid[4], int) and pid[4] >= 0 else 0
            table[key] = Storage(_STORAGES.get(pid[1].name, "u1"), numel, content_of(key))
        return table[key]

    return persistent, table


def read_legacy_torch(data, limits):
    """Return the roots of a torch file that is no zip, its storages, and the bytes after them.

    Raises
    ------
    BrokenPickle, ValueError
        If it ends early; all that was read is in ``found``.
    """
    file = io.BytesIO(data)
    persistent, table = _storages(lambda key: None)
    roots = [Recorder(file, limits, persistent).record() for _ in range(4)]
    keys = Recorder(file, limits, persistent).record()
    for key in keys if isinstance(keys, list) else []:
        count = int.from_bytes(file.read(8), "little", signed=True)
        storage = table.setdefault(str(key), Storage("u1", count))
        size = max(count, 0) * size_of(storage.dtype)
        storage.data = file.read(min(size, len(data)))
        if len(storage.data) < size:
            raise BrokenPickle("a torch file that ends early", roots[3])
    return roots, list(table.values()), file.read()
