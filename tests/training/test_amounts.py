"""Fine curves of amounts: the choice, its counts and their budget, and models that have them."""

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from skorch.callbacks import Callback

from skdpfair import DPFairClassifier, load_release
from skdpfair.augmentations import PGD
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier, forecast, sweep
from skdpfair.preprocessing import TableSchema, public_preprocessor
from skdpfair.privacy import compute_epsilon, gdp_parameter
from skdpfair.release import _file
from skdpfair.report import ShapeDisplay
from skdpfair.testing import verify_release
from skdpfair.training import amounts
from skdpfair.training.defaults import network_for
from skdpfair.training.inference import with_knots
from tests.quick_fits import QUIET

pytestmark = QUIET
SCHEMA = TableSchema(
    target="y", classes=["no", "yes"], bounds={"age": (18, 98), "pay": (0, 1e6), "rent": (0, 1e4)}
)
N = 12_000
FIXED = SCHEMA.with_fixed_encoding(N, epsilon=3.0)


def made(n=N):
    """A table in which exact amounts of pay decide, and rent acts smoothly."""
    rng = np.random.default_rng(0)
    popular = np.round(np.exp(rng.uniform(3, 13, 40)))
    which, age, rent, noise = rng.uniform(size=(n, 4)).T
    which, rent = (40 * which).astype(int), np.exp(4 + 4 * rent)
    score = 3.0 * (which % 2) + np.log(rent) - 7.5 + np.log(noise / (1 - noise))
    label = np.where(score > 0, "yes", "no")
    return pd.DataFrame({"age": 18 + 80 * age, "pay": popular[which], "rent": rent, "y": label})


@pytest.fixture(scope="module")
def rows():
    table = made()
    return table.drop(columns="y"), table["y"]


@pytest.fixture(scope="module")
def encoded():
    return SCHEMA.split(made(), epsilon=3.0)[:2]


def private(**params):
    return DPFairClassifier("dpsgd", **{"epsilon": 3.0, "random_state": 0} | params)


@pytest.fixture(scope="module")
def fitted(encoded):
    return private().fit(*encoded)


def fine(model):
    return model.net_.module.params["fine"]


def releases(report):
    return [entry.what for entry in report.releases]


def test_choose_fine_curves_takes_the_amounts_whose_exact_values_matter(encoded, fitted):
    X, y = encoded
    assert network_for(X.columns).amounts == tuple(map(X.columns.get_loc, ["pay_log", "rent_log"]))
    assert fine(fitted) == (X.columns.get_loc("pay_log"),)
    plain = private(module="logistic").fit(X, y)
    X_test, y_test, _ = FIXED.split(made(N + 2000).tail(2000))
    assert fitted.score(X_test, y_test) > plain.score(X_test, y_test) + 0.05


def test_amount_counts_are_among_the_releases_and_in_epsilon(fitted):
    report = fitted.privacy_
    counts = report.releases[0]
    (noise,) = counts.noise_multipliers
    assert (counts.what, counts.is_one_time) == ("amount counts", True)
    assert noise == pytest.approx(5 / gdp_parameter(3.0, report.delta))
    assert report.epsilon <= 3.0
    assert compute_epsilon(report.releases, report.delta) == pytest.approx(report.epsilon)


@pytest.mark.parametrize(
    ("params", "n", "has_curves"),
    [
        ({}, 400, False),
        ({"noise_multiplier": 1.0, "epsilon": None}, N, False),
        ({"method": "sgd", "epsilon": None}, N, True),  # exact counts are free without privacy
    ],
    ids=["few records", "given noise", "without privacy"],
)
def test_amount_counts_are_not_released_where_there_is_no_choice(encoded, params, n, has_curves):
    model = private(max_steps=3).set_params(**params).fit(*(part[:n] for part in encoded))
    assert "amount counts" not in releases(model.privacy_)
    assert ("fine" in model.net_.module.params) == has_curves


def table_of(x, y, person=None):
    x = np.asarray(x, np.float32)
    return SimpleNamespace(x=x, y=np.asarray(y), person=person, n_outputs=3)


