"""Find training data and training internals in whatever is about to be handed over."""

import io
import os

from skdpfair.audit._artifacts._budget import Exhausted
from skdpfair.audit._artifacts._containers import Reader
from skdpfair.audit._artifacts._findings import ArtifactReport, Finding
from skdpfair.audit._artifacts._live import pickled
from skdpfair.audit._artifacts._rows import find_rows, rows_of
from skdpfair.audit._artifacts._verdict import conclude
from skdpfair.audit._artifacts._walk import Walker

_MOST = 1000


def audit_artifact(path_or_object, *, rows=None) -> ArtifactReport:
    """Tell what an artefact would hand over of the training: data, gradients, seeds, twins.

    Nothing is executed and nothing is imported: pickles are read by a machine that writes down
    what unpickling would do.  Every array of more than a few numbers must be explained, as a
    weight of a network, a public fact of a known class, or a parameter; otherwise it is a finding.

    Parameters
    ----------
    path_or_object : str, os.PathLike, bytes or object
        A file or a folder: pickles (also by cloudpickle, dill and joblib), files of torch, npy,
        npz, safetensors, skops, text, and archives of these in one another.  Bytes are such a
        file's content.  Any other object is looked at as a pickle of it would hold it; of tensors
        that it holds also ``.grad`` and hooks, which pickles drop.
    rows : array-like or DataFrame of shape (n_rows, n_features), optional
        Records to search for, in every number format and as text, unpacked parts included.  Give
        at least 2 columns and take a few hundred rows.

    Returns
    -------
    ArtifactReport
        Its ``findings`` are empty if all is explained.  They never hold values of the data.

    Raises
    ------
    FileNotFoundError
        If there is no such path.
    ValueError
        If ``rows`` is no table of numbers, or the object is nested too deeply.

    Notes
    -----
    A file that is broken, packed too often or too large is a finding of the kind "unreadable",
    beside what was found before.  At most 512 MiB, 5 million opcodes and 2 minutes are spent.

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
    reader = Reader()
    walker = Walker(reader)
    source, places = _opened(path_or_object, reader)
    try:
        walker.walk(places)
    except (Exhausted, RecursionError) as error:
        reader.add("unreadable", "", f"not walked in full: {error or 'nested too deeply'}")
    conclude(walker)
    if table is not None:
        find_rows(table, walker)
    findings = list(dict.fromkeys(reader.findings))
    if len(findings) > _MOST:
        what = f"{len(findings) - _MOST} more findings, which are not listed"
        findings[_MOST:] = [Finding("unreadable", "(root)", what)]
    return ArtifactReport(source, findings, len(walker.seen))


def _opened(thing, reader):
    if isinstance(thing, (str, os.PathLike)):
        path = os.fspath(thing)
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"path_or_object names no file or folder: {path[:60]!r}. To audit a text itself, "
                "pass its bytes: text.encode()."
            )
        return os.path.basename(os.path.normpath(path)), reader.open_path(path)
    if isinstance(thing, (bytes, bytearray)):
        return "bytes", reader.open(bytes(thing), "")
    if isinstance(thing, io.IOBase):
        data = thing.read()
        return "a file", reader.open(data.encode() if isinstance(data, str) else data, "")
    return f"a {type(thing).__name__}", reader.open(pickled(thing), "")
