import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from skdpfair import DPFairClassifier
from skdpfair.model_selection import (
    GroupScorer,
    dg_gap_table,
    excessive_risk_table,
    privacy_cost_table,
    select_by,
)


def results_of(params, scores):
    """cv_results_ of one fold a column of scores[key], of shape (n_candidates, n_folds)."""
    out = {"params": params}
    for (part, key), values in scores.items():
        values = np.asarray(values, dtype=float)
        for fold in range(values.shape[1]):
            out[f"split{fold}_{part}_{key}"] = values[:, fold]
        out[f"mean_{part}_{key}"] = values.mean(axis=1)
    return out


@pytest.fixture
def results():
    params = [
        {"clf__method": "dpsgd", "clf__epsilon": 1.0},
        {"clf__method": "dpsgd", "clf__epsilon": 2.0},
        {"clf__epsilon": None},
    ]
    scores = {
        ("test", "accuracy"): [[0.6, 0.7], [0.8, 0.8], [0.9, 0.8]],
        ("test", "accuracy_difference"): [[0.0, 0.0], [0.2, 0.1], [0.1, 0.1]],
        ("test", "accuracy[F]"): [[0.6, 0.7], [0.7, 0.7], [0.9, 0.7]],
        ("test", "accuracy[M]"): [[0.6, np.nan], [0.9, np.nan], [0.9, np.nan]],
        ("train", "accuracy"): [[0.7, 0.8], [0.8, 0.8], [1.0, 1.0]],
        ("train", "accuracy[F]"): [[0.5, 0.6], [0.7, 0.7], [1.0, 1.0]],
        ("train", "accuracy[M]"): [[0.9, 0.9], [0.9, 0.9], [1.0, 1.0]],
    }
    return results_of(params, scores)


def test_costs_are_paired_by_fold_and_a_fold_without_the_group_is_left_out(results):
    table = privacy_cost_table(results)
    assert list(table.index) == [0, 1]
    assert table["privacy_cost"].tolist() == pytest.approx([0.2, 0.05])
    assert table["privacy_cost[F]"].tolist() == pytest.approx([0.15, 0.1])
    assert table["privacy_cost[M]"].tolist() == pytest.approx([0.3, 0.0])
    assert table["privacy_cost_difference"].tolist() == pytest.approx([0.15, 0.1])


def test_dg_gaps_are_train_minus_test_of_every_candidate(results):
    table = dg_gap_table(results)
    assert table["dg_gap"].tolist() == pytest.approx([0.1, 0.0, 0.15])
    assert table["dg_gap[M]"].tolist() == pytest.approx([0.3, 0.0, 0.1])
    assert table.loc[0, "dg_gap[F]"] == pytest.approx(-0.1)
    assert table.loc[0, "dg_gap_difference"] == pytest.approx(0.4)
    # worst group on training rows: F, .55, then F, .7; on held-out rows: M, .6, then F, .7
    worst = [0.55 - 0.6, 0.7 - 0.7, 1.0 - 0.8]
    assert table["dg_gap_worst_group"].tolist() == pytest.approx(worst)


@pytest.fixture
def losses():
    """Candidate 1 adds most log loss to F, candidate 2 least to the worst group."""
    params = [{"epsilon": None}, {"epsilon": 1.0}, {"epsilon": 2.0}]
    scores = {
        ("test", "neg_log_loss"): [[-0.3], [-0.5], [-0.5]],
        ("test", "neg_log_loss[F]"): [[-0.3], [-0.7], [-0.5]],
        ("test", "neg_log_loss[M]"): [[-0.4], [-0.4], [-0.5]],
        ("test", "neg_log_loss_group_min"): [[-0.4], [-0.7], [-0.5]],
    }
    return results_of(params, scores)


def test_excessive_risk_is_the_log_loss_added_to_that_of_the_reference(losses):
    table = excessive_risk_table(losses)
    assert table["excessive_risk"].tolist() == pytest.approx([0.2, 0.2])
    assert table["excessive_risk[F]"].tolist() == pytest.approx([0.4, 0.2])
    assert table["excessive_risk_difference"].tolist() == pytest.approx([0.4, 0.1])
    assert table["excessive_risk_group_max"].tolist() == pytest.approx([0.4, 0.2])
    for column in ("excessive_risk_gap", "excessive_risk_difference", "excessive_risk_group_max"):
        assert select_by(column)(losses) == 2
    assert select_by("neg_log_loss_group_min")(losses) == 2
    with pytest.raises(ValueError, match="no scores of metric='neg_log_loss'"):
        select_by("excessive_risk")({k: v for k, v in losses.items() if k == "params"})


