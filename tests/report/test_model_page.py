"""The page and the card of one classifier."""

import re
import warnings
from copy import copy
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from html import escape, unescape

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.stats import binom, binomtest
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpfair import DPFairClassifier, Groups, Persons, get_method
from skdpfair._utils.group_names import MAX_NAME
from skdpfair._utils.validate import visible
from skdpfair.budget import PrivacyLedger
from skdpfair.budget.spending import SCORES, UNKNOWN
from skdpfair.cli import main
from skdpfair.datasets import make_two_groups
from skdpfair.metrics import release_group_table
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier, sweep
from skdpfair.preprocessing import public_preprocessor
from skdpfair.privacy.statement import SEVERAL_RECORDS, percent, rounded_up
from skdpfair.report import export_statement, model_card, model_page
from skdpfair.report._group_figures import differences
from skdpfair.report._same_table import check_same, table_of

HOSTILE = "<b onclick=x>|a|</b>"


@pytest.fixture(scope="module")
def fitted():
    data = make_two_groups(3000, random_state=0)
    groups = np.where(data.sensitive_features == "a", HOSTILE, "b")
    clf = DPFairClassifier(
        "dpsgd", epsilon=3.0, group_col=Groups(levels=[HOSTILE, "b"]), max_steps=10
    )
    return clf.fit(data.data, data.target, sensitive_features=groups), data, groups


def test_without_records_nothing_is_private(fitted):
    page = model_page(fitted[0])
    assert "contains no figures that are not private" in page
    assert "contains non-private figures" not in page
    assert "no test records were given" in page and "was not checked" in page


def test_the_page_and_the_card_quote_the_report(fitted):
    clf = fitted[0]
    privacy = clf.privacy_
    page, card = model_page(clf), model_card(clf)
    for text in (page, card):
        assert privacy.plain_statement in text and privacy.statement in text
        assert all(row in text for row in privacy.summary.values())
    assert f"at error rates from {rounded_up(privacy.mu_from, 2)} on" in page
    curve = re.findall(r"<title>(\S+) % false alarms: at most (\S+) % found", page)[:-2]
    rates, shown = np.array(curve, dtype=float).T / 100
    exact = 1 - privacy.false_negative_rate(rates)
    assert np.all(shown >= exact - 1e-12)
    assert shown == pytest.approx(exact, rel=1e-2, abs=1e-9)
    assert page.index(privacy.plain_statement) < page.index("neighbouring data")


def test_a_value_is_the_same_text_on_page_card_shell_and_forms(fitted, tmp_path):
    clf, data, groups = fitted
    path, given = tmp_path / "m.safetensors", {"sensitive_features": groups}
    clf.save_release(path)
    X, y = data.data, data.target
    texts = {
        "page": unescape(model_page(clf, X, y, **given)),
        "card": unescape(model_card(clf, X, y, **given)),
        "nist": unescape(export_statement(clf, "nist", X, y, **given)),
        "nist of the file": unescape(export_statement(path, "nist", X, y, **given)),
    }
    shell = CliRunner().invoke(main, ["statement", str(path)]).output
    for name, text in {**texts, "shell": shell, "python": repr(clf.privacy_)}.items():
        assert rounded_up(clf.privacy_.epsilon) in text, name
        assert f"at most {percent(clf.privacy_.detection_rate())} %" in text, name
        assert rounded_up(clf.privacy_.mu) in text, name
    cells = {
        name: set(re.findall(r"\d+\.\d \(?[\d.]+ to [\d.]+", re.sub("<.*?>", "", text)))
        for name, text in texts.items()
    }
    card = {cell.replace("(", "") for cell in cells["card"]}
    assert len(card) >= 9 and card <= cells["page"]
    assert cells["card"] == cells["nist"] == cells["nist of the file"]


@pytest.fixture(scope="module")
def additive():
    rng = np.random.default_rng(0)
    wards = [HOSTILE, ""]
    rows = pd.DataFrame({"age = 1": rng.uniform(20, 80, 900), "gain": rng.lognormal(5, 2, 900)})
    rows["ward"] = rng.choice(wards, 900)
    features = public_preprocessor({"age = 1": (20, 80), "gain": (0, 1e5)}, {"ward": wards})
    clf = DPFairClassifier("dpsgd", epsilon=8.0, module="logistic", max_steps=5)
    return make_pipeline(features, clf).fit(rows, np.arange(900) % 2)


def test_words_are_explained_where_they_occur(fitted):
    clf, data, _ = fitted
    for page in (model_page(clf), model_page(clf, data.data, data.target)):
        before, after = page.split('id="words"')
        explained = re.findall(r"<dt>(.*?)</dt>", after.split("</details>")[0])
        assert all(word in before for term in explained for word in term.split(" and "))
        assert ("95 % interval" in explained) == ("95 % interval" in before)
        assert "guessing well about people whom it has never seen" in before


def test_the_group_table_counts(fitted):
    """By hand: counts, accuracies and Wilson's intervals, in all and by group."""
    clf, data, groups = fitted
    page = model_page(clf, data.data, data.target, sensitive_features=groups)
    assert "contains non-private figures" in page
    right = clf.predict(data.data) == data.target
    for rows in (np.ones(len(groups), bool), groups == HOSTILE, groups == "b"):
        low, high = binomtest(int(right[rows].sum()), int(rows.sum())).proportion_ci(
            method="wilson"
        )
        cell = f'{100 * right[rows].mean():.1f} <span class="i">{100 * low:.1f} to {100 * high:.1f}'
        assert f'<td class="n">{rows.sum():,}</td>\n<td class="n">{cell}' in page
    apart = abs(right[groups == "b"].mean() - right[groups == HOSTILE].mean())
    assert f'<td class="n">{100 * apart:.1f} points' in page


