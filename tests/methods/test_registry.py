"""Methods by their names, and what all of them keep to."""

import math

import numpy as np
import pytest

from skdpfair import DPFairClassifier, get_method
from skdpfair.datasets import make_two_groups
from skdpfair.methods import METHODS
from skdpfair.methods.dpsgd import DPSGD

NOT_PRIVATE = sorted(name for name, method in METHODS.items() if not method.private)
DATA = make_two_groups(900, random_state=0)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_get_method_returns_a_new_object_by_name_class_or_object():
    one = DPSGD(max_grad_norm=0.5)
    for method in ("dpsgd", DPSGD, one):
        found = get_method(method, max_grad_norm=0.25)
        assert (type(found), found.max_grad_norm) == (DPSGD, 0.25)
    assert one.max_grad_norm == 0.5


@pytest.mark.parametrize(("method", "error"), [("dpsdg", ValueError), (3, TypeError)])
def test_get_method_refuses_what_is_no_method(method, error):
    with pytest.raises(error, match=rf"method.*{method}"):
        get_method(method)


def fitted(method, **params):
    params = {"module": "logistic", "random_state": 0, "max_steps": 20, "epsilon": None} | params
    model = DPFairClassifier(method, **params)
    return model.fit(DATA.data, DATA.target, sensitive_features=DATA.sensitive_features)


@pytest.mark.parametrize("name", NOT_PRIVATE)
def test_epsilon_of_methods_without_privacy_is_refused_and_never_finite(name):
    instead = METHODS[name].private_alternative
    assert METHODS[instead].private
    with pytest.raises(ValueError, match=rf"{name}.*epsilon=2\.0.*'{instead}'"):
        fitted(name, epsilon=2.0)
    assert math.isinf(fitted(name).privacy_.epsilon)


@pytest.mark.parametrize("name", [n for n in NOT_PRIVATE if n != "fairlens"])
def test_gradient_noise_takes_the_place_of_noise_multiplier_without_privacy(name):
    with pytest.raises(ValueError, match="gradient_noise"):
        fitted(name, noise_multiplier=1.0)
    plain, noisy = fitted(name), fitted(get_method(name, gradient_noise=0.3))
    assert math.isinf(noisy.privacy_.epsilon)
    scores = (model.decision_function(DATA.data) for model in (plain, noisy))
    assert not np.allclose(*scores)


def test_gradient_noise_below_0_is_refused():
    with pytest.raises(ValueError, match=r"gradient_noise.*-1"):
        fitted(get_method("sgd", gradient_noise=-1.0))
