"""Releases, files and pickles predict as the fit does; load_release refuses other networks."""

import copy
import json
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from torch import nn

from skdpfair import MLP, DPFairClassifier, Factory, get_method, load_release
from skdpfair.analysis import GroupRecorder
from skdpfair.augmentations import PGD, FlipAndShift, Views
from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.methods import METHODS
from skdpfair.preprocessing import TableSchema
from skdpfair.release import _file
from skdpfair.release._read_statement import read_statement

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)


@pytest.fixture
def check_copies(check_same, path):
    """``check_copies(model, X)``: released, saved, pickled, and these in turn."""

    def check(model, X):
        model.save_release(path)
        content, loaded = path.read_bytes(), load_release(path)
        loaded.save_release(path)
        assert path.read_bytes() == content
        copies = [model.release(), loaded, pickle.loads(pickle.dumps(loaded)), copy.deepcopy(model)]
        for other in copies:
            check_same(other, model, X)
        return loaded

    return check


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize("name", sorted(METHODS))
def test_copies_of_a_fit_by_each_method_predict_the_same(name, table, fitted, check_copies):
    noise = 1.0 if METHODS[name].takes_noise else None
    model = fitted(table, name, noise_multiplier=noise)
    loaded = check_copies(model, table[0])
    assert repr(loaded.method_) == repr(model.method_)
    assert loaded.lr_ == model.lr_ and loaded.n_steps_ == model.n_steps_ == 3


CLASSES = {
    "text": np.array(["no\n", 'y"é\u2028s']),
    "objects": np.array(["a", "b", "c\0"], dtype=object),
    "int": np.array([-3, 7]),
    "bool": np.array([True, False]),
    "float": np.array([0.0, 2.0], dtype=np.float32),
}
LEVELS = {
    "text": ["a\n", "b\"'</é\0"],
    "objects": [1, "1"],
    "int": [float("nan"), -1],
    "bool": [True, False],
    "float": [2.0, None],
}


@pytest.mark.parametrize("kind", CLASSES)
def test_copies_keep_classes_and_levels_of_any_type(kind, table, fitted, check_copies):
    levels, n = LEVELS[kind], len(table[0])
    X = table[0].assign(group=pd.Series([levels[i % 2] for i in range(n)], dtype=object))
    y = np.resize(CLASSES[kind], n)
    loaded = check_copies(fitted((X, y), "dp_is_sgd", group_col__levels=levels), X)
    assert [type(v) for v in loaded.classes_] == [type(v) for v in np.unique(y)]


def test_copies_keep_intersections_with_intervals(table, fitted, check_same, check_copies):
    X = table[0].assign(band=pd.cut(table[0]["x0"], [-np.inf, 0, np.inf]))
    model = fitted((X, table[1]), "dpsgd_f", group_col=["group", "band", "target"])
    loaded = check_copies(model, X)
    assert list(loaded.levels_) == list(model.levels_) and len(loaded.levels_) == 8
    check_same(loaded, model, X.drop(columns=["group", "band"]))


def test_copies_keep_feature_names_of_any_text(table, fitted, check_copies):
    names = ["a\n", "b\"'\\", "ü\U0001f600", "</script>", "\0", " "]
    X = table[0].rename(columns=dict(zip(table[0].columns, names, strict=False)))
    loaded = check_copies(fitted((X, table[1])), X)
    assert list(loaded.feature_names_in_) == list(X.columns)


@pytest.mark.parametrize(
    ("module", "shape"), [("cnn", (1, 8, 8)), ("mlp", (9, 7)), ("logistic", (9, 7))]
)
def test_copies_predict_pictures(module, shape, fitted, check_copies):
    rng = np.random.default_rng(0)
    X, y = rng.random((40, *shape), dtype=np.float32), rng.integers(0, 3, 40)
    views = Views(FlipAndShift(shift=2), n=2)
    loaded = check_copies(fitted((X, y), module=module, group_col=None, augment=views), X)
    assert repr(loaded.augment) == repr(views)


