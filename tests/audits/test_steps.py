"""The white-box audit: correct code passes, with room for nothing worse than it claims."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm

from benchmarks.audits.steps import audit_step, mu_lower_bound
from benchmarks.audits.sums import rate_at_most
from skdpfair import get_method
from skdpfair.engine import record_hooks
from skdpfair.engine.mechanism import Clip
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.step import clip_weights
from skdpfair.methods import METHODS
from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.privacy.gdp import gdp_epsilon
from skdpfair.testing._lower_bounds import guesses_excess, least_epsilon

PRIVATE = sorted(name for name, method in METHODS.items() if method.private)
FAILURE = 1e-6 / len(PRIVATE)  # together, correct methods fail with a chance of 1e-6


def every_method(*quick):
    """Return all private methods, all but some of which are tried in the slow tests only."""
    slow = pytest.mark.slow
    return [pytest.param(name, marks=() if name in quick else slow) for name in PRIVATE]


@pytest.mark.parametrize(  # with each kind of release and of bound
    "name", every_method("dpsgd", "dpsgd_f", "global_adapt", "dp_sat")
)
def test_no_attack_beats_the_claim(name):
    audit = audit_step(name, n_draws=700, n_features=250, confidence=1 - FAILURE, random_state=13)
    assert audit.mu_lower <= audit.mu_claimed and audit.passed, str(audit)
    assert audit.mu_lower > 0.3  # the attack sees what there is to see
    assert 0 < audit.epsilon_lower <= audit.epsilon_claimed


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("noise_multiplier", [0.7, 3.0])
def test_no_attack_of_many_draws_beats_the_claim(name, noise_multiplier):
    settings = {"noise_multiplier": noise_multiplier, "confidence": 1 - FAILURE / 2}
    audit = audit_step(name, random_state=0, **settings)
    assert audit.passed, str(audit)
    assert audit.mu_lower > 0.6 * audit.mu_claimed


def test_groups_hyper_parameters_and_noise():
    for method, settings in (
        (get_method("dpsgd_f", ratio="group_mean"), {"n_groups": 5}),
        (get_method("global", strict_max_grad_norm=50.0), {"n_groups": 1, "noise_multiplier": 4.0}),
        (
            get_method("naive", largest_factor=2.0),
            {"n_features": 300, "noise_sampler": "gaussian_sum"},
        ),
    ):
        given = {"n_features": 250, "confidence": 0.9, "random_state": 1} | settings
        audit = audit_step(method, n_draws=300, **given)
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
def test_faults_of_methods_are_found(name, fault, monkeypatch):
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


QUICK = {"n_draws": 400, "n_features": 250, "confidence": 0.999, "random_state": 0}


@pytest.mark.parametrize("name", every_method("dpsgd", "global_adapt"))
def test_no_attack_on_a_person_beats_the_claim(name):
    audit = audit_step(name, records_per_person=3, **QUICK)
    assert audit.passed and audit.mu_lower > 0.2, str(audit)
    assert "of persons with up to 3 records" in str(audit)


def records_one_by_one(model, batch, *rest):
    return clip_weights(model, replace(batch, examples=None), *rest)


def sums_clipped_as_means(self, samplers, examples, weight, out, finite=None):
    for sampler in samplers:
        sampler.add(examples.spread(weight), self.views(out))


@pytest.mark.parametrize(
    ("name", "part", "fault"),
    [
        ("dpsgd", "skdpfair.engine.step.clip_weights", records_one_by_one),
        ("dpsgd_f", (Strategy, "_add"), sums_clipped_as_means),
    ],
)
def test_a_person_who_counts_as_often_as_she_has_records_is_found(name, part, fault, monkeypatch):
    part = (part,) if isinstance(part, str) else part
    monkeypatch.setattr(*part, fault)
    audit = audit_step(name, records_per_person=3, **QUICK)
    assert not audit.passed and audit.mu_lower > 1.8 * audit.mu_claimed
    plain = audit_step(name, **QUICK)  # one record shows none of this
    assert plain.passed and plain.mu_claimed == audit.mu_claimed


def test_a_method_that_takes_no_persons_is_refused():
    class WithoutPersons(METHODS["dpsgd"]):
        takes_persons = False

    assert audit_step(WithoutPersons(), n_draws=100).passed
    with pytest.raises(ValueError, match="records_per_person=2 cannot be audited"):
        audit_step(WithoutPersons(), records_per_person=2)


def test_fresh_noise_unless_asked():
    quick = {"n_draws": 200, "n_features": 250, "confidence": 0.9}
    audits = [audit_step("dpsgd", random_state=s, **quick) for s in (3, 3, None, None)]
    assert audits[0] == audits[1]
    assert len({audit.mu_lower for audit in audits}) >= 2


def test_it_reads_well():
    audit = audit_step("dpsgd", n_draws=200, confidence=0.9, random_state=0)
    assert "not above its claim of 4.38" in str(audit)


def test_a_lower_bound_of_zero_is_no_result():
    audit = audit_step("dpsgd", n_draws=100, n_features=250, random_state=0)
    assert audit.epsilon_lower == 0 and audit.passed
    assert "shows nothing (lower bound 0)" in str(audit) and "never wrong" in str(audit)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"method": "sgd"}, "claims no finite epsilon"),
        ({"method": "fairlens"}, "claims no finite epsilon"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": 1e308}, "noise_multiplier"),
        ({"noise_multiplier": 1e-320}, "noise_multiplier"),
        ({"n_draws": 10}, "n_draws"),
        ({"delta": 1.0}, "delta"),
        ({"confidence": 1.0}, "confidence"),
        ({"n_groups": 0}, "n_groups"),
        ({"noise_sampler": "loud"}, "noise_sampler"),
        ({"n_features": 10}, "n_features"),
        ({"records_per_person": 0}, "records_per_person"),
    ],
)
def test_bad_input(params, says):
    with pytest.raises(ValueError, match=says):
        audit_step(**{"method": "dpsgd"} | params)


# (canaries, guesses, right ones, delta, failure): epsilon of jax-privacy 2.0.0
ONE_RUN = {
    (1000, 100, 95, 1e-5, 0.05): 3.3233004900323655,
    (1000, 1000, 600, 1e-5, 0.05): 0.583540400999374,
    (1000, 50, 50, 1e-6, 1e-6): 1.3090436720354057,
    (500, 200, 160, 1e-4, 0.01): 1.2822260684128657,
    (2000, 300, 290, 1e-6, 0.05): 4.921102739353441,
    (100, 100, 100, 1e-5, 0.05): 8.216186103950786,
    (1000, 100, 50, 1e-5, 0.05): 0.0,
}
PLAIN = NoisyRelease("steps", 1.0, (1.0,), 1)


def epsilon_in_float64(m, n, k, delta, failure):
    """Return the bound for Gaussian mechanisms, by the right and the wrong guesses of a tail."""

    def refuted(mu):
        right, wrong = failure * k / m, failure * (n - k) / m
        for i in range(k - 1, -1, -1):
            least = max(wrong, norm.cdf(norm.ppf(right) - mu))
            right, wrong = min(1.0, right + i / (n - i) * (least - wrong)), least
        return right + wrong > n / m

    low, high = 0.0, 20.0
    for _ in range(40):
        mu = (low + high) / 2
        low, high = (mu, high) if refuted(mu) else (low, mu)
    return gdp_epsilon(low, delta) if low > 1e-6 else 0.0


@pytest.mark.parametrize("case", ONE_RUN)
def test_one_run_agrees_with_jax_privacy_and_with_float64(case):
    m, n, k, delta, failure = case
    found = least_epsilon([PLAIN], delta, guesses_excess(m, n, k, failure))
    for exact in (ONE_RUN[case], epsilon_in_float64(*case)):
        assert 0.995 * exact <= found <= exact + 1e-6  # rounding only ever lowers it


def test_true_runs_are_refuted_as_seldom_as_said():
    """At 90 %, of 2000 fits of 60 canaries; and noise 30 % too low is refuted in most."""
    rng, run, refuted = (
        np.random.default_rng(0),
        NoisyRelease("steps", 0.1, (1.0,), 20),
        {1.0: 0, 0.7: 0},
    )
    least = min(k for k in range(30, 61) if guesses_excess(60, 60, k, 0.1)((run,)) > 0)
    for noise in refuted:
        for _ in range(2000):
            took_part = rng.random(60) < 0.5
            sampled = rng.random((20, 60)) < 0.1
            x = sampled * took_part + noise * rng.normal(size=(20, 60))
            ratio = np.log1p(0.1 * np.expm1((x - 0.5) / noise**2)).sum(0)
            refuted[noise] += (took_part == (ratio > 0)).sum() >= least
    assert refuted[1.0] <= 200 + 5 * 13 and refuted[0.7] > refuted[1.0]


def test_the_least_epsilon_never_leaves_the_hypotheses():
    assert least_epsilon([PLAIN], 1e-5, lambda runs: -1.0) == 0.0
    assert least_epsilon([PLAIN], 1e-5, lambda runs: 1.0) > 1e3

    def noisier(runs):  # than 1.5
        return math.log(runs[0].joint_noise_multiplier / 1.5)

    exact = compute_epsilon([NoisyRelease("steps", 1.0, (1.5,), 1)], 1e-5)
    assert 0.995 * exact < least_epsilon([PLAIN], 1e-5, noisier) <= exact


def test_one_run_refuses_nonsense():
    with pytest.raises(ValueError, match="n_correct=5"):
        guesses_excess(10, 4, 5, 0.05)


def test_a_confidence_limit_covers_as_often_as_it_says():
    """At 90 %: of 2000 limits, all but 200 +- 5 standard deviations lie above the truth."""
    hits = np.random.default_rng(0).binomial(50, 0.3, 2000)
    covered = np.mean([rate_at_most(int(h), 50, 0.1) >= 0.3 for h in hits])
    assert 0.9 - 5 * math.sqrt(0.09 / 2000) <= covered < 0.97


def test_lower_bounds_are_seldom_above_the_truth_and_close_to_it():
    rng, mu, thresholds = np.random.default_rng(0), 1.0, [0.0, 0.5, 1.0, 1.5]
    found = []
    for _ in range(200):
        a, b = rng.normal(size=(2, 2000))
        found.append(mu_lower_bound(a, b + mu, thresholds, 0.05))
    assert sum(f > mu for f in found) <= 22  # 10 expected at most
    assert np.mean(found) > 0.85
