"""Projected clipped SGD: a step of a published schedule, then a projection on a ball or a box."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.scalar import ScalarProblem
from skdpfair import DPFairClassifier, get_method
from tests.methods.formula_steps import DPSGD, assert_steps, releases

values = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=6)


class PCSGD(DPSGD):
    params = {"max_grad_norm": 0.8, "radius": 1.2, "schedule": (5.0, 7.0)}

    def factor(self, t):
        return 5.0 / (7.0 + t + 1)  # the paper counts from 1

    def after(self, theta):
        return theta * min(1.0, 1.2 / float(theta.norm()))


def test_pcsgd_steps_are_those_of_the_formula():
    assert_steps("pcsgd", PCSGD)
    assert releases("pcsgd", max_grad_norm=0.75) == {"gradient sum": (0.75, 2.0)}


@given(first=values, second=values, radius=st.floats(0.1, 100))
def test_project_clips_each_parameter_to_the_box(first, second, radius):
    params = {"weight": torch.tensor(first)[:, None], "bias": torch.tensor(second)}
    projected = get_method("pcsgd", radius=radius, feasible_set="box").project(params, None)
    for name, before in params.items():
        expected = np.clip(before.numpy(), -radius, radius)
        np.testing.assert_allclose(projected[name].numpy(), expected, rtol=1e-6)


def test_step_size_is_that_of_the_published_schedule():
    assert [get_method("pcsgd").step_size(t) for t in (0, 9)] == [1.0, 1.0]
    method = get_method("pcsgd", schedule=(10.0, 100.0))
    published = ScalarProblem(schedule=(10.0, 100.0)).step_sizes(400)
    assert [method.step_size(t) for t in range(400)] == published.tolist()


@pytest.mark.parametrize(
    "params, message",
    [
        ({"radius": 0.0}, r"radius .* 0\.0"),
        ({"feasible_set": "cube"}, r"feasible_set .*'cube'"),
        ({"schedule": "constant"}, r"schedule .*'constant'"),
        ({"schedule": (1.0,)}, r"schedule .*\(1\.0,\)"),
        ({"schedule": (1.0, -2.0)}, r"schedule.* -2\.0"),
    ],
)
def test_unusable_parameters_are_refused_before_anything_is_fitted(params, message):
    clf = DPFairClassifier(get_method("pcsgd", **params))
    with pytest.raises(ValueError, match=message):
        clf.fit(np.zeros((60, 2)), np.arange(60) % 2)
    assert not hasattr(clf, "privacy_")
