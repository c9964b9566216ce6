"""The positive class is the same in every table, score, page and file, however the labels sort."""

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
from tests.entrances import SWEEP

pytestmark = pytest.mark.filterwarnings("ignore")
RATES, ABC = ["selection_rate", "true_positive_rate"], list("abc")
N = 1200
LAST = {"classes": ["denied", "approved"]}
DECLARED = {  # "approved" sorts first
    "last": LAST,
    "pos_label": {"classes": ["approved", "denied"], "pos_label": "approved"},
    "undeclared": {"pos_label": "approved"},
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    sex, x = np.where(rng.random(N) < 0.5, "f", "m"), rng.normal(size=(N, 3)).clip(-3, 3)
    score = x[:, 0] + 0.5 * (sex == "m") + 0.4 * rng.normal(size=N)
    y = np.where(score > 0.5, "approved", "denied")
    return pd.DataFrame(x, columns=ABC).assign(sex=sex), y


def classifier(**declared):
    quick = {"epsilon": 8.0, "max_steps": 30, "group_col": "sex", "module": "logistic"}
    return DPFairClassifier("dpsgd", **quick | declared)


@pytest.fixture(scope="module", params=DECLARED)
def fitted(request, rows):
    return classifier(**DECLARED[request.param]).fit(*rows)


def by_hand(y, predicted, sex):
    """Return the rates of the class "approved", of all and as ratios of groups."""
    y, predicted = (np.asarray(v) == "approved" for v in (y, predicted))
    rates = {"selection_rate": predicted.mean(), "true_positive_rate": predicted[y].mean()}
    ratios = demographic_parity_ratio, equal_opportunity_ratio
    for name, ratio in zip(RATES, ratios, strict=True):
        rates[f"{name}_ratio"] = ratio(y, predicted, sensitive_features=sex)
    return rates


def class_on(page):
    """Return the positive class that a page names."""
    return re.search(r"positive class\s+(?:\w+ )?“(\w+)”", re.sub(r"<[^>]+>", " ", page))[1]


def scored(model, X, y, **scores):
    """Return scores of two groups, of which the model was not told."""
    groups = np.where(np.arange(N) % 2, "u", "v")
    return GroupScorer(**scores, levels=["u", "v"])(model, X, y, sensitive_features=groups)


def test_tables_and_scorers_agree_with_fairlearn(fitted, rows):
    X, y = rows
    predicted = fitted.predict(X)
    assert fitted.pos_label_ == "approved" and list(fitted.classes_) == ["approved", "denied"]
    options = {"sensitive_features": X["sex"], "measures": RATES, "reference": "model"}
    table = group_table(y, {"model": predicted}, **LAST, **options)
    assert table.attrs["pos_label"] == "approved"
    scores = GroupScorer(measures=RATES)(fitted, X, y)
    losses = GroupScorer(measures=["neg_log_loss", "roc_auc"])(fitted, X, y)
    assert losses["roc_auc"] > 0.9 and losses["neg_log_loss"] > -0.5
    for name, value in by_hand(y, predicted, X["sex"]).items():
        assert scores[name] == pytest.approx(value) == table.loc["model", name]


def test_pages_cards_and_files_name_the_positive_class(fitted, rows, tmp_path):
    page = model_page(fitted, *rows, measures=RATES)
    assert class_on(page) == class_on(model_page(fitted)) == "approved"
    for rate in ("Selection rate", "True-positive rate", "selection rate"):
        assert f"{rate} of “approved”" in page
    path = tmp_path / "model.safetensors"
    fitted.save_release(path)
    verify_release(path)
    loaded = load_release(path)
    assert {loaded.pos_label_, loaded.release().pos_label_, class_on(model_page(path))} == {
        "approved"
    }
    assert "positive class" in model_card(fitted, intended_use="a test")


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda clf: FixedThresholdClassifier(clf, threshold=0.5, pos_label="approved"),
        lambda clf: TunedThresholdClassifierCV(clf, cv=2),
        lambda clf: CalibratedClassifierCV(clf, cv=2),
    ],
    ids=["fixed", "tuned", "calibrated"],
)
def test_scores_of_wrappers_are_of_the_positive_class_of_the_classifier(wrapped, rows):
    X, y = rows[0][ABC].to_numpy(), rows[1]
    model = wrapped(classifier(**LAST, group_col=None)).fit(X, y)
    rate = scored(model, X, y, measures=["selection_rate"])["selection_rate"]
    assert rate == pytest.approx((model.predict(X) == "approved").mean())