PARAMETERS = [
    {"optimizer": Factory(torch.optim.Adam, betas=(0.8, 0.9)), "lr": 0.01},
    {"attack": PGD(0.1, input_range=None), "class_weight": {0: 1.0, 1: 3.0}},
    {"module": MLP((5, 4), activation="gelu"), "device": "cpu"},
    {"module": MLP(np.array([3, 2]))},
    {
        "method": get_method("pcsgd", schedule=(1.0, 10.0)),
        "group_col__levels": np.array(["a", "b"]),
    },
    {"classes": (0, 1, 2), "group_col__levels": ["a", "b", "c"], "verbose": 0, "max_steps": 3},
    {"optimizer": "adam", "iterate_average": 0.5, "batch_size": 50, "max_physical_batch_size": 9},
]


@pytest.mark.parametrize("params", PARAMETERS, ids=lambda params: "-".join(params))
def test_copies_keep_parameters_that_serve_for_another_fit(params, table, fitted, check_copies):
    model = fitted(table, **params)
    loaded = check_copies(model, table[0])
    assert str(loaded.get_params()) == str(model.get_params())
    again = clone(loaded).fit(*table)  # the parameters serve for another fit
    assert again.n_steps_ == model.n_steps_


def test_release_refuses_diagnostics_until_they_are_deleted(table, path, fitted):
    model = fitted(table, callbacks=[GroupRecorder(terms=False)])
    for leave in (model.release, lambda: model.save_release(path)):
        with pytest.raises(ValueError, match=r"del classifier\.diagnostics_"):
            leave()
    assert not path.exists()
    del model.diagnostics_
    released = model.release()
    assert released.privacy_.releasable and released.callbacks is None
    assert any("diagnostics" in line for line in released.privacy_.not_accounted)
    assert released.privacy_.epsilon == model.privacy_.epsilon


def test_release_without_privacy_warns_and_states_an_infinite_epsilon(table, path, fitted):
    model = fitted(table, noise_multiplier=None)
    for leave in (model.release, lambda: model.save_release(path)):
        with pytest.warns(PrivacyLeakWarning, match="epsilon is infinite"):
            leave()
    loaded = load_release(path)
    assert loaded.privacy_.epsilon == float("inf") and not loaded.privacy_.is_private
    statement = json.loads(json.dumps(loaded.privacy_statement(), allow_nan=False))
    assert statement["epsilon"] == "inf" and not statement["is_private"]


def test_save_release_leaves_out_code_with_a_warning(table, path, fitted):
    model = fitted(table, attack=lambda module, x, y: x)
    with pytest.warns(UserWarning, match=r"\['attack'\]"):
        model.save_release(path)
    assert load_release(path).attack is None


def test_release_needs_a_fitted_classifier(path):
    for leave in (DPFairClassifier().release, lambda: DPFairClassifier().save_release(path)):
        with pytest.raises(NotFittedError):
            leave()


def test_warm_start_of_a_loaded_release_adds_to_its_releases(table, path, fitted):
    fitted(table, "dp_is_sgd", warm_start=True).save_release(path)
    first = load_release(path)
    second = load_release(path).fit(*table)
    assert second.privacy_.steps == 2 * first.privacy_.steps
    assert second.privacy_.epsilon > first.privacy_.epsilon
    assert second.privacy_.group_epsilons["b"] > first.privacy_.group_epsilons["b"]


@pytest.fixture(scope="module")
def loans():
    rng = np.random.default_rng(0)
    pay = rng.lognormal(8, 2, 300)
    return pd.DataFrame({"pay": pay, "age": rng.uniform(18, 98, 300), "paid": pay > 3000})


LOANS = TableSchema(
    target="paid",
    classes=["False", "True"],
    bounds={"pay": (0, 10**6), "age": (18, 98)},
    missing=["age"],
)


