"""A class that has only `clip` is a method: it is fitted, priced, listed and checked."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from docs.methods_table import methods_table, sensitivities
from skdpfair import DPFairClassifier, get_method
from skdpfair.budget import PrivacyLedger
from skdpfair.datasets import make_two_groups
from skdpfair.engine import Batch
from skdpfair.engine.mechanism import Clip, Mechanism, Method, Query
from skdpfair.methods import METHODS
from skdpfair.testing import check_method, example_task

from .method_steps import PRIVATE, mechanism_of, step_of

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


def test_a_method_that_fails_on_few_records_is_refused_before_it_is_paid(data, tmp_path):
    class Many(Method):
        def clip(self, sample, state, release):
            if len(sample.norm) < 20:
                raise ValueError("too few records")
            return Clip(1.0 / (sample.norm + 1.0), sample.norm.new_ones(()))

    model = DPFairClassifier(Many(), noise_multiplier=1.0, epsilon=None, max_steps=3)
    with PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=10.0, delta=1e-5) as ledger:
        with pytest.raises(ValueError, match="too few records"):
            model.fit(*data)
        assert len(ledger.frame()) == 0


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.parametrize("name", ["dpsgd", "naive", "global_adapt", "dpsgd_f"])
def test_the_bound_of_a_report_is_that_of_the_steps(name, data):
    model = DPFairClassifier(name, max_steps=20, random_state=0)
    model.fit(*data, sensitive_features=data[1])
    moves = name in ("global_adapt", "dpsgd_f")
    bound = None if moves else pytest.approx(model.method_.max_grad_norm, rel=1e-6)
    assert model.privacy_.max_grad_norm == bound


def test_a_new_method_is_listed_and_checked(registered):
    row = methods_table().loc[NAME]
    assert row.to_list() == ["Somebody 2024", "yes", "no", "gradient sum", "1"]
    check_method(registered())
    assert Mechanism(registered(), example_task(), 2.0).release.noise_multipliers == (2.0,)


def test_flags_of_a_method_are_class_attributes():
    class Raw(Method):
        private = False
        clip = only_clip().clip

    assert not Raw.private and not Raw.takes_noise and "Raw" not in METHODS

    class Noisy(Method):
        private, takes_noise = False, True
        clip = Raw.clip

    assert Noisy.takes_noise and only_clip().takes_noise
    with pytest.raises(TypeError, match="privat"):
        only_clip(privat=False)


def test_the_registry_has_one_method_of_a_name(registered):
    with pytest.raises(ValueError, match="'normalised' is already taken"):

        class Other(Method, name=NAME):
            clip = registered.clip

    class Variant(registered):
        pass

    assert Variant.name == NAME and METHODS[NAME] is registered


@pytest.mark.parametrize(
    ("given", "lr_z", "z_gain"),
    [({}, 0.2 * 0.15, 0.15), ({"z_gain": 2.0}, 0.2 * 2.0, 2.0), ({"lr_z": 0.05}, 0.05, 1.0)],
)
def test_planned_sets_parameters_from_public_facts(given, lr_z, z_gain):
    planned = get_method("global_adapt", **given).planned(target_quantile=0.2)
    assert (planned.lr_z, planned.z_gain) == (lr_z, z_gain)


class Recorded:
    """A source of noise that keeps the sensitivities by which it is scaled, and adds none."""

    def __init__(self):
        self.sensitivities = []

    def fill_(self, out, sensitivity, noise_multiplier=1.0):
        self.sensitivities.append(float(sensitivity))
        return out.zero_()

    def all_reduce_(self, sums):
        return sums


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_listed_sensitivities_are_those_that_scale_the_noise(name, n_groups):
    noise, n_groups = Recorded(), 2 if METHODS[name].binary else n_groups
    mechanism, group = mechanism_of(name, 1.0, n_groups), torch.arange(6) % n_groups
    batch = Batch(torch.rand(6, 5), torch.zeros(6, dtype=torch.int64), group)
    step_of(nn.Linear(5, 2), batch, mechanism, noise)
    gradient, *queries = sensitivities(mechanism.method, mechanism.task).values()
    assert noise.sensitivities[:-1] == queries
    assert gradient is None or noise.sensitivities[-1] == gradient
    assert "unbounded" not in methods_table().loc[name, "sensitivity"]


def test_sensitivities_of_bounds_that_move_or_do_not_exist_are_no_numbers():
    assert sensitivities(get_method("dpsgd_f"), example_task())["gradient sum"] is None
    assert methods_table().loc["dpsgd_f", "sensitivity"] == "C times released factors; 1"
    assert math.isinf(sensitivities(get_method("sgd"), example_task())["gradient sum"])


class Sound(Method):
    def clip(self, sample, state, release):
        return Clip(weight=(1 / sample.norm).clamp(max=1.0), bound=torch.tensor(1.0))


def weighted(weight_of):
    """Return a method whose weights are a function of sound ones and of the records."""

    class Weighted(Sound):
        def clip(self, sample, state, release):
            clip = super().clip(sample, state, release)
            return replace(clip, weight=weight_of(clip.weight, sample))

    return Weighted()


def counting(row_of):
    """Return a method that counts each record by a function of the number of records."""

    class Counting(Sound):
        def rows(self, sample, state):
            return torch.full((len(sample.norm), 1), row_of(len(sample.norm)))

        def queries(self, task, noise_multiplier):
            return (Query("count", self.rows, 1.0, noise_multiplier),)

    return Counting()


class BoundOfTheBatch(Sound):
    def clip(self, sample, state, release):
        bound = sample.norm.max() if len(sample.norm) else torch.tensor(0.0)
        return Clip(weight=torch.ones_like(sample.norm), bound=bound)


class Diverges(Sound):
    def update(self, state, release):
        return torch.tensor(float("inf"))


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        (weighted(lambda weight, sample: torch.ones_like(weight)), "gradient exceeds 1.0"),
        (weighted(lambda weight, sample: weight / (1 + sample.loss.sum())), "weight of a record"),
        (weighted(lambda weight, sample: -weight), "negative weight"),
        (BoundOfTheBatch(), "bound depends on the records|is not a sensitivity"),
        (counting(lambda n: 2.0), "count: a row beyond the sensitivity"),
        (counting(lambda n: 1 / max(n, 1)), "count of a record depends"),
        (Diverges(), "state is not finite"),
    ],
)
def test_check_method_names_a_broken_contract(method, fault):
    check_method(Sound())
    with pytest.raises(AssertionError, match=fault):
        check_method(method)
