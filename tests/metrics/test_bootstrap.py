import inspect

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score

from skdpfair.metrics import bootstrap_interval, paired_wilcoxon, privacy_cost


def mean_prediction(y_true, y_pred, axis=-1):
    return np.mean(y_pred, axis=axis)


def draw(rng, n=150):
    """Return labels, predictions right 80 and 70 % of the time, and two groups."""
    groups = np.repeat(["F", "M"], n)
    y_true = rng.integers(0, 2, 2 * n)
    is_right = rng.random(2 * n) < np.where(groups == "F", 0.8, 0.7)
    return y_true, np.where(is_right, y_true, 1 - y_true), groups


def test_95_percent_intervals_of_groups_cover_95_percent_of_runs():
    n, rng = 150, np.random.default_rng(12345)
    runs = np.repeat(np.arange(1000), n)  # every run is a group of its own
    is_right = rng.random(len(runs)) < 0.8
    table = bootstrap_interval(
        is_right, np.ones(len(runs)), sensitive_features=runs, n_resamples=399, random_state=rng
    )[1:]
    assert (table["n_samples"] == n).all()
    assert 0.93 <= np.mean((table["low"] <= 0.8) & (table["high"] >= 0.8)) <= 0.97


def test_95_percent_intervals_cover_95_percent_of_runs():
    rng, covered = np.random.default_rng(12345), []
    for _ in range(1000):
        scores = rng.random(150)
        options = {"metric": mean_prediction, "method": "bca", "n_resamples": 399}
        table = bootstrap_interval(scores, scores, random_state=rng, **options)
        covered.append(table.at[0, "low"] <= 0.5 <= table.at[0, "high"])
    assert 0.93 <= np.mean(covered) <= 0.97


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_one_group_is_scipys_interval(method):
    x = np.random.default_rng(0).gamma(2, size=40)
    key = "rng" if "rng" in inspect.signature(stats.bootstrap).parameters else "random_state"
    expected = stats.bootstrap(
        (x,),
        np.mean,
        method={"bca": "BCa"}.get(method, method),
        n_resamples=199,
        **{key: np.random.default_rng(3)},
    ).confidence_interval
    options = {"metric": mean_prediction, "method": method, "n_resamples": 199}
    (row,) = bootstrap_interval(x, x, random_state=3, **options).to_dict("records")
    assert row["group"] == "overall"
    assert row["n_samples"] == 40
    assert (row["estimate"], row["low"], row["high"]) == pytest.approx((x.mean(), *expected))


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_a_metric_without_axis_gives_the_same(method):
    y_true, y_pred, groups = draw(np.random.default_rng(0), n=20)
    extra = {"sensitive_features": groups, "method": method, "n_resamples": 50, "random_state": 1}
    slow = bootstrap_interval(y_true, y_pred, metric=accuracy_score, **extra)
    pd.testing.assert_frame_equal(slow, bootstrap_interval(y_true, y_pred, **extra))


def test_sample_params_are_drawn_along():
    y_true, y_pred, groups = draw(np.random.default_rng(0), n=30)
    table = bootstrap_interval(
        y_true,
        y_pred,
        sensitive_features=groups,
        metric=privacy_cost,
        sample_params={"y_ref": y_pred},
        n_resamples=20,
    )
    assert (table[["estimate", "low", "high"]] == 0).all(axis=None)


def test_groups_keep_their_sizes():
    # overall the group decides alone: with strata of fixed sizes nothing varies
    groups = np.repeat([0, 1], [10, 30])
    table = bootstrap_interval(
        groups, groups, sensitive_features=groups, metric=mean_prediction, n_resamples=50
    )
    assert (table.loc[0, ["estimate", "low", "high"]] == 0.75).all()


