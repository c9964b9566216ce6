"""Records that commands read: rows of a CSV file or of Parquet files."""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click
import numpy as np
import pandas as pd

from skdpfair.cli._shell import note
from skdpfair.preprocessing import TableSchema, _table_files
from skdpfair.preprocessing._public import as_encoded
from skdpfair.preprocessing._schema import uncovered

# rows that tell what a column holds
_HEAD = 50_000


class LabelledTable(NamedTuple):
    """Labelled records, and the schema that reads others like them."""

    schema: TableSchema
    X: Any
    y: np.ndarray
    groups: pd.DataFrame | None
    persons: np.ndarray | None
    n_in_all: int | None = None  # if other processes have more of them

    @property
    def n_examples(self) -> int:
        """Number of persons; of records, if each is a person."""
        if self.n_in_all is not None:
            return self.n_in_all
        return len(self.y) if self.persons is None else len(np.unique(self.persons))


def source_of(*data):
    is_parquet = [path.suffix.lower() == ".parquet" for path in data]
    if len(data) > 1 and not all(is_parquet):
        raise ValueError("Give one DATA, or several Parquet files (.parquet).")
    return Parquet(data) if is_parquet[0] else Rows(data[0])


def print_uncovered(columns):
    """Print to the terminal, never to a file, in which columns a schema covers no row."""
    if columns:
        note(
            f"In {', '.join(columns)}, no row has a listed value or a number within the limits: "
            "the model would learn nothing from it. Spell the values as in the file (1 and 1.0 are "
            "the same), and state limits in the unit of the column."
        )


def part_of(source, rank, n_processes):
    """Return what reads the records of one of several processes."""
    if n_processes == 1:
        return source
    n_files = len(source.paths) if isinstance(source, Parquet) else 0
    if n_files < n_processes:
        raise ValueError(
            f"{n_processes} processes need at least {n_processes} Parquet files, as each reads its "
            f"own, got {n_files}. Give more files, or start fewer processes."
        )
    return replace(source, rank=rank, n_processes=n_processes)


def source_for(model, schema, data):
    """Return what reads records like those of a model, which is named in errors."""
    if schema is None:
        raise ValueError(
            f"{model} does not say how its features are made from a table. Save it with "
            "save_release(schema=...), or use it in Python."
        )
    if not schema.has_features:
        raise ValueError(f"{model} takes no rows of a table. Use skdpfair.load_release in Python.")
    return source_of(data)


def test_records(model, schema, data) -> dict:
    """Return the labelled test records of a model, as the functions of reports take them."""
    source = source_for(model, schema, data)
    records = source.read(replace(schema, person=None, max_records=None))  # not needed for tests
    X = as_encoded(pd.DataFrame(records.X, columns=schema.feature_names))
    return {"X": X, "y": records.y, "sensitive_features": records.groups}


@dataclass(frozen=True)
class Rows:
    path: Path

    def head(self, names) -> pd.DataFrame:
        return _table_files.read_columns(self.path, names, (), _HEAD) if names else pd.DataFrame()

    def table_of(self, schema) -> pd.DataFrame:
        return schema.read_csv(self.path)

    def columns(self, wanted=()) -> list:
        return _table_files.columns_of(self.path, wanted)[0]

    def read(self, schema, epsilon=1.0) -> LabelledTable:
        table = schema.read_csv(self.path)
        persons = schema.persons_in(table)
        n_examples = len(table) if persons is None else pd.Series(persons).nunique()
        schema = schema.with_fixed_encoding(n_examples, epsilon)
        print_uncovered(uncovered(schema, table))
        X, y, groups = schema.split(table)
        return LabelledTable(schema, X, y, groups, persons)

    def unlabelled(self, schema):
        table = schema.read_csv(self.path, labelled=False)
        print_uncovered(uncovered(schema, table))
        return schema.preprocessor().transform(table)


@dataclass(frozen=True)
class Parquet:
    """The rows of Parquet files, of which each of several processes reads its own."""

    paths: tuple[Path, ...]
    rank: int = 0
    n_processes: int = 1

    def head(self, names) -> pd.DataFrame:
        return _table_files.dataset_of(self.paths).head(_HEAD, columns=list(names)).to_pandas()

    def table_of(self, schema) -> pd.DataFrame:
        return _table_files.dataset_of(self.paths).to_table(columns=schema.columns()).to_pandas()

    def columns(self, wanted=()) -> list:
        return _table_files.column_names(self.paths, wanted)

    def read(self, schema, epsilon=1.0) -> LabelledTable:
        n_in_all = None
        if self.n_processes > 1:
            n_in_all = _table_files.n_rows(self.paths, schema.columns(), schema.bounds)
            schema = schema.with_fixed_encoding(n_in_all, epsilon)
        paths = self.paths[self.rank :: self.n_processes]
        verbose = self.rank == 0
        table = schema.encode_parquet(paths, _features_file(), epsilon=epsilon, verbose=verbose)
        groups = table.sensitive_features
        print_uncovered(table.uncovered if self.n_processes == 1 else ())
        return LabelledTable(table.schema, table.X, table.y, groups, table.persons, n_in_all)

    def unlabelled(self, schema):
        return schema.encode_parquet(self.paths, _features_file(), labelled=False).X


def _features_file() -> Path:
    """Return a path for features, which is removed when the command ends."""
    # Windows keeps what is mapped
    folder = TemporaryDirectory(ignore_cleanup_errors=True)
    return Path(click.get_current_context().with_resource(folder)) / "features.npy"
