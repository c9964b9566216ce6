"""ONNX files as a graph, read by their field numbers; no library of ONNX takes part."""

import math
import re
import struct

from skdpfair.audit._artifacts._facts import as_tree
from skdpfair.audit._artifacts._graph import Blob, Call, Global, Inline, Map, Seq, Weights
from skdpfair.audit._artifacts._text import as_text

# fields of messages: number -> (name, kind); a dict is a message of its own
_TEXT, _INT, _BYTES = "text", "int", "bytes"
_PAIR = {1: ("key", _TEXT), 2: ("value", _TEXT)}
_TENSOR = {
    **{1: ("dims", _INT), 2: ("data_type", _INT), 4: ("float_data", _BYTES)},
    **{5: ("int32_data", _BYTES), 6: ("string_data", _BYTES), 7: ("int64_data", _BYTES)},
    **{8: ("name", _TEXT), 9: ("raw_data", _BYTES), 10: ("double_data", _BYTES)},
}
_ATTRIBUTE = {
    **{1: ("name", _TEXT), 2: ("f", "float"), 3: ("i", _INT), 4: ("s", _BYTES), 5: ("t", _TENSOR)},
    **{7: ("floats", "float"), 8: ("ints", _INT), 9: ("strings", _BYTES), 10: ("tensors", _TENSOR)},
    20: ("type", _INT),
}
_NODE = {
    **{1: ("input", _TEXT), 2: ("output", _TEXT), 3: ("name", _TEXT), 4: ("op_type", _TEXT)},
    **{5: ("attribute", _ATTRIBUTE), 7: ("domain", _TEXT)},
}
_DIM = {1: ("value", _INT), 2: ("param", _TEXT)}
_SHAPE = {1: ("dim", _DIM)}
_TYPE = {1: ("tensor", {1: ("elem_type", _INT), 2: ("shape", _SHAPE)})}
_VALUE = {1: ("name", _TEXT), 2: ("type", _TYPE)}
_GRAPH = {
    **{1: ("node", _NODE), 2: ("name", _TEXT), 5: ("initializer", _TENSOR)},
    **dict.fromkeys((11, 12, 13), ("value", _VALUE)),
}
_MODEL = {
    **{1: ("ir_version", _INT), 2: ("producer_name", _TEXT), 3: ("producer_version", _TEXT)},
    **{4: ("domain", _TEXT), 5: ("model_version", _INT), 7: ("graph", _GRAPH)},
    **{8: ("opset", {1: ("domain", _TEXT), 2: ("version", _INT)}), 14: ("metadata", _PAIR)},
}
_DTYPES = {1: "<f4", 2: "|u1", 3: "|i1", 6: "<i4", 7: "<i8", 9: "|b1", 10: "<f2", 11: "<f8"}
_DTYPES |= {4: "<u2", 5: "<i2", 12: "<u4", 13: "<u8", 16: "bf16"}
_WEIGHTED = {
    *("MatMul", "Gemm", "Conv", "ConvTranspose", "Add", "Mul", "BatchNormalization", "PRelu"),
    *("LayerNormalization", "InstanceNormalization", "GroupNormalization", "LSTM", "GRU", "RNN"),
}
_SHAPING = {"Reshape", "Slice", "Transpose", "Unsqueeze", "Squeeze", "Expand", "Pad", "Split"}
_MOST_SIZES = 16
_OURS = Global("skdpfair.release", "Exported")


class NotOnnx(ValueError):
    """Bytes that are no ONNX file."""


def read_onnx(data, budget):
    """Return the graph of an ONNX file.

    Weights are floating-point constants that layers read; what no layer reads, and what the
    format has no field for, is left to be explained.

    Raises
    ------
    NotOnnx
        If the bytes are none.
    """
    if data[:1] != b"\x08":
        raise NotOnnx
    model, strange = _message(data, _MODEL, budget)
    graph = next((g for g in model.get("graph", ()) if g.get("node")), None)
    if graph is None or "ir_version" not in model:
        raise NotOnnx
    weights, others = _constants(graph)
    pairs = [(p.get("key", [""])[0], p.get("value", [""])[0]) for p in model.get("metadata", ())]
    classes = others.pop("classes", None)
    facts = [("classes_", classes)] if classes is not None else []
    texts = [(k, _fact(k, v)) for k, v in pairs]
    ours = Call(_OURS)
    ours.states.append(Map(facts + texts))
    rest = [(k, v) for k, v in _settings(model, graph)]
    strays = [(f"field {i}", Blob(piece)) for i, piece in enumerate(strange)]
    constants = [(f"constant {name}", node) for name, node in others.items()]
    return Map([("weights", weights), ("facts", ours), *constants, *rest, *strays])