def test_counted_moves_by_the_root_of_the_number_of_amounts_for_one_record_or_person():
    rng, columns = np.random.default_rng(0), (0, 1, 3)
    x, y = rng.uniform(-1.5, 1.5, (30, 4)), rng.integers(0, 3, 30)
    all_rows = amounts.counted(table_of(x, y), columns)
    for i in range(30):
        rest = amounts.counted(table_of(np.delete(x, i, 0), np.delete(y, i)), columns)
        assert np.linalg.norm(all_rows - rest) <= np.sqrt(3) + 1e-9
    # ten persons with three records each, or with records in one cell alone
    person = np.repeat(np.arange(10), 3)
    x[:3], y[:3] = 0.3, y[0]
    of_all, moved = amounts.counted(table_of(x, y, person), columns), []
    for i in range(10):
        rest = person != i
        # whoever takes no part is as good as absent
        absent = table_of(x[rest], y[rest], person[rest])
        for table in (absent, table_of(x, y, np.where(rest, person, -1))):
            moved.append(np.linalg.norm(of_all - amounts.counted(table, columns)))
    assert max(moved) == pytest.approx(np.sqrt(3)) == moved[0] == moved[1]


@pytest.mark.parametrize("n_classes", [2, 5])
def test_is_rough_errs_on_less_than_two_of_a_hundred_smooth_tables(n_classes):
    n, noise, rng = 20_000, 25.0, np.random.default_rng(n_classes)
    wrong = 0
    for _ in range(300):
        u = np.clip(rng.normal(rng.uniform(0.2, 0.8), 0.15, n), 0, 1)
        chance = 1 / (1 + np.exp(-rng.normal(0, 4) * (u - 0.5)))
        y = rng.binomial(n_classes - 1, chance)
        table = SimpleNamespace(x=(2 * u - 1)[:, None], y=y, person=None, n_outputs=n_classes)
        counts = amounts.counted(table, (0,))[0]
        wrong += amounts.is_rough(counts + noise * rng.standard_normal(counts.shape), noise)
    # at a rate of 2 %, more has a probability of 1e-4
    assert wrong <= 16


def test_fine_curves_predict_alike_in_pickles_releases_and_files(encoded, rows, fitted, tmp_path):
    X, path = encoded[0], tmp_path / "model.safetensors"
    expected = fitted.decision_function(X)
    fitted.save_release(path, schema=SCHEMA)
    loaded = load_release(path)
    for model in (pickle.loads(pickle.dumps(fitted)), fitted.release(), loaded):
        np.testing.assert_array_equal(model.decision_function(X), expected)
    np.testing.assert_array_equal(loaded.decision_function(rows[0]), expected)
    # trained on sparse rows, as the module is without its first part
    wide = with_knots(fitted.net_.module_[0], X.to_numpy(copy=True))
    logits = fitted.net_.module_[1](torch.from_numpy(wide[:])).detach().numpy()
    margin = (logits[:, 1] - logits[:, 0]) * fitted.logit_scale_
    np.testing.assert_allclose(margin, expected, atol=1e-4)


def test_fine_curves_are_those_of_the_next_fit_the_reference_and_thresholds(encoded, fitted):
    model = private(warm_start=True, keep_reference=True, max_steps=20).fit(*encoded)
    assert fine(model) == fine(model.reference_) == fine(fitted)
    model.fit(*encoded)
    assert fine(model) == fine(fitted) and releases(model.privacy_).count("amount counts") == 1
    tuned = DPThresholdClassifier(private(max_steps=20)).fit(*encoded)
    assert fine(tuned.estimator_) == fine(fitted) and tuned.privacy_.epsilon <= 3.0


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.PrivacyLeakWarning")
def test_verify_release_takes_indices_of_fine_curves_and_nothing_else(encoded, fitted, tmp_path):
    X, y = encoded
    path = tmp_path / "model.safetensors"
    given = private(module=network_for(X.columns), random_state=None, max_steps=3)
    # the columns of an array have no names
    for model in (clone(given).fit(X.to_numpy(), y), given.fit(X, y), fitted):
        model.save_release(path)
        verify_release(path)
    content, arrays = _file.read(path)
    for planted in ([20, 10], [-20], ["a name"], [12345]):
        content["module"]["params"]["fine"] = {"tuple": planted}
        _file.write(path, content, arrays)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            verify_release(path)


