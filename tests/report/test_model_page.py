"""Page and card of a classifier: their facts, names that break nothing, and what is refused."""

import re
import warnings
from copy import copy
from dataclasses import replace
from hashlib import sha256
from html import escape, unescape

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpfair import DPFairClassifier, Groups, Persons
from skdpfair._utils.cards import typeset
from skdpfair._utils.group_names import MAX_NAME
from skdpfair._utils.validate import visible
from skdpfair.budget import PrivacyLedger
from skdpfair.metrics import release_group_table
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier
from skdpfair.preprocessing import public_preprocessor
from skdpfair.report import export_statement, model_card, model_page

SMALL = {"epsilon": 3.0, "max_steps": 5}


@pytest.fixture(scope="module")
def of_persons(fitted):
    data = fitted[1]
    clf = DPFairClassifier("dpsgd", **SMALL, persons=Persons(max_records=2))
    return clf.fit(data.data, data.target, persons=np.arange(3000) // 2)


@pytest.fixture(scope="module", params=["record", "person"])
def search(request, fitted):
    """A private search on records or persons."""
    data = fitted[1]
    clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=34, batch_size=99, module="logistic")
    clf.set_params(classes=[0, 1], accountant="rdp")
    is_person = request.param == "person"
    clf.set_params(persons__max_records=2 if is_person else None)
    search = DPRandomizedSearch(clf, {"lr": [0.1]}, mean_trials=2.0, trials="geometric")
    persons = {"persons": np.arange(3000) // 2} if is_person else {}
    return search.fit(data.data, data.target, **persons), request.param


def changed(clf, **changes):
    other = copy(clf)
    other.privacy_ = replace(clf.privacy_, **changes)
    return other


def test_sentences_of_model_pages(
    fitted, of_persons, by_hand, hostile, sections, check_golden, tmp_path
):
    """A page, then the texts that other pages do not share with those before, without numbers."""
    clf, data, groups = fitted
    costs = {("dpsgd", 4.0): 0.8 + by_hand.noisy}
    tests = {"X": data.data, "y": data.target, "measures": ["accuracy"]}
    beside, few = (by_hand.scored(costs, n, (hostile, "b")) for n in (400, 5))
    constant = np.where(clf.predict(data.data) == 1, 0, 1)  # nothing is right
    by_group = DPFairClassifier("dp_is_sgd", **SMALL, group_col=Groups(levels=["a", "b"]))
    by_group.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    chosen = changed(clf, method="private selection", releases=())
    clf.save_release(tmp_path / "model.safetensors")
    pages = {
        "plain": model_page(clf),
        "not private": model_page(changed(clf, epsilon=np.inf, is_private=False, releases=())),
        "seeded": model_page(changed(clf, seeded=True)),
        "persons": model_page(of_persons),
        "persons, tested": model_page(of_persons, **tests),
        "several records": model_page(changed(clf, records_per_person=12)),
        "groups, tested": model_page(clf, **tests, sensitive_features=groups),
        "of no use": model_page(clf, **tests | {"y": constant}),
        "in a sweep": model_page(clf, results=beside),
        "in a sweep of small groups": model_page(clf, results=few),
        "epsilons of groups": model_page(by_group),
        "a file": model_page(tmp_path / "model.safetensors"),
        "a pipeline": model_page(clf, pipeline=public_preprocessor({"x": (0, 1)})),
        "a pipeline that learns": model_page(clf, pipeline=make_pipeline(StandardScaler(), clf)),
        "a private selection": model_page(chosen, **tests),
        "a ledger": model_page(clf, ledger=PrivacyLedger(tmp_path / "l.jsonl", delta=1e-6)),
    }
    out, known = [], set()
    for name, page in pages.items():
        for texts in sections(page):
            texts = [re.sub(r"[0-9a-f]{64}|-?\d[\d.,:e-]*", "#", text) for text in texts]
            new = [text for text in texts if text not in known]
            known |= set(texts)
            out += [" | ".join([f"({name})", *new])] * bool(new)
    check_golden("model_page.txt", out)


def test_page_and_card_quote_the_report(fitted, page_facts):
    clf = fitted[0]
    page, card = model_page(clf), model_card(clf)
    rows = page_facts(model_page, clf)["releases"]
    privacy = clf.privacy_
    texts = privacy.plain_statement, privacy.statement, *privacy.summary.values()
    texts = (*texts, *privacy.not_accounted, *privacy.assumptions, *rows[0])
    assert all(text in unescape(card) for text in texts)
    assert all(typeset(text) in unescape(page) for text in texts)
    assert page.index(typeset(privacy.plain_statement)) < page.index("two data sets are neighbours")
    blank = page.split('<h2 id="sign-off">')[1]
    assert "<h2 " not in blank and blank.count("<dt>") == 8 == blank.count("</dt><dd></dd>")


def test_names_are_escaped(fitted, hostile):
    clf, data, groups = fitted
    page = model_page(clf, data.data, data.target, sensitive_features=groups, title=hostile)
    assert hostile not in page and page.count(escape(hostile)) >= 3
    assert not re.search(r"<script|https?://|<img|@import|url\(", page)
    card = model_card(clf, data.data, data.target, sensitive_features=groups)
    assert "|a|" not in card and "<b" not in card


def test_facts_of_persons_count_persons(of_persons, page_facts):
    rows = dict(page_facts(model_page, of_persons)["facts"])
    assert rows["persons trained on"] == "1,500" and rows["records of a person"] == "at most 2"
    assert rows == dict(page_facts(model_card, of_persons)["facts"])
    assert "one record" not in model_page(of_persons) + model_card(of_persons)


def test_columns_of_groups_and_persons_are_no_features(fitted, page_facts):
    data = fitted[1]
    X = data.data.assign(sex=data.sensitive_features, person=np.arange(3000) // 2)
    clf = DPFairClassifier("dpsgd", **SMALL, persons=Persons("person", max_records=2))
    clf.set_params(group_col="sex").fit(X, data.target)
    rows = dict(page_facts(model_page, clf)["facts"])
    assert rows["features"] == str(data.data.shape[1])


def test_facts_of_a_private_search(search, page_facts):
    model, unit = search
    facts = page_facts(model_page, model)
    rows = dict(facts["facts"])
    assert "34 steps" in facts["selection"] and facts["releases"] == []
    assert rows["method"].startswith("dpsgd, ") and rows["classes"] == "“0”, “1”"
    assert rows[f"{unit}s"] == {"record": "3,000", "person": "1,500"}[unit]
    page, card = model_page(model), model_card(model)
    assert page == model_page(model.best_estimator_)
    for text in (page, card):
        assert facts["selection"] in text and "declare classes=" not in text
        assert ("declare the levels" in text) == (unit == "person")


def test_costs_of_a_page_are_those_of_a_sweep(fitted, by_hand, hostile, page_facts):
    clf, data, _ = fitted
    for n, rows in ((400, [(hostile, "10.0"), ("b", "10.0")]), (5, [])):
        found = by_hand.scored({("dpsgd", 4.0): 0.8 + by_hand.noisy}, n, (hostile, "b"))
        costs = page_facts(model_page, clf, results=found)["costs"]
        assert [(group, cost) for group, cost, _ in costs["rows"]] == rows
        assert ('id="cost"' in model_page(clf, results=found)) == bool(rows)
    other = DPFairClassifier("global", **SMALL).fit(data.data, data.target)
    with pytest.raises(ValueError, match=r"^results .*'global'"):
        model_page(other, results=found)
    with pytest.raises(ValueError, match=r"^results .* private"):
        model_page(changed(clf, epsilon=np.inf, is_private=False), results=found)


def test_values_have_the_names_of_their_variables(variables, tmp_path, page_facts):
    clf, X, y, groups = variables
    clf.save_release(tmp_path / "model.safetensors")
    for model in (clf, tmp_path / "model.safetensors"):
        tests = {"sensitive_features": groups["black"]}
        for text in (
            model_page(model, X, y, **tests),
            model_card(model, X, y, **tests),
            export_statement(model, "nist", X, y, **tests),
        ):
            for name in ("black “yes”", "black “no”", "deny “yes”", "deny “no”"):
                assert name in text
            text = text.replace("deny: no, yes; black: no, yes", "")
            assert not re.search(r"(?:[>;|,]|of|predicted|as) *(?:yes|no) *[<;|,.]", text)
    both = clone(clf).set_params(group_col=["sex", "target"])
    both.fit(X.assign(sex=groups["sex"].where(groups["sex"] == "0", "")), y)
    levels = dict(page_facts(model_page, both)["facts"])["groups"].split("; ")
    pairs = {f"sex “{sex}”, deny “{deny}”" for sex in ("0", "(missing)") for deny in ("no", "yes")}
    assert set(levels) == pairs


def answer_of(page):
    """Return the answer to the question whether a page may be published."""
    return unescape(
        re.search(
            "May this page be published, and what is not covered[?]</dt><dd>(.*?)</dd>", page
        )[1]
    )


def test_model_page_lists_values_read(variables):
    clf, X, y, groups = variables
    answer = answer_of(model_page(clf))
    assert answer.startswith("Yes") and clf.privacy_.values_read in answer
    assert "deny: no, yes" in answer and "black: no, yes" in answer
    for text in (model_card(clf), *(export_statement(clf, kind) for kind in ("json", "nist"))):
        assert "black" in text and "yes" in text
    declared = {"classes": ["no", "yes"], "group_col": Groups(levels=["no", "yes"])}
    other = clone(clf).set_params(**declared).fit(X, y, sensitive_features=groups["black"])
    assert other.privacy_.read_from_rows == () and "read from" not in answer_of(model_page(other))


def test_page_that_would_not_be_verified_is_refused(fitted):
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
    page = model_page(make_pipeline(StandardScaler().fit(data.data), clf))
    assert answer_of(page).startswith("Not as it is")  # texts on steps are not verified


ODD = ["self", "frame", "X", "class", "__init__", "", " ", 'a "b", [c]', "{0.__class__}"]
ODD += ["<b onclick=x>|a|</b>", "overall", "all", "target", "epsilon", "a = b; c", "x" * 300]
ODD += ["1e3", "\u202eM"]


@pytest.mark.parametrize("at", range(0, len(ODD), 2))
def test_names_of_columns_break_no_page_card_or_export(at, tmp_path, hostile):
    """As feature, category, group and target."""
    number, category, group, target = (ODD[(at + i) % len(ODD)] for i in range(4))
    rng, n = np.random.default_rng(0), 400
    X = pd.DataFrame({number: rng.uniform(size=n), category: rng.choice(["A", "B"], n)})
    groups, y = X.pop(category).rename(group), pd.Series(X[number] > 0.5, name=target).map(str)
    X[category] = rng.choice(["A", "B"], n)
    clf = DPFairClassifier("dpsgd", epsilon=30.0, module="logistic", max_steps=1, delta=1e-5)
    model = make_pipeline(public_preprocessor({number: (0, 1)}, {category: ["A", "B"]}), clf)
    model.fit(X, y, dpfairclassifier__sensitive_features=groups)
    page = model_page(model, X, y, sensitive_features=groups)
    assert hostile not in page
    assert f"{visible(typeset(target))} “True”"[-90:] in unescape(page) or not target.strip()
    assert hostile not in model_card(model, X, y, sensitive_features=groups)
    path = tmp_path / "model.safetensors"
    if max(len(number), len(category)) > MAX_NAME:
        with pytest.raises(ValueError, match="feature_names_in_"):
            clf.save_release(path)
        return
    clf.save_release(path)
    assert export_statement(path, "nist")


def test_names_from_right_to_left_are_isolated():
    """What turns text around is shown instead."""
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


def test_thresholds_have_the_report_of_the_whole(fitted, page_facts):
    _, data, groups = fitted
    clf = DPFairClassifier("dpsgd", **SMALL, accountant="rdp")
    scale = public_preprocessor(dict.fromkeys(data.data, (-9, 9)))
    model = DPThresholdClassifier(make_pipeline(scale, clf), by_group=True)
    model.fit(data.data, data.target, sensitive_features=groups)
    facts = page_facts(model_page, model, data.data, data.target, sensitive_features=groups)
    predicted = model.predict(data.data, sensitive_features=groups)
    assert facts["verdict"]["measure"] == "balanced accuracy"
    balanced = balanced_accuracy_score(data.target, predicted)
    assert facts["verdict"]["score"] == f"{100 * balanced:.1f}"
    assert "score counts" in [what for what, *_ in facts["releases"]]
    assert page_facts(model_card, model)["privacy"].epsilon == model.privacy_.epsilon
    search = GridSearchCV(clf, {"lr": [0.1]}, cv=2).fit(data.data, data.target)
    with pytest.raises(TypeError, match=r"^classifier .*GridSearchCV .*DPFairClassifier"):
        model_page(search)


@pytest.fixture(scope="module")
def pipeline(hostile):
    rng, wards = np.random.default_rng(0), [hostile, ""]
    rows = pd.DataFrame({"age = 1": rng.uniform(20, 80, 900), "gain": rng.lognormal(5, 2, 900)})
    rows["ward"] = rng.choice(wards, 900)
    features = public_preprocessor({"age = 1": (20, 80), "gain": (0, 1e5)}, {"ward": wards})
    clf = DPFairClassifier("dpsgd", epsilon=8.0, module="logistic", max_steps=5)
    return make_pipeline(features, clf).fit(rows, np.arange(900) % 2)


@pytest.mark.parametrize("depth", [1, 2])
def test_pipeline_is_described_by_its_last_step(pipeline, depth, hostile, page_facts):
    whole = pipeline if depth == 1 else make_pipeline(pipeline)
    assert model_page(whole) == model_page(pipeline[-1], pipeline=whole)
    rows = pd.DataFrame({"age = 1": [20.0, 70.0], "gain": [9.0, 0.0], "ward": ["b", hostile]})
    tested = {"y": [0, 1], "sensitive_features": ["u", "v"]}
    X = pipeline[0].transform(rows)
    expected = model_page(pipeline[-1], X, pipeline=whole, **tested)
    assert model_page(whole, rows, **tested) == expected
    assert page_facts(model_card, whole, rows, **tested)["lint"].findings == []
    learning = make_pipeline(StandardScaler().fit(X), whole)
    assert "StandardScaler learns" in model_card(learning).split("### Preparation")[1]


def test_card_marks_or_releases_its_group_table(fitted, hostile, page_facts):
    clf, data, groups = fitted
    tests, levels = {"sensitive_features": groups}, [hostile, "b"]
    card = model_card(clf, data.data, data.target, **tests)
    rows = page_facts(model_card, clf, data.data, data.target, **tests)["group_table"]
    nist = export_statement(clf, "nist", data.data, data.target, **tests)
    assert "NOT private" in card and len(rows) == 5
    assert all(f"| {' | '.join(row)} |" in text for row in rows for text in (card, nist))
    predicted = clf.predict(data.data)
    released = release_group_table(data.target, predicted, **tests, levels=levels, epsilon=1.0)
    text = model_card(clf, released_table=released, intended_use="Ours.")
    assert released.attrs["privacy"]["statement"] in text and "Ours." in text
    assert "NOT private" not in text and "| group |" not in model_card(clf)
    for arguments in ((data.data, data.target), ()):
        table = released if arguments else data.data
        with pytest.raises(ValueError, match="released_table"):
            model_card(clf, *arguments, released_table=table)
    for write, name in ((model_card, "intended_use"), (model_page, "title")):
        with pytest.raises(TypeError, match=f"^{name} .*3"):
            write(clf, **{name: 3})


def test_facts_of_a_file_state_its_digest(fitted, tmp_path, page_facts):
    clf, path = fitted[0], tmp_path / "model.safetensors"
    clf.save_release(path)
    content, digests = path.read_bytes(), ("SHA-256 of the file", "size of the file")
    rows = dict(page_facts(model_page, path)["facts"])
    found = [rows.pop(name) for name in digests]
    assert found == [sha256(content).hexdigest(), f"{len(content):,} bytes"]
    assert rows == dict(page_facts(model_page, clf)["facts"]) and found[0] in model_card(path)
