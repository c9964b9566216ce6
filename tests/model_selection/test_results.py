"""Results of comparisons: measures by group, intervals over runs, texts, exports, stores."""

import json
import re
from dataclasses import asdict

import matplotlib
import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import selection_rate
from scipy import stats

from skdpfair.metrics._intervals import error_of_mean, overlap, student
from skdpfair.model_selection import TradeoffResults
from skdpfair.model_selection._sweep_spec import SweepSpec

from .runs import CELLS, cell, results_of, with_splits

matplotlib.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def results():
    return results_of(CELLS)


def test_table_takes_the_worst_group_of_the_means():
    """F is worst on training records, with .8, and M on test records."""
    cells = [
        cell("reference", None, 0, (90, 160), None),
        cell("poor", 1.0, 0, (70, 160)),
        cell("poor", 1.0, 1, (90, 120)),
    ]
    for each in cells:
        each["train"] = {"accuracy": [0.85, 0.8, 0.9]}
    found = results_of(cells)
    row = found.table().loc[("poor", 1.0)]
    assert row["accuracy_group_min", "mean"] == pytest.approx(0.7)  # M: .8 and .6
    assert row["accuracy_group_min", "se"] == pytest.approx(0.1)
    assert row["dg_gap_worst_group", "mean"] == pytest.approx(0.8 - 0.7)
    assert row["dg_gap_worst_group", "se"] == pytest.approx(0.1)
    runs = found.by_run()
    assert runs["accuracy_group_min"].tolist() == pytest.approx([0.8, 0.7, 0.6])
    assert runs["dg_gap_worst_group"].tolist() == pytest.approx([0.0, 0.1, 0.2])
    assert runs.loc[("poor", 1.0, 0, 0), "privacy_cost_group_max"] == pytest.approx(0.2)
    chosen = found.table(measures=["dg_gap"])
    names = {"dg_gap", "dg_gap_difference", "dg_gap_worst_group"}
    assert {column.partition("[")[0] for column, _ in chosen} == names
    assert list(found.pareto_front("accuracy_group_min", "epsilon").index) == [("poor", 1.0)]
    with pytest.raises(ValueError, match=r"measures .*'auc'"):
        found.table(measures=["auc"])


def test_leading_measures_are_those_of_a_rare_class(results):
    """A constant model has no cost in accuracy where 11 % are positive, and misses all of them."""
    assert results.leading_measures == ["accuracy"]
    cells = [cell("reference", None, 0, (90, 180), None), cell("constant", 1.0, 0, (89, 178))]
    for each, recall in zip(cells, (0.5, 0.0), strict=True):
        each["test"] |= {
            "balanced_accuracy": [0.5 + recall / 2] * 3,
            "rarest_class_recall": [recall] * 3,
            "log_loss": [0.5, 0.6, 0.8 - recall],
            "rarest_class_share": [0.11] * 3,
        }
    rare = results_of(cells)
    leading = ["balanced_accuracy", "rarest_class_recall"]
    assert rare.leading_measures == leading
    row = rare.table().xs("mean", axis=1, level=1).loc[("constant", 1.0)]
    assert row["privacy_cost"] == pytest.approx(0.01)
    assert row["rarest_class_recall_cost[F]"] == 0.5
    risks = ["excessive_risk[M]", "excessive_risk_group_max", "excessive_risk_difference"]
    assert row[risks].tolist() == pytest.approx([0.5] * 3)
    heads = [block.split(" (")[0] for block in str(rare).split("\n\n")]
    assert heads[:3] == [name.replace("_", " ") for name in (*leading, "accuracy")]
    block = rare.as_text(["excessive_risk"]).splitlines()
    assert "nats" in block[0]
    assert block[3].split() == ["constant", "1", "0.000", "0.000", "0.500", "0.500", "0.500"]


