"""The positive class is the same through every door, however the labels sort."""

import re

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import demographic_parity_ratio, equal_opportunity_ratio, selection_rate
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import make_scorer
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier, load_release
from skdpfair.metrics import group_table
from skdpfair.model_selection import (
    DPRandomizedSearch,
    DPThresholdClassifier,
    GroupScorer,
    TradeoffResults,
    sweep,
)
from skdpfair.preprocessing import public_preprocessor
from skdpfair.report import model_card, model_page
from skdpfair.testing import verify_release

pytestmark = pytest.mark.filterwarnings("ignore")
RATES = ["selection_rate", "true_positive_rate"]
N = 1200
# "approved" sorts first
DECLARED = [
    {"classes": ["denied", "approved"]},
    {"classes": ["approved", "denied"], "pos_label": "approved"},
    {"pos_label": "approved"},
]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    sex, x = np.where(rng.random(N) < 0.5, "f", "m"), rng.normal(size=(N, 3)).clip(-3, 3)
    score = x[:, 0] + 0.5 * (sex == "m") + 0.4 * rng.normal(size=N)
    y = np.where(score > 0.5, "approved", "denied")
    return pd.DataFrame(x, columns=list("abc")).assign(sex=sex), y


def classifier(**declared):
    quick = {"epsilon": 8.0, "max_steps": 30, "group_col": "sex", "module": "logistic"}
    return DPFairClassifier("dpsgd", **quick | declared)


@pytest.fixture(scope="module", params=DECLARED, ids=["last", "pos_label", "undeclared"])
def fitted(request, rows):
    return classifier(**request.param).fit(*rows)


def by_hand(y, predicted, sex):
    """Return the rates of the class "approved", of all and as ratios of groups."""
    is_approved = predicted == "approved"
    rates = {"selection_rate": is_approved.mean()}
    rates["true_positive_rate"] = is_approved[y == "approved"].mean()
    y, predicted = (np.asarray(v) == "approved" for v in (y, predicted))
    ratios = demographic_parity_ratio, equal_opportunity_ratio
    for name, ratio in zip(RATES, ratios, strict=True):
        rates[f"{name}_ratio"] = ratio(y, predicted, sensitive_features=sex)
    return rates


def test_tables_and_scorers_agree_with_fairlearn(fitted, rows):
    X, y = rows
    predicted = fitted.predict(X)
    expected = by_hand(y, predicted, X["sex"])
    assert fitted.pos_label_ == "approved" and list(fitted.classes_) == ["approved", "denied"]
    options = {"sensitive_features": X["sex"], "measures": RATES, "reference": "model"}
    table = group_table(y, {"model": predicted}, classes=["denied", "approved"], **options)
    assert table.attrs["pos_label"] == "approved"
    scores = GroupScorer(measures=RATES)(fitted, X, y)
    losses = GroupScorer(measures=["neg_log_loss", "roc_auc"])(fitted, X, y)
    assert losses["roc_auc"] > 0.9 and losses["neg_log_loss"] > -0.5
    for name, value in expected.items():
        assert scores[name] == pytest.approx(value) == table.loc["model", name]


def test_pages_cards_statements_and_files_name_it(fitted, rows, tmp_path):
    page = re.sub(r"<[^>]+>", " ", model_page(fitted, *rows, measures=RATES))
    assert re.search(r"positive class\s+approved", page)
    assert "Selection rate of approved" in page and "True-positive rate of approved" in page
    assert "selection rate of approved, smallest over largest" in page
    path = tmp_path / "model.safetensors"
    fitted.save_release(path)
    verify_release(path)
    loaded = load_release(path)
    assert loaded.pos_label_ == "approved"
    assert loaded.release().pos_label_ == "approved"
    public = model_page(path)
    assert re.search(r"positive class\s+approved", re.sub(r"<[^>]+>", " ", public))
    assert "positive class" in model_card(fitted, intended_use="a test")


def by_group(model, **scores):
    """Return scores of two groups, of which the model knows nothing."""
    return GroupScorer(**scores, levels=["u", "v"])


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda clf: FixedThresholdClassifier(clf, threshold=0.5, pos_label="approved"),
        lambda clf: TunedThresholdClassifierCV(clf, cv=2),
        lambda clf: CalibratedClassifierCV(clf, cv=2),
    ],
    ids=["fixed", "tuned", "calibrated"],
)
def test_models_around_it_keep_it(wrapped, rows):
    X, y = rows[0][["a", "b", "c"]].to_numpy(), rows[1]
    model = wrapped(classifier(classes=["denied", "approved"], group_col=None)).fit(X, y)
    groups = np.where(np.arange(N) % 2, "u", "v")
    scores = by_group(model, measures=["selection_rate"])(model, X, y, sensitive_features=groups)
    assert scores["selection_rate"] == pytest.approx((model.predict(X) == "approved").mean())


