"""Findings of an audit of an artefact: kinds and places in words, never values."""

from dataclasses import dataclass, field
from textwrap import wrap

import pandas as pd

GRADIENTS, GRADIENT, HOOK = "per-record gradients", "gradient", "hook"
OPTIMIZER, LOSSES, INDICES = "optimizer state", "loss history", "sampled indices"
GENERATOR, SEED, CLOSURE = "generator state", "seed", "closure"
REFERENCE, CALLBACK, FILE = "reference model", "callback", "file path"
DATA, RECORDS, LABELS, STATISTICS = "data set", "records", "labels", "statistics of the data"
ARRAY, NUMBERS = "unexplained array", "unexplained numbers"
BYTES, TEXT = "unexplained bytes", "unexplained text"
EXECUTABLE, FIGURES = "executable", "non-private figures"
UNLISTED, NOT_JUDGED, UNREADABLE = "not part of a release", "not judged", "unreadable"

IN_WORDS = {
    GRADIENTS: "one gradient per record; a linear layer's holds the record itself",
    GRADIENT: "a gradient before its noise, or one that noise can be told from",
    HOOK: "a hook on a tensor or module",
    OPTIMIZER: "the state of an optimizer",
    LOSSES: "losses on the training data, or what looks like them",
    INDICES: "which records were drawn",
    GENERATOR: "the state of a random generator, which gives its past and next draws",
    SEED: "a seed, which gives the noise away",
    CLOSURE: "what a function carries along",
    REFERENCE: "a second model, or one without finite epsilon",
    CALLBACK: "what a callback kept of the training",
    FILE: "the path of a file",
    DATA: "the training data, or what reads it",
    RECORDS: "records of the data",
    LABELS: "labels or targets of records",
    STATISTICS: "learned from the data outside every privacy budget",
    ARRAY: "an array that no public fact explains",
    NUMBERS: "numbers that no public fact explains",
    TEXT: "texts that no public fact explains",
}

_WIDTH = 100


@dataclass(frozen=True)
class ArtifactFinding:
    """One thing that an artefact hands to whoever gets it.

    Parameters
    ----------
    kind : str
        What it is, such as "per-record gradients" or "unexplained array".
    where : str
        The path to it: attributes by dots, items in brackets, files and their insides by "!".
    what : str
        The same in words; never values of the data.
    shape : tuple of int or None
        Of an array.
    n_bytes : int or None
        Its size, where that is known.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpfair.audit import audit_artifact
    >>> (finding,) = audit_artifact({"lr": 0.1, "cache": np.ones((32, 4))}).findings
    >>> finding.where, finding.shape, finding.n_bytes
    ("['cache']", (32, 4), 1024)
    """

    kind: str
    where: str
    what: str
    shape: tuple[int, ...] | None = None
    n_bytes: int | None = None

    def __str__(self):
        size = "" if self.shape is None else f" {self.shape}"
        return f"{self.kind}: {self.where}: {self.what}{size}"


@dataclass(frozen=True)
class ArtifactReport:
    """The findings of :func:`skdpfair.audit.audit_artifact`.

    Parameters
    ----------
    source : str
        What was audited.
    findings : list of ArtifactFinding
        Empty if everything in it is explained.
    n_nodes : int
        Objects looked at.

    Examples
    --------
    >>> from skdpfair.audit import ArtifactReport
    >>> report = ArtifactReport("model.pkl", [])
    >>> report
    ArtifactReport of model.pkl: nothing found among 0 objects
    >>> report.is_clean
    True
    """

    source: str
    findings: list[ArtifactFinding] = field(default_factory=list)
    n_nodes: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_frame(self) -> pd.DataFrame:
        """Return the findings as a table.

        Returns
        -------
        DataFrame
            One row per finding, with the columns kind, where, what, shape and n_bytes.
        """
        columns = ["kind", "where", "what", "shape", "n_bytes"]
        rows = [[getattr(f, c) for c in columns] for f in self.findings]
        return pd.DataFrame(rows, None, columns)

    def __repr__(self):
        if self.is_clean:
            return f"ArtifactReport of {self.source}: nothing found among {self.n_nodes} objects"
        shown = self.findings[:40]
        rows = [(f.kind, _short(f.where), _size(f), f.what) for f in shown]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:3]
        n = len(self.findings)
        lines = [f"ArtifactReport of {self.source}: {n} finding{'s' * (n != 1)}"]
        for row in rows:
            cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
            before = "  " + "  ".join(cells) + "  "
            wide = max(_WIDTH, len(before) + 30)
            lines += wrap(row[3], wide, initial_indent=before, subsequent_indent=" " * len(before))
        if n > len(shown):
            lines.append(f"  ... and {n - len(shown)} more")
        return "\n".join(lines)


def _short(where, most=44):
    return where if len(where) <= most else f"{where[:18]}...{where[-23:]}"


def _size(finding):
    if finding.shape is not None:
        return "x".join(map(str, finding.shape)) or "scalar"
    return "" if finding.n_bytes is None else f"{finding.n_bytes} bytes"
