"""A classifier with private thresholds: what it costs, predicts, saves, warns of and refuses."""

import pickle
import warnings
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit
from sklearn import config_context
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

from skdpfair import DPFairClassifier, Factory, load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.datasets import make_two_groups
from skdpfair.estimators.classifier import private_logits
from skdpfair.exceptions import BudgetExceededError, PrivacyAccountingError, UnsupportedModuleError
from skdpfair.model_selection import (
    DPThresholdClassifier,
    GroupScorer,
    _score_counts,
    _threshold_classifier,
)
from skdpfair.model_selection._score_counts import EDGES, N_BINS, SENSITIVITY
from skdpfair.model_selection._threshold_choice import CONSTRAINTS
from skdpfair.preprocessing import lint_pipeline, public_preprocessor
from skdpfair.privacy import compute_epsilon
from skdpfair.report import model_page
from skdpfair.testing import verify_release

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")


def table(n=3000):
    """Return features, labels (a ninth is positive) and groups with other base rates."""
    rng = np.random.default_rng(0)
    group = rng.choice(["a", "b"], size=n, p=[0.7, 0.3])
    x = rng.normal(size=(n, 3)) + (group == "b")[:, None] * [0.5, 0, 0]
    y = (x @ [1.5, -1.0, 0.5] + rng.logistic(size=n) > 3.5 - 1.5 * (group == "b")).astype(int)
    return x, np.where(y == 1, "yes", "no"), group


X, Y, GROUP = table()


def classifier(method="dpsgd", **params):
    return DPFairClassifier(method, **{"max_steps": 20} | params)


# the budget


@pytest.mark.parametrize("method, accountant", [("global_adapt", "pld"), ("dp_is_sgd", "rdp")])
def test_fit_and_counts_cost_the_epsilon_of_the_estimator(method, accountant):
    inner = classifier(method, epsilon=2.0, accountant=accountant, max_steps=50)
    model = DPThresholdClassifier(inner, budget_share=0.1).fit(X, Y, sensitive_features=GROUP)
    report = model.privacy_
    (counts,) = (e for e in report.releases if e.what == "score counts")
    assert (counts.sample_rate, counts.steps) == (1.0, 1)
    whole = compute_epsilon(report.releases, report.delta, accountant)
    assert 1.99 < whole <= report.epsilon <= 2.0
    alone = inner.fit(X, Y, sensitive_features=GROUP)
    assert report.noise_multiplier > alone.privacy_.noise_multiplier
    assert model.estimator_.privacy_ is report
    assert report.what == "fitted weights and thresholds"


@pytest.mark.parametrize(("by_group", "kind"), [(False, "standard"), (True, "gaussian_sum")])
def test_counts_have_the_noise_that_the_report_holds(by_group, kind):
    model = DPThresholdClassifier(classifier(noise_sampler=kind), by_group=by_group)
    with mock.patch.object(_score_counts, "noisy", wraps=_score_counts.noisy) as noisy:
        model.fit(X, Y, sensitive_features=GROUP)
    (call,) = noisy.call_args_list
    paid = [e.noise_multipliers for e in model.privacy_.releases if e.what == "score counts"]
    assert [(call.args[2],)] == paid and call.args[4] == kind
    share = 0.2 if by_group else 0.05
    mu = model.estimator_.signal_to_noise_ / len(Y)
    assert call.args[2] == pytest.approx(1 / (mu * np.sqrt(share)))


def test_counts_of_two_fits_share_no_noise_and_mix_records_into_a_seed():
    inner = classifier(random_state=0)

    def noise_of(labels, seed):
        with mock.patch.object(_score_counts, "noisy", wraps=_score_counts.noisy) as noisy:
            model = DPThresholdClassifier(inner, random_state=seed).fit(X, labels)
        assert model.privacy_.seeded
        return noisy.call_args.args[3].random()

    assert noise_of(Y, None) != noise_of(Y, None)
    assert noise_of(Y, 0) == noise_of(Y, 0) != noise_of(np.roll(Y, 1), 0)


def test_ledger_is_charged_for_fit_and_counts_before_the_fit(tmp_path):
    model = DPThresholdClassifier(classifier(epsilon=1.0))
    with PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=1.2, delta=1e-5) as ledger:
        spent = model.fit(X, Y).privacy_.epsilon
        assert ledger.epsilon() == pytest.approx(spent, rel=1e-3)
        with pytest.raises(BudgetExceededError):
            model.fit(X, Y)
        assert ledger.epsilon() == pytest.approx(spent, rel=1e-3)


