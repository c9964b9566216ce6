"""Records that commands read: rows of a CSV file or of Parquet files, or labelled pictures."""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click
import numpy as np
import pandas as pd

from skdpfair.cli._input import FILE, note
from skdpfair.preprocessing import TableSchema
from skdpfair.preprocessing._files import column_names, columns_of, dataset_of, n_rows, read_columns
from skdpfair.preprocessing._public import as_encoded
from skdpfair.preprocessing._schema import labels_in, uncovered
from skdpfair.release._facts import record_shape

# rows that tell what a column holds
_HEAD = 50_000
_SUFFIXES = {
    ".png": "PNG",
    **dict.fromkeys((".jpg", ".jpeg"), "JPEG"),
    **dict.fromkeys((".tif", ".tiff"), "TIFF"),
    **dict.fromkeys((".pgm", ".ppm"), "PPM"),
    **{".bmp": "BMP", ".gif": "GIF", ".webp": "WEBP"},
}
# none runs a program, as that of .eps does
_FORMATS = sorted(set(_SUFFIXES.values()))
_MODES = {  # of pillow, of 8 bits or fewer
    **dict.fromkeys(("1", "L", "LA"), "L"),
    **dict.fromkeys(("P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"), "RGB"),
}


class Records(NamedTuple):
    """Labelled records, and the schema that reads others like them."""

    schema: TableSchema
    X: Any
    y: np.ndarray
    groups: pd.DataFrame | None
    units: np.ndarray | None
    n_in_all: int | None = None  # if other processes have more of them

    @property
    def n_units(self) -> int:
        """Number of persons; of records, if each is a person."""
        if self.n_in_all is not None:
            return self.n_in_all
        return len(self.y) if self.units is None else len(np.unique(self.units))


def source_of(data, *others, labels=None, file_column=FILE, size=None, mode=None):
    """Return what reads the records in a file or a folder, by the options of a command."""
    is_parquet = [path.suffix.lower() == ".parquet" and path.is_file() for path in (data, *others)]
    if others and not all(is_parquet):
        raise ValueError("Give one DATA, or several Parquet files (.parquet).")
    if data.is_dir():
        return Folder(data, labels, file_column, size, mode)
    if data.suffix.lower() in _SUFFIXES:
        raise ValueError(f"{data} is one picture. Put it in a folder, and name the folder.")
    if size is not None or mode is not None:
        raise ValueError(f"--size and --mode are for a folder of pictures, and {data} is a file.")
    if labels is not None:
        raise ValueError(f"--labels are those of a folder of pictures, and {data} is a file.")
    return Parquet((data, *others)) if is_parquet[0] else Rows(data)


def print_uncovered(columns):
    """Print, to a person and no file, in which columns a schema covers no row."""
    if columns:
        note(
            f"No row has a listed value in {', '.join(columns)}, nor a number within the limits: "
            "the model would learn nothing from there. Spell the values as in the file (1 and 1.0 "
            "are the same), and state limits in its units."
        )


def part_of(source, rank, n_processes):
    """Return what reads the records of one of several processes."""
    if n_processes == 1:
        return source
    n_files = len(source.paths) if isinstance(source, Parquet) else 0
    if n_files < n_processes:
        raise ValueError(
            f"{n_processes} processes train on at least as many Parquet files, of which each reads "
            f"its own, got {n_files}. Give more files, or start fewer processes."
        )
    return replace(source, rank=rank, n_processes=n_processes)


def source_for(model, schema, clf, data, **options):
    """Return what reads records like those of a model, which is named in errors."""
    if schema is None:
        raise ValueError(
            f"{model} does not say how its features are made from a table. Save it with "
            "save_release(schema=...), or use it in Python."
        )
    source = source_of(data, **options)
    if source.holds_pictures == schema.has_features:
        wanted = "a CSV or Parquet file" if schema.has_features else "a folder of pictures"
        raise ValueError(f"{model} predicts the records of {wanted}, and {data} is none.")
    return source.like(record_shape(clf)) if source.holds_pictures else source


