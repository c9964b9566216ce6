"""Findings of an audit of an artefact: kinds and places in words, never values."""

from dataclasses import dataclass, field

import pandas as pd

UNLISTED, REFERENCE, SEED = "not part of a release", "reference model", "seed"
FIGURES, ROWS = "non-private figures", "rows"
ARRAY, FITTED, ATTACHED = "unexplained array", "fitted values", "attached to a tensor"
VALUES, TEXT, BYTES = "unexplained values", "unexplained text", "unexplained bytes"
DATA, OPTIMIZER, GENERATOR = "data set", "optimizer state", "generator state"
TRAINING, CODE, FILE = "training object", "code", "file path"
EXECUTABLE, NOT_JUDGED, UNREADABLE = "executable", "not judged", "unreadable"

IN_WORDS = {
    REFERENCE: "a second model, without privacy",
    ARRAY: "no public fact explains it",
    FITTED: "learned from the data outside every privacy budget",
    ATTACHED: "a gradient, which tells its record, or a hook",
    VALUES: "no public fact explains them",
    TEXT: "a text that is more than a word",
    BYTES: "bytes that may hold anything",
    DATA: "the training data, or what reads it",
    OPTIMIZER: "averages of gradients",
    GENERATOR: "the state of a random generator, which gives its past and next draws",
    TRAINING: "what trained a model, with what it kept",
    CODE: "a function, with what it carries along",
    FILE: "the path of a file",
}
_MOST_SHOWN = 40


@dataclass(frozen=True)
class ArtifactFinding:
    """One thing that an artefact hands to whoever gets it.

    Parameters
    ----------
    kind : str
        What it is, such as "optimizer state" or "unexplained array".
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
        size = "" if self.n_bytes is None else f" ({self.n_bytes} bytes)"
        size = size if self.shape is None else f" ({'x'.join(map(str, self.shape))})"
        return f"{self.kind}: {self.where}{size}: {self.what}"


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
        return pd.DataFrame(map(vars, self.findings), columns=[*ArtifactFinding.__annotations__])

    def __repr__(self):
        if self.is_clean:
            return f"ArtifactReport of {self.source}: nothing found among {self.n_nodes} objects"
        n = len(self.findings)
        lines = [f"ArtifactReport of {self.source}: {n} finding{'s' * (n != 1)}"]
        lines += [f"  {finding}" for finding in self.findings[:_MOST_SHOWN]]
        if n > _MOST_SHOWN:
            lines.append(f"  ... and {n - _MOST_SHOWN} more")
        return "\n".join(lines)
