"""Where the randomness of a fit comes from: the operating system, or a seed and a digest."""

from dataclasses import replace
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType

import numpy as np
import torch
from sklearn.base import BaseEstimator

from skdpfair.analysis import GroupRecorder
from skdpfair.engine import Streams
from skdpfair.engine.noise import digest

# what cannot change the weights of a fit, or has no stable description
_NOT_IN_DIGEST = {"verbose", "device", "random_state", "keep_reference", "diagnostics"}
_DEEPEST = 8  # containers and objects within one another that a description goes into
_KNOWN = {"builtins", "torch", "skorch", "sklearn", "numpy", "skdpfair"}  # told by their names


def streams_of(params, table, before, start=None):
    """Return the streams of a fit, and whether they are seeded.

    ``start`` is the entropy of the initial weights of the fit whose twin this one is.
    """
    streams, seeded = _own_streams(params, table, before)
    return streams if start is None else replace(streams, init_entropy=start), seeded


def _own_streams(params, table, before):
    state = params["random_state"]
    if state is None:
        return Streams.fresh(), False
    if isinstance(state, np.random.RandomState):
        state = state.randint(2**31 - 1)
    elif isinstance(state, np.random.Generator):
        state = state.integers(2**63 - 1)
    told = params | {"callbacks": _acting(params["callbacks"])}
    described = sorted((k, describe(v)) for k, v in told.items() if k not in _NOT_IN_DIGEST)
    x = table.x.numpy(force=True) if torch.is_tensor(table.x) else np.asarray(table.x)
    past = () if before is None else _past(before)  # no two fits in a row share their noise
    mixed = digest(x, table.y, table.groups.code, described, *past)
    return Streams.seeded(int(state), digest=mixed), True


def _acting(callbacks):
    """Return the callbacks that may change a fit: all but recorders; None if none is left."""
    return [c for c in callbacks or () if not _is_recorder(c)] or None


def _is_recorder(callback):
    return type(callback[-1] if isinstance(callback, tuple) else callback) is GroupRecorder


def _past(before):
    weights = [w.numpy(force=True) for w in before.module.state_dict().values()]
    return (*weights, before.n_fits, repr(before.privacy.ledger), describe(before.method))


def describe(value, depth=0) -> str:
    """Return a description of a parameter that is the same in every process.

    Examples
    --------
    >>> describe({"a": (1, 2.5)}), describe(torch.nn.Tanh)
    ("{'a': (1, 2.5)}", 'torch.nn.modules.activation.Tanh')
    """
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, (str, bytes, int, float, bool, type(None), np.generic)):
        return repr(value)
    if isinstance(value, ModuleType):
        return value.__name__
    if hasattr(value, "__qualname__"):
        kind = f"{getattr(value, '__module__', None)}.{value.__qualname__}"
    if depth > _DEEPEST:
        return kind
    inside = partial(describe, depth=depth + 1)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {inside(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(inside(v) for v in value) + ")"
    if isinstance(value, (set, frozenset)):
        return inside(sorted(inside(v) for v in value))
    if isinstance(value, (np.ndarray, torch.Tensor)) or hasattr(type(value), "to_numpy"):
        array = value.numpy(force=True) if torch.is_tensor(value) else np.asarray(value)
        return inside(array.tolist()) if array.dtype == object else digest(array).hex()
    held = _held(value)
    if held is not None and isinstance(value, (type, FunctionType)):
        held = digest(inside(held)).hex()  # descriptions are stored, and a closure may hold records
    return kind if held is None else f"{kind}({inside(held)})"


def _held(value):
    """Return what tells an object apart from others of its kind, or None if its name does."""
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, value.co_consts
    if isinstance(value, BaseEstimator):
        return value.get_params(deep=False)
    if isinstance(value, type):  # two closures of one name, or a cell that was edited
        members = {k: v for k, v in vars(value).items() if not k.startswith("__") or callable(v)}
        return None if _is_known(value) else (members, value.__bases__)
    if isinstance(value, MethodType):
        return value.__self__, value.__func__
    if isinstance(value, FunctionType):
        cells = [_cell(cell) for cell in value.__closure__ or ()]
        read = {name: value.__globals__.get(name) for name in value.__code__.co_names}
        plain = {k: v for k, v in read.items() if isinstance(v, (str, int, float, tuple))}
        made = (value.__code__, value.__defaults__, value.__kwdefaults__, cells, plain)
        return None if _is_known(value) else made
    if hasattr(value, "__qualname__"):
        return None
    slots = [name for kind in type(value).__mro__ for name in _slots(kind)]
    held = {name: getattr(value, name, None) for name in slots} | getattr(value, "__dict__", {})
    return {k: v for k, v in held.items() if not k.endswith("_")}


def _slots(kind):
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_known(value):
    return str(value.__module__).partition(".")[0] in _KNOWN


def _cell(cell):
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
