"""A schema of a table: its public columns, their limits and their values."""

import json
import re
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from skdpfair._utils.files import path_of, replace_file
from skdpfair._utils.progress import ProgressBar
from skdpfair._utils.validate import (
    LARGE,
    error_context,
    integer,
    is_auto,
    is_integer,
    listed,
    nearest,
    number,
    one_of,
    safe_repr,
)
from skdpfair.inputs import persons
from skdpfair.inputs.columns import refuse_dates
from skdpfair.inputs.provenance import Origin, set_origin
from skdpfair.preprocessing import _table_files
from skdpfair.preprocessing._outside_public import outside_public, with_columns
from skdpfair.preprocessing._piecewise_linear import (
    CHOICES,
    DIRECTIONS,
    log_columns_of,
    n_intervals_for,
)
from skdpfair.preprocessing._public import codes_in
from skdpfair.preprocessing._public_preprocessor import public_preprocessor

_MAX_INTERVALS = 1000
_OF_STUDIES = ("data", "sweep")  # entries of a file that are for the command line
_PARTS = ("groups", "bins", "bounds", "categories", "monotone")
_EXCLUDE = {  # parts that may not name the same column
    "target": ("bins", "bounds", "categories"),
    "bins": ("groups", "categories"),
    "bounds": ("groups",),
    "person": ("target", *_PARTS),
    "monotone": ("target", "categories", "groups"),
}
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """The public facts about a table of records, written without looking at the records.

    Parameters
    ----------
    target : str
        Column to predict.
    classes : list of str
        All possible values of the target, at least two.
    groups : dict of str to list of str, default={}
        Columns that define the groups, with all their values; ``""`` is a missing value. Several
        columns make intersections. They are features only if ``categories`` also names them.
    bins : dict of str to list of numbers, default={}
        Numeric columns that define groups, such as ages, with public edges in increasing order.
        ``[25, 65]`` gives the groups "< 25", "[25, 65)" and ">= 65", and "" for a missing value if
        ``missing`` names the column. They are features only if ``bounds`` also names them.
    bounds : dict of str to (low, high), default={}
        Numeric feature columns, with their smallest and largest possible values. A schema for
        labels of pictures has no ``bounds`` and no ``categories``.
    categories : dict of str to list of str, default={}
        Text feature columns, with all their values; in these lists "1" is equal to 1.0.
    missing : list of str, default=[]
        Columns of ``bounds`` whose values may be missing. Each gets a further feature,
        ``{column}_missing``. In other columns, a missing value becomes the middle of the bounds.
    log_columns : list of str or "auto", default="auto"
        Columns of ``bounds`` that hold amounts, such as money, of very different sizes; see
        `public_preprocessor`. ``"auto"``: those whose bounds span several powers of ten.
    monotone : dict of str to {"increasing", "decreasing"}, default={}
        Columns of ``bounds`` with which the probability of the positive class must not fall, or
        rise, see `public_preprocessor`.
    n_intervals : int from 0 to 1000, or "auto", default="auto"
        Number of intervals of the encoding of numbers. ``"auto"`` depends on the budget and the
        number of records, see `with_fixed_encoding`.
    person : str or None, default=None
        Column that names the person of each record, if a person may have several; never a feature.
    max_records : int >= 1 or None, default=None
        Bound on the records of one person that take part; needed with ``person``.

    Examples
    --------
    >>> schema = TableSchema(
    ...     target="approved", classes=["no", "yes"], groups={"sex": ["F", "M"]},
    ...     bounds={"age": (18, 100)}, categories={"ward": ["A", "B"]},
    ...     n_intervals=2,
    ... )
    >>> print(schema.to_toml())
    target = "approved"
    classes = ["no", "yes"]
    n_intervals = 2
    <BLANKLINE>
    [groups]
    sex = ["F", "M"]
    <BLANKLINE>
    [bounds]
    age = [18, 100]
    <BLANKLINE>
    [categories]
    ward = ["A", "B"]
    >>> rows = pd.DataFrame({"age": [59], "ward": ["B"]})
    >>> schema.preprocessor().transform(rows)
       age  age_at_18  age_at_59  age_at_100  ward_A  ward_B
    0  0.0        0.0        1.0         0.0     0.0     1.0
    """

    target: str
    classes: list
    groups: dict = field(default_factory=dict)
    bins: dict = field(default_factory=dict)
    bounds: dict = field(default_factory=dict)
    categories: dict = field(default_factory=dict)
    missing: list = field(default_factory=list)
    log_columns: list | str = "auto"
    monotone: dict = field(default_factory=dict)
    n_intervals: int | str = "auto"
    person: str | None = None
    max_records: int | None = None

    def __post_init__(self):
        if not isinstance(self.target, str) or not self.target:
            raise TypeError(f"target must be the name of a column, got {safe_repr(self.target)}.")
        # a frozen dataclass is set by object alone; values become lists of texts, as TOML has them
        object.__setattr__(self, "classes", _texts("classes", self.classes, least=2))
        for name in _PARTS:
            part = getattr(self, name)
            if not isinstance(part, Mapping) or not all(isinstance(c, str) for c in part):
                raise TypeError(
                    f"{name} must be a dict with column names as keys, got {safe_repr(part)}."
                )
            object.__setattr__(self, name, {c: _CHECKS[name](c, v) for c, v in part.items()})
        for name in ["missing"] + ["log_columns"] * (not is_auto(self.log_columns)):
            object.__setattr__(self, name, _texts(name, getattr(self, name), least=0))
        if not is_auto(self.n_intervals):
            integer("n_intervals", self.n_intervals, low=0, high=_MAX_INTERVALS)
        if (self.person is None) != (self.max_records is None):
            raise ValueError(
                f"person={safe_repr(self.person)} and max_records="
                f"{safe_repr(self.max_records)} go together. Give both, or none."
            )
        if self.person is not None:
            integer("max_records", self.max_records, low=1)
            if not isinstance(self.person, str) or not self.person:
                raise TypeError(
                    f"person must be the name of a column, got {safe_repr(self.person)}."
                )
        self._check_disjoint()
        if self.has_features:
            self.preprocessor()  # raises

    def _check_disjoint(self):
        parts = {name: set(getattr(self, name)) for name in _PARTS}
        parts |= {"target": {self.target}, "person": {self.person}}
        for one, others in _EXCLUDE.items():
            for other in others:
                if both := sorted(parts[one] & parts[other]):
                    raise ValueError(
                        f"{one} and {other} both name {safe_repr(both)}. Remove the column from "
                        "one of them; numbers define groups by bins, and texts by groups."
                    )

    @classmethod
    def from_dict(cls, facts: Mapping) -> "TableSchema":
        """Return the schema that a dict describes, as returned by `dataclasses.asdict`."""
        if not isinstance(facts, Mapping):
            raise TypeError(f"facts must be a dict of parts of a schema, got {safe_repr(facts)}.")
        known = cls.__dataclass_fields__
        if unknown := sorted(set(map(str, facts)) - set(known)):
            raise ValueError(
                f"A schema has no part {unknown[0]!r}. Its parts are {', '.join(known)}."
                f"{nearest(unknown[0], [*known, *_OF_STUDIES])}"
            )
        if missing := [name for name in ("target", "classes") if name not in facts]:
            raise ValueError(f"The schema lacks {missing[0]!r}.")
        return cls(**facts)

    @classmethod
    def from_toml(cls, path):
        """Return the schema that a file of TOML describes, as written by `to_toml`.

        Its entries ``data`` and ``sweep``, which are for the command line, are ignored.
        """
        with error_context(str(path), "must be a file of TOML"):
            facts = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return cls.from_dict({k: v for k, v in facts.items() if k not in _OF_STUDIES})

    def to_toml(self) -> str:
        """Return the schema as TOML text, for `from_toml`, which people can read and edit."""
        lines = [f"target = {_toml(self.target)}", f"classes = {_toml(self.classes)}"]
        others: dict = {"missing": [], "log_columns": "auto", "n_intervals": "auto"}
        others |= dict.fromkeys(("person", "max_records"))
        for name, default in others.items():
            value = getattr(self, name)
            lines += [f"{name} = {_toml(value)}"] * (value != default)
        for name in _PARTS:
            if part := getattr(self, name):
                lines += ["", f"[{name}]", *(f"{_key(c)} = {_toml(v)}" for c, v in part.items())]
        return "\n".join(lines)

    @property
    def all_groups(self) -> dict:
        """All values of each column that defines groups; of ``bins``, the names of the bins."""
        of_bins = {
            c: _bin_names(edges) + [""] * (c in self.missing) for c, edges in self.bins.items()
        }
        return self.groups | of_bins

    @property
    def group_levels(self) -> list | None:
        """All groups, as `DPFairClassifier` takes them: tuples for intersections."""
        columns = list(self.all_groups.values())
        if len(columns) < 2:
            return columns[0] if columns else None
        return list(product(*columns))

    @property
    def has_features(self) -> bool:
        """Whether some columns are features; none are if the records are pictures."""
        return bool(self.bounds or self.categories)

    @property
    def feature_names(self) -> list:
        """The columns that `preprocessor` makes; only if ``n_intervals`` is a number."""
        if is_auto(self.n_intervals):
            raise ValueError(
                'n_intervals is "auto", so the features depend on the fit. Take the schema that '
                "with_fixed_encoding(n_samples, epsilon) returns."
            )
        return list(self.preprocessor().get_feature_names_out())

    def columns(self, *, labelled=True) -> list:
        """Return the columns to read, each once; only those of features unless ``labelled``."""
        names = [*self.bounds, *self.categories]
        if labelled:
            names += [*self.all_groups, self.target, *([self.person] if self.person else [])]
        return list(dict.fromkeys(names))

    def with_fixed_encoding(self, n_samples, epsilon=1.0):
        """Return the schema with ``n_intervals`` as a number and ``log_columns`` as a list.

        It makes the same features from every table, such as training and test records, for a fit of
        ``n_samples`` records with the budget ``epsilon``. Other values than ``"auto"`` are
        unchanged.
        """
        integer("n_samples", n_samples)
        if epsilon is not None:
            number("epsilon", epsilon, low=0, low_open=True)
        return self._fixed(lambda p, q: n_intervals_for(n_samples, p, q, epsilon))

    def _fixed(self, n_intervals):
        """Return the schema with fixed encoding; ``n_intervals`` takes the numbers of axes."""
        log_columns, chosen = log_columns_of(self.log_columns, self.bounds), self.n_intervals
        if is_auto(chosen):
            chosen = n_intervals(len(self.bounds), len(log_columns))
        return replace(self, log_columns=log_columns, n_intervals=chosen)

    def preprocessor(self, *, epsilon=1.0):
        """Return a transformer of the feature columns, see `public_preprocessor`.

        ``epsilon``, the budget of the fit, affects ``n_intervals="auto"`` only. If ``n_intervals``
        is a number, nothing depends on the rows, and the transformer is fitted already.
        """
        if not self.has_features:
            raise ValueError(
                "bounds and categories are both empty. Name at least one feature column."
            )
        transformer = public_preprocessor(
            self.bounds,
            self.categories,
            epsilon=epsilon,
            n_intervals=self.n_intervals,
            log_columns=self.log_columns,
            missing=self.missing,
            monotone=self.monotone,
        )
        if is_auto(self.n_intervals):
            return transformer
        # a row of the limits and of the first categories, as a fit needs some row
        public = {column: values[:1] for column, values in (self.bounds | self.categories).items()}
        return transformer.fit(pd.DataFrame(public))

    def read_csv(self, path, *, labelled=True) -> pd.DataFrame:
        """Read the columns that the schema names from a CSV file, and ignore all others.

        The file at ``path`` may be compressed. Its first line has the column names, separated by
        commas, semicolons, tabs or bars. Target, groups and persons, which prediction does not
        need, are read if ``labelled``. Columns with bounds become floats, and all others texts.
        No error shows the content of a cell.
        """
        texts = [c for c in self.columns(labelled=labelled) if c not in self.bounds]
        table = _table_files.read_columns(path, self.bounds, texts)
        for column in self.bounds:
            if not pd.api.types.is_numeric_dtype(table[column].dtype):
                raise ValueError(
                    f"Column {column!r} has bounds, but holds texts that are not numbers (perhaps "
                    "with a decimal comma or a unit). Correct the file, or move the column to "
                    "categories."
                )
        return table[[*self.bounds, *texts]]

    def check(self, table) -> pd.DataFrame:
        """Count values of ``table`` outside the schema, column by column; it is NOT private.

        The result is that of `outside_public`. It includes the groups, the target and, for missing
        values alone, the column of the persons.
        """
        listed = self.categories | self.groups | {self.target: self.classes}
        outside = outside_public(table, self.bounds, listed)
        if self.person is not None:
            column = with_columns(table, [self.person])[self.person]
            outside.loc[self.person] = column.isna().mean(), 0.0, None
        return outside

    def persons_in(self, table):
        """Return a number for the person of each record of a table, None if ``person`` is None."""
        if self.person is None:
            return None
        values = with_columns(table, [self.person])[self.person]
        return persons.codes(f"Column of persons {self.person!r}", values, len(values))

    def split(self, table, *, epsilon=1.0):
        """Split a table with all columns that the schema names into features, labels and groups.

        The features are those of `preprocessor`. If ``n_intervals`` is ``"auto"``, ``epsilon`` and
        the number of rows decide how many: split test records with the schema of
        `with_fixed_encoding`, or with ``schema_`` of the model that `load_release` reads.
        The groups have a column for each entry of ``groups`` and ``bins``, or are None. A label or
        a group that is missing or not listed is an error, which does not show its value.
        """
        columns = [*self.columns(labelled=False), *self.all_groups, self.target]
        table = with_columns(table, dict.fromkeys(columns))
        y, groups = labels_in(self, table)
        X = self.with_fixed_encoding(len(table), epsilon).preprocessor().transform(table)
        return X, y, groups

    def encode_parquet(self, source, path, *, epsilon=1.0, labelled=True, verbose=0):
        """Encode Parquet files into one memory map, in memory for one row group.

        Each row is encoded by itself, with public facts only, as by `split`.

        Parameters
        ----------
        source : path-like, list of path-like, or pyarrow.dataset.Dataset
            The Parquet files, in the order of their rows. A path may be a folder of them. Columns
            with bounds must hold numbers; others texts, numbers or flags.
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
        sklearn.utils.Bunch
            ``X``, the features (memmap of float32); ``schema``, with fixed encoding; ``y``,
            ``sensitive_features`` and ``persons``, each None if there is none; ``uncovered``, the
            feature columns in which no row has a listed value or a number within its limits, which
            is NOT private.

        Examples
        --------
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> rows = pd.DataFrame({"age": [18, 59], "approved": ["no", "yes"]})
        >>> rows.to_parquet(folder / "a.parquet")
        >>> schema = TableSchema(
        ...     target="approved", classes=["no", "yes"], bounds={"age": (18, 100)}, n_intervals=0
        ... )
        >>> table = schema.encode_parquet([folder / "a.parquet"], folder / "features.npy")
        >>> table.X, table.y
        (memmap([[-1.], [ 0.]], dtype=float32), array(['no', 'yes'], dtype='<U3'))
        """
        columns = self.columns(labelled=labelled)
        n_samples = _table_files.n_rows(source, columns, self.bounds)
        n_persons, persons = n_samples, None
        if labelled and self.person is not None:
            parts = _table_files.frames(source, [self.person], ())
            persons = self.persons_in(pd.concat(parts, ignore_index=True))
            n_persons = persons.max() + 1
            columns.remove(self.person)
        schema = self.with_fixed_encoding(n_persons, epsilon)
        preprocessor = schema.preprocessor()
        levels = {column: pd.CategoricalDtype(names) for column, names in self.all_groups.items()}
        y, groups, lacking = [], [], schema.columns(labelled=False)

        def encoded():
            """Return the features of the rows, part by part, and keep their labels and groups."""
            nonlocal lacking
            done = 0
            with ProgressBar("encoding", "row", total=n_samples, visible=verbose > 0) as bar:
                for frame in _table_files.frames(source, columns, self.bounds):
                    if labelled:
                        labels, of_rows = labels_in(schema, frame)
                        y.append(labels)
                        groups.append(None if of_rows is None else of_rows.astype(levels))
                    lacking = uncovered(schema, frame, lacking)
                    yield np.asarray(preprocessor.transform(frame), dtype=np.float32).tobytes()
                    done += len(frame)
                    bar.move_to(done)

        header = _table_files.npy_header((n_samples, len(schema.feature_names)))
        replace_file(path, chain([header], encoded()), is_private=True)
        with_groups = labelled and levels
        sensitive_features = pd.concat(groups, ignore_index=True) if with_groups else None
        X = np.load(path_of(path), mmap_mode="r")
        return Bunch(
            schema=schema,
            X=set_origin(X, Origin(columns=(*schema.feature_names,))),
            y=np.concatenate(y) if labelled else None,
            sensitive_features=sensitive_features,
            persons=persons,
            uncovered=lacking,
        )


