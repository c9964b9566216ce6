"""Values as JSON and back, of a closed list of types, so that reading runs no code of a file."""

import math
from dataclasses import fields

import numpy as np
import pandas as pd
import torch

from skdpfair import networks
from skdpfair._validate import safe_repr
from skdpfair.attacks import PGD
from skdpfair.augmentations import FlipAndShift
from skdpfair.features import Scattering2D
from skdpfair.mechanism import METHODS, Method
from skdpfair.privacy import PrivacyReport
from skdpfair.privacy.ledger import Ledger, LedgerEntry

NETWORKS = {"logistic": networks.logistic, "mlp": networks.mlp, "cnn": networks.small_cnn}
_KINDS = "biufUSO"  # of arrays


class NotPlain(TypeError):
    """A value that no file of facts can hold, such as code."""


def encode(value):
    """Return ``value`` as lists, dicts, strings and numbers of which JSON keeps every bit.

    A dict with one key is the tag of what JSON has no word for.  NotPlain is raised for types that
    a release may not hold.

    Examples
    --------
    >>> encode((1, float("inf"))), decode(encode((1, float("inf"))))
    ({'tuple': [1, {'float': 'inf'}]}, (1, inf))
    """
    if isinstance(value, np.generic):
        if value.dtype.kind not in _KINDS:
            raise NotPlain(f"a release cannot hold {safe_repr(value)} ({type(value).__name__})")
        value = value.item()
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (list, range)):
        return [encode(v) for v in value]
    for tag, is_of, parts, _ in _TAGS:
        if is_of(value):
            return {tag: encode_parts(parts(value))}
    raise NotPlain(f"a release cannot hold {safe_repr(value)} ({type(value).__name__})")


def encode_parts(parts):
    """Return the parts of a tagged value: text as it is, all else encoded."""
    return parts if isinstance(parts, str) else [encode(part) for part in parts]


def decode(value):
    """Return the value that :func:`encode` was given; ValueError on an unknown tag."""
    if isinstance(value, list):
        return [decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    (tag, parts), *others = value.items()
    if tag not in _DECODERS or others:
        raise ValueError(f"unknown entry {str(value)[:80]!r}")
    return _DECODERS[tag](parts if isinstance(parts, str) else [decode(part) for part in parts])


def _of(*types):
    return lambda value: isinstance(value, types)


def _array(value):
    value = np.asarray(value)
    if value.dtype.kind not in _KINDS:
        raise NotPlain(f"a release cannot hold an array of {value.dtype}")
    return value.dtype.str, list(value.shape), value.ravel().tolist()


def _to_array(parts):
    kind, shape, values = np.dtype(parts[0]), parts[1], parts[2]
    if kind.kind not in _KINDS:
        raise ValueError(f"an array of {kind}")
    out = np.empty(len(values), dtype=kind)
    for i, value in enumerate(values):  # one by one: tuples are values here, not axes
        out[i] = value
    return out.reshape(shape)


def _method(parts):
    name, params = parts
    if name not in METHODS:
        raise ValueError(
            f"method {name!r} is not registered: import the module that defines it before loading"
        )
    return METHODS[name](**params)


def _optimizer(name):
    found = getattr(torch.optim, name, None)
    if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
        raise ValueError(f"{name!r} is no optimizer of torch.optim")
    return found


def _scattering_facts(value):
    return value.get_params(deep=False), getattr(value, "in_shape_", None)


def _scattering(parts):
    features = Scattering2D(**parts[0])
    if parts[1] is not None:
        features.check(tuple(parts[1]))
        features.in_shape_ = tuple(parts[1])
    return features


def _is_torch_optimizer(value):
    is_optimizer = isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
    return is_optimizer and getattr(torch.optim, value.__name__, None) is value


def _is_registered(value):
    return isinstance(value, Method) and METHODS.get(value.name) is type(value)


def _fields(value):
    return ({f.name: getattr(value, f.name) for f in fields(value)},)


def _name_of(function):
    return next((name for name, known in NETWORKS.items() if function is known), None)


# tag, whether a value is of this kind, its parts (a string or several values), and back
_TAGS = [
    ("tuple", _of(tuple), lambda v: v, tuple),
    ("dict", _of(dict), lambda v: [list(item) for item in v.items()], dict),
    ("array", _of(np.ndarray, pd.Index, pd.Series), _array, _to_array),
    ("float", _of(float), repr, float),
    ("bytes", _of(bytes), bytes.hex, bytes.fromhex),
    ("NA", lambda v: v is pd.NA, lambda _: "", lambda _: pd.NA),
    ("NaT", lambda v: v is pd.NaT, lambda _: "", lambda _: pd.NaT),
    ("timestamp", _of(pd.Timestamp), pd.Timestamp.isoformat, pd.Timestamp),
    (
        "interval",
        _of(pd.Interval),
        lambda v: (v.left, v.right, v.closed),
        lambda parts: pd.Interval(*parts),
    ),
    ("method", _is_registered, lambda v: (v.name, v.get_params(deep=False)), _method),
    ("pgd", lambda v: type(v) is PGD, lambda v: (v.get_params(),), lambda p: PGD(**p[0])),
    ("scattering", lambda v: type(v) is Scattering2D, _scattering_facts, _scattering),
    (
        "flip_and_shift",
        lambda v: type(v) is FlipAndShift,
        lambda v: (v.get_params(),),
        lambda p: FlipAndShift(**p[0]),
    ),
    ("optimizer", _is_torch_optimizer, lambda v: v.__name__, _optimizer),
    ("device", _of(torch.device), str, torch.device),
    ("network", lambda v: _name_of(v) is not None, _name_of, NETWORKS.__getitem__),
    ("report", _of(PrivacyReport), _fields, lambda p: PrivacyReport(**p[0])),
    ("ledger", _of(Ledger), lambda v: v.entries, lambda p: Ledger(tuple(p))),
    ("entry", _of(LedgerEntry), _fields, lambda p: LedgerEntry(**p[0])),
]
_DECODERS = {tag: back for tag, _, _, back in _TAGS}
