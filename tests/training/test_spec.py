"""Parameters that belong together are objects, which searches reach into; conflicts are named."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

from skdpfair import MLP, DPFairClassifier, DPFairRegressor, Factory, Groups, Persons
from skdpfair.augmentations import FlipAndShift, Views
from skdpfair.model_selection import DPThresholdClassifier
from skdpfair.training.spec import CONFLICTS, FitSpec
from tests.quick_fits import QUIET, X, Y, quick


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("estimator", [DPFairClassifier(), DPFairRegressor()])
def test_estimators_have_few_parameters(estimator):
    assert len(estimator.get_params(deep=False)) <= 31


@pytest.mark.parametrize(
    ("given", "nested"),
    [
        ({"module": Net}, "module__width"),
        ({"module": Factory(Net, width=4)}, "module__width"),
        ({}, "module__hidden_layer_sizes"),
        ({"module": "cnn"}, "module__channels"),
        ({"module": "scattering"}, "module__J"),
        ({}, "optimizer__momentum"),
        ({"optimizer": torch.optim.Adam}, "optimizer__eps"),
        ({"group_col": "sex"}, "group_col__levels"),
        ({}, "persons__max_records"),
        ({"augment": FlipAndShift()}, "augment__shift"),
        ({"augment": Views(FlipAndShift())}, "augment__n"),
        ({}, "augment__n"),
        ({"method": "dpsgd"}, "method__max_grad_norm"),
    ],
)
def test_set_params_reaches_into_objects_and_plain_values(given, nested):
    name, _, parameter = nested.partition("__")
    first = DPFairClassifier(**given)
    second = clone(first).set_params(**{nested: 64})
    for model in (second, clone(second)):
        assert getattr(model, name).get_params()[parameter] == 64
    assert repr(clone(first)) == repr(first)  # what was given is left as it was


def test_set_params_takes_a_module_with_its_arguments_and_names_wrong_ones():
    clf = DPFairClassifier().set_params(module=Net, module__width=8)
    assert clf.module.make is Net and clf.module.params == {"width": 8}
    with pytest.raises(ValueError, match="MLP"):
        DPFairClassifier().set_params(module__widths=(8,))


@pytest.mark.parametrize(
    ("params", "facts", "message"),
    [
        ({"noise_multiplier": 1.0}, {}, "epsilon=1.0 and noise_multiplier=1.0 .*epsilon=None"),
        ({"method": "sgd"}, {}, "method='sgd' .*epsilon=1.0"),
        ({"method": "sgd", "epsilon": None, "noise_multiplier": 1.0}, {}, "multiplier=1.0"),
        ({"method": "dpsgd_f"}, {"has_groups": False}, "method='dpsgd_f' needs groups"),
        ({"persons": Persons(surplus="raise")}, {}, "surplus='raise'"),
        ({"method": "fairlens", "epsilon": None}, {"has_persons": True}, "'fairlens' .*persons"),
        ({"optimizer": "LBFGS"}, {}, "optimizer=.*LBFGS"),
        ({"lr": 0.1, "optimizer": Factory("SGD", lr=0.2)}, {}, "lr=0.1 and the lr=0.2"),
    ],
)
def test_conflicts_name_the_values(params, facts, message):
    with pytest.raises(ValueError, match=message):
        FitSpec.of(DPFairClassifier(**params), **facts)


def test_conflicts_have_messages_with_a_remedy():
    spec = FitSpec.of(DPFairClassifier())
    for _, message in CONFLICTS:
        with pytest.raises(ValueError, match=r"\. \w|; to |, and "):
            spec.check([(lambda s: True, message)])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"persons": Persons(surplus="drop")}, "surplus of Persons .*got 'drop'"),
        ({"group_col": Groups("sex", as_feature=1)}, "as_feature .*got 1"),
        ({"group_col": Groups("sex", levels="ab")}, "levels must be a list"),
        ({"module": "mpl"}, "module .*got 'mpl'. Did you mean 'mlp'"),
        ({"module": nn.Linear(2, 2)}, "module must be a class"),
        ({"module": MLP((0,))}, "hidden_layer_sizes .*got 0"),
        ({"module": MLP(activation="tan")}, "activation of MLP .*Did you mean 'tanh'"),
        ({"module": Factory(Net, depth=3)}, "depth"),
        ({"optimizer": Factory("SGD", momentum=-1.0)}, "optimizer.*momentum"),
        ({"optimizer": "sdg"}, "optimizer .*Did you mean 'sgd'"),
        ({"augment": Views(FlipAndShift(), n=0)}, "n of Views .*got 0"),
        ({"augment": FlipAndShift}, "augment must be None, FlipAndShift"),
        ({"augment": Views(None, n=3)}, "augment of Views .*got None"),
        ({"method": "dpsdg"}, "method .*Did you mean 'dpsgd'"),
        ({"class_weight": "balanced"}, "class_weight must be a dict .*'balanced'"),
        ({"device": "meta"}, "device 'meta'"),
        ({"random_state": -1}, r"random_state must .*\[0, 2\*\*128\].*got -1"),
    ],
)
def test_fit_spec_refuses_parameters_by_name_before_a_record_is_read(params, message):
    clf = DPFairClassifier(epsilon=3.0).set_params(**params)
    with pytest.raises((ValueError, TypeError), match=message):
        clf.fit(np.full((4, 2), np.nan), [0, 1, 0, 1])
    with pytest.raises(NotFittedError):
        clf.predict(np.zeros((1, 2)))


@QUIET
def test_score_budget_fraction_is_that_of_one_fit():
    inner = DPThresholdClassifier(quick(epsilon=9.0, max_steps=2)).fit(X, Y).estimator_
    assert "score counts" in [entry.what for entry in inner.privacy_.releases]
    again = inner.fit(X, Y).privacy_.releases
    assert "score counts" not in [entry.what for entry in again]
