"""Sentences of a sweep state its recommendation, costs, reference, guesses, ledger and commands."""

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click import Context

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.cli import main
from skdpfair.model_selection import DPRandomizedSearch, TradeoffResults, sweep
from skdpfair.model_selection._sweep_spec import SweepSpec
from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.privacy.privacy_report import rounded_up
from skdpfair.report import _sweep_page
from skdpfair.report._summary import costs_beside, release_commands, weak_reference

NOISY, NEAR = np.array([-0.02, 0.0, 0.02]), np.array([-0.022, 0.002, 0.02])
ASIDE, WIDE = np.array([0.03, -0.02, 0.0]), np.array([-0.12, 0.0, 0.12])
SCORES = {  # accuracies of models
    "a winner": {("a", 1.0): 0.7 + NEAR, ("a", 2.0): 0.8 + NOISY, ("b", 2.0): 0.75 + NEAR},
    "no measurable gain": {
        ("a", 0.5): 0.8 + NOISY,
        ("b", 0.5): 0.79 + ASIDE,
        ("a", 4.0): 0.81 + ASIDE,
    },
    "no better budget": {("a", 0.5): 0.8 + NOISY, ("a", 4.0): 0.795 + NEAR},
    "equal runs": {("a", 1.0): np.full(3, 0.6), ("a", 2.0): np.full(3, 0.7)},
    "two equal runs": {("a", 1.0): np.full(2, 0.6)},
    "one run": {("a", 1.0): np.array([0.7]), ("a", 2.0): np.array([0.8])},
    "no private model": {("sgd", np.inf): np.array([0.7, 0.7])},
    "chance": {("a", 1.0): 0.6 + NOISY},
    "some at chance": {
        ("a", 0.5): 0.62 + WIDE,
        ("a", 1.0): 0.7 + NOISY,
        ("b", 1.0): 0.72 + WIDE,
        ("a", 4.0): 0.705 + NEAR[[2, 0, 1]],
        ("b", 8.0): 0.65 + WIDE,
    },
    "one class": {("a", 1.0): 0.9 + NOISY, ("b", 1.0): 0.6 + NEAR, ("c", 1.0): np.full(3, 0.6)},
    "a reference of one class": {("a", 1.0): 0.9 + NOISY},
    "a small group": {("a", 1.0): 0.85 + NOISY},
    "small groups": {("a", 1.0): 0.85 + NOISY},
    "a rare class": {("a", 1.0): 0.8 + NOISY},
    "a weak reference": {("a", 1.0): 0.95 + NEAR},
    "persons": {("a", 1.0): 0.8 + NOISY},
    "a known size": {("a", 1.0): 0.8 + NOISY},
    "five runs": {("a", 1.0): 0.8 + np.array([-0.02, 0.0, 0.01, 0.0, 0.03])},
    "many models": {(name, 1.0): np.full(3, 0.6) for name in "abcdefgh"},
}


@pytest.fixture
def results(by_hand):
    """``results(name)``: those of SCORES, with what the name says of them."""

    def results(name):
        is_counted = name in ("chance", "some at chance", "one class", "many models")
        found = by_hand.scored(SCORES[name], is_counted=is_counted)
        frame = found.frame
        of_one_class = {"one class": ["c"], "a reference of one class": ["reference"]}
        if name in of_one_class:
            constant = frame["method"].isin(of_one_class[name])
            frame["balanced_accuracy"] = np.where(constant, 0.5, 0.7)
        if name == "a small group":
            frame.loc[(frame["group"] == "F") & (frame["seed"] == 1), "n"] = 29
        if name == "small groups":
            frame["n"] = 29
        if name == "a rare class":
            parts = {"rarest_class_share": 0.11, "rarest_class_recall": 0.6}
            found.frame = frame.assign(**parts, balanced_accuracy=0.7, rarest_class_recall_cost=0.1)
            found.spec = replace(by_hand.spec, rarest_class="yes", classes=["no", "yes"])
        if name == "persons":
            found.spec = replace(by_hand.spec, protects="person", n_persons_of_fit=[900, 1000])
        if name in ("a known size", "five runs"):
            frame["n_train"] = 3200  # of 800 test records
        return found

    return results