def test_by_run_pairs_costs_by_seed(results):
    frame = results.frame.set_index(["method", "epsilon", "seed", "group"]).sort_index()
    assert frame.loc[("poor", 1.0, 1, "F"), "privacy_cost"] == pytest.approx(0.34)
    assert frame.loc[("poor", 1.0, 0, "overall"), "privacy_cost"] == pytest.approx(1 / 3)
    assert (frame.loc["reference", "privacy_cost"] == 0).all()
    runs = results.by_run()
    assert list(runs.index[:2]) == [("reference", np.inf, 0, 0), ("poor", 1.0, 0, 0)]
    assert runs.loc[("even", 4.0, 0, 0), "privacy_cost_difference"] == pytest.approx(0.05)


def test_table_has_means_standard_errors_and_gaps_of_means(results):
    table = results.table()
    assert list(table.index) == [("reference", np.inf), ("poor", 1.0), ("even", 1.0), ("even", 4.0)]
    row = table.loc[("even", 4.0)]
    # sd 0.0283 of two, over sqrt 2
    assert row["accuracy[F]"][["mean", "se"]].tolist() == pytest.approx([0.82, 0.02])
    assert row["privacy_cost[M]", "mean"] == pytest.approx((0.05 + 0.07) / 2)
    # each run has a gap of 0.05 and 0.03: F pays more in both
    gap = row["privacy_cost_difference"][["mean", "se"]].tolist()
    assert gap == pytest.approx([0.04, 0.01])


def test_costs_without_a_reference_are_nan():
    alone = results_of(CELLS[1:4])
    assert alone.frame["privacy_cost"].isna().all()
    rows = alone.as_text(["privacy_cost"]).split("\n\n")[0].splitlines()[2:]
    assert all(row.split()[2:] == ["–"] * 5 for row in rows)
    with pytest.raises(ValueError, match="reference"):
        alone.pareto_front("accuracy", "privacy_cost")


def test_pareto_front_holds_what_nothing_beats(results):
    front = results.pareto_front("accuracy", "epsilon")
    assert list(front.index) == [("even", 4.0), ("even", 1.0)]
    assert list(results.pareto_front("accuracy", "privacy_cost").index) == [("even", 4.0)]
    with pytest.raises(ValueError, match=r"x .*'accurate'"):
        results.pareto_front("accurate")


def test_to_fairlearn_has_the_predictions_and_classes_as_numbers(results):
    frames, name = results.to_fairlearn(), "even, epsilon 4, seed 1, fold 0"
    assert len(frames) == 8
    assert frames[name].by_group["accuracy"].to_dict() == {"F": 0.84, "M": 0.83}
    part = results.predictions["even", 4.0, 1, 0]
    expected = (part["y_pred"] == "yes").groupby(part["group"]).mean()
    rates = results.to_fairlearn({"rate": selection_rate})[name].by_group["rate"]
    assert rates.equals(expected)
    with pytest.raises(ValueError, match="keep_predictions=True"):
        TradeoffResults(results.frame).to_fairlearn()


def test_results_of_one_seed_have_no_intervals():
    results = results_of(CELLS[:4])
    assert repr(results) == "TradeoffResults(4 models x 1 runs)"
    assert results.plot().ax_.get_title(loc="left") == "Accuracy"
    assert str(results).splitlines()[4].split()[:3] == ["poor", "1", "56.7"]


def test_as_text_has_values_intervals_units_and_sizes(results):
    lines = str(results).splitlines()
    assert lines[0] == "accuracy (%), mean of 2 runs and 95 % interval"
    assert lines[1].split() == ["method", "epsilon", "overall", "F", "M", "gap", "worst"]
    assert lines[2].split() == ["reference", "-", "90.7", "92.0", "90.0", "2.0", "90.0"]
    row = results.estimates().loc[("reference", np.inf)]
    ends = [f"{100 * row['accuracy', end]:.1f}" for end in ("low", "high")]
    assert " to ".join(ends) in lines[3] and lines[3].count("in all runs") == 2
    assert len({len(line) for line in lines[1:6]}) == 1 and len(lines[1]) < 90
    assert lines[-1] == "fewest test records of a run: F 100, M 200"


