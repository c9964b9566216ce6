"""Features, labels and groups that no fit can use, and a good table that they spoil.

Where they hold cells, these are secrets that no message may hold.
"""

import io
import logging
import re
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.sparse
import torch

from .bad_values import HostileAll, HostileEq, HostileLen, HostileRepr

N = 120
SECRET, NUMBER = "PatientZero", 73194682


@dataclass
class Outcome:
    """Of a call: its error, its warnings, and all texts with causes, notes, logs and prints."""

    error: Exception | None
    warned: list
    text: str


def outcome_of(call):
    """Return the outcome of a call, whose texts hold no secret."""
    prints, log, error, lines = io.StringIO(), io.StringIO(), None, ""
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    with (
        warnings.catch_warnings(record=True) as warned,
        redirect_stdout(prints),
        redirect_stderr(prints),
    ):
        warnings.simplefilter("always")
        try:
            call()
        except Exception as caught:
            error, lines = caught, "".join(traceback.format_exception(caught))
            lines = re.sub(r"(?m)^  File .*\n(    .*\n)*", "", lines)  # lines of source
        finally:
            logging.getLogger().removeHandler(handler)
    texts = [lines, prints.getvalue(), log.getvalue(), *(str(w.message) for w in warned)]
    inner = error and error.__context__
    while inner is not None:  # tools may show what a traceback suppresses
        texts, inner = [*texts, repr(inner)], inner.__context__
    assert not any(secret in text for secret in (SECRET, str(NUMBER)) for text in texts)
    return Outcome(error, warned, "\n".join(texts))


A = np.random.default_rng(0).normal(size=(N, 3))
F, Y = pd.DataFrame(A, columns=list("abc")), np.arange(N) % 2
X = F.assign(g=np.where(np.arange(N) % 3 == 0, "u", "v"))


class Sized:
    """Looks like a table, and is none."""

    shape, ndim = (N, 3), 2

    def __len__(self):
        return N

    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")


def planted(values, secret=SECRET):
    """Return the values with the secret among them."""
    out = np.array(values, dtype=object)
    out[7] = secret
    return out


