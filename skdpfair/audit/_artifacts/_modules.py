"""Which arrays are the weights of a network: by name AND by shape."""

import math
import re
from collections import Counter

from skdpfair.audit._artifacts._dtypes import shape_of
from skdpfair.audit._artifacts._graph import Call, Global, Map, Seq, state_of
from skdpfair.audit._artifacts._names import kind_of_name

_USUAL = re.compile(
    r"weight|bias|running_mean|running_var|num_batches_tracked|in_proj_weight|in_proj_bias|"
    r"[qkv]_proj_weight|(weight|bias)_(ih|hh|hr)(_l\d+)?(_reverse)?|bias_[kv]|weight_[gv]"
)
_EMPTY = re.compile(
    r"torch\.nn\.modules\.(container|flatten|dropout|pooling|padding|pixelshuffle|fold|upsampling|"
    r"channelshuffle|loss|distance)\.\w+|torch\.nn\.modules\.activation\.(?!Multi|PReLU)\w+"
)
_LAYERS = {
    r"(NonDynamicallyQuantizable|Lazy)?Linear": (
        ("out_features", "in_features"),
        ("out_features",),
    ),
    r"Bilinear": (("out_features", "in1_features", "in2_features"), ("out_features",)),
    r"Embedding(Bag)?": (("num_embeddings", "embedding_dim"), ()),
    r"\w*(Batch|Instance)Norm\w*": (("num_features",), ("num_features",)),
    r"GroupNorm": (("num_channels",), ("num_channels",)),
}


def is_usual(name) -> bool:
    """Tell whether the last part of a name is one that torch gives weights."""
    return isinstance(name, str) and bool(_USUAL.fullmatch(name.rsplit(".", 1)[-1]))


def is_module(pairs) -> bool:
    """Tell whether attributes are those of a torch module."""
    names = {k for k, _ in pairs if isinstance(k, str)}
    return {"_parameters", "_buffers", "_modules"} <= names


def belongs(cls, facts, name, array) -> bool | None:
    """Tell whether a parameter or buffer has its layer's name and shape; None if none can tell.

    ``facts`` are the layer's own attributes, such as ``in_features``.
    """
    shape = array.shape
    if name == "num_batches_tracked":
        return array.size == 1
    if array.letter != "f" and is_usual(name):
        return False
    if cls is None or not cls.module.startswith("torch.nn"):
        return None
    if _EMPTY.fullmatch(cls.path):
        return False
    for pattern, (weight, bias) in _LAYERS.items():
        if re.fullmatch(pattern, cls.name):
            wanted = weight if name == "weight" or name.startswith("running_") else bias
            usual = name in ("weight", "bias", "running_mean", "running_var")
            return usual and shape == tuple(facts.get(w) for w in wanted)
    if cls.name in ("LayerNorm", "RMSNorm"):
        return name in ("weight", "bias") and shape == shape_of(facts.get("normalized_shape"))
    if re.fullmatch(r"(Lazy)?Conv(Transpose)?\dd", cls.name):
        return _is_of_convolution(cls.name, facts, name, shape)
    return True if is_usual(name) else None


