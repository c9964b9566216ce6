"""Pickles of live objects for audits, with what torch keeps in memory beside a pickle."""

import io
import pickle
import sys
from operator import attrgetter
from types import FunctionType

import torch

from skdpfair.estimator import DPFairClassifier

try:
    import cloudpickle
except ImportError:  # joblib before 1.6 has its own
    from joblib.externals import cloudpickle


def unpicklable(name):
    """Stand in for a thing that no pickle can hold; never called."""
    raise TypeError(f"{name} cannot be unpickled")


def remembered(func, args, extras):
    """Stand in for a tensor with what its pickle would drop; never called."""
    raise TypeError("a pickle for audits only")


class _Pickler(cloudpickle.Pickler):
    """cloudpickle's, but nothing stops it and tensors keep their gradients."""

    def reducer_override(self, obj):
        if isinstance(obj, torch.Tensor):
            return _tensor(obj)
        if isinstance(obj, DPFairClassifier):
            return _classifier(obj)
        reduced = super().reducer_override(obj)
        if reduced is not NotImplemented or isinstance(obj, (type, FunctionType)):
            return reduced
        try:
            reduced = self.dispatch_table.get(type(obj), _reduced)(obj)
            if isinstance(reduced, str) and not _is_importable(obj, reduced):
                return unpicklable, (_name_of(obj),), _contents(obj)
            return reduced
        except RecursionError:
            raise
        except Exception:  # whatever a class raises that does not want to be pickled
            return unpicklable, (_name_of(obj),), _contents(obj)


def _reduced(obj):
    return obj.__reduce_ex__(4)


def _is_importable(obj, name):
    module = sys.modules.get(getattr(obj, "__module__", None) or "builtins")
    try:
        return attrgetter(name)(module) is obj
    except AttributeError:
        return False


def _classifier(obj):
    """Return the state that a pickle of a classifier holds, and what memory holds beside it."""
    func, args, state, *_ = obj.__reduce_ex__(4)
    held = {k: v for k, v in vars(obj).items() if k in ("reference_", "diagnostics_")}
    if "net_" in vars(obj):
        held |= {"module_": obj.net_.module_, "callbacks": obj.callbacks}
    return func, args, (state or {}) | held


def _name_of(obj):
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _contents(obj):
    """Return the attributes of a thing that cannot be pickled, or a generator's variables."""
    frame = getattr(obj, "gi_frame", None)
    variables = {} if frame is None else {"frame": dict(frame.f_locals)}
    return dict(getattr(obj, "__dict__", None) or {}) | variables or None


def _tensor(tensor):
    try:
        func, args, *rest = tensor.__reduce_ex__(4)
    except (RuntimeError, NotImplementedError, TypeError):  # not a leaf, or without memory
        func, args, *rest = _detached(tensor)
    extras = {}
    if tensor.is_leaf and tensor.grad is not None:
        extras["grad"] = tensor.grad
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        if getattr(tensor, name, None):
            extras[name] = list(getattr(tensor, name).values())
    return (remembered, (func, args, extras), *rest) if extras else (func, args, *rest)


def _detached(tensor):
    try:
        return tensor.detach().cpu().clone().__reduce_ex__(4)
    except (RuntimeError, NotImplementedError, TypeError):  # no memory: only its name is kept
        return unpicklable, (_name_of(tensor),), dict(vars(tensor)) or None


def pickled(obj) -> bytes:
    """Return a pickle of an object that is made to be audited, not to be loaded.

    Raises
    ------
    ValueError
        If the object is nested too deeply.
    """
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=4).dump(obj)
    except (RecursionError, pickle.PicklingError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"path_or_object is a {type(obj).__name__} that cannot be looked through "
            f"({type(error).__name__}): it is nested too deeply, or holds what no pickle can. Save "
            "it and audit the file."
        ) from error
    return file.getvalue()