HOSTILE = {"sized": Sized(), "hostile": HostileAll(), "without length": HostileLen()}
HOSTILE_ROWS = {
    "without repr": [HostileRepr()] * N,
    "without comparison": [HostileEq() for _ in range(N)],
}
GAPS = {  # missing values among others
    "NA": pd.array([1, None] * (N // 2), dtype="Int64"),
    "NA among texts": pd.Series(["a", None] * (N // 2), dtype="string"),
    "NA category": pd.Categorical(["a", None] * (N // 2)),
    "nan among texts": [SECRET, float("nan")] * (N // 2),
    "none among texts": [SECRET, None] * (N // 2),
    "nan": np.where(Y == 1, np.nan, 1.0),
}
CELLS = {  # no numbers of float32
    "nan": np.nan,
    "infinity": np.inf,
    "beyond float32": NUMBER * 10.0**40,
    "huge integer": 10**400,
    "none": None,
    "NA": pd.NA,
    "text": SECRET,
    "number as text": "1.5",
    "bytes": b"1",
    "complex": 1j,
    "date": pd.Timestamp("2020"),
    "duration": pd.Timedelta(1),
    "period": pd.Period("2020"),
    "tuple": (SECRET,),
    "list": [1],
    "dict": {},
    "object": object(),
    "hostile": HostileRepr(),
}


def with_cells(value, rows=slice(None)):
    """Return the features of which one column, or some of its rows, hold a value."""
    column = pd.Series(A[:, 1], dtype=object)
    column[rows] = [value] * len(column[rows])
    return F.assign(b=column)


def of_one_type(value):
    """Return the features with a column of the type that pandas finds for it."""
    table = with_cells(value)
    try:
        return table.infer_objects()
    except OverflowError:  # pandas 2, of integers beyond its own
        return table


def filled(value):
    """Return an array of a value, of the type that numpy gives it."""
    out = np.array([value] * 3 * N)
    return out.reshape(N, 3) if out.ndim == 1 else out


MADE = {
    "a cell": lambda value: with_cells(value, slice(7, 8)),
    "a cell of an array": lambda value: with_cells(value, slice(7, 8)).to_numpy(),
    "a column": of_one_type,
    "an array": filled,
}
SPOILT = {name: np.where(np.arange(3) == 1, CELLS[name], A) for name in [*CELLS][:3]}
BAD_X = {
    **HOSTILE,
    **{f"{cell} in {place}": make(v) for place, make in MADE.items() for cell, v in CELLS.items()},
    **{f"{name} in csr": scipy.sparse.csr_matrix(values) for name, values in SPOILT.items()},
    **{f"{name} in csc": scipy.sparse.csc_array(values) for name, values in SPOILT.items()},
    **{f"{name} in a tensor": torch.tensor(values) for name, values in SPOILT.items()},
    "without repr": HostileRepr(),
    "without comparison": HostileEq(),
    "none": None,
    "number": 3,
    "text": SECRET,
    "list of a text": [SECRET],
    "nothing": [],
    "empty rows": [[]],
    "dict": {"a": planted(Y)},
    "generator": (i for i in range(3)),
    "flat": A[:, 0],
    "scalar": np.array(3.0),
    "class": pd.DataFrame,
    "complex": A + 1j,
    "ragged": [[1, 2] if i else [SECRET] for i in range(N)],
    "no rows": np.empty((0, 3)),
    "no columns": np.empty((N, 0)),
    "no columns in a frame": pd.DataFrame(index=range(N)),
    "one row short": A[:-1],
    "records": np.zeros((N, 3), dtype=[("a", float)]),
    "masked": np.ma.masked_array(A, mask=True),
    "complex, by coordinates": scipy.sparse.coo_array(A * 1j),
    "sparse of one dimension": scipy.sparse.coo_array(A[:, 0]),
    "sparse tensor": torch.tensor(A).to_sparse(),
    "complex tensor": torch.tensor(A + 1j),
    "flat tensor": torch.ones(N),
    "tensor without data": torch.empty((N, 3), device="meta"),
    "category column": F.assign(d=pd.Categorical(["a", "b"] * (N // 2))),
    "category of flags": F.assign(d=pd.Categorical([True, False] * (N // 2))),
    "text column of twice a name": pd.concat([F, pd.DataFrame({"a": ["x"] * N})], axis=1),
    "number column of twice a name": pd.concat([F, F], axis=1),
    "integers with NA": F.assign(d=pd.array([1, None] * (N // 2), dtype="Int64")),
    "flags with NA": F.assign(d=pd.array([True, None] * (N // 2), dtype="boolean")),
    "names of mixed types": F.rename(columns={"a": 0}),
    "texts below tuples": pd.DataFrame(
        np.full((N, 2), "q"), columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])
    ),
}
BAD_Y = {
    **HOSTILE,
    **HOSTILE_ROWS,
    **GAPS,
    "none": None,
    "number": 0,
    "text": SECRET,
    "nothing": [],
    "one short": Y[:-1],
    "two columns": np.tile(planted(Y), (2, 1)).T,
    "frame of two columns": pd.DataFrame({"a": Y, "b": Y}),
    "three dimensions": Y.reshape(-1, 1, 1),
    "one class": [SECRET] * N,
    "continuous": planted(np.arange(N), NUMBER + 0.5).astype(float),
    "continuous tensor": torch.linspace(0, 1, N),
    "inf": np.where(Y == 1, np.inf, 0.0),
    "none within": np.array([None, 1] * (N // 2), dtype=object),
    "mixed list": [SECRET, 1] * (N // 2),
    "mixed objects": planted(Y),
    "three kinds": [1, "a", 2.5] * (N // 3),
    "NaT": pd.Series([pd.NaT, pd.Timestamp("2020")] * (N // 2)),
    "complex": Y + 1j,
    "bytes": np.array([b"a", b"b"] * (N // 2)),
    "dict": {"y": planted(Y)},
    "set": {1, 2},
    "ragged": [[SECRET]] + [[0, 1]] * (N - 1),
    "dicts": [{}, {}] * (N // 2),
    "objects": planted(Y, (SECRET,)),
    "records": np.zeros(N, dtype=[("a", int)]),
    "several labels": np.eye(N)[:, :5],
    "sparse": scipy.sparse.csr_matrix(Y[:, None]),
    "huge integers": [10**400, 1] * (N // 2),
}
BAD_GROUPS = {
    **HOSTILE,
    **HOSTILE_ROWS,
    **GAPS,
    "number": 0,
    "name": SECRET,
    "nothing": [],
    "dict": {"g": planted(X["g"])},
    "dict of a series": {"g": pd.Series(planted(X["g"]))},
    "set": {1},
    "one short": X["g"][:-1],
    "one group": [SECRET] * N,
    "none in a pair": [("a", None), ("b", "c")] * (N // 2),
    "three dimensions": np.zeros((N, 1, 2)),
    "nested": [[[SECRET]]] * N,
    "too many": [[f"{SECRET}{i}", i, i, i] for i in range(N)],
    "ragged": [[SECRET], ["b", "c"]] * (N // 2),
    "dicts": [{}, {"a": 1}] * (N // 2),
    "lists": pd.Series([[SECRET], [2]] * (N // 2)),
    "no columns": np.empty((N, 0)),
    "no columns in a frame": pd.DataFrame(index=range(N)),
    "sparse": scipy.sparse.csr_matrix(np.eye(N)),
    "the features": A,
}