@pytest.mark.parametrize("positive", [0, 1])
def test_named_and_fairlearns_scorers_know_it(positive, rows):
    X, y = rows[0][["a", "b", "c"]].to_numpy(), (rows[1] == "approved").astype(int)
    model = classifier(pos_label=positive, group_col=None).fit(X, y)
    groups = np.where(np.arange(N) % 2, "u", "v")
    metrics = {"named": "recall", "fairlearns": make_scorer(selection_rate)}
    metrics |= {"ratio": "positive_likelihood_ratio"}
    measures = ["true_positive_rate", "selection_rate", "neg_false_positive_rate"]
    scorer = by_group(model, metrics=metrics, measures=measures)
    scores = scorer(model, X, y, sensitive_features=groups)
    assert scores["named"] == scores["true_positive_rate"]
    assert scores["fairlearns"] == pytest.approx(scores["selection_rate"])
    ratio = scores["true_positive_rate"] / -scores["neg_false_positive_rate"]
    assert scores["ratio"] == pytest.approx(ratio)


def test_probabilities_of_tables_have_the_columns_of_predict_proba(fitted, rows):
    X, y = rows
    options = {"reference": "m", "sensitive_features": X["sex"], "measures": ["roc_auc", *RATES]}
    given = {"m": fitted.predict(X)}, {"m": fitted.predict_proba(X)}
    tables = [
        group_table(y, given[0], probabilities=given[1], **options, **how)
        for how in (
            {"classes": ["denied", "approved"]},
            {"classes": fitted.classes_, "pos_label": fitted.pos_label_},
            {"pos_label": "approved"},
        )
    ]
    assert tables[0].loc["m", "roc_auc"] > 0.9 and tables[0].attrs["pos_label"] == "approved"
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0])
    with pytest.raises(ValueError, match="y_true has labels outside classes="):
        group_table(y, given[0], classes=["Denied", "Approved"], **options)


@pytest.mark.parametrize("declared", DECLARED)
def test_thresholds_find_it(declared, rows, tmp_path):
    X, y = rows
    model = DPThresholdClassifier(classifier(**declared), "true_positive_rate", target=0.9)
    model.fit(X, y)
    assert model.pos_label_ == "approved"
    predicted = model.predict(X)
    assert (predicted[y == "approved"] == "approved").mean() >= 0.85
    model.save_release(tmp_path / "model.safetensors")
    loaded = load_release(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(X), predicted)
    selected = DPThresholdClassifier(classifier(**declared), "selection_rate", target=0.1)
    assert (selected.fit(X, y).predict(X) == "approved").mean() < 0.4  # noisy counts
    equal = DPThresholdClassifier(
        classifier(**declared), "accuracy", constraint="equal_opportunity"
    )
    found = equal.fit(X, y).predict(X)
    of_groups = [(found[(X["sex"] == g) & (y == "approved")] == "approved").mean() for g in "fm"]
    assert abs(np.diff(of_groups)[0]) < 0.1 and min(of_groups) > 0.5


def test_searches_and_sweeps_count_it(rows):
    X, y = rows
    clf = classifier(classes=["denied", "approved"])
    bounds = dict.fromkeys("abc", (-3, 3))
    pipeline = make_pipeline(public_preprocessor(bounds, passthrough=["sex"], n_intervals=0), clf)
    scoring = GroupScorer(measures=[*RATES, "accuracy"])
    search = GridSearchCV(pipeline, {}, scoring=scoring, refit="accuracy", cv=2).fit(X, y)
    share = (search.predict(X) == "approved").mean()
    found = search.cv_results_
    assert found["mean_test_selection_rate"][0] == pytest.approx(share, abs=0.1) and share < 0.45
    text = TradeoffResults.from_search(search).as_text(["selection_rate"])
    assert text.startswith("selection rate of approved (%)") and " ratio" in text
    private = DPRandomizedSearch(clf, {"lr": [0.5, 1.0]}, epsilon=8.0).fit(X, y)
    assert private.pos_label_ == "approved"
    results = sweep(
        X[list("abc")], y, sensitive_features=X["sex"], methods=["dpsgd"], epsilons=[8.0], seeds=1,
        classes=["denied", "approved"], module="logistic", max_steps=20, keep_predictions=True,
    )  # fmt: skip
    (part,) = (p for name, p in results.predictions_of().items() if name.startswith("dpsgd"))
    expected = by_hand(part["y_true"], part["y_pred"], part["group"])
    row = results.table([*RATES]).xs("mean", axis=1, level=1).loc[("dpsgd", 8.0)]
    for name, value in expected.items():
        assert row[name] == pytest.approx(value)
    assert results.spec.classes == ["denied", "approved"]
    assert "Selection rate of approved" in results.to_html(measures=RATES)
    dashboard = results.to_fairness_dashboard()
    assert np.mean(dashboard["y_true"]) == pytest.approx(np.mean(part["y_true"] == "approved"))


def test_undeclared_labels_are_sorted(rows):
    clf = classifier().fit(*rows)
    assert clf.pos_label_ == "denied"
    page = re.sub(r"<[^>]+>", " ", model_page(clf))
    assert re.search(r"positive class\s+denied", page)


@pytest.mark.parametrize(
    ("labels", "given", "match"),
    [
        (["no", "yes"], {"pos_label": "Yes"}, "pos_label must be one of the classes, got 'Yes'"),
        (["a", "b", "c"], {"pos_label": "a"}, "pos_label='a' is for two classes"),
    ],
)
def test_a_class_that_cannot_be_positive_is_refused(labels, given, match):
    X, y = np.random.default_rng(0).random((60, 2)), np.array(labels)[np.arange(60) % len(labels)]
    with pytest.raises(ValueError, match=match):
        DPFairClassifier("dpsgd", max_steps=2, **given).fit(X, y)
