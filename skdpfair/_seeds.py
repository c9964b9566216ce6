"""Where the randomness of a fit comes from: the operating system, or a seed and a digest."""

from functools import partial

import numpy as np
import torch
from sklearn.base import BaseEstimator

from skdpfair.engine import Streams
from skdpfair.engine.noise import digest

# what cannot change the weights of a fit, or has no stable description
_NOT_IN_DIGEST = {"verbose", "device", "random_state", "keep_reference", "diagnostics"}
_DEEPEST = 4  # objects within objects that a description goes into


def streams_of(params, table, before):
    """Return the streams of a fit, and whether they are seeded."""
    state = params["random_state"]
    if state is None:
        return Streams.fresh(), False
    if isinstance(state, np.random.RandomState):
        state = state.randint(2**31 - 1)
    elif isinstance(state, np.random.Generator):
        state = state.integers(2**63 - 1)
    described = sorted((k, describe(v)) for k, v in params.items() if k not in _NOT_IN_DIGEST)
    x = table.x.numpy(force=True) if torch.is_tensor(table.x) else np.asarray(table.x)
    past = () if before is None else _past(before)  # no two fits in a row share their noise
    mixed = digest(x, table.y, table.groups.code, described, *past)
    return Streams.seeded(int(state), digest=mixed), True


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
    if isinstance(value, dict):
        parts = (f"{k!r}: {describe(v, depth)}" for k, v in value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(describe(v, depth) for v in value) + ")"
    if isinstance(value, (np.ndarray, torch.Tensor)) or hasattr(value, "to_numpy"):
        return digest(np.asarray(value)).hex()
    if isinstance(value, (str, bytes, int, float, bool, type(None), np.generic)):
        return repr(value)
    if isinstance(value, partial):
        return describe((value.func, value.args, value.keywords), depth)
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if depth > _DEEPEST:
        return kind
    if isinstance(value, BaseEstimator):
        held = value.get_params(deep=False)
    else:
        held = {k: v for k, v in getattr(value, "__dict__", {}).items() if not k.endswith("_")}
    return f"{kind}({describe(held, depth + 1)})"
