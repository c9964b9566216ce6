"""What an audit of an artefact found, in words, never in values."""

from dataclasses import dataclass, field
from textwrap import wrap

import pandas as pd

_WIDTH = 100


@dataclass(frozen=True)
class Finding:
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
    findings : list of Finding
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
    findings: list[Finding] = field(default_factory=list)
    n_nodes: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_frame(self) -> pd.DataFrame:
        """Return one row per finding: kind, where, what, shape, n_bytes."""
        columns = ["kind", "where", "what", "shape", "n_bytes"]
        return pd.DataFrame(
            [[getattr(f, c) for c in columns] for f in self.findings], None, columns
        )

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
        if len(self.findings) > len(shown):
            lines.append(f"  ... and {len(self.findings) - len(shown)} more")
        return "\n".join(lines)


def _short(where, most=44):
    return where if len(where) <= most else f"{where[:18]}...{where[-23:]}"


def _size(finding):
    if finding.shape is not None:
        return "x".join(map(str, finding.shape)) or "scalar"
    return "" if finding.n_bytes is None else f"{finding.n_bytes} bytes"
