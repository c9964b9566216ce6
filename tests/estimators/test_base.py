"""The fit of the estimators on real and on awkward input, and what it leaves behind."""

import math
import pickle
import random

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.pipeline import make_pipeline
from skorch.callbacks import Callback
from torch import nn

from skdpfair import MLP, DPFairClassifier, Factory, Groups, get_method
from skdpfair.preprocessing import BoundedScaler
from skdpfair.training import train as training
from tests.quick_fits import GROUP, QUIET, TABLE, X, Y, quick, weights

pytestmark = QUIET


def test_fit_takes_groups_from_a_column_an_index_or_an_argument():
    exact = {"epsilon": None, "noise_multiplier": 0.0, "batch_size": len(Y)}
    by_column = quick("dpsgd_f", group_col="group", **exact).fit(TABLE, Y)
    assert list(by_column.levels_) == ["a", "b"] and by_column.n_features_in_ == 7
    assert list(by_column.feature_names_in_) == list(TABLE.columns)
    np.testing.assert_array_equal(by_column.predict_proba(TABLE), by_column.predict_proba(X))
    assert by_column.net_.module_.in_features == 6
    array = np.column_stack([X.to_numpy(), GROUP == "b"])
    by_index = quick("dpsgd_f", group_col=6, **exact).fit(array, Y)
    by_argument = quick("dpsgd_f", **exact).fit(X.to_numpy(), Y, sensitive_features=GROUP)
    for model in (by_index, by_argument):
        np.testing.assert_allclose(weights(model), weights(by_column), atol=1e-6)
    np.testing.assert_array_equal(by_index.predict(array), by_column.predict(TABLE))
    np.testing.assert_array_equal(by_index.predict(array[:, :-1]), by_column.predict(TABLE))


def test_fit_takes_intersections_and_the_target_as_groups():
    table = TABLE.assign(region=np.where(np.arange(len(Y)) % 3 == 0, "north", "south"))
    both = quick("dpsgd_f", group_col=["group", "region"]).fit(table, Y)
    assert ("a", "north") in list(both.levels_) and len(both.levels_) == 4
    crossed = quick("dpsgd_f", group_col=["group", "target"]).fit(TABLE, Y)
    assert len(crossed.levels_) == 2 * len(np.unique(Y))
    labels = quick("naive", group_col="target").fit(X, Y)
    np.testing.assert_array_equal(labels.levels_.astype(Y.dtype), labels.classes_)


class Wide(nn.Module):
    def __init__(self, n_features, width=8):
        super().__init__()
        self.inner, self.drop = nn.Linear(n_features, width), nn.Dropout(0.2)
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        return self.out(self.drop(torch.relu(self.inner(x))))


@pytest.mark.parametrize(
    "params",
    [
        {"module": Factory(Wide, n_features=6)},
        {"module": lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 2))},
        {"optimizer": "adam"},
        {"optimizer": torch.optim.Adam, "lr": 0.01, "optimizer__betas": (0.8, 0.9)},
        {"noise_sampler": "gaussian_sum"},
        {"accountant": "prv"},
    ],
)
def test_fit_with_a_seed_repeats_itself(params):
    model, again = quick(**params).fit(X, Y), quick(**params).fit(X, Y)
    np.testing.assert_array_equal(weights(model), weights(again))
    assert np.isfinite(weights(model)).all() and 0 < model.privacy_.epsilon <= 5.0


@pytest.mark.parametrize("random_state", [0, None])
@pytest.mark.parametrize("module", ["mlp", Factory(Wide, n_features=6)], ids=["mlp", "Wide"])
def test_fit_leaves_generators_input_and_threads_alone(random_state, module):
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    table, threads = TABLE.copy(), torch.get_num_threads()
    model = quick(module=module, random_state=random_state, group_col="group")
    pickle.loads(pickle.dumps(model.fit(table, Y)))
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])
    assert (before[2], threads) == (random.getstate(), torch.get_num_threads())
    pd.testing.assert_frame_equal(table, TABLE)