def test_forecast_has_the_amount_counts_that_the_encoder_leads_to(rows):
    X, y = rows
    clf = private(random_state=None, classes=["no", "yes"], max_steps=20)
    model = make_pipeline(public_preprocessor(SCHEMA.bounds, epsilon=3.0), clf)
    foreseen = forecast(model, len(X))
    report = model.fit(X, y)[-1].privacy_
    assert releases(foreseen.fits[0])[0] == releases(report)[0] == "amount counts"
    assert foreseen.epsilon == pytest.approx(report.epsilon, rel=1e-6)
    # under attack, rows are not those that were counted
    attacked = clone(model).set_params(dpfairclassifier__attack=PGD(0.1, 0.1, 1))
    assert "amount counts" not in releases(forecast(attacked, len(X)).fits[0])
    frozen = make_pipeline(FrozenEstimator(model[0]), clf)
    assert forecast(frozen, len(X)).epsilon == foreseen.epsilon
    # only the fit sees the names of columns that other steps pass on
    passing = make_pipeline("passthrough", clf)
    for searched in (model, frozen, passing, clf):
        prefix = "" if searched is clf else "dpfairclassifier__"
        search = DPRandomizedSearch(searched, {f"{prefix}lr": [1.0, 2.0]}, mean_trials=2.0)
        read = X if searched in (model, frozen) else model[:-1].transform(X)
        assert search.fit(read, y, sensitive_features=None).privacy_.epsilon > 3.0


def test_attack_moves_amounts_and_their_knots_follow(encoded, fitted):
    widths = set()

    class Watched(PGD):
        def __call__(self, forward, x, *args):
            widths.add(x.shape[1])
            return super().__call__(forward, x, *args)

    clf = pickle.loads(pickle.dumps(fitted))
    attack = Watched(0.1, 0.1, 1, input_range=None)
    clf.set_params(warm_start=True, attack=attack, max_steps=2).fit(*encoded)
    assert fine(clf) and widths == {encoded[0].shape[1]}


def test_sweep_trains_with_an_amount_in_the_first_column(encoded):
    X, y = encoded
    X = X[["pay_log", *X.columns.drop("pay_log")]]
    settings = {"epsilons": [3.0], "seeds": 1, "max_steps": 2, "progress": False}
    found = sweep(X, y, sensitive_features=np.arange(len(y)) % 2, methods=["dpsgd"], **settings)
    assert {*found.frame["method"]} == {"reference", "dpsgd"}


@pytest.mark.filterwarnings("ignore:More than 20 figures:RuntimeWarning")
def test_shape_display_draws_a_fine_curve_as_the_model_predicts(rows):
    X, y = rows
    preprocessor = public_preprocessor(SCHEMA.bounds, epsilon=3.0)
    model = make_pipeline(preprocessor, private(random_state=None)).fit(X, y)
    shape = ShapeDisplay.from_estimator(model).frame.query("column == 'pay'")
    pay = np.unique(X["pay"])
    expected = model.decision_function(X.iloc[[0] * len(pay)].assign(pay=pay))
    difference = np.interp(pay, shape["value"].astype(float), shape["logit"]) - expected
    # log-linear pieces are drawn as straight ones
    assert np.ptp(difference) < 0.05 < np.ptp(expected)


def test_callbacks_predict_rows_without_columns_of_knots(encoded):
    X, y = encoded
    shapes, rows = set(), X[:7].to_numpy(copy=True)

    class Watching(Callback):
        def on_epoch_end(self, net, **kwargs):
            shapes.add(net.logits(rows).shape)

    clf = private(callbacks=[Watching()], validation_data=(X[:50], y[:50])).fit(X, y)
    assert fine(clf) and shapes == {(7, 2)}