@pytest.mark.parametrize("n_intervals", ["auto", 0, 5])
def test_schema_of_a_file_makes_the_features_of_the_fit(loans, path, n_intervals):
    schema = replace(LOANS, n_intervals=n_intervals)
    X, y, _ = schema.split(loans, epsilon=0.4)  # fewer intervals than with epsilon=1
    clf = DPFairClassifier("dpsgd", epsilon=0.4, max_steps=3).fit(X, y)
    clf.save_release(path, schema=schema)
    loaded = load_release(path)
    known = loaded.schema_
    assert known == schema.with_fixed_encoding(len(loans), epsilon=0.4)
    assert n_intervals == "auto" or known.n_intervals == n_intervals
    model = make_pipeline(known.preprocessor(), loaded)  # of tables of any length
    np.testing.assert_array_equal(model.predict_proba(loans[:2]), clf.predict_proba(X[:2]))


def test_save_release_refuses_a_schema_of_other_features(loans, path):
    X, y, _ = replace(LOANS, n_intervals=3).split(loans)
    clf = DPFairClassifier("dpsgd", epsilon=1.0, max_steps=3).fit(X, y)
    for other in ({"n_intervals": 4}, {"log_columns": []}, {"bounds": {"age": (18, 98)}}):
        with pytest.raises(ValueError, match=r"^schema .*others"):
            clf.save_release(path, schema=replace(LOANS, **other))


@pytest.fixture(scope="module", params=["with names", "without names", "of equal names"])
def raw_model(loans, tmp_path_factory, request):
    """A model from a file with a schema, raw and encoded records, and what it predicts of them."""
    equal = request.param == "of equal names"  # before and after encoding
    schema = {"n_intervals": 0, "log_columns": [], "missing": []} if equal else {"n_intervals": 3}
    schema = replace(LOANS, **schema)
    rows = loans.assign(ward=["A", "B", "?"] * 100)
    if not equal:
        schema = replace(schema, categories={"ward": ["A", "B"]})
    X, y, _ = schema.split(rows)
    clf = DPFairClassifier("dpsgd", epsilon=1.0, max_steps=3)
    clf.fit(X.to_numpy() if request.param == "without names" else X, y)
    path = tmp_path_factory.mktemp("raw") / "model.safetensors"
    clf.save_release(path, schema=schema)
    return path, rows, X, clf.decision_function(X if "without" not in request.param else X.values)


RAW = {
    "all columns": lambda rows, X: rows,
    "other order": lambda rows, X: rows[rows.columns[::-1]],
    "features only": lambda rows, X: rows.drop(columns=["paid"]),
    "polars": lambda rows, X: pytest.importorskip("polars").from_pandas(rows),
    "encoded": lambda rows, X: X,
    "an array": lambda rows, X: X.to_numpy(),
}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("form", RAW.values(), ids=RAW)
def test_loaded_model_encodes_tables_by_its_schema(raw_model, form):
    path, rows, X, expected = raw_model
    for model in (load_release(path), pickle.loads(pickle.dumps(load_release(path)))):
        table = form(rows, X)
        found = model.decision_function(table)
        # products with the columns of a DataFrame are summed in another order than with rows
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * abs(expected).max())
        predicted = model.classes_[(found > 0).astype(int)]
        np.testing.assert_array_equal(model.predict(table), predicted)
        np.testing.assert_allclose(model.predict_proba(table)[:, 1], 1 / (1 + np.exp(-found)))


def test_loaded_model_refuses_tables_that_its_schema_cannot_encode(raw_model):
    path, rows, X, _ = raw_model
    model = load_release(path)
    with pytest.raises(ValueError, match=r"got \['pay'\], which table lacks"):
        model.predict(rows.drop(columns="pay"))
    with pytest.raises(ValueError, match=r"in columns \['age'\]"):
        model.predict(rows.assign(age="young"))
    with pytest.raises(ValueError, match="DataFrame"):
        model.predict(rows.to_numpy(object))
    if list(X) == ["pay", "age"]:  # raw records between -1 and 1 could be encoded ones
        with pytest.raises(ValueError, match="either raw or encoded"):
            model.predict(pd.DataFrame({"pay": [0.5], "age": [0.1]}))


