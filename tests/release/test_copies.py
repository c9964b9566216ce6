"""What leaves the house predicts the same, and holds weights and public facts only."""

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skdpfair import MLP, DPFairClassifier, Factory, get_method, load_release
from skdpfair.analysis import GroupRecorder
from skdpfair.augmentations import PGD, FlipAndShift, Views
from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.methods import METHODS

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)
not_private = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.PrivacyLeakWarning")


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


@not_private
@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method(name, table, fitted, check_copies):
    noise = 1.0 if METHODS[name].takes_noise else None
    model = fitted(table, name, noise_multiplier=noise)
    loaded = check_copies(model, table[0])
    assert repr(loaded.method_) == repr(model.method_)
    assert loaded.lr_ == model.lr_ and loaded.n_steps_ == model.n_steps_ == 3


LABELS = {
    "text": np.array(["no\n", 'y"é\u2028s']),
    "objects": np.array(["a", "b", "c\0"], dtype=object),
    "int": np.array([-3, 7]),
    "bool": np.array([True, False]),
    "float": np.array([0.0, 2.0], dtype=np.float32),
}


def labelled(kind, n):
    return LABELS[kind][np.arange(n) % len(LABELS[kind])]


@pytest.mark.parametrize("kind", LABELS)
def test_classes_of_any_kind(kind, table, fitted, check_copies):
    model = fitted((table[0], labelled(kind, len(table[0]))))
    loaded = check_copies(model, table[0])
    assert [type(v) for v in loaded.classes_] == [type(v) for v in model.classes_]


@pytest.mark.parametrize(
    "levels",
    [["a\n", "b\"'</é\0"], [1, "1"], [True, False], [2.0, None], [float("nan"), -1]],
    ids=repr,
)
def test_groups_of_any_kind(levels, table, fitted, check_copies):
    column = np.empty(len(table[0]), dtype=object)
    column[:] = [levels[i % 2] for i in range(len(column))]
    X = table[0].assign(group=pd.Series(column, dtype=object))
    model = fitted((X, table[1]), "dp_is_sgd", group_col__levels=levels)
    check_copies(model, X)


def test_intersections_with_intervals(table, fitted, check_same, check_copies):
    X = table[0].assign(band=pd.cut(table[0]["x0"], [-np.inf, 0, np.inf]))
    model = fitted((X, table[1]), "dpsgd_f", group_col=["group", "band", "target"])
    loaded = check_copies(model, X)
    assert list(loaded.levels_) == list(model.levels_) and len(loaded.levels_) == 8
    check_same(loaded, model, X.drop(columns=["group", "band"]))


def test_feature_names_of_any_kind(table, fitted, check_copies):
    names = ["a\n", "b\"'\\", "ü\U0001f600", "</script>", "\0", " "]
    X = table[0].rename(columns=dict(zip(table[0].columns, names, strict=False)))
    loaded = check_copies(fitted((X, table[1])), X)
    assert list(loaded.feature_names_in_) == list(X.columns)


@pytest.mark.parametrize(
    ("module", "shape"), [("cnn", (1, 8, 8)), ("mlp", (9, 7)), ("logistic", (9, 7))]
)
def test_images(module, shape, fitted, check_copies):
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
def test_parameters_survive(params, table, fitted, check_copies):
    model = fitted(table, **params)
    loaded = check_copies(model, table[0])
    assert str(loaded.get_params()) == str(model.get_params())
    again = clone(loaded).fit(*table)  # the parameters serve for another fit
    assert again.n_steps_ == model.n_steps_


SENTINEL, SEED = np.float32(0.7390851332), 1_928_374_655


def test_nothing_but_weights_and_public_facts(table, path, fitted):
    X, y = table
    X = X.astype({c: np.float32 for c in X if c != "group"})
    X.iloc[5, : X.columns.get_loc("group")] = SENTINEL
    public = X.drop(columns="group").to_numpy(np.float32)[:9], y[:9]
    secrets = {"keep_reference": True, "random_state": SEED, "validation_data": public}
    model = fitted((X, y), "global_adapt", **secrets)
    model.save_release(path)
    released = model.release()
    for content in (path.read_bytes(), pickle.dumps(released)):
        for dtype in (np.float16, np.float32, np.float64):
            assert np.full(2, SENTINEL).astype(dtype).tobytes() not in content
        text = content.decode("latin1")
        assert str(SEED) not in text and SEED.to_bytes(4, "little") not in content
        assert repr(float(SENTINEL))[:8] not in text
    for other in (released, load_release(path)):
        assert not {"reference_", "diagnostics_"} & set(vars(other))
        assert other.keep_reference is False and other.privacy_.seeded
        assert not hasattr(other.net_, "optimizer_") and not hasattr(other.net_, "history")
        assert not any(v is w for v in vars(other).values() for w in (X, y, public))
    weights = dict(model.net_.module_.named_parameters())
    for name, weight in released.net_.module_.named_parameters():
        assert weight.data_ptr() != weights[name].data_ptr() and weight.grad is None
    assert model.random_state == SEED and hasattr(model, "reference_")  # left as it was


