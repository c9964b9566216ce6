"""Fine curves of amounts: the choice, its counts and their budget."""

from types import SimpleNamespace

import numpy as np
import pytest

from skdpfair.privacy import compute_epsilon, gdp_parameter
from skdpfair.training import amounts
from skdpfair.training.defaults import network_for
from tests.fine_curves import FIXED, SCHEMA, N, fine, made, private, releases
from tests.quick_fits import QUIET

pytestmark = QUIET


@pytest.fixture(scope="module")
def encoded():
    return SCHEMA.split(made(), epsilon=3.0)[:2]


@pytest.fixture(scope="module")
def fitted(encoded):
    return private().fit(*encoded)


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
