import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import selection_rate
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.experimental import enable_halving_search_cv  # noqa: F401  (lets the next import find the halving search)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    f1_score,
    hamming_loss,
    log_loss,
    make_scorer,
    roc_auc_score,
)
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
from skdpfair.model_selection import (
    GroupScorer,
    TradeoffResults,
    comparison_scorer,
)
from skdpfair.preprocessing import public_preprocessor

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)
KEYS = {"accuracy", "accuracy_group_min", "neg_accuracy_difference", "accuracy[a]", "accuracy[b]"}


def test_scores_are_those_of_a_loop_over_groups(two_groups, from_first_column):
    X, y, group = two_groups.data, two_groups.target, two_groups.sensitive_features
    metrics = {"accuracy": accuracy_score, "balanced": balanced_accuracy_score}
    scorer = GroupScorer({n: make_scorer(m) for n, m in metrics.items()}, levels=["a", "b"])
    scores = scorer(from_first_column(), X, y, group)
    pred = from_first_column().predict(X)
    for name, metric in metrics.items():
        each = {g: metric(y[group == g], pred[group == g]) for g in ("a", "b")}
        assert scores[name] == metric(y, pred)
        assert {g: scores[f"{name}[{g}]"] for g in each} == each
        assert scores[f"{name}_group_min"] == min(each.values())
        assert scores[f"neg_{name}_difference"] == min(each.values()) - max(each.values())
    assert all(type(v) is float for v in scores.values())


def test_a_group_without_records_is_nan_and_said(from_first_column):
    scorer = GroupScorer()
    with pytest.warns(UndefinedMetricWarning, match="have no records"):
        scores = scorer(
            from_first_column(["a", "b", "c"]), [[1], [-1], [1]], [1, 0, 0], ["a", "a", "b"]
        )
    assert np.isnan(scores.pop("accuracy[c]"))
    assert scores["accuracy_group_min"] == 0
    assert scores["neg_accuracy_difference"] == -1


def test_intersections_have_one_key_each(from_first_column):
    sensitive = pd.DataFrame({"sex": ["F", "M"], "race": ["x", "y"]})
    scorer = GroupScorer(levels=[("F", "x"), ("M", "y")])
    scores = scorer(from_first_column(), [[1], [1]], [1, 0], sensitive)
    assert scores["accuracy[F, x]"] == 1 and scores["accuracy[M, y]"] == 0


@pytest.mark.parametrize(
    ("scorer", "sensitive", "match"),
    [
        (GroupScorer(), ["a", "b"], r"levels=None .* GroupScorer\(levels="),
        (GroupScorer(), None, r"GroupScorer\(group_col=.sex., levels=.*enable_metadata_routing"),
        (GroupScorer(levels=["a", "b"]), None, "enable_metadata_routing=True"),
        (GroupScorer(levels=["a", "b"]), ["a", "z"], "values outside levels"),
        (comparison_scorer("privacy_cost", levels=["a", "b"]), ["a", "b"], "keep_reference=True"),
        (
            comparison_scorer("excessive_risk", levels=["a", "b"]),
            ["a", "b"],
            r"from_search\(search\)",
        ),
    ],
)
def test_refusals_name_the_remedy(scorer, sensitive, match, from_first_column):
    with pytest.raises(ValueError, match=match):
        scorer(from_first_column(), [[1], [1]], [1, 0], sensitive)