def test_reference_is_not_private_and_absent_in_copies():
    alone = quick(epsilon=None).fit(X, Y)
    assert (alone.method_.name, alone.privacy_.epsilon) == ("sgd", math.inf)
    assert not alone.privacy_.is_private and alone.privacy_.releases == ()
    with pytest.raises(AttributeError, match="keep_reference=True"):
        _ = alone.reference_
    assert not hasattr(alone, "reference_") and not hasattr(alone, "nothing_of_this_name")
    model = quick(keep_reference=True).fit(X, Y)
    assert model.reference_.method_.name == "sgd"
    assert model.reference_.n_steps_ == model.n_steps_  # a number that was given
    assert not model.privacy_.releasable
    for copy in (pickle.loads(pickle.dumps(model)), model.release()):
        assert copy.privacy_.releasable and not hasattr(copy, "reference_")
        assert any("reference model" in line for line in copy.privacy_.not_accounted)


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.PrivacyLeakWarning")
def test_reference_trains_as_it_would_by_itself_on_the_same_network():
    """A budget decides how long it pays to train, and whether a hidden layer does."""
    data = [np.repeat(part, 3, axis=0) for part in (X.to_numpy(), Y)]
    model = DPFairClassifier(epsilon=0.5, random_state=0, keep_reference=True).fit(*data)
    alone = DPFairClassifier(module="logistic", epsilon=None, random_state=0).fit(*data)
    assert isinstance(model.reference_.net_.module_, type(model.net_.module_))
    assert len(weights(model)) == len(weights(alone))
    assert model.reference_.n_steps_ == alone.n_steps_ > model.n_steps_
    np.testing.assert_array_equal(weights(model.reference_), weights(alone))


@pytest.mark.parametrize("state", [None, 0, np.random.RandomState(0)])
def test_reference_starts_from_the_weights_of_the_model_and_shares_no_noise(monkeypatch, state):
    made, train = [], training.train

    def recorded(run, *args):
        made.append(run.streams)
        return train(run, *args)

    monkeypatch.setattr("skdpfair.estimators.base.train", recorded)
    still = {"lr": 1e-12, "max_steps": 1, "module": MLP((8,)), "random_state": state}
    for _ in range(2):
        model = quick(keep_reference=True, **still).fit(X, Y)
        np.testing.assert_allclose(weights(model), weights(model.reference_), atol=1e-8)
    one, reference, other, other_reference = made
    assert one.init_entropy == reference.init_entropy
    if state is None:
        assert len({streams.entropy for streams in made}) == 4
        assert one.init_entropy not in (one.entropy, other.init_entropy)
        assert other.init_entropy == other_reference.init_entropy


SENTINEL = np.float32(0.7390851332)


def test_pickle_holds_weights_and_public_facts_only():
    class Stop(Callback):
        def on_epoch_end(self, net, **kwargs):
            if len(net.history) == 2:
                raise KeyboardInterrupt

    table = X.astype(np.float32)
    table.iloc[5] = SENTINEL
    model = quick("global_adapt", callbacks=[Stop()], keep_reference=True).fit(table, Y)
    content = pickle.dumps(model)
    for dtype in (np.float16, np.float32, np.float64):
        assert np.full(2, SENTINEL).astype(dtype).tobytes() not in content
    for word in (b"torch.optim", b"skorch", b"history", b"Stop", b"Batches", b"Dataset"):
        assert word not in content
    again = pickle.loads(content)
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    np.testing.assert_allclose(again.predict_proba(table), model.predict_proba(table), atol=1e-12)
    assert again.random_state is None and again.privacy_.seeded
    assert again.privacy_.epsilon == model.privacy_.epsilon
    assert not hasattr(again.net_, "optimizer_") and not hasattr(again.net_, "history")


PUBLIC = {"classes_", "levels_", "n_features_in_", "feature_names_in_", "batch_size_", "n_steps_"}
PUBLIC |= {"features_", "n_iter_", "signal_to_noise_", "logit_scale_"}
RELEASED = {"method_", "privacy_", "lr_", "net_"}
PLAIN = {"_has_scale", "_n_fits", "_group_positions", "_scale", "_day", "_ledger_fits"}
PLAIN |= {"_variables"}


def test_fit_sets_the_attributes_that_are_documented():
    model = quick("dpsgd_f").fit(X, Y, sensitive_features=GROUP)
    assert set(vars(model)) - set(model.get_params(deep=False)) == PUBLIC | RELEASED | PLAIN


def test_box_in_a_notebook_holds_the_privacy_report_once_also_in_a_pipeline():
    pipeline = make_pipeline(BoundedScaler((-9, 9)), quick()).fit(X, Y)
    fitted = pipeline[-1]
    boxes = (fitted._repr_html_(), fitted._repr_mimebundle_()["text/html"], pipeline._repr_html_())
    for box in boxes:
        assert box.count(fitted.privacy_.as_fold()) == 1 and "DPFairClassifier" in box
    assert "skdpfair-card" not in quick()._repr_html_()