def test_fit_that_fails_at_its_thresholds_leaves_the_fit_before():
    model = DPThresholdClassifier(classifier()).fit(X, Y)
    before = dict(vars(model))
    with (
        mock.patch.object(_threshold_classifier, "best_cut", side_effect=RuntimeError),
        pytest.raises(RuntimeError),
    ):
        model.fit(X, Y)
    assert all(vars(model)[name] is before[name] for name in ("estimator_", "privacy_"))


def test_counts_that_no_release_paid_for_are_refused():
    with (
        mock.patch.object(_threshold_classifier, "SCORE_COUNTS", "another name"),
        pytest.raises(PrivacyAccountingError, match="not paid"),
    ):
        DPThresholdClassifier(classifier()).fit(X, Y)


def test_epsilon_none_makes_counts_exact_and_no_model_private():
    model = DPThresholdClassifier(classifier(epsilon=None)).fit(X, Y)
    assert not model.privacy_.is_private


def test_noise_multiplier_shares_what_it_costs_with_the_counts():
    inner = classifier(epsilon=None, noise_multiplier=2.0)
    alone = inner.fit(X, Y).privacy_.epsilon
    assert alone < DPThresholdClassifier(inner).fit(X, Y).privacy_.epsilon < 1.1 * alone


# predictions


def test_predict_gives_groups_equal_odds():
    x, y, group = table(20_000)
    inner = DPFairClassifier(epsilon=8.0, max_steps=100, random_state=0)
    odds = {}
    for constraint in (None, "equalized_odds"):
        model = DPThresholdClassifier(inner, constraint=constraint, random_state=0)
        model.fit(x, y, sensitive_features=group)
        named = {"sensitive_features": group, "random_state": 0} if constraint else {}
        predicted = model.predict(x, **named) == "yes"
        rates = [[predicted[(group == g) & (y == c)].mean() for c in ("no", "yes")] for g in "ab"]
        odds[constraint] = np.abs(np.diff(rates, axis=0)).max()
    assert odds["equalized_odds"] < 0.02 < odds[None]


def test_predict_gains_balanced_accuracy_of_a_rare_class_at_the_cost_of_accuracy():
    x, y, _ = table(6000)
    inner = DPFairClassifier(epsilon=1.0, random_state=0)
    plain = inner.fit(x, y).predict(x)
    chosen = DPThresholdClassifier(inner, random_state=0).fit(x, y).predict(x)
    assert balanced_accuracy_score(y, chosen) > balanced_accuracy_score(y, plain) + 0.05
    assert (chosen == y).mean() < (plain == y).mean()


def test_costs_decide_by_the_least_cost_to_expect_and_need_no_counts():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 2))
    y = np.digitize(x[:, 0] + rng.logistic(size=3000), [-1, 1])
    classes = np.array(["low", "middle", "top"])
    costs = np.array([[0, 1, 2], [1, 0, 1], [20, 1, 0]])
    model = DPThresholdClassifier(classifier(random_state=0), costs=costs.tolist())
    model.fit(x, classes[y])
    plain = classifier(random_state=0).fit(x, classes[y])
    # the fit has the whole budget
    assert model.privacy_ == plain.privacy_ and "score counts" not in repr(model.privacy_.releases)
    predicted = np.searchsorted(classes, model.predict(x))
    expected = model.predict_proba(x) @ costs
    rows = np.arange(len(x))
    np.testing.assert_array_equal(expected[rows, predicted], expected.min(axis=1))
    of_plain = costs[y, np.searchsorted(classes, plain.predict(x))].mean()
    assert costs[y, predicted].mean() < of_plain and model.thresholds_ == {}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), model.predict(x))
    with pytest.raises(ValueError, match=r"^A file holds one threshold"):
        model.save_release("file")
    equal = clone(model).set_params(costs=1 - np.eye(3)).fit(x, classes[y])
    np.testing.assert_array_equal(equal.predict(x), plain.predict(x))