def test_sentences_of_sweeps(results, check_golden, monkeypatch):
    """Of each sweep, those that none before has, a line each."""
    made = {}
    monkeypatch.setattr(_sweep_page, "render", lambda _, facts: made.update(facts["sentences"]))
    lines, known = [], set()
    for name in SCORES:
        results(name).to_html()
        new = [f"{part}: {text}" for part, text in made.items() if text and text not in known]
        lines.append(" | ".join([f"({name})", *new]))
        known |= set(made.values())
    check_golden("sweep_sentences.txt", lines)


def test_limits_of_guesses_follow_from_epsilon_and_delta(results, page_facts):
    found = results("a winner")
    assert page_facts(found.to_html)["summary"]["limits"] is None  # delta is not known
    found.spec = SweepSpec(n_samples=12_345, delta=1e-5, params={"delta": "1e-05"}, skdpfair="0.1")
    # e / (1 + e) = .73106 and e^2 / (1 + e^2) = .88080
    limits = page_facts(found.to_html)["summary"]["limits"]
    assert limits == ["73.2 % at ε 1", "88.1 % at ε 2"]


def test_costs_against_a_reference_of_one_class_are_left_out(results):
    assert " 0.0 " in results("one class").as_text(["privacy_cost"])
    rows = results("a reference of one class").as_text(["privacy_cost"]).splitlines()[1:]
    assert not any(cell.count(".") and cell != "1.0" for row in rows for cell in row.split())


def test_weak_reference_is_the_model_furthest_above_it(swept):
    good = swept[0].frame.assign(privacy_cost=0.02)
    bad = good.assign(privacy_cost=np.where(good["method"] == "global", -0.05, 0.02))
    other = good.assign(privacy_cost=np.where(np.isinf(good["epsilon"]), -0.05, 0.02))
    found = [weak_reference(TradeoffResults(f).estimates(), "accuracy") for f in (good, bad, other)]
    assert found == [None, ("global", 20.0, pytest.approx(0.05)), None]


def test_costs_beside_a_model_are_those_of_the_nearest_budget(results):
    found = costs_beside(results("a winner"), "a", 1.6)
    assert (found["model"], found["is_near"], found["n_runs"]) == ("a at ε 2", True, 3)
    assert not costs_beside(results("a winner"), "a", 1.0)["is_near"]
    with pytest.raises(ValueError, match=r"^results .* 'c'"):
        costs_beside(results("a winner"), "c", 1.0)


@pytest.mark.parametrize(
    ("method", "epsilon", "answer"),
    [
        ("a", 2.0, "Yes"),
        ("a", 4.0, "its ε is 4, with which the sweep found no measurable gain"),
        ("a", 1.0, "its ε is 1, with which the sweep found a measurable loss"),
        ("a", 3.0, "did not try its ε, 3"),
        ("b", 2.0, "its method is b"),
    ],
)
def test_page_says_whether_its_model_is_the_recommended_one(method, epsilon, answer, by_hand):
    near, noisy = by_hand.near, by_hand.noisy
    scores = {("a", 1.0): 0.7 + near, ("a", 2.0): 0.8 + noisy, ("a", 4.0): 0.79 + near}
    found = costs_beside(by_hand.scored(scores | {("b", 2.0): 0.7 + near}), method, epsilon)
    assert answer in found["advice"] and found["is_recommended"] == (answer == "Yes")


