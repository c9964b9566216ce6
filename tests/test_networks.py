"""A class or function that makes the module: what two of its modules may share."""

import copy
import functools
import itertools
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from skorch.callbacks import Callback
from torch import nn

from skdpfair import DPFairClassifier, DPFairRegressor, Factory, load_release
from skdpfair.analysis import GroupRecorder
from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.model_selection import DPRandomizedSearch

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
RNG = np.random.default_rng(0)
X = RNG.random((300, 4)).astype(np.float32)
Y = (X[:, 0] > 0.5).astype(int)
NETWORK = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
ONE = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
PUBLIC = torch.eye(4)[:2].clone()


def same(network=NETWORK):
    return network


def fresh():
    return copy.deepcopy(NETWORK)


class Cached(nn.Linear):
    made = nn.Linear(4, 2)

    def __new__(cls):
        return cls.made


def around():
    return nn.Sequential(NETWORK[0], nn.ReLU(), nn.Linear(3, 2))


def tied():
    module = nn.Linear(4, 3)
    module.weight = NETWORK[0].weight
    return nn.Sequential(module, nn.Linear(3, 2))


def anew():
    for layer in (NETWORK[0], NETWORK[2]):
        layer.reset_parameters()
    return NETWORK


SHARED = {
    "function": lambda *args: NETWORK,
    "default": same,
    "factory": Factory(lambda: NETWORK),
    "argument": Factory(same, network=NETWORK),
    "partial": functools.partial(same, NETWORK),
    "new": Cached,
    "cache": functools.lru_cache(lambda: nn.Linear(4, 2)),
    "layer": around,
    "parameter": tied,
    "fresh weights": anew,
}


def quick(kind=DPFairClassifier, **params):
    task = {"classes": [0, 1]} if kind is DPFairClassifier else {"y_range": (0, 1)}
    given = {"epsilon": None, "noise_multiplier": 0.5, "max_steps": 6, "batch_size": 60, "lr": 0.1}
    return kind(**given | task | params)


def refused():
    return pytest.raises(ValueError, match=r"^module must.*copy\.deepcopy")


@pytest.mark.parametrize("name", SHARED)
def test_module_factory_that_shares_what_trains_is_refused(name, tmp_path):
    before = copy.deepcopy(NETWORK.state_dict())
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger:
        for _ in range(2):
            with refused():
                quick(module=SHARED[name]).fit(X, Y)
        with refused():
            clone(quick(module=SHARED[name])).fit(X, Y)
    assert ledger.frame().empty
    if name != "fresh weights":
        assert all(torch.equal(v, before[k]) for k, v in NETWORK.state_dict().items())


class OneOfThree(nn.Linear):
    def __deepcopy__(self, memo):
        return self


def test_module_whose_layers_copy_as_themselves_is_refused():
    pool = itertools.cycle([OneOfThree(4, 2) for _ in range(3)])
    with pytest.raises(UnsupportedModuleError, match="__deepcopy__"):
        quick(module=lambda: next(pool)).fit(X, Y)


def test_module_whose_parameters_share_memory_is_refused():
    def make():
        module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
        module[1].weight = nn.Parameter(module[0].weight.data)
        return module

    with pytest.raises(UnsupportedModuleError, match="share memory"):
        quick(module=make).fit(X, Y)


@pytest.mark.parametrize(
    "model",
    [
        quick(module=same, warm_start=True),
        quick(module=same, keep_reference=True),
        quick(module=same, callbacks=[GroupRecorder(terms=False)]),
        quick(DPFairRegressor, module=lambda: ONE),
        DPFairClassifier("sgd", epsilon=None, module=same, max_steps=3, lr=0.1),
        quick(method="dpsgd_f", module=same),
        pickle.loads(pickle.dumps(quick(module=functools.partial(copy.copy, NETWORK[2])))),
        DPRandomizedSearch(quick(module=same), {"lr": [0.1, 0.2]}, mean_trials=3),
    ],
    ids=["warm", "reference", "recorder", "regressor", "sgd", "groups", "pickle", "private search"],
)
def test_module_factory_that_shares_is_refused_before_any_charge(model, tmp_path):
    groups = {"sensitive_features": Y} if getattr(model, "method", None) == "dpsgd_f" else {}
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger, refused():
        model.fit(X, Y, **groups)
    assert ledger.frame().empty