@pytest.mark.parametrize("names", [("gap", "worst"), ("method", "epsilon"), ("'gap'", "gap")])
def test_as_text_keeps_columns_of_groups_with_names_of_columns(results, names):
    named = results_of(CELLS, names)
    texts = (r.as_text().split("\n\n")[0].splitlines()[2:] for r in (named, results))
    assert [row.split() for row in next(texts)] == [row.split() for row in next(texts)]
    heads = str(named).splitlines()[1].split()
    assert len(set(heads)) == len(heads) == 7 and heads[-2:] == ["gap", "worst"]
    assert named.table()[f"accuracy[{names[0]}]", "mean"].equals(
        results.table()["accuracy[F]", "mean"]
    )


def test_as_text_has_the_worst_value_of_groups_but_of_no_gap(results):
    """The worst accuracies of two groups, compared, are no gap of a group."""
    accuracy, gap, _ = results.as_text(["accuracy", "dg_gap"]).split("\n\n")
    heads, *rows = (row.split() for row in accuracy.splitlines()[1:])
    values = pd.DataFrame(rows[::2], columns=heads)  # intervals are between them
    assert values["worst"].equals(values[["F", "M"]].astype(float).min(axis=1).astype(str))
    assert gap.splitlines()[1].split()[-1] == "gap"


def test_as_text_of_many_groups_has_the_gap_and_the_smallest_group():
    """A terminal has no room for nine groups."""
    names = [f"group {i}" for i in range(9)]
    accuracy = {"accuracy": [0.8] * 10}
    cell = CELLS[0] | {"n": [890, *[100] * 8, 90], "test": accuracy, "train": accuracy}
    lines = str(results_of([cell], names)).splitlines()
    assert lines[1].split() == ["method", "epsilon", "overall", "gap", "worst"]
    assert "9 groups" in lines[-1] and "90 (of 'group 8')" in lines[-1]


def without_records(found, group=1):
    """A cell in which a group has no test record."""
    n, accuracy = list(found["n"]), list(found["test"]["accuracy"])
    n[group], accuracy[group] = 0, np.nan
    return found | {"n": n, "test": {"accuracy": accuracy}}


def test_runs_without_records_of_a_group_leave_it_out_of_gaps():
    some, never = (
        results_of([without_records(c) if c["seed"] in seeds else c for c in CELLS])
        for seeds in ([0], [0, 1])
    )
    row = some.table().loc[("even", 4.0)]
    assert row["accuracy[F]", "mean"] == pytest.approx(0.84)  # of seed 1
    assert row["accuracy_difference", "mean"] == pytest.approx(0.84 - 0.84)
    assert np.isnan(some.by_run().loc[("even", 4.0, 0, 0), "accuracy_difference"])
    sizes = str(some).splitlines()[-1]
    assert "F 0 (seed 0), M 200;" in sizes and sizes.endswith(" F")
    assert "not compared" in str(never).splitlines()[2]
    row = never.table().loc[("even", 4.0)]
    assert np.isnan([row["accuracy_difference", "mean"], row["accuracy[F]", "mean"]]).all()
    with pytest.raises(ValueError, match="test records"):
        never.pareto_front("accuracy", "privacy_cost[F]")
    with pytest.raises(ValueError, match=r"'accuracy\[F\]'"):
        never.plot("accuracy[F]")


@pytest.mark.parametrize("frame", [1, None, "a"])
def test_results_refuse_what_is_no_frame(frame):
    with pytest.raises(TypeError, match=r"^frame "):
        TradeoffResults(frame)


def test_estimates_are_of_student_over_runs_and_of_wilson_for_one(results):
    """Of three runs by scipy's interval of a mean; of one, by statsmodels' formula of Wilson."""
    estimates, by_run = results.estimates(), results.by_run()
    for model in estimates.index:
        values = by_run.xs(model, level=["method", "epsilon"])["accuracy"].to_numpy()
        row = estimates.loc[model, "accuracy"]
        assert row["mean"] == pytest.approx(values.mean()) and row["n"] == len(values)
        if values.std() > 0:
            ends = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
            assert [row["low"], row["high"]] == pytest.approx(np.clip(ends, 0, 1))
            assert row["kind"] == "Student"
    one = TradeoffResults(results.frame.query("seed == 0"), spec=results.spec)
    row, n = one.estimates(["accuracy"])["accuracy"].iloc[0], one.frame["n"].iloc[0]
    ends = stats.binomtest(round(n * row["mean"]), int(n)).proportion_ci(method="wilson")
    assert [row["low"], row["high"]] == pytest.approx([ends.low, ends.high])
    assert row["kind"] == "Wilson"


