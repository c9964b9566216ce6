"""Features, labels and groups that no fit can use, and a good table that they spoil."""

import numpy as np
import pandas as pd
import scipy.sparse
import torch

from .strategies import HostileAll, HostileEq, HostileLen, HostileRepr

N = 120


def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 3)), columns=list("abc"))
    return X.assign(g=np.where(np.arange(N) % 3 == 0, "u", "v")), np.arange(N) % 2


X, Y = table()
F = X.drop(columns="g")
A = F.to_numpy()


class Sized:
    """Looks like a table, and is none."""

    shape, ndim = (N, 3), 2

    def __len__(self):
        return N

    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")


def column(value):
    return F.assign(d=value)


BAD_X = {
    "none": None,
    "number": 3,
    "text": "abc",
    "nothing": [],
    "empty rows": [[]],
    "dict": {"a": [1] * N},
    "generator": (i for i in range(3)),
    "flat": A[:, 0],
    "scalar": np.array(3.0),
    "class": pd.DataFrame,
    "complex": A + 1j,
    "complex column": column(1j),
    "ragged": [[1, 2] if i else [1] for i in range(N)],
    "no rows": np.empty((0, 3)),
    "no columns": np.empty((N, 0)),
    "no columns in a frame": pd.DataFrame(index=range(N)),
    "one row short": A[:-1],
    "texts": np.full((N, 3), "a"),
    "numbers as texts": np.full((N, 3), "1.5"),
    "bytes": np.full((N, 3), b"1"),
    "texts as objects": np.full((N, 3), "1", dtype=object),
    "dates": np.full((N, 3), np.datetime64("2020-01-01")),
    "times": np.full((N, 3), np.timedelta64(3, "D")),
    "records": np.zeros((N, 3), dtype=[("a", float)]),
    "nan": np.where(np.arange(3) == 1, np.nan, A),
    "inf": np.where(np.arange(3) == 1, np.inf, A),
    "beyond float32": np.where(np.arange(3) == 1, 1e300, A),
    "huge integers": np.array([[10**400] * 3] * N, dtype=object),
    "none within": np.array([[None, 1, 2]] * N, dtype=object),
    "NA within": np.array([[pd.NA, 1, 2]] * N, dtype=object),
    "dicts within": np.array([[{}] * 3] * N, dtype=object),
    "hostile within": np.array([[HostileRepr()] * 3] * N, dtype=object),
    "masked": np.ma.masked_array(A, mask=True),
    "csr with nan": scipy.sparse.csr_matrix(np.where(np.arange(3) == 1, np.nan, A)),
    "csc beyond float32": scipy.sparse.csc_array(np.where(np.arange(3) == 1, 1e300, A)),
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
    "text column": column("x"),
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
    "sized": Sized(),
    "hostile": HostileAll(),
    "without length": HostileLen(),
    "without repr": HostileRepr(),
    "without comparison": HostileEq(),
}
BAD_Y = {
    "none": None,
    "number": 0,
    "text": "ab" * (N // 2),
    "nothing": [],
    "one short": Y[:-1],
    "two columns": np.c_[Y, Y],
    "frame of two columns": pd.DataFrame({"a": Y, "b": Y}),
    "three dimensions": Y.reshape(-1, 1, 1),
    "one class": np.zeros(N),
    "continuous": np.linspace(0, 1, N),
    "continuous tensor": torch.linspace(0, 1, N),
    "nan": np.where(Y == 1, np.nan, 0.0),
    "inf": np.where(Y == 1, np.inf, 0.0),
    "none within": np.array([None, 1] * (N // 2), dtype=object),
    "none in a list": [None, "a"] * (N // 2),
    "nan in a list of texts": ["a", float("nan")] * (N // 2),
    "mixed list": ["a", 1] * (N // 2),
    "mixed objects": np.array(["a", 1] * (N // 2), dtype=object),
    "three kinds": [1, "a", 2.5] * (N // 3),
    "NA": pd.array([1, None] * (N // 2), dtype="Int64"),
    "NA among texts": pd.Series(["a", None] * (N // 2), dtype="string"),
    "NA category": pd.Categorical(["a", None] * (N // 2)),
    "NaT": pd.Series([pd.NaT, pd.Timestamp("2020")] * (N // 2)),
    "complex": Y + 1j,
    "bytes": np.array([b"a", b"b"] * (N // 2)),
    "dict": {"a": 1},
    "set": {1, 2},
    "ragged": [[0], [1, 2]] * (N // 2),
    "dicts": [{}, {}] * (N // 2),
    "objects": [object()] * N,
    "records": np.zeros(N, dtype=[("a", int)]),
    "several labels": np.eye(N)[:, :5],
    "sparse": scipy.sparse.csr_matrix(Y[:, None]),
    "huge integers": [10**400, 1] * (N // 2),
    "without repr": [HostileRepr()] * N,
    "without comparison": [HostileEq() for _ in range(N)],
    "hostile": HostileAll(),
    "sized": Sized(),
}
BAD_GROUPS = {
    "number": 0,
    "name": "g",
    "nothing": [],
    "dict": {"a": ["u"] * N},
    "set": {1},
    "one short": X["g"][:-1],
    "one group": ["a"] * N,
    "nan among texts": ["a", float("nan")] * (N // 2),
    "none": ["a", None] * (N // 2),
    "NA": pd.array(["a", None] * (N // 2), dtype="string"),
    "NA category": pd.Categorical(["a", None] * (N // 2)),
    "nan": np.where(Y == 1, np.nan, 1.0),
    "none in a pair": [("a", None), ("b", "c")] * (N // 2),
    "three dimensions": np.zeros((N, 1, 2)),
    "nested": [[["a"]]] * N,
    "ragged": [["a"], ["b", "c"]] * (N // 2),
    "dicts": [{}, {"a": 1}] * (N // 2),
    "lists": pd.Series([[1], [2]] * (N // 2)),
    "no columns": np.empty((N, 0)),
    "no columns in a frame": pd.DataFrame(index=range(N)),
    "sparse": scipy.sparse.csr_matrix(np.eye(N)),
    "the features": A,
    "without repr": [HostileRepr()] * N,
    "without comparison": [HostileEq() for _ in range(N)],
    "without length": HostileLen(),
    "hostile": HostileAll(),
    "sized": Sized(),
}
