"""Contracts of a user's method, which are tried before a fit is paid."""

import functools

import numpy as np
import pytest
import torch

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.engine.mechanism import Clip, GradientTerm, Method, Query


class Clipped(Method):
    def clip(self, sample, state, release):
        return Clip(1 / sample.norm.clamp(min=1.0), 1.0)


class MeanOfTheBatch(Clipped):
    def clip(self, sample, state, release):
        mean = sample.norm.mean() if len(sample.norm) else sample.norm.sum()
        return Clip(torch.minimum(1 / (sample.norm + 1e-6), 1 / (mean + 1e-6)), 1.0)


class Ranked(Clipped):
    def clip(self, sample, state, release):
        return Clip(sample.norm.argsort().argsort() / (1 + sample.norm) / 1e3, 1.0)


class Counted(Clipped):
    def queries(self, task, noise_multiplier):
        rows = lambda sample, state: sample.norm[:, None] > sample.norm.sum() / 3  # noqa: E731
        return (Query("long", rows, 1.0, 5.0),)


class PerRecord(Clipped):
    """Gives one number for all outputs."""

    def gradient_term(self, sample, state, release):
        return GradientTerm(sample.loss - 0.7)


class Wrapped(Clipped):
    """Looks like `Method` itself, by what it says of itself."""

    @functools.wraps(Method.gradient_term)
    def gradient_term(self, sample, state, release):
        return GradientTerm(sample.probability - sample.probability.mean(0))


# its module is that of abc, by what it says of itself
CalledType = type("CalledType", (Method,), {"clip": MeanOfTheBatch.clip})


class Keeping(Clipped):
    def clip(self, sample, state, release):
        self.longest = sample.norm.sum()
        return super().clip(sample, state, release)


MEETING = [MeanOfTheBatch, Ranked, Counted, Wrapped, CalledType]


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        *[pytest.param(m, "depends on other records", id=m.__name__) for m in MEETING],
        pytest.param(Keeping, "sets longest", id="Keeping"),
        pytest.param(PerRecord, "logit_gradient", id="PerRecord"),
    ],
)
def test_refuse_broken_stops_a_fit_before_it_is_paid(method, fault, tmp_path):
    X, y = np.eye(1000, 4), np.arange(1000) % 2
    with PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=5.0, delta=1e-4) as ledger:
        with pytest.raises(ValueError, match=f"^method={method.__name__}.*{fault}"):
            DPFairClassifier(method(), epsilon=3.0, max_steps=2).fit(X, y)
        assert len(ledger.frame()) == 0
