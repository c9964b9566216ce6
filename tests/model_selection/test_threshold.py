"""Thresholds that are paid for: sensitivity and noise of the counts, the budget, and the rates."""

import pickle
import warnings
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit
from sklearn import config_context
from sklearn.dummy import DummyClassifier
from sklearn.metrics import balanced_accuracy_score, confusion_matrix
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

from skdpfair import DPFairClassifier, Factory, load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.datasets import make_two_groups
from skdpfair.estimators.classifier import private_logits
from skdpfair.exceptions import BudgetExceededError, PrivacyAccountingError, UnsupportedModuleError
from skdpfair.model_selection import DPThresholdClassifier, GroupScorer, _score_counts, _threshold
from skdpfair.model_selection._score_counts import (
    EDGES,
    N_BINS,
    SENSITIVITY,
    score_counts,
    square_root,
)
from skdpfair.model_selection._threshold_choice import (
    CONSTRAINTS,
    OBJECTIVES,
    best_cut,
    best_mixtures,
    can_choose,
    few_to_tell,
    pooled,
)
from skdpfair.preprocessing import lint_pipeline, public_preprocessor
from skdpfair.privacy import compute_epsilon
from skdpfair.report import model_page
from skdpfair.testing import verify_release

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.LowSignalWarning",
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
)
ALPHA = 1e-6  # the chance that correct code fails one of the statistical tests