class Grumpy(str):
    def __eq__(self, other):
        raise RuntimeError("compared")

    __hash__ = str.__hash__


def hooked():
    module = nn.Linear(6, 2)
    module.weight.register_hook(lambda gradient: 0 * gradient)
    return module


def masked(values):
    return np.ma.array(values, mask=np.arange(len(values)) == 3)


def with_cell(x, column, value):
    x = x.rename(columns="col {}".format)
    x.iloc[3, column] = value
    return x


def thin(x, columns):
    return x.astype(dict.fromkeys(columns, pd.SparseDtype(float)))


AB = {"group_col": Groups("group", ["a", "b"])}
# parameters of a model, the arguments of fit from the features, labels and groups (or those of a
# table with its group column), and what the message names
REFUSED = [
    ({"method": get_method("dpsgd_f", count_noise_multiplier=0.5)}, None, r"multiplier=0\.5"),
    ({"group_col": "sex"}, None, "passthrough"),
    ({"group_col": 99}, None, "out of range"),
    ({"group_col": ["group", "group"]}, None, "twice"),
    ({"group_col": Groups("group", as_feature=True)}, None, "group"),
    ({"module": lambda: nn.Linear(6, 3)}, None, r"\(batch, 2\)"),
    ({"module": lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 2))}, None, "GroupNorm"),
    ({"module": lambda: nn.Linear(99, 2)}, None, r"\(4, 6\)"),
    ({"module": lambda: nn.LazyLinear(2)}, None, "lazy layers"),
    ({"module": hooked}, None, "hook"),
    ({}, lambda x, y, g: (x.assign(job="zq"), y), r"job.*OneHotEncoder"),
    ({}, lambda x, y, g: (with_cell(x, 1, np.nan), y), "NaN.*col x1.*public_preprocessor"),
    ({}, lambda x, y, g: (with_cell(x, 2, np.inf).to_numpy(), y), "infinite .* column 2"),
    ({}, lambda x, y, g: (torch.tensor(with_cell(x, 1, np.nan).to_numpy()), y), "column 1"),
    ({}, lambda x, y, g: (thin(x, x.columns), y), "x0.*to_dense"),
    ({}, lambda x, y, g: (thin(x, ["x0"]), y), "x0.*to_dense"),
    ({}, lambda x, y, g: (sparse.csr_array(with_cell(x, 2, np.inf)), y), "column 2"),
    ({"group_col": 0}, lambda x, y, g: (sparse.csr_array(x), y), "X is sparse"),
    ({"group_col": "target"}, lambda x, y, g: (x.assign(target=0), y), "target"),
    ({"group_col": "group"}, lambda x, y, g: (x.to_numpy(), y), "set_output"),
    ({"group_col": "group"}, lambda x, y, g: (x.assign(group=g), y, g), "not by both"),
    (AB, lambda x, y, g: (x.assign(group=g.replace("a", "zq")), y), "outside levels="),
    (AB, lambda x, y, g: (x.assign(group=g.replace("a", None)), y), "add None to levels"),
    ({}, lambda x, y, g: (x, y, "group"), "str.*group_col="),
    ({"classes": [5, 6]}, lambda x, y, g: (x, y), "outside classes"),
    ({}, lambda x, y, g: (x, masked(y)), "^y has masked"),
    ({}, lambda x, y, g: (x, y, masked(g == "a")), "^sensitive_features has masked"),
    ({}, lambda x, y, g: (x, Grumpy("no")), "y should be a 1d array"),
]


@pytest.mark.parametrize("params, change, match", REFUSED)
def test_fit_refuses_by_name_shows_no_cell_and_sets_no_attribute(params, change, match):
    model = quick(**({} if change else {"group_col": "group"}) | params)
    x, y, groups = (*(change(X, Y, GROUP) if change else (TABLE, Y)), None)[:3]
    with pytest.raises((ValueError, TypeError), match=match) as caught:
        model.fit(x, y, sensitive_features=groups)
    assert "zq" not in str(caught.value)  # a cell of the data
    assert not [name for name in vars(model) if name.endswith("_")]


def test_predict_takes_sparse_rows_with_the_features_of_the_fit():
    rows = sparse.csr_array(X.to_numpy())
    model = quick("naive", group_col="target", validation_data=(rows[:50], Y[:50])).fit(rows, Y)
    assert model.predict(rows).shape == Y.shape
    with pytest.raises(ValueError, match=r"X has 5 features, .* 6"):
        model.predict(rows[:, :5])