def test_records(model, schema, clf, data, **options) -> dict:
    """Return the labelled test records of a model, as the functions of reports take them."""
    source = source_for(model, schema, clf, data, **options)
    needed = replace(schema, unit=None, max_records_per_unit=None)  # which tests do not need
    records = source.read(needed)
    X = records.X
    if schema.has_features:
        X = as_encoded(pd.DataFrame(X, columns=schema.feature_names))
    return {"X": X, "y": records.y, "sensitive_features": records.groups}


@dataclass(frozen=True)
class Rows:
    """The rows of a CSV file."""

    path: Path
    holds_pictures = False

    def head(self, names) -> pd.DataFrame:
        """Return some columns of the first rows."""
        return read_columns(self.path, names, (), _HEAD) if names else pd.DataFrame()

    def table_of(self, schema) -> pd.DataFrame:
        """Return the columns that a schema names."""
        return schema.read_csv(self.path)

    def columns(self, wanted=()) -> list:
        """Return the names of the columns, ``wanted`` among them."""
        return columns_of(self.path, wanted)[0]

    def read(self, schema, epsilon=1.0) -> Records:
        """Return the records that a schema describes."""
        table = schema.read_csv(self.path)
        units = schema.units_in(table)
        n_units = len(table) if units is None else pd.Series(units).nunique()
        schema = schema.with_fixed_encoding(n_units, epsilon)
        print_uncovered(uncovered(schema, table))
        X, y, groups = schema.split(table)
        return Records(schema, X, y, groups, units)

    def unlabelled(self, schema):
        """Return names of records, which rows have not, and records without labels."""
        table = schema.read_csv(self.path, labelled=False)
        print_uncovered(uncovered(schema, table))
        return {}, schema.preprocessor().transform(table)


@dataclass(frozen=True)
class Parquet:
    """The rows of Parquet files, of which each of several processes reads its own."""

    paths: tuple[Path, ...]
    rank: int = 0
    n_processes: int = 1
    holds_pictures = False

    def head(self, names) -> pd.DataFrame:
        """Return some columns of the first rows."""
        return dataset_of(self.paths).head(_HEAD, columns=list(names)).to_pandas()

    def table_of(self, schema) -> pd.DataFrame:
        """Return the columns that a schema names."""
        return dataset_of(self.paths).to_table(columns=schema.columns()).to_pandas()

    def columns(self, wanted=()) -> list:
        """Return the names of the columns, ``wanted`` among them."""
        return column_names(self.paths, wanted)

    def read(self, schema, epsilon=1.0) -> Records:
        """Return the records that a schema describes; features in a file until the command ends."""
        n_in_all = None
        if self.n_processes > 1:
            n_in_all = n_rows(self.paths, schema.columns(), schema.bounds)
            schema = schema.with_fixed_encoding(n_in_all, epsilon)
        paths = self.paths[self.rank :: self.n_processes]
        verbose = self.rank == 0
        table = schema.encode_parquet(paths, _features_file(), epsilon=epsilon, verbose=verbose)
        groups = table.sensitive_features
        print_uncovered(table.uncovered if self.n_processes == 1 else ())
        return Records(table.schema, table.X, table.y, groups, table.units, n_in_all)

    def unlabelled(self, schema):
        """Return names of records, which rows have not, and records without labels."""
        return {}, schema.encode_parquet(self.paths, _features_file(), labelled=False).X


def _features_file() -> Path:
    """Return a path for features, which is removed when the command ends."""
    # Windows keeps what is mapped
    folder = TemporaryDirectory(ignore_cleanup_errors=True)
    return Path(click.get_current_context().with_resource(folder)) / "features.npy"


