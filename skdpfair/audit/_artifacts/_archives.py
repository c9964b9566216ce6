"""Open zip and tar archives; those of torch, numpy and skops are one thing each."""

import io
import lzma
import tarfile
import zipfile
import zlib

from skdpfair.audit._artifacts import _tensors
from skdpfair.audit._artifacts._graph import Map, Roots
from skdpfair.audit._artifacts._pickles import BrokenPickle, Machine
from skdpfair.audit._artifacts._skops import schema_nodes


def beside(where, name):
    """Return the path of a member of what lies at ``where``."""
    return f"{where}!{name}" if where else str(name)


def open_zip(reader, data, where, depth):
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    # zipfile knows not every version (NotImplementedError); what it cannot open is a finding
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise ValueError("a broken zip file") from error
    with archive:
        contents = []
        for info in archive.infolist():
            if not info.is_dir():
                contents.append((info.filename, _member(reader, archive, info, where)))
        slack = _tensors.uncovered(data[: archive.start_dir], _spans(archive, data))
        members = [(n, c) for n, c in contents if c is not None]
        places = _open_members(reader, members, where, depth)
        if archive.comment:
            places += reader.rest(archive.comment, where, depth)
        return places + reader.rest(slack, where, depth)


def _member(reader, archive, info, where):
    reader.budget.take_part()
    try:
        if info.flag_bits & 1:
            raise ValueError("it is encrypted")
        with archive.open(info) as file:
            return reader.budget.read(file)
    # nor every compression (NotImplementedError): what is not read is said, never passed over
    except (ValueError, zipfile.BadZipFile, NotImplementedError, OSError, EOFError) as error:
        what = f"an archive's member that cannot be read: {type(error).__name__}"
    except (RuntimeError, zlib.error, lzma.LZMAError):
        what = "an archive's member that cannot be read"
    reader.add("unreadable", beside(where, info.filename), what, info.file_size)
    return None


def _spans(archive, data):
    """Return where members lie, with what the format writes around them."""
    for info in archive.infolist():
        at = info.header_offset
        lengths = data[at + 26 : at + 30]
        size = 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
        trailer = 24 if info.flag_bits & 8 else 0
        yield at, at + size + info.compress_size + trailer


def _open_members(reader, members, where, depth):
    """Return the graphs of an archive's members; torch, npz and skops files are one thing each."""
    names = [name for name, _ in members]
    pickled = next((n for n in names if n.endswith("data.pkl") and n.count("/") <= 1), None)
    if pickled is not None:
        return _open_torch(reader, members, pickled.removesuffix("data.pkl"), where, depth)
    if members and all(name.endswith(".npy") for name in names):
        return [(where, _arrays_by_name(reader, members, where, depth))]
    if "schema.json" in names:
        node, used = schema_nodes(dict(members), reader.budget)
        rest = [(n, c) for n, c in members if n not in used]
        return [(where, node), *_each(reader, rest, where, depth)]
    return _each(reader, members, where, depth)


def _each(reader, members, where, depth):
    places = []
    for name, content in members:
        places += reader.open(content, beside(where, name), depth + 1)
    return places


def _arrays_by_name(reader, members, where, depth):
    node, extra = Map(), []
    for name, content in members:
        reader.regions.append((beside(where, name), content))
        array, rest = _tensors.read_npy(content, reader.budget)
        node.pairs.append((name.removesuffix(".npy"), array))
        extra += reader.rest(rest, beside(where, name), depth)
    return Roots([("", node), *(("", n) for _, n in extra)])


def _open_torch(reader, members, prefix, where, depth):
    table = dict(members)

    def content_of(key):
        return table.get(f"{prefix}data/{key}") or table.get(f"{prefix}constants/{key}")

    persistent, storages = _tensors.storages(content_of)
    places, used = [], set()
    for name in ("data.pkl", "constants.pkl"):
        if prefix + name in table:
            reader.regions.append((beside(where, name), table[prefix + name]))
            file = io.BytesIO(table[prefix + name])
            inside = where if name == "data.pkl" else beside(where, name)
            try:
                places.append((inside, Machine(file, reader.budget, persistent).load()))
            except BrokenPickle as error:
                reader.add("unreadable", inside, f"broken: {error}")
                places.append((inside, error.found))
            places += reader.rest(file.read(), inside, depth)
            used.add(prefix + name)
    for key, storage in storages.items():
        places.append((where, storage))
        used |= {f"{prefix}data/{key}", f"{prefix}constants/{key}"}
        if storage.data is not None:
            reader.regions.append((beside(where, f"data/{key}"), storage.data))
    small = (
        "version",
        "byteorder",
        ".format_version",
        ".storage_alignment",
        ".data/serialization_id",
    )
    rest = [(n, c) for n, c in members if n not in used]
    rest = [(n, c) for n, c in rest if not (n.removeprefix(prefix) in small and len(c) <= 64)]
    return places + _each(reader, rest, where, depth)


def open_tar(reader, data, where, depth):
    places = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for info in archive:
                reader.budget.take_part()
                name = beside(where, info.name)
                if info.isfile():
                    places += reader.open(
                        reader.budget.read(archive.extractfile(info)), name, depth
                    )
                elif not info.isdir():
                    reader.add("unreadable", name, "a link or a special file, not followed")
    except tarfile.TarError as error:
        raise ValueError("a broken tar file") from error
    return places
