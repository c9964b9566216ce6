"""Fine curves of amounts and cells of pairs: the choice, its counts and their budget."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skdpfair import DPFairClassifier, DPFairRegressor
from skdpfair._networks import Curves
from skdpfair.preprocessing import public_preprocessor
from skdpfair.privacy import compute_epsilon, gdp_parameter
from skdpfair.training import column_counts, defaults
from skdpfair.training.defaults import network_for
from tests.fine_curves import FIXED, SCHEMA, N, fine, made, private, releases
from tests.pairs import SCHEMA as PAIRS
from tests.pairs import pairs, planted
from tests.quick_fits import QUIET

pytestmark = QUIET


@pytest.fixture(scope="module")
def encoded():
    return SCHEMA.split(made(), epsilon=3.0)[:2]


@pytest.fixture(scope="module")
def fitted(encoded):
    return private().fit(*encoded)


def test_choose_columns_takes_the_amounts_whose_exact_values_matter(encoded, fitted):
    X, y = encoded
    assert network_for(X.columns).amounts == tuple(map(X.columns.get_loc, ["pay_log", "rent_log"]))
    assert fine(fitted) == (X.columns.get_loc("pay_log"),)
    plain = private(module="logistic").fit(X, y)
    X_test, y_test, _ = FIXED.split(made(N + 2000).tail(2000))
    assert fitted.score(X_test, y_test) > plain.score(X_test, y_test) + 0.05


def test_column_counts_are_among_the_releases_and_in_epsilon(fitted):
    report = fitted.privacy_
    counts = report.releases[0]
    (noise,) = counts.noise_multipliers
    assert (counts.what, counts.is_one_time) == ("column counts", True)
    share = defaults.AMOUNT_SHARE + defaults.PAIR_SHARE
    assert noise == pytest.approx(1 / np.sqrt(share) / gdp_parameter(3.0, report.delta))
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
def test_column_counts_are_not_released_where_there_is_no_choice(encoded, params, n, has_curves):
    model = private(max_steps=3).set_params(**params).fit(*(part[:n] for part in encoded))
    assert "column counts" not in releases(model.privacy_)
    assert ("fine" in model.net_.module.params) == has_curves


def table_of(x, y, person=None, classes=(0, 1, 2)):
    x, n_outputs = np.asarray(x, np.float32), 1 if classes is None else len(classes)
    y = np.asarray(y)
    return SimpleNamespace(x=x, y=y, person=person, classes=classes, n_outputs=n_outputs)


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_counted_moves_by_one_in_each_table_for_one_record_or_person(kind):
    rng, network = np.random.default_rng(0), Curves((0, 1), columns=((0, 1), (1, 1), (2, 3)))
    x, y = rng.uniform(-1.5, 1.5, (30, 5)), rng.integers(0, 3, 30)
    x[:, 2:] = np.eye(3)[rng.integers(0, 3, 30)]
    x[5, 2:] = 0  # of no category
    classes = (0, 1, 2)
    if kind == "numbers":
        y, classes = rng.uniform(-1, 1, 30), None

    def moved(change, whole):
        return [np.linalg.norm(a - b) for a, b in zip(change, whole, strict=True)]

    def counts(x, y, person=None):
        return column_counts.counted(table_of(x, y, person, classes), network)

    whole = counts(x, y)
    assert [table.shape[1:] for table in whole] == [(256,), (256,), (6, 6), (6, 3), (6, 3)]
    for i in range(30):
        change = moved(counts(np.delete(x, i, 0), np.delete(y, i)), whole)
        assert max(change) <= 1 + 1e-9
        assert max(change[3:]) == 0 if i == 5 else min(change) > 0
    # ten persons with three records each, or with records in one cell alone
    person = np.repeat(np.arange(10), 3)
    x[:3], y[:3] = x[0], y[0]
    of_all, changes = counts(x, y, person), []
    for i in range(10):
        rest = person != i
        # whoever takes no part is as good as absent
        for part in (
            counts(x[rest], y[rest], person[rest]),
            counts(x, y, np.where(rest, person, -1)),
        ):
            changes.append(moved(part, of_all))
    assert np.max(changes) <= 1 + 1e-9
    np.testing.assert_allclose(changes[0], changes[1])
    if kind == "classes":
        np.testing.assert_allclose(changes[0], 1)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_roughness_of_errs_on_less_than_two_of_a_hundred_smooth_tables(n_classes):
    n, noise, rng = 20_000, 25.0, np.random.default_rng(n_classes)
    wrong = 0
    for _ in range(300):
        u = np.clip(rng.normal(rng.uniform(0.2, 0.8), 0.15, n), 0, 1)
        chance = 1 / (1 + np.exp(-rng.normal(0, 4) * (u - 0.5)))
        y = rng.binomial(n_classes - 1, chance)
        table = table_of((2 * u - 1)[:, None], y, classes=range(n_classes))
        counts = column_counts.counted(table, Curves((0,)))[0]
        noisy = counts + noise * rng.standard_normal(counts.shape)
        wrong += column_counts.roughness_of(noisy, noise) > column_counts.SIGNIFICANT
    # at a rate of 2 %, more has a probability of 1e-4
    assert wrong <= 16


def test_roughness_of_smooth_amounts_in_a_part_of_their_bounds_is_small():
    rng, noise, rough = np.random.default_rng(0), 60.0, []
    features = public_preprocessor({"exam": (0, 1000)}, n_intervals=8)
    for _ in range(40):
        exam = rng.normal(500, 100, 40_000).clip(0, 1000)
        y = rng.binomial(1, 1 / (1 + np.exp(-(exam - 500) / 70)))
        X = features.fit_transform(pd.DataFrame({"exam": exam}))
        network = network_for(X.columns)
        (counts,) = column_counts.counted(table_of(X, y, classes=(0, 1)), Curves(network.amounts))
        counts = counts + noise * rng.standard_normal(counts.shape)
        limits = (None, network.limits[0])
        rough.append([column_counts.roughness_of(counts, noise, of) for of in limits])
    assert network.limits == ((0.0, 1000.0),)
    # the coarse curve of the logarithmic axis alone does not follow them; at a rate of 14 %, more
    # than 14 of 40 have a probability of 1e-4
    by_one, by_both = (np.array(rough) > column_counts.SIGNIFICANT).sum(0)
    assert by_one == 40 and by_both <= 14


@pytest.mark.parametrize("estimator", [DPFairClassifier, DPFairRegressor])
def test_choose_columns_finds_planted_pairs_that_the_report_names(estimator):
    rows = planted()
    X = PAIRS.preprocessor(epsilon=3.0).fit_transform(rows)
    is_classifier = estimator is DPFairClassifier
    y = rows["y" if is_classifier else "score"].to_numpy()
    params = {} if is_classifier else {"y_range": (-8, 8)}
    found, plain = (
        estimator("dpsgd", module=module, epsilon=3.0, random_state=0, **params).fit(X, y)
        for module in ("auto", "logistic")
    )
    a, b = map(X.columns.get_loc, "ab")
    assert (a, 1, b, 1) in pairs(found) and pairs(plain) == ()
    assert found.score(X, y) > plain.score(X, y) + 0.05
    for what, share, least in found.privacy_.choices:
        assert what in {"pair a × b", "pair kind × ward"} and share > least
        assert what in repr(found.privacy_) and what in found.privacy_.details()
    assert found.privacy_.epsilon <= 3.0
