"""Each release in each mode: its noise is that charged, times what a record or person can move it.

The table of the releases is in docs/evidence/threat_model.md; for each cell, `tests/mutants/`
removes the noise once, and makes its sensitivity too small once.
"""

import math
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

from skdpfair import DPFairClassifier, Groups, Persons, get_method
from skdpfair.engine import step as engine
from skdpfair.estimators import base
from skdpfair.inputs import persons
from skdpfair.metrics import release_group_table
from skdpfair.model_selection import DPThresholdClassifier, _score_counts, _trials
from skdpfair.preprocessing import DPQuantileScaler, _quantile_scaler
from skdpfair.training import defaults, loop, run
from skdpfair.training.processes import Processes
from tests.quick_fits import QUIET

pytestmark = QUIET
N, STEPS, NOISE, BOUND = 60, 300, 40.0, 2.0
GROUPS = [f"g{i}" for i in range(10)]
AMOUNTS = ["pay", "pay_log", "pay_log_at_1", "rent", "rent_log", "rent_log_at_1"]
MODES = ["one", "persons"]


def table(mode="one"):
    """60 records of as many persons, or 180 records of 60, who are alike in all of theirs."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 20)).astype(np.float32))
    X = X.set_axis([f"x{i}" for i in range(20)], axis=1).assign(group=GROUPS * 6)
    y, person = np.arange(N) // 10 % 2, np.arange(N)
    if mode != "persons":
        return X, y, person
    X = X.assign(person=person).loc[X.index.repeat(3)].reset_index(drop=True)
    return X, np.repeat(y, 3), np.repeat(person, 3)


def model(method, mode, levels=GROUPS, **params):
    given = {"epsilon": None, "noise_multiplier": NOISE, "lr": 1e-9, "iterate_average": 0.0}
    given |= {"module": "logistic", "max_steps": STEPS, "batch_size": N, "accountant": "rdp"}
    given |= {"group_col": Groups("group", levels), "classes": [0, 1], "random_state": 1}
    given |= {"max_sample_weight": 1.0}
    if mode == "persons":
        given["persons"] = Persons("person", max_records=3)
    return DPFairClassifier(method, **(given | params))


class First(Processes):
    """The first of two processes; the records of the other weigh nothing, and it draws no noise."""

    def __init__(self):
        super().__init__()
        self.size = 2

    def _exchanged(self, what):
        is_digest = isinstance(what, (bytes, str))  # of its records, which are others
        return [what, what[::-1] if is_digest else what]

    def all_reduce_(self, tensor, op="SUM"):
        return tensor

    def broadcast_(self, tensor):
        return tensor


def fitted(clf, mode, monkeypatch, X=None):
    """Fit to records that weigh nothing, so that sums are noise, in one of the ways to fit."""
    rows, y, _ = table(mode)
    X, nothing = rows if X is None else X, np.zeros(len(y))
    if mode == "processes":
        monkeypatch.setattr(base, "process_group", lambda _: nullcontext(First()))
    if mode == "continued":
        clf.set_params(warm_start=True, max_steps=1).fit(X, y, sample_weight=nothing)
        clf.set_params(max_steps=STEPS)
    return clf.fit(X, y, sample_weight=nothing).privacy_


def has_scale(noise, scale):
    """Check the standard deviation, to within five of its own: no seed is chosen for it."""
    noise = np.ravel(noise)
    assert noise.std() == pytest.approx(scale, rel=5 / math.sqrt(2 * len(noise)))


@pytest.mark.parametrize("mode", ["one", "persons", "processes", "continued"])
def test_steps_have_the_noise_that_is_charged(mode, monkeypatch):
    gradients, counts = [], []
    plain_step, plain_sums = loop.private_step, engine.noisy_sums

    def private_step(*args, **kwargs):
        taken = plain_step(*args, **kwargs)
        gradients.append(taken.gradient.numpy(force=True).copy())
        return taken

    def noisy_sums(*args, **kwargs):
        found = plain_sums(*args, **kwargs)
        counts.extend(total.numpy(force=True).copy() for total in found.values())
        return found

    monkeypatch.setattr(loop, "private_step", private_step)
    monkeypatch.setattr(engine, "noisy_sums", noisy_sums)
    # no gradient is above the threshold, so that the counts are noise, too
    high = {"strict_max_grad_norm": 1e3, "min_strict_max_grad_norm": 1e3}
    method = get_method("global_adapt", max_grad_norm=BOUND, **high)
    report = fitted(model(method, mode), mode, monkeypatch)
    gradient_noise, count_noise = report.releases[-1].noise_multipliers
    assert gradient_noise == NOISE
    has_scale(gradients[-STEPS:], NOISE * BOUND / report.expected_batch_size)
    has_scale(counts[-STEPS:], count_noise)


def noise_of(monkeypatch, module, name, total=None, kind=None):
    """Return the noise that a function of a module adds to values, and the values.

    A person adds as much to counts, whose total is given, as a record; its kind may be given.
    """
    noise, exact, plain = [], [], getattr(module, name)

    def noisy(values, *rest):
        assert total is None or values.sum() == pytest.approx(total)
        assert kind in (None, rest[-1])
        found = plain(values, *rest)
        exact.append(values)
        noise.append(found - values)
        return found

    monkeypatch.setattr(module, name, noisy)
    return noise, exact


@pytest.mark.parametrize(
    ("mode", "kind"),
    [*((mode, "standard") for mode in (*MODES, "processes")), ("one", "gaussian_sum")],
    ids=[*MODES, "processes", "gaussian_sum"],
)
def test_group_counts_have_the_noise_that_is_charged(mode, kind, monkeypatch):
    noise, _ = noise_of(monkeypatch, run, "noisy", N, kind)
    method = get_method("dp_is_sgd", group_count_noise_multiplier=3.0)
    levels = [*GROUPS, *map(str, range(500))]
    clf = model(method, mode, levels, max_steps=1, noise_sampler=kind)
    assert fitted(clf, mode, monkeypatch).releases[0].noise_multipliers == (3.0,)
    has_scale(noise, 3.0)


@pytest.mark.parametrize("mode", [*MODES, "processes"])
def test_column_counts_have_the_noise_that_is_charged(mode, monkeypatch):
    # a record counts in each of two amounts, and in the pair of them
    shares = defaults.AMOUNT_SHARE, defaults.PAIR_SHARE
    noise, _ = noise_of(monkeypatch, run, "noisy", N * np.dot(np.sqrt(shares), [2**0.5, 1]))
    monkeypatch.setattr(defaults, "FINE_SIGNAL_TO_NOISE", 0.0)
    monkeypatch.setattr(defaults, "PAIR_SIGNAL_TO_NOISE", 0.0)
    clf = model("dpsgd", mode, max_steps=1, epsilon=3.0, noise_multiplier=None, module="auto")
    # as of two amounts, inside of their bounds
    X = table(mode)[0].rename(columns={f"x{i}": name for i, name in enumerate(AMOUNTS)})
    X[AMOUNTS] = np.tanh(X[AMOUNTS])
    (paid,) = fitted(clf, mode, monkeypatch, X).releases[0].noise_multipliers
    has_scale(noise, paid * math.sqrt(sum(shares)))


@pytest.mark.parametrize("mode", MODES)
def test_score_counts_have_the_noise_that_is_charged(mode, monkeypatch):
    noise, plain = [], _score_counts.noisy_histograms

    def noisy_histograms(histograms, *rest):
        assert histograms.sum() == pytest.approx(N)  # a person adds as much as a record
        exact = plain(histograms, 0.0, *rest[1:])
        noise.append(plain(histograms, *rest) - exact)
        return exact + noise[-1]

    monkeypatch.setattr(_score_counts, "noisy_histograms", noisy_histograms)
    clf = model("dpsgd", mode, max_steps=2, epsilon=3.0, noise_multiplier=None)
    report = DPThresholdClassifier(clf).fit(*table(mode)[:2]).privacy_
    (paid,) = report.releases[-1].noise_multipliers
    one_column = np.eye(1, _score_counts.N_BINS)
    moved = np.linalg.norm(plain(one_column, 0.0, np.random.default_rng(0)))
    has_scale(noise, paid * moved)


def test_quantiles_have_the_noise_that_is_charged(monkeypatch):
    noise, exact = noise_of(monkeypatch, _quantile_scaler, "noisy")
    X = np.random.default_rng(0).uniform(size=(N, 3))
    for rows in (X, X[1:]):
        scaler = DPQuantileScaler((0, 1), epsilon=1.0).fit(rows)
    (paid,) = scaler.privacy_.releases[0].noise_multipliers
    has_scale(noise, paid * np.linalg.norm(exact[0] - exact[1]))


@pytest.mark.parametrize("mode", MODES)
def test_group_table_has_the_noise_that_is_charged(mode):
    X, y, person = table(mode)
    given = {"sensitive_features": X["group"], "levels": [*GROUPS, *map(str, range(1000))]}
    given["persons"] = person if mode == "persons" else None
    counts = release_group_table(y, y, epsilon=1.0, **given)
    noise = counts[["correct", "incorrect"]].to_numpy(copy=True)
    noise[: len(GROUPS), 0] -= N / len(GROUPS)  # persons as often as records
    assert abs(noise).max() < 40  # more counted would stand out
    scale, noise = 1 / math.sqrt(2) / math.sinh(0.5), noise.ravel()
    assert noise.std() == pytest.approx(scale, rel=0.15)  # five of Laplace's deviations
    exact = release_group_table(y, y, epsilon=1e3, **given)
    assert exact[["correct", "incorrect"]].to_numpy().sum() == N


@pytest.mark.parametrize("mode", MODES)
def test_scores_of_trials_have_the_noise_that_is_charged(mode, monkeypatch):
    class Model:
        classes_ = np.array([0, 1])

    X, y, person = table(mode)
    share = None if mode == "one" else persons.share_of(person)
    score = _trials.scorer(X, y, 5.0, np.random.default_rng(0), share)

    def scores(right, n):
        likely = (np.where(right, y, 1 - y)[:, None] == Model.classes_).astype(float)
        monkeypatch.setattr(_trials, "private_logits", lambda model, X: likely)
        return [score(Model()) for _ in range(n)]

    all_right, one_wrong = scores(y == y, 2000), scores(person != 0, 2000)
    moved = np.mean(all_right) - np.mean(one_wrong)
    assert moved == pytest.approx(1, abs=5 * 5 * math.sqrt(2 / 2000))
    has_scale(all_right, 5.0)
