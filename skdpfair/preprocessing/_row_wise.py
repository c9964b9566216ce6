"""Trials of functions on made-up rows, which show whether each row is treated by itself."""

import copy
import io
import itertools
import pickle
import random
import re
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial

import numpy as np
import pandas as pd
from scipy import sparse

from skdpfair._utils.validate import safe_repr

_N = 8  # rows whose results are compared
_OTHER_N = 11  # a second number of rows, which no width of a table equals by chance
_SIZES = (1, 2, 9, 25, 57, 121, 249, 1000)  # rows that are added to them
_FEW_SIZES = (1, 25)
_SCALES = ((1, 1), (1, -1), (1, 100), (1, -100), (100, 1e4), (1e4, 1e7), (1e-3, 1))
_WIDTHS = (4, 1, 2, 3, *range(5, 65), 100, 128, 256, 512, 784, 1024, 3072)
_PLACES = np.arange(_N)
_KEPT = (  # rows that stay when the others are exchanged
    _PLACES % 2 == 0,
    _PLACES % 2 == 1,
    _PLACES < _N // 2,
    _PLACES >= _N // 2,
    _PLACES != 0,
    _PLACES != 3,
    _PLACES == 3,
    _PLACES != _N - 1,
)
_TOLERANCE = 1e-5  # of rounding, which differs with the number of rows
_ALIKE = 4  # tables of other widths on which a function fails in the same way
_FAILURES = (Exception, SystemExit)  # of a function that somebody else wrote
_MAX_NAMES = 64  # columns that a function may ask for
_VARIED = 8  # columns that get a kind of their own, one at a time

WORDS = ("a", "b c", "F", "M", "yes", "no", "", "x_1", "12", "3.5", "Zürich", "2020-01-31")
_DIGITS = ("0", "1", "2", "3", "4.5", "10", "-7")
_DAYS = tuple(f"20{year:02}-{month:02}-1{month}" for year in range(4, 24, 4) for month in (1, 5, 9))
# what the cells of a made-up column are: a name below, or a tuple of texts
_KINDS = ("numbers", "gaps", "integers", "flags", "dates", WORDS, (*WORDS, None), _DIGITS, _DAYS)
_PROBES = ("numbers", WORDS, "dates", _DIGITS, _DAYS)  # kinds that a function may want
_CATEGORIES = "categories"
_WITH_GAPS = {"numbers": "gaps", WORDS: (*WORDS, None)}


class NotTried(Exception):
    """A function could not be run on any made-up rows."""


def reads_other_rows(function, keywords=None, columns=None) -> bool:
    """Tell whether a function's result for one row changes with the other rows.

    The function is run on made-up rows: tables with named columns, arrays, single columns and
    sparse matrices, of numbers, texts, dates and missing values.  Rows are run together, one by
    one, among others, on several scales, and in batches of several lengths.  ``columns`` names
    columns, each with its kind, "numbers" or a tuple of texts, and others that the function asks
    for are added.  NotTried is raised if it runs on none, or gives another number of results.
    """
    trial = _Trial(function, keywords or {})
    with _guarded():
        answers = [trial.of(build, columns or {}) for build in _BUILDERS]
    if trial.reason is not None and not any(answer is not None for answer in answers):
        raise NotTried(trial.reason)
    return any(answers)


@contextmanager
def _guarded():
    """Keep warnings, prints and the global random numbers of a function to itself."""
    states = np.random.get_state(), random.getstate()  # noqa: NPY002 (a function may draw here)
    quiet = io.StringIO()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            with redirect_stdout(quiet), redirect_stderr(quiet):
                yield
    finally:
        np.random.set_state(states[0])  # noqa: NPY002
        random.setstate(states[1])


# ------------------------------------------------------------------------- made-up rows


def _column(kind, n, rng, scale):
    """Return the cells of a made-up column."""
    if isinstance(kind, tuple) or kind == _CATEGORIES:
        return rng.choice(np.array(WORDS if kind == _CATEGORIES else kind, dtype=object), n)
    if kind == "dates":
        days = rng.integers(0, 9000, n) * max(1, int(min(abs(scale), 10)))
        return np.datetime64("1970-01-01", "ns") + days.astype("timedelta64[D]")
    if kind == "flags":
        return rng.random(n) < 0.5
    if kind == "integers":
        return rng.integers(0, 6, n) * max(1, int(abs(scale)))
    values = scale * rng.random(n)
    return np.where(rng.random(n) < 0.3, np.nan, values) if kind == "gaps" else values


def _made_up(kinds, n, seed, scale=1.0):
    """Return made-up rows as a dict of columns; row 5 repeats row 2."""
    rng = np.random.default_rng(seed)
    rows = {name: _column(kind, n, rng, scale) for name, kind in kinds.items()}
    # a function that drops duplicates returns fewer rows
    if n > 5:
        for values in rows.values():
            values[5] = values[2]
    return rows


