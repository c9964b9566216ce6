"""Parameters that belong together are objects, which searches reach into; conflicts are named."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from skorch.callbacks import Callback
from torch import nn

from skdpfair import MLP, DPFairClassifier, DPFairRegressor, Factory, Groups, Persons, get_method
from skdpfair.augmentations import FlipAndShift, Views
from skdpfair.features import Scattering2D
from skdpfair.model_selection import DPThresholdClassifier
from skdpfair.training.spec import CONFLICTS, FitSpec

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("estimator", [DPFairClassifier(), DPFairRegressor()])
def test_parameters_stay_few(estimator):
    assert len(estimator.get_params(deep=False)) <= 31


@pytest.mark.parametrize(
    ("given", "nested", "read"),
    [
        ({"module": Net}, {"module__width": 64}, lambda c: c.module.get_params()["width"]),
        (
            {"module": Factory(Net, width=4)},
            {"module__width": 64},
            lambda c: c.module.params["width"],
        ),
        ({}, {"module__hidden_layer_sizes": 64}, lambda c: c.module.hidden_layer_sizes),
        ({"module": "cnn"}, {"module__channels": 64}, lambda c: c.module.channels),
        ({"module": "scattering"}, {"module__J": 64}, lambda c: c.module.J),
        ({}, {"optimizer__momentum": 64}, lambda c: c.optimizer.params["momentum"]),
        (
            {"optimizer": torch.optim.Adam},
            {"optimizer__eps": 64},
            lambda c: c.optimizer.params["eps"],
        ),
        ({"group_col": "sex"}, {"group_col__levels": 64}, lambda c: c.group_col.levels),
        ({}, {"persons__max_records": 64}, lambda c: c.persons.max_records),
        ({"augment": FlipAndShift()}, {"augment__shift": 64}, lambda c: c.augment.shift),
        ({"augment": Views(FlipAndShift())}, {"augment__n": 64}, lambda c: c.augment.n),
        ({}, {"augment__n": 64}, lambda c: c.augment.n),
        ({"method": "dpsgd"}, {"method__max_grad_norm": 64}, lambda c: c.method.max_grad_norm),
    ],
)
def test_searches_reach_into_objects_and_plain_values(given, nested, read):
    first = DPFairClassifier(**given)
    second = clone(first).set_params(**nested)
    assert read(second) == 64 and read(clone(second)) == 64
    assert repr(clone(first)) == repr(first)  # what was given is left as it was


def test_a_class_and_an_argument_are_set_together():
    clf = DPFairClassifier().set_params(module=Net, module__width=8)
    assert clf.module.make is Net and clf.module.params == {"width": 8}
    with pytest.raises(ValueError, match="MLP"):
        DPFairClassifier().set_params(module__widths=(8,))


CLASSIFIER = [
    ({"noise_multiplier": 1.0}, {}, "epsilon=1.0 and noise_multiplier=1.0 are both given"),
    ({"method": "sgd"}, {}, "method='sgd' is not private, so epsilon=1.0"),
    ({"method": "sgd", "epsilon": None, "noise_multiplier": 1.0}, {}, "would buy no guarantee"),
    ({"method": "dpsgd_f"}, {"has_groups": False}, "needs groups"),
    ({"persons": Persons(surplus="raise")}, {}, "no persons are given"),
    ({"method": "fairlens", "epsilon": None}, {"has_persons": True}, "no formula for persons"),
    ({"optimizer": "LBFGS"}, {}, "more than one noisy gradient"),
    ({"lr": 0.1, "optimizer": Factory("SGD", lr=0.2)}, {}, "lr=0.1 and the lr=0.2"),
]


@pytest.mark.parametrize(("params", "facts", "message"), CLASSIFIER)
def test_conflicts_name_the_values_and_a_remedy(params, facts, message):
    with pytest.raises(ValueError, match=message):
        FitSpec.of(DPFairClassifier(**params), **facts)


def test_every_conflict_has_values_that_its_message_names():
    spec = FitSpec.of(DPFairClassifier())
    for _, message in CONFLICTS:
        with pytest.raises(ValueError, match=r"\. \w|; to |, and "):
            spec.check([(lambda s: True, message)])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"persons": "id"}, "persons must be None or a Persons object, got 'id'"),
        ({"persons": Persons(max_records=0)}, "max_records of Persons must be .*got 0"),
        ({"persons": Persons(surplus="drop")}, "surplus of Persons must be .*got 'drop'"),
        ({"group_col": Groups("sex", as_feature=1)}, "as_feature must be True or False, got 1"),
        ({"group_col": Groups("sex", levels="ab")}, "levels must be a list of values"),
        ({"module": "mpl"}, "module must be one of .*got 'mpl'. Did you mean 'mlp'"),
        ({"module": nn.Linear(2, 2)}, "module must be a class or a factory"),
        ({"module": MLP((0,))}, "hidden_layer_sizes must be an integer >= 1, got 0"),
        ({"module": MLP(activation="tan")}, "activation of MLP must be .*Did you mean 'tanh'"),
        ({"module": Factory(Net, depth=3)}, "depth"),
        ({"optimizer": Factory("SGD", momentum=-1.0)}, "optimizer.*momentum"),
        ({"augment": Views(FlipAndShift(), n=0)}, "n of Views must be .*got 0"),
        ({"augment": FlipAndShift}, "augment must be None, FlipAndShift"),
        ({"augment": Views(None, n=3)}, "augment of Views must be a callable, got None"),
    ],
)
def test_objects_are_checked_by_name_before_a_record_is_read(params, message):
    clf = DPFairClassifier(epsilon=3.0, **params)
    with pytest.raises((ValueError, TypeError), match=message):
        clf.fit(np.full((4, 2), np.nan), [0, 1, 0, 1])
    with pytest.raises(NotFittedError):
        clf.predict(np.zeros((1, 2)))


def test_features_of_pictures_are_a_module():
    pictures = np.random.default_rng(0).uniform(size=(60, 8, 8)).astype(np.float32)
    clf = DPFairClassifier("dpsgd", epsilon=9.0, max_steps=2, module=Scattering2D(J=1, L=4))
    clf.fit(pictures, np.arange(60) % 2)
    assert clf.features_.get_params()["L"] == 4 and "Linear" in type(clf.net_.module_).__name__


class Watches(Callback):
    exposes_records = True


def test_a_callback_that_is_shown_rows_forbids_the_release():
    X = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    clf = DPFairClassifier("dpsgd", epsilon=9.0, max_steps=2, callbacks=[Watches()])
    clf.fit(X, X[:, 0] > 0)
    assert not clf.privacy_.releasable
    with pytest.raises(ValueError, match=r"del classifier\.diagnostics_"):
        clf.release()


def test_a_second_fit_sets_nothing_aside_for_thresholds():
    X = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    y, clf = X[:, 0] > 0, DPFairClassifier("dpsgd", epsilon=9.0, max_steps=2)
    inner = DPThresholdClassifier(clf).fit(X, y).estimator_
    assert "score counts" in [entry.what for entry in inner.privacy_.releases]
    again = inner.fit(X, y).privacy_.releases
    assert "score counts" not in [entry.what for entry in again]


def test_a_fitted_net_does_not_train_without_its_estimator():
    X = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    clf = DPFairClassifier(get_method("dpsgd"), epsilon=9.0, max_steps=2).fit(X, X[:, 0] > 0)
    for train in (clf.net_.fit, clf.net_.partial_fit):
        with pytest.raises(ValueError, match="would not be private"):
            train(X, X[:, 0] > 0)
