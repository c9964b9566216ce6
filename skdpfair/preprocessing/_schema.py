"""A schema of a table: its public columns, their limits and their values."""

import csv
import difflib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from skdpfair._validate import error_context, is_integer, listed, safe_repr
from skdpfair.inputs.columns import in_pandas
from skdpfair.preprocessing._public import codes_in, public_preprocessor

_MOST_COMPARED = 1000  # names of columns, with one that is not among them
_SEPARATORS = ",;\t|"
_COMPRESSED = (".gz", ".bz2", ".zip", ".xz", ".zst", ".tar")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """The public facts about a table of records, written down before anybody looks at them.

    Parameters
    ----------
    target : str
        Column to predict.
    classes : list of str
        All values that it can have, at least two.
    groups : dict of str to list of str, default={}
        Columns whose groups are compared, with all their values; ``""`` is a missing one. Several
        make intersections. They are features only if ``categories`` names them, too.
    bounds : dict of str to (low, high), default={}
        Columns of numbers that are features, with their least and largest possible values.
    categories : dict of str to list of str, default={}
        Columns of texts that are features, with all their values; in these lists "1" is also 1.0.

    Raises
    ------
    TypeError, ValueError
        If a part cannot be used; the error names it.

    Examples
    --------
    >>> schema = TableSchema(
    ...     target="approved", classes=["no", "yes"], groups={"sex": ["F", "M"]},
    ...     bounds={"age": (18, 100)}, categories={"ward": ["A", "B"]},
    ... )
    >>> print(schema.to_toml())
    target = "approved"
    classes = ["no", "yes"]
    <BLANKLINE>
    [groups]
    sex = ["F", "M"]
    <BLANKLINE>
    [bounds]
    age = [18, 100]
    <BLANKLINE>
    [categories]
    ward = ["A", "B"]
    >>> rows = pd.DataFrame({"age": [59], "ward": ["B"], "sex": ["F"], "approved": ["no"]})
    >>> schema.preprocessor().fit_transform(rows)
       age  ward_A  ward_B
    0  0.0     0.0     1.0
    """

    target: str
    classes: list
    groups: dict = field(default_factory=dict)
    bounds: dict = field(default_factory=dict)
    categories: dict = field(default_factory=dict)

    def __post_init__(self):
        if not isinstance(self.target, str) or not self.target:
            raise TypeError(f"target must be the name of a column, got {safe_repr(self.target)}.")
        object.__setattr__(self, "classes", _texts("classes", self.classes, least=2))
        for name in ("groups", "bounds", "categories"):
            part = getattr(self, name)
            if not isinstance(part, Mapping) or not all(isinstance(c, str) for c in part):
                raise TypeError(
                    f"{name} must be a table by names of columns, got {safe_repr(part)}."
                )
            if self.target in part and name != "groups":
                raise ValueError(
                    f"{name} names {self.target!r}, which is the target: the model would be told "
                    "what it has to predict. Take it out."
                )
        for name, least in (("groups", 2), ("categories", 1)):
            part = getattr(self, name)
            texts = {c: _texts(f"{name}[{c!r}]", v, least) for c, v in part.items()}
            object.__setattr__(self, name, texts)
        object.__setattr__(self, "bounds", {c: _pair(c, v) for c, v in self.bounds.items()})
        if not self.bounds and not self.categories:
            raise ValueError(
                "bounds and categories are both empty: name at least one column to learn from."
            )
        if both := sorted(self.bounds.keys() & self.groups.keys()):
            raise ValueError(
                f"bounds and groups both name {safe_repr(both)}: groups are texts. Take the column "
                "out of one of the two."
            )
        self.preprocessor()  # raises

    @classmethod
    def from_dict(cls, facts):
        """Return the schema that a dict describes.

        Parameters
        ----------
        facts : dict
            The parts of a schema by name, as `to_dict` returns them.

        Returns
        -------
        TableSchema

        Raises
        ------
        TypeError, ValueError
            If ``facts`` is not a dict, or a part is unknown, missing or cannot be used.
        """
        if not isinstance(facts, Mapping):
            raise TypeError(f"facts must be a dict of parts of a schema, got {safe_repr(facts)}.")
        known = cls.__dataclass_fields__
        if unknown := sorted(set(map(str, facts)) - set(known)):
            near = difflib.get_close_matches(unknown[0][:_MOST_COMPARED], known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"A schema has no part {unknown[0]!r}. Its parts are {', '.join(known)}.{hint}"
            )
        if missing := [name for name in ("target", "classes") if name not in facts]:
            raise ValueError(f"The schema lacks {missing[0]!r}.")
        return cls(**facts)

    @classmethod
    def from_toml(cls, path, *, besides=()):
        """Return the schema that a file describes.

        Parameters
        ----------
        path : path-like
            The file, as `to_toml` writes it.
        besides : sequence of str, default=()
            Other entries that the file may hold, which are ignored.

        Returns
        -------
        TableSchema

        Raises
        ------
        TypeError, ValueError
            If the file is not TOML, or a part of the schema cannot be used.
        """
        with error_context(str(path), "must be a file of TOML"):
            facts = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return cls.from_dict({k: v for k, v in facts.items() if k not in besides})

    def to_dict(self) -> dict:
        """Return the parts as lists and dicts.

        Returns
        -------
        dict
            Ready for JSON; `from_dict` reads it.
        """
        return json.loads(json.dumps(asdict(self)))

    def to_toml(self) -> str:
        """Return the schema as TOML, for people to read and edit.

        Returns
        -------
        str
            `from_toml` reads it from a file.
        """
        lines = [f"target = {_toml(self.target)}", f"classes = {_toml(self.classes)}"]
        for name in ("groups", "bounds", "categories"):
            part = getattr(self, name)
            if part:
                lines += ["", f"[{name}]", *(f"{_key(c)} = {_toml(v)}" for c, v in part.items())]
        return "\n".join(lines)

    @property
    def group_levels(self) -> list | None:
        """All groups, as `DPFairClassifier` takes them: tuples for intersections."""
        if not self.groups:
            return None
        if len(self.groups) == 1:
            return list(next(iter(self.groups.values())))
        return list(product(*self.groups.values()))

    @property
    def feature_names(self) -> list:
        """The columns that `preprocessor` makes."""
        made = [f"{c}_{value}" for c, values in self.categories.items() for value in values]
        return [*self.bounds, *made]

    def preprocessor(self):
        """Return a transformer of the feature columns that learns nothing from the rows.

        Returns
        -------
        sklearn.compose.ColumnTransformer
            Unfitted; see `public_preprocessor`.
        """
        return public_preprocessor(self.bounds, self.categories)

    def read_csv(self, path, *, labelled=True) -> pd.DataFrame:
        """Read the columns that the schema names; all others are left out.

        Parameters
        ----------
        path : path-like
            The file, with the names of the columns in its first line; separated by commas,
            semicolons, tabs or bars, and maybe compressed.
        labelled : bool, default=True
            Whether target and groups have to be there, and are read. To predict, they need not.

        Returns
        -------
        pandas.DataFrame of shape (n_samples, n_columns)
            Numbers as floats, all else as texts.

        Raises
        ------
        ValueError
            If the file cannot be read, lacks a column, or holds a text where a number belongs; no
            error shows a cell.
        """
        named = (*self.categories, *((*self.groups, self.target) if labelled else ()))
        texts = list(dict.fromkeys(named))
        names, separator = columns_of(path, [*self.bounds, *texts])
        _check_rows(path, names, separator)
        usual = ["", "NA", "N/A", "nan", "NaN", "null", "?", "-"]
        try:
            table = pd.read_csv(
                path,
                sep=separator,
                usecols=[*self.bounds, *texts],
                dtype=dict.fromkeys(texts, object),
                keep_default_na=False,
                na_values=dict.fromkeys(self.bounds, usual) | {column: [""] for column in texts},
                skipinitialspace=True,
                encoding="utf-8-sig",
                low_memory=False,
            )
        except Exception as error:  # parsers quote the line that they stumble over
            raise ValueError(f"{Path(path).name} {_unreadable(error)}") from None
        if table.empty:
            raise ValueError(f"{Path(path).name} has no rows below its header.")
        for column in self.bounds:
            if not pd.api.types.is_numeric_dtype(table[column].dtype):
                raise ValueError(
                    f"Column {column!r} has bounds, but holds texts that are no numbers (with a "
                    "decimal comma, maybe, or a unit). Correct the file, or move the column to "
                    "categories."
                )
        return table[[*self.bounds, *texts]]

    def split(self, table):
        """Return features, labels and groups of a table as `read_csv` gives it.

        Parameters
        ----------
        table : DataFrame, of pandas, polars or pyarrow
            With all columns that the schema names.

        Returns
        -------
        X : DataFrame of shape (n_samples, n_features)
            Numbers, prepared by public facts only.
        y : ndarray of str of shape (n_samples,)
        groups : DataFrame of shape (n_samples, n_group_columns) or None
            One column for each entry of ``groups``.

        Raises
        ------
        ValueError
            If a label or a group is missing or not listed; the error shows none.
        """
        table = in_pandas(table)
        groups = table[list(self.groups)].astype(object)
        y = _spelt("classes", table[self.target], self.classes, "Take these rows out.")
        for column, levels in self.groups.items():
            remedy = 'Add "" to the list, as a group of its own, or fill them in.'
            values = groups[column].fillna("")
            groups[column] = _spelt(f"groups[{column!r}]", values, levels, remedy).astype(object)
        X = self.preprocessor().fit_transform(table)
        return X, y, groups if self.groups else None