@pytest.mark.parametrize("positive", [0, 1])
def test_named_metrics_and_those_of_fairlearn_are_of_the_positive_class(positive, rows):
    X, y = rows[0][ABC].to_numpy(), (rows[1] == "approved").astype(int)
    model = classifier(pos_label=positive, group_col=None).fit(X, y)
    metrics = {"named": "recall", "fairlearns": make_scorer(selection_rate)}
    metrics |= {"ratio": "positive_likelihood_ratio"}
    measures = ["true_positive_rate", "selection_rate", "neg_false_positive_rate"]
    scores = scored(model, X, y, metrics=metrics, measures=measures)
    assert scores["named"] == scores["true_positive_rate"]
    assert scores["fairlearns"] == pytest.approx(scores["selection_rate"])
    ratio = scores["true_positive_rate"] / -scores["neg_false_positive_rate"]
    assert scores["ratio"] == pytest.approx(ratio)


def test_probabilities_of_tables_have_the_columns_of_predict_proba(fitted, rows):
    X, y = rows
    options = {"reference": "m", "sensitive_features": X["sex"], "measures": ["roc_auc", *RATES]}
    given = {"m": fitted.predict(X)}, {"m": fitted.predict_proba(X)}
    of_model = {"classes": fitted.classes_, "pos_label": fitted.pos_label_}
    table, *others = (
        group_table(y, given[0], probabilities=given[1], **options, **how)
        for how in (LAST, of_model, {"pos_label": "approved"})
    )
    assert table.loc["m", "roc_auc"] > 0.9 and table.attrs["pos_label"] == "approved"
    for other in others:
        pd.testing.assert_frame_equal(other, table)
    with pytest.raises(ValueError, match=r"y_true .* classes="):
        group_table(y, given[0], classes=["Denied", "Approved"], **options)


@pytest.mark.parametrize("declared", DECLARED)
def test_thresholds_are_for_the_positive_class(declared, rows, tmp_path):
    X, y = rows

    def approved(objective, **params):
        clf = classifier(**DECLARED[declared])
        model = DPThresholdClassifier(clf, objective, **params).fit(X, y)
        assert model.pos_label_ == "approved"
        return model, model.predict(X) == "approved"

    model, found = approved("true_positive_rate", target=0.9)
    assert found[y == "approved"].mean() >= 0.85
    model.save_release(tmp_path / "model.safetensors")
    loaded = load_release(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert approved("selection_rate", target=0.1)[1].mean() < 0.4  # noisy counts
    _, found = approved("accuracy", constraint="equal_opportunity")
    of_groups = [found[(X["sex"] == g) & (y == "approved")].mean() for g in "fm"]
    assert abs(np.diff(of_groups)[0]) < 0.1 and min(of_groups) > 0.5


def test_searches_score_the_positive_class(rows):
    X, y = rows
    prepare = public_preprocessor(dict.fromkeys(ABC, (-3, 3)), passthrough=["sex"], n_intervals=0)
    scoring = GroupScorer(measures=[*RATES, "accuracy"])
    pipeline, how = make_pipeline(prepare, classifier(**LAST)), {"refit": "accuracy", "cv": 2}
    search = GridSearchCV(pipeline, {}, scoring=scoring, **how).fit(X, y)
    share = (search.predict(X) == "approved").mean()
    found = search.cv_results_["mean_test_selection_rate"][0]
    assert found == pytest.approx(share, abs=0.1) and share < 0.45
    text = TradeoffResults.from_search(search).as_text(["selection_rate"])
    assert text.startswith("selection rate of “approved”") and " ratio" in text
    private = DPRandomizedSearch(classifier(**LAST), {"lr": [0.5, 1.0]}, epsilon=8.0).fit(X, y)
    assert private.pos_label_ == "approved"


def test_sweeps_count_the_positive_class(rows):
    X, y = rows
    params = {"module": "logistic", "max_steps": 20, "keep_predictions": True, **LAST, **SWEEP}
    results = sweep(X[ABC], y, sensitive_features=X["sex"], **params | {"epsilons": [8.0]})
    (part,) = (p for name, p in results.predictions_of().items() if name.startswith("dpsgd"))
    row = results.table([*RATES]).xs("mean", axis=1, level=1).loc[("dpsgd", 8.0)]
    for name, value in by_hand(part["y_true"], part["y_pred"], part["group"]).items():
        assert row[name] == pytest.approx(value)
    assert results.spec.classes == LAST["classes"]
    assert "Selection rate of “approved”" in results.to_html(measures=RATES)
    share = np.mean(results.to_fairness_dashboard()["y_true"])
    assert share == pytest.approx(np.mean(part["y_true"] == "approved"))


def test_the_last_of_undeclared_labels_is_positive(rows):
    clf = classifier().fit(*rows)
    assert clf.pos_label_ == class_on(model_page(clf)) == "denied"
