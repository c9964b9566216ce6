"""Candidates of a search as models: pairing with their references, values, and the best one."""

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV

from skdpfair.model_selection import TradeoffResults


def results_of(params, scores, **more):
    """cv_results_ of one fold a column of scores[key], of shape (n_candidates, n_folds)."""
    out = {"params": params} | more
    for key, values in scores.items():
        part, name = key.split(" ")
        for fold, column in enumerate(np.asarray(values, dtype=float).T):
            out[f"split{fold}_{part}_{name}"] = column
    return out


def means(search):
    table = TradeoffResults.from_search(search).table().xs("mean", axis=1, level=1)
    return {name: pytest.approx(values.tolist(), nan_ok=True) for name, values in table.items()}


def costs_of(params, values, **more):
    scores = {f"test accuracy{group}": np.c_[values] for group in ("", "[a]", "[b]")}
    return means(results_of(params, scores, **more))["privacy_cost"]


@pytest.fixture
def results():
    params = [
        {"clf__method": "dpsgd", "clf__epsilon": 1.0},
        {"clf__method": "dpsgd", "clf__epsilon": 2.0},
        {"clf__epsilon": None},
    ]
    scores = {
        "test accuracy": [[0.6, 0.7], [0.8, 0.8], [0.9, 0.8]],
        "test accuracy_difference": [[0.0, 0.0], [0.2, 0.1], [0.1, 0.1]],
        "test accuracy[F]": [[0.6, 0.7], [0.7, 0.7], [0.9, 0.7]],
        "test accuracy[M]": [[0.6, np.nan], [0.9, np.nan], [0.9, np.nan]],
        "train accuracy": [[0.7, 0.8], [0.8, 0.8], [1.0, 1.0]],
        "train accuracy[F]": [[0.5, 0.6], [0.7, 0.7], [1.0, 1.0]],
        "train accuracy[M]": [[0.9, 0.9], [0.9, 0.9], [1.0, 1.0]],
    }
    return results_of(params, scores)


def test_from_search_pairs_costs_by_fold_and_gaps_with_training_scores(results):
    index = TradeoffResults.from_search(results).table().index.tolist()
    assert index == [("dpsgd", 1.0), ("dpsgd", 2.0), ("reference", np.inf)]
    expected = {
        "privacy_cost": [0.2, 0.05, 0],
        "privacy_cost[F]": [0.15, 0.1, 0],
        "privacy_cost[M]": [0.3, 0.0, 0],  # without the fold that lacks the group
        "privacy_cost_difference": [0.15, 0.1, 0],
        "dg_gap": [0.1, 0.0, 0.15],
        "dg_gap[F]": [-0.1, 0.0, 0.2],
        "dg_gap[M]": [0.3, 0.0, 0.1],
        "dg_gap_difference": [0.4, 0.0, 0.1],
        # worst group on training rows: F, .55, then F, .7; on held-out rows: M, .6, then F, .7
        "dg_gap_worst_group": [0.55 - 0.6, 0.7 - 0.7, 1.0 - 0.8],
    }
    found = means(results)
    assert {name: found[name] for name in expected} == expected


def test_from_search_adds_log_loss_to_that_of_the_reference():
    """Candidate 1 adds most log loss to F, candidate 2 least to the worst group."""
    params = [{"epsilon": None}, {"epsilon": 1.0}, {"epsilon": 2.0}]
    scores = {
        "test neg_log_loss": [[-0.3], [-0.5], [-0.5]],
        "test neg_log_loss[F]": [[-0.3], [-0.7], [-0.5]],
        "test neg_log_loss[M]": [[-0.4], [-0.4], [-0.5]],
    }
    found = means(results_of(params, scores))
    assert found["excessive_risk"] == [0, 0.2, 0.2]
    assert found["excessive_risk[F]"] == [0, 0.4, 0.2]
    assert found["excessive_risk_group_max"] == [0, 0.4, 0.2]
    assert found["excessive_risk_difference"] == [0, 0.4, 0.1]
    risks = TradeoffResults.from_search(results_of(params, scores))
    names = "excessive_risk_difference", "excessive_risk_group_max", "log_loss[F]"
    assert [risks.best_index(name) for name in names] == [2, 2, 2]