def test_the_group_table_tells_who_is_wrongly_refused_and_accepted(fitted):
    """By hand: rates of errors with Wilson's intervals over the records of their class."""
    _, data, groups = fitted
    y = np.where(data.target == 1, "granted", "refused")
    clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=10, classes=["refused", "granted"])
    clf.fit(data.data, y, sensitive_features=groups)
    page = model_page(clf, data.data, y, sensitive_features=groups)
    predicted, classes = clf.predict(data.data), clf.classes
    parts = []
    for actual, other in (classes, classes[::-1]):
        assert f">actual {actual} predicted as {other}</th>" in page
        rows = (y == actual) & (groups == "b")
        wrong = predicted[rows] == other
        low, high = binomtest(int(wrong.sum()), int(rows.sum())).proportion_ci(method="wilson")
        interval = f"{100 * low:.1f} to {100 * high:.1f}"
        cell = f'{100 * wrong.mean():.1f} <span class="i">{interval}</span>'
        parts.append(f'<td class="n">{cell}</td>')
    assert "\n".join(parts) in page.split('<th scope="row">b</th>')[1]
    differences = page.split("Largest difference")[1]
    assert f'<th scope="row">actual {classes[0]} predicted as {classes[1]}</th>' in differences
    one = y == classes[1]
    page = model_page(clf, data.data[one], y[one], measures=["false_positive_rate"])
    assert '<td class="n">–</td>' in page and "NaN" not in page and "nan" not in page
    assert "predicted as" not in model_page(clf, data.data, y, measures=["accuracy"])


def test_groups_without_test_records_are_not_compared(fitted):
    _, data, groups = fitted
    clf = DPFairClassifier(
        "dpsgd", epsilon=3.0, group_col=Groups(levels=[HOSTILE, "b", "c"]), max_steps=10
    )
    clf.fit(data.data, data.target, sensitive_features=groups)
    page = model_page(clf, data.data, data.target, sensitive_features=groups)
    right = clf.predict(data.data) == data.target
    apart = abs(right[groups == "b"].mean() - right[groups == HOSTILE].mean())
    assert '<th scope="row">c</th><td class="n">0</td>\n<td class="n">–</td>' in page
    assert f'<td class="n">{100 * apart:.1f} points' in page
    only = groups == "b"
    page = model_page(clf, data.data[only], data.target[only], sensitive_features=groups[only])
    assert "Largest difference" not in page or "not compared" in page


def test_names_are_escaped(fitted):
    clf, data, groups = fitted
    page = model_page(clf, data.data, data.target, sensitive_features=groups, title=HOSTILE)
    assert HOSTILE not in page and page.count(escape(HOSTILE)) >= 3
    assert not re.search(r"<script|https?://|<img|@import|url\(", page)
    card = model_card(clf, data.data, data.target, sensitive_features=groups)
    assert "|a|" not in card and "<b" not in card


def test_what_was_spent_is_told(fitted):
    clf = fitted[0]
    page = model_page(clf, pipeline=public_preprocessor({"x": (0, 1)}))
    assert "ε = " in page and "number of records is public" in page
    for entry in clf.privacy_.releases:
        assert escape(entry.what) in page and f"{entry.noise_multipliers[0]:.4g}" in page
    for item in (*clf.privacy_.not_accounted, *clf.privacy_.assumptions):
        assert escape(item) in page
    assert "No step is known to learn" in page


def test_a_model_without_privacy_says_so(fitted):
    data = fitted[1]
    clf = DPFairClassifier("sgd", epsilon=None, max_steps=5).fit(data.data, data.target)
    page = model_page(clf)
    assert "The model is not private" in page and "NOT differentially private" in page
    assert "contains no figures" not in page


def test_seeded_noise_is_told(fitted):
    data = fitted[1]
    with pytest.warns(UserWarning, match="seed"):
        clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=5, random_state=0).fit(
            data.data, data.target
        )
    assert "The noise was seeded" in model_page(clf)


def test_group_epsilons_are_told(fitted):
    data = fitted[1]
    clf = DPFairClassifier("dp_is_sgd", epsilon=3.0, max_steps=5)
    clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    assert "Epsilon of each group" in model_page(clf)


def test_a_model_of_persons_says_so(fitted):
    """Page and card count persons."""
    _, data, groups = fitted
    persons = np.arange(3000) // 2
    given = {"epsilon": 3.0, "max_steps": 5, "persons": Persons(max_records=2)}
    clf = DPFairClassifier("dpsgd", **given).fit(data.data, data.target, persons=persons)
    page, card = model_page(clf), model_card(clf)
    assert "<dt>persons trained on</dt><dd>1,500</dd>" in page
    assert "<dt>records of a person</dt><dd>at most 2</dd>" in page
    assert re.search(r"<dt>expected batch size</dt><dd>[0-9.]+ persons</dd>", page)
    assert "replacing all records of one person by null records changes" in page
    assert "- persons trained on: 1500" in card.replace(",", "")
    assert "is for all training records of one person and for this fit only" in card
    for text in (page, card):
        assert "one record" not in text and "records trained on" not in text
        assert "the same records" not in text and "other fits on the same persons" in text
        assert "the number of records is public, too, where steps before" in text
    for write in (model_page, model_card):
        assert "where a person has several test records" in write(clf, data.data, data.target)
        of_records = write(fitted[0], data.data, data.target, sensitive_features=groups)
        assert "where a person" not in of_records


