"""The privacy report of a fit: its steps, its assumptions, and whose generator drew the noise."""

import json

import pytest

from skdpfair import Groups
from skdpfair.methods import METHODS
from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.privacy.privacy_report import ASSUMPTIONS, DEVICE_NOISE
from skdpfair.testing import verify_release
from tests.quick_fits import QUIET, TABLE, X, Y, quick

pytestmark = QUIET
UNIFORM = sorted(n for n, m in METHODS.items() if m.private and not m.needs_group_fractions)


@pytest.mark.parametrize("name", UNIFORM)
def test_account_counts_the_steps_that_were_taken(name):
    model = quick(name, group_col="group", max_steps=23, epsilon=2.0).fit(TABLE, Y)
    report = model.privacy_
    assert report.steps == model.n_steps_ == report.facts()["steps"] == 23
    joint = report.releases[0].joint_noise_multiplier
    spent = compute_epsilon([NoisyRelease("steps", report.sample_rate, (joint,), 23)], report.delta)
    assert report.epsilon == pytest.approx(spent) and report.epsilon <= 2.0
    assert report.expected_batch_size == pytest.approx(report.sample_rate * len(Y))
    json.dumps(report.facts())


def test_assumptions_hold_no_declared_groups_and_classes():
    groups = Groups("group", ["a", "b", "c"])
    declared = quick(group_col=groups, classes=[0, 1, 2]).fit(TABLE, Y)
    assert list(declared.levels_) == ["a", "b", "c"] and len(declared.classes_) == 3
    assumed = {ASSUMPTIONS["groups"], ASSUMPTIONS["classes"]}
    assert not assumed & set(declared.privacy_.assumptions)
    assert assumed <= set(quick(group_col="group").fit(TABLE, Y).privacy_.assumptions)


def test_account_notes_the_generator_of_a_gpu(monkeypatch, tmp_path):
    def is_noted(model):
        return DEVICE_NOISE in model.fit(X, Y).privacy_.not_accounted

    model = quick(warm_start=True)
    monkeypatch.setattr("skdpfair.training.account.is_cryptographic", lambda device: False)
    assert is_noted(model) and not is_noted(quick(epsilon=None))  # which is not private
    model.save_release(tmp_path / "model.safetensors")
    verify_release(tmp_path / "model.safetensors")
    monkeypatch.undo()
    assert is_noted(model) and not is_noted(quick())
