"""Scores on all records and on each group, of metrics by name and of comparisons."""

import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import selection_rate
from sklearn import metrics
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.experimental import enable_halving_search_cv  # noqa: F401  (lets the next import find the halving search)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    StratifiedKFold,
    cross_validate,
)
from sklearn.pipeline import make_pipeline

from skdpfair.datasets import load_adult, public_facts
from skdpfair.metrics import excessive_risk
from skdpfair.model_selection import GroupScorer, TradeoffResults, comparison_scorer
from skdpfair.preprocessing import public_preprocessor

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
AB = ["a", "b"]


@pytest.fixture(scope="module")
def scored():
    """A model with probabilities, and rows of two groups, of which one is rarely of class 1."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["x", "z"])
    group = np.where(rng.random(400) < 0.3, "b", "a")
    y = (X["x"] + np.where(group == "b", -1, 0.5) + rng.normal(size=400) > 0).astype(int)
    return LogisticRegression().fit(X, y), X, y.to_numpy(), group


@pytest.fixture
def pipeline(classifier):
    """A pipeline whose classifier names the column of the groups in ``frame``."""

    def make(**params):
        prepare = public_preprocessor({f"x{j}": (-1, 1) for j in range(6)}, passthrough=["group"])
        return make_pipeline(prepare, classifier(group_col="group", **params))

    return make


def scores_of(name, metric, y, answer, group, sign=1):
    """Return the scores of two groups by a loop written out."""
    each = {g: sign * metric(y[group == g], answer[group == g]) for g in AB}
    (low, high), whole = sorted(each.values()), sign * metric(y, answer)
    return {
        name: whole,
        f"{name}_group_min": low,
        f"neg_{name.removeprefix('neg_')}_difference": low - high,
        f"{name}[a]": each["a"],
        f"{name}[b]": each["b"],
    }


LIKELY, LABELS, VALUES = "predict_proba", "predict", "decision_function"
NEG_HAMMING = metrics.make_scorer(metrics.hamming_loss, greater_is_better=False)
# scorer, the same as a function, of what, with which sign
METRICS = {
    "accuracy": (metrics.make_scorer(metrics.accuracy_score), metrics.accuracy_score, LABELS, 1),
    "balanced": ("balanced_accuracy", metrics.balanced_accuracy_score, LABELS, 1),
    "neg_log_loss": ("neg_log_loss", metrics.log_loss, LIKELY, -1),
    "brier": ("neg_brier_score", metrics.brier_score_loss, LIKELY, -1),
    "auc": ("roc_auc", metrics.roc_auc_score, VALUES, 1),
    "precision": ("average_precision", metrics.average_precision_score, VALUES, 1),
    "macro": ("f1_macro", partial(metrics.f1_score, average="macro"), LABELS, 1),
    "hamming": (NEG_HAMMING, metrics.hamming_loss, LABELS, -1),
}


@pytest.mark.parametrize("name", METRICS)
def test_group_scorer_gives_each_metric_what_it_needs(scored, name):
    model, X, y, group = scored
    scorer, metric, method, sign = METRICS[name]
    answer = getattr(model, method)(X)
    answer = answer[:, 1] if method == LIKELY else answer
    scores = GroupScorer({"m": scorer}, levels=AB)(model, X, y, group)
    assert scores == pytest.approx(scores_of("m", metric, y, answer, group, sign))
    assert all(type(v) is float for v in scores.values())


def test_group_scorer_of_a_group_without_records_is_nan_and_warns(from_first_column):
    rows = [[1], [-1], [1]], [1, 0, 0], ["a", "a", "b"]
    with pytest.warns(UndefinedMetricWarning, match="no records"):
        scores = GroupScorer()(from_first_column(["a", "b", "c"]), *rows)
    assert np.isnan(scores.pop("accuracy[c]"))
    assert scores["accuracy_group_min"] == 0
    assert scores["neg_accuracy_difference"] == -1


def test_group_scorer_has_one_key_for_each_crossed_group(from_first_column):
    sensitive = pd.DataFrame({"sex": ["F", "M"], "race": ["x", "y"]})
    scorer = GroupScorer(levels=[("F", "x"), ("M", "y")])
    scores = scorer(from_first_column(), [[1], [1]], [1, 0], sensitive)
    assert scores["accuracy[F, x]"] == 1 and scores["accuracy[M, y]"] == 0


@pytest.mark.parametrize(
    ("scorer", "sensitive", "match"),
    [
        (GroupScorer(), AB, r"levels=None .* GroupScorer\(levels="),
        (GroupScorer(), None, r"GroupScorer\(group_col=.sex., levels=.*enable_metadata_routing"),
        (GroupScorer(levels=AB), None, "enable_metadata_routing=True"),
        (GroupScorer(levels=AB), ["a", "z"], "outside levels"),
        (comparison_scorer("privacy_cost", levels=AB), AB, "keep_reference=True"),
        (comparison_scorer("excessive_risk", levels=AB), AB, r"from_search\(search\)"),
    ],
)
def test_scorers_without_groups_or_reference_name_the_remedy(
    scorer, sensitive, match, from_first_column
):
    with pytest.raises(ValueError, match=match):
        scorer(from_first_column(), [[1], [1]], [1, 0], sensitive)


def test_group_scorer_of_three_classes_and_a_group_that_lacks_one(scored):
    _, X, y, group = scored
    y = np.array(["no", "yes"])[y]
    y[(group == "a") & (X["z"] > 1)] = "maybe"
    model = LogisticRegression().fit(X, y)
    likely, rows = model.predict_proba(X), group == "b"
    scorers = {"loss": "neg_log_loss", "recall": "recall_macro", "auc": "roc_auc_ovr"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's: a class without records
        scores = GroupScorer(scorers, levels=AB)(model, X, y, group)
    expected = -metrics.log_loss(y[rows], likely[rows], labels=model.classes_)
    assert scores["loss[b]"] == pytest.approx(expected)
    assert scores["auc"] == pytest.approx(metrics.roc_auc_score(y, likely, multi_class="ovr"))
    assert np.isnan(scores["auc[b]"]) and scores["auc_group_min"] == scores["auc[a]"]


def test_group_scorer_passes_pos_label_and_takes_groups_of_a_column(scored):
    _, X, y, group = scored
    y, X = np.array(["hired", "no"])[y], X.assign(group=group)
    columns = ColumnTransformer([("x", "passthrough", ["x", "z"])])
    model = make_pipeline(columns, LogisticRegression()).fit(X, y)
    hired = metrics.make_scorer(
        metrics.average_precision_score, response_method=LIKELY, pos_label="hired"
    )
    scorers = {"ap": hired, "f1": metrics.make_scorer(metrics.f1_score, pos_label="hired")}
    scores = GroupScorer(scorers, group_col="group", levels=AB)(model, X, y)
    expected = {}
    for name, metric, answer in (
        ("ap", metrics.average_precision_score, model.predict_proba(X)[:, 0]),
        ("f1", metrics.f1_score, model.predict(X)),
    ):
        expected |= scores_of(name, partial(metric, pos_label="hired"), y, answer, group)
    assert scores == pytest.approx(expected)


def test_group_scorer_of_a_group_of_one_class_has_a_loss_but_no_auc(scored):
    model, X, y, group = scored
    rows = (group == "a") | (y == 0)
    X, y, group = X[rows], y[rows], group[rows]
    scorers = {"auc": "roc_auc", "ap": "average_precision", "loss": "neg_log_loss", "f1": "f1"}
    with pytest.warns(UndefinedMetricWarning, match=r"\['b'\]") as caught:
        scores = GroupScorer(scorers, levels=AB)(model, X, y, group)
    assert len(caught) == 2
    keys = "auc[b]", "ap[b]", "neg_auc_difference", "neg_ap_difference"
    assert np.isnan([scores[key] for key in keys]).all()
    assert scores["auc_group_min"] == scores["auc[a]"]
    rows = group == "b"
    expected = -metrics.log_loss(y[rows], model.predict_proba(X)[rows], labels=[0, 1])
    assert scores["loss[b]"] == pytest.approx(expected)
    assert scores["f1[b]"] == 0  # scikit-learn's value where predictions are the reason


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"metrics": {"m": metrics.hamming_loss}}, TypeError, r"\['m'\] .*make_scorer\(log_loss"),
        ({"metrics": {"m": "accurac"}}, ValueError, r"metrics\['m'\] .*'accuracy'"),
        ({"metrics": {"m": 1}}, TypeError, r"metrics\['m'\] .* 1"),
        ({"metrics": "accuracy"}, TypeError, "metrics must be a dict"),
        ({"metrics": {}}, TypeError, "metrics must be a dict"),
        ({"metrics": ["accuracy"]}, TypeError, "metrics must be a dict"),
        ({"measures": ["accurac"]}, ValueError, r"measures .*'accuracy'"),
        ({"measures": "accuracy"}, TypeError, "measures must be a list"),
    ],
)
def test_group_scorer_refuses_what_is_no_metric(arguments, error, match):
    with pytest.raises(error, match=match):
        GroupScorer(**arguments)


def test_group_scorer_refuses_a_scorer_that_requests_metadata(routed):
    requesting = metrics.make_scorer(metrics.accuracy_score).set_score_request(sample_weight=True)
    with pytest.raises(TypeError, match="set_score_request"):
        GroupScorer({"acc": requesting})


def test_group_scorer_needs_levels_for_groups_that_no_fit_declares(from_first_column):
    model = from_first_column(AB)
    model.group_col = "sex"
    X = pd.DataFrame({"x": [1, -1], "sex": AB, "race": ["u", "v"]})
    with pytest.raises(ValueError, match=r"GroupScorer\(levels="):
        GroupScorer(group_col="race")(model, X, [1, 0])
    assert GroupScorer(group_col="race", levels=["u", "v"])(model, X, [1, 0])["accuracy[u]"] == 1
    assert GroupScorer(group_col="sex")(model, X, [1, 0])["accuracy[b]"] == 1
    rows = [[1], [1]], [1, 0], ["a", "rare"]  # in no training part
    with pytest.raises(ValueError, match=r"outside levels=") as caught:
        GroupScorer()(model, *rows)
    assert "rare" not in str(caught.value)  # a cell of the data
    with pytest.warns(UndefinedMetricWarning, match="no records"):
        assert GroupScorer(levels=[*AB, "rare"])(model, *rows)["accuracy[rare]"] == 0


def test_group_scorer_is_copied_with_its_request_of_metadata(routed):
    scorer = GroupScorer(levels=AB, only="accuracy")
    assert repr(pickle.loads(pickle.dumps(scorer))) == repr(scorer) == repr(clone(scorer))
    by_column = GroupScorer(group_col="sex")

    def request(scorer):
        return scorer.get_metadata_routing().score.requests["sensitive_features"]

    assert request(scorer) is True and request(by_column) is False
    assert request(scorer.set_score_request(sensitive_features="race")) == "race"


def test_group_scorer_takes_the_column_of_the_classifier_in_every_search(frame, pipeline):
    model = pipeline(epsilon=None, noise_multiplier=2.0)
    grid = {"dpfairclassifier__lr": [0.1, 0.5]}
    one = GroupScorer(only="accuracy_group_min")
    searches = [
        GridSearchCV(model, grid, scoring=GroupScorer(), refit="accuracy_group_min", cv=2),
        RandomizedSearchCV(model, grid, n_iter=2, scoring=GroupScorer(), refit="accuracy", cv=2),
        HalvingGridSearchCV(
            model, grid, scoring=one, cv=2, factor=2, min_resources=200, random_state=0
        ),
    ]
    for search in searches:
        search.fit(*frame)
        assert 0 < search.score(*frame) < 1
        assert list(search.best_estimator_[-1].levels_) == AB
        expected = metrics.accuracy_score(frame[1], search.predict(frame[0]))
        assert GroupScorer()(search, *frame)["accuracy"] == expected


def test_group_scorer_takes_its_column_beside_routed_groups(routed, frame, classifier):
    X, y = frame
    search = GridSearchCV(
        make_pipeline(public_preprocessor({"x0": (-1, 1), "x1": (-1, 1)}), classifier()),
        {"dpfairclassifier__epsilon": [1.0]},
        scoring=GroupScorer(group_col="group"),
        refit="accuracy",
        cv=2,
    )
    search.fit(X, y, sensitive_features=X["group"])
    assert np.isfinite(search.cv_results_["mean_test_accuracy[b]"]).all()


def fairest(cv_results):
    results = TradeoffResults.from_search(cv_results)
    return results.best_index("privacy_cost_difference", at_least={"accuracy": 0.5})


def test_group_scorer_and_best_index_select_the_fairest_of_seven_models_on_adult(classifier):
    adult, name = load_adult(subset="train"), "dpfairclassifier__"
    rows = np.random.default_rng(0).permutation(len(adult.data))[:1000]
    prepare = public_preprocessor(**public_facts("adult"), passthrough=["sex"])
    grid = [
        {name + "method": ["dpsgd", "global_adapt"], name + "epsilon": [0.5, 1.0, 4.0]},
        {name + "epsilon": [None]},
    ]
    model = make_pipeline(prepare, classifier(group_col="sex"))
    search = GridSearchCV(model, grid, scoring=GroupScorer(), refit=fairest, cv=2)
    search.fit(adult.data.iloc[rows], adult.target.iloc[rows])
    table = TradeoffResults.from_search(search).table().xs("mean", axis=1, level=1)
    assert len(table) == 7
    reference = search.cv_results_["params"].index({name + "epsilon": None})
    for group in ("Female", "Male"):
        keys = (f"split{k}_test_accuracy[{group}]" for k in range(2))
        folds = np.array([search.cv_results_[key] for key in keys])
        costs = (folds[:, [reference]] - folds).mean(axis=0)
        assert table[f"privacy_cost[{group}]"].tolist() == pytest.approx(costs.tolist())
    assert search.best_index_ == table["privacy_cost_difference"].iloc[:6].argmin()
    assert search.best_estimator_[-1].epsilon is not None


@pytest.mark.parametrize("measure", ["privacy_cost", "excessive_risk"])
def test_comparison_scorer_compares_with_the_reference_of_one_model(frame, pipeline, measure):
    scorer, model = comparison_scorer(measure), pipeline(keep_reference=True)
    found = cross_validate(model, *frame, cv=2, scoring=scorer, return_estimator=True)
    test = next(iter(StratifiedKFold(2).split(*frame)))[1]
    fitted, X, y = found["estimator"][0], frame[0].iloc[test], np.asarray(frame[1])[test]
    reference, inner = fitted[-1].reference_, fitted[:-1].transform(X)

    def value(rows):
        if measure == "excessive_risk":
            likely = fitted.predict_proba(X)[rows], reference.predict_proba(inner)[rows]
            return excessive_risk(y[rows], likely[0], y_ref=likely[1])
        right = ((m == y)[rows].mean() for m in (reference.predict(inner), fitted.predict(X)))
        return next(right) - next(right)

    each = {g: value((X["group"] == g).to_numpy()) for g in AB}
    expected = {"": value(slice(None)), "_group_max": max(each.values())}
    expected |= {"_difference": abs(each["a"] - each["b"])} | {f"[{g}]": each[g] for g in AB}
    scores = {name: found[f"test_neg_{measure}{name}"][0] for name in expected}
    assert scores == pytest.approx({name: -loss for name, loss in expected.items()})


def test_group_scorer_measures_are_scored_by_name_and_losses_negated(scored):
    model, X, y, group = scored
    likely, predicted = model.predict_proba(X)[:, 1], model.predict(X)

    def calibration_error(y_true, y_prob):
        bins = np.minimum((15 * y_prob).astype(int), 14)
        return sum(abs(np.mean((y_true - y_prob) * (bins == b))) for b in range(15))

    by_name = {
        "accuracy": (metrics.accuracy_score, predicted, 1),
        "neg_log_loss": (metrics.log_loss, likely, -1),
        "neg_calibration_error": (calibration_error, likely, -1),
        "neg_false_positive_rate": (lambda true, pred: np.mean(pred[true == 0]), predicted, -1),
        "selection_rate": (lambda true, pred: pred.mean(), predicted, 1),
    }
    scorer, expected = GroupScorer(measures=[*by_name], levels=AB), {}
    scores = scorer(model, X, y, group)
    for key, (metric, answer, sign) in by_name.items():
        expected |= scores_of(key, metric, y, answer, group, sign)
        if sign < 0:  # of the columns of tables, negated
            expected[f"{key}_group_max"] = expected.pop(f"{key}_group_min")
    low, high = sorted(expected[f"selection_rate[{g}]"] for g in AB)
    expected["selection_rate_ratio"] = low / high
    assert expected.pop("selection_rate_group_min") == low
    assert scores == pytest.approx(expected)
    assert repr(clone(scorer)) == repr(scorer)
    both = GroupScorer({"f1": "f1"}, measures=["roc_auc"], levels=AB)(model, X, y, group)
    assert {"f1", "roc_auc", "f1_group_min", "roc_auc_group_min"} <= set(both)
    assert not any(key.startswith("accuracy") for key in both)


def test_group_scorer_measures_that_classes_do_not_have_are_refused(scored):
    model, X, y, group = scored
    three = LogisticRegression().fit(X, np.arange(len(y)) % 3)
    rates = GroupScorer(measures=["true_positive_rate"], levels=AB)
    with pytest.raises(ValueError, match=r"measures .*'true_positive_rate'"):
        rates(three, X, np.arange(len(y)) % 3, group)
    rows = (group == "a") | (y == 0)
    with pytest.warns(UndefinedMetricWarning, match=r"\['b'\] .*one class"):
        recall = GroupScorer(measures=["rarest_class_recall"], levels=AB)
        labels = 1 - y[rows] if y[rows].mean() > 0.5 else y[rows]
        scores = recall(model, X[rows], labels, group[rows])
    assert np.isnan(scores["rarest_class_recall[b]"])


@pytest.mark.parametrize(
    "names",
    [
        ("overall", "all"), ("gap", "worst"), (1, "1"), (True, "True"), ("F", "F "),
        (("x, y", "z"), ("x", "y, z")), ("[a]", "a"), ("group_min", "difference"),
    ],
)  # fmt: skip
def test_group_scorer_keeps_the_scores_of_groups_of_any_names(scored, names):
    model, X, y, group = scored
    named = np.empty(len(y), dtype=object)
    named[:] = [names[g == "b"] for g in group]
    columns = pd.DataFrame(list(named)) if isinstance(names[0], tuple) else named
    scorers = {"metrics": {"f1": "f1"}, "measures": ["accuracy", "neg_log_loss"]}
    found = GroupScorer(**scorers, levels=list(names))(model, X, y, columns)
    expected = GroupScorer(**scorers, levels=AB)(model, X, y, group)
    assert list(found.values()) == list(expected.values())


@pytest.mark.parametrize("kind", [bool, float, object])
def test_scorers_take_true_for_one(scored, kind):
    model, X, y, group = scored
    model.reference_ = model
    labels = y.astype(bool).astype(kind)
    scorers = [
        GroupScorer({"f1": "f1"}, measures=["accuracy"], levels=AB),
        comparison_scorer("privacy_cost", levels=AB),
        comparison_scorer("excessive_risk", levels=AB),
    ]
    for scorer in scorers:
        assert scorer(model, X, labels, group) == scorer(model, X, y, group)
    with pytest.raises(ValueError, match=r"numbers and .*texts"):
        scorers[1](model, X, y.astype(str), group)


def test_group_scorer_passes_texts_to_functions_of_fairlearn(scored):
    model, X, y, group = scored
    scorers = {
        "rate": metrics.make_scorer(selection_rate),
        "named": metrics.make_scorer(partial(selection_rate, pos_label="yes")),
    }
    labels = np.array(["no", "yes"])[y]
    model = clone(model).fit(X, labels)
    found = GroupScorer(scorers, levels=AB)(model, X, labels, group)
    for key in ("{}", "{}[a]", "{}[b]", "neg_{}_difference"):
        assert found[key.format("rate")] == found[key.format("named")]
    assert found["rate"] == np.mean(model.predict(X) == "yes") > 0