def _each(function, *rows):
    """Apply a function to the columns of several tables."""
    return {name: function(*(table[name] for table in rows)) for name in rows[0]}


def _frame(kinds, rows):
    frame = pd.DataFrame(rows)
    columns = [name for name, kind in kinds.items() if kind == _CATEGORIES]
    return frame.astype(dict.fromkeys(columns, pd.CategoricalDtype(list(WORDS))))


def _array(kinds, rows):
    return np.column_stack(list(rows.values()))


def _series(kinds, rows):
    return _frame(kinds, rows).iloc[:, 0]


def _vector(kinds, rows):
    return next(iter(rows.values()))


def _list(kinds, rows):
    return next(iter(rows.values())).tolist()


def _sparse(kinds, rows):
    if len(rows) == 1:
        raise ValueError("sparse matrices have several columns")  # else X.T could act as X
    values = _array(kinds, rows).astype(np.float64)
    return sparse.csr_matrix(np.where(np.floor(97 * values) % 2 == 0, 0.0, values))


_BUILDERS = (_frame, _array, _series, _vector, _list, _sparse)
_ONE_COLUMN = (_series, _vector, _list)


# ------------------------------------------------------------------------------- trials


class _Trial:
    """Runs a function on made-up rows and compares its results."""

    def __init__(self, function, keywords):
        # a function that remembers rows must not keep made-up ones
        with suppress(Exception):  # of an object's own making
            function = copy.deepcopy(function)
        self.function = partial(function, **keywords)
        self.reason = None  # why it did not run
        self.error = None  # the last one's text

    def of(self, build, declared):
        """Return whether the function reads other rows of one kind of table, None if it fails."""
        kinds = self._first(build, declared)
        if kinds is None:
            return None
        variants = _variants(kinds, declared, one_by_one=build is _frame)
        return any(self._reads(build, each, thorough=each == kinds) for each in variants)

    def _first(self, build, declared):
        """Return the names and kinds of columns of a table that the function runs on."""
        widths = (1,) if build in _ONE_COLUMN else _WIDTHS
        shapes = [list(declared)] * bool(declared) + [[f"x{i}" for i in range(w)] for w in widths]
        failures = []
        for names in shapes:
            is_declared, errors = names == list(declared), []
            alike = [dict.fromkeys(names, kind) for kind in _PROBES]
            for kinds in [declared, *alike] if is_declared else alike:
                missing = self._missing(build, kinds)
                if missing is None:
                    return kinds
                new = [name for name in missing if name not in names]
                if new and build is _frame:
                    start = names if is_declared else names[:1]
                    return self._combined(build, start + new, declared)
                errors.append(self.error)
            failures.append(errors)
            # if wider tables fail alike, it is not the width
            if failures[-_ALIKE:] == [errors] * _ALIKE:
                break
        return self._combined(build, list(declared), declared) if declared else None

    def _combined(self, build, names, declared):
        """Return kinds of columns that the function runs on, tried in all combinations."""
        fixed = {name: declared.get(name, "numbers") for name in names}
        # those that it wants came last; five kinds of four columns are 625 trials
        varied = names[-4:]
        for each in itertools.product(_PROBES, repeat=len(varied)):
            kinds = fixed | dict(zip(varied, each, strict=True))
            missing = self._missing(build, kinds)
            if missing is None:
                return kinds
            new = [name for name in missing if name not in names]
            if new and build is _frame and len(names) < _MAX_NAMES:
                return self._combined(build, names + new, declared)
        return None

    def _missing(self, build, kinds):
        """Return None if the function runs, else the names of columns that it did not find."""
        for n in (_OTHER_N, _N):
            try:
                values = _results(self.function(build(kinds, _made_up(kinds, n, seed=0))))[1]
            except _FAILURES as error:
                self.error = safe_repr(error)
                self.reason = self.reason or type(error).__name__
                return _named_in(error)
            if len(values) != n:
                self.reason = "another number of results than of rows"
                self.error = "columns" if len(values) == len(kinds) else len(values)
                return []
        return None

    def _run(self, build, kinds, rows):
        """Return the results of rows, None if the function fails on them."""
        try:
            return _results(self.function(build(kinds, rows)))
        except _FAILURES:
            return None

    def _reads(self, build, kinds, thorough):
        """Tell whether some result changes with other rows, or no other rows can be tried."""
        run = partial(self._run, build, kinds)
        if run(_made_up(kinds, _N, 1)) is None:
            return False
        compared = False
        for agree in _comparisons(run, kinds, thorough):
            if agree is False:
                return True
            compared = compared or agree
        return not compared