def test_predict_needs_the_groups_of_the_thresholds():
    model = DPThresholdClassifier(classifier(), by_group=True)
    model.fit(X, Y, sensitive_features=GROUP)
    with pytest.raises(ValueError, match="need groups"):
        model.predict(X)
    with pytest.raises(ValueError, match="sensitive_features"):
        model.predict(X, sensitive_features=np.where(GROUP == "a", "c", "b"))


def test_predict_takes_groups_of_the_column_that_the_classifier_names():
    frame = pd.DataFrame(X, columns=list("uvw")).assign(group=GROUP)
    features = public_preprocessor(
        dict.fromkeys("uvw", (-4, 4)), passthrough=["group"], encoding="linear"
    )
    pipe = make_pipeline(features, classifier(group_col="group"))
    model = DPThresholdClassifier(pipe, by_group=True, random_state=5).fit(frame, Y)
    assert list(model.thresholds_) == ["a", "b"]
    assert list(model.feature_names_in_) == ["u", "v", "w", "group"]
    assert not lint_pipeline(model).findings
    copy = pickle.loads(pickle.dumps(model))
    predicted = model.predict(frame, random_state=0)
    assert (copy.predict(frame, random_state=0) == predicted).all()
    assert predicted.shape == Y.shape


@pytest.mark.parametrize("in_pipeline", [False, True])
@pytest.mark.parametrize("scoring", [None, GroupScorer(), GroupScorer(measures=["accuracy"])])
def test_score_receives_groups_that_cross_validate_routes(scoring, in_pipeline):
    X, y, group = table(600)
    inner = classifier(epsilon=8.0, accountant="rdp", max_steps=8, lr=1.0)
    model = DPThresholdClassifier(inner, by_group=True)
    model = make_pipeline(FunctionTransformer(), model) if in_pipeline else model
    routed = {"params": {"sensitive_features": group}, "cv": 2, "error_score": "raise"}
    with config_context(enable_metadata_routing=True):
        found = cross_validate(model, X, y, scoring=scoring, return_estimator=True, **routed)
        search = GridSearchCV(model, {}, scoring=scoring, cv=2, refit=False, error_score="raise")
        search.fit(X, y, sensitive_features=group)
        if not in_pipeline and scoring is None:
            with pytest.raises(ValueError, match=r"scoring=None and GroupScorer"):
                cross_validate(model, X, y, scoring="accuracy", **routed)
    name = "test_score" if scoring is None else "test_accuracy"
    folds = StratifiedKFold(2).split(X, y)
    for fitted, (_, rows), score in zip(found["estimator"], folds, found[name], strict=True):
        predicted = fitted.predict(X[rows], sensitive_features=group[rows])
        assert score == pytest.approx((predicted == y[rows]).mean())


# what computes the scores


class Mixes(nn.Module):
    """Mixes records where training does not look."""

    def __init__(self, how):
        super().__init__()
        self.how, self.layer, self.more = how, nn.Linear(3, 2), nn.Parameter(torch.zeros(1))

    def forward(self, x):
        if self.how == "always" and not self.training:
            return self.layer(x - x.mean(0))
        if self.how == "evaluation" and not self.training and len(x) > 300:
            x = x - x.mean(0)
        if self.how == "size" and len(x) > 300:
            x = x - x.mean(0)
        if self.how == "no gradients" and not torch.is_grad_enabled() and len(x) > 300:
            self.more.data.fill_(float(x.max()))
            x = x - x.mean(0)
        return self.layer(x) + 0 * self.more


@pytest.mark.parametrize("how", ["evaluation", "size", "no gradients"])
def test_private_logits_are_of_each_record_alone(how):
    x, y = X[:400], Y[:400]
    other = np.concatenate([[[4242.0] * 3], x[1:]])
    model = classifier(module=Factory(Mixes, how=how), max_steps=2).fit(x, y)
    scores = [private_logits(model, rows) for rows in (x, other)]
    np.testing.assert_array_equal(scores[0][1:], scores[1][1:])
    assert (scores[0][0] != scores[1][0]).any()
    assert not any((p == 4242.0).any() for p in model.net_.module_.parameters())


def test_module_that_must_mix_records_to_predict_is_refused_before_it_is_charged(tmp_path):
    model = DPThresholdClassifier(classifier(module=Factory(Mixes, how="always")))
    with (
        PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=1.2, delta=1e-5) as ledger,
        pytest.raises(UnsupportedModuleError),
    ):
        model.fit(X[:1000], Y[:1000])
    assert ledger.epsilon() == 0.0


