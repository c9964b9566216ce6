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

_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def unpicklable(name):
    """Stand in for a thing that no pickle can hold; never called."""
    raise TypeError(f"{name} cannot be unpickled")


def tensor(values, attached, shape):
    """Stand in for a tensor and what is attached to it; never called."""
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
            reduced = self.dispatch_table.get(type(obj), lambda o: o.__reduce_ex__(4))(obj)
            if isinstance(reduced, str) and not _is_importable(obj, reduced):
                return _unpicklable(obj)
            return reduced
        except RecursionError:
            raise
        except Exception:  # whatever a class raises that does not want to be pickled
            return _unpicklable(obj)


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


def _unpicklable(obj):
    """Return the name of the class, and the attributes, of a thing that cannot be pickled."""
    name = f"{type(obj).__module__}.{type(obj).__qualname__}"
    return unpicklable, (name,), dict(getattr(obj, "__dict__", {})) or None


def _tensor(obj):
    """Return the numbers of a tensor, its attributes, and its gradient and hooks."""
    held = {name: getattr(obj, name, None) for name in _HOOKS}
    held = {name: list(hooks.values()) for name, hooks in held.items() if hooks}
    if obj.is_leaf and obj.grad is not None:
        held["grad"] = obj.grad
    try:
        values = obj.detach().cpu().numpy()
    except (RuntimeError, NotImplementedError, TypeError):  # of a kind that numpy does not have
        values = None
    return tensor, (values, vars(obj) | held, tuple(obj.shape))


def pickled(obj) -> bytes:
    """Return a pickle of an object that is made to be audited, not to be loaded."""
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
