"""The facts of a release hold nothing of the records, and contradictions among them are refused."""

import math
import pickle
import tracemalloc
from copy import deepcopy
from functools import reduce
from operator import getitem

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skdpfair import DPFairClassifier, Factory, get_method, load_release
from skdpfair.augmentations import PGD
from skdpfair.methods import METHODS
from skdpfair.release import _file
from skdpfair.release._file import encode

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)


SENTINEL, SEED = np.float32(0.7390851332), 1_928_374_655


def test_releases_hold_nothing_but_weights_and_public_facts(table, path, fitted):
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
    assert model.random_state == SEED and hasattr(model, "reference_")


@pytest.mark.parametrize("custom", [False, True])
@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: make_pipeline(StandardScaler(), m)])
def test_skops_needs_trust_in_one_type(wrap, custom, table):
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


def test_third_party_method_is_imported_by_a_pickle_and_not_by_a_file(table, path, fitted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, Mine.name, Mine)
        model = fitted(table, "mine")
        content = pickle.dumps(model)
        model.save_release(path)
        assert type(load_release(path).method_) is Mine
    assert type(pickle.loads(content).method_) is Mine
    with pytest.raises(ValueError, match="'mine' is not registered"):
        load_release(path)


class Mine(type(get_method("dpsgd")), name="mine", reference="mine2020"):
    """A method of a third party."""


del METHODS["mine"]  # the contracts are for the library's own


FITTED = {
    "logit_scale_": [math.nan, math.inf, -1.0, 0],
    "classes_": [np.array([0, 0]), np.array([0, 1, 2]), np.array([[0, 1]]), None],
    "n_features_in_": [4, 10**18],
    "levels_": [np.array(["a", "b", "c"]), None],
    "method_": [None],
    "features_": [3],
    "lr_": [math.nan, -1.0],
    "_group_positions": [[10**18]],
    "_n_fits": [2],
    "n_steps_": [10**6],
    "_cut": [math.nan],
    "_schema": ["target = 'y'"],
}


@pytest.mark.parametrize("name", FITTED)
def test_check_loaded_refuses_fitted_attributes_that_contradict_others(name, changed):
    for value in FITTED[name]:

        def change(facts, weights, value=value):
            facts["fitted"][name] = encode(value)

        with pytest.raises(ValueError, match=r"model\.safetensors cannot be loaded"):
            load_release(changed("groups", change))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda facts, weights: facts["fitted"].pop("n_features_in_"), "lack.*n_features_in_"),
        (lambda facts, weights: next(iter(weights.values())).fill(np.nan), "weights .*not finite"),
    ],
)
def test_check_loaded_refuses_missing_attributes_and_weights_that_are_not_finite(
    change, named, changed
):
    with pytest.raises(ValueError, match=rf"model\.safetensors .*{named}"):
        load_release(changed("groups", change))


def leaves(value, path=()):
    """Yield the paths of numbers, of None, and of types and shapes of arrays."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        is_text = isinstance(value, str) and not value.startswith(("<", "|"))
        if not is_text and not isinstance(value, bool):
            yield path
        return
    for key, part in items:
        yield from leaves(part, (*path, key))


@pytest.mark.parametrize("name", ["groups", "persons", "regressor"])
def test_load_release_takes_memory_by_values_and_not_by_declared_numbers(name, fits, path):
    _, facts, weights = fits[name]
    n_loaded = 0
    tracemalloc.start()
    try:
        for place in [p for p in leaves(facts) if p[0] != "privacy_statement"]:
            forged = deepcopy(facts)
            *outer, last = place
            part = reduce(getitem, outer, forged)
            part[last] = "<U100000000" if isinstance(part[last], str) else 10**15
            _file.write(path, forged, weights)
            try:
                load_release(path)
                n_loaded += 1
            except ValueError as error:
                assert str(path) in str(error)
        assert tracemalloc.get_traced_memory()[1] < 5e7 and n_loaded
    finally:
        tracemalloc.stop()


FORGED = [
    {"module.params": {"hidden_layer_sizes": [10**5]}},
    {"module": 3},
    {"module": {"name": "os.system"}},
    {"parameters": {"optimizer": {"optimizer": "lr_scheduler"}}},
    {"parameters": {"extra": 1}},
    {"parameters": None},
    {"fitted": {"classes_": {"array": ["V8", [1], [1]]}}},
    {"fitted": {"method_": {"method": ["eval", {"dict": []}]}}},
    {"fitted": {"privacy_": {"pickle": "gASVAA=="}}},
]


@pytest.mark.parametrize("forged", FORGED)
def test_load_release_refuses_forged_facts_without_running_code(forged, changed):
    def change(facts, weights):
        for name, value in forged.items():
            *outer, last = name.split(".")
            part = reduce(getitem, outer, facts)
            part[last] = part[last] | value if isinstance(value, dict) else value

    with pytest.raises(ValueError, match=r"model\.safetensors"):
        load_release(changed("groups", change))


@pytest.mark.parametrize("change", [{"width": 10**10}, {"depth": 10**9}], ids=["width", "depth"])
def test_custom_module_takes_no_more_memory_than_its_weights(change, table, fitted, path, wide):
    fitted(table, module=Factory(wide, n_features=6, width=5)).save_release(path)
    facts, weights = _file.opened(path)[:2]
    assert load_release(path, module=wide).n_features_in_ == 7
    facts["module"]["params"] |= change
    _file.write(path, facts, weights)
    with pytest.raises(ValueError, match="larger than its weights"):
        load_release(path, module=wide)
