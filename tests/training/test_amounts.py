"""Fine curves of amounts: the choice, its counts and their budget, and models that have them."""

import pickle
import warnings
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
from skdpfair._networks import FineKnots
from skdpfair.augmentations import PGD
from skdpfair.model_selection import (
    DPRandomizedSearch,
    DPThresholdClassifier,
    forecast,
    sweep,
)
from skdpfair.preprocessing import TableSchema, public_preprocessor
from skdpfair.privacy import compute_epsilon, gdp_parameter
from skdpfair.release import _file
from skdpfair.report import ShapeDisplay
from skdpfair.testing import verify_release
from skdpfair.training import amounts
from skdpfair.training.defaults import network_for
from skdpfair.training.inference import with_knots

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.LowSignalWarning",
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
)
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
    return made()


@pytest.fixture(scope="module")
def encoded(rows):
    return SCHEMA.split(rows, epsilon=3.0)[:2]


@pytest.fixture(scope="module")
def fitted(encoded):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DPFairClassifier("dpsgd", epsilon=3.0, random_state=0).fit(*encoded)


def test_columns_of_fine_knots_are_the_hats_between_the_coarse_ones():
    u = np.r_[0.0, 1.0, 0.5, 1 / 1024, np.random.default_rng(0).uniform(size=50)].astype(np.float32)
    x = np.stack([np.full_like(u, 9.0), 2 * u - 1, 1 - 2 * u], axis=1)
    knots = FineKnots((2, 1), 3)
    wide = knots(torch.from_numpy(x)).numpy()
    expected = [
        j_max**0.25 * np.maximum(0, 1 - np.abs(j_max * (x[:, column].astype(float) + 1) / 2 - j))
        for column in (2, 1)
        for j_max in (16, 32, 64, 128, 256, 512)
        for j in range(1, j_max, 2)
    ]
    assert knots.width - 3 == len(expected) == 2 * (512 - 8)
    np.testing.assert_array_equal(wide[:, :3], x)
    np.testing.assert_allclose(wide[:, 3:], np.transpose(expected), atol=1e-4)
    stored = with_knots(knots, x)
    np.testing.assert_array_equal(stored.matrix.toarray(), wide)
    assert stored.n_stored <= 3 + 12


def test_the_fit_chooses_the_amounts_whose_exact_values_matter(encoded, fitted, rows):
    X, y = encoded
    assert network_for(X.columns).amounts == tuple(map(X.columns.get_loc, ["pay_log", "rent_log"]))
    assert fitted.net_.module.params["fine"] == (X.columns.get_loc("pay_log"),)
    plain = DPFairClassifier("dpsgd", epsilon=3.0, module="logistic", random_state=0).fit(X, y)
    X_test, y_test, _ = FIXED.split(made(N + 2000).tail(2000))
    assert fitted.score(X_test, y_test) > plain.score(X_test, y_test) + 0.05


def test_the_counts_are_in_the_ledger_and_in_epsilon(fitted):
    entries = fitted.privacy_.releases
    (noise,) = entries[0].noise_multipliers
    mu = gdp_parameter(3.0, fitted.privacy_.delta)
    assert entries[0].what == "amount counts" and entries[0].is_one_time
    assert noise == pytest.approx(5 / mu)
    assert fitted.privacy_.epsilon <= 3.0
    assert compute_epsilon(entries, fitted.privacy_.delta) == pytest.approx(fitted.privacy_.epsilon)


@pytest.mark.parametrize(
    ("given", "n"),
    [({"epsilon": 3.0}, 400), ({"noise_multiplier": 1.0, "epsilon": None}, N), ({"sgd": 1}, N)],
    ids=["few records", "given noise", "without privacy"],
)
def test_nothing_is_released_where_nothing_is_to_choose(encoded, given, n):
    X, y = (part[:n] for part in encoded)
    is_private = "sgd" not in given
    given = given if is_private else {"method": "sgd", "epsilon": None}
    clf = DPFairClassifier(**({"method": "dpsgd", "max_steps": 3} | given)).fit(X, y)
    assert "amount counts" not in [entry.what for entry in clf.privacy_.releases]
    # exact counts are free without privacy
    assert ("fine" in clf.net_.module.params) == (not is_private)