class Starts(Callback):
    seen: list = []  # of all clones

    def on_train_begin(self, net, **kwargs):
        self.seen.append(flat(net.module_))


def flat(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()]).numpy().copy()


BACKBONE = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Tanh())


def on_backbone():
    return nn.Sequential(BACKBONE.requires_grad_(False), nn.Linear(3, 2))


def from_public():
    module = nn.Linear(4, 2)
    module.weight = nn.Parameter(PUBLIC)
    return module


TWO = [nn.Linear(4, 2), nn.Linear(4, 2)]


def in_turn():
    TWO.reverse()
    return TWO[0]


@pytest.mark.parametrize("make", [on_backbone, from_public, fresh, in_turn, nn.Linear])
def test_module_factories_start_fits_with_public_weights_that_none_shares(make, tmp_path):
    """Even if a function returns one of few modules: a fit trains a copy."""
    held = [*NETWORK.parameters(), *TWO[0].parameters(), PUBLIC, *BACKBONE.state_dict().values()]
    before = [t.detach().clone() for t in held]
    module = Factory(make, in_features=4, out_features=2) if make is nn.Linear else make
    Starts.seen.clear()
    models = [quick(module=module, callbacks=[Starts()]).fit(X, Y) for _ in range(4)]
    start, ends = Starts.seen[0], [flat(model.net_.module_) for model in models]
    assert not any(np.allclose(one, end) for one in Starts.seen for end in ends)
    if make in (on_backbone, from_public):  # the rest is drawn in each fit
        assert all(np.array_equal(one[:8], start[:8]) for one in Starts.seen)
    models += [models[0].release(), pickle.loads(pickle.dumps(quick(module=from_public).fit(X, Y)))]
    models[0].save_release(tmp_path / "model")
    models.append(load_release(tmp_path / "model", module=make))
    layers = [m for model in models for m in model.net_.module_.modules()]
    tensors = [t for model in models for t in model.net_.module_.state_dict().values()]
    assert len({id(m) for m in layers}) == len(layers)
    assert len({t.data_ptr() for t in tensors}) == len(tensors)
    assert all(map(torch.equal, held, before)) and BACKBONE.training


def pretrained():
    public = quick(module=fresh, epsilon=1e4, noise_multiplier=None)
    return copy.deepcopy(public.fit(X, 1 - Y).net_.module_)


def test_module_factory_may_fit_a_public_model():
    assert quick(module=pretrained).fit(X, Y).n_steps_ == 6


def test_warm_start_ignores_weights_of_the_module_factory():
    Starts.seen.clear()
    model = quick(module=fresh, warm_start=True, callbacks=[Starts()])
    before, end = model.fit(X, Y).privacy_.epsilon, flat(model.net_.module_)
    model.fit(X, Y)
    assert np.array_equal(Starts.seen[1], end) and model.privacy_.epsilon > before


compiled = functools.partial(torch.compile, backend="eager")


def compiled_in_place():
    module = fresh()
    module[0].compile(backend="eager")
    module.compile(backend="eager")
    return module


COMPILED = {
    "whole": lambda: compiled(fresh()),
    "part": lambda: nn.Sequential(compiled(fresh()[0]), *fresh()[1:]),
    "in place": compiled_in_place,
}


@pytest.mark.parametrize("make", COMPILED.values(), ids=COMPILED)
def test_module_inside_torch_compile_is_trained(make, tmp_path):
    model = quick(module=make).fit(X, Y)
    assert model.net_.module_.state_dict().keys() == NETWORK.state_dict().keys()
    assert not any(m._compiled_call_impl for m in model.net_.module_.modules())
    model.save_release(tmp_path / "model")
    for other in (make, fresh):
        loaded = load_release(tmp_path / "model", module=other)
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_module_with_a_compiled_function_is_refused():
    class Compiled(nn.Linear):
        @torch.compile(backend="eager")
        def forward(self, x):
            return super().forward(x).tanh()

    with pytest.raises(ValueError, match=r"leave torch\.compile out"):
        quick(module=lambda: Compiled(4, 2)).fit(X, Y)
