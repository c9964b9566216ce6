"""Tables in Parquet files that are larger than memory, encoded by a schema part by part."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain, pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from skdpfair._files import path_of, replace_file
from skdpfair._progress import ProgressBar
from skdpfair._validate import error_context, error_context_without_data
from skdpfair.inputs.mapped_rows import MappedRows
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
    X : memmap of shape (n_samples, n_features), float32, or rows that are read from the files
        The features, fetched batch by batch.
    y : ndarray of str of shape (n_samples,), or None
        The labels.
    sensitive_features : DataFrame of shape (n_samples, n_group_columns), or None
        The groups; None if the schema has none.
    units : ndarray of int of shape (n_samples,), or None
        The number of each record's person; None if the schema names no column of persons.
    uncovered : list of str
        Feature columns in which no row has a listed value, or a number within its limits, which is
        NOT private; empty where the features are not written to a file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.parquet"
    >>> pd.DataFrame({"age": [18, 59], "sex": ["F", "M"], "paid": ["no", "yes"]}).to_parquet(path)
    >>> schema = TableSchema(
    ...     target="paid", classes=["no", "yes"], groups={"sex": ["F", "M"]},
    ...     bounds={"age": (18, 100)}, n_intervals=0,
    ... )
    >>> table = encode_parquet(path, schema)
    >>> table.X[1:], table.y[1:], list(table.sensitive_features["sex"])
    (array([[0.]], dtype=float32), array(['yes'], dtype='<U3'), ['F', 'M'])
    """

    schema: TableSchema
    X: np.ndarray | MappedRows
    y: np.ndarray | None = None
    sensitive_features: pd.DataFrame | None = None
    units: np.ndarray | None = None
    uncovered: Collection[str] = ()