def test_copies_keep_the_schema_until_another_fit(raw_model, tmp_path):
    path, rows, *_ = raw_model
    model = load_release(path)
    model.save_release(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    np.testing.assert_array_equal(model.release().predict(rows), model.predict(rows))
    copies = model.release(), pickle.loads(pickle.dumps(model))
    assert all(copy.schema_ == model.schema_ is not None for copy in copies)
    model.set_params(max_steps=1).fit(rows[["pay"]] / 1e6, rows["paid"])  # on other features
    assert model.schema_ is None
    with pytest.raises(ValueError, match="feature"):
        model.predict(rows)


def test_load_release_makes_no_more_features_than_the_model_takes(table, path, fitted):
    names = list(table[0].columns.drop("group"))
    facts = {"classes": ["0", "1"], "bounds": dict.fromkeys(names, (-1, 1)), "log_columns": []}
    schema = TableSchema(target="y", **facts, n_intervals=0)
    fitted((table[0][names], table[1]), group_col=None).save_release(path, schema=schema)
    facts, weights = _file.opened(path)[:2]
    assert load_release(path).schema_ == schema
    facts["schema"] = facts["schema"].replace("n_intervals = 0", "n_intervals = 1000")
    _file.write(path, facts, weights)
    with pytest.raises(ValueError, match=r"n_intervals=1000 .* than 6 features"):
        load_release(path)


def test_load_release_needs_the_class_of_a_custom_module(table, path, fitted, check_same, wide):
    model = fitted(table, module=Factory(wide, n_features=6, width=np.int64(5)))
    model.save_release(path)
    loaded = load_release(path, module=wide)
    for other in (loaded, model.release(), pickle.loads(pickle.dumps(loaded))):
        check_same(other, model, table[0])
        assert other.module.make is wide and other.module.params == {"n_features": 6, "width": 5}
    content = path.read_bytes()
    loaded.save_release(path)
    assert path.read_bytes() == content
    assert b"conftest" not in content  # where the class lives
    for module, error, named in (
        (None, ValueError, r"load_release\(path, module=Wide\)"),
        (nn.Identity, ValueError, "module=<class .*Identity"),
        (wide(6), TypeError, r"^module must .* Wide\(\)"),
    ):
        with pytest.raises(error, match=named):
            load_release(path, module=module)
    fitted(table).save_release(path)
    with pytest.raises(ValueError, match=r"^module must be None .*'logistic'"):
        load_release(path, module=wide)
    fitted(table, module=Factory(wide, n_features=6, make=nn.Tanh)).save_release(path)
    with pytest.raises(ValueError, match=r"\['make'\] bound by functools.partial"):
        load_release(path)


def test_privacy_statement_is_json_of_numpys_numbers(table, fitted):
    shares = np.array([0.8, 0.2], dtype=np.float32)
    method = get_method("dp_is_sgd", max_grad_norm=np.float32(1), group_probabilities=shares)
    numbers = {"delta": np.float64(1e-5), "noise_multiplier": np.float32(2)}
    X = table[0].assign(group=table[0]["group"] == "b")
    model = fitted((X, table[1]), method, **numbers, max_steps=np.int8(2))
    statement = model.privacy_statement()
    assert json.loads(json.dumps(statement, allow_nan=False)) == statement
    assert model.release().privacy_ == model.privacy_
    assert set(statement["group_epsilons"]) == {"False", "True"}


ROWS = np.linspace(-1, 1, 1200).reshape(400, 3), np.arange(400) % 2


def test_load_release_takes_rates_of_intersections(path):
    columns = np.stack([np.where(np.arange(400) % n, "x", "y") for n in (8, 3)], axis=1)
    clf = DPFairClassifier("dp_is_sgd", epsilon=2.0, batch_size=50, max_steps=4)
    clf.fit(*ROWS, sensitive_features=columns).save_release(path)
    assert len(load_release(path).privacy_.group_epsilons) == 4


def test_load_release_takes_fits_to_different_numbers_of_records(path):
    model = DPFairClassifier(epsilon=1.0, max_steps=3, warm_start=True)
    for n in (400, 300, 200):
        model.fit(*(part[:n] for part in ROWS))
    model.save_release(path)
    assert load_release(path).privacy_ == model.privacy_
    assert read_statement(path)["epsilon"] == model.privacy_.epsilon
