"""Audits of artefacts: training data and training internals in what is about to be handed over."""

import io
import os

from skdpfair.audit._closed_list import judge_ours
from skdpfair.audit._containers import Exhausted, Reader
from skdpfair.audit._contents import Walk
from skdpfair.audit._findings import UNREADABLE, ArtifactFinding, ArtifactReport
from skdpfair.audit._known_rows import find_rows, rows_of
from skdpfair.audit._live import pickled

_MOST = 1000


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
    if len(findings) > _MOST:
        what = f"{len(findings) - _MOST} more findings, which are not listed"
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
    return f"a {type(thing).__name__}", reader.open(pickled(thing), "")