def columns_of(path, wanted=()):
    """Return the names of the columns of a CSV file, and their separator.

    Parameters
    ----------
    path : path-like
        The file, maybe compressed.
    wanted : sequence of str, default=()
        Names of columns that it must have.

    Returns
    -------
    names : list of str
    separator : str
        One of comma, semicolon, tab and bar.

    Raises
    ------
    ValueError
        If there is no such file, no line in it, a name twice, or none of a column that is
        ``wanted``.  The error shows names that resemble the wanted one only: without a header the
        first line is a record.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "loans.csv"
    >>> pd.DataFrame({"age": [41], "sex": ["F"]}).to_csv(path, sep=";", index=False)
    >>> columns_of(path)
    (['age', 'sex'], ';')
    """
    first = {"header": None, "nrows": 1, "encoding": "utf-8-sig", "dtype": str}
    try:
        line = pd.read_csv(path, sep="\x1f", quoting=3, **first).iloc[0, 0]
        separator = max(_SEPARATORS, key=str(line).count)
        names = pd.read_csv(path, sep=separator, skipinitialspace=True, **first).iloc[0]
    except FileNotFoundError:
        raise ValueError(f"There is no file {str(path)!r}.") from None
    except Exception as error:
        raise ValueError(f"{Path(path).name} {_unreadable(error)}") from None
    names, place = [str(name) for name in names], {}
    for at, name in enumerate(names, start=1):
        if place.setdefault(name, at) != at:
            raise ValueError(
                f"{Path(path).name} has no header, or one in which columns {place[name]} and {at} "
                "have the same name. Give each column its own name in the first line."
            )
    if absent := next((name for name in wanted if name not in place), None):
        near = difflib.get_close_matches(absent, names[:_MOST_COMPARED], n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"{Path(path).name} has no column {absent!r}. {hint}Its first line must hold the names "
            "of the columns."
        )
    return names, separator


