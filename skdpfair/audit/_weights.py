"""Arrays that are the weights of a network, by name AND by shape."""

import re
import sys
import warnings
from inspect import signature

import numpy as np
import torch
from torch import nn

from skdpfair.audit._names import kind_of_name
from skdpfair.audit._pickles import Call, state_of

_USUAL = re.compile(
    r"weight|bias|in_proj_weight|in_proj_bias|[qkv]_proj_weight|weight_[gv]|bias_[kv]|"
    r"(weight|bias)_(ih|hh|hr)(_l\d+)?(_reverse)?"
)
_STATISTICS = {"running_mean": 0, "running_var": 1, "num_batches_tracked": 0}  # how they start
_MOST_AXES = 5


def is_module(pairs) -> bool:
    """Tell whether attributes are those of a torch module."""
    names = {k for k, _ in pairs if isinstance(k, str)}
    return {"_parameters", "_buffers", "_modules"} <= names


def is_constant(array) -> bool:
    """Tell whether a buffer holds no data: positions 0, 1, 2, ..., or one number everywhere."""
    values = array.values()
    if values is None or array.letter not in "fiub" or not array.size:
        return False
    rows = values.reshape(-1, array.shape[-1] if array.shape else 1)
    if array.letter in "iu" and (rows == np.arange(rows.shape[1])).all():
        return True
    return bool((values == values.flat[0]).all()) and float(values.flat[0]) in (-1.0, 0.0, 1.0)


def _is_untouched(leaf, array):
    """Tell whether running statistics are as they start, so that no batch is in them."""
    values = array.values()
    return values is not None and bool((values == _STATISTICS[leaf]).all())


def shapes_of_layer(cls, facts) -> dict | None:
    """Return the shapes of a torch layer's weights by name; None for other classes.

    Parameters
    ----------
    cls : Global or None
        The layer's class, which is made on torch's device without memory.
    facts : dict
        The layer's own attributes, such as ``in_features``.
    """
    if cls is None or not cls.module.startswith("torch.nn.modules."):
        return None
    layer = getattr(sys.modules.get(cls.module), cls.name, None)
    if not isinstance(layer, type) or not issubclass(layer, nn.Module):
        return None
    try:
        takes = signature(layer).parameters
        if "kwargs" in takes:  # of recurrent layers, whose base has the parameters
            takes = [name for name in signature(layer.__mro__[1]).parameters if name != "mode"]
        given = {k: facts[k] for k in takes if k in facts and (k != "proj_size" or facts[k])}
        given = {k: v for k, v in given.items() if isinstance(v, (int, float, str, tuple))}
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = layer(**given)
        return {name: tuple(w.shape) for name, w in made.state_dict().items()}
    except Exception:  # the facts may be anything
        return {}


def belongs(expected, name, array) -> bool | None:
    """Tell whether a parameter or buffer has its layer's name and shape; None if none can tell.

    Parameters
    ----------
    expected : dict or None
        As :func:`shapes_of_layer` returns it.
    name : str
    array : Array
    """
    if name in _STATISTICS:
        return _is_untouched(name, array)
    if array.letter != "f" and _USUAL.fullmatch(name):
        return False
    return None if expected is None else expected.get(name) == array.shape


def judge_weights(named, modules=None, trusted=False):
    """Sort the arrays of a mapping into weights, and such as only their sizes can explain.

    Parameters
    ----------
    named : list of (name, Array)
        In order.
    modules : set of str or None
        The modules that a state_dict says it is of.
    trusted : bool, default=False
        Whether the mapping is known to be one of weights.

    Returns
    -------
    weights, unsure : list of (name, Array)
        The rest is not a network's.
    """
    table, weights, unsure = dict(named), [], []
    dotted = sum("." in name for name in table) >= len(table) / 2
    if not (trusted or modules is not None or dotted or {"weight", "bias"} <= set(table)):
        return [], []
    single = any(array.letter == "f" and array.width == 4 for _, array in named)
    outs = set()
    for name, array in named:
        prefix, _, leaf = name.rpartition(".")
        if modules is not None and prefix not in modules:
            continue
        if (
            array.letter == "f" and array.width == 8 and single
        ):  # a copy of data in the precision of tables
            continue
        weight, bias = (table.get(f"{prefix}.{n}" if prefix else n) for n in ("weight", "bias"))
        at_root = name in ("weight", "bias") and any("." in other for other in table)
        if leaf in _STATISTICS and not at_root:
            weights += [(name, array)] if _is_untouched(leaf, array) else []
        elif not _USUAL.fullmatch(leaf) or at_root:
            alike = weight is not None and weight is not array and weight.shape == array.shape
            unsure += [] if alike else [(name, array)]
        elif _fits(leaf, array, weight, bias):
            alone = leaf == "weight" and bias is None and array.shape[1:] and not trusted
            if alone and modules is None and weights and array.shape[1] not in outs:
                continue
            if alone and modules is None and len(table) == 1:
                continue
            weights.append((name, array))
            outs |= set(array.shape[:1])
    return weights, unsure if weights or trusted else []


def _fits(leaf, array, weight, bias):
    if array.letter != "f" or len(array.shape) > _MOST_AXES:
        return False
    if leaf == "weight":
        if bias is None:
            return len(array.shape) >= 1
        return len(bias.shape) >= 1 and bias.shape[0] in array.shape
    if leaf == "bias":
        if weight is None:
            return len(array.shape) == 1
        flat = len(array.shape) == 1 and array.shape[0] in weight.shape[:2]
        return flat or array.shape == weight.shape
    return True


def tied(unsure, outputs):
    """Return the arrays under unusual names all whose sizes are those of the network's layers.

    Sizes of the data, such as its number of columns, explain none: a buffer of the columns'
    largest values has that shape.

    Parameters
    ----------
    unsure : list of (name, Array)
    outputs : set of int
        Numbers of outputs of the network's layers.
    """
    sizes = outputs | {1}
    return [
        array
        for name, array in unsure
        if is_constant(array)
        or (kind_of_name(name) is None and array.letter == "f" and set(array.shape) <= sizes)
    ]


def modules_of(call) -> set[str] | None:
    """Return the module names that torch puts into a state_dict, or None."""
    for key, value in state_of(call):
        if key == "_metadata":
            pairs = value.pairs if isinstance(value, Call) else getattr(value, "items", list)()
            return {k for k, _ in pairs if isinstance(k, str)}
    return None
