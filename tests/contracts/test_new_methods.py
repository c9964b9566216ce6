"""A class that has only `clip` is a method: it is fitted, found, priced, listed and checked."""

import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from docs.methods_table import methods_table, sensitivities
from skdpfair import DPFairClassifier, get_method
from skdpfair.budget import PrivacyLedger
from skdpfair.datasets import make_two_groups
from skdpfair.engine import Batch, private_step, select_strategy
from skdpfair.engine.mechanism import Clip, Mechanism, Method, Query
from skdpfair.exceptions import InsecureSeedWarning
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


def assert_fitted_and_priced(model, data):
    X, y = data
    assert model.fit(X, y).score(X, y) > 0.6
    report = model.privacy_
    assert 0.9 < report.epsilon <= 1.0 and report.is_private and report.steps == model.n_steps_
    assert report.max_grad_norm == 1.0  # what the step uses, without a parameter of that name
    assert "differentially private" in report.statement


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


@pytest.mark.parametrize("name", ["dpsgd", "naive", "global_adapt", "dpsgd_f"])
def test_the_bound_of_a_report_is_that_of_the_steps(name, data):
    X, y = data
    model = DPFairClassifier(name, max_steps=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureSeedWarning)
        model.fit(X, y, sensitive_features=y)
    moves = name in ("global_adapt", "dpsgd_f")
    assert model.privacy_.max_grad_norm == (
        None if moves else pytest.approx(model.method_.max_grad_norm, rel=1e-6)
    )


@pytest.mark.parametrize("needs_gradient_scale", [False, True])
def test_an_object_is_fitted_and_priced(data, needs_gradient_scale):
    cls = only_clip()
    cls.needs_gradient_scale = needs_gradient_scale
    model = DPFairClassifier(cls(), epsilon=1.0)
    assert_fitted_and_priced(model, data)
    steps = [entry.what for entry in model.privacy_.releases]
    assert ("gradient scale (warm-up)" in steps) == needs_gradient_scale
    assert cls.name == "Normalised" and NAME not in METHODS


def test_a_name_is_fitted_and_priced(data, registered):
    assert_fitted_and_priced(DPFairClassifier(NAME, epsilon=1.0), data)
    assert isinstance(get_method(NAME), registered)


def test_it_is_listed_with_what_its_step_uses(registered):
    row = methods_table().loc[NAME]
    assert row.to_list() == ["Somebody 2024", "yes", "no", "gradient sum", "1"]


def test_it_is_checked(registered):
    check_method(registered())
    assert Mechanism(registered(), example_task(), 2.0).release.noise_multipliers == (2.0,)


def test_what_holds_for_all_objects_is_written_in_the_body():
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


def test_a_name_is_taken_once(registered):
    with pytest.raises(ValueError, match="'normalised' is already taken"):

        class Other(Method, name=NAME):
            clip = registered.clip


def test_a_variant_of_a_method_keeps_its_name_and_stays_out_of_the_registry(registered):
    class Variant(registered):
        pass

    assert Variant.name == NAME and METHODS[NAME] is registered


@pytest.mark.parametrize(
    ("given", "lr_z", "z_gain"),
    [({}, 0.2 * 0.15, 0.15), ({"z_gain": 2.0}, 0.2 * 2.0, 2.0), ({"lr_z": 0.05}, 0.05, 1.0)],
)
def test_a_method_sets_its_own_parameters_from_public_facts(given, lr_z, z_gain):
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


@pytest.mark.parametrize("name", sorted(n for n, m in METHODS.items() if m.private))
@pytest.mark.parametrize("n_groups", [2, 3])
def test_listed_sensitivities_are_those_that_scale_the_noise(name, n_groups):
    method, noise = get_method(name), Recorded()
    small = example_task(n_groups=2 if method.binary else n_groups)
    group = torch.arange(6) % small.n_groups
    batch = Batch(torch.rand(6, 5), torch.zeros(6, dtype=torch.int64), group)
    with select_strategy(nn.Linear(5, 2), batch.x, 2) as engine:
        private_step(engine, batch, Mechanism(method, small, 1.0), method.start(small), noise)
    gradient, *queries = sensitivities(method, small).values()
    assert noise.sensitivities[:-1] == queries
    assert gradient is None or noise.sensitivities[-1] == gradient
    assert "unbounded" not in methods_table().loc[name, "sensitivity"]


def test_a_bound_that_moves_with_what_was_released_is_no_number():
    assert sensitivities(get_method("dpsgd_f"), example_task())["gradient sum"] is None
    assert methods_table().loc["dpsgd_f", "sensitivity"] == "C times released factors; 1"
    assert math.isinf(sensitivities(get_method("sgd"), example_task())["gradient sum"])


class Sound(Method):
    def clip(self, sample, state, release):
        return Clip(weight=(1 / sample.norm).clamp(max=1.0), bound=torch.tensor(1.0))


class Unclipped(Sound):
    def clip(self, sample, state, release):
        return replace(super().clip(sample, state, release), weight=torch.ones_like(sample.norm))


class ByTheMean(Sound):
    def clip(self, sample, state, release):
        clip = super().clip(sample, state, release)
        return replace(clip, weight=clip.weight / (1 + sample.loss.sum()))


class BoundOfTheBatch(Sound):
    def clip(self, sample, state, release):
        bound = sample.norm.max() if len(sample.norm) else torch.tensor(0.0)
        return Clip(weight=torch.ones_like(sample.norm), bound=bound)


class Negative(Sound):
    def clip(self, sample, state, release):
        clip = super().clip(sample, state, release)
        return replace(clip, weight=-clip.weight)


class Counts(Sound):
    def rows(self, sample, state):
        return 2 * torch.ones(len(sample.norm), 1)

    def queries(self, task, noise_multiplier):
        return (Query("count", self.rows, 1.0, noise_multiplier),)


class CountsTogether(Counts):
    def rows(self, sample, state):
        return torch.ones(len(sample.norm), 1) / max(len(sample.norm), 1)


class Diverges(Sound):
    def update(self, state, release):
        return torch.tensor(float("inf"))


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        (Unclipped, "a weighted gradient exceeds 1.0"),
        (ByTheMean, "weight of a record depends on other records"),
        (BoundOfTheBatch, "the bound depends on the records|is not a sensitivity"),
        (Negative, "a negative weight"),
        (Counts, "count: a row beyond the sensitivity"),
        (CountsTogether, "count of a record depends on other records"),
        (Diverges, "the next state is not finite"),
    ],
)
def test_a_broken_contract_is_named(method, fault):
    check_method(Sound())
    with pytest.raises(AssertionError, match=fault):
        check_method(method())
