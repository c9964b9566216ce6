"""A study file: the schema of a table, where it lies, and what to compare on it."""

import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from skdpfair._validate import error_context, safe_repr
from skdpfair.preprocessing import TableSchema

STUDY_PARTS = ("data", "sweep")
_SWEEP_PARTS = ("methods", "epsilons", "seeds", "store", "cv", "keep_predictions", "params")


@dataclass(frozen=True)
class Study:
    """What a study file says.

    Parameters
    ----------
    schema : TableSchema
    data : Path or None
        The table; relative paths are from the file's folder.
    sweep : dict
        What to compare; empty if it does not say.
    """

    schema: TableSchema
    data: Path | None
    sweep: dict

    @classmethod
    def read(cls, path):
        """Return the study in a file of TOML."""
        with error_context(str(path), "is not TOML"):
            facts = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        data, sweep = facts.pop("data", None), facts.pop("sweep", {})
        if data is not None and not isinstance(data, str):
            raise ValueError(f"{path}: data must name a file, got {safe_repr(data)}.")
        if not isinstance(sweep, dict):
            raise ValueError(f"{path}: sweep must be a table, [sweep], got {safe_repr(sweep)}.")
        if unknown := sorted(sweep.keys() - set(_SWEEP_PARTS)):
            raise ValueError(
                f"{path}: [sweep] has no entry {unknown[0]!r}. It has {', '.join(_SWEEP_PARTS)}; "
                "parameters of DPFairClassifier go under [sweep.params]."
            )
        parts = (*STUDY_PARTS, *TableSchema.__dataclass_fields__)
        if unknown := sorted(facts.keys() - set(parts)):
            near = difflib.get_close_matches(unknown[0], parts, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{path}: there is no part {unknown[0]!r}. The parts are {', '.join(parts)}.{hint}"
            )
        try:
            schema = TableSchema.from_dict(facts)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from None
        # as the shell means it first: most people stand where their files are
        found = None if data is None else Path(data)
        if found is not None and not found.exists():
            found = Path(path).parent / data
        return cls(schema, found, sweep)
