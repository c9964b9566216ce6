"""Descriptions and digests of objects that are the same in every process."""

import hashlib
from collections import OrderedDict
from functools import cache, partial
from inspect import signature
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator

from skdpfair._utils.torch_internals import FunctionalTensor, is_functorch_wrapped_tensor

# containers and objects within one another that a description goes into
MAX_DEPTH = 8
# packages whose names say what they are
_KNOWN = {"builtins", "torch", "skorch", "sklearn", "numpy", "skdpfair"}
# of a module's attributes, hooks for instance
_MOSTLY_EMPTY = {dict, OrderedDict, set}
_PLAIN = (str, bytes, int, float, bool, type(None), np.generic)


def digest(*parts: Any) -> bytes:
    """Return the BLAKE2 digest of arrays (shape, dtype and bytes) and of other values' repr."""
    h = hashlib.blake2b(digest_size=32)
    for part in parts:
        if isinstance(part, np.ndarray):
            h.update(repr((part.shape, part.dtype.str)).encode())
            h.update(np.ascontiguousarray(part).view(np.uint8).reshape(-1).data)
        else:
            h.update(repr(part).encode())
        h.update(b"\0")
    return h.digest()


def describe(value: Any, depth: int = 0, weights: bool = True) -> str:
    """Return a description of a parameter that is the same in every process.

    Without ``weights``, parameters and modes of modules are left out.
    """
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, ModuleType):
        return value.__name__
    name_of = value if hasattr(value, "__qualname__") else type(value)
    kind = f"{getattr(name_of, '__module__', None)}.{name_of.__qualname__}"
    if depth > MAX_DEPTH or (isinstance(value, torch.nn.Parameter) and not weights):
        return kind
    inside = partial(describe, depth=depth + 1, weights=weights)
    if isinstance(value, dict):
        return _described(value, {}, depth, weights)
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(inside(v) for v in value) + ")"
    if isinstance(value, (set, frozenset)):
        return inside(sorted(inside(v) for v in value))
    if isinstance(value, FunctionalTensor) or (
        torch.is_tensor(value) and is_functorch_wrapped_tensor(value)
    ):  # of a transform of torch's, without numbers of its own
        return kind
    if isinstance(value, (np.ndarray, torch.Tensor)) or hasattr(type(value), "to_numpy"):
        array = value.numpy(force=True) if torch.is_tensor(value) else np.asarray(value)
        return inside(array.tolist()) if array.dtype == object else digest(array).hex()
    parts = _parts(value)
    if parts is not None and isinstance(value, (type, FunctionType)):
        # descriptions are stored; a closure may hold records
        parts = digest(inside(parts)).hex()
    if isinstance(parts, dict) and kind.partition(".")[0] == "skdpfair":
        return f"{kind}({_described(parts, _defaults(value.__class__), depth + 1, weights)})"
    return kind if parts is None else f"{kind}({inside(parts)})"


def _described(
    parts: dict[Any, Any], defaults: dict[str, str], depth: int, weights: bool = True
) -> str:
    """Return the descriptions of named parts, without those that are at their defaults."""
    texts = {
        name: describe(part, depth + 1, weights)
        for name, part in parts.items()
        if weights or name != "training"
    }
    texts = {name: text for name, text in texts.items() if text != defaults.get(name)}
    return "{" + ", ".join(f"{name!r}: {text}" for name, text in texts.items()) + "}"


@cache
def _defaults(kind: type) -> dict[str, str]:
    """Return the descriptions of the defaults of a class of this package.

    Then a new parameter changes no description.  A user's class may change its defaults while a
    process lasts, and is described in full.
    """
    parameters = signature(kind).parameters.values()
    return {p.name: describe(p.default) for p in parameters if p.default is not p.empty}


def state_of(module: torch.nn.Module, weights: bool = True) -> str:
    """Return a digest of the state that a module's code may change.

    That is its attributes, parameters and buffers, and the closures, class attributes and plain
    global values of the code that is not torch's own.  Without ``weights``, parameters and modes
    are left out, which training changes.
    """
    parts, code = [], dict[type, str]()
    for name, layer in module.named_modules(remove_duplicate=False):
        own = {
            key: value
            for key, value in vars(layer).items()
            if key != "_modules" and (type(value) not in _MOSTLY_EMPTY or value)
        }
        kind = type(layer)
        code[kind] = code.get(kind) or describe(kind)
        parts.append((name, describe(own, weights=weights), code[kind]))
    return digest(parts).hex()


def _parts(value: Any) -> Any:
    """Return the parts that identify an object, or None if its name does."""
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, value.co_consts
    if isinstance(value, BaseEstimator):
        return value.get_params(deep=False)
    if isinstance(value, MethodType):
        return value.__self__, value.__func__
    if hasattr(value, "__qualname__"):
        is_known = str(value.__module__).partition(".")[0] in _KNOWN
        if is_known or not isinstance(value, (type, FunctionType)):
            return None
        if isinstance(value, FunctionType):
            cells = [_cell(cell) for cell in value.__closure__ or ()]
            names = {name: value.__globals__.get(name) for name in value.__code__.co_names}
            kinds = (str, int, float, tuple, list, dict, set)
            plain = {k: v for k, v in names.items() if isinstance(v, kinds)}
            return value.__code__, value.__defaults__, value.__kwdefaults__, cells, plain
        # two closures of one name, or a cell that was edited
        members = {k: v for k, v in vars(value).items() if not k.startswith("__") or callable(v)}
        return members, value.__bases__
    # the attributes, and those in slots
    state = object.__getstate__(value)
    if state is None:  # of C code, such as a deque or a counter
        text = repr(value)
        return None if " at 0x" in text else digest(text).hex()
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    parts = (slots or {}) | (attributes or {})
    return {k: v for k, v in parts.items() if not k.endswith("_")}


def _cell(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
