"""Odd but sound data are trained on, and a fit leaves the world as it found it."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from skdpfair import MLP, DPFairClassifier, Groups
from skdpfair.exceptions import InsecureSeedWarning, LowSignalWarning
from skdpfair.methods import METHODS

N = 120
RNG = np.random.default_rng(0)
A = RNG.normal(size=(N, 3))
F = pd.DataFrame(A, columns=list("abc"))
Y = np.arange(N) % 2
G = np.where(np.arange(N) % 3 == 0, "u", "v")


def fitted(X, y=Y, of=None, **params):
    """Fit without any warning but that of few rows, and check what it predicts for them."""
    private = METHODS[params.get("method", "dpsgd")].private
    budget = {"epsilon": None, "noise_multiplier": 1.0 if private else None}
    budget = {} if "epsilon" in params else budget
    defaults = {"method": "dpsgd", "accountant": "rdp", "max_steps": 6, "batch_size": 40}
    model = DPFairClassifier(**(defaults | budget | params))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in (LowSignalWarning, InsecureSeedWarning):
            warnings.simplefilter("ignore", kind)
        model.fit(X, y, sensitive_features=of)
        odds, labels = model.predict_proba(X), model.predict(X)
    assert np.isfinite(odds).all() and odds.shape == (len(odds), len(model.classes_))
    assert set(labels.tolist()) <= set(model.classes_.tolist())
    return model


def of_frame(dtype):
    return lambda: (F > 0).astype("bool" if "bool" in dtype else "int8").astype(dtype)


DTYPES = [*"fdgbhilBHILQ?Oe", ">f8", ">i4"]
OF_PANDAS = ["Int64", "Int8", "UInt16", "Float32", "Float64", "boolean", "bool"]
OF_PANDAS += ["int64[pyarrow]", "double[pyarrow]", "float[pyarrow]", "bool[pyarrow]"]
KINDS = {
    **{f"array of {dtype}": lambda d=dtype: np.abs(A * 3).astype(d) for dtype in DTYPES},
    **{f"frame of {dtype}": of_frame(dtype) for dtype in OF_PANDAS},
    "strided": lambda: np.repeat(A, 2, axis=1)[:, ::2],
    "broadcast": lambda: np.broadcast_to(np.float64(1.0), (N, 3)),
    "tuples": lambda: tuple(map(tuple, A.tolist())),
    "list of arrays": lambda: list(A),
    "subclass": lambda: A.view(type("Sub", (np.ndarray,), {})),
    "one column of zeros": lambda: np.zeros((N, 1)),
    "tiny": lambda: A * 1e-40,
    "bfloat16 tensor": lambda: torch.tensor(A).bfloat16(),
    "half tensor": lambda: torch.tensor(A).half(),
    "integer tensor": lambda: torch.tensor(A).int(),
    "flag tensor": lambda: torch.tensor(A) > 0,
    "tensor with gradient": lambda: torch.tensor(A, requires_grad=True),
    "columns of two levels": lambda: F.set_axis(
        pd.MultiIndex.from_product([["t"], ["a", "b", "c"]]), axis=1
    ),
    "column called target": lambda: F.rename(columns={"a": "target"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fits_take_features_of_any_kind(kind):
    if "pyarrow" in kind:
        pytest.importorskip("pyarrow")
    fitted(KINDS[kind]())


def test_equal_features_in_any_layout_give_the_same_model():
    params = {"random_state": 0, "epsilon": None, "noise_multiplier": 0.0}
    usual = fitted(A.astype(np.float32), **params).predict_proba(A)
    for X in (np.asfortranarray(A), A.tolist(), A[::-1, ::-1][::-1, ::-1], F):
        np.testing.assert_array_equal(fitted(X, **params).predict_proba(X), usual)


@pytest.mark.parametrize("frame", [False, True])
@pytest.mark.parametrize("method", ["dpsgd_f", "dp_is_sgd", "bam", "naive"])
def test_fits_take_what_may_not_be_written_and_leave_it_unmodified(method, frame):
    X, y, groups = A.copy(), Y.copy(), np.array(G)
    for array in (X, y, groups):
        array.flags.writeable = False
    X = F.copy() if frame else X.astype(np.float32) if method == "naive" else X
    fitted(X, y, groups, method=method)
    np.testing.assert_array_equal(X, A.astype(np.asarray(X).dtype))


NUMBERS = ["Int64", "UInt8", "boolean", "int64[pyarrow]", "bool[pyarrow]", "Float32"]
TEXTS = ["object", "str", "string", "category", "string[pyarrow]"]


@pytest.mark.parametrize("dtype", NUMBERS + TEXTS)
def test_fits_take_labels_and_groups_of_any_dtype(dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    if dtype in TEXTS:
        values = pd.Series(np.where(Y == 1, "p", "n")).astype(dtype)
    else:
        values = pd.Series(Y).astype("bool" if "bool" in dtype else "int64").astype(dtype)
    levels = sorted(set(values.tolist()))
    classes = fitted(A, values).classes_
    assert classes.tolist() == levels
    assert classes.dtype == {"Int64": np.int64, "boolean": bool}.get(dtype, classes.dtype)
    column = F.assign(which=values)
    for model in (
        fitted(A, Y, values, method="dpsgd_f"),
        fitted(column, Y, method="naive", group_col="which"),
    ):
        assert list(model.levels_) == levels


NAMES = [
    ["ä😀", "'\"\n", "__"], ["[", " lead", "x" * 5000], ["y", "X", "self"], ["{0}", "%s", "\\"],
    ["sensitive_features", "group", "code"], ["epsilon", "method__lr", ""], [b"a", b"b", b"c"],
    [0, 1, 2], [("a", 1), ("b", 2), ("c", 3)], [None, 1.5, 2], [*pd.date_range("2020", periods=3)],
]  # fmt: skip


@pytest.mark.parametrize("names", NAMES, ids=range(len(NAMES)))
def test_fits_take_columns_of_any_name(names):
    X = F.set_axis(pd.Index(names, tupleize_cols=False), axis=1)
    fitted(X)
    for name in names if isinstance(names[0], str) else ():  # each may be that of groups, too
        others = X.drop(columns=name)
        table = others.join(pd.Series(G, name=name))
        model = fitted(table, group_col=name, method="dpsgd_f")
        assert list(model.levels_) == ["u", "v"] and model.predict(others).shape == (N,)


GROUPS = [
    ["ä", "😀"], ["'", '"'], ["\n", "["], ["__", " "], ["x" * 4000, "y"], [0, 1], [0.5, 1.5],
    [True, False], [None, "a"], list(pd.date_range("2020", periods=2)), [b"a", b"b"],
    [("a", 1), ("b", 2)], ["[F]", "[M]"], ["", ", "], ["nan", "NaN"],
    [pd.NA, "a"], [np.nan, "a"], ["x", 1],
]  # fmt: skip


@pytest.mark.parametrize("names", GROUPS, ids=range(len(GROUPS)))
def test_fits_take_groups_and_classes_of_any_name(names):
    values = pd.Series([names[code] for code in Y])
    missing = pd.isna(values).any()
    declared = {"group_col": Groups(levels=names)} if missing else {}
    model = fitted(A, Y, values, method="dpsgd_f", **declared)
    assert missing or set(model.levels_) == set(names)
    if all(isinstance(name, str) for name in names):
        for y in (values, values.tolist()):
            assert set(fitted(A, y).classes_) == set(names)


@pytest.mark.parametrize("method", ["dpsgd_f", "naive", "dp_is_sgd", "gdro", "iw_sgd", "is_sgd"])
def test_fits_take_few_and_many_groups(method):
    off = {"epsilon": None, "noise_multiplier": 0.0 if METHODS[method].private else None}
    alone = np.where(np.arange(N) == 7, "alone", "rest")
    for groups, absent in ((Y, []), (np.arange(N) % 50, []), (alone, []), (G, ["nobody"])):
        levels = [*np.unique(groups).tolist(), *absent]
        params = {} if absent else off
        model = fitted(A, Y, groups, method=method, group_col=Groups(levels=levels), **params)
        assert len(model.levels_) == len(levels)


def test_fits_take_ten_classes():
    for classes in (np.arange(10), np.array(list("abcdefghij"))):
        model = fitted(A, classes[np.arange(N) % 10], module=MLP((4,)))
        assert len(model.classes_) == 10


@pytest.mark.parametrize("n", [4, 20, 100, 20_000])
def test_fits_take_few_and_many_rows(n):
    fitted(np.resize(A, (n, 3)), np.arange(n) % 2, np.resize(G, n), method="dpsgd_f")


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_predictions_read_arrays_batch_by_batch(dtype):
    model = fitted(A, Y)
    X = np.zeros((10_000, 3), dtype)  # three batches
    X[:2_000] = 3e38  # whose sum is infinite
    with np.errstate(over="raise", invalid="raise"):
        np.testing.assert_array_equal(model.predict(X), model.predict_proba(X).argmax(axis=1))
    X[5_000, 2], X[9_000, 0] = np.nan, -np.inf
    for predict in (model.predict, model.predict_proba):
        with pytest.raises(ValueError, match=r"columns \[0, 2\]"):
            predict(X)


def test_parameters_of_numpys_types_neither_overflow_nor_round():
    small = {"max_epochs": np.int8(30), "batch_size": np.int8(10), "max_steps": None}
    assert fitted(A, **small).n_steps_ == 360
    usual = fitted(A, epsilon=1.0, delta=1e-4).privacy_
    for kind in (np.float16, np.float32):
        report = fitted(A, epsilon=kind(1.0), delta=np.float64(1e-4)).privacy_
        assert report.noise_multiplier == usual.noise_multiplier
    assert fitted(A, keep_reference=np.True_).reference_.method_.name == "sgd"


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("method", ["dpsgd", "global_adapt", "dpsgd_f", "bam", "gdro"])
def test_fits_take_any_default_dtype_of_torch(method, double):
    model = fitted(A, Y, G, method=method)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.predict_proba(A), model.predict_proba(A), atol=1e-12)
    assert all(p.dtype == torch.float32 for p in model.net_.module_.parameters())
    custom = fitted(A, module=lambda: torch.nn.Linear(3, 2))
    assert custom.net_.module_.weight.dtype == torch.float32


@pytest.mark.slow
def test_a_million_rows_on_disk_are_not_read_into_memory(tmp_path):
    psutil = pytest.importorskip("psutil")
    n, d = 1_000_000, 200
    X = np.memmap(tmp_path / "x.bin", np.float32, "w+", shape=(n, d))
    for start in range(0, n, 50_000):
        X[start : start + 50_000] = RNG.standard_normal((50_000, d), dtype=np.float32)
    y = (X[:, 0] > 0).astype(np.int8)
    X.flush()
    X = np.memmap(tmp_path / "x.bin", np.float32, "r", shape=(n, d))
    fitted(X[:1000], y[:1000])  # warm caches

    def held():  # memory of the process's own: not that of mapped files
        memory = psutil.Process().memory_info()
        return memory.rss - memory.shared

    before = held()
    model = DPFairClassifier("dpsgd", epsilon=1.0, max_steps=20).fit(X, y)
    assert model.score(X, y) > 0.55
    assert held() - before < X.nbytes / 4
