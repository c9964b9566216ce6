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

from .strategies import HostileAll, HostileEq, HostileLen, HostileRepr

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
SECOND = np.arange(3) == 1  # of three columns


class Sized:
    """Looks like a table, and is none."""

    shape, ndim = (N, 3), 2

    def __len__(self):
        return N

    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")


def column(value):
    return F.assign(d=value)


def planted(values, secret=SECRET):
    """Return the values with the secret among them."""
    out = np.array(values, dtype=object)
    out[7] = secret
    return out


def cell(secret=SECRET):
    """Return the features with the secret in a cell."""
    return F.astype(object).assign(b=planted(F["b"], secret))


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
BAD_X = {
    **HOSTILE,
    "without repr": HostileRepr(),
    "without comparison": HostileEq(),
    "none": None,
    "number": 3,
    "text": SECRET,
    "list of a text": [SECRET],
    "text in a cell": cell(),
    "text in a cell of an array": cell().to_numpy(),
    "number beyond float32 in a cell": cell(NUMBER * 10.0**40).astype(float),
    "tuple in a cell": cell((SECRET,)).to_numpy(),
    "nothing": [],
    "empty rows": [[]],
    "dict": {"a": planted(Y)},
    "generator": (i for i in range(3)),
    "flat": A[:, 0],
    "scalar": np.array(3.0),
    "class": pd.DataFrame,
    "complex": A + 1j,
    "complex column": column(1j),
    "ragged": [[1, 2] if i else [SECRET] for i in range(N)],
    "no rows": np.empty((0, 3)),
    "no columns": np.empty((N, 0)),
    "no columns in a frame": pd.DataFrame(index=range(N)),
    "one row short": A[:-1],
    "texts": np.full((N, 3), SECRET),
    "numbers as texts": np.full((N, 3), "1.5"),
    "bytes": np.full((N, 3), b"1"),
    "texts as objects": np.full((N, 3), SECRET, dtype=object),
    "dates": np.full((N, 3), np.datetime64("2020-01-01")),
    "times": np.full((N, 3), np.timedelta64(3, "D")),
    "records": np.zeros((N, 3), dtype=[("a", float)]),
    "nan": np.where(SECOND, np.nan, A),
    "inf": np.where(SECOND, np.inf, A),
    "beyond float32": np.where(SECOND, 1e300, A),
    "huge integers": np.array([[10**400] * 3] * N, dtype=object),
    "none within": np.array([[None, 1, 2]] * N, dtype=object),
    "NA within": np.array([[pd.NA, 1, 2]] * N, dtype=object),
    "dicts within": np.array([[{}] * 3] * N, dtype=object),
    "hostile within": np.array([[HostileRepr()] * 3] * N, dtype=object),
    "masked": np.ma.masked_array(A, mask=True),
    "csr with nan": scipy.sparse.csr_matrix(np.where(SECOND, np.nan, A)),
    "csc beyond float32": scipy.sparse.csc_array(np.where(SECOND, 1e300, A)),
    "complex, by coordinates": scipy.sparse.coo_array(A * 1j),
    "sparse of one dimension": scipy.sparse.coo_array(A[:, 0]),
    "sparse tensor": torch.tensor(A).to_sparse(),
    "complex tensor": torch.tensor(A + 1j),
    "nan tensor": torch.full((N, 3), float("nan")),
    "flat tensor": torch.ones(N),
    "tensor without data": torch.empty((N, 3), device="meta"),
    "date column": column(pd.Timestamp("2020")),
    "duration column": column(pd.Timedelta(1)),
    "category column": column(pd.Categorical(["a", "b"] * (N // 2))),
    "category of flags": column(pd.Categorical([True, False] * (N // 2))),
    "text column": column(SECRET),
    "text column of twice a name": pd.concat([F, pd.DataFrame({"a": ["x"] * N})], axis=1),
    "number column of twice a name": pd.concat([F, F], axis=1),
    "object column": column(pd.Series([object()] * N)),
    "list column": column(pd.Series([[1]] * N)),
    "period column": column(pd.period_range("2020", periods=N)),
    "integers with NA": column(pd.array([1, None] * (N // 2), dtype="Int64")),
    "flags with NA": column(pd.array([True, None] * (N // 2), dtype="boolean")),
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
