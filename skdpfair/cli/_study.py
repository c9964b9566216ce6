"""Study files: the public facts about a table, its path, and what a sweep compares."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from skdpfair._utils.validate import error_context, nearest
from skdpfair.preprocessing import TableSchema
from skdpfair.preprocessing._linter import PERSON_QUESTION, columns_of_persons

ENTRIES = ("methods", "epsilons", "seeds", "cv", "keep_predictions", "store", "params")


@dataclass(frozen=True)
class Study:
    schema: TableSchema
    data: Path | None  # a relative path is taken from the current folder, then from the file's
    sweep: dict  # what to compare; empty if it does not say

    @classmethod
    def read(cls, path):
        with error_context(str(path), "is not TOML"):
            facts = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        data, sweep = facts.pop("data", None), facts.pop("sweep", {})
        if not isinstance(data, str | None):
            raise ValueError(f"{path}: data must name a file.")
        if not isinstance(sweep, dict) or not isinstance(sweep.get("params", {}), dict):
            raise ValueError(f"{path}: [sweep] and [sweep.params] must be tables.")
        if unknown := sorted(sweep.keys() - set(ENTRIES)):
            raise ValueError(
                f"{path}: [sweep] has no entry {unknown[0]!r}.{nearest(unknown[0], ENTRIES)} Its "
                f"entries are {', '.join(ENTRIES)}; parameters belong under [sweep.params]."
            )
        try:
            schema = TableSchema.from_dict(facts)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from None
        # as the shell means it first: most people stand where their files are
        location = None if data is None else Path(data)
        if location is not None and not location.exists():
            location = Path(path).parent / location
        return cls(schema, location, sweep)


def person_question(names, person):
    """Return the question whether a row is a person; None if ``person`` or the names answer it."""
    name = None if person is not None else next(iter(columns_of_persons(names)), None)
    if name is None:
        return None
    remedy = f"add person = {name!r} and max_records to the schema."
    return PERSON_QUESTION.format(repr(name), remedy)
