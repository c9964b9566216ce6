"""Columns of CSV files, read without an error that shows the content of a cell."""

import csv
from pathlib import Path

import pandas as pd

from skdpfair._utils.validate import nearest

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
    """Say what keeps a file from being read, without its cells."""
    if isinstance(error, pd.errors.EmptyDataError):
        return "is empty. Its first line must hold the column names."
    if isinstance(error, UnicodeError):
        return 'is not in UTF-8: save it as "CSV UTF-8", or convert it.'
    return f"cannot be read as a table with a header: {type(error).__name__}."
