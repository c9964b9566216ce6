"""A class that has only `clip` is a method: it is fitted, priced, listed and checked."""

import pytest

from docs.methods_table import methods_table
from skdpfair import DPFairClassifier, get_method
from skdpfair.datasets import make_two_groups
from skdpfair.engine.mechanism import Clip, Mechanism, Method
from skdpfair.methods import METHODS
from skdpfair.testing import check_method, example_task

NAME = "normalised"


def only_clip(**keywords):
    """Return a new class, in the registry if ``name`` is among the keywords."""

    class Normalised(Method, **keywords):
        """Weigh record i by 1 / (norm + 1), so that no gradient is as long as 1.

        References
        ----------
        Somebody and others, "A Rule for 1999 Records", 2024, arXiv:2001.01234; Later, 2030.
        """

        def clip(self, sample, state, release):
            return Clip(1.0 / (sample.norm + 1.0), sample.norm.new_ones(()))

    return Normalised


@pytest.fixture
def registered():
    yield only_clip(name=NAME)
    del METHODS[NAME]


@pytest.fixture(scope="module")
def data():
    found = make_two_groups(n_samples=2000, random_state=0)
    return found.data, found.target


@pytest.mark.parametrize("how", ["name", "object", "object of a scale"])
def test_a_new_method_is_fitted_and_priced(how, data, registered):
    cls = only_clip()
    cls.needs_gradient_scale = how == "object of a scale"
    model = DPFairClassifier(NAME if how == "name" else cls(), epsilon=1.0).fit(*data)
    report = model.privacy_
    assert model.score(*data) > 0.6 and report.is_private
    assert 0.9 < report.epsilon <= 1.0 and report.steps == model.n_steps_
    assert report.max_grad_norm == 1.0  # what the step uses, without a parameter of that name
    steps = [entry.what for entry in report.releases]
    assert ("gradient scale (warm-up)" in steps) == cls.needs_gradient_scale
    assert cls.name == "Normalised" and isinstance(get_method(NAME), registered)


def test_a_new_method_is_listed_and_checked(registered):
    row = methods_table().loc[NAME]
    assert row.to_list() == ["Somebody 2024", "yes", "no", "gradient sum", "1"]
    check_method(registered())
    assert Mechanism(registered(), example_task(), 2.0).release.noise_multipliers == (2.0,)