@dataclass(frozen=True)
class Folder:
    """A folder of pictures, labelled by a CSV file that names them."""

    path: Path
    labels: Path | None = None
    file_column: str = FILE
    size: tuple[int, int] | None = None  # width, height
    mode: str | None = None
    shape: tuple | None = None  # of each; by default that of the first
    holds_pictures = True

    @property
    def table(self) -> Path:
        """The CSV file that holds target and groups."""
        if self.labels is None:
            raise ValueError(
                f"{self.path} is a folder of pictures: give --labels FILE, a CSV file with a "
                f"column {self.file_column!r} of their names, the target and the groups."
            )
        return self.labels

    def columns(self, wanted=()) -> list:
        """Return the names of the columns of labels, ``wanted`` among them."""
        return columns_of(self.table, [self.file_column, *wanted])[0]

    def read(self, schema, epsilon=None) -> Records:
        """Return the pictures that the labels name, in their order."""
        # columns of labels are no features
        none: dict = {"bounds": {}, "categories": {}, "missing": [], "log_columns": "auto"}
        schema = replace(schema, **none, n_intervals="auto")
        table = read_columns(self.table, (), dict.fromkeys([*schema.columns(), self.file_column]))
        names = table[self.file_column]
        if names.isna().any() or names.duplicated().any():
            raise ValueError(
                f"Column {self.file_column!r} of {self.table.name} must name one picture in each "
                "row, and no picture twice. Correct the file."
            )
        y, groups = labels_in(schema, table)
        units = schema.units_in(table)
        paths = [self.path / n for n in names]
        if n_others := len(set(self._all_paths()).difference(paths)):
            note(
                f"{n_others:,} pictures of {self.path} are left out, as {self.table.name} does not "
                "name them."
            )
        return Records(schema, self._pictures(paths), y, groups, units)

    def unlabelled(self, schema):
        """Return the names of all pictures, sorted, and the pictures."""
        paths = self._all_paths()
        if not paths:
            raise ValueError(f"{self.path} holds no pictures ({', '.join(_SUFFIXES)}).")
        names = [p.relative_to(self.path).as_posix() for p in paths]
        return {FILE: names}, self._pictures(paths)

    def _all_paths(self) -> list:
        """Return the paths of all pictures, sorted."""
        return sorted(p for p in self.path.rglob("*") if p.suffix.lower() in _SUFFIXES)

    def like(self, shape):
        """Return the folder, read as pictures of a shape."""
        if len(shape) == 2 or shape[2:] == (3,):
            return replace(self, shape=shape, mode="L" if len(shape) == 2 else "RGB")
        raise ValueError(
            f"The model takes arrays of shape {shape}, which are no pictures of a folder. Use "
            "skdpfair.load_release in Python."
        )

    def _pictures(self, paths) -> np.ndarray:
        """Return pictures of one size, all grey or all coloured, as numbers from 0 to 1."""
        shape = self.shape or self._picture(paths[0]).shape
        out = np.empty((len(paths), *shape), np.float32)
        for i, path in enumerate(paths):
            picture = self._picture(path)
            if picture.ndim != len(shape):
                raise ValueError(
                    f"Some pictures of {self.path} are grey and some are coloured. Make them alike "
                    "by --mode L or --mode RGB."
                )
            if picture.shape != shape:
                like = "the first of them" if self.shape is None else "those of the model"
                size = f"{shape[1]}x{shape[0]}"
                raise ValueError(
                    f"The pictures of {self.path} must all have {size} pixels, like {like}. "
                    f"Resize them by --size {size}."
                )
            out[i] = picture
        return out

    def _picture(self, path) -> np.ndarray:
        try:
            from PIL import Image, ImageOps
        except ImportError:
            raise ImportError(
                "Pictures of a folder need pillow: pip install 'skdpfair[images]'."
            ) from None
        try:
            with Image.open(path, formats=_FORMATS) as opened:
                picture = ImageOps.exif_transpose(opened)
        except Exception as error:  # pillow raises many
            why = getattr(error, "strerror", None) or type(error).__name__
            raise ValueError(f"{path} cannot be read as a picture: {why}.") from None
        if picture.mode not in _MODES:
            raise ValueError(
                f"{path} has pixels of mode {picture.mode}, which are not of 8 bits. Convert it."
            )
        picture = picture.convert(self.mode or _MODES[picture.mode])
        if self.size is not None:
            picture = picture.resize(self.size, Image.Resampling.BILINEAR)
        return np.asarray(picture, np.float32) / 255