def test_from_search_names_differing_parameters_and_has_nan_for_unknown_budgets():
    params = [{"a__lr": 1, "epsilon": None}, {"a__lr": 2}, {"a__lr": 2, "noise_multiplier": 1.0}]
    scores = {f"test accuracy{g}": [[0.9]] * 3 for g in ("", "[a]")}
    index = TradeoffResults.from_search(results_of(params, scores)).table().index
    names = ["reference (lr=1)", "private (lr=2)", "private (lr=2, noise_multiplier=1.0)"]
    assert index.get_level_values("method").tolist() == names
    assert np.isnan(index.get_level_values("epsilon")[1:]).all()


@pytest.mark.parametrize(
    ("search", "error", "match"),
    [
        (GridSearchCV(DummyClassifier(), {}), TypeError, "search .*GridSearchCV"),
        (pd.DataFrame(), TypeError, "search .*DataFrame"),
        (results_of([{}], {"test accuracy": [[0.9]]}), ValueError, "no scores by group"),
        (
            results_of([{}], {"test log_loss": [[-0.5]], "test log_loss[a]": [[-0.5]]}),
            ValueError,
            "'neg_log_loss'",
        ),
    ],
)
def test_from_search_refuses_what_is_not_scored_by_group(search, error, match):
    with pytest.raises(error, match=match):
        TradeoffResults.from_search(search)


PRIVATE, REFERENCE, LOGISTIC = {"epsilon": 1.0}, {"epsilon": None}, {"module": "logistic"}


def test_from_search_pairs_each_candidate_with_the_reference_that_agrees():
    params = [{"lr": lr} | spent for lr in (0.1, 0.2) for spent in (REFERENCE, PRIVATE)]
    assert costs_of(params, [0.9, 0.8, 0.7, 0.5]) == [0, 0.1, 0, 0.2]
    params = [REFERENCE, REFERENCE | LOGISTIC, PRIVATE, PRIVATE | LOGISTIC]
    assert costs_of(params, [0.9, 0.8, 0.7, 0.7]) == [0, 0, 0.2, 0.1]
    halving = {"iter": np.array([0, 0, 1])}
    costs = costs_of([REFERENCE, PRIVATE, PRIVATE], [0.9, 0.8, 0.7], **halving)
    assert costs == [0, 0.1, np.nan]
    with pytest.raises(ValueError, match=r"\[0, 1\] .* row 2"):
        costs_of([REFERENCE, REFERENCE, PRIVATE], [0.9, 0.8, 0.7])


@pytest.mark.parametrize(
    ("choice", "row"),
    [
        ({}, 1),
        ({"column": "privacy_cost[M]"}, 1),
        ({"column": "accuracy"}, 1),
        ({"column": "accuracy_difference"}, 0),
        ({"column": "accuracy_difference", "at_least": {"accuracy": 0.7}}, 1),
        ({"column": "dg_gap"}, 1),
        ({"column": "dg_gap[F]"}, 1),
        ({"column": "dg_gap_worst_group"}, 1),
    ],
)
def test_best_index_is_that_of_a_private_candidate(results, choice, row):
    assert TradeoffResults.from_search(results).best_index(**choice) == row


@pytest.mark.parametrize(
    ("choice", "error", "match"),
    [
        ({"column": "privacy_cost[X]"}, ValueError, "column .*privacy_cost_difference"),
        ({"at_least": {"recall": 1}}, ValueError, "at_least .*accuracy"),
        ({"at_least": {"accuracy": 0.99}}, ValueError, r"{'accuracy': '0\.8'}"),
        ({"at_least": {"accuracy": "0.8"}}, TypeError, "at_least .*number"),
    ],
)
def test_best_index_refuses_unusable_choices(results, choice, error, match):
    with pytest.raises(error, match=match):
        TradeoffResults.from_search(results).best_index(**choice)


def test_results_without_private_candidates_or_numbers_of_records_are_refused(results):
    references = results | {"params": [{"epsilon": None, "lr": i} for i in range(3)]}
    with pytest.raises(ValueError, match="private"):
        TradeoffResults.from_search(references).best_index("accuracy")
    with pytest.raises(ValueError, match="how many records"):
        TradeoffResults.from_search(results).to_html()