def _comparisons(run, kinds, thorough):
    """Yield whether the results of a row agree among other rows, None if a run failed."""
    for scale, other_scale in _SCALES if thorough else _SCALES[:1]:
        rows, others = _made_up(kinds, _N, 1, scale), _made_up(kinds, _N, 2, other_scale)
        whole = run(rows)
        for kept in _KEPT if thorough else _KEPT[:4]:
            mixed = _each(partial(np.where, kept), rows, others)
            yield _same(run(mixed), whole, kept, kept)
    rows = _made_up(kinds, _N, 1)
    whole = run(rows)
    for i in range(_N) if thorough else (0, 3):
        alone = run(_each(lambda v, i=i: v[i : i + 1], rows))
        # squeeze gives a single row another shape, which is no leak
        if _shape(alone) == _shape(whole, 1):
            yield _same(alone, whole, slice(1), [i], n_rows=1)
    for n in _SIZES if thorough else _FEW_SIZES:
        others = _made_up(kinds, n, 3)
        before = _each(lambda a, b: np.concatenate([a, b]), others, rows)
        yield _same(run(before), whole, slice(n, None), n_rows=n + _N)
        after = _each(lambda a, b: np.concatenate([a, b]), rows, others)
        yield _same(run(after), whole, slice(_N), n_rows=n + _N)
    # again: the function may remember rows
    yield _same(run(rows), whole)


def _variants(kinds, declared, one_by_one):
    """Return the kinds of columns to try, those that are known to run first."""
    known = {name: declared.get(name, "numbers") for name in kinds}
    out = [kinds, known, *(dict.fromkeys(kinds, kind) for kind in (*_KINDS, _CATEGORIES))]
    out += [{n: _WITH_GAPS.get(kind, kind) for n, kind in each.items()} for each in out[:2]]
    if one_by_one and len(kinds) > 1:
        for name in list(kinds)[:_VARIED]:
            out += [kinds | {name: kind} for kind in ((*WORDS, None), "dates")]
    return [each for i, each in enumerate(out) if each not in out[:i]]


def _named_in(error):
    """Return the names of columns that an error says are missing."""
    names = []
    if isinstance(error, KeyError) and error.args:
        key = error.args[0]
        names = list(key) if isinstance(key, (list, tuple, pd.Index)) else [key]
        if isinstance(key, str):
            names = re.findall(r"'([^']*)'", key) or [key]
    elif isinstance(error, AttributeError) and isinstance(error.obj, pd.DataFrame):
        names = [error.name]
    return [name for name in names if isinstance(name, (str, int))]


# --------------------------------------------------------------------------- comparison


def _results(out):
    """Return the names of the columns of a result and its columns, one row a row."""
    names = tuple(map(str, getattr(out, "columns", ())))
    if hasattr(out, "toarray"):
        out = out.toarray()
    values = np.asarray(out)
    if values.ndim == 0:
        raise ValueError("no result for each row")
    return names, values.reshape(len(values), -1)


def _shape(results, n_rows=None):
    if results is None:
        return None
    names, values = results
    return names, (len(values) if n_rows is None else n_rows), values.shape[1]


def _same(results, whole, these=slice(None), those=slice(None), n_rows=_N):
    """Tell whether results agree in some rows, None if a run failed."""
    if results is None or whole is None:
        return None
    if _shape(results) != _shape(whole, n_rows) or len(whole[1]) != _N:
        return False
    return _same_values(results[1][these], whole[1][those])


def _same_values(a, b):
    """Tell whether arrays agree, as a whole if they hold numbers, else by columns and cells."""
    try:
        return _same_numbers(a, b)
    except Exception:  # of cells of a type of their own
        if a.ndim == 2:
            return all(map(_same_values, a.T, b.T))
        return all(map(_same_cell, a.tolist(), b.tolist()))


def _same_numbers(a, b):
    """Tell whether two arrays agree up to rounding; raise if they hold no numbers."""
    if a.dtype.kind in "mM":
        raise TypeError("dates are compared cell by cell")
    a, b = a.astype(np.float64), b.astype(np.float64)
    largest = np.max(np.abs(b), axis=0, where=np.isfinite(b), initial=0.0)
    close = np.isclose(a, b, rtol=_TOLERANCE, atol=_TOLERANCE * largest, equal_nan=True)
    return bool(close.all())


def _same_cell(p, q):
    try:
        return p is q or bool(np.all(p == q)) or bool(pd.isna(p) and pd.isna(q))
    except Exception:  # of tables, sparse matrices and what else has no truth value
        with suppress(Exception):
            return pickle.dumps(p) == pickle.dumps(q)
        return False