def test_small_and_constant_groups_are_nan_and_warned_of():
    groups = ["a"] * 10 + ["b"]
    y = [1, 0] * 5 + [1]
    pred = [1] * 11
    with pytest.warns(UndefinedMetricWarning) as warned:
        table = bootstrap_interval(
            y, pred, sensitive_features=groups, groups=["a", "b", "c"], n_resamples=50
        ).set_index("group")
    assert [str(w.message).split(":")[0] for w in warned] == ["An interval is NaN"] * 2
    assert not table.loc[["overall", "[a]"]].isna().any(axis=None)
    assert table.loc["[b]", "estimate"] == 1
    assert table.loc[["[b]", "[c]"], ["low", "high"]].isna().all(axis=None)
    assert table["n_samples"].to_dict() == {"overall": 11, "[a]": 10, "[b]": 1, "[c]": 0}
    with pytest.warns(UndefinedMetricWarning, match="constant"):
        assert bootstrap_interval(y, y, method="bca", n_resamples=50)["low"].isna().all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y_pred": [1]}, ValueError, "y_pred must have one entry for each of the 3"),
        ({"sample_params": {"y_ref": [1]}}, ValueError, "y_ref must have one entry"),
        ({"sample_params": {"y_ref": None}}, ValueError, "y_ref must have one entry .* got None"),
        ({"sensitive_features": ["a"]}, ValueError, "sensitive_features must have one entry"),
        ({"method": "BCA"}, ValueError, "method must be one of.*Did you mean 'bca'"),
        ({"confidence_level": 95}, ValueError, "confidence_level must be a number > 0 and < 1"),
        ({"n_resamples": 0}, ValueError, "n_resamples must be an integer >= 1"),
        ({"metric": "accuracy"}, TypeError, "metric must be a function.*sklearn.metrics.accuracy"),
    ],
)
def test_bootstrap_names_bad_input(change, error, message):
    with pytest.raises(error, match=message):
        bootstrap_interval(**({"y_true": [1, 0, 1], "y_pred": [1, 0, 0]} | change))


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_wilcoxon_agrees_with_counting_all_signs(alternative):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.random((7, 3)), columns=["sgd", "dpsgd", "global"])
    tested = paired_wilcoxon(table, "sgd", alternative=alternative)
    assert list(tested["method"]) == ["dpsgd", "global"]
    for row in tested.itertuples():
        difference = (table[row.method] - table["sgd"]).to_numpy()
        ranks = np.abs(difference).argsort().argsort() + 1
        signs = (np.arange(2**7)[:, None] >> np.arange(7)) & 1
        null, seen = signs @ ranks, ranks[difference > 0].sum()
        above, below = np.mean(null >= seen), np.mean(null <= seen)
        either = min(1, 2 * min(above, below))
        expected = {"greater": above, "less": below, "two-sided": either}[alternative]
        assert row.p_value == pytest.approx(expected)
        assert row.mean_difference == pytest.approx(difference.mean())
        assert row.median_difference == pytest.approx(np.median(difference))
        assert row.n_seeds == 7


def test_wilcoxon_keeps_its_level_under_no_difference():
    rng = np.random.default_rng(0)
    tables = [pd.DataFrame(rng.normal(size=(10, 2))) for _ in range(200)]
    p_values = [paired_wilcoxon(t, 0, alternative="greater")["p_value"][0] for t in tables]
    assert 0.01 <= np.mean(np.array(p_values) <= 0.05) <= 0.09


def test_equal_scores_have_a_p_value_of_one():
    table = pd.DataFrame({"a": [0.5, 0.6], "b": [0.5, 0.6]})
    assert paired_wilcoxon(table, "a")["p_value"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("results", "error", "message"),
    [
        ([1, 2], TypeError, "results must be a DataFrame, got list.*pivot"),
        (pd.DataFrame({"b": [1.0]}), ValueError, "column for baseline='a'"),
        (pd.DataFrame({"a": [1.0], "b": ["x"]}), TypeError, r"numbers, but the columns \['b'\]"),
        (pd.DataFrame({"a": [1.0]}), ValueError, "one for another method"),
        (pd.DataFrame({"a": [1.0], "b": [np.nan]}), ValueError, "dropna"),
        (
            pd.DataFrame({"a": [1.0, 2], "b": [1.0, 2]}, index=[0, 0]),
            ValueError,
            "a seed occurs twice",
        ),
    ],
)
def test_wilcoxon_names_bad_input(results, error, message):
    with pytest.raises(error, match=message):
        paired_wilcoxon(results, "a")


@pytest.mark.parametrize("seed", [-1, np.nan, "a", [], (1, 0), True, 0.5, np.timedelta64(1)])
def test_what_is_no_seed_is_refused_by_name(seed):
    with pytest.raises((ValueError, TypeError), match=r"^random_state must be None"):
        bootstrap_interval([0, 1], [0, 1], random_state=seed)
    ring = []
    ring.append(ring)
    with pytest.raises(TypeError, match=r"^random_state must be None"):
        bootstrap_interval([0, 1], [0, 1], random_state=ring)


@pytest.mark.parametrize("wrong", [1, "a", [1], {"zz": 1}, {None: None}])
def test_parameters_of_the_records_are_named(wrong):
    with pytest.raises((ValueError, TypeError), match=r"^sample_params must"):
        bootstrap_interval([0, 1], [0, 1], sample_params=wrong)
