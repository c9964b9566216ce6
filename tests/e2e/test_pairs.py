"""Fits with cells of pairs: in files, forecasts, sweeps, thresholds, of persons and of classes."""

import pickle
from contextlib import suppress

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier, DPFairRegressor, Persons, load_release
from skdpfair.augmentations import PGD
from skdpfair.model_selection import DPThresholdClassifier, forecast, sweep
from skdpfair.release import _file
from skdpfair.release._read_statement import statement
from skdpfair.testing import verify_release
from tests.pairs import SCHEMA, pairs, planted
from tests.quick_fits import QUIET

pytestmark = QUIET
NAMES = {"pair a × b", "pair kind × ward"}


def private(**params):
    return DPFairClassifier("dpsgd", **{"epsilon": 3.0, "random_state": 0} | params)


@pytest.fixture(scope="module")
def rows():
    return planted()


@pytest.fixture(scope="module")
def encoded(rows):
    return SCHEMA.preprocessor(epsilon=3.0).fit_transform(rows), rows["y"].to_numpy(str)


@pytest.fixture(scope="module")
def fitted(encoded):
    return private().fit(*encoded)


def chosen(model):
    return {what for what, number, least in model.privacy_.choices if number > least}


def test_pairs_predict_alike_in_pickles_releases_and_files(encoded, rows, fitted, tmp_path):
    X, y = encoded
    path, expected = tmp_path / "model.safetensors", fitted.decision_function(X)
    assert chosen(fitted) >= NAMES and fitted.score(X, y) > 0.7
    fitted.save_release(path, schema=SCHEMA)
    loaded = load_release(path)
    for model in (pickle.loads(pickle.dumps(fitted)), fitted.release(), loaded):
        np.testing.assert_array_equal(model.decision_function(X), expected)
    np.testing.assert_array_equal(loaded.decision_function(rows), expected)
    one_by_one = np.r_[*(loaded.decision_function(X[i : i + 1]) for i in range(20))]
    np.testing.assert_allclose(one_by_one, expected[:20], atol=1e-5)
    assert loaded.privacy_.choices == fitted.privacy_.choices
    verify_release(path)


def test_pairs_of_columns_in_any_order_can_be_released(encoded, rows, tmp_path):
    X, _ = encoded
    X = X[sorted(X, key=lambda name: not name.startswith("kind"))]
    y = rows["a"] * (rows["kind"] == "left") > np.random.default_rng(0).normal(0, 0.1, len(rows))
    model = private().fit(X, y)
    assert chosen(model) & {"pair kind × a"}
    model.save_release(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("where", "planted"),
    [
        ("pairs", [[0, 1, 2]]),
        ("pairs", [[0, 1, 0, 1]]),
        ("pairs", [[0, 1, 90, 1]]),
        ("pairs", [["a name", 1, 2, 1]]),
        ("choices", [["pair a × nobody", 0.1, 0.005]]),
        ("choices", [["pair a × b", 12345.5]]),
        ("choices", [["pair a × b", 0.1, 0.005]] * 2),
        ("choices", [["pair a × b", 0.1, 12345.5]]),
        ("choices", [["pair b × c", 0.1, 0.005]]),
        ("choices", {("pair a × b", 0.1, 0.005): "records"}),
        ("choices", [{"pair a × b": "records", 0.1: 1, 0.005: 2}]),
        ("pairs", {(0, 1, 10, 1): "records"}),
        ("pairs", [[0, 1, 10, 1]] * 2),
    ],
    ids=str,
)
def test_verify_release_takes_pairs_of_columns_and_nothing_else(fitted, tmp_path, where, planted):
    path = tmp_path / "model.safetensors"
    fitted.release().save_release(path)
    content, arrays = _file.opened(path)[:2]
    if isinstance(planted, list):
        planted = tuple(tuple(row) if isinstance(row, list) else row for row in planted)
    if where == "pairs":
        content["module"]["params"]["pairs"] = _file.encode(planted)
    else:
        (report,) = content["fitted"]["privacy_"]["report"]
        (field,) = [field for field in report["dict"] if field[0] == "choices"]
        field[1] = _file.encode(planted)
        with suppress(ValueError):  # a wrong number of numbers
            content["privacy_statement"] = statement(_file.decode({"report": [report]}))
    _file.write(path, content, arrays)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        verify_release(path)


def test_pairs_are_those_of_the_next_fit_the_reference_and_thresholds(encoded, fitted):
    model = private(warm_start=True, keep_reference=True, max_steps=20).fit(*encoded)
    assert pairs(model) == pairs(model.reference_) and chosen(model) == chosen(fitted)
    model.fit(*encoded)
    releases = [entry.what for entry in model.privacy_.releases]
    assert chosen(model) == chosen(fitted) and releases.count("column counts") == 1
    tuned = DPThresholdClassifier(private(max_steps=20)).fit(*encoded)
    assert chosen(tuned) >= NAMES and tuned.privacy_.epsilon <= 3.0


def test_pairs_of_persons_several_classes_and_numbers(encoded, rows):
    X, y = encoded
    person = np.arange(len(y)) // 2
    of_persons = private(epsilon=8.0, persons=Persons(max_records=2))
    assert chosen(of_persons.fit(X, y, persons=person)) >= {"pair kind × ward"}
    levels = np.digitize(rows["score"], [-1, 1])
    assert chosen(private().fit(X, levels)) >= NAMES
    regressor = DPFairRegressor("dpsgd", epsilon=3.0, y_range=(-8, 8), random_state=0)
    assert chosen(regressor.fit(X, rows["score"])) >= NAMES


def test_forecast_and_sweep_know_of_the_counts(encoded, rows):
    X, y = encoded
    features = SCHEMA.preprocessor(epsilon=3.0)
    model = make_pipeline(features, private(random_state=None, classes=["no", "yes"], max_steps=20))
    foreseen = forecast(model, len(X)).fits[0].releases
    report = model.fit(rows, y)[-1].privacy_
    assert foreseen[0].what == "column counts"
    assert foreseen[0] == report.releases[0]
    settings = {"epsilons": [3.0], "seeds": 1, "progress": False, "methods": ["dpsgd"]}
    found = sweep(X, y, sensitive_features=rows["kind"], **settings)
    plain = sweep(X, y, sensitive_features=rows["kind"], module="logistic", **settings)
    score = [
        r.frame.query("method == 'dpsgd' and group == 'overall'").accuracy for r in (found, plain)
    ]
    assert float(score[0].iloc[0]) > float(score[1].iloc[0]) + 0.05


@pytest.mark.parametrize("how", ["attack", "noise", "logistic"])
def test_pairs_are_not_counted_where_there_is_no_choice(encoded, how):
    given = {
        "attack": {"attack": PGD(0.1, 0.1, 1, input_range=None)},
        "noise": {"noise_multiplier": 1.0, "epsilon": None},
        "logistic": {"module": "logistic"},
    }[how]
    model = private(max_steps=3, **given).fit(*encoded)
    assert pairs(model) == () and model.privacy_.choices == ()