def _fact(name, text):
    tree = as_tree(text)
    if name == "feature_names" and isinstance(tree, Seq):
        return Inline(None, (len(tree.items),), "O", tree)
    return text if tree is None else tree


def _constants(graph):
    """Return the constants that layers read, and the others by name."""
    uses = {}
    for node in graph["node"]:
        for name in node.get("input", ()):
            uses.setdefault(name, set()).add(node.get("op_type", [""])[0])
    weights, others = [], {}
    for tensor in graph.get("initializer", ()):
        name = tensor.get("name", [""])[0]
        array = _array(tensor)
        used = uses.get(name, set())
        floats = isinstance(array, Inline) and array.dtype in ("<f4", "<f2", "<f8", "bf16")
        sizes = isinstance(array, Inline) and math.prod(array.shape) <= _MOST_SIZES
        if floats and used & _WEIGHTED:
            weights.append(array)
        elif not (sizes and array.dtype == "<i8" and used & _SHAPING):
            others[name] = array
    return Weights(weights), others


def _array(tensor):
    shape = tuple(tensor.get("dims", ()))
    kind = tensor.get("data_type", [0])[0]
    if kind == 8:
        return Inline(None, shape, "O", Seq(list(map(_shown, tensor.get("string_data", ())))))
    found = [tensor[k] for k in ("raw_data", "float_data", "double_data") if k in tensor]
    data = b"".join(found[0]) if found else None
    for packed in ("int64_data", "int32_data"):
        if data is None and packed in tensor:
            return Seq([v for piece in tensor[packed] for v in _packed(piece)])
    dtype = _DTYPES.get(kind, "|u1")
    size = 2 if dtype == "bf16" else int(dtype[2:])
    if data is None or len(data) != math.prod(shape) * size:
        return Blob(data or b"")
    return Inline(None, shape, dtype, Blob(data))


def _shown(data):
    text = as_text(data)
    return Blob(data) if text is None and data else text or ""


def _settings(model, graph):
    """Yield what a file says besides: texts that are no names, and attributes of nodes."""
    for k in ("producer_name", "producer_version", "domain"):
        yield from ((k, v) for v in model.get(k, ()))
    yield "name", graph.get("name", [""])[0]
    for value in graph.get("value", ()):
        yield from (("value", v) for v in value.get("name", ()) if not _is_name(v))
    for i, node in enumerate(graph["node"]):
        named = [v for k in ("input", "output", "name") for v in node.get(k, ())]
        yield from ((f"node {i}", v) for v in named if not _is_name(v))
        for attribute in node.get("attribute", ()):
            held = [v for k in ("ints", "floats", "i", "f") for v in attribute.get(k, ())]
            held += [_shown(v) for k in ("s", "strings") for v in attribute.get(k, ())]
            held += [_array(v) for k in ("t", "tensors") for v in attribute.get(k, ())]
            sizes = len(held) <= _MOST_SIZES and all(isinstance(v, int) for v in held)
            alone = len(held) == 1 and isinstance(held[0], float)
            if not (sizes or alone) or node.get("op_type") == ["Constant"]:
                yield f"node {i}", Seq(held)


def _is_name(text):
    return len(text) <= 120 and bool(re.fullmatch(r"[\w./:]+", text))


def _message(data, fields, budget):
    """Return the fields of a message as {name: [values]}, and the bytes of unknown ones."""
    found, strange, at = {}, [], 0
    while at < len(data):
        budget.take_operation()
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        name, kind = fields.get(number, (None, None))
        if wire == 0:
            value, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = data[at : at + size], at + size
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            if len(value) < size:
                raise NotOnnx
        else:
            raise NotOnnx
        values, odd = _values(value, wire, kind, budget)
        strange += odd
        if name is not None:
            found.setdefault(name, []).extend(values)
    return found, strange


def _values(value, wire, kind, budget):
    """Return what a field holds, and what it should not hold."""
    if isinstance(kind, dict) and wire == 2:
        inner, strange = _message(value, kind, budget)
        return [inner], strange
    if kind == _TEXT and wire == 2:
        text = as_text(value)
        return ([""], []) if not value else ([text], []) if text is not None else ([], [value])
    if kind == _BYTES and wire == 2:
        return [value], []
    if kind == _INT and wire in (0, 2):
        return (_packed(value) if wire == 2 else [_signed(value)]), []
    if kind == "float" and wire in (2, 5) and len(value) % 4 == 0:
        return list(struct.unpack(f"<{len(value) // 4}f", value)), []
    return [], [value if isinstance(value, bytes) else str(value).encode()]


def _packed(data):
    values, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(_signed(value))
    return values


def _signed(value):
    return value - 2**64 if value >= 2**63 else value


def _varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise NotOnnx
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