@pytest.mark.parametrize("n_seeds", [3, 5, 10])
def test_student_intervals_over_seeds_cover_the_population(n_seeds):
    """A predictor that is right in 80 %; each seed tests other 200 of the same 1,000 records."""
    rng, n_draws = np.random.default_rng(0), 2000
    right = rng.random((n_draws, 1000)) < 0.8
    runs = [rng.permuted(right, axis=1)[:, :200].mean(axis=1) for _ in range(n_seeds)]
    common, hits = overlap(0.2, [1] * n_seeds), 0
    for values in np.stack(runs, axis=1):
        low, high = student(values.mean(), error_of_mean(values, common), n_seeds)
        hits += low <= 0.8 <= high
    assert hits >= stats.binom.ppf(0.001, n_draws, 0.94)


@pytest.mark.parametrize(
    ("folds", "n_seeds", "shared"),
    [
        (1, 4, 300 / 1200),  # n_test / n_train
        (5, 1, 0.0),  # folds share no record
        (5, 3, (0.2 * 10 / 14) / (1 - 0.2 * 10 / 14)),  # 10 of 14 others are of another seed
    ],
)
def test_estimates_of_runs_that_share_test_records_are_wider(folds, n_seeds, shared):
    found = with_splits(folds, n_seeds, 1200)
    runs, n = found.by_run(), folds * n_seeds
    level = {"accuracy": 0.95, "privacy_cost[F]": 0.975, "accuracy_difference": 0.95}
    for column, share in level.items():
        values = runs[column].to_numpy()
        if column == "accuracy_difference":  # of the groups with the largest and smallest mean
            values = (runs["accuracy[F]"] - runs["accuracy[M]"]).to_numpy()
        error = values.std(ddof=1) * (1 / n + shared) ** 0.5
        reach = stats.t.ppf((1 + share) / 2, n - 1) * error
        row = found.estimates()[column].iloc[0]
        assert row["high"] - row["mean"] == pytest.approx(reach) and row["n"] == n
        assert found.table()[column, "se"].iloc[0] == pytest.approx(error)
    unknown = TradeoffResults(found.frame.drop(columns="n_train"))
    assert unknown.overlap == 0.0


def test_estimates_count_runs_with_a_value():
    found = with_splits(1, 4, 1200)
    frame = found.frame
    frame.loc[(frame["group"] == "F") & (frame["seed"] < 2), "accuracy"] = np.nan
    assert found.estimates()["accuracy[F]", "n"].tolist() == [2]


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        (None, "^store="),
        ({"methods": {}}, "older version"),
        (asdict(SweepSpec()) | {"format_version": 2}, "is 2, .* reads 1"),
        (asdict(SweepSpec()) | {"format_version": None}, "is None, .* reads 1"),
    ],
)
def test_from_store_refuses_other_folders(facts, named, tmp_path):
    if facts is not None:
        (tmp_path / "manifest.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=named):
        TradeoffResults.from_store(tmp_path)
    with pytest.raises(TypeError, match=r"^store .*None"):
        TradeoffResults.from_store(None)


def test_from_store_gives_the_results_back(small_sweep, tmp_path):
    found = small_sweep(store=tmp_path / "store", keep_predictions=True)
    again = TradeoffResults.from_store(tmp_path / "store")
    assert again.frame.equals(found.frame)
    assert again.releases.equals(found.releases) and again.spec == found.spec
    assert again.predictions.keys() == found.predictions.keys()
    assert all(part.equals(found.predictions[run]) for run, part in again.predictions.items())
    page = found.to_html()
    assert again.to_html() == page
    assert not re.search(r"[0-9a-f]{40}", page)  # no digest of the data