def encode_parquet(source, schema, path=None, *, epsilon=1.0, labelled=True, verbose=0):
    """Encode Parquet files by a schema into one memory map, in memory for one row group.

    Each row is encoded by itself, with public facts only, as by `TableSchema.split`.

    Parameters
    ----------
    source : path-like, list of path-like, or pyarrow.dataset.Dataset
        The Parquet files, in the order of their rows. A path may be a folder of them.
    schema : TableSchema
        The public facts about the columns. Columns with bounds must hold numbers; others texts,
        numbers or flags.
    path : path-like or None, default=None
        The file of numpy (.npy) to write, which only its owner can read; replaced if it exists.
        None writes nothing: X reads the files again for each batch, see Notes.
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

    Raises
    ------
    ImportError
        If pyarrow is not installed.
    ValueError, TypeError
        If the files cannot be read, lack a column or hold another type, or if a label or a group
        is missing or not listed. No error shows the content of a cell.

    Notes
    -----
    Batches are exact Poisson samples in both cases. Without ``path``, each step reads all row
    groups that hold a record of its batch. These are almost all row groups of the files, unless a
    batch has fewer records than there are row groups. ``fit`` also reads all files once to refuse
    numbers that are not finite. Give ``path`` for more than a few steps.

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
    table = _RowGroups(source, schema, labelled)
    units = None
    if labelled and schema.unit is not None:
        units = schema.units_in(pd.concat(table.frames([schema.unit]), ignore_index=True))
    schema = schema.with_fixed_encoding(len(table) if units is None else units.max() + 1, epsilon)
    shape = len(table), len(schema.feature_names)
    encoded = partial(_encoded, schema.preprocessor())
    named = [*schema.all_groups, schema.target] if labelled else []
    levels = {column: pd.CategoricalDtype(listed) for column, listed in schema.all_groups.items()}
    y, groups = [], []
    lacking = [*schema.bounds, *schema.categories] * (path is not None)

    def read(columns):
        """Return the rows, part by part, and keep their labels and groups."""
        nonlocal lacking
        done = 0
        with ProgressBar("encoding", "row", total=len(table), visible=verbose > 0) as bar:
            for frame in table.frames(list(dict.fromkeys(columns))):
                if labelled:
                    labels, of_rows = labels_in(schema, frame)
                    y.append(labels)
                    groups.append(None if of_rows is None else of_rows.astype(levels))
                lacking = uncovered(schema, frame, lacking)
                yield frame
                done += len(frame)
                bar.move_to(done)

    X: np.ndarray | MappedRows
    if path is None:
        X = MappedRows(table, encoded, shape[1:])
        for _ in read(named) if labelled else ():
            pass
    else:
        parts = (encoded(frame).tobytes() for frame in read([*table.features, *named]))
        replace_file(path, chain([_header(shape)], parts), is_private=True)
        X = np.load(path_of(path), mmap_mode="r")
    if not labelled:
        return EncodedTable(schema, X, uncovered=lacking)
    all_groups = pd.concat(groups, ignore_index=True) if levels else None
    return EncodedTable(schema, X, np.concatenate(y), all_groups, units, lacking)


class _RowGroups:
    """The rows of Parquet files; those at some positions are read from their row groups only."""

    def __init__(self, source: Any, schema: TableSchema, labelled: bool = True) -> None:
        self.features = [*schema.bounds, *schema.categories]
        self._numbers = list(schema.bounds)
        wanted = list(self.features)
        if labelled:
            wanted += [*schema.all_groups, schema.target, *([schema.unit] if schema.unit else [])]
        dataset = _dataset(source)
        self._schema = dataset.schema
        self._pieces: list[Any] = []
        with error_context("source", _UNREADABLE):
            fragments = list(dataset.get_fragments())
            for fragment in fragments:
                self._pieces += fragment.split_by_row_group()
        for fragment in fragments:
            _check(fragment, dataset.schema, wanted, self._numbers)
        sizes = [piece.row_groups[0].num_rows for piece in self._pieces]
        self._starts = np.cumsum([0, *sizes])
        if len(self) == 0:
            names = [getattr(fragment, "path", None) for fragment in fragments]
            raise ValueError(f"source has no rows: {names}. Give Parquet files with rows.")
        self._last: tuple[int, Any] = -1, None

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, rows: Any) -> pd.DataFrame:
        """Return the features of some rows; a row group is read once, and the last one kept."""
        at = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        order = np.argsort(at, kind="stable")
        cuts = pairwise(np.searchsorted(at[order], self._starts).tolist())
        inside = [(i, at[order[a:b]] - self._starts[i]) for i, (a, b) in enumerate(cuts) if a < b]
        parts = [self._frame(self._table(i).take(where)) for i, where in inside]
        if not parts:
            return pd.DataFrame(columns=self.features)
        frame = pd.concat(parts, ignore_index=True)
        return frame.iloc[np.argsort(order)]

    def frames(self, columns: list[str]) -> Iterator[pd.DataFrame]:
        """Return some columns of all rows, part by part."""
        for piece in self._pieces:
            batches = piece.to_batches(self._schema, columns=columns, batch_size=_AT_ONCE)
            while True:
                with error_context_without_data("source", "has a file that cannot be read"):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield self._frame(batch)

    def _table(self, i: int) -> Any:
        at, table = self._last
        if at != i:
            with error_context_without_data("source", "has a file that cannot be read"):
                table = self._pieces[i].to_table(self._schema, columns=self.features)
            self._last = i, table
        return table

    def _frame(self, table: Any) -> pd.DataFrame:
        frame = table.to_pandas(integer_object_nulls=True)
        return frame.astype({c: np.float64 for c in self._numbers if c in frame})


def column_names(source: Any, wanted: Iterable[str] = ()) -> list[str]:
    """Return the names of the columns of Parquet files, ``wanted`` among them."""
    dataset = _dataset(source)
    _check(next(dataset.get_fragments()), dataset.schema, wanted, ())
    return list(dataset.schema.names)


def n_rows(source: Any, schema: TableSchema) -> int:
    """Return the number of rows of Parquet files, which their footers state."""
    return len(_RowGroups(source, schema))


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
    names, held = Path(fragment.path).name, fragment.physical_schema
    for column in wanted:
        if column not in held.names and column not in parts:
            raise ValueError(
                f"{names} has no column {column!r}. Each file must hold all columns of the schema."
            )
        kind = (schema if column in parts else held).field(column).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        tests = types.is_integer, types.is_floating, types.is_decimal, types.is_boolean
        if types.is_null(kind) or any(is_one(kind) for is_one in tests):
            continue
        if column in numbers:
            raise ValueError(
                f"Column {column!r} has bounds, but {names} holds {kind} there. Write numbers, or "
                "move the column to categories."
            )
        if "string" not in str(kind):
            raise ValueError(
                f"Column {column!r} of {names} holds {kind}. Write texts, numbers or flags."
            )


def _encoded(preprocessor: Any, frame: pd.DataFrame) -> np.ndarray:
    """Return the features of some rows as float32."""
    if frame.empty:
        return np.empty((0, len(preprocessor.get_feature_names_out())), dtype=np.float32)
    return np.asarray(preprocessor.transform(frame), dtype=np.float32)


def _header(shape: tuple[int, int]) -> bytes:
    """Return what stands before the numbers in a file of numpy."""
    file = BytesIO()
    facts = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, facts)
    return file.getvalue()