# pickles and files


def test_pickle_holds_one_model_and_no_seed():
    inner = classifier(random_state=123456789).fit(X, Y)
    copy = pickle.loads(pickle.dumps(DPThresholdClassifier(inner, random_state=5).fit(X, Y)))
    assert not hasattr(copy.estimator, "net_")
    seeds = [part.random_state for part in (copy, copy.estimator, copy.estimator_)]
    assert seeds == [None] * 3


def test_save_release_keeps_one_threshold_and_predicts_by_it(tmp_path):
    data = make_two_groups(4000, random_state=0)
    rows = np.flatnonzero((data.target == 0) | (np.arange(4000) % 5 == 0))  # a rare class
    X, y = data.data.iloc[rows], np.asarray(data.target)[rows]
    clf = classifier(epsilon=8.0, module="logistic", max_steps=30)
    model, path = DPThresholdClassifier(clf).fit(X, y), tmp_path / "model.safetensors"
    predicted = model.predict(X)
    model.save_release(path)
    verify_release(path)
    loaded = load_release(path)
    assert (loaded.predict(X) == predicted).all()
    assert (loaded.predict_proba(X) == model.predict_proba(X)).all()
    assert not (predicted == loaded.predict_proba(X).argmax(axis=1)).all()
    assert loaded.privacy_ == model.privacy_
    assert (pickle.loads(pickle.dumps(loaded)).predict(X) == predicted).all()
    assert f"<dd>{model.thresholds_['all'][0][0]:.4f}</dd>" in model_page(path)
    again = loaded.fit(X, y)  # without a threshold
    assert (again.predict(X) == again.predict_proba(X).argmax(axis=1)).all()
    vars(loaded).update(_cut=0.123456)
    with pytest.raises(ValueError, match="_cut"):
        loaded.save_release(path)
    model.set_params(by_group=True).fit(X, y, sensitive_features=data.sensitive_features.iloc[rows])
    with pytest.raises(ValueError, match="one threshold"):
        model.save_release(path)


@pytest.mark.parametrize("end", [0, -1])
def test_save_release_keeps_thresholds_beyond_all_scores(end, tmp_path):
    data = make_two_groups(1000, random_state=0)
    clf = classifier(epsilon=8.0, module="logistic", max_steps=2)
    model = DPThresholdClassifier(clf).fit(data.data, data.target)
    model.thresholds_ = {"all": [(float(expit(EDGES[end])), 1.0)]}
    model.save_release(tmp_path / "m.safetensors")
    far = 1e4 * data.data
    predicted = load_release(tmp_path / "m.safetensors").predict(far)
    assert (predicted == model.predict(far)).all() and len(set(predicted)) == 1


# refusals