def _is_of_convolution(cls, facts, name, shape):
    n_in, n_out, groups = (facts.get(k) for k in ("in_channels", "out_channels", "groups"))
    if not all(isinstance(n, int) and n > 0 for n in (n_in, n_out, groups)):
        return False
    if name == "bias":
        return shape == (n_out,)
    first = (n_in, n_out // groups) if "Transpose" in cls else (n_out, n_in // groups)
    return name == "weight" and shape == (*first, *shape_of(facts.get("kernel_size")))


def judge_weights(named, metadata=None, trusted=False):
    """Sort the arrays of a mapping into weights, and such as only their dimensions can explain.

    Parameters
    ----------
    named : list of (name, Array)
        In order.
    metadata : set of str or None
        The modules that a state_dict says it is of.
    trusted : bool
        Whether the mapping is known to be one of weights.

    Returns
    -------
    weights, unsure : list of (name, Array)
        The rest is not a network's.
    """
    table, weights, unsure = dict(named), [], []
    dotted = sum(1 for name in table if "." in name) >= len(table) / 2
    if not (trusted or metadata is not None or dotted or {"weight", "bias"} <= set(table)):
        return [], []
    outs = set()
    for name, array in named:
        prefix, _, leaf = name.rpartition(".")
        if metadata is not None and prefix not in metadata:
            continue
        weight, bias = (table.get(f"{prefix}.{n}" if prefix else n) for n in ("weight", "bias"))
        at_root = not prefix and any("." in other for other in table)
        if not is_usual(leaf) or at_root:
            twin = weight is not None and weight is not array and weight.shape == array.shape
            unsure += [] if twin else [(name, array)]
        elif _fits(leaf, array, weight, bias):
            alone = leaf == "weight" and bias is None and array.shape[1:] and not trusted
            if alone and metadata is None and weights and array.shape[1] not in outs:
                continue
            if alone and metadata is None and len(table) == 1:
                continue
            weights.append((name, array))
            outs |= set(array.shape[:1])
    return weights, unsure if weights or trusted else []


def _fits(leaf, array, weight, bias):
    if array.letter != "f" and leaf != "num_batches_tracked":
        return False
    if leaf == "weight":
        if bias is None:
            return 1 <= len(array.shape) <= 5
        return len(array.shape) <= 5 and len(bias.shape) >= 1 and bias.shape[0] in array.shape
    if leaf == "bias":
        if weight is None:
            return len(array.shape) == 1
        return array.shape == weight.shape or (
            len(array.shape) == 1 and array.shape[0] in weight.shape[:2]
        )
    if leaf in ("running_mean", "running_var") and weight is not None:
        return array.shape == weight.shape
    return array.size == 1 if leaf == "num_batches_tracked" else len(array.shape) <= 5


def tied(unsure, dims):
    """Return the arrays under unusual names that fit the network, or each other if it has none.

    Parameters
    ----------
    unsure : list of (name, Array)
    dims : set of int
        Sizes that the network's weights, inputs and outputs have.
    """
    named = [a for name, a in unsure if kind_of_name(name) is None and a.letter in "fbiu"]
    counts = Counter(n for a in named for n in set(a.shape))
    shared = {n for n, count in counts.items() if count > 1} | dims | {1}
    if dims:
        return [a for a in named if set(a.shape) <= shared]
    return [a for a in named if len(named) == 1 or set(a.shape) & (shared - {1})]


def metadata_of(call) -> set[str] | None:
    """Return the module names that torch puts into a state_dict, or None."""
    for key, value in state_of(call):
        if key == "_metadata":
            pairs = value.pairs if isinstance(value, (Call, Map)) else []
            return {k for k, _ in pairs if isinstance(k, str)}
    return None


def expected_shapes(factory) -> dict | None:
    """Return the exact weights of a built-in network by its factory, None for another's."""
    make, params = _made_by(factory)
    if not isinstance(make, Global) or make.module != "skdpfair.networks":
        return None
    given = dict(params.pairs) if isinstance(params, Map) else {}
    given = {k: shape_of(v) if isinstance(v, Seq) else v for k, v in given.items()}
    try:
        return _BUILT_IN[make.name](given)
    except (KeyError, TypeError, ValueError):
        return None


def inputs_of(factory) -> tuple[int, ...]:
    """Return the shape of a record, and its size, as a factory states them."""
    parts = factory.items if isinstance(factory, Seq) else []
    states = getattr(factory, "states", None)
    stated = states[0].get("in_shape") if states and isinstance(states[0], Map) else None
    shape = shape_of(parts[2] if len(parts) > 2 else stated)
    return (*shape, math.prod(shape))


def sizes_of(factory) -> list:
    """Return the parameters of a built-in network that its weights bear out, and its inputs."""
    _, params = _made_by(factory)
    table = dict(params.pairs)
    logits, classes = table.get("initial_logits"), table.get("n_classes")
    if isinstance(logits, Seq) and len(logits.items) != classes:
        return []
    names = ("hidden_layer_sizes", "in_shape", "initial_logits", "channels")
    parts = factory.items if isinstance(factory, Seq) else []
    return [table[name] for name in names if isinstance(table.get(name), Seq)] + parts[2:3]


def _made_by(factory):
    """Return the function and the arguments of a factory, in any of its forms."""
    state = getattr(factory, "states", None) or [factory]
    if isinstance(state[0], Map):
        return state[0].get("make"), state[0].get("params")
    parts = state[0].items if isinstance(state[0], Seq) else []
    if isinstance(factory, Call):  # functools.partial: function, arguments, keywords, attributes
        return (parts[0], parts[2]) if len(parts) > 2 else (None, None)
    return (parts[0], parts[1]) if len(parts) > 2 else (None, None)


def _logistic(given):
    at = "" if len(given["in_shape"]) == 1 else "1."
    return _linear(at, math.prod(given["in_shape"]), given["n_classes"])


def _mlp(given):
    at, width, shapes = int(len(given["in_shape"]) > 1), math.prod(given["in_shape"]), {}
    for size in (*given["hidden_layer_sizes"], given["n_classes"]):
        shapes |= _linear(f"{at}.", width, size)
        at, width = at + 2, size
    return shapes


def _cnn(given):
    shape = given["in_shape"]
    depth, height, width = shape if len(shape) == 3 else (1, *shape)
    at, shapes = int(len(shape) == 2), {}
    for size in given.get("channels", (32, 16)):
        shapes |= {f"{at}.weight": (size, depth, 3, 3), f"{at}.bias": (size,)}
        at, depth, height, width = at + 2, size, height - 2, width - 2
    return shapes | _linear(f"{at + 1}.", depth * height * width, given["n_classes"])


def _linear(prefix, n_in, n_out):
    return {f"{prefix}weight": (n_out, n_in), f"{prefix}bias": (n_out,)}


_BUILT_IN = {"logistic": _logistic, "mlp": _mlp, "small_cnn": _cnn}
