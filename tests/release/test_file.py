"""The file of a release: readable by anyone, whole or refused, and never code."""

import json
import os
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.pipeline import make_pipeline
from torch import nn

from skdpfair import DPFairClassifier, Factory, get_method, load_release
from skdpfair._utils.files import check_writable, replace_file
from skdpfair.preprocessing import TableSchema
from skdpfair.release import _file
from skdpfair.release._facts import facts_of
from skdpfair.release._file import NotPlain, decode, encode

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)


def test_the_file_is_safetensors_that_anyone_can_read(table, path, fitted):
    safetensors = pytest.importorskip("safetensors")
    model = fitted(table, "dpsgd_f")
    model.save_release(path)
    with safetensors.safe_open(path, "np") as file:
        facts = json.loads(file.metadata()["skdpfair"])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert facts["privacy_statement"] == model.privacy_statement()
    assert facts["format_version"] == 1 and facts["skdpfair_version"]
    for name, weight in model.net_.module_.state_dict().items():
        np.testing.assert_array_equal(weights[name], weight.numpy())


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
def test_the_schema_of_a_file_makes_the_features_of_the_fit(loans, path, n_intervals):
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


def test_a_schema_of_other_features_is_refused(loans, path):
    X, y, _ = replace(LOANS, n_intervals=3).split(loans)
    clf = DPFairClassifier("dpsgd", epsilon=1.0, max_steps=3).fit(X, y)
    for other in ({"n_intervals": 4}, {"log_columns": []}, {"bounds": {"age": (18, 98)}}):
        with pytest.raises(ValueError, match="schema gives the features"):
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
@pytest.mark.parametrize("given", RAW.values(), ids=RAW)
def test_a_loaded_model_encodes_tables_by_its_schema(raw_model, given):
    path, rows, X, expected = raw_model
    for model in (load_release(path), pickle.loads(pickle.dumps(load_release(path)))):
        table = given(rows, X)
        np.testing.assert_array_equal(model.decision_function(table), expected)
        predicted = model.classes_[(expected > 0).astype(int)]
        np.testing.assert_array_equal(model.predict(table), predicted)
        np.testing.assert_allclose(model.predict_proba(table)[:, 1], 1 / (1 + np.exp(-expected)))


def test_a_table_that_a_schema_cannot_encode_is_refused(raw_model):
    path, rows, X, _ = raw_model
    model = load_release(path)
    with pytest.raises(ValueError, match=r"got \['pay'\], which table lacks"):
        model.predict(rows.drop(columns="pay"))
    with pytest.raises(ValueError, match=r"in columns \['age'\]"):
        model.predict(rows.assign(age="young"))
    with pytest.raises(ValueError, match="Give raw records as a DataFrame"):
        model.predict(rows.to_numpy(object))
    if list(X) == ["pay", "age"]:  # raw records between -1 and 1 could be encoded ones
        with pytest.raises(ValueError, match="that raw and encoded records may have"):
            model.predict(pd.DataFrame({"pay": [0.5], "age": [0.1]}))


def test_a_model_keeps_its_schema_from_file_to_file(raw_model, tmp_path):
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


class Wide(nn.Module):
    def __init__(self, n_features, width=8, make=nn.ReLU):
        super().__init__()
        self.inner, self.act, self.drop = nn.Linear(n_features, width), make(), nn.Dropout(0.2)
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, 2)

    def forward(self, x):
        return self.logits(self.norm(self.drop(self.act(self.inner(x)))))


CUSTOM = Factory(Wide, n_features=6, width=np.int64(5))


def test_a_module_of_ones_own(table, path, fitted, check_same):
    model = fitted(table, module=CUSTOM)
    model.save_release(path)
    loaded = load_release(path, module=Wide)
    for other in (loaded, model.release(), pickle.loads(pickle.dumps(loaded))):
        check_same(other, model, table[0])
        assert other.module.make is Wide and other.module.params == {"n_features": 6, "width": 5}
    content = path.read_bytes()
    loaded.save_release(path)
    assert path.read_bytes() == content
    assert b"test_file" not in content  # where the class lives
    with pytest.raises(ValueError, match=r"load_release\(path, module=Wide\)"):
        load_release(path)
    with pytest.raises(ValueError, match=r"is module=.* the network that was saved"):
        load_release(path, module=nn.Identity)
    with pytest.raises(TypeError, match="class or a factory"):
        load_release(path, module=Wide(6))
    fitted(table).save_release(path)
    with pytest.raises(ValueError, match="built-in module 'logistic'"):
        load_release(path, module=Wide)


def test_arguments_that_no_file_holds_are_named(table, path, fitted):
    fitted(table, module=Factory(Wide, n_features=6, make=nn.Tanh)).save_release(path)
    with pytest.raises(ValueError, match=r"with \['make'\] bound by functools.partial"):
        load_release(path)


def changed(path, **facts):
    """Write the release at ``path`` again with other facts, and with a digest that fits them."""
    old, weights = _file.read(path)
    _file.write(path, old | facts, weights)