def test_scores_of_the_scorers_themselves_are_selected_by():
    """The largest negated difference, the smallest risk, and the gap that is nearest to 0."""
    scores = {
        ("test", "neg_excessive_risk_difference"): [[-0.3], [-0.1]],
        ("test", "excessive_risk_group_max"): [[0.1], [0.2]],
        ("test", "dg_gap_worst_group"): [[-0.2], [0.1]],
    }
    results = results_of([{"epsilon": 1.0}, {"epsilon": 2.0}], scores)
    rows = [select_by(key)(results) for _, key in scores]
    assert rows == [1, 0, 1]


def test_parameters_have_short_names_and_the_reference_is_named(results):
    table = dg_gap_table(results)
    assert list(table)[:2] == ["method", "epsilon"]
    assert table["method"].tolist() == ["dpsgd", "dpsgd", "reference"]
    assert table["epsilon"].tolist() == [1.0, 2.0, np.inf]
    params = [{"a__lr": 1, "epsilon": None}, {"b__lr": 2, "epsilon": 1.0}]
    alike = results_of(params, {("test", k): [[0.9], [0.8]] for k in ("f1", "f1[a]")})
    assert list(privacy_cost_table(alike, metric="f1"))[:2] == ["b__lr", "epsilon"]


def test_only_fitted_searches_have_tables():
    search = GridSearchCV(DummyClassifier(), {})
    for table in (privacy_cost_table, dg_gap_table):
        with pytest.raises(NotFittedError, match=r"This GridSearchCV has no cv_results_ yet"):
            table(search)
        with pytest.raises(TypeError, match=r"search must be a fitted search.*got DataFrame"):
            table(pd.DataFrame())


def test_every_candidate_gets_the_reference_that_agrees_with_it():
    params = [{"lr": lr, "epsilon": e} for lr in (0.1, 0.2) for e in (None, 1.0)]
    scores = {("test", k): [[0.9], [0.8], [0.7], [0.5]] for k in ("f1", "f1[a]", "f1[b]")}
    table = privacy_cost_table(results_of(params, scores), metric="f1")
    assert table["privacy_cost"].tolist() == pytest.approx([0.1, 0.2])


def test_candidates_are_paired_with_the_reference_of_the_same_network():
    params = [{"epsilon": None}, {"epsilon": None, "module": "logistic"}]
    params += [{"epsilon": 1.0}, {"epsilon": 3.0}]
    scores = {("test", k): [[0.9], [0.8], [0.7], [0.7]] for k in ("f1", "f1[a]", "f1[b]")}
    weights = {("test", "n_weights"): [[500.0], [10.0], [10.0], [500.0]]}
    table = privacy_cost_table(results_of(params, scores | weights), metric="f1")
    assert table["privacy_cost"].tolist() == pytest.approx([0.1, 0.2])
    same = {("test", "n_weights"): [[10.0], [10.0], [10.0], [np.nan]]}
    table = privacy_cost_table(results_of(params, scores | same), metric="f1")
    assert table["privacy_cost"].tolist() == pytest.approx([0.2, 0.2])
    other = {("test", "n_weights"): [[500.0], [500.0], [10.0], [500.0]]}
    with pytest.raises(ValueError, match=r"Row 2.*network of 10 weights.*one of 500.*Set module"):
        privacy_cost_table(results_of(params, scores | other), metric="f1")


def test_a_search_with_a_reference_compares_equal_networks(two_groups):
    X = two_groups.data.assign(group=two_groups.sensitive_features)
    X, y = pd.concat([X] * 5, ignore_index=True), np.tile(two_groups.target, 5)
    model = DPFairClassifier("dpsgd", group_col="group", max_steps=20, random_state=0)
    grid = [{"epsilon": [1.0]}, {"epsilon": [None]}]
    search = GridSearchCV(model, grid, scoring=GroupScorer(), refit=False, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, y)
        with pytest.raises(ValueError, match='what "auto" means depends on epsilon'):
            privacy_cost_table(search)
        grid[1]["module"] = ["auto", "logistic"]
        search.fit(X, y)
    found = search.cv_results_
    assert found["mean_test_n_weights"][0] == found["mean_test_n_weights"][2] < 20
    cost = found["mean_test_accuracy"][2] - found["mean_test_accuracy"][0]
    assert privacy_cost_table(search)["privacy_cost"].tolist() == pytest.approx([cost])