def test_diagnostics_are_refused_until_they_are_dropped(table, path, fitted):
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


def test_what_is_not_private_says_so(table, path, fitted):
    model = fitted(table, noise_multiplier=None)
    for leave in (model.release, lambda: model.save_release(path)):
        with pytest.warns(PrivacyLeakWarning, match="NOT differentially private"):
            leave()
    loaded = load_release(path)
    assert loaded.privacy_.epsilon == float("inf") and not loaded.privacy_.is_private
    statement = json.loads(json.dumps(loaded.privacy_statement(), allow_nan=False))
    assert statement["epsilon"] == "inf" and "NOT" in statement["statement"]


def test_code_among_the_parameters_is_left_out_aloud(table, path, fitted):
    model = fitted(table, attack=lambda module, x, y: x)
    with pytest.warns(UserWarning, match=r"leaves out the parameters \['attack'\]"):
        model.save_release(path)
    assert load_release(path).attack is None


def test_only_a_fitted_classifier_is_released(path):
    for leave in ("release", "save_release"):
        with pytest.raises(NotFittedError):
            getattr(DPFairClassifier(), leave)(*([path] if leave != "release" else []))


def test_a_loaded_release_goes_on_with_its_ledger(table, path, fitted):
    fitted(table, "dp_is_sgd", warm_start=True).save_release(path)
    first = load_release(path)
    second = load_release(path).fit(*table)
    assert second.privacy_.steps == 2 * first.privacy_.steps
    assert second.privacy_.epsilon > first.privacy_.epsilon
    assert second.privacy_.group_epsilons["b"] > first.privacy_.group_epsilons["b"]


def test_a_statement_is_json_whatever_the_numbers_were(table, fitted):
    shares = np.array([0.8, 0.2], dtype=np.float32)
    method = get_method("dp_is_sgd", max_grad_norm=np.float32(1), group_probabilities=shares)
    X = table[0].assign(group=table[0]["group"] == "b")
    numbers = {
        "delta": np.float64(1e-5),
        "noise_multiplier": np.float32(2),
        "max_steps": np.int8(2),
    }
    model = fitted((X, table[1]), method, **numbers)
    statement = model.privacy_statement()
    assert json.loads(json.dumps(statement, allow_nan=False)) == statement
    assert model.release().privacy_ == model.privacy_
    assert set(statement["group_epsilons"]) == {"False", "True"}


@pytest.mark.parametrize("custom", [False, True])
@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: make_pipeline(StandardScaler(), m)])
def test_skops_trusts_one_type(wrap, custom, table):
    skops = pytest.importorskip("skops.io")
    X, y = table[0].drop(columns="group"), table[1]
    method = get_method("dpsgd", max_grad_norm=1.0)
    params = {"attack": PGD(0.1, input_range=None), "noise_multiplier": 1.0, "max_steps": 2}
    if custom:
        params |= {"module": Factory(nn.Linear, in_features=6, out_features=2)}
    model = wrap(DPFairClassifier(method, epsilon=None, **params)).fit(X, y)
    content = skops.dumps(model)
    types = skops.get_untrusted_types(data=content)
    own = ["skdpfair._networks.Factory", "torch.nn.modules.linear.Linear"] if custom else []
    assert sorted(types) == sorted(["skdpfair.estimators.classifier.DPFairClassifier", *own])
    if not custom:  # skops finds classes by import, which tests are not for
        again = skops.loads(content, trusted=types)
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_method_from_elsewhere_is_imported_by_a_pickle_and_not_by_a_file(table, path, fitted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, Mine.name, Mine)
        model = fitted(table, "mine")
        content = pickle.dumps(model)
        model.save_release(path)
        assert type(load_release(path).method_) is Mine
    assert type(pickle.loads(content).method_) is Mine
    with pytest.raises(ValueError, match="import the module that defines it"):
        load_release(path)


class Mine(type(get_method("dpsgd")), name="mine", reference="mine2020"):
    """A method of a third party."""


del METHODS["mine"]  # the contracts are for the library's own