@pytest.fixture(scope="module")
def scored():
    """A model with probabilities, and rows of two groups, of which one is rarely of class 1."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["x", "z"])
    group = np.where(rng.random(400) < 0.3, "b", "a")
    y = (X["x"] + np.where(group == "b", -1, 0.5) + rng.normal(size=400) > 0).astype(int)
    return LogisticRegression().fit(X, y), X, y.to_numpy(), group


def by_hand(name, metric, y, answer, group, sign=1):
    """Return what a scorer should say of two groups."""
    each = {g: sign * metric(y[group == g], answer[group == g]) for g in ("a", "b")}
    (low, high), whole = sorted(each.values()), sign * metric(y, answer)
    return {
        name: whole,
        f"{name}_group_min": low,
        f"neg_{name.removeprefix('neg_')}_difference": low - high,
        f"{name}[a]": each["a"],
        f"{name}[b]": each["b"],
    }


LIKELY, LABELS, VALUES = "predict_proba", "predict", "decision_function"
NEG_HAMMING = make_scorer(hamming_loss, greater_is_better=False)
# as given, by which function, of what, with which sign
METRICS = {
    "neg_log_loss": ("neg_log_loss", log_loss, LIKELY, -1),
    "brier": ("neg_brier_score", brier_score_loss, LIKELY, -1),
    "auc": ("roc_auc", roc_auc_score, VALUES, 1),
    "precision": ("average_precision", average_precision_score, VALUES, 1),
    "macro": ("f1_macro", partial(f1_score, average="macro"), LABELS, 1),
    "hamming": (NEG_HAMMING, hamming_loss, LABELS, -1),
}


@pytest.mark.parametrize("name", METRICS)
def test_each_metric_gets_what_it_needs(scored, name):
    model, X, y, group = scored
    given, metric, method, sign = METRICS[name]
    answer = getattr(model, method)(X)
    answer = answer[:, 1] if method == LIKELY else answer
    scores = GroupScorer({"m": given}, levels=["a", "b"])(model, X, y, group)
    assert scores == pytest.approx(by_hand("m", metric, y, answer, group, sign))


def test_three_classes_and_a_group_that_lacks_one(scored):
    _, X, y, group = scored
    y = np.array(["no", "yes"])[y]
    y[(group == "a") & (X["z"] > 1)] = "maybe"
    model = LogisticRegression().fit(X, y)
    likely, rows = model.predict_proba(X), group == "b"
    metrics = {"loss": "neg_log_loss", "recall": "recall_macro", "auc": "roc_auc_ovr"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's: a class without records
        scores = GroupScorer(metrics, levels=["a", "b"])(model, X, y, group)
    assert scores["loss[b]"] == pytest.approx(
        -log_loss(y[rows], likely[rows], labels=model.classes_)
    )
    assert scores["auc"] == pytest.approx(roc_auc_score(y, likely, multi_class="ovr"))
    assert np.isnan(scores["auc[b]"]) and scores["auc_group_min"] == scores["auc[a]"]


def test_the_positive_class_and_the_column_of_the_groups(scored):
    _, X, y, group = scored
    y, X = np.array(["hired", "no"])[y], X.assign(group=group)
    model = make_pipeline(
        ColumnTransformer([("x", "passthrough", ["x", "z"])]), LogisticRegression()
    )
    model.fit(X, y)
    hired = make_scorer(average_precision_score, response_method=LIKELY, pos_label="hired")
    metrics = {"ap": hired, "f1": make_scorer(f1_score, pos_label="hired")}
    scores = GroupScorer(metrics, group_col="group", levels=["a", "b"])(model, X, y)
    likely = model.predict_proba(X)[:, 0]
    of_hired = partial(average_precision_score, pos_label="hired")
    expected = by_hand("ap", of_hired, y, likely, group)
    of_hired = partial(f1_score, pos_label="hired")
    expected |= by_hand("f1", of_hired, y, model.predict(X), group)
    assert scores == pytest.approx(expected)


def test_a_group_of_one_class_has_no_auc_but_a_loss(scored):
    model, X, y, group = scored
    kept = (group == "a") | (y == 0)
    X, y, group = X[kept], y[kept], group[kept]
    metrics = {"auc": "roc_auc", "ap": "average_precision", "loss": "neg_log_loss", "f1": "f1"}
    with pytest.warns(UndefinedMetricWarning) as said:
        scores = GroupScorer(metrics, levels=["a", "b"])(model, X, y, group)
    assert [str(w.message)[:52] for w in said] == [
        "The groups ['b'] have records of one class only, for"
    ] * 2
    undefined = [
        scores[key] for key in ("auc[b]", "ap[b]", "neg_auc_difference", "neg_ap_difference")
    ]
    assert np.isnan(undefined).all() and scores["auc_group_min"] == scores["auc[a]"]
    rows = group == "b"
    expected = -log_loss(y[rows], model.predict_proba(X)[rows], labels=[0, 1])
    assert scores["loss[b]"] == pytest.approx(expected)
    assert scores["f1[b]"] == 0  # scikit-learn's value where predictions are the reason


@pytest.mark.parametrize(
    ("metrics", "error", "match"),
    [
        (
            {"m": hamming_loss},
            TypeError,
            r"metrics\['m'\] must be a scorer .*make_scorer\(log_loss",
        ),
        ({"m": "accurac"}, ValueError, r"metrics\['m'\] must be one of .* Did you mean 'accuracy'"),
        ({"m": 1}, TypeError, r"metrics\['m'\] must be a scorer or its name, got 1"),
        ("accuracy", TypeError, "metrics must be a dict"),
        ({}, TypeError, "metrics must be a dict"),
        (["accuracy"], TypeError, "metrics must be a dict"),
    ],
)
def test_what_is_no_scorer_is_refused_at_once(metrics, error, match):
    with pytest.raises(error, match=match):
        GroupScorer(metrics)


def test_a_scorer_that_asks_for_metadata_is_refused(routed):
    asking = make_scorer(accuracy_score).set_score_request(sample_weight=True)
    with pytest.raises(TypeError, match="Remove its set_score_request"):
        GroupScorer({"acc": asking})


def test_groups_of_another_column_must_be_named(from_first_column):
    model = from_first_column(["a", "b"])
    model.group_col = "sex"
    X = pd.DataFrame({"x": [1, -1], "sex": ["a", "b"], "race": ["u", "v"]})
    with pytest.raises(ValueError, match=r"those of the fit.*declare all.*GroupScorer\(levels="):
        GroupScorer(group_col="race")(model, X, [1, 0])
    assert GroupScorer(group_col="race", levels=["u", "v"])(model, X, [1, 0])["accuracy[u]"] == 1
    assert GroupScorer(group_col="sex")(model, X, [1, 0])["accuracy[b]"] == 1


def test_a_group_that_the_training_part_lacked_must_be_declared(from_first_column):
    model, data = from_first_column(["a", "b"]), ([[1], [1]], [1, 0], ["a", "rare"])
    with pytest.raises(
        ValueError, match=r"outside levels=.*training part of this fold: declare all"
    ) as caught:
        GroupScorer()(model, *data)
    assert "rare" not in str(caught.value)  # a cell of the data
    with pytest.warns(UndefinedMetricWarning, match="have no records"):
        scores = GroupScorer(levels=["a", "b", "rare"])(model, *data)
    assert scores["accuracy[rare]"] == 0


def test_scorer_is_picklable_clonable_and_its_request_can_be_changed(routed):
    scorer = GroupScorer(levels=["a", "b"], only="accuracy")
    assert repr(pickle.loads(pickle.dumps(scorer))) == repr(scorer) == repr(clone(scorer))
    assert scorer.get_metadata_routing().score.requests == {"sensitive_features": True}
    aliased = scorer.set_score_request(sensitive_features="race")
    assert aliased.get_metadata_routing().score.requests["sensitive_features"] == "race"
    by_column = GroupScorer(group_col="sex")
    assert by_column.get_metadata_routing().score.requests["sensitive_features"] is False


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_cross_validate_routes_the_groups(routed, two_groups, classifier, n_jobs):
    found = cross_validate(
        classifier(),
        two_groups.data,
        two_groups.target,
        scoring=GroupScorer(),
        cv=2,
        n_jobs=n_jobs,
        params={"sensitive_features": two_groups.sensitive_features},
    )
    assert {f"test_{key}" for key in KEYS} <= set(found)
    assert all(np.isfinite(found[f"test_{key}"]).all() for key in KEYS)


def test_every_search_takes_it_with_the_column_that_the_classifier_names(frame, classifier):
    model = make_pipeline(
        public_preprocessor({f"x{j}": (-1, 1) for j in range(6)}, passthrough=["group"]),
        classifier(group_col="group"),
    )
    grid = {"dpfairclassifier__epsilon": [1.0, 4.0]}
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
        assert list(search.best_estimator_[-1].levels_) == ["a", "b"]
        assert GroupScorer()(search, *frame)["accuracy"] == accuracy_score(
            frame[1], search.predict(frame[0])
        )


def test_a_column_beside_routed_groups_is_not_given_twice(routed, frame, classifier):
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


@pytest.fixture(scope="module")
def small_adult():
    data = load_adult(subset="train")
    rows = np.random.default_rng(0).permutation(len(data.data))[:1500]
    return data.data.iloc[rows], data.target.iloc[rows]


def adult_search(quick):
    from skdpfair import DPFairClassifier

    clf = DPFairClassifier(group_col="sex", random_state=0, **quick)
    model = make_pipeline(public_preprocessor(**public_facts("adult"), passthrough=["sex"]), clf)
    grid = [
        {
            "dpfairclassifier__method": ["dpsgd", "global_adapt"],
            "dpfairclassifier__epsilon": [0.5, 1.0, 4.0],
        },
        {"dpfairclassifier__epsilon": [None]},
    ]
    return GridSearchCV(model, grid, scoring=GroupScorer(), refit=fairest, cv=3)


def fairest(cv_results):
    results = TradeoffResults.from_search(cv_results)
    return results.best_index("privacy_cost_difference", at_least={"accuracy": 0.5})


def test_two_methods_by_three_budgets_and_a_reference_on_adult(small_adult, quick):
    one = adult_search(quick).fit(*small_adult)
    table = TradeoffResults.from_search(one).table().xs("mean", axis=1, level=1)
    assert len(table) == 7
    reference = one.cv_results_["params"].index({"dpfairclassifier__epsilon": None})
    for row in range(7):
        for group in ("Female", "Male"):
            folds = [
                one.cv_results_[f"split{k}_test_accuracy[{group}]"][[reference, row]]
                for k in range(3)
            ]
            assert table[f"privacy_cost[{group}]"].iloc[row] == pytest.approx(
                np.mean([reference - private for reference, private in folds])
            )
    assert one.best_index_ == table["privacy_cost_difference"].iloc[:6].argmin()
    assert one.best_estimator_[-1].epsilon is not None


def test_privacy_cost_of_one_model_uses_the_reference_it_carries(frame, classifier):
    model = make_pipeline(
        public_preprocessor({f"x{j}": (-1, 1) for j in range(6)}, passthrough=["group"]),
        classifier(group_col="group", keep_reference=True),
    )
    X, y = frame
    model.fit(X, y)
    scores = comparison_scorer("privacy_cost")(model, X, y)
    reference = model[-1].reference_.predict(model[:-1].transform(X)) == y
    lost = reference.astype(float) - (model.predict(X) == y)
    each = {g: lost[X["group"] == g].mean() for g in ("a", "b")}
    assert scores["neg_privacy_cost"] == pytest.approx(-lost.mean())
    assert scores["neg_privacy_cost[b]"] == pytest.approx(-each["b"])
    assert scores["neg_privacy_cost_difference"] == pytest.approx(-abs(each["a"] - each["b"]))
    found = cross_validate(model, X, y, cv=2, scoring=comparison_scorer("privacy_cost"))
    assert np.isfinite(found["test_neg_privacy_cost_difference"]).all()


def test_measures_are_scored_by_name_and_losses_negated(scored):
    model, X, y, group = scored
    losses = ["neg_log_loss", "neg_calibration_error", "neg_false_positive_rate"]
    names = ["accuracy", *losses, "selection_rate"]
    scorer = GroupScorer(measures=names, levels=["a", "b"])
    scores = scorer(model, X, y, group)
    likely, predicted = model.predict_proba(X)[:, 1], model.predict(X)

    def calibration_error(y_true, y_prob):
        bins = np.minimum((15 * y_prob).astype(int), 14)
        gaps = [abs(np.mean((y_true - y_prob) * (bins == b))) for b in range(15)]
        return sum(gaps)

    def wrong_alarms(y_true, y_pred):
        return np.mean(y_pred[y_true == 0])

    expected = {}
    for key, metric, answer, sign in (
        ("accuracy", accuracy_score, predicted, 1),
        ("neg_log_loss", log_loss, likely, -1),
        ("neg_calibration_error", calibration_error, likely, -1),
        ("neg_false_positive_rate", wrong_alarms, predicted, -1),
        ("selection_rate", lambda t, p: p.mean(), predicted, 1),
    ):
        expected |= by_hand(key, metric, y, answer, group, sign)
        if sign < 0:  # of the columns of tables, negated
            expected[f"{key}_group_max"] = expected.pop(f"{key}_group_min")
    low, high = sorted(expected[f"selection_rate[{g}]"] for g in "ab")
    expected["selection_rate_ratio"] = low / high
    assert expected.pop("selection_rate_group_min") == low
    assert scores == pytest.approx(expected)
    assert repr(clone(scorer)) == repr(scorer)
    both = GroupScorer({"f1": "f1"}, measures=["roc_auc"], levels=["a", "b"])(model, X, y, group)
    assert {"f1", "roc_auc", "f1_group_min", "roc_auc_group_min"} <= set(both)
    assert not any(key.startswith("accuracy") for key in both)


def test_measures_that_cannot_be_scored_are_refused(scored):
    model, X, y, group = scored
    with pytest.raises(ValueError, match=r"measures must be one of .*Did you mean 'accuracy'"):
        GroupScorer(measures=["accurac"])
    with pytest.raises(TypeError, match="measures must be a list of names"):
        GroupScorer(measures="accuracy")
    three = LogisticRegression().fit(X, np.arange(len(y)) % 3)
    rates = GroupScorer(measures=["true_positive_rate"], levels=["a", "b"])
    with pytest.raises(ValueError, match=r"measures must be one of .* got 'true_positive_rate'"):
        rates(three, X, np.arange(len(y)) % 3, group)
    kept = (group == "a") | (y == 0)
    with pytest.warns(UndefinedMetricWarning, match=r"\['b'\] have records of one class only"):
        recall = GroupScorer(measures=["rarest_class_recall"], levels=["a", "b"])
        turned = 1 - y[kept] if y[kept].mean() > 0.5 else y[kept]
        scores = recall(model, X[kept], turned, group[kept])
    assert np.isnan(scores["rarest_class_recall[b]"])


def test_excessive_risk_of_one_model_uses_the_reference_it_carries(frame, classifier):
    X, y = frame
    model = make_pipeline(
        public_preprocessor({f"x{j}": (-1, 1) for j in range(6)}, passthrough=["group"]),
        classifier(group_col="group", keep_reference=True),
    )
    found = cross_validate(
        model, X, y, cv=2, scoring=comparison_scorer("excessive_risk"), return_estimator=True
    )
    test = next(iter(StratifiedKFold(2).split(X, y)))[1]
    fitted, X, y = found["estimator"][0], X.iloc[test], np.asarray(y)[test]
    inner = fitted[:-1].transform(X)
    likely = fitted.predict_proba(X), fitted[-1].reference_.predict_proba(inner)
    each = {}
    for g in ("a", "b"):
        rows = (X["group"] == g).to_numpy()
        each[g] = excessive_risk(y[rows], likely[0][rows], y_ref=likely[1][rows])
        assert found[f"test_neg_excessive_risk[{g}]"][0] == pytest.approx(-each[g])
    assert found["test_neg_excessive_risk"][0] == pytest.approx(
        -excessive_risk(y, likely[0], y_ref=likely[1])
    )
    assert found["test_neg_excessive_risk_group_max"][0] == pytest.approx(-max(each.values()))
    assert found["test_neg_excessive_risk_difference"][0] == pytest.approx(
        -abs(each["a"] - each["b"])
    )


@pytest.mark.parametrize(
    "names",
    [
        ("overall", "all"), ("gap", "worst"), (1, "1"), (True, "True"), ("F", "F "),
        (("x, y", "z"), ("x", "y, z")), ("[a]", "a"), ("group_min", "difference"),
    ],
)  # fmt: skip
def test_groups_of_any_names_keep_their_scores(scored, names):
    model, X, y, group = scored
    named = np.empty(len(y), dtype=object)
    named[:] = [names[g == "b"] for g in group]
    columns = pd.DataFrame(list(named)) if isinstance(names[0], tuple) else named
    scorer = GroupScorer({"f1": "f1"}, measures=["accuracy", "neg_log_loss"], levels=list(names))
    expected = GroupScorer({"f1": "f1"}, measures=["accuracy", "neg_log_loss"], levels=["a", "b"])
    found = scorer(model, X, y, columns)
    assert list(found.values()) == list(expected(model, X, y, group).values())


@pytest.mark.parametrize("kind", [bool, float, object])
def test_true_is_one_for_every_scorer(scored, kind):
    model, X, y, group = scored
    model.reference_ = model
    labels = y.astype(bool).astype(kind)
    scorers = [
        GroupScorer({"f1": "f1"}, measures=["accuracy"], levels=["a", "b"]),
        comparison_scorer("privacy_cost", levels=["a", "b"]),
        comparison_scorer("excessive_risk", levels=["a", "b"]),
    ]
    for scorer in scorers:
        assert scorer(model, X, labels, group) == scorer(model, X, y, group)
    with pytest.raises(ValueError, match="one holds numbers and the other texts"):
        scorers[1](model, X, y.astype(str), group)


def test_functions_of_fairlearn_take_texts_for_what_they_are(scored):
    model, X, y, group = scored
    metrics = {
        "rate": make_scorer(selection_rate),
        "named": make_scorer(partial(selection_rate, pos_label="yes")),
    }
    labels = np.array(["no", "yes"])[y]
    model = clone(model).fit(X, labels)
    found = GroupScorer(metrics, levels=["a", "b"])(model, X, labels, group)
    for key in ("{}", "{}[a]", "{}[b]", "neg_{}_difference"):
        assert found[key.format("rate")] == found[key.format("named")]
    assert found["rate"] == np.mean(model.predict(X) == "yes") > 0
