"""The white-box audit: correct code passes, with room for nothing worse than it claims."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.audits.steps import audit_step, mu_lower_bound
from benchmarks.audits.sums import rate_at_most
from skdpfair import get_method
from skdpfair.engine import record_hooks
from skdpfair.engine.mechanism import Clip
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.step import clip_weights
from skdpfair.methods import METHODS
from tests.audited_fits import PRIVATE, QUICK, every_method

FAILURE = 1e-6 / len(PRIVATE)  # together, correct methods fail with a chance of 1e-6


@pytest.mark.parametrize("name", every_method(*QUICK, "dp_sat"))  # with each kind of bound
def test_audit_step_is_not_above_the_claim(name):
    audit = audit_step(name, n_draws=700, n_features=250, confidence=1 - FAILURE, random_state=13)
    assert audit.mu_lower <= audit.mu_claimed and audit.passed, str(audit)
    assert audit.mu_lower > 0.3  # the attack sees what there is to see
    assert 0 < audit.epsilon_lower <= audit.epsilon_claimed


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("noise_multiplier", [0.7, 3.0])
def test_audit_step_of_many_draws_is_not_above_the_claim(name, noise_multiplier):
    settings = {"noise_multiplier": noise_multiplier, "confidence": 1 - FAILURE / 2}
    audit = audit_step(name, random_state=0, **settings)
    assert audit.passed, str(audit)
    assert audit.mu_lower > 0.6 * audit.mu_claimed


def test_audit_step_of_groups_hyper_parameters_and_noise():
    for method, settings in (
        (get_method("dpsgd_f", ratio="group_mean"), {"n_groups": 5}),
        (get_method("global", strict_max_grad_norm=50.0), {"n_groups": 1, "noise_multiplier": 4.0}),
        (
            get_method("naive", largest_factor=2.0),
            {"n_features": 300, "noise_sampler": "gaussian_sum"},
        ),
    ):
        quick = {"n_draws": 300, "n_features": 250, "confidence": 0.9, "random_state": 1}
        audit = audit_step(method, **quick | settings)
        assert audit.passed and (audit.mu_lower > 0) == (audit.mu_claimed > 0.5)
        assert audit.mu_claimed == pytest.approx(1 / settings.get("noise_multiplier", 1.0)) or (
            method.name in ("dpsgd_f", "naive")
        )


def doubled(clip, sample):
    return Clip(2 * clip.weight, clip.bound)


def whole(clip, sample):
    return Clip(torch.ones_like(clip.weight), clip.bound)


def noise_of_the_base_bound(clip, sample):
    return Clip(clip.weight, torch.ones(()))


def louder_for_the_loud(clip, sample):
    loud = bool(len(sample.norm)) and sample.norm.max() > 50
    return Clip(clip.weight, torch.tensor(1.5 if loud else 1.0))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *(("dpsgd", fault) for fault in (doubled, whole, louder_for_the_loud)),
        ("dpsgd_f", noise_of_the_base_bound),
    ],
)
def test_audit_step_finds_faults_of_methods(name, fault, monkeypatch):
    # those of other people cannot do it: their traces keep to the bounds
    monkeypatch.setattr(record_hooks, "is_shipped", lambda method: True)
    base = METHODS[name]

    class Faulty(base, name="faulty for a test", reference="-"):
        def clip(self, sample, state, release):
            return fault(super().clip(sample, state, release), sample)

    del METHODS["faulty for a test"]
    settings = {"n_draws": 400, "n_features": 300, "confidence": 0.999, "random_state": 0}
    audit = audit_step(Faulty(max_grad_norm=1.0), **settings)
    assert not audit.passed and audit.epsilon_lower > 1.2 * audit.epsilon_claimed


FEW = {"n_draws": 400, "n_features": 250, "confidence": 0.999, "random_state": 0}


@pytest.mark.parametrize("name", every_method("dpsgd", "global_adapt"))
def test_audit_step_of_a_person_is_not_above_the_claim(name):
    audit = audit_step(name, records_per_person=3, **FEW)
    assert audit.passed and audit.mu_lower > 0.2, str(audit)
    assert "up to 3 records" in str(audit)


def records_one_by_one(model, batch, *rest):
    return clip_weights(model, replace(batch, examples=None), *rest)


def sums_clipped_as_means(self, samplers, examples, weight, out, finite_mask=None):
    for sampler in samplers:
        sampler.add(examples.spread(weight), self.views(out))


@pytest.mark.parametrize(
    ("name", "part", "fault"),
    [
        ("dpsgd", "skdpfair.engine.step.clip_weights", records_one_by_one),
        ("dpsgd_f", (Strategy, "_add"), sums_clipped_as_means),
    ],
)
def test_audit_step_finds_a_person_who_counts_once_for_each_record(name, part, fault, monkeypatch):
    part = (part,) if isinstance(part, str) else part
    monkeypatch.setattr(*part, fault)
    audit = audit_step(name, records_per_person=3, **FEW)
    assert not audit.passed and audit.mu_lower > 1.8 * audit.mu_claimed
    plain = audit_step(name, **FEW)  # one record shows none of this
    assert plain.passed and plain.mu_claimed == audit.mu_claimed


def test_audit_step_refuses_a_method_without_persons():
    class WithoutPersons(METHODS["dpsgd"]):
        takes_persons = False

    assert audit_step(WithoutPersons(), n_draws=100).passed
    with pytest.raises(ValueError, match="records_per_person=2"):
        audit_step(WithoutPersons(), records_per_person=2)


def test_audit_step_draws_fresh_noise_unless_seeded():
    quick = {"n_draws": 200, "n_features": 250, "confidence": 0.9}
    audits = [audit_step("dpsgd", random_state=s, **quick) for s in (3, 3, None, None)]
    assert audits[0] == audits[1] and len({audit.mu_lower for audit in audits}) >= 2
    assert "claim of 4.38" in str(audits[0])
    short = audit_step("dpsgd", n_draws=100, n_features=250, random_state=0)
    assert short.epsilon_lower == 0 and short.passed and "never wrong" in str(short)


@pytest.mark.parametrize(
    "name, value",
    [
        *(("method", value) for value in ("sgd", "fairlens")),
        *(("noise_multiplier", value) for value in (0.0, 1e308, 1e-320)),
        *(("n_draws", 10), ("n_features", 10), ("delta", 1.0), ("confidence", 1.0)),
        *(("n_groups", 0), ("noise_sampler", "loud"), ("records_per_person", 0)),
    ],
)
def test_audit_step_refuses_arguments_by_name(name, value):
    message = "finite epsilon" if name == "method" else f"^{name} "
    with pytest.raises(ValueError, match=message):
        audit_step(**{"method": "dpsgd"} | {name: value})


def test_rate_at_most_covers_with_its_confidence():
    """At 90 %: of 2000 limits, all but 200 +- 5 standard deviations lie above the truth."""
    hits = np.random.default_rng(0).binomial(50, 0.3, 2000)
    covered = np.mean([rate_at_most(int(h), 50, 0.1) >= 0.3 for h in hits])
    assert 0.9 - 5 * math.sqrt(0.09 / 2000) <= covered < 0.97


def test_mu_lower_bound_is_seldom_above_the_truth_and_close_to_it():
    rng, mu, thresholds = np.random.default_rng(0), 1.0, [0.0, 0.5, 1.0, 1.5]
    found = []
    for _ in range(200):
        a, b = rng.normal(size=(2, 2000))
        found.append(mu_lower_bound(a, b + mu, thresholds, 0.05))
    assert sum(f > mu for f in found) <= 22  # 10 expected at most
    assert np.mean(found) > 0.85