def table_of(x, y, person=None):
    x = np.asarray(x, np.float32)
    return SimpleNamespace(x=x, y=np.asarray(y), person=person, n_outputs=3)


def test_one_record_or_person_moves_the_counts_by_the_root_of_the_number_of_amounts():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1.5, 1.5, (30, 4)), rng.integers(0, 3, 30)
    all_rows = amounts.counted(table_of(x, y), (0, 1, 3))
    for i in range(30):
        rest = amounts.counted(table_of(np.delete(x, i, 0), np.delete(y, i)), (0, 1, 3))
        assert np.linalg.norm(all_rows - rest) <= np.sqrt(3) + 1e-9
    # ten persons with three records each, or with records in one cell alone
    person = np.repeat(np.arange(10), 3)
    x[:3], y[:3] = 0.3, y[0]
    of_all = amounts.counted(table_of(x, y, person), (0, 1, 3))
    moved = []
    for i in range(10):
        kept = person != i
        # whoever takes no part is as good as absent
        for rest in (
            table_of(x[kept], y[kept], person[kept]),
            table_of(x, y, np.where(kept, person, -1)),
        ):
            moved.append(np.linalg.norm(of_all - amounts.counted(rest, (0, 1, 3))))
    assert max(moved) == pytest.approx(np.sqrt(3)) == moved[0] == moved[1]


@pytest.mark.parametrize("n_classes", [2, 5])
def test_smooth_amounts_are_taken_for_rough_in_less_than_two_of_a_hundred_tables(n_classes):
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


def test_copies_predict_as_the_model_does(encoded, fitted, rows, tmp_path):
    X = encoded[0]
    expected = fitted.decision_function(X)
    path = tmp_path / "model.safetensors"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.save_release(path, schema=SCHEMA)
    loaded = load_release(path)
    for model in (pickle.loads(pickle.dumps(fitted)), fitted.release(), loaded):
        np.testing.assert_array_equal(model.decision_function(X), expected)
    np.testing.assert_array_equal(loaded.decision_function(rows), expected)
    # trained on sparse rows, as the module is without its first part
    wide = with_knots(fitted.net_.module_[0], X.to_numpy(copy=True))
    logits = fitted.net_.module_[1](torch.from_numpy(wide[:])).detach().numpy()
    margin = (logits[:, 1] - logits[:, 0]) * fitted.logit_scale_
    np.testing.assert_allclose(margin, expected, atol=1e-4)


def test_the_next_fit_and_thresholds_and_the_reference_have_the_same_curves(encoded):
    X, y = encoded
    given = {"epsilon": 3.0, "random_state": 0, "keep_reference": True}
    clf = DPFairClassifier("dpsgd", warm_start=True, **given).fit(X, y)
    fine = clf.net_.module.params["fine"]
    assert fine == clf.reference_.net_.module.params["fine"]
    clf.fit(X, y)
    assert clf.net_.module.params["fine"] == fine
    counts = [entry.what for entry in clf.privacy_.releases if entry.what == "amount counts"]
    assert len(counts) == 1
    tuned = DPThresholdClassifier(DPFairClassifier("dpsgd", epsilon=3.0, random_state=0)).fit(X, y)
    assert tuned.estimator_.net_.module.params["fine"] == fine
    assert tuned.privacy_.epsilon <= 3.0


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.PrivacyLeakWarning")
def test_a_release_may_say_which_curves_are_fine_and_nothing_else(encoded, fitted, tmp_path):
    X, y = encoded
    path = tmp_path / "model.safetensors"
    given = DPFairClassifier("dpsgd", epsilon=3.0, module=network_for(X.columns))
    # the columns of an array have no names
    for model in (clone(given).fit(X.to_numpy(), y), given.fit(X, y), fitted):
        model.save_release(path)
        verify_release(path)
    content, weights = _file.read(path)
    for planted in ([20, 10], [-20], ["a name"], [12345]):
        content["module"]["params"]["fine"] = {"tuple": planted}
        _file.write(path, content, weights)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            verify_release(path)