def test_release_commands_repeat_what_is_recommended():
    spec = SweepSpec(
        classes=["no", "yes"],
        methods={"dpsgd": "'dpsgd'", "global_adapt": "'global_adapt'", "own": "Own()"},
        params={
            "delta": "1e-06",
            "classes": "('no', 'yes')",
            "module": "'mlp'",
            "module__hidden_layer_sizes": "(8, 8)",
        },
    )
    files = "loans 1.csv", "loans-results/schema.toml"
    found = SimpleNamespace(spec=spec, leading_measures=["accuracy"], files=files)
    advised = SimpleNamespace(method="dpsgd", epsilon=0.5, score=None, is_useful=True)
    ledger = SimpleNamespace(path=Path("a") / "b.jsonl")
    assert release_commands(found, advised, ledger)[1].endswith(" --ledger b.jsonl")
    tried, fixed = release_commands(found, advised)
    fit = "skdpfair fit 'loans 1.csv' --schema loans-results/schema.toml --epsilon 0.5 "
    end = "--delta 1e-06 --set module=mlp --set 'module__hidden_layer_sizes=[8, 8]'"
    assert tried == f"{fit}--try method=dpsgd,global_adapt {end}"
    assert fixed == f"{fit}--method dpsgd {end}"
    shell, words = main.get_command(None, "fit"), shlex.split(fixed)[2:]
    given = shell.make_parser(Context(shell)).parse_args(words)[0]
    assert (given["epsilon"], given["method"], given["schema"]) == ("0.5", "dpsgd", files[1])
    found.files = None
    tried, fixed = release_commands(found, advised)
    names = {"DPFairClassifier": DPFairClassifier, "DPRandomizedSearch": DPRandomizedSearch}
    search, clf = (eval(text.partition(".fit(X, y, ")[0], names) for text in (tried, fixed))
    assert "MLP(hidden_layer_sizes=(8, 8))" in repr(clf) and clf.classes == ("no", "yes")
    assert search.param_distributions == {"method": ["dpsgd", "global_adapt"]}
    assert (search.epsilon, search.delta) == (0.5, 1e-6)  # of the whole search
    assert (clf.method, clf.epsilon, search.estimator.delta) == ("dpsgd", 0.5, 1e-6)
    found.files, found.spec = files, SweepSpec()
    tried, fixed = release_commands(found, None)
    assert tried is None and "--epsilon EPSILON --method METHOD" in fixed


def test_release_commands_hold_values_with_braces():
    weights = {"{no}": 1.0, "yes": 2.0}
    params = {"class_weight": repr(weights)}
    spec = SweepSpec(classes=list(weights), methods={"dpsgd": "'dpsgd'"}, params=params)
    fixed = release_commands(SimpleNamespace(spec=spec, files=None), None)[1]
    clf = eval(fixed.partition(".fit(")[0].replace("EPSILON", "1.0"), globals())
    assert (clf.class_weight, clf.classes, clf.epsilon) == (weights, list(weights), 1.0)


@pytest.fixture
def ledger(tmp_path):
    """A ledger of a fit beside the sweeps."""
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-6)
    with ledger:
        DPFairClassifier(epsilon=1.0, max_steps=3).fit([[0.0], [1.0]] * 1000, [0, 1] * 1000)
    return ledger


def test_before_states_the_cost_of_all_fits_in_a_ledger(two_groups, ledger, page_facts):
    with ledger:
        found = sweep(
            two_groups.data,
            two_groups.target,
            sensitive_features=two_groups.sensitive_features,
            methods=["dpsgd"],
            epsilons=[5.0],
            seeds=1,
            module="logistic",
            max_steps=3,
            batch_size=200,
        )
    spent, text = ledger.report(), " ".join(page_facts(found.to_html, ledger=ledger)["before"])
    assert spent.n_fits == 3 and "holds 3 fits" in text and "The 2 private fits" in text
    assert f"ε = {rounded_up(spent.epsilon)} at δ = 1e-06." in text
    runs = found.releases[["sample_rate", "noise_multiplier", "steps"]].itertuples(index=False)
    releases = [NoisyRelease("steps", q, (s,), int(t)) for q, s, t in runs]
    of_page = compute_epsilon(releases, found.spec.delta, "rdp")
    facts = page_facts(found.to_html, ledger=ledger)
    assert facts["total"] is None  # one total for the fits of a ledger
    assert page_facts(found.to_html)["total"][0] == rounded_up(of_page)
    command = page_facts(found.to_html, ledger=ledger)["commands"][1]
    assert command.startswith("ledger.fit(DPFairClassifier(") and command.endswith(
        "), X, y, sensitive_features=groups)"
    )


def test_before_states_no_total_without_the_fits_of_the_sweep(swept, ledger, page_facts):
    found, folder = swept
    for results in (found, TradeoffResults.from_store(folder), TradeoffResults(found.frame)):
        (sentence,) = page_facts(results.to_html, ledger=ledger)["before"]
        assert sentence.startswith("8 private fits") and "not in the ledger" in sentence
    assert page_facts(found.to_html)["before"] is None
    with pytest.raises(TypeError, match=r"^ledger .*3"):
        found.to_html(ledger=3)
