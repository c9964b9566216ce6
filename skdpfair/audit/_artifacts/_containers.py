"""Open an artefact and what is packed in it: a list of places, each with a graph or a finding."""

import io
import os
import zipfile
from dataclasses import dataclass, field

from skdpfair.audit._artifacts import _tensors
from skdpfair.audit._artifacts._archives import beside, open_tar, open_zip
from skdpfair.audit._artifacts._budget import Budget, Exhausted
from skdpfair.audit._artifacts._facts import as_tree, estimator_of
from skdpfair.audit._artifacts._findings import Finding
from skdpfair.audit._artifacts._graph import Blob, Map, Node, Storage, arguments
from skdpfair.audit._artifacts._onnx import NotOnnx, read_onnx
from skdpfair.audit._artifacts._packed import format_of, unpack
from skdpfair.audit._artifacts._pickles import BrokenPickle, looks_like_pickle, read_stream
from skdpfair.audit._artifacts._text import as_text, judge_text, judge_words

DEPTH = 16  # packed in one another
_SLACK = 16  # bytes that padding may take


@dataclass
class Reader:
    """What was read so far.

    Parameters
    ----------
    budget : Budget
    findings : list of Finding
    regions : list of (where, bytes)
        All bytes seen, unpacked ones included, for the search for known rows.
    """

    budget: Budget = field(default_factory=Budget)
    findings: list[Finding] = field(default_factory=list)
    regions: list[tuple[str, bytes]] = field(default_factory=list)
    storages: dict = field(default_factory=dict, repr=False)

    def add(self, kind, where, what, n_bytes=None, shape=None):
        """Note a finding."""
        self.findings.append(Finding(kind, where or "(root)", what, shape, n_bytes))

    def open_path(self, path) -> list[tuple[str, Node]]:
        """Return the graphs of a file or of all files under a folder."""
        if not os.path.isdir(path):
            return self._open_file(path, "")
        places = []
        for folder, subfolders, names in os.walk(path):
            subfolders.sort()
            for name in sorted(names):
                full = os.path.join(folder, name)
                where = os.path.relpath(full, path).replace(os.sep, "/")
                if os.path.islink(full) or not os.path.isfile(full):
                    self.add("unreadable", where, "a link or a special file, not followed")
                else:
                    places += self._open_file(full, where)
        return places

    def _open_file(self, path, where):
        try:
            self.budget.take_part()
            with open(path, "rb") as file:
                data = self.budget.read(file)
        except Exhausted as error:
            self.add("unreadable", where, f"not read in full: {error}")
            return []
        return self.open(data, where)

    def open(self, data, where, depth=0) -> list[tuple[str, Node]]:
        """Return the graphs in bytes; what cannot be read becomes a finding."""
        self.regions.append((where, data))
        try:
            self.budget.take_part()
            if depth > DEPTH:
                raise Exhausted(f"it is packed more than {DEPTH} times")
            return self._open(data, where, depth)
        except Exhausted as error:
            self.add("unreadable", where, f"not read in full: {error}", len(data))
        except Exception as error:  # a hostile file may break any of the libraries that read it
            self.add("unreadable", where, f"broken: {_why(error)}", len(data))
            found = getattr(error, "found", None)
            return [] if found is None else [(where, found)]
        return []

    def _open(self, data, where, depth):
        name = format_of(data)
        if name in ("gzip", "zlib", "bz2", "xz", "lz4", "zstd"):
            inner, rest, error = unpack(data, name, self.budget)
            if error is not None:
                self.add("unreadable", where, error, len(data))
            return self.open(inner, where, depth + 1) + self.rest(rest, where, depth)
        if name in _OPENERS:
            return _OPENERS[name](self, data, where, depth)
        if name == "table":
            self.add("table", where, "a file of a table or a data base, not read", len(data))
            return []
        if looks_like_pickle(data[:2]):
            places = self._open_pickles(data, where, depth)
            if places is not None:
                return places
        return self._open_other(data, where, depth)

    def _open_pickles(self, data, where, depth):
        if _tensors.is_legacy_torch(data):
            roots, tables, rest = _tensors.read_legacy_torch(data, self.budget)
            places = [(where, node) for node in (*roots[:0:-1], *tables)]
            return places + self.rest(rest, where, depth)
        roots, rest, broken = read_stream(data, self.budget)
        if not roots:
            return None
        if broken is not None:
            self.add("unreadable", where, f"broken: {broken}", len(data))
        names = [where] if len(roots) == 1 else [beside(where, i) for i in range(len(roots))]
        return list(zip(names, roots, strict=True)) + self.rest(rest, where, depth)

    def _open_other(self, data, where, depth):
        try:
            return [(where, read_onnx(data, self.budget))]
        except NotOnnx:
            pass
        text = as_text(data)
        if text is not None:
            tree = as_tree(text.strip())
            if tree is not None:
                return [(where, tree)]
            judge_words(self, text, where)
            why, inner = judge_text(text)
            if why is not None:
                self.add("unexplained text", where, why, len(data))
            return [] if inner is None else self.open(inner, where, depth + 1)
        if zipfile.is_zipfile(io.BytesIO(data)):
            return open_zip(self, data, where, depth)
        if not data and not where:
            self.add("unreadable", where, "it is empty", 0)
        elif data:
            self.add("unexplained bytes", where, "bytes in no format that is known", len(data))
        return []

    def storage_of(self, node) -> Storage | None:
        """Return the storage that a tensor is a view of, opened once."""
        if isinstance(node, Storage):
            return node
        blob = next((a for a in arguments(node) if isinstance(a, Blob)), None)
        if blob is None or not _tensors.is_legacy_torch(blob.data):
            return None
        if id(blob) not in self.storages:
            try:
                roots, found, rest = _tensors.read_legacy_torch(blob.data, self.budget)
            except ValueError:
                return None
            one = isinstance(roots[3], Storage) and len(found) == 1 and len(rest) <= _SLACK
            one = one and all(isinstance(r, (int, Map)) for r in roots[:3])
            self.storages[id(blob)] = (blob, found[0] if one else None)
            self.regions += [("", s.data) for s in found if s.data is not None]
        return self.storages[id(blob)][1]

    def rest(self, data, where, depth):
        """Return the graphs in what follows the end of something."""
        if len(data.strip(b"\0\r\n ")) == 0:
            return []
        if len(data) <= _SLACK:
            return []
        return self.open(data, beside(where, "(after its end)"), depth + 1)


def _why(error):
    return str(error)[:80] if isinstance(error, BrokenPickle) else type(error).__name__


def _open_npy(reader, data, where, depth):
    array, rest = _tensors.read_npy(data, reader.budget)
    return [(where, array), *reader.rest(rest, where, depth)]


def _open_safetensors(reader, data, where, depth):
    arrays, metadata, slack = _tensors.read_safetensors(data)
    texts = metadata if isinstance(metadata, dict) else {"metadata": metadata}
    facts = Map([(str(k), v if isinstance(v, str) else str(v)) for k, v in texts.items()])
    released = estimator_of(facts.get("skdpfair", ""), arrays)
    if released is not None:
        facts.pairs = [(k, v) for k, v in facts.pairs if k != "skdpfair"]
    places = [(where, released or arrays), (beside(where, "__metadata__"), facts)]
    return places + reader.rest(slack, where, depth)


_OPENERS = {
    "zip": open_zip,
    "tar": open_tar,
    "npy": _open_npy,
    "safetensors": _open_safetensors,
}
