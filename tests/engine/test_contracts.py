"""Contracts of a user's method, which are tried before a fit is paid."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.engine.mechanism import Clip, GradientTerm, Method, Query
from skdpfair.testing import check_method


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


def test_refuse_broken_stops_a_method_that_fails_on_few_records(tmp_path):
    class Many(Clipped):
        def clip(self, sample, state, release):
            if len(sample.norm) < 20:
                raise ValueError("too few records")
            return super().clip(sample, state, release)

    model = DPFairClassifier(Many(), noise_multiplier=1.0, epsilon=None, max_steps=3)
    with PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=10.0, delta=1e-5) as ledger:
        with pytest.raises(ValueError, match="too few records"):
            model.fit(np.eye(1000, 4), np.arange(1000) % 2)
        assert len(ledger.frame()) == 0


def weighted(weight_of):
    """Return a method whose weights are a function of sound ones and of the records."""

    class Weighted(Clipped):
        def clip(self, sample, state, release):
            clip = super().clip(sample, state, release)
            return replace(clip, weight=weight_of(clip.weight, sample))

    return Weighted()


def counting(row_of):
    """Return a method that counts each record by a function of the number of records."""

    class Counting(Clipped):
        def rows(self, sample, state):
            return torch.full((len(sample.norm), 1), row_of(len(sample.norm)))

        def queries(self, task, noise_multiplier):
            return (Query("count", self.rows, 1.0, noise_multiplier),)

    return Counting()


class BoundOfTheBatch(Clipped):
    def clip(self, sample, state, release):
        bound = sample.norm.max() if len(sample.norm) else torch.tensor(0.0)
        return Clip(weight=torch.ones_like(sample.norm), bound=bound)


class Diverges(Clipped):
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
    check_method(Clipped())
    with pytest.raises(AssertionError, match=fault):
        check_method(method)
