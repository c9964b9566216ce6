"""Files of arrays: npy, safetensors, and both formats of torch."""

import io
import json
import math

from numpy.lib import format as npy

from skdpfair.audit._artifacts._dtypes import shape_of, size_of
from skdpfair.audit._artifacts._graph import Blob, Global, Inline, Map, Persistent, Seq, Storage
from skdpfair.audit._artifacts._pickles import BrokenPickle, Machine

_TORCH = {
    **{"DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": "bf16"},
    **{"LongStorage": "i8", "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1"},
    **{"ByteStorage": "u1", "UntypedStorage": "u1", "BoolStorage": "b1"},
    **{"ComplexFloatStorage": "c8", "ComplexDoubleStorage": "c16"},
}
_SAFETENSORS = {
    **{"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "bf16", "BOOL": "b1", "U8": "u1"},
    **{"I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U16": "u2", "U32": "u4", "U64": "u8"},
}
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


def bytes_of(dtype: str) -> int:
    """Return the bytes of one item, "bf16" included."""
    return 2 if dtype == "bf16" else size_of(dtype)


def read_npy(data, budget):
    """Return the array of an npy file and the bytes after it.

    Raises
    ------
    ValueError
        If it is none, or ends early.
    """
    file = io.BytesIO(data)
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    try:
        shape, _, dtype = read(file)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError("a broken npy header") from error
    if dtype.hasobject:
        content = Machine(file, budget).load()
        return Inline(None, shape, "O", content), file.read()
    n = math.prod(shape) * dtype.itemsize
    content = file.read(n) if n <= len(data) else b""
    if len(content) < n:
        raise ValueError("an npy file that ends early")
    return Inline(None, shape, dtype.str, Blob(content)), file.read()


def read_safetensors(data):
    """Return the arrays by name, the metadata, and the bytes that belong to no array."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
        metadata = header.pop("__metadata__", {})
        body, arrays, used = data[8 + length :], Map(), []
        for name, facts in header.items():
            start, end = (int(v) for v in facts["data_offsets"])
            shape, dtype = tuple(map(int, facts["shape"])), _SAFETENSORS.get(facts["dtype"], "u1")
            arrays.pairs.append((name, Inline(None, shape, dtype, Blob(body[start:end]))))
            used.append((start, end))
            if end - start != math.prod(shape) * bytes_of(dtype):
                raise ValueError("a shape that does not fit its bytes")
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError("a broken safetensors header") from error
    except RecursionError as error:
        raise ValueError("a broken safetensors header") from error
    return arrays, metadata, uncovered(body, used)


def uncovered(data, spans) -> bytes:
    """Return the bytes outside all spans (start, end)."""
    pieces, at = [], 0
    for start, end in sorted(spans):
        pieces.append(data[at : max(at, start)])
        at = max(at, end)
    return b"".join([*pieces, data[at:]])


def storages(content_of):
    """Return a reader of persistent ids that makes storages, and the table it fills.

    ``content_of`` returns the bytes of a key, or None.
    """
    table = {}

    def persistent(pid):
        parts = pid.items if isinstance(pid, Seq) else []
        if len(parts) == 4 and parts[0] == "module":  # a class, with its source code
            pid.items[2] = None  # the path of that source
            return parts[1]
        if len(parts) < 5 or parts[0] != "storage" or not isinstance(parts[1], Global):
            return Persistent(pid)
        key = str(parts[2])
        if key not in table:
            dtype = _TORCH.get(parts[1].name, "u1")
            numel = parts[4] if isinstance(parts[4], int) and parts[4] >= 0 else 0
            table[key] = Storage(key, dtype, numel, content_of(key), pid)
        return table[key]

    return persistent, table


def is_legacy_torch(data: bytes) -> bool:
    """Tell whether bytes are what torch.save wrote before it wrote zip files."""
    return _LEGACY_MAGIC.to_bytes(10, "little") in data[:16]


def read_legacy_torch(data, budget):
    """Return the roots of a legacy torch file, and the bytes that belong to no storage.

    Raises
    ------
    BrokenPickle, ValueError
        If it ends early; all that was read is in ``found``.
    """
    file = io.BytesIO(data)
    persistent, table = storages(lambda key: None)
    roots = [Machine(file, budget, persistent).load() for _ in range(4)]
    keys = Machine(file, budget, persistent).load()
    for key in keys.items if isinstance(keys, Seq) else []:
        count = int.from_bytes(file.read(8), "little", signed=True)
        storage = table.get(str(key)) or Storage(str(key), "u1", count)
        size = max(count, 0) * bytes_of(storage.dtype)
        storage.data = file.read(min(size, len(data)))
        if len(storage.data) < size:
            raise BrokenPickle("a torch file that ends early", roots[3])
    return roots, list(table.values()), file.read()


def storage_in(node) -> Storage | None:
    """Return the storage that a torch file consists of."""
    return node if isinstance(node, Storage) else None


def size_stated(node) -> tuple[int, ...]:
    """Return a shape given as a tuple or as a torch.Size."""
    args = getattr(node, "args", None)
    if isinstance(args, Seq) and args.items:
        node = args.items[0]
    return shape_of(node)
