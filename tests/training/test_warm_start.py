"""Warm starts: what all fits released together, and data of another form, which are refused."""

import math

import numpy as np
import pytest
from skorch.callbacks import Callback

from skdpfair import MLP, DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.engine import Streams
from skdpfair.privacy import compute_epsilon

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
CHEAP = {"epsilon": None, "noise_multiplier": 3.0, "accountant": "rdp", "max_steps": 3}
DATA = make_two_groups(900, random_state=0)
X, Y = np.asarray(DATA.data), np.asarray(DATA.target)
GROUPS = {"sensitive_features": DATA.sensitive_features}


def warm(method="dpsgd", **params):
    return DPFairClassifier(method, warm_start=True, **params)


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.net_.module_.parameters()])


def n_searches(model):
    return sum("warm-up" in entry.what for entry in model.privacy_.releases)


def test_warm_start_continues_the_weights_and_composes_the_releases():
    model = warm(epsilon=1.0, max_epochs=5).fit(X, Y, **GROUPS)
    first, before = model.privacy_, model.decision_function(X)
    second = model.set_params(max_steps=1, lr=1e-9).fit(X, Y, **GROUPS).privacy_
    np.testing.assert_allclose(model.decision_function(X), before, rtol=1e-4, atol=1e-4)
    assert second.releases[: len(first.releases)] == first.releases
    assert second.steps == first.steps + 1
    assert second.epsilon == pytest.approx(compute_epsilon(second.releases, second.delta))
    assert second.epsilon > first.epsilon


def test_warm_start_spends_epsilon_in_each_fit_and_searches_the_scale_once():
    model = warm("global_adapt", epsilon=1.0)
    spent = [model.fit(X, Y).privacy_.epsilon for _ in range(2)]
    assert spent[0] <= 1.0 < spent[1] < 2.0 and n_searches(model) == 1


def test_warm_start_searches_the_scale_again_for_another_method():
    model = warm("global_adapt", epsilon=1.0, max_steps=40).fit(X, Y)
    before = model.lr_
    model.set_params(method="dpsgd").fit(X, Y)
    assert n_searches(model) == 2 and model.lr_ != before


def test_fit_without_warm_start_composes_nothing():
    model = warm(epsilon=2.0, max_epochs=5).fit(X, Y)
    assert model.set_params(warm_start=False).fit(X, Y).privacy_.epsilon <= 2.0


def test_warm_start_after_a_fit_without_privacy_has_infinite_epsilons():
    model = warm("sgd", epsilon=None, max_steps=5, batch_size=90).fit(X, Y, **GROUPS)
    model.set_params(method="dp_is_sgd", epsilon=1.0)
    report = model.fit(X, Y, **GROUPS).privacy_
    assert set(report.group_epsilons.values()) == {math.inf} == {report.epsilon}
    model = warm(epsilon=None, max_epochs=2).fit(X, Y).set_params(epsilon=1.0).fit(X, Y)
    assert math.isinf(model.privacy_.epsilon) and not model.privacy_.is_private


def test_warm_start_with_a_seed_shares_no_noise():
    model = warm(epsilon=1.0, random_state=0, max_steps=3, lr=1e-6)
    steps = np.diff([weights(model.fit(X, Y)) for _ in range(3)], axis=0)
    assert not np.allclose(*steps, rtol=0.1)


class Stop(Callback):
    def on_epoch_end(self, net, **kwargs):
        raise KeyboardInterrupt


def test_warm_start_after_an_interrupted_warm_up_shares_no_noise(monkeypatch):
    made, seeded = [], Streams.seeded
    monkeypatch.setattr(Streams, "seeded", lambda *a, **k: made.append(seeded(*a, **k)) or made[-1])
    model = warm(max_steps=40, random_state=0, lr=1e-9)
    model.set_params(callbacks=[Stop()]).fit(X, Y).fit(X, Y)
    model.set_params(callbacks=None).fit(X, Y)
    assert len({streams.entropy for streams in made}) == 3


def test_warm_start_must_be_a_bool():
    with pytest.raises(TypeError, match="warm_start"):
        DPFairClassifier(warm_start="yes").fit(X, Y)


def test_warm_start_on_fewer_records_keeps_delta():
    model = warm(epsilon=2.0, max_steps=20)
    first = model.fit(X, Y).privacy_
    second = model.set_params(epsilon=0.5, batch_size=30).fit(X[:60], Y[:60]).privacy_
    assert second.delta == first.delta and second.epsilon > first.epsilon


def test_warm_start_on_more_records_lowers_delta():
    model = warm(batch_size=50, **CHEAP)
    deltas = [model.fit(np.tile(X, (k, 1)), np.tile(Y, k)).privacy_.delta for k in (1, 20)]
    assert deltas[0] == 1e-4 and deltas[1] < 1 / 18_000


def test_warm_start_keeps_assumptions():
    model = warm(max_steps=5).fit(X, Y).set_params(classes=[0, 1]).fit(X, Y)
    assert any("taken from y" in text for text in model.privacy_.assumptions)


FRAME, GROUP = DATA.data, DATA.sensitive_features
REORDERED = FRAME[FRAME.columns[::-1]]
PICTURES = np.random.default_rng(0).uniform(size=(60, 8, 8)).astype(np.float32), np.arange(60) % 2
REFUSED = {
    "names": ({}, (FRAME, Y), {}, (REORDERED, Y), "names of the features changed"),
    "features": ({}, (X, Y), {}, (X[:, 1:], Y), "number of features changed"),
    "classes": ({}, (X, Y), {}, (X, Y + 1), "classes changed"),
    "groups": (
        {"group_col": "group"},
        (FRAME.assign(group=GROUP), Y),
        {"group_col": None},
        (FRAME, Y),
        "groups changed",
    ),
    "pictures": (
        {"module": "scattering"},
        PICTURES,
        {"module__mirror": True},
        PICTURES,
        "features of pictures changed",
    ),
    "module": ({}, (X, Y), {"module": MLP((3,))}, (X, Y), "weights"),
}


@pytest.mark.parametrize(
    ("params", "first", "change", "second", "match"), REFUSED.values(), ids=REFUSED
)
def test_previous_fit_refuses_data_of_another_form(params, first, change, second, match):
    model = warm(max_steps=2, **params).fit(*first)
    report = model.privacy_
    with pytest.raises(ValueError, match=f"the {match}"):
        model.set_params(**change).fit(*second)
    assert model.privacy_ is report
