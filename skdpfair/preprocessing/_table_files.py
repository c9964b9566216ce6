"""Columns of CSV files, without an error that shows a cell, and of Parquet files, part by part."""

import csv
from collections.abc import Collection, Iterable, Iterator
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from skdpfair._utils.validate import error_context, error_context_without_data, nearest

_AT_ONCE = 2**16  # rows
_UNREADABLE = "must be Parquet files, or a pyarrow.dataset of them without a filter"


def dataset_of(source: Any) -> Any:
    try:
        from pyarrow import dataset
    except ImportError:
        raise ImportError("Parquet files need: pip install 'skdpfair[parquet]'.") from None
    if isinstance(source, dataset.Dataset):
        return source
    with error_context("source", _UNREADABLE):
        paths = source if isinstance(source, (str, PathLike)) else [str(path) for path in source]
        return dataset.dataset(paths, format="parquet")


def n_rows(source: Any, columns: Collection[str], numbers: Collection[str]) -> int:
    """Return the number of rows that footers state; each file must have some columns."""
    dataset = dataset_of(source)
    with error_context("source", _UNREADABLE):
        fragments = list(dataset.get_fragments())
        n = sum(fragment.metadata.num_rows for fragment in fragments)
    for fragment in fragments:
        _check(fragment, dataset.schema, columns, numbers)
    if n == 0:
        names = [getattr(fragment, "path", None) for fragment in fragments]
        raise ValueError(f"source has no rows: {names}. Give Parquet files with rows.")
    return n


def frames(source: Any, columns: list[str], numbers: Collection[str]) -> Iterator[pd.DataFrame]:
    """Return some columns of all rows, part by part, from one row group at a time."""
    dataset = dataset_of(source)
    for fragment in dataset.get_fragments():
        for row_group in fragment.split_by_row_group():
            batches = row_group.to_batches(dataset.schema, columns=columns, batch_size=_AT_ONCE)
            while True:
                with error_context_without_data("source", "has a file that cannot be read"):
                    batch = next(batches, None)
                if batch is None:
                    break
                if batch.num_rows:
                    # integers with gaps would become floats, whose texts differ from the file's
                    frame = batch.to_pandas(integer_object_nulls=True)
                    yield frame.astype({c: np.float64 for c in numbers if c in frame})


def column_names(source: Any, wanted: Iterable[str] = ()) -> list[str]:
    """Return the names of the columns of Parquet files, ``wanted`` among them."""
    dataset = dataset_of(source)
    _check(next(dataset.get_fragments()), dataset.schema, wanted, ())
    return list(dataset.schema.names)


def _check(fragment: Any, schema: Any, wanted: Iterable[str], numbers: Collection[str]) -> None:
    """Raise ValueError if a file lacks a column, or holds another type in it."""
    from pyarrow import dataset, types

    parts = dataset.get_partition_keys(fragment.partition_expression)
    name, stored = Path(fragment.path).name, fragment.physical_schema
    for column in wanted:
        if column not in stored.names and column not in parts:
            raise ValueError(
                f"{name} has no column {column!r}.{nearest(column, stored.names)} Each file must "
                "hold all columns of the schema."
            )
        kind = (schema if column in parts else stored).field(column).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        tests = types.is_integer, types.is_floating, types.is_decimal, types.is_boolean
        if types.is_null(kind) or any(is_one(kind) for is_one in tests):
            continue
        if column in numbers or "string" not in str(kind):
            wanted_type = "numbers" if column in numbers else "texts, numbers or flags"
            raise ValueError(
                f"Column {column!r} of {name} holds {kind}, where the schema needs {wanted_type}. "
                "Write these, or change bounds and categories."
            )


def npy_header(shape: tuple[int, int]) -> bytes:
    """Return the start of a numpy file with an array of this shape, float32."""
    file = BytesIO()
    facts = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, facts)
    return file.getvalue()


_MAX_COMPARED = 1000  # names of columns, with one that is not among them
_SEPARATORS = ",;\t|"
_COMPRESSED = (".gz", ".bz2", ".zip", ".xz", ".zst", ".tar")


def read_columns(path, numbers, texts, n_rows=None):
    """Read some columns of a CSV file; numbers that cannot be read as such stay texts."""
    names, separator = columns_of(path, [*numbers, *texts])
    _check_rows(path, names, separator)
    # of texts, only "" is missing: "NA" may be a category
    usual = ["", "NA", "N/A", "nan", "NaN", "null", "?", "-"]
    try:
        table = pd.read_csv(
            path,
            sep=separator,
            usecols=[*numbers, *texts],
            dtype=dict.fromkeys(texts, object),
            keep_default_na=False,
            na_values=dict.fromkeys(numbers, usual) | {column: [""] for column in texts},
            skipinitialspace=True,
            encoding="utf-8-sig",
            low_memory=False,
            nrows=n_rows,
        )
    except Exception as error:  # parsers quote the line that they stumble over
        raise ValueError(f"{Path(path).name} {_unreadable(error)}") from None
    if table.empty:
        raise ValueError(f"{Path(path).name} has no rows below its header.")
    return table


def columns_of(path, wanted=()):
    """Return the column names of a CSV file, ``wanted`` ones among them, and its separator.

    An error shows only names that resemble a wanted one: without a header, the first line is a
    record.
    """
    first = {"header": None, "nrows": 1, "encoding": "utf-8-sig", "dtype": str}
    try:
        # a separator that no file has, for the whole first line
        line = pd.read_csv(path, sep="\x1f", quoting=3, **first).iloc[0, 0]
        separator = max(_SEPARATORS, key=str(line).count)
        names = pd.read_csv(path, sep=separator, skipinitialspace=True, **first).iloc[0]
    except FileNotFoundError:
        raise ValueError(f"File {str(path)!r} does not exist.") from None
    except Exception as error:
        raise ValueError(f"{Path(path).name} {_unreadable(error)}") from None
    names, place = ["" if name != name else str(name) for name in names], {}  # of NaN
    for at, name in enumerate(names, start=1):
        if place.setdefault(name, at) != at:
            raise ValueError(
                f"{Path(path).name} has no header, or one in which columns {place[name]} and {at} "
                "have the same name. Give each column its own name in the first line."
            )
    if absent := next((name for name in wanted if name not in place), None):
        raise ValueError(
            f"{Path(path).name} has no column {absent!r}.{nearest(absent, names[:_MAX_COMPARED])} "
            "Its first line must hold the column names."
        )
    return names, separator


def _check_rows(path, names, separator):
    """Raise if a row has another number of fields than the header, which shifts its columns."""
    # only pandas unpacks these
    if Path(path).suffix in _COMPRESSED:
        return
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
        try:
            for row in reader:
                if row and len(row) != len(names):
                    raise ValueError(
                        f"{Path(path).name}: line {reader.line_num} has {len(row)} fields, and the "
                        f"header {len(names)} (a decimal comma, or a separator within a text that "
                        "lacks quotation marks?). Correct the file."
                    )
        except csv.Error as error:
            raise ValueError(f"{Path(path).name} {_unreadable(error)}") from None


def _unreadable(error):
    """Return the reason why a file cannot be read, without its cells."""
    if isinstance(error, pd.errors.EmptyDataError):
        return "is empty. Its first line must hold the column names."
    if isinstance(error, UnicodeError):
        return 'is not in UTF-8: save it as "CSV UTF-8", or convert it.'
    return f"cannot be read as a table with a header: {type(error).__name__}."
