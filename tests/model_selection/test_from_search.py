"""Candidates of a search as models: pairing with their references, values, and the best one."""

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV

from skdpfair.model_selection import TradeoffResults


def results_of(params, scores):
    """cv_results_ of one fold a column of scores[key], of shape (n_candidates, n_folds)."""
    out = {"params": params}
    for (part, key), values in scores.items():
        values = np.asarray(values, dtype=float)
        for fold in range(values.shape[1]):
            out[f"split{fold}_{part}_{key}"] = values[:, fold]
        out[f"mean_{part}_{key}"] = values.mean(axis=1)
    return out


def means(search):
    return TradeoffResults.from_search(search).table().xs("mean", axis=1, level=1)


def costs_of(params, values, **more):
    scores = {("test", k): values for k in ("accuracy", "accuracy[a]", "accuracy[b]")}
    return means(results_of(params, scores | more.pop("scores", {})) | more)[
        "privacy_cost"
    ].tolist()


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
    table = means(results)
    assert table.index.tolist() == [("dpsgd", 1.0), ("dpsgd", 2.0), ("reference", np.inf)]
    assert table["privacy_cost"].tolist() == pytest.approx([0.2, 0.05, 0])
    assert table["privacy_cost[F]"].tolist() == pytest.approx([0.15, 0.1, 0])
    assert table["privacy_cost[M]"].tolist() == pytest.approx([0.3, 0.0, 0])
    assert table["privacy_cost_difference"].tolist() == pytest.approx([0.15, 0.1, 0])


def test_gaps_are_training_minus_test_of_every_candidate(results):
    table = means(results)
    assert table["dg_gap"].tolist() == pytest.approx([0.1, 0.0, 0.15])
    assert table["dg_gap[M]"].tolist() == pytest.approx([0.3, 0.0, 0.1])
    assert table["dg_gap[F]"].iloc[0] == pytest.approx(-0.1)
    assert table["dg_gap_difference"].iloc[0] == pytest.approx(0.4)
    # worst group on training rows: F, .55, then F, .7; on held-out rows: M, .6, then F, .7
    worst = [0.55 - 0.6, 0.7 - 0.7, 1.0 - 0.8]
    assert table["dg_gap_worst_group"].tolist() == pytest.approx(worst)


def test_excessive_risk_is_the_log_loss_added_to_that_of_the_reference():
    """Candidate 1 adds most log loss to F, candidate 2 least to the worst group."""
    params = [{"epsilon": None}, {"epsilon": 1.0}, {"epsilon": 2.0}]
    scores = {
        ("test", "neg_log_loss"): [[-0.3], [-0.5], [-0.5]],
        ("test", "neg_log_loss[F]"): [[-0.3], [-0.7], [-0.5]],
        ("test", "neg_log_loss[M]"): [[-0.4], [-0.4], [-0.5]],
    }
    risks = TradeoffResults.from_search(results_of(params, scores))
    table = risks.table().xs("mean", axis=1, level=1)
    assert table["excessive_risk"].tolist() == pytest.approx([0, 0.2, 0.2])
    assert table["excessive_risk[F]"].tolist() == pytest.approx([0, 0.4, 0.2])
    assert table["excessive_risk_difference"].tolist() == pytest.approx([0, 0.4, 0.1])
    assert table["excessive_risk_group_max"].tolist() == pytest.approx([0, 0.4, 0.2])
    assert risks.best_index("excessive_risk_difference") == 2
    assert risks.best_index("excessive_risk_group_max") == risks.best_index("log_loss[F]") == 2


def test_parameters_that_differ_are_in_the_name_and_unknown_budgets_are_nan():
    params = [{"a__lr": 1, "epsilon": None}, {"a__lr": 2}, {"a__lr": 2, "noise_multiplier": 1.0}]
    table = means(results_of(params, {("test", f"accuracy{g}"): [[0.9]] * 3 for g in ("", "[a]")}))
    names = ["reference (lr=1)", "private (lr=2)", "private (lr=2, noise_multiplier=1.0)"]
    assert table.index.get_level_values("method").tolist() == names
    assert np.isnan(table.index.get_level_values("epsilon")[1:]).all()


def test_only_fitted_searches_scored_by_group_are_results(results):
    with pytest.raises(TypeError, match=r"search must be a fitted search.*got GridSearchCV"):
        means(GridSearchCV(DummyClassifier(), {}))
    with pytest.raises(TypeError, match=r"search must be a fitted search.*got DataFrame"):
        means(pd.DataFrame())
    with pytest.raises(ValueError, match=r"no scores by group.*GroupScorer\(measures="):
        means({k: v for k, v in results.items() if "[" not in k})


def test_every_candidate_gets_the_reference_that_agrees_with_it():
    params = [{"lr": lr, "epsilon": e} for lr in (0.1, 0.2) for e in (None, 1.0)]
    costs = costs_of(params, [[0.9], [0.8], [0.7], [0.5]])
    assert costs == pytest.approx([0, 0.1, 0, 0.2])
    several = [{"epsilon": None}, {"epsilon": None}, {"epsilon": 1.0}]
    with pytest.raises(ValueError, match=r"Rows \[0, 1\] .* references of row 2"):
        costs_of(several, [[0.9], [0.8], [0.7]])


def test_candidates_are_paired_with_the_reference_that_names_what_they_name():
    params = [{"epsilon": None}, {"epsilon": None, "module": "logistic"}]
    params += [{"epsilon": 1.0}, {"epsilon": 1.0, "module": "logistic"}]
    costs = costs_of(params, [[0.9], [0.8], [0.7], [0.7]])
    assert costs[2:] == pytest.approx([0.2, 0.1])


def test_a_halving_search_pairs_within_a_round_and_leaves_the_rest_nan():
    params, values = [{"epsilon": None}, {"epsilon": 1.0}, {"epsilon": 1.0}], [[0.9], [0.8], [0.7]]
    costs = costs_of(params, values, iter=np.array([0, 0, 1]))
    assert costs == pytest.approx([0, 0.1, np.nan], nan_ok=True)


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
def test_the_best_is_a_private_candidate(results, choice, row):
    assert TradeoffResults.from_search(results).best_index(**choice) == row


@pytest.mark.parametrize(
    ("choice", "error", "match"),
    [
        ({"column": "privacy_cost[X]"}, ValueError, "column must be .*privacy_cost_difference"),
        ({"at_least": {"recall": 1}}, ValueError, "at_least must be .*accuracy"),
        ({"at_least": {"accuracy": 0.99}}, ValueError, r"best values {'accuracy': '0\.8'}"),
        ({"at_least": {"accuracy": "0.8"}}, TypeError, "at_least must be a number"),
    ],
)
def test_refusals_of_a_choice(results, choice, error, match):
    with pytest.raises(error, match=match):
        TradeoffResults.from_search(results).best_index(**choice)
    references = results | {"params": [{"epsilon": None, "lr": i} for i in range(3)]}
    with pytest.raises(ValueError, match="No private model has"):
        TradeoffResults.from_search(references).best_index("accuracy")


def test_a_page_needs_numbers_of_records_that_a_search_does_not_tell(results):
    with pytest.raises(ValueError, match="do not tell how many records they tested"):
        TradeoffResults.from_search(results).to_html()


def test_a_name_of_a_loss_holds_no_negated_scores():
    params = [{"epsilon": 1.0}, {"epsilon": None}]
    scores = {("test", k): [[-0.5], [-0.4]] for k in ("log_loss", "log_loss[a]", "log_loss[b]")}
    with pytest.raises(ValueError, match="name them 'neg_log_loss'"):
        TradeoffResults.from_search(results_of(params, scores))
