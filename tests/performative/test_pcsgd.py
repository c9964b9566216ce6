"""The method pcsgd: projection, schedule, refusals."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.scalar import ScalarProblem
from skdpfair import DPFairClassifier, get_method
from skdpfair.datasets import make_two_groups

values = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=6)
radii = st.floats(0.1, 100)


def as_params(first, second):
    return {"weight": torch.tensor(first)[:, None], "bias": torch.tensor(second)}


def norms_of(params):
    return torch.cat([p.flatten() for p in params.values()])


@given(first=values, second=values, radius=radii)
def test_the_ball_is_of_all_parameters_together(first, second, radius):
    params = as_params(first, second)
    projected = get_method("pcsgd", radius=radius).project(params, None)
    before, after = norms_of(params), norms_of(projected)
    assert after.norm() <= radius * (1 + 1e-5)
    if before.norm() <= radius:
        torch.testing.assert_close(after, before)
    else:
        torch.testing.assert_close(after, before * (radius / before.norm()))
    assert all(projected[name].shape == p.shape for name, p in params.items())


@given(first=values, second=values, radius=radii)
def test_the_box_is_of_each_parameter(first, second, radius):
    params = as_params(first, second)
    projected = get_method("pcsgd", radius=radius, feasible_set="box").project(params, None)
    expected = np.clip(norms_of(params).numpy(), -radius, radius)
    np.testing.assert_allclose(norms_of(projected).numpy(), expected, rtol=1e-6)


def test_the_schedule_multiplies_the_learning_rate():
    assert [get_method("pcsgd").step_size(t) for t in (0, 9)] == [1.0, 1.0]
    method = get_method("pcsgd", schedule=(10.0, 100.0))
    published = ScalarProblem(schedule=(10.0, 100.0)).step_sizes(400)
    assert [method.step_size(t) for t in range(400)] == published.tolist()


@pytest.mark.parametrize(
    "params, message",
    [
        ({"radius": 0.0}, r"radius of method 'pcsgd' .* got 0.0"),
        ({"feasible_set": "cube"}, r"feasible_set of method 'pcsgd' .* got 'cube'"),
        ({"schedule": "constant"}, r"schedule of method 'pcsgd' .* got 'constant'"),
        ({"schedule": (1.0,)}, r"schedule must be a pair \(c0, c1\) .* got \(1.0,\)"),
        ({"schedule": (1.0, -2.0)}, r"schedule's c0 and c1 must be a number > 0, got -2.0"),
    ],
)
def test_unusable_parameters_are_refused_before_anything_is_fitted(params, message):
    data = make_two_groups(60, random_state=0)
    clf = DPFairClassifier(get_method("pcsgd", **params))
    with pytest.raises(ValueError, match=message):
        clf.fit(data.data, data.target)
    assert not hasattr(clf, "privacy_")


@pytest.mark.parametrize("feasible_set", ["ball", "box"])
def test_a_fitted_model_is_feasible_and_costs_what_dpsgd_costs(feasible_set):
    data = make_two_groups(200, random_state=0)
    given = {
        "epsilon": None, "noise_multiplier": 2.0, "module": "logistic", "max_steps": 10, "lr": 5.0,
    }  # fmt: skip
    spent = {}
    for name, params in {
        "dpsgd": {},
        "pcsgd": {"radius": 0.3, "feasible_set": feasible_set, "schedule": (50.0, 100.0)},
    }.items():
        method = get_method(name, max_grad_norm=1.0, **params)
        clf = DPFairClassifier(method, **given).fit(data.data, data.target)
        spent[name] = clf.privacy_.epsilon
        flat = torch.cat([p.detach().flatten() for p in clf.net_.module_.parameters()])
    size = flat.norm() if feasible_set == "ball" else flat.abs().max()
    assert float(size) == pytest.approx(0.3, rel=1e-5)
    assert spent["pcsgd"] == spent["dpsgd"]