def test_a_fit_on_records_tells_what_it_guarantees_a_person(fitted):
    data = fitted[1]
    clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=5, persons=Persons(max_records=12))
    clf.set_params(accountant="rdp").fit(data.data, data.target)
    page, card = model_page(clf), model_card(clf)
    epsilon = rounded_up(clf.privacy_.epsilon_for(12))
    assert f", and ε = {epsilon} for a person with at most 12 records." in page
    assert f"; {epsilon} for 12 records of a person" in page
    assert "<dt>records of a person</dt><dd>at most 12</dd>" in page
    assert f"one training record or, with ε = {epsilon}, all of a person with at most 12" in card
    plain = model_page(fitted[0])
    assert "of a person" not in plain and SEVERAL_RECORDS in plain
    assert SEVERAL_RECORDS not in page + card


def test_columns_of_groups_and_persons_are_no_features(fitted):
    data = fitted[1]
    X = data.data.assign(sex=data.sensitive_features, person=np.arange(3000) // 2)
    clf = DPFairClassifier(
        "dpsgd", epsilon=3.0, max_steps=5, persons=Persons("person", max_records=2)
    )
    clf.set_params(group_col="sex").fit(X, data.target)
    assert f"<dt>features</dt><dd>{data.data.shape[1]}</dd>" in model_page(clf)


@pytest.mark.parametrize("of_persons", [False, True])
def test_a_private_search_tells_what_it_released(of_persons, fitted):
    data = fitted[1]
    clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=34, batch_size=99, module="logistic")
    clf.set_params(classes=[0, 1], accountant="rdp")
    given = {"persons": np.arange(3000) // 2} if of_persons else {}
    clf.set_params(persons__max_records=2 if of_persons else None)
    search = DPRandomizedSearch(clf, {"lr": [0.1]}, mean_trials=2.0, trials="geometric")
    search.fit(data.data, data.target, **given)
    page = model_page(search)
    assert "It follows from the Rényi curve of the private search." in page
    assert page == model_page(search.best_estimator_)
    for text in (page, model_card(search)):
        assert "The best of a random number of trials was released." in text
        assert "has 34 steps" in text and "number of trials and their scores are secret" in text
        assert "ledger is empty" not in text and "Nothing." not in text
        assert "declare classes=" not in text
        assert ("declare the levels" in text) == of_persons
    assert ("<dt>persons</dt><dd>1,500</dd>" in page) == of_persons


@pytest.fixture(scope="module")
def compared(fitted):
    data, groups = fitted[1:]
    given = {"module": "logistic", "max_steps": 10, "group_col": Groups(levels=[HOSTILE, "b"])}
    return sweep(
        data.data,
        data.target,
        sensitive_features=groups,
        methods=["dpsgd"],
        epsilons=[1.0, 4.0],
        seeds=3,
        n_jobs=1,
        **given,
    )


def test_a_sweep_tells_what_privacy_costs_each_group(fitted, compared):
    page = model_page(fitted[0], results=compared)
    assert "contains non-private figures" in page and "needs a model without privacy" not in page
    assert "in 3 runs of dpsgd at ε 4" in page  # 3 is nearer to 4 than to 1, as a ratio
    runs = compared.by_run().xs(("dpsgd", 4.0), level=("method", "epsilon"))
    costs = {group: 100 * runs[f"privacy_cost[{group}]"].mean() for group in (HOSTILE, "b")}
    shown = re.findall(
        r'<tr><th scope="row">(.*?)</th><td class="n">(-?[\d.]+) <span', section(page, "cost")
    )
    assert {group for group, _ in shown} == {escape(HOSTILE), "b"}
    for group, cost in shown:
        assert float(cost) == pytest.approx(costs[unescape(group)], abs=0.051)
    largest = max(costs, key=costs.get)
    assert f"The largest cost of privacy for a group is that of {escape(largest)}" in page


def test_costs_of_groups_that_cannot_be_judged_are_not_called_measured(fitted, compared):
    few = copy(compared)
    few.frame = few.frame.assign(n=5)
    page = model_page(fitted[0], results=few)
    assert page.count("unknown, as no group has enough test records") == 1
    assert "This was measured" not in page and "cost of each group" not in page
    assert "Nothing else was measured" not in page


def test_a_method_may_be_an_object_and_two_groups_may_have_one_name(fitted):
    data = fitted[1]
    groups = np.array([1, "1"], dtype=object)[(data.sensitive_features == "a").astype(int)]
    clf = DPFairClassifier(
        get_method("dpsgd"), epsilon=3.0, max_steps=5, group_col=Groups(levels=[1, "1"])
    )
    clf.fit(data.data, data.target, sensitive_features=groups)
    page = model_page(clf, data.data, data.target, sensitive_features=groups)
    assert (
        "<dt>method</dt><dd>dpsgd</dd>" in page and "Largest difference between two groups" in page
    )


@pytest.fixture(scope="module")
def variables():
    """A model of named variables, whose values say nothing by themselves, and its table."""
    rng, n = np.random.default_rng(0), 600
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    y = pd.Series(np.where(X["a"] > 0, "yes", "no"), name="deny")
    groups = pd.DataFrame({"black": rng.choice(["yes", "no"], n), "sex": rng.choice(["0", "1"], n)})
    clf = DPFairClassifier("dpsgd", epsilon=9.0, module="logistic", max_steps=3, delta=1e-5)
    return clf.fit(X, y, sensitive_features=groups["black"]), X, y, groups


def test_values_are_told_with_their_variables(variables, tmp_path):
    clf, X, y, groups = variables
    clf.save_release(tmp_path / "model.safetensors")
    for model in (clf, tmp_path / "model.safetensors"):
        given = {"sensitive_features": groups["black"]}
        for text in (
            model_page(model, X, y, **given),
            model_card(model, X, y, **given),
            export_statement(model, "nist", X, y, **given),
        ):
            for name in ("black = yes", "black = no", "deny = yes", "deny = no"):
                assert name in text
            text = text.replace("deny = no, yes; black = no, yes", "")
            assert not re.search(r"(?:[>;|,]|of|predicted|as) *(?:yes|no) *[<;|,.]", text)
    both = clone(clf).set_params(group_col=["sex", "target"])
    both.fit(X.assign(sex=groups["sex"].where(groups["sex"] == "0", "")), y)
    page = model_page(both)
    assert "sex = 0, deny = no; " in page.replace("sex = (missing), deny = no; ", "")
    assert "sex = (missing), deny = yes" in page


def swept(X, y, groups, **settings):
    return sweep(
        X,
        y,
        sensitive_features=groups,
        methods=["dpsgd"],
        epsilons=[30.0],
        seeds=1,
        module="logistic",
        max_steps=1,
        **settings,
    )


@pytest.mark.parametrize(
    ("other", "both"),
    [
        (lambda X, y, g: (X, y.rename("grant"), g["black"]), ["'grant'", "'deny'"]),
        (lambda X, y, g: (X, y, g["sex"]), ["'sex'", "'black'"]),
        (lambda X, y, g: (X, y, g["black"].replace("no", "white")), ["'white'", "'no'"]),
        (lambda X, y, g: (X, y.replace("no", "maybe"), g["black"]), ["'maybe'", "'no'"]),
        (lambda X, y, g: (X[:500], y[:500], g["black"][:500]), ["500", "600"]),
        (lambda X, y, g: (X.assign(c=0.0), y, g["black"]), ["features 3", "2"]),
    ],
)
def test_a_sweep_of_another_table_is_refused_with_both_sides(variables, other, both):
    clf, *table = variables
    found = swept(*other(*table))
    with pytest.raises(ValueError, match="results must belong to the table of the model") as error:
        model_page(clf, results=found)
    assert all(side in str(error.value) for side in both)


def test_what_is_refused_names_intersections_whole():
    levels = [("a, b", "c"), ("d", "e, f")]
    own, other = (table_of(("t", "u", "v"), groups=groups) for groups in (levels, levels[:1]))
    with pytest.raises(ValueError, match=re.escape(str(["a, b, c", "d, e, f"]))):
        check_same("results", own, other)


def test_a_sweep_of_persons_or_of_the_same_table(variables):
    clf, X, y, groups = variables
    same = swept(X, y, groups["black"])
    assert "black = yes" in section(model_page(clf, results=same), "cost")
    of_persons = swept(X, y, groups["black"], persons=np.arange(600) // 2, persons__max_records=2)
    with pytest.raises(ValueError, match="protects 'person', of the model 'record'"):
        model_page(clf, results=of_persons)


def answer_of(page):
    """Return what stands beside the question whether a page may be published."""
    return unescape(re.search("May this page be published[?]</dt><dd>(.*?)</dd>", page)[1])


def test_values_that_were_read_stand_beside_the_answer(variables):
    clf, X, y, groups = variables
    answer = answer_of(model_page(clf))
    assert answer.startswith("Yes") and clf.privacy_.values_read in answer
    assert "deny = no, yes" in answer and "black = no, yes" in answer
    for text in (model_card(clf), *(export_statement(clf, kind) for kind in ("json", "nist"))):
        assert "black" in text and "yes" in text
    told = clone(clf).set_params(classes=["no", "yes"], group_col=Groups(levels=["no", "yes"]))
    told.fit(X, y, sensitive_features=groups["black"])
    assert told.privacy_.read_from_rows == () and "read from" not in answer_of(model_page(told))


def test_a_page_that_would_not_be_verified_is_not_written(fitted):
    clf, data, _ = fitted
    with pytest.raises(ValueError, match="title"):
        model_page(clf, title="x" * 101)
    odd = clone(clf).set_params(group_col=Groups(levels=[0.25, 0.75]))
    odd.fit(data.data, data.target, sensitive_features=np.resize([0.25, 0.75], 3000))
    with pytest.raises(ValueError, match="groups"):
        model_page(odd)
    codes = clone(clf).set_params(group_col=None)
    codes.fit(data.data, data.target, sensitive_features=np.resize([0.0, 1.0], 3000))
    model_page(codes)
    answer = answer_of(model_page(make_pipeline(StandardScaler().fit(data.data), clf)))
    assert answer.startswith("Not as it is")  # texts on steps are not verified


ODD = ["self", "frame", "X", "class", "__init__", "", " ", 'a "b", [c]', "{0.__class__}", HOSTILE]
ODD += ["overall", "all", "target", "epsilon", "a = b; c", "x" * 300, "1e3", "\u202eM"]


@pytest.mark.parametrize("at", range(0, len(ODD), 2))
def test_no_name_of_a_column_breaks_pages_cards_or_forms(at, tmp_path):
    """As feature, category, group and target, of a fit whose budget is then spent."""
    number, category, group, target = (ODD[(at + i) % len(ODD)] for i in range(4))
    rng, n = np.random.default_rng(0), 400
    X = pd.DataFrame({number: rng.uniform(size=n), category: rng.choice(["A", "B"], n)})
    groups, y = X.pop(category).rename(group), pd.Series(X[number] > 0.5, name=target).map(str)
    X[category] = rng.choice(["A", "B"], n)
    clf = DPFairClassifier("dpsgd", epsilon=30.0, module="logistic", max_steps=1, delta=1e-5)
    model = make_pipeline(public_preprocessor({number: (0, 1)}, {category: ["A", "B"]}), clf)
    model.fit(X, y, dpfairclassifier__sensitive_features=groups)
    given = {"sensitive_features": groups}
    page = model_page(model, X, y, **given)
    assert HOSTILE not in page
    assert f"{visible(target)} = True"[-90:] in unescape(page) or not target.strip()
    assert HOSTILE not in model_card(model, X, y, **given)
    if max(len(number), len(category)) > MAX_NAME:
        with pytest.raises(ValueError, match="feature_names_in_"):
            clf.save_release(tmp_path / "model.safetensors")
        return
    clf.save_release(tmp_path / "model.safetensors")
    assert export_statement(tmp_path / "model.safetensors", "nist")


def test_test_records_of_other_variables_are_refused(variables):
    clf, X, y, groups = variables
    for function in (
        model_page,
        model_card,
        lambda *a, **k: export_statement(a[0], "nist", *a[1:], **k),
    ):
        with pytest.raises(ValueError, match="target 'grant', of the model 'deny'"):
            function(clf, X, y.rename("grant"), sensitive_features=groups["black"])
        with pytest.raises(ValueError, match=r"'sex'.*, of the model .*'black'"):
            function(clf, X, y, sensitive_features=groups[["sex"]].replace({"0": "no", "1": "yes"}))


def test_a_difference_between_groups_has_an_interval(fitted):
    """Newcombe's: its ends are as far off as those of Wilson's intervals, added as variances."""
    clf, data, groups = fitted
    rows = np.r_[np.flatnonzero(groups == "b")[:40], np.flatnonzero(groups == HOSTILE)[:300]]
    X, y, of = data.data.iloc[rows], data.target.iloc[rows], groups[rows]
    page = model_page(clf, X, y, sensitive_features=of, measures=["accuracy"])
    told = re.search(r'accuracy</th>.*?"i">(\S+) to ([\d.]+)(.*?)</span></td><td>(.*?)</tr>', page)
    right = (clf.predict(X) == y).to_numpy()
    parts = sorted((right[of == g] for g in ("b", HOSTILE)), key=np.mean)
    (low, l1, u1), (high, l2, u2) = (
        (part.mean(), *binomtest(int(part.sum()), len(part)).proportion_ci(method="wilson"))
        for part in parts
    )
    gap = high - low
    ends = gap - np.hypot(high - l2, u1 - low), gap + np.hypot(u2 - high, low - l1)
    assert [float(v) for v in told.groups()[:2]] == pytest.approx(
        [100 * e for e in ends], abs=0.051
    )
    assert ("may be chance" in told[3]) == (ends[0] <= 0)
    means = {g: right[of == g].mean() for g in ("b", HOSTILE)}
    most, least = sorted(means, key=means.get, reverse=True)
    sizes = " and ".join(str(sum(of == g)) for g in (most, least))
    pair = f"higher for {most} than for {least} {sizes}"
    assert pair in " ".join(
        re.sub("<[^>]*>", " ", unescape(told[4]).replace(HOSTILE, "H")).split()
    ).replace("H", HOSTILE)


def test_the_largest_difference_counts_the_records_of_its_class(fitted):
    clf, data, groups = fitted
    X, y = data.data, data.target
    names = ["false_negative_rate", "false_positive_rate", "rarest_class_recall", "roc_auc"]
    page = model_page(clf, X, y, sensitive_features=groups, measures=names)
    rows = page.split("Largest difference")[1].split("</table>")[0].split("<tr>")[2:]
    rarest = np.bincount(y).argmin()
    for row, label in zip(rows, (1, 0, rarest, None), strict=True):
        sizes = {int(sum((groups == g) & ((y == label) | (label is None)))) for g in set(groups)}
        told = re.search(r"<td>([\d,]+) and ([\d,]+)(.*?)</td></tr>", row)
        assert {int(n.replace(",", "")) for n in told.groups()[:2]} == sizes
        assert told[3] == ("" if label is None else f" of target = {label}")


@pytest.mark.parametrize("n_groups", [2, 3, 5, 10, 20])
@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_the_interval_of_the_largest_difference_covers_it(n_groups, spread):
    """That of the two groups that differ most, whichever they are; without any, none is told."""
    rng, n_draws = np.random.default_rng(0), 200
    n, of = rng.integers(50, 500, n_groups), 0.85 - spread * np.arange(n_groups) / n_groups
    covered, chance = 0, 0
    for shares in rng.binomial(n, of, (n_draws, n_groups)) / n:
        table = pd.DataFrame({"n": n, "accuracy": shares, "rarest_class_share": 0.2})
        table = pd.concat([table[:1], table])
        table.attrs["rarest"] = 1
        (row,) = differences(table, ["accuracy"], [0, 1])
        low, high = (float(v) / 100 for v in row["interval"].split(" to "))
        true = of[shares.argmax()] - of[shares.argmin()]
        covered += low - 5e-4 <= true <= high + 5e-4
        chance += row["may_be_chance"]
    least = binom.ppf(0.001, n_draws, 0.95)
    assert covered >= least and (spread > 0 or chance >= least)


def test_a_sweep_without_the_model_is_refused(fitted, compared):
    data = fitted[1]
    other = DPFairClassifier("global", epsilon=3.0, max_steps=5).fit(data.data, data.target)
    with pytest.raises(ValueError, match="no private runs of method 'global'"):
        model_page(other, results=compared)
    with pytest.raises(ValueError, match="results needs a private classifier"):
        model_page(
            clone(other).set_params(epsilon=None).fit(*[data.data, data.target]), results=compared
        )


def test_thresholds_are_shown_with_the_report_of_the_whole(fitted):
    _, data, groups = fitted
    clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=5, accountant="rdp")
    model = DPThresholdClassifier(
        make_pipeline(public_preprocessor(dict.fromkeys(data.data, (-9, 9))), clf), by_group=True
    )
    model.fit(data.data, data.target, sensitive_features=groups)
    given = data.data, data.target
    page = model_page(model, *given, sensitive_features=groups)
    right = model.predict(data.data, sensitive_features=groups) == data.target
    assert f'<td class="n">{100 * right.mean():.1f} <span' in page and "score counts" in page
    card = model_card(model)
    assert model.privacy_.plain_statement in card
    search = GridSearchCV(clf, {"lr": [0.1]}, cv=2).fit(*given)
    with pytest.raises(TypeError, match="got a GridSearchCV that holds a DPFair"):
        model_page(search)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_pipeline_is_described_by_its_last_step(additive, depth):
    pipeline = additive if depth == 1 else make_pipeline(additive)
    assert model_page(pipeline) == model_page(additive[-1], pipeline=pipeline)
    rows = pd.DataFrame({"age = 1": [20.0, 70.0], "gain": [9.0, 0.0], "ward": ["b", HOSTILE]})
    tested = {"y": [0, 1], "sensitive_features": ["u", "v"]}
    expected = model_page(additive[-1], additive[0].transform(rows), pipeline=pipeline, **tested)
    assert model_page(pipeline, rows, **tested) == expected
    card = model_card(pipeline, rows, **tested)
    assert "No step learns from private records." in card


def test_the_card_lists_what_a_pipeline_learns(fitted):
    clf = fitted[0]
    card = model_card(make_pipeline(StandardScaler().fit(fitted[1].data), clf))
    assert "StandardScaler learns" in card.split("### Preparation of the features")[1]
    assert "Preparation" not in model_card(clf)


def test_the_card_flags_or_pays(fitted):
    clf, data, groups = fitted
    card = model_card(clf, data.data, data.target, sensitive_features=groups)
    assert "NOT private" in card
    released = release_group_table(
        data.target,
        clf.predict(data.data),
        sensitive_features=groups,
        levels=[HOSTILE, "b"],
        epsilon=1.0,
    )
    text = model_card(clf, released_table=released, intended_use="Ours.")
    assert "**Released.**" in text and "NOT private" not in text and "Ours." in text
    assert "no group table" in model_card(clf).lower()


@pytest.mark.parametrize("kind", [bool, float, object])
def test_labels_of_a_page_may_be_flags(fitted, kind):
    clf, data, groups = fitted
    pages = [
        model_page(clf, data.data, y, sensitive_features=groups)
        for y in (data.target, pd.Series(np.asarray(data.target, dtype=bool).astype(kind)))
    ]
    assert pages[0] == pages[1]
    with pytest.raises(ValueError, match="one holds texts and the other numbers"):
        model_page(clf, data.data, np.asarray(data.target).astype(str))


def test_a_group_called_all_is_not_all_records(fitted):
    _, data, groups = fitted
    named = np.where(groups == "b", "all", "overall")
    clf = DPFairClassifier(
        "dpsgd", epsilon=3.0, group_col=Groups(levels=["overall", "all"]), max_steps=1
    )
    clf.fit(data.data, data.target, sensitive_features=named)
    page = model_page(clf, data.data, data.target, sensitive_features=named)
    rows = re.findall(r'<th scope="row">(.*?)</th><td class="n">([0-9,]+)</td>', page)
    n = {unescape(name): int(count.replace(",", "")) for name, count in rows}
    sizes = {"'all'": (named == "all").sum(), "overall": (named == "overall").sum()}
    assert n.items() >= (sizes | {"all": 3000}).items()


def test_inputs_that_cannot_be_used_are_named(fitted):
    clf, data, groups = fitted
    with pytest.raises(ValueError, match="y has another index than X"):
        model_page(clf, data.data[::-1], pd.Series(np.asarray(data.target)))
    with pytest.raises(ValueError, match="y must be given with X"):
        model_page(clf, data.data)
    with pytest.raises(ValueError, match="release_group_table"):
        model_card(clf, released_table=data.data)
    with pytest.raises(TypeError, match="title"):
        model_page(clf, title=3)
    with pytest.raises(ValueError, match="sensitive_features"):
        model_page(clf, data.data, data.target, sensitive_features=groups[:5])


def test_names_from_right_to_left_turn_nothing_around_them():
    """Names are isolated where a page or a card takes them; what turns text around is shown."""
    X, y = np.random.default_rng(0).normal(size=(600, 2)), np.tile([0, 1], 300)
    hebrew, evil = "\u05d0\u05d1", "\u202eM\x1b[2J"
    groups = np.repeat([hebrew, evil, "F"], 200)
    clf = DPFairClassifier("dpsgd", epsilon=None, noise_multiplier=1.0, max_steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(X, y, sensitive_features=groups)
    page = model_page(clf, X, y, sensitive_features=groups, title=f"{hebrew}: {evil}")
    card = model_card(clf, X, y, sensitive_features=groups)
    for text in (page, card):
        assert f"\u2068{hebrew}\u2069" in text and text.count(hebrew) == text.count("\u2068")
        assert r"\u202eM\u001b[2J" in text
        assert not set(text) & set("\u202e\x1b")
    assert f'<th scope="row">\u2068{hebrew}\u2069</th>' in page and "<title>\u2068" in page


def test_a_rare_class_is_named_and_its_recall_comes_first(fitted):
    """11 % of the test records are of class 1, in all groups."""
    clf, data, groups = fitted
    negative, positive = (np.flatnonzero(data.target == label) for label in (0, 1))
    kept = np.sort(np.r_[negative, positive[: len(negative) // 8]])
    X, y, groups = data.data.iloc[kept], data.target[kept], groups[kept]
    page = model_page(clf, X, y, sensitive_features=groups)
    assert f"The rarest class, target = 1, has {100 * y.mean():.1f} % of the test records." in page
    heads = re.findall(r'<th scope="col" class="n">([^<]*)</th>', page.split('id="groups"')[1])
    assert heads[1:4] == ["Balanced accuracy", "Recall of the rarest class", "Accuracy"]
    recalls = {g: clf.predict(X)[(y == 1) & (groups == g)] for g in (HOSTILE, "b")}
    worst = min(recalls, key=lambda g: recalls[g].mean())
    said = f"for {100 * recalls[worst].mean():.1f} % of those in group {escape(worst)}"
    assert said in page.split("<main")[0]
    recall = recalls["b"]
    low, high = binomtest(int(recall.sum()), len(recall)).proportion_ci(method="wilson")
    cell = f'{100 * recall.mean():.1f} <span class="i">{100 * low:.1f} to {100 * high:.1f}'
    assert f'<td class="n">{cell}' in page
    assert '<th scope="row">recall of the rarest class</th>' in page
    card = model_card(clf, X, y, sensitive_features=groups)
    assert "| Recall of the rarest class |" in card and "| Balanced accuracy |" in card
    whole = model_page(clf, data.data, data.target, sensitive_features=fitted[2])
    assert "The rarest class" not in whole and "Recall of the rarest" not in whole


def test_measures_are_chosen_by_name(fitted):
    clf, data, groups = fitted
    given = {"sensitive_features": groups, "measures": ["log_loss", "calibration_error"]}
    page = model_page(clf, data.data, data.target, **given)
    loss = log_loss(data.target, clf.predict_proba(data.data))
    assert f'<td class="n">{loss:.3f}</td>' in page and "Log loss, nats" in page
    assert ">Accuracy<" not in page
    card = model_card(clf, data.data, data.target, **given)
    assert f"| {loss:.3f} |" in card and "Calibration error" in card
    with pytest.raises(ValueError, match=r"measures=\['accuracy'\] need test records"):
        model_page(clf, measures=["accuracy"])
    with pytest.raises(ValueError, match="measures must be one of"):
        model_page(clf, data.data, data.target, measures=["privacy_cost"])


@pytest.fixture(scope="module")
def spent(tmp_path_factory):
    """A ledger that recorded a model, whose file is there, and a reference without privacy."""
    folder, data = tmp_path_factory.mktemp("spent"), make_two_groups(3000, random_state=0)
    ledger = PrivacyLedger(folder / "ledger.jsonl", delta=1e-6)
    clf = DPFairClassifier("dpsgd", epsilon=2.0, module="logistic", max_steps=5)
    ledger.fit(clf, data.data, data.target)
    alone = ledger.report()
    one = model_page(clf, ledger=ledger)
    ledger.fit(DPFairClassifier(epsilon=None, max_steps=2), data.data, data.target)
    clf.save_release(folder / "model.safetensors")
    return clf, ledger, folder / "model.safetensors", data, alone, one


def section(page, name):
    end = "</dd>" if name == "before" else "</section>|</details>"
    return re.search(rf'id="{name}".*?(?:{end})', page, re.S)[0]


def test_a_ledger_tells_of_all_fits_and_whether_the_model_is_among_them(spent):
    clf, ledger, _, data, alone, page = spent
    told, total = section(page, "before"), rounded_up(alone.epsilon)
    assert "The ledger of these records holds 1 fit, that of this model among them." in told
    assert f"The one private fit in it costs at most ε {total}, at δ 1e-06.</span>" in told
    assert alone.epsilon > clf.privacy_.epsilon and "two ε may differ" in told  # at a smaller delta
    assert "comes in addition" not in told and f"Not counted: {UNKNOWN}." in told
    page, card = model_page(clf, ledger=ledger), model_card(clf, ledger=ledger)
    told = section(page, "before")
    assert "holds 2 fits, that of this model among them" in told
    assert "(1 fit): no ε covers them, so do not share these models" in told
    assert "does not weaken the guarantee" in told
    for note in re.findall(r'<span class="spent">(.*?)</span>', told):
        assert note in card
    other = DPFairClassifier("dpsgd", epsilon=1.0, module="logistic", max_steps=2)
    other.fit(data.data, data.target)
    told = section(model_page(other, ledger=ledger), "before")
    assert "and that of this model is NOT among them" in told
    assert "The given ledger, which may be of other records, holds" in told
    assert f"this model spent ε = {rounded_up(other.privacy_.epsilon)} at δ = 1e-05." in told
    del other._ledger_fits  # as in files of before
    told = section(model_page(other, ledger=ledger), "before")
    assert (
        "whether that of this model is among them is not known" in told
        and "comes in addition" in told
    )
    assert "no ledger was given" in section(model_page(other), "before")
    with pytest.raises(TypeError, match="ledger must be a PrivacyLedger"):
        model_page(other, ledger="ledger.jsonl")


def test_a_model_that_was_trained_twice_and_recorded_once_is_not_all_in_the_ledger(spent, tmp_path):
    _, _, _, data, _, _ = spent
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=9.0, delta=1e-6, data="b")
    clf = DPFairClassifier("dpsgd", epsilon=1.0, module="logistic", max_steps=2, warm_start=True)
    ledger.fit(clf, data.data, data.target)
    assert " of 9, at δ 1e-06." in model_page(clf, ledger=ledger)
    elsewhere = PrivacyLedger(tmp_path / "ledger.jsonl", data="a")
    told = section(model_page(clf, ledger=elsewhere), "before")
    assert "holds 0 fits, and that of this model is NOT" in told and "under other names" in told
    with pytest.warns(match="not counted"):
        clf.fit(data.data, data.target)
    page = model_page(clf, ledger=ledger)
    assert "and NOT all of those of this model are among them" in page


def test_a_search_and_thresholds_are_found_in_the_ledger(spent, tmp_path):
    data = spent[3]
    clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=5, accountant="rdp", classes=[0, 1])
    search = DPRandomizedSearch(clf, {"lr": [0.1]}, mean_trials=2.0, trials="geometric")
    for i, model in enumerate([search, DPThresholdClassifier(clf)]):
        ledger = PrivacyLedger(tmp_path / f"{i}.jsonl", delta=1e-6)
        with ledger:
            model.fit(data.data, data.target)
        page = model_page(model, ledger=ledger)
        assert "holds 1 fit, that of this model among them" in page
        assert f"Not counted: {UNKNOWN}" in page


def test_reasons_are_told_without_the_names_of_steps(spent, monkeypatch):
    clf, ledger, _, _, alone, _ = spent
    reasons = SCORES, f"{HOSTILE}\nand Bob", "Alice's own"
    whole = replace(alone, epsilon_total=np.inf, reasons=reasons, notes=("Alice",))
    monkeypatch.setattr(PrivacyLedger, "report", lambda *_: whole)
    page = model_page(clf, ledger=ledger)
    told = section(page, "before")
    assert told.count("Not counted: ") == 2 and "Alice" not in page and "Bob" not in page
    assert "taken on trust" in told


def test_a_page_names_the_file_and_the_day(spent):
    clf, _, path, _, _, _ = spent
    content, today = path.read_bytes(), datetime.now(UTC).date()
    page = model_page(path)
    assert f"<dt>SHA-256 of the file</dt><dd>{sha256(content).hexdigest()}</dd>" in page
    assert f"<dt>size of the file</dt><dd>{len(content):,} bytes</dd>" in page
    day = date.fromisoformat(re.search(r"<dt>day of training</dt><dd>(\S+) \(UTC\)", page)[1])
    assert day in (today, today - timedelta(1))
    assert f"- SHA-256 of the file: {sha256(content).hexdigest()}" in model_card(path)
    assert "of the file" not in model_page(clf) and "day of training" in model_page(clf)


def test_privacy_is_no_verdict_on_a_release(spent):
    clf, _, _, data, _, _ = spent
    y = np.where(clf.predict(data.data) == 1, 0, 1)  # nothing is right
    for page, said in (
        (model_page(clf), "another question, of which this page says nothing."),
        (model_page(clf, data.data, y), "another question: by accuracy, it is of no use."),
    ):
        assert "Then privacy does not stand against the release" in page and said in page
        assert "may be released" not in page


def test_the_last_section_is_blank(spent):
    page = model_page(spent[0])
    blank = section(page, "sign-off")
    assert page.index('<h2 id="sign-off">') == page.rindex("<h2 ")
    assert blank.count("<dt>") == 8 == blank.count("</dt><dd></dd>")
