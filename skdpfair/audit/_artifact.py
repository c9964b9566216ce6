"""Audits of artefacts: training data and training internals in what is about to be handed over."""

import io
import os
from contextlib import suppress

import torch

from skdpfair._base import DPEstimator
from skdpfair.audit._findings import UNREADABLE, ArtifactFinding, ArtifactReport
from skdpfair.audit._judge_others import Walk
from skdpfair.audit._judge_ours import judge_ours
from skdpfair.audit._known_rows import find_rows, rows_of
from skdpfair.audit._read_files import Exhausted, Reader

try:
    import cloudpickle
except ImportError:  # joblib before 1.6 has its own
    from joblib.externals import cloudpickle

_MOST = 1000
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def audit_artifact(path_or_object, *, rows=None) -> ArtifactReport:
    """List what an artefact would hand over of the training: data, gradients, seeds, models.

    Nothing is executed and nothing that a pickle names is imported.  What this package writes,
    releases, pickles of classifiers, ledgers, is held against a closed list of what such files
    hold.  In other files all arrays, weights included, and all that is more than a few numbers
    and words is listed by its kind.

    Parameters
    ----------
    path_or_object : str, os.PathLike, bytes or object
        A file or a folder: pickles (also by cloudpickle and joblib), torch and safetensors files.
        Bytes are such a file's content.  Any other object is looked at as a pickle of it would
        hold it; of tensors that it holds also ``.grad`` and hooks, which pickles drop.
    rows : array-like or DataFrame of shape (n_rows, n_features), optional
        Records to search for, in several number formats.  Give at least 2 columns and take a few
        hundred rows.

    Returns
    -------
    ArtifactReport
        Its ``findings`` are empty if all is explained.  They never hold values of the data.

    Raises
    ------
    FileNotFoundError
        If there is no such path.
    ValueError
        If ``rows`` is no table of numbers, or no pickle can hold the object.

    Notes
    -----
    A file of another kind is a finding of the kind "not judged"; one that is broken or too large,
    of the kind "unreadable", beside what was found before.  At most 512 MiB, 5 million opcodes
    and 2 minutes are spent.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpfair.audit import audit_artifact
    >>> audit_artifact({"lr": 0.1, "epochs": 3})
    ArtifactReport of a dict: nothing found among 1 objects
    >>> report = audit_artifact({"lr": 0.1, "cache": np.ones((32, 4))})
    >>> [(f.kind, f.where, f.shape) for f in report.findings]
    [('unexplained array', "['cache']", (32, 4))]
    """
    table = None if rows is None else rows_of(rows)
    walk = Walk(reader := Reader(), judge_ours)
    source, places = _opened(path_or_object, reader)
    try:
        walk.walk(places)
    except Exhausted as error:
        reader.add(UNREADABLE, "", f"not looked at in full: {error}")
    walk.finish()
    if table is not None:
        find_rows(table, walk)
    findings = list(dict.fromkeys(reader.findings))
    if (more := len(findings) - _MOST) > 0:
        what = f"{more} more findings, which are not listed"
        findings[_MOST:] = [ArtifactFinding(UNREADABLE, "(root)", what)]
    return ArtifactReport(source, findings, len(walk.seen))


def _opened(thing, reader):
    if isinstance(thing, (str, os.PathLike)):
        path = os.fspath(thing)
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"path_or_object names no file or folder: {path[:60]!r}. To audit a text itself, "
                "pass its bytes: text.encode()."
            )
        return os.path.basename(os.path.normpath(path)), reader.open_path(path)
    if isinstance(thing, io.IOBase):
        data = thing.read()
        return "a file", reader.open(data.encode() if isinstance(data, str) else data, "")
    if isinstance(thing, (bytes, bytearray)):
        return "bytes", reader.open(bytes(thing), "")
    return f"a {type(thing).__name__}", reader.open(_pickled(thing), "")


def live_tensor(values, attached, shape):
    """Stand in for a tensor and what is attached to it in such a pickle; never called."""
    raise TypeError("a pickle for audits only")


class _Pickler(cloudpickle.Pickler):
    """cloudpickle's, but tensors keep their gradients, and classifiers what memory holds."""

    def reducer_override(self, obj):
        if isinstance(obj, torch.Tensor):
            return _tensor(obj)
        ours = isinstance(obj, DPEstimator)
        return _classifier(obj) if ours else super().reducer_override(obj)


def _classifier(obj):
    """Return the state that a pickle of a classifier holds, and what memory holds beside it."""
    func, args, state, *_ = obj.__reduce_ex__(4)
    held = {k: v for k, v in vars(obj).items() if k in ("reference_", "diagnostics_")}
    if "net_" in vars(obj):
        held |= {"module_": obj.net_.module_, "callbacks": obj.callbacks}
    return func, args, (state or {}) | held


def _tensor(obj):
    """Return the numbers of a tensor, its attributes, and its gradient and hooks."""
    held = {name: list(h.values()) for name in _HOOKS if (h := getattr(obj, name, None))}
    if obj.is_leaf and obj.grad is not None:
        held["grad"] = obj.grad
    values = None
    with suppress(RuntimeError, TypeError):  # of a kind that numpy does not have
        values = obj.detach().cpu().numpy()
    return live_tensor, (values, vars(obj) | held, tuple(obj.shape))


def _pickled(obj) -> bytes:
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