def test_a_halving_search_pairs_within_a_round_and_leaves_the_rest_nan():
    params = [{"epsilon": None}, {"epsilon": 1.0}, {"epsilon": 1.0}]
    scores = {("test", k): [[0.9], [0.8], [0.7]] for k in ("accuracy", "accuracy[a]")}
    table = privacy_cost_table(results_of(params, scores) | {"iter": np.array([0, 0, 1])})
    assert table["privacy_cost"].tolist() == pytest.approx([0.1, np.nan], nan_ok=True)
    assert select_by("privacy_cost")(results_of(params, scores) | {"iter": [0, 0, 1]}) == 1


@pytest.mark.parametrize(
    ("choice", "row"),
    [
        (select_by(), 1),
        (select_by("privacy_cost[M]"), 1),
        (select_by("accuracy"), 1),
        (select_by("accuracy_difference"), 0),
        (select_by("accuracy_difference", at_least={"accuracy": 0.7}), 1),
        (select_by("dg_gap"), 1),
        (select_by("dg_gap[F]"), 1),
        (select_by("dg_gap_worst_group"), 1),
        (select_by("privacy_cost_gap"), 1),
    ],
)
def test_choice_is_the_best_private_candidate(results, choice, row):
    assert choice(results) == row


@pytest.mark.parametrize(
    ("choice", "match"),
    [
        (select_by("privacy_cost[X]"), "column must be one of .*privacy_cost_difference"),
        (select_by("f1"), "column must name a score of the search, .*'accuracy'.*'privacy_cost'"),
        (select_by(at_least={"recall": 1}), "at_least must name a score"),
        (select_by(at_least={"accuracy": 0.99}), r"best values are accuracy: 0\.8\. Lower the"),
        (select_by(at_least={"accuracy": 0.99}), "To keep the scores, set refit=False"),
        (select_by(metric="f1"), "no scores of metric='f1'"),
    ],
)
def test_refusals_of_a_choice(results, choice, match):
    with pytest.raises(ValueError, match=match):
        choice(results)


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (
            {"column": "privacy_costs"},
            ValueError,
            "column must be 'privacy_cost', .*_difference', .*_group_max' or",
        ),
        ({"column": "dg_gap_F"}, ValueError, r"'dg_gap\[GROUP\]', got 'dg_gap_F'"),
        ({"column": None}, TypeError, "column must be a text"),
        ({"at_least": 0.8}, TypeError, "at_least must be a dict"),
        ({"at_least": {"accuracy": "0.8"}}, TypeError, "at_least must be a number"),
    ],
)
def test_a_choice_is_checked_before_the_search_runs(wrong, error, match):
    with pytest.raises(error, match=match):
        select_by(**wrong)


def test_refusals_of_a_table(results):
    train_only = {k: v for k, v in results.items() if "_train_" not in k}
    with pytest.raises(ValueError, match="return_train_score=True"):
        dg_gap_table(train_only)
    several = results | {"params": [{"epsilon": None}, {"epsilon": None}, {"epsilon": 1.0}]}
    with pytest.raises(ValueError, match=r"Rows \[0, 1\] .* references of row 2"):
        privacy_cost_table(several)
    with pytest.raises(ValueError, match=r'\{"epsilon": \[None\]\}'):
        privacy_cost_table(results | {"params": [{"epsilon": 1.0}] * 3})
    with pytest.raises(ValueError, match="no private candidate"):
        privacy_cost_table(results | {"params": [{"epsilon": None}] * 3})


def test_noise_without_a_budget_is_private(results):
    params = [{"noise_multiplier": 1.0, "epsilon": None}, {"epsilon": None}, {"epsilon": 2.0}]
    table = privacy_cost_table(results | {"params": params})
    assert isinstance(table, pd.DataFrame) and list(table.index) == [0, 2]
