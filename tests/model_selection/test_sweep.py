"""A comparison of methods: its schedule, its ledger, and what it refuses."""

import json

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.model_selection import KFold

from skdpfair import Factory, Groups
from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import InfeasibleBudgetError, LowSignalWarning


def without_clock(results):
    return results.frame.drop(columns="fit_seconds")


def test_sweep_with_a_ledger_needs_the_finished_fits_of_its_store(small_sweep, tmp_path):
    store = tmp_path / "store"

    def run(data):
        with PrivacyLedger(tmp_path / "ledger", delta=1e-4, data=data) as ledger:
            return small_sweep(store=store), ledger

    first, ledger = run("mine")
    again, _ = run("mine")
    assert first.spec.ledger_fits == again.spec.ledger_fits and ledger.report().n_fits == 2
    with pytest.raises(ValueError, match=r"2 finished fits .*data='other'"):
        run("other")
    private = next(p for p in store.glob("[0-9a-f]*.json") if '"epsilon": 2.0' in p.read_text())
    cell = json.loads(private.read_text())
    del cell["ledger_fit"]  # as an earlier version wrote it
    private.write_text(json.dumps(cell))
    with pytest.raises(ValueError, match=r"store=.* 1 finished fit "):
        run("mine")
    small_sweep(store=store)  # without a ledger, it continues
    assert ledger.report().n_fits == 2


def test_sweep_is_the_same_in_processes_which_charge_their_fits(small_sweep, tmp_path):
    call = {"methods": ["dpsgd", "sgd"], "epsilons": [4.0]}
    one = without_clock(small_sweep(**call, seeds=2))
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger:
        pd.testing.assert_frame_equal(one, without_clock(small_sweep(**call, seeds=2, n_jobs=2)))
    assert ledger.report().n_fits == 6
    with joblib.parallel_config("threading", n_jobs=2):
        pd.testing.assert_frame_equal(one, without_clock(small_sweep(**call, seeds=2)))
    fewer = without_clock(small_sweep(**call | {"methods": ["sgd"]}, seeds=[1]))
    both = one[(one["seed"] == 1) & one["method"].isin(["reference", "sgd"])]
    pd.testing.assert_frame_equal(fewer, both.reset_index(drop=True))
    assert set(one[one["method"] == "sgd"]["epsilon"]) == {np.inf}


@pytest.mark.parametrize("cv", [3, KFold(3)])
def test_sweep_with_folds_tests_every_record_once(small_sweep, cv):
    own = small_sweep(cv=cv).frame.query("method == 'dpsgd' and group == 'overall'")
    assert own["fold"].tolist() == [0, 1, 2] and own["n"].sum() == 600


def test_sweep_takes_arrays_and_crossed_groups(two_groups, small_sweep):
    crossed = {"sex": two_groups.sensitive_features, "old": two_groups.data["x2"] > 0}
    results = small_sweep(
        X=two_groups.data.to_numpy(),
        y=two_groups.target.map({0: "no", 1: "yes"}).to_numpy(),
        sensitive_features=pd.DataFrame(crossed),
        keep_predictions=True,
    )
    groups = ["a, False", "a, True", "b, False", "b, True"]
    assert list(results.frame["group"].unique())[1:] == groups
    part = results.predictions["dpsgd", 2.0, 0, 0]
    assert set(part["y_true"]) == {"no", "yes"}
    scored = results.frame.set_index(["method", "group"])["accuracy"]
    for name, rows in part.groupby("group"):
        assert (rows["y_true"] == rows["y_pred"]).mean() == scored["dpsgd", name]


def test_sweep_warns_once_of_little_data(two_groups, small_sweep):
    rows = {
        name: column[:60]
        for name, column in (
            ("X", two_groups.data),
            ("y", two_groups.target),
            ("sensitive_features", two_groups.sensitive_features),
        )
    }
    with pytest.warns(LowSignalWarning, match=r"epsilon 0\.1, 0\.2: n = 48") as caught:
        small_sweep(**rows, epsilons=[0.2, 0.1], seeds=2)
    assert len(caught) == 1


def test_sweep_leaves_a_rare_group_out_of_gaps(two_groups, small_sweep, tmp_path):
    group = two_groups.sensitive_features.astype(object)
    group.iloc[0] = "rare"
    with pytest.warns(UndefinedMetricWarning, match="no test records"):
        results = small_sweep(sensitive_features=group, epsilons=[2.0, 4.0], seeds=3)
    gaps = results.table()[["accuracy_difference", "privacy_cost_difference"]]
    assert np.isfinite(gaps.xs("mean", axis=1, level=1)).all(axis=None)
    assert len(results.pareto_front("accuracy", "privacy_cost_difference"))
    results.plot("privacy_cost_difference").figure_.savefig(tmp_path / "gap.png")


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"epsilons": [None, 1.0]}, "epsilons .*None"),
        ({"epsilons": [1.0, 1.0]}, "epsilons .*once"),
        ({"epsilons": [-1.0]}, r"epsilons .*> 0.*-1\.0"),
        ({"seeds": []}, r"seeds .*\[\]"),
        ({"seeds": [-1]}, "seeds .*>= 0.*-1"),
        ({"methods": ["dpsdg"]}, "'dpsdg'.*'dpsgd'"),
        ({"methods": []}, "methods is empty"),
        ({"methods": ["dpsgd", "dpsgd"]}, r"methods=.*twice"),
        ({"methods": {"reference": "dpsgd"}}, "methods .*reference"),
        ({"sensitive_features": None}, "sensitive_features must"),
        ({"random_state": 0}, "random_state.*seeds="),
        ({"learning_rate": 0.1}, "'learning_rate'"),
        ({"group_col": Groups(levels="a")}, "levels must be a list"),
        ({"module": Factory(len, depth=3)}, "^module"),
    ],
)
def test_sweep_refuses_unusable_arguments(small_sweep, changed, match):
    with pytest.raises((ValueError, TypeError), match=match):
        small_sweep(**changed)


ARRAY = np.random.default_rng(0).random((600, 3))


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        ({"X": ARRAY * np.nan}, ValueError, "X.*NaN"),
        ({"X": np.full((600, 8, 8), np.nan, np.float32)}, ValueError, "NaN"),
        ({"X": ARRAY, "validation_data": (ARRAY, ARRAY[:3, 0])}, ValueError, "validation_data"),
        ({"cv": 5000}, ValueError, "cv.*5000"),
        ({"lr": -1.0}, ValueError, r"lr .*-1\.0"),
        ({"epsilons": [1.0, 1e-9]}, InfeasibleBudgetError, "epsilon"),
    ],
)
def test_sweep_refuses_what_no_fit_reads_before_a_store_is_made(
    small_sweep, changed, error, match, tmp_path
):
    with pytest.raises(error, match=match):
        small_sweep(**changed, store=tmp_path / "s")
    assert not (tmp_path / "s").exists()