@pytest.mark.parametrize(
    "params, match",
    [
        ({"objective": "f1"}, "objective .*'f1'"),
        ({"objective": [[1, 2, 3]]}, r"objective .*\(2, 2\)"),
        ({"objective": "true_positive_rate"}, "target .*None"),
        ({"costs": [[0, 1, 2]]}, r"costs .*\(n_classes, n_classes\)"),
        ({"costs": np.eye(3)}, r"costs .* 2 classes"),
        ({"costs": np.eye(2), "by_group": True}, "by_group .*costs"),
        ({"costs": np.eye(2), "objective": np.eye(2)}, "objective .*costs"),
        ({"constraint": "parity"}, "constraint .*'parity'"),
        ({"constraint": "equalized_odds"}, "need groups"),
        ({"tolerance": 2.0}, "tolerance"),
        ({"budget_share": 1.0}, "budget_share"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": np.random.RandomState(0)}, "random_state"),
        ({"estimator": DummyClassifier()}, "DPFairClassifier"),
        ({"estimator": classifier(classes=["no", "so", "yes"])}, "binary .* 3 classes"),
        ({"estimator": classifier(group_col="target"), "by_group": True}, "group_col='target'"),
    ],
)
def test_unusable_parameters_are_refused_before_the_fit(params, match):
    model = DPThresholdClassifier(**{"estimator": classifier()} | params)
    with (
        mock.patch.object(DPFairClassifier, "fit") as fit,
        pytest.raises((ValueError, TypeError), match=match),
    ):
        model.fit(X, Y)
    assert not fit.called


# warnings


@pytest.mark.parametrize(
    "params", [{"by_group": True}, *({"constraint": each} for each in CONSTRAINTS)], ids=str
)
def test_thresholds_of_groups_that_take_the_rates_of_all_warn(params):
    share = np.linspace(1, 0, N_BINS + 1)
    counts = np.array([[[8000], [2000]], [[60], [40]]]) * share
    levels = np.array(["a", "b"])
    model = DPThresholdClassifier(DPFairClassifier(), **params)
    name = params.get("constraint", "by_group")
    with pytest.warns(UserWarning, match=rf"the group\(s\) b .*: {name} "):
        model._thresholds("accuracy", counts, levels, 30.0 / SENSITIVITY**2, levels)


@pytest.mark.parametrize(
    "params",
    [{}, {"by_group": True}, {"constraint": "equal_opportunity", "objective": "accuracy"}],
    ids=str,
)
def test_thresholds_stay_at_one_half_where_a_class_is_rare(params, tmp_path):
    rng = np.random.default_rng(0)
    y = np.where(np.arange(2776) < 58, "ill", "well")
    X = rng.normal((y == "ill")[:, None] * [0.5, 0.3], size=(2776, 2))
    group = rng.choice(["f", "m"], 2776)
    inner = classifier(module="logistic", classes=["well", "ill"], max_steps=5)
    model = DPThresholdClassifier(inner, **params)
    with pytest.warns(UserWarning, match=r"stays at 0\.5: .*class well .*class ill"):
        model.fit(X, y, sensitive_features=group)
    assert set(map(tuple, model.thresholds_.values())) == {((0.5, 1.0),)}
    predicted = model.predict(X, sensitive_features=group)
    assert (predicted == model.estimator_.predict(X)).all()
    if not params:
        model.save_release(tmp_path / "m.safetensors")
        assert (load_release(tmp_path / "m.safetensors").predict(X) == predicted).all()


@pytest.mark.parametrize(
    "params", [{}, {"by_group": True}, {"constraint": "demographic_parity"}], ids=str
)
def test_thresholds_that_cost_a_group_much_accuracy_warn(params):
    by_group = bool(params)
    rng = np.random.default_rng(0)
    n = 6000
    group = np.where(rng.random(n) < 0.5, "many", "few")
    y = (rng.random(n) < np.where(group == "few", 0.05, 0.5)).astype(int)
    x = np.clip(rng.normal(0.7 * (2 * y - 1)), -3, 3)
    X = np.column_stack([x, (group == "few") * by_group])
    inner = classifier(epsilon=8.0, module="logistic", max_steps=60)
    model = DPThresholdClassifier(inner, **params)
    remedy = "tolerance" if "constraint" in params else "objective='accuracy'"
    loss = rf"for few: [89]\d % to [5678]\d % of about [23]\d\d\d .*{remedy}"
    with pytest.warns(UserWarning, match=loss):
        model.fit(X.astype(np.float32), y, sensitive_features=group)
    frame = pd.DataFrame(X, columns=["x", "few"]).assign(group=group)
    named = DPThresholdClassifier(clone(inner).set_params(group_col="group"), **params)
    with pytest.warns(UserWarning, match="for few: [89]"):
        named.fit(frame, y)
    assert list(named.thresholds_) == (["few", "many"] if by_group else ["all"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(objective="accuracy", constraint=None).fit(X, y, sensitive_features=group)


@pytest.mark.parametrize(("loss", "n_warnings"), [(0.06, 1), (0.04, 0)])
def test_warn_of_losses_warns_of_five_points_of_accuracy(loss, n_warnings):
    edges = np.eye(N_BINS + 1)[[N_BINS // 2 - 10]]
    counts = np.zeros((1, 2, N_BINS + 1))
    counts[0, 0, : N_BINS // 2 - 5] = 1000 * loss  # negatives between both thresholds
    counts[0, :, 0] = 700.0, 300.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _threshold_classifier._warn_of_losses(["a"], counts, 10.0, edges, "")
    found = ["a: 70 % to 64 % of about 1000 records (noise ± 2)" in str(w.message) for w in caught]
    assert found == [True] * n_warnings