def _check_rows(path, names, separator):
    """Raise if a row has another number of fields than the header, which shifts its columns."""
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


def _spelt(what, values, known, remedy):
    """Return values as they are spelt in a list, or raise, without showing one."""
    codes = codes_in(known, values)
    outside = values[codes < 0]
    if outside.empty:
        return np.array(known)[codes]
    if (outside.isna() | (outside == "")).all():
        raise ValueError(f"Column {values.name!r} has missing values, not in {what}. {remedy}")
    raise ValueError(
        f"Column {values.name!r} holds values that {what} does not list: it lists "
        f"{safe_repr(list(known))}. Add what is missing, spelt as in the file."
    )


def _unreadable(error):
    """Say what keeps a file from being read, without its cells."""
    if isinstance(error, pd.errors.EmptyDataError):
        return "is empty: it must begin with a line of names of columns."
    if isinstance(error, UnicodeError):
        return 'is not in UTF-8: save it as "CSV UTF-8", or convert it.'
    return f"cannot be read as a table with a header: {type(error).__name__}."


def _texts(name, values, least):
    values = listed(name, values, "texts")
    if any(
        isinstance(v, (bool, float)) or not (isinstance(v, str) or is_integer(v)) for v in values
    ):
        raise TypeError(
            f"{name} must list texts, spelt as in the file and within quotation marks, got "
            f"{safe_repr(values)}."
        )
    texts = [str(v) for v in values]
    if len(set(texts)) < len(texts) or len(texts) < least:
        raise ValueError(
            f"{name} must list at least {least} values, each once, got {safe_repr(values)}."
        )
    return texts


def _pair(column, pair):
    pair = listed(f"bounds[{column!r}]", pair, "two numbers")
    if len(pair) != 2:
        raise ValueError(f"bounds[{column!r}] must be [lowest, highest], got {safe_repr(pair)}.")
    return pair


def _key(name):
    return name if _BARE.fullmatch(name) else _toml(name)


def _toml(value):
    """Return a text, a number or a list of these as TOML, whose texts are those of JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