def table(n=3000, seed=0):
    """Return features, labels (a ninth is positive) and groups with other base rates."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b"], size=n, p=[0.7, 0.3])
    x = rng.normal(size=(n, 3)) + (group == "b")[:, None] * [0.5, 0, 0]
    y = (x @ [1.5, -1.0, 0.5] + rng.logistic(size=n) > 3.5 - 1.5 * (group == "b")).astype(int)
    return x, np.where(y == 1, "yes", "no"), group


def released(scores, classes, groups, n_groups):
    """Return what gets noise, and its sensitivity."""
    with mock.patch.object(_score_counts, "noisy", side_effect=lambda v, *_: v) as noisy:
        rng = np.random.default_rng(0)
        score_counts(np.array(scores), np.array(classes), np.array(groups), n_groups, 1.0, rng)
    return noisy.call_args.args[:2]


# the release


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.floats(-20, 20) | st.sampled_from([np.nan, np.inf, -np.inf, 8.0, -8.0]),
            st.integers(0, 1),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_one_record_moves_the_release_by_at_most_its_sensitivity(rows):
    with_all, sensitivity = released(*zip(*rows, strict=True), n_groups=3)
    without = np.zeros_like(with_all)
    if len(rows) > 1:
        without, _ = released(*zip(*rows[1:], strict=True), n_groups=3)
    assert np.linalg.norm(with_all - without) <= sensitivity * (1 + 1e-12)


def test_the_sensitivity_is_reached():
    moved, sensitivity = released([9.0], [1], [0], n_groups=1)
    assert np.linalg.norm(moved) == pytest.approx(sensitivity)


def test_counts_without_noise_are_those_of_the_records():
    rng = np.random.default_rng(0)
    scores, classes, groups = (
        rng.normal(0, 4, 500),
        rng.integers(0, 2, 500),
        rng.integers(0, 3, 500),
    )
    counts = score_counts(scores, classes, groups, 3, 0.0, rng)
    clipped = np.clip(scores, EDGES[0], np.nextafter(EDGES[-1], 0))
    for g in range(3):
        for c in range(2):
            of = clipped[(groups == g) & (classes == c)]
            np.testing.assert_allclose(counts[g, c], [(of >= e).sum() for e in EDGES], atol=1e-9)


def test_all_groups_and_classes_carry_fresh_noise_of_the_claimed_scale():
    n_histograms, draws, noise = 4, 200, 3.0
    empty, rng = np.zeros((n_histograms, N_BINS)), np.random.default_rng(0)
    found = np.array([_score_counts.released(empty, noise, rng) for _ in range(draws)])
    sd = noise * np.linalg.norm(square_root(N_BINS)[:, 0])
    statistic = ((found / sd) ** 2).sum(axis=(0, 2))
    tail = ALPHA / 2 / (n_histograms + 1)
    low, high = stats.chi2.ppf([tail, 1 - tail], draws * N_BINS)
    assert ((low < statistic) & (statistic < high)).all()
    # independent: the mean over histograms has the variance of a mean
    statistic = ((found.mean(axis=1) / sd) ** 2).sum() * n_histograms
    assert low < statistic < high


# the budget


@pytest.mark.parametrize("method, accountant", [("global_adapt", "pld"), ("dp_is_sgd", "rdp")])
def test_fit_and_counts_cost_the_epsilon_of_the_estimator(method, accountant):
    x, y, group = table()
    inner = DPFairClassifier(method, epsilon=2.0, accountant=accountant, max_steps=50)
    model = DPThresholdClassifier(inner, budget_share=0.1).fit(x, y, sensitive_features=group)
    entries = model.privacy_.releases
    (counts,) = (e for e in entries if e.what == "score counts")
    assert (counts.sample_rate, counts.steps) == (1.0, 1)
    whole = compute_epsilon(entries, model.privacy_.delta, accountant)
    assert 1.99 < whole <= model.privacy_.epsilon <= 2.0
    alone = DPFairClassifier(method, epsilon=2.0, accountant=accountant, max_steps=50)
    alone.fit(x, y, sensitive_features=group)
    assert model.privacy_.noise_multiplier > alone.privacy_.noise_multiplier
    assert model.estimator_.privacy_ is model.privacy_
    assert "weights and thresholds are" in model.privacy_.statement


@pytest.mark.parametrize(("by_group", "kind"), [(False, "standard"), (True, "gaussian_sum")])
def test_the_counts_have_the_noise_that_the_ledger_holds(by_group, kind):
    x, y, group = table()
    model = DPThresholdClassifier(
        DPFairClassifier(max_steps=50, noise_sampler=kind), by_group=by_group
    )
    with mock.patch.object(_score_counts, "noisy", wraps=_score_counts.noisy) as noisy:
        model.fit(x, y, sensitive_features=group)
    (call,) = noisy.call_args_list
    paid = [e.noise_multipliers for e in model.privacy_.releases if e.what == "score counts"]
    assert [(call.args[2],)] == paid and call.args[4] == kind
    share = 0.2 if by_group else 0.05
    mu = model.estimator_.signal_to_noise_ / len(y)
    assert call.args[2] == pytest.approx(1 / (mu * np.sqrt(share)))


def test_two_fits_share_no_noise_and_a_seed_is_bound_to_the_records():
    x, y, _ = table()
    inner = DPFairClassifier(max_steps=50, random_state=0)

    def noise_of(labels, seed):
        with mock.patch.object(_score_counts, "noisy", wraps=_score_counts.noisy) as noisy:
            DPThresholdClassifier(inner, random_state=seed).fit(x, labels)
        return noisy.call_args.args[3].random()

    model = DPThresholdClassifier(inner, random_state=0).fit(x, y)
    assert model.privacy_.seeded and "seed" in model.privacy_.statement
    assert noise_of(y, None) != noise_of(y, None)
    assert noise_of(y, 0) == noise_of(y, 0) != noise_of(np.roll(y, 1), 0)


def test_a_ledger_is_charged_for_fit_and_counts_before_the_fit(tmp_path):
    x, y, _ = table()
    model = DPThresholdClassifier(DPFairClassifier(epsilon=1.0, max_steps=50))
    with PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=1.2, delta=1e-5) as ledger:
        model.fit(x, y)
        spent = ledger.epsilon()
        assert spent == pytest.approx(model.privacy_.epsilon, rel=1e-3)
        with pytest.raises(BudgetExceededError):
            DPThresholdClassifier(DPFairClassifier(epsilon=1.0, max_steps=50)).fit(x, y)
        assert ledger.epsilon() == spent


def test_a_fit_that_fails_at_its_thresholds_keeps_the_fit_before():
    x, y, _ = table()
    model = DPThresholdClassifier(DPFairClassifier(max_steps=20)).fit(x, y)
    before = dict(vars(model))
    with (
        mock.patch.object(_threshold, "best_cut", side_effect=RuntimeError),
        pytest.raises(RuntimeError),
    ):
        model.fit(x, y)
    assert all(vars(model)[name] is before[name] for name in ("estimator_", "privacy_"))


def test_counts_that_nobody_paid_for_are_refused():
    x, y, _ = table()
    model = DPThresholdClassifier(DPFairClassifier(max_steps=50))
    with (
        mock.patch.object(_threshold, "SCORE_COUNTS", "another name"),
        pytest.raises(PrivacyAccountingError, match="has not paid"),
    ):
        model.fit(x, y)


def test_without_privacy_counts_are_exact_and_epsilon_infinite():
    x, y, _ = table()
    model = DPThresholdClassifier(DPFairClassifier(epsilon=None, max_steps=50)).fit(x, y)
    assert not model.privacy_.is_private


# thresholds on exact counts


def exact(scores, labels, groups=None):
    groups = np.zeros(len(scores), dtype=int) if groups is None else groups
    n_groups = groups.max() + 1
    return score_counts(scores, labels, groups, n_groups, 0.0, np.random.default_rng(0))


def made_scores(seed=0, n=20_000):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 2, n)
    labels = (rng.random(n) < 0.2 + 0.2 * groups).astype(int)
    return rng.normal(2.0 * labels - 1.5 + 0.5 * groups, 1.0), labels, groups


def test_thresholds_serve_their_objective():
    scores, labels, _ = made_scores()
    (counts,) = exact(scores, labels)
    costs = np.array([[0.0, 1.0], [5.0, 0.0]])
    value = {
        "balanced_accuracy": lambda p: balanced_accuracy_score(labels, p),
        "accuracy": lambda p: (labels == p).mean(),
    }
    for objective, score in value.items():
        found = score(scores >= EDGES[best_cut(counts, objective)])
        assert found >= max(score(scores >= e) for e in EDGES) - 0.005
    found = scores >= EDGES[best_cut(counts, costs)]
    cost = [(costs * confusion_matrix(labels, scores >= e)).sum() for e in EDGES]
    assert (costs * confusion_matrix(labels, found)).sum() <= 1.03 * min(cost)
    selected = scores >= EDGES[best_cut(counts, "selection_rate")]
    assert selected.mean() == pytest.approx(labels.mean(), abs=0.02)
    selected = scores >= EDGES[best_cut(counts, "selection_rate", 0.1)]
    assert selected.mean() == pytest.approx(0.1, abs=0.02)
    found = scores >= EDGES[best_cut(counts, "true_positive_rate", 0.9)]
    assert 0.9 <= found[labels == 1].mean() < 0.93


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("objective", [*OBJECTIVES, np.array([[0.0, 1.0], [5.0, 0.0]])], ids=str)
def test_mixtures_keep_their_constraint(objective, constraint):
    scores, labels, groups = made_scores()
    counts = exact(scores, labels, groups)
    target = 0.7 if isinstance(objective, str) and objective == "true_positive_rate" else None
    value = {}
    for tolerance in (0.0, 0.05, 1.0):
        weights = best_mixtures(counts, objective, target, constraint, tolerance)
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        rates = np.einsum("ge,gce->gc", weights, counts / counts[..., :1])
        shares = counts[..., 0] / counts[..., 0].sum(axis=1, keepdims=True)
        gaps = np.abs(np.diff(rates, axis=0)).ravel()
        if constraint == "demographic_parity":
            gaps = np.abs(np.diff((rates * shares).sum(axis=1)))
        elif constraint == "equal_opportunity":
            gaps = gaps[1:]
        assert gaps.max() <= tolerance + 1e-6
        value[tolerance] = (rates * counts[..., 0] * [-1, 1]).sum()
    if isinstance(objective, str) and objective == "accuracy":
        assert value[0.0] <= value[0.05] <= value[1.0] + 1e-6


def test_groups_get_equal_odds_in_predictions():
    x, y, group = table(20_000)
    inner = DPFairClassifier(epsilon=8.0, max_steps=100, random_state=0)
    odds = {}
    for constraint in (None, "equalized_odds"):
        model = DPThresholdClassifier(inner, constraint=constraint, random_state=0)
        model.fit(x, y, sensitive_features=group)
        given = {"sensitive_features": group, "random_state": 0} if constraint else {}
        predicted = model.predict(x, **given) == "yes"
        rates = [[predicted[(group == g) & (y == c)].mean() for c in ("no", "yes")] for g in "ab"]
        odds[constraint] = np.abs(np.diff(rates, axis=0)).max()
    assert odds["equalized_odds"] < 0.02 < odds[None]


def test_balanced_accuracy_of_a_rare_class_is_gained_at_the_cost_of_accuracy():
    x, y, _ = table(6000)
    inner = DPFairClassifier(epsilon=1.0, random_state=0)
    plain = inner.fit(x, y).predict(x)
    chosen = DPThresholdClassifier(inner, random_state=0).fit(x, y).predict(x)
    assert balanced_accuracy_score(y, chosen) > balanced_accuracy_score(y, plain) + 0.05
    assert (chosen == y).mean() < (plain == y).mean()


def test_a_group_without_records_of_a_class_does_not_stop_the_others():
    scores, labels, groups = made_scores()
    groups = np.where((labels == 0) & (groups == 0) & (np.arange(len(labels)) % 50 == 0), 2, groups)
    counts = exact(scores, labels, groups)
    assert counts[2, 1, 0] == 0
    counts = pooled(counts, 0.0)
    weights = best_mixtures(counts, "true_positive_rate", 0.8, "equal_opportunity", 0.0)
    rates = np.einsum("ge,ge->g", weights[:2], counts[:2, 1] / counts[:2, 1, :1])
    assert rates[0] == pytest.approx(rates[1], abs=1e-4) and rates[0] >= 0.8 - 1e-4


# what computes the scores


class Mixes(nn.Module):
    """Mixes records where training does not look."""

    def __init__(self, how):
        super().__init__()
        self.how, self.layer, self.more = how, nn.Linear(3, 2), nn.Parameter(torch.zeros(1))

    def forward(self, x):
        if self.how == "evaluation" and not self.training and len(x) > 300:
            x = x - x.mean(0)
        if self.how == "size" and len(x) > 300:
            x = x - x.mean(0)
        if self.how == "no gradients" and not torch.is_grad_enabled() and len(x) > 300:
            self.more.data.fill_(float(x.max()))
            x = x - x.mean(0)
        return self.layer(x) + 0 * self.more


@pytest.mark.parametrize("how", ["evaluation", "size", "no gradients"])
def test_a_score_is_that_of_its_record_alone(how):
    x, y, _ = table(400)
    other = np.concatenate([[[4242.0] * 3], x[1:]])
    inner = DPFairClassifier("dpsgd", module=Factory(Mixes, how=how), max_steps=2)
    model = inner.fit(x, y)
    scores = [private_logits(model, rows) for rows in (x, other)]
    np.testing.assert_array_equal(scores[0][1:], scores[1][1:])
    assert (scores[0][0] != scores[1][0]).any()
    assert not any((p == 4242.0).any() for p in model.net_.module_.parameters())


def test_a_module_that_must_mix_records_to_predict_is_refused_before_it_costs(tmp_path):
    class Batch(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x if self.training else x - x.mean(0))

    x, y, _ = table(1000)
    model = DPThresholdClassifier(DPFairClassifier("dpsgd", module=Batch, max_steps=10))
    with (
        PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=1.2, delta=1e-5) as ledger,
        pytest.raises(UnsupportedModuleError),
    ):
        model.fit(x, y)
    assert ledger.epsilon() == 0.0


# around the classifier


def test_a_pickle_holds_one_model_and_no_seed():
    x, y, _ = table()
    inner = DPFairClassifier(max_steps=20, random_state=123456789).fit(x, y)
    copy = pickle.loads(pickle.dumps(DPThresholdClassifier(inner, random_state=5).fit(x, y)))
    assert not hasattr(copy.estimator, "net_")
    assert copy.estimator.random_state is None is copy.random_state
    assert copy.estimator_.random_state is None


def test_a_share_of_given_noise_is_a_share_of_what_it_costs():
    x, y, _ = table()
    given = {"epsilon": None, "noise_multiplier": 2.0, "max_steps": 20}
    alone = DPFairClassifier(**given).fit(x, y).privacy_.epsilon
    both = DPThresholdClassifier(DPFairClassifier(**given)).fit(x, y).privacy_.epsilon
    assert alone < both < 1.1 * alone


def test_labels_are_no_groups_of_rows_to_predict():
    x, y, _ = table(200)
    model = DPThresholdClassifier(DPFairClassifier(group_col="target"), by_group=True)
    with pytest.raises(ValueError, match="no column of rows to predict"):
        model.fit(x, y)


def test_groups_come_from_the_column_that_the_classifier_names():
    x, y, group = table()
    X = pd.DataFrame(x, columns=list("uvw")).assign(group=group)
    features = public_preprocessor(
        dict.fromkeys("uvw", (-4, 4)), passthrough=["group"], encoding="linear"
    )
    pipe = make_pipeline(features, DPFairClassifier(group_col="group", max_steps=50))
    model = DPThresholdClassifier(pipe, by_group=True).fit(X, y)
    assert list(model.thresholds_) == ["a", "b"]
    assert list(model.feature_names_in_) == ["u", "v", "w", "group"]
    assert model.predict(X).shape == y.shape
    assert not lint_pipeline(model).findings
    copy = pickle.loads(pickle.dumps(model))
    assert (copy.predict(X, random_state=0) == model.predict(X, random_state=0)).all()
    assert copy.random_state is None


@pytest.mark.parametrize(
    "params, given, match",
    [
        ({"objective": "f1"}, {}, "objective must be one of"),
        ({"objective": [[1, 2, 3]]}, {}, "objective must be a name, or costs"),
        ({"objective": "true_positive_rate"}, {}, "target must be the smallest"),
        ({"constraint": "parity"}, {}, "constraint must be one of"),
        ({"constraint": "equalized_odds"}, {}, "need groups"),
        ({"tolerance": 2.0}, {}, "tolerance"),
        ({"budget_share": 1.0}, {}, "budget_share"),
        ({"random_state": -1}, {}, "random_state"),
        ({"random_state": np.random.RandomState(0)}, {}, "random_state"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_fit(params, given, match):
    x, y, _ = table(200)
    model = DPThresholdClassifier(DPFairClassifier(max_steps=5), **params)
    with (
        mock.patch.object(DPFairClassifier, "fit") as fit,
        pytest.raises((ValueError, TypeError), match=match),
    ):
        model.fit(x, y, **given)
    assert not fit.called


def test_other_estimators_and_classes_are_refused():
    x, y, _ = table(200)
    with pytest.raises(TypeError, match="must be a DPFairClassifier or a Pipeline"):
        DPThresholdClassifier(DummyClassifier()).fit(x, y)
    with pytest.raises(ValueError, match="Only binary classification"):
        DPThresholdClassifier(DPFairClassifier()).fit(x, np.arange(200) % 3)


def test_predictions_need_the_groups_that_thresholds_depend_on():
    x, y, group = table()
    model = DPThresholdClassifier(DPFairClassifier(max_steps=50), by_group=True)
    model.fit(x, y, sensitive_features=group)
    with pytest.raises(ValueError, match="need groups"):
        model.predict(x)
    with pytest.raises(ValueError, match="sensitive_features"):
        model.predict(x, sensitive_features=np.where(group == "a", "c", "b"))


@pytest.mark.parametrize("in_pipeline", [False, True])
@pytest.mark.parametrize("scoring", [None, GroupScorer(), GroupScorer(measures=["accuracy"])])
def test_thresholds_by_group_are_cross_validated_by_passed_groups(scoring, in_pipeline):
    X, y, group = table(600)
    model = DPThresholdClassifier(
        DPFairClassifier("dpsgd", epsilon=8.0, accountant="rdp", max_steps=8, lr=1.0), by_group=True
    )
    model = make_pipeline(FunctionTransformer(), model) if in_pipeline else model
    given = {"params": {"sensitive_features": group}, "cv": 2, "error_score": "raise"}
    with config_context(enable_metadata_routing=True):
        found = cross_validate(model, X, y, scoring=scoring, return_estimator=True, **given)
        search = GridSearchCV(model, {}, scoring=scoring, cv=2, refit=False, error_score="raise")
        search.fit(X, y, sensitive_features=group)
        if not in_pipeline and scoring is None:
            with pytest.raises(ValueError, match=r"scoring=None and GroupScorer"):
                cross_validate(model, X, y, scoring="accuracy", **given)
    name = "test_score" if scoring is None else "test_accuracy"
    folds = StratifiedKFold(2).split(X, y)
    for fitted, (_, rows), score in zip(found["estimator"], folds, found[name], strict=True):
        predicted = fitted.predict(X[rows], sensitive_features=group[rows])
        assert score == pytest.approx((predicted == y[rows]).mean())


def test_a_file_holds_the_threshold_and_predicts_by_it(tmp_path):
    data = make_two_groups(4000, random_state=0)
    rows = np.flatnonzero((data.target == 0) | (np.arange(4000) % 5 == 0))  # a rare class
    X, y = data.data.iloc[rows], np.asarray(data.target)[rows]
    clf = DPFairClassifier("dpsgd", epsilon=8.0, module="logistic", max_steps=30)
    model = DPThresholdClassifier(clf).fit(X, y)
    path = tmp_path / "model.safetensors"
    model.save_release(path)
    verify_release(path)
    loaded = load_release(path)
    assert (loaded.predict(X) == model.predict(X)).all()
    assert not (loaded.predict(X) == loaded.predict_proba(X).argmax(axis=1)).all()
    assert loaded.privacy_ == model.privacy_ and "thresholds" in loaded.privacy_.what
    assert (pickle.loads(pickle.dumps(loaded)).predict(X) == model.predict(X)).all()
    page = model_page(path)
    assert f"<dd>{model.thresholds_['all'][0][0]:.4f}</dd>" in page
    again = loaded.fit(X, y)  # without a threshold
    assert (again.predict(X) == again.predict_proba(X).argmax(axis=1)).all()
    vars(loaded).update(_cut=0.123456)
    with pytest.raises(ValueError, match="_cut"):
        loaded.save_release(path)
    by_group = DPThresholdClassifier(clf, by_group=True)
    by_group.fit(X, y, sensitive_features=data.sensitive_features.iloc[rows])
    with pytest.raises(ValueError, match="A file holds one threshold"):
        by_group.save_release(path)


@pytest.mark.parametrize("end", [0, -1])
def test_a_file_keeps_thresholds_beyond_all_scores(end, tmp_path):
    data = make_two_groups(1000, random_state=0)
    clf = DPFairClassifier("dpsgd", epsilon=8.0, module="logistic", max_steps=2)
    model = DPThresholdClassifier(clf).fit(data.data, data.target)
    model.thresholds_ = {"all": [(float(expit(EDGES[end])), 1.0)]}
    model.save_release(tmp_path / "m.safetensors")
    far = 1e4 * data.data
    predicted = load_release(tmp_path / "m.safetensors").predict(far)
    assert (predicted == model.predict(far)).all() and len(set(predicted)) == 1


def curves(n, shift, share, rng):
    """Return exact counts of a group: scores of its classes are shifted normal."""
    classes = (rng.random(n) < share).astype(int)
    scores = rng.normal(2 * classes - 1 + shift)
    return score_counts(scores, classes, np.zeros(n, int), 1, 0.0, rng)[0]


def test_a_small_group_has_the_common_threshold_and_a_large_one_its_own():
    rng = np.random.default_rng(0)
    rest, other = curves(20_000, 0.0, 0.3, rng), curves(20_000, 3.0, 0.1, rng)
    common = best_cut(rest, "balanced_accuracy")
    own = best_cut(other, "balanced_accuracy")
    assert own - common > 15  # 8 for each unit of the logit
    for size, nearest in ((20_000, own), (5, common)):
        counts = np.array([rest, other * size / 20_000])
        noisy = counts + rng.normal(0, 20.0, counts.shape)
        noisy[..., -1] = 0
        cut = best_cut(pooled(noisy, 20.0)[1], "balanced_accuracy")
        assert abs(cut - nearest) <= 6, size
    counts = np.array([rest, other])
    np.testing.assert_allclose(pooled(counts, 0.0)[..., 0], counts[..., 0], rtol=0.02)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_a_group_of_noise_binds_no_other_group(constraint):
    known, aim = exact(*made_scores()), "balanced_accuracy"
    rates = known / known[..., :1]
    alone = best_mixtures(pooled(known, 30.0), aim, None, constraint, 0.0)
    nobody = np.zeros(0, dtype=int)
    # one of the draws has counts of 0
    for noise in noisy_draws(nobody, nobody, nobody, 30.0, 5):
        counts = pooled(np.concatenate([known, noise]), 30.0)
        weights = best_mixtures(counts, aim, None, constraint, 0.0)
        # the objective counts the records of the third group, too
        found = np.einsum("kge,gce->kgc", [alone, weights[:2]], rates)
        assert np.abs(np.diff(found, axis=0)).max() < 0.05


def test_groups_that_take_the_rates_of_all_are_named():
    counts, levels = exact(*made_scores()), np.array(["a", "b"])
    counts = counts * np.array([1.0, 0.01])[:, None, None]
    for params in ({"by_group": True}, *({"constraint": each} for each in CONSTRAINTS)):
        model = DPThresholdClassifier(DPFairClassifier(), **params)
        name = params.get("constraint", "by_group")
        with pytest.warns(UserWarning, match=rf"the group\(s\) b have too few .*: {name} takes"):
            model._thresholds("accuracy", counts, levels, 30.0 / SENSITIVITY**2, levels)


@pytest.mark.parametrize("noise", [0.0, 30.0])
def test_a_rare_class_of_a_large_group_leaves_what_needs_the_other(noise):
    """Selection rates need no class, and true-positive rates need positives only."""
    counts = exact(*made_scores())
    rare = counts * np.array([[[1.0], [1.0]], [[0.001], [1.0]]])
    told = {measure: few_to_tell(rare, measure, noise).tolist() for measure in CONSTRAINTS}
    assert told["equalized_odds"] == [False, True]
    assert told["demographic_parity"] == told["equal_opportunity"] == [False] * 2
    rare = counts * np.array([[[1.0], [1.0]], [[1.0], [0.01]]])
    weights = best_mixtures(pooled(rare, noise), "accuracy", None, "demographic_parity", 0.0)
    rates = np.einsum("ge,gce->gc", weights, rare).sum(axis=1) / rare[..., 0].sum(axis=1)
    assert rates[0] == pytest.approx(rates[1], abs=0.03)


def noisy_draws(scores, labels, groups, deviation, draws):
    """Return noisy counts of so many draws, with the noise of the library."""
    n_groups, noise = groups.max(initial=0) + 1, deviation / SENSITIVITY**2
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        yield score_counts(scores, labels, groups, n_groups, noise, rng)


@pytest.mark.parametrize("small", [100, 250, 500])
@pytest.mark.parametrize("constraint", ["equal_opportunity", "equalized_odds"])
def test_parity_harms_no_small_group_in_any_draw(small, constraint):
    """Raw counts fail in 22 to 37 of 40 draws, and pooled ones in 1 of 1200 (500, one rate)."""
    rng, n = np.random.default_rng(0), 20_000
    groups = (np.arange(n + small) >= n).astype(int)
    labels = (rng.random(n + small) < np.where(groups == 1, 0.12, 0.3)).astype(int)
    scores = rng.normal(2.4 * labels - 2.0 - 0.25 * groups, 1.1)
    # rates of the population
    means = 2.4 * np.arange(2) - 2.0 - 0.25 * np.arange(2)[:, None]
    rates = stats.norm.sf(EDGES, means[..., None], 1.1)
    plain = rates[..., N_BINS // 2]
    for counts in noisy_draws(scores, labels, groups, 25.0, 40):
        weights = best_mixtures(pooled(counts, 25.0), "accuracy", None, constraint, 0.0)
        found = np.einsum("ge,gce->gc", weights, rates)
        wider = np.abs(np.diff(found, axis=0)) - np.abs(np.diff(plain, axis=0))
        lost = [[0.88, -0.12]] @ (found - plain)[1]
        assert wider[0, 1] < 0.05 and lost < 0.05


def test_shares_of_classes_in_a_group_of_noise_are_those_of_all():
    rng = np.random.default_rng(0)
    rest = curves(20_000, 0.0, 0.3, rng)
    for positives in (0, 40):
        noise = np.array([np.full(N_BINS + 1, 40.0 - positives), np.full(N_BINS + 1, positives)])
        noise[:, -1] = 0
        counts = pooled(np.array([rest, noise]), 25.0)[1]
        assert counts[1, 0] / counts[:, 0].sum() == pytest.approx(0.3, abs=0.05)
        cut = best_cut(counts, "accuracy")
        assert abs(cut - best_cut(rest, "accuracy")) <= 6


@pytest.mark.parametrize(("n_groups", "many"), [(1, 400), (30, 2400)])
def test_a_threshold_is_chosen_only_where_counts_tell(n_groups, many):
    """By 58 positives in at most one draw of 1000, by many in all but one: else, ALPHA fails."""
    draws, rng, deviation = 40, np.random.default_rng(0), 36.0
    most = stats.binom.isf(ALPHA, draws, 1e-3)
    for positives, is_told in ((58, False), (many, True)):
        labels = (np.arange(9000) < positives).astype(int)
        groups = np.arange(len(labels)) % n_groups
        found = [
            can_choose(counts, "balanced_accuracy", deviation)
            for counts in noisy_draws(rng.normal(labels - 3.0), labels, groups, deviation, draws)
        ]
        assert draws * is_told - np.sum(found) * (2 * is_told - 1) <= most


@pytest.mark.parametrize(("positives", "target", "is_told"), [(250, 0.98, False), (250, 0.8, True)])
def test_the_positives_that_a_target_leaves_out_exceed_the_noise(positives, target, is_told):
    counts = np.zeros((1, 2, 1))
    counts[0, :, 0] = 2750, positives
    assert can_choose(counts, "true_positive_rate", 10.5, target) == is_told


def test_a_share_of_positives_needs_positives():
    counts = np.zeros((1, 2, 1))
    for positives, is_told in ((40, False), (400, True)):
        counts[0, :, 0] = 3000 - positives, positives
        assert can_choose(counts, "selection_rate", 10.5) == is_told
        assert can_choose(counts, "selection_rate", 10.5, 0.2)


@pytest.mark.parametrize(
    "how",
    [{}, {"by_group": True}, {"constraint": "equal_opportunity", "objective": "accuracy"}],
    ids=str,
)
def test_thresholds_stay_at_one_half_where_a_class_is_rare(how, tmp_path):
    rng = np.random.default_rng(0)
    y = np.where(np.arange(2776) < 58, "ill", "well")
    X = rng.normal((y == "ill")[:, None] * [0.5, 0.3], size=(2776, 2))
    group = rng.choice(["f", "m"], 2776)
    model = DPThresholdClassifier(
        DPFairClassifier("dpsgd", module="logistic", classes=["well", "ill"], max_steps=5), **how
    )
    match = r"stays at 0\.5: .* records of class \w+ and \d+ of class \w+, too few of one"
    with pytest.warns(UserWarning, match=match):
        model.fit(X, y, sensitive_features=group)
    assert set(map(tuple, model.thresholds_.values())) == {((0.5, 1.0),)}
    predicted = model.predict(X, sensitive_features=group)
    assert (predicted == model.estimator_.predict(X)).all()
    if not how:
        model.save_release(tmp_path / "m.safetensors")
        assert (load_release(tmp_path / "m.safetensors").predict(X) == predicted).all()


@pytest.mark.parametrize(
    "how", [{}, {"by_group": True}, {"constraint": "demographic_parity"}], ids=str
)
def test_a_threshold_that_costs_a_group_much_accuracy_is_reported(how):
    by_group = bool(how)
    rng = np.random.default_rng(0)
    n = 6000
    group = np.where(rng.random(n) < 0.5, "many", "few")
    y = (rng.random(n) < np.where(group == "few", 0.05, 0.5)).astype(int)
    x = np.clip(rng.normal(0.7 * (2 * y - 1)), -3, 3)
    X = np.column_stack([x, (group == "few") * by_group])
    model = DPThresholdClassifier(DPFairClassifier(epsilon=8.0), **how)
    remedy = "A larger tol" if "constraint" in how else "objective='acc"
    loss = rf"for few: [89]\d % to [5678]\d % of about [23]\d\d\d records.*\. {remedy}"
    with pytest.warns(UserWarning, match=loss):
        model.fit(X.astype(np.float32), y, sensitive_features=group)
    frame = pd.DataFrame(X, columns=["x", "few"]).assign(group=group)
    named = DPThresholdClassifier(DPFairClassifier(epsilon=8.0, group_col="group"), **how)
    with pytest.warns(UserWarning, match="for few: [89]"):
        named.fit(frame, y)
    assert list(named.thresholds_) == (["few", "many"] if by_group else ["all"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(objective="accuracy", constraint=None).fit(X, y, sensitive_features=group)


@pytest.mark.parametrize(("loss", "is_told"), [(0.06, True), (0.04, False)])
def test_five_points_of_accuracy_are_reported(loss, is_told):
    edges = np.eye(N_BINS + 1)[[N_BINS // 2 - 10]]
    counts = np.zeros((1, 2, N_BINS + 1))
    counts[0, 0, : N_BINS // 2 - 5] = 1000 * loss  # negatives between both thresholds
    counts[0, :, 0] = 700.0, 300.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _threshold._warn_of_losses(["a"], counts, 10.0, edges, "")
    texts = [str(w.message) for w in caught]
    assert [("a: 70 % to 64 % of about 1000 records (noise ± 2)" in text) for text in texts] == [
        True
    ] * is_told
