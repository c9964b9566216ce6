"""Pickles of live objects for audits, with what torch keeps in memory beside a pickle."""

import io

import torch

from skdpfair.estimator import DPFairClassifier

try:
    import cloudpickle
except ImportError:  # joblib before 1.6 has its own
    from joblib.externals import cloudpickle

_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def tensor(values, attached, shape):
    """Stand in for a tensor and what is attached to it; never called."""
    raise TypeError("a pickle for audits only")


class _Pickler(cloudpickle.Pickler):
    """cloudpickle's, but tensors keep their gradients, and classifiers what memory holds."""

    def reducer_override(self, obj):
        if isinstance(obj, torch.Tensor):
            return _tensor(obj)
        return (
            _classifier(obj) if isinstance(obj, DPFairClassifier) else super().reducer_override(obj)
        )


def _classifier(obj):
    """Return the state that a pickle of a classifier holds, and what memory holds beside it."""
    func, args, state, *_ = obj.__reduce_ex__(4)
    held = {k: v for k, v in vars(obj).items() if k in ("reference_", "diagnostics_")}
    if "net_" in vars(obj):
        held |= {"module_": obj.net_.module_, "callbacks": obj.callbacks}
    return func, args, (state or {}) | held


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
    except Exception as error:  # whatever a class raises that does not want to be pickled
        raise ValueError(
            f"path_or_object is a {type(obj).__name__} that cannot be looked through "
            f"({type(error).__name__}): it is nested too deeply, or holds what no pickle can. Save "
            "it and audit the file."
        ) from error
    return file.getvalue()