def test_a_newer_format_is_refused(table, path, monkeypatch, fitted):
    model = fitted(table)
    with monkeypatch.context() as patch:
        patch.setattr(_file, "FORMAT_VERSION", 7)
        model.save_release(path)
    with pytest.raises(ValueError, match=r"format version 7.* up to 1"):
        load_release(path)


def test_damage_is_noticed_at_every_byte(table, path, fitted):
    fitted(table).save_release(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in range(0, len(content), 41):
        spoilt = bytearray(content)
        spoilt[position] ^= 1 << rng.integers(8)
        path.write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            load_release(path)
    for length in (0, 5, 8, 200, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="truncated or damaged"):
            load_release(path)


def test_other_files_are_refused(path):
    numpy_format = pytest.importorskip("safetensors.numpy")
    path.write_bytes(numpy_format.save({"w": np.ones(2)}))
    with pytest.raises(ValueError, match="not a release of skdpfair"):
        load_release(path)
    path.write_bytes(pickle.dumps({"w": 1}))
    with pytest.raises(ValueError, match="not a safetensors file"):
        load_release(path)
    with pytest.raises(FileNotFoundError):
        load_release(path.with_name("none"))


def test_forged_facts_run_no_code_and_take_no_memory(table, path, fitted):
    fitted(table, module="mlp").save_release(path)
    content, (facts, _) = path.read_bytes(), _file.read(path)
    huge = facts["module"] | {"params": facts["module"]["params"] | {"hidden_layer_sizes": [10**5]}}
    fields = facts["fitted"]
    forged = [
        {"module": huge},
        {"module": 3},
        {"module": {"name": "os.system", "params": {}, "in_shape": [6]}},
        {"parameters": facts["parameters"] | {"optimizer": {"optimizer": "lr_scheduler"}}},
        {"parameters": facts["parameters"] | {"extra": 1}},
        {"parameters": None},
        {"fitted": fields | {"classes_": {"array": ["V8", [1], [1]]}}},
        {"fitted": fields | {"method_": {"method": ["eval", {"dict": []}]}}},
        {"fitted": fields | {"privacy_": {"pickle": "gASVAA=="}}},
    ]
    for facts in forged:
        changed(path, **facts)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            load_release(path)
        path.write_bytes(content)


def test_a_method_that_is_not_imported_is_named(table, path, fitted):
    fitted(table, get_method("dpsgd", max_grad_norm=1.0)).save_release(path)
    facts, _ = _file.read(path)
    text = json.dumps(facts["fitted"]).replace('"dpsgd", {', '"my_method", {')
    changed(path, fitted=json.loads(text))
    with pytest.raises(ValueError, match="import the module that defines it"):
        load_release(path)


def test_a_failed_write_leaves_the_old_file(table, path, monkeypatch, fitted):
    model = fitted(table)
    model.save_release(path)
    before = path.read_bytes()

    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        fitted(table, "naive").save_release(path)
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]


def test_an_error_names_the_file_and_not_the_one_that_is_written_first(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"folder'$"):
        replace_file(tmp_path / "folder", b"")  # no file replaces a folder
    with pytest.raises(OSError, match=r"no folder/file'$"):
        check_writable(tmp_path / "no folder" / "file")


def test_what_is_encoded_comes_back():
    values = [None, True, 3, -0.0, 0.1, float("inf"), "é\ud800\0", b"\1", (1, (2,)), [(), []]]
    values += [{1: "a", ("b", None): (2,)}, pd.Interval(-np.inf, 0), pd.Timestamp("2020-02-03")]
    values += [pd.NA, pd.NaT, torch.device("cpu"), torch.optim.SGD, 2**70]
    for value in values:
        back = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
        assert repr(back) == repr(value) and type(back) is type(value)
    for array in (np.array([["a", "bc"]]), np.arange(3.0, dtype="f4"), np.zeros((0, 2), bool)):
        back = decode(json.loads(json.dumps(encode(array))))
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype
    for code in (print, nn.Linear, nn.Linear(1, 1), np.random.default_rng(), object()):
        with pytest.raises(NotPlain):
            encode(code)


@pytest.mark.parametrize("path", [None, 1, b"x"])
def test_what_names_no_file_is_refused_by_name(path):
    for touch in (load_release, lambda p: replace_file(p, b"")):
        with pytest.raises(TypeError, match=r"^path must name a file"):
            touch(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts, weights: facts["fitted"].pop("n_features_in_"),
        lambda facts, weights: facts["fitted"].update(classes_=encode(np.array(list("abc")))),
        lambda facts, weights: next(iter(weights.values())).fill(np.nan),
    ],
    ids=["no features", "classes", "NaN"],
)
def test_parts_that_contradict_each_other_are_refused(table, path, fitted, change):
    facts, weights = facts_of(fitted(table, "dpsgd_f", random_state=None))
    facts, weights = json.loads(json.dumps(facts)), {k: w.copy() for k, w in weights.items()}
    _file.write(path, facts, weights)
    load_release(path)
    change(facts, weights)
    _file.write(path, facts, weights)
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_release(path)
