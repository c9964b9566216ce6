"""Parquet files that are larger than memory, encoded by a schema into a memory map."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from skdpfair._utils.files import path_of, replace_file
from skdpfair._utils.progress import ProgressBar
from skdpfair._utils.validate import error_context, error_context_without_data
from skdpfair.preprocessing._schema import TableSchema, labels_in, uncovered

_AT_ONCE = 2**16  # rows
_UNREADABLE = "must be Parquet files, or a pyarrow.dataset of them without a filter"


@dataclass(frozen=True)
class EncodedTable:
    """A table as `DPFairClassifier.fit` takes it, made by `encode_parquet`.

    Parameters
    ----------
    schema : TableSchema
        With fixed encoding, see `TableSchema.with_fixed_encoding`.
    X : memmap of shape (n_samples, n_features), float32
        The features, fetched batch by batch.
    y : ndarray of str of shape (n_samples,), or None
        The labels.
    sensitive_features : DataFrame of shape (n_samples, n_group_columns), or None
        The groups; None if the schema has none.
    units : ndarray of int of shape (n_samples,), or None
        The number of each record's person; None if the schema names no column of persons.
    uncovered : list of str
        Feature columns in which no row has a listed value, or a number within its limits, which is
        NOT private.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.parquet"
    >>> pd.DataFrame({"age": [18, 59], "sex": ["F", "M"], "paid": ["no", "yes"]}).to_parquet(path)
    >>> schema = TableSchema(
    ...     target="paid", classes=["no", "yes"], groups={"sex": ["F", "M"]},
    ...     bounds={"age": (18, 100)}, n_intervals=0,
    ... )
    >>> table = encode_parquet(path, schema, path.with_suffix(".npy"))
    >>> table.X, table.y, list(table.sensitive_features["sex"])
    (memmap([[-1.], [ 0.]], dtype=float32), array(['no', 'yes'], dtype='<U3'), ['F', 'M'])
    """

    schema: TableSchema
    X: np.ndarray
    y: np.ndarray | None = None
    sensitive_features: pd.DataFrame | None = None
    units: np.ndarray | None = None
    uncovered: Collection[str] = ()


def encode_parquet(source, schema, path, *, epsilon=1.0, labelled=True, verbose=0):
    """Encode Parquet files by a schema into one memory map, in memory for one row group.

    Each row is encoded by itself, with public facts only, as by `TableSchema.split`.

    Parameters
    ----------
    source : path-like, list of path-like, or pyarrow.dataset.Dataset
        The Parquet files, in the order of their rows. A path may be a folder of them.
    schema : TableSchema
        The public facts about the columns. Columns with bounds must hold numbers; others texts,
        numbers or flags.
    path : path-like
        The file of numpy (.npy) to write, which only its owner can read; replaced if it exists.
    epsilon : float > 0 or None, default=1.0
        Budget of the fit; it affects ``n_intervals="auto"`` only.
    labelled : bool, default=True
        Whether to read target, groups and persons, which prediction does not need.
    verbose : int, default=0
        Above 0, a progress bar is shown on a terminal.

    Returns
    -------
    EncodedTable
        With ``X``, ``y``, ``sensitive_features`` and ``units``.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = pd.DataFrame({"age": [18, 59], "approved": ["no", "yes"]})
    >>> rows.to_parquet(folder / "a.parquet")
    >>> schema = TableSchema(
    ...     target="approved", classes=["no", "yes"], bounds={"age": (18, 100)}, n_intervals=0
    ... )
    >>> table = encode_parquet([folder / "a.parquet"], schema, folder / "features.npy")
    >>> table.X, table.y
    (memmap([[-1.], [ 0.]], dtype=float32), array(['no', 'yes'], dtype='<U3'))
    """
    dataset, n_samples = _opened(source, schema, labelled)
    n_persons, units = n_samples, None
    if labelled and schema.unit is not None:
        parts = _frames(dataset, [schema.unit], schema)
        units = schema.units_in(pd.concat(parts, ignore_index=True))
        n_persons = units.max() + 1
    schema = schema.with_fixed_encoding(n_persons, epsilon)
    preprocessor, features = schema.preprocessor(), [*schema.bounds, *schema.categories]
    named = [*features, *schema.all_groups, schema.target] if labelled else features
    levels = {column: pd.CategoricalDtype(listed) for column, listed in schema.all_groups.items()}
    y, groups, lacking = [], [], features

    def encoded():
        """Return the features of the rows, part by part, and keep their labels and groups."""
        nonlocal lacking
        done = 0
        with ProgressBar("encoding", "row", total=n_samples, visible=verbose > 0) as bar:
            for frame in _frames(dataset, list(dict.fromkeys(named)), schema):
                if labelled:
                    labels, of_rows = labels_in(schema, frame)
                    y.append(labels)
                    groups.append(None if of_rows is None else of_rows.astype(levels))
                lacking = uncovered(schema, frame, lacking)
                yield np.asarray(preprocessor.transform(frame), dtype=np.float32).tobytes()
                done += len(frame)
                bar.move_to(done)

    shape = n_samples, len(schema.feature_names)
    replace_file(path, chain([_header(shape)], encoded()), is_private=True)
    X = np.load(path_of(path), mmap_mode="r")
    if not labelled:
        return EncodedTable(schema, X, uncovered=lacking)
    all_groups = pd.concat(groups, ignore_index=True) if levels else None
    return EncodedTable(schema, X, np.concatenate(y), all_groups, units, lacking)


def _opened(source: Any, schema: TableSchema, labelled: bool = True) -> tuple[Any, int]:
    """Return the dataset of files, which hold all columns of a schema, and its number of rows."""
    wanted = [*schema.bounds, *schema.categories]
    if labelled:
        wanted += [*schema.all_groups, schema.target, *([schema.unit] if schema.unit else [])]
    dataset = _dataset(source)
    with error_context("source", _UNREADABLE):
        fragments = list(dataset.get_fragments())
        n_samples = sum(fragment.metadata.num_rows for fragment in fragments)
    for fragment in fragments:
        _check(fragment, dataset.schema, wanted, schema.bounds)
    if n_samples == 0:
        names = [getattr(fragment, "path", None) for fragment in fragments]
        raise ValueError(f"source has no rows: {names}. Give Parquet files with rows.")
    return dataset, n_samples


def _frames(dataset: Any, columns: list[str], schema: TableSchema) -> Iterator[pd.DataFrame]:
    """Return some columns of all rows, part by part, from one row group at a time."""
    for fragment in dataset.get_fragments():
        for row_group in fragment.split_by_row_group():
            batches = row_group.to_batches(dataset.schema, columns=columns, batch_size=_AT_ONCE)
            while True:
                with error_context_without_data("source", "has a file that cannot be read"):
                    batch = next(batches, None)
                if batch is None:
                    break
                if batch.num_rows:
                    frame = batch.to_pandas(integer_object_nulls=True)
                    yield frame.astype({c: np.float64 for c in schema.bounds if c in frame})


def column_names(source: Any, wanted: Iterable[str] = ()) -> list[str]:
    """Return the names of the columns of Parquet files, ``wanted`` among them."""
    dataset = _dataset(source)
    _check(next(dataset.get_fragments()), dataset.schema, wanted, ())
    return list(dataset.schema.names)


def n_rows(source: Any, schema: TableSchema) -> int:
    """Return the number of rows of Parquet files, which their footers state."""
    return _opened(source, schema)[1]


def _dataset(source: Any) -> Any:
    try:
        from pyarrow import dataset
    except ImportError:
        raise ImportError("Parquet files need: pip install 'skdpfair[parquet]'.") from None
    if isinstance(source, dataset.Dataset):
        return source
    with error_context("source", _UNREADABLE):
        paths = source if isinstance(source, (str, PathLike)) else [str(path) for path in source]
        return dataset.dataset(paths, format="parquet")


def _check(fragment: Any, schema: Any, wanted: Iterable[str], numbers: Collection[str]) -> None:
    """Raise ValueError if a file lacks a column, or holds another type in it."""
    from pyarrow import dataset, types

    parts = dataset.get_partition_keys(fragment.partition_expression)
    name, stored = Path(fragment.path).name, fragment.physical_schema
    for column in wanted:
        if column not in stored.names and column not in parts:
            raise ValueError(
                f"{name} has no column {column!r}. Each file must hold all columns of the schema."
            )
        kind = (schema if column in parts else stored).field(column).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        tests = types.is_integer, types.is_floating, types.is_decimal, types.is_boolean
        if types.is_null(kind) or any(is_one(kind) for is_one in tests):
            continue
        if column in numbers:
            raise ValueError(
                f"Column {column!r} has bounds, but {name} holds {kind} there. Write numbers, or "
                "move the column to categories."
            )
        if "string" not in str(kind):
            raise ValueError(
                f"Column {column!r} of {name} holds {kind}. Write texts, numbers or flags."
            )


def _header(shape: tuple[int, int]) -> bytes:
    """Return what stands before the numbers in a file of numpy."""
    file = BytesIO()
    facts = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, facts)
    return file.getvalue()
