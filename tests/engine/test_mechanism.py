"""A method with its task and its noise: what one step releases."""

import pytest

from skdpfair.engine.mechanism import Clip, Mechanism, Method, Query, Task
from skdpfair.methods import METHODS
from skdpfair.testing import example_task


class Counting(Method):
    """Count twice."""

    def queries(self, task, noise_multiplier):
        names = {"first": 4.0 * noise_multiplier, "second": 2.0 * noise_multiplier}
        return tuple(Query(k, lambda sample, _: sample.norm, 1.0, s) for k, s in names.items())

    def clip(self, sample, state, release):
        return Clip(0 * sample.norm, 1.0)


def test_mechanism_release_has_the_noise_of_the_gradient_and_of_each_query():
    release = Mechanism(Counting(), Task(24, 1, 1.0), 2.0).release
    assert release.noise_multipliers == (2.0, 8.0, 4.0)
    assert release.joint_noise_multiplier == pytest.approx((1 / 4 + 1 / 64 + 1 / 16) ** -0.5)


@pytest.mark.parametrize("name", METHODS)
def test_mechanism_release_is_the_same_for_any_number_of_groups(name):
    tasks = [example_task(n_groups=k) for k in (1, 2, 50)]
    assert len({Mechanism(METHODS[name](), task, 1.0).release for task in tasks}) == 1


def test_expected_batch_size_needs_shares_where_rates_differ():
    method = METHODS["dp_is_sgd"](group_probabilities=(0.8, 0.2))
    with pytest.raises(ValueError, match=r"Task\.group_fractions"):
        _ = Mechanism(method, example_task(), 1.0).expected_batch_size


def test_flags_of_a_method_are_class_attributes():
    class Raw(Method):
        private = False
        clip = Counting.clip

    assert not Raw.private and not Raw.takes_noise and "Raw" not in METHODS

    class Noisy(Method):
        private, takes_noise = False, True
        clip = Counting.clip

    assert Noisy.takes_noise and Counting.takes_noise
    with pytest.raises(TypeError, match="privat"):

        class Misspelt(Method, privat=False):
            clip = Counting.clip


@pytest.fixture
def registered():
    class Registered(Method, name="registered"):
        clip = Counting.clip

    yield Registered
    del METHODS["registered"]


def test_the_registry_has_one_method_of_a_name(registered):
    with pytest.raises(ValueError, match="'registered' is already taken"):

        class Other(Method, name="registered"):
            clip = Counting.clip

    class Variant(registered):
        pass

    assert Variant.name == "registered" and METHODS["registered"] is registered