def test_forecasts_know_the_counts_by_the_encoder(rows):
    X, y = rows.drop(columns="y"), rows["y"]
    clf = DPFairClassifier("dpsgd", epsilon=3.0, classes=["no", "yes"])
    model = make_pipeline(public_preprocessor(SCHEMA.bounds, epsilon=3.0), clf)
    foreseen = forecast(model, len(X))
    entries = model.fit(X, y)[-1].privacy_.releases
    assert [r.what for r in foreseen.fits[0].releases][:1] == [entries[0].what] == ["amount counts"]
    assert foreseen.epsilon == pytest.approx(model[-1].privacy_.epsilon, rel=1e-6)
    # under attack, rows are not those that were counted
    attacked = clone(model).set_params(dpfairclassifier__attack=PGD(0.1, 0.1, 1))
    assert forecast(attacked, len(X)).fits[0].releases[0].what != "amount counts"
    frozen = make_pipeline(FrozenEstimator(model[0]), clf)
    assert forecast(frozen, len(X)).epsilon == foreseen.epsilon
    # only the fit sees the names of columns that other steps pass on
    passing = make_pipeline("passthrough", clf)
    for searched in (model, frozen, passing, clf):
        prefix = "" if searched is clf else "dpfairclassifier__"
        search = DPRandomizedSearch(searched, {f"{prefix}lr": [1.0, 2.0]}, mean_trials=2.0)
        rows_of = X if searched in (model, frozen) else model[:-1].transform(X)
        found = search.fit(rows_of, y, sensitive_features=None)
        assert found.privacy_.epsilon > 3.0


def test_an_attack_moves_amounts_and_their_knots_follow(encoded, fitted):
    X, y = encoded
    widths = set()

    class Watched(PGD):
        def __call__(self, forward, x, *args):
            widths.add(x.shape[1])
            return super().__call__(forward, x, *args)

    clf = pickle.loads(pickle.dumps(fitted))
    attack = Watched(0.1, 0.1, 1, input_range=None)
    clf.set_params(warm_start=True, attack=attack, max_steps=2).fit(X, y)
    assert clf.net_.module.params["fine"] and widths == {X.shape[1]}


def test_an_amount_may_be_the_first_column(encoded):
    X, y = encoded
    X = X[["pay_log", *X.columns.drop("pay_log")]]
    found = sweep(
        X,
        y,
        sensitive_features=np.arange(len(y)) % 2,
        methods=["dpsgd"],
        epsilons=[3.0],
        seeds=1,
        max_steps=2,
        progress=False,
    )
    assert {*found.frame["method"]} == {"reference", "dpsgd"}


@pytest.mark.filterwarnings("ignore:More than 20 figures:RuntimeWarning")
def test_the_shape_of_a_fine_curve_is_the_models(rows):
    X, y = rows.drop(columns="y"), rows["y"]
    preprocessor = public_preprocessor(SCHEMA.bounds, epsilon=3.0)
    model = make_pipeline(preprocessor, DPFairClassifier("dpsgd", epsilon=3.0)).fit(X, y)
    shape = (
        ShapeDisplay.from_estimator(model).frame.query("column == 'pay'").astype({"value": float})
    )
    pay = np.unique(X["pay"])
    expected = model.decision_function(X.iloc[[0] * len(pay)].assign(pay=pay))
    difference = np.interp(pay, shape["value"], shape["logit"]) - expected
    # log-linear pieces are drawn as straight ones
    assert np.ptp(difference) < 0.05 < np.ptp(expected)


class Watching(Callback):
    """Predicts public rows after each epoch."""

    def __init__(self, X):
        self.X, self.seen = X, []

    def on_epoch_end(self, net, **kwargs):
        self.seen.append(net.logits(self.X))


def test_callbacks_predict_rows_as_they_are(encoded):
    X, y = encoded
    watching = Watching(X[:7].to_numpy(copy=True))
    given = {"epsilon": 3.0, "random_state": 0, "validation_data": (X[:50], y[:50])}
    clf = DPFairClassifier("dpsgd", callbacks=[watching], **given).fit(X, y)
    assert "fine" in clf.net_.module.params
    assert {seen.shape for seen in watching.seen} == {(7, 2)}