def uncovered(schema, table, columns=None) -> list:
    """Return the feature columns, or some, in which no row has a listed value or is in its limits.

    The result depends on the rows, and is not private.
    """
    columns = schema.columns(labelled=False) if columns is None else columns
    refuse_dates("table", table[[c for c in columns if c in schema.bounds]])
    covers = {
        column: table[column].between(*schema.bounds[column])
        if column in schema.bounds
        else codes_in(schema.categories[column], table[column]) >= 0
        for column in columns
    }
    return [column for column in columns if not covers[column].any()]


def encoded(text: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the features that a schema, as text, makes of a table, unless it holds them already.

    Columns that the schema does not name are left out.
    """
    schema = TableSchema.from_dict(tomllib.loads(text))
    if not schema.has_features:
        return table
    columns, names = schema.columns(labelled=False), list(table.columns)
    if names == schema.feature_names:
        # scaled columns have the names of raw ones, if each number has one feature only
        if table.attrs.get("encoded") or not set(columns) <= set(names):
            return table
        if table.apply(pd.to_numeric, errors="coerce").abs().le(1).all(axis=None):
            raise ValueError(
                f"X has columns, {safe_repr(names)}, and numbers of either raw or encoded records. "
                "Give encoded ones as an array, X.to_numpy(float), and encode raw ones by "
                "load_release(path).schema_.preprocessor()."
            )
    table = with_columns(table, columns)
    if unlisted := [c for c, listed in schema.categories.items() if _has_lost(table[c], listed)]:
        warnings.warn(
            f"The columns {safe_repr(unlisted)} hold values that categories does not list: they "
            "count as no category. Read a file by schema_.read_csv(path), as pandas.read_csv "
            "loses texts such as NA, None and 007.",
            UserWarning,
            stacklevel=5,
        )
    return schema.preprocessor().transform(table)


def _has_lost(column, listed):
    """Return whether a column seems to have lost texts that are listed, as in pandas.read_csv."""
    is_missing = not _READ_AS_MISSING.isdisjoint(listed) and column.isna().any()
    may_have = is_missing or pd.api.types.is_numeric_dtype(column)
    return may_have and bool((codes_in(listed, column) < 0).any())


# of pandas.read_csv
_READ_AS_MISSING = {"", "NA", "N/A", "n/a", "None", "NULL", "null", "NaN", "nan", "<NA>", "#N/A"}


def labels_in(schema, table):
    """Return the labels and the groups of a table of pandas, see `TableSchema.split`."""
    groups = table[list(schema.groups)].astype(object)
    y = _spelt("classes", table[schema.target], schema.classes, "Take these rows out.")
    for column, levels in schema.groups.items():
        remedy = 'Add "" to the list, as a group of its own, or fill them in.'
        values = groups[column].copy()
        values[values.isna()] = ""  # fillna of pandas 2 would guess another dtype
        levels_of_rows = _spelt(f"groups[{column!r}]", values, levels, remedy, in_bins=True)
        groups[column] = levels_of_rows.astype(object)
    for column, edges in schema.bins.items():
        groups[column] = _binned(table[column], edges, column in schema.missing)
    return y, groups if schema.all_groups else None


def _binned(column, edges, may_be_missing):
    """Return the name of the bin of each number, "" of a missing one."""
    refuse_dates(f"Column {column.name!r}", column)
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(float)
    is_missing = np.isnan(numbers)
    if is_missing.any() and not may_be_missing:
        raise ValueError(
            f"Column {column.name!r} has values that are missing or no numbers, which belong to no "
            "bin. Fill them in, take these rows out, or list the column under bounds and missing."
        )
    names = np.array(_bin_names(edges), dtype=object)
    return np.where(is_missing, "", names[np.searchsorted(edges, numbers, side="right")])


def _bin_names(edges):
    texts = [f"{edge:.15g}" for edge in edges]
    between = (f"[{low}, {high})" for low, high in pairwise(texts))
    return [f"< {texts[0]}", *between, f">= {texts[-1]}"]


def with_features(schema, n_features):
    """Return a schema with the fixed encoding that makes so many features, if there is one."""
    fixed = [schema._fixed(lambda *n_axes, k=k: k) for k in CHOICES]
    return next((f for f in fixed if len(f.feature_names) == n_features), fixed[0])


def _spelt(what, values, known, remedy, *, in_bins=False):
    """Return values as they are spelt in a list, or raise, without showing one."""
    codes = codes_in(known, values)
    outside = values[codes < 0]
    if outside.empty:
        return np.array(known)[codes]
    if (outside.isna() | (outside == "")).all():
        raise ValueError(
            f"Column {values.name!r} has missing values, which {what} does not list. {remedy}"
        )
    raise ValueError(
        f"Column {values.name!r} holds values that {what} does not list: it lists "
        f"{safe_repr(list(known))}. Add the missing values, spelt as in the file"
        + (", or group the numbers of the column by edges in [bins]." if in_bins else ".")
    )


def _texts(name, values, least):
    values = listed(name, values, "texts")
    if not all(isinstance(v, str) or is_integer(v) for v in values):
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


def _edges(column, edges):
    edges = listed(f"bins[{column!r}]", edges, "numbers")
    edges = [number(f"bins[{column!r}]", e, low=-LARGE, high=LARGE) for e in edges]
    if not edges or any(low >= high for low, high in pairwise(edges)):
        raise ValueError(
            f"bins[{column!r}] must list numbers in increasing order, got {safe_repr(edges)}."
        )
    return [int(e) if e == int(e) else e for e in edges]


def _key(name):
    return name if _BARE.fullmatch(name) else _toml(name)


def _toml(value):
    """Return a text, a number or a list of these as TOML, whose texts are those of JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


_CHECKS = {
    "groups": lambda column, levels: _texts(f"groups[{column!r}]", levels, least=2),
    "bins": _edges,
    "bounds": lambda column, pair: listed(f"bounds[{column!r}]", pair, "two numbers"),
    "categories": lambda column, levels: _texts(f"categories[{column!r}]", levels, least=1),
    "monotone": lambda column, way: one_of(f"monotone[{column!r}]", way, DIRECTIONS),
}
