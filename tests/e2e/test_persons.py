"""Persons with several records through fits, pipelines, searches, tables, sweeps and ledgers."""

import json
import pickle
from contextlib import suppress
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures

from skdpfair import DPFairClassifier, DPFairRegressor, Persons, get_method, load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.engine import private_step
from skdpfair.exceptions import LowSignalWarning
from skdpfair.inputs.persons import codes
from skdpfair.methods import METHODS
from skdpfair.metrics import release_group_table
from skdpfair.model_selection import (
    DPRandomizedSearch,
    DPThresholdClassifier,
    GroupScorer,
    _trials,
    comparison_scorer,
    forecast,
    sweep,
)
from skdpfair.model_selection._cells import splits
from skdpfair.model_selection._score_counts import noisy_histograms
from skdpfair.preprocessing import BoundedScaler, DPQuantileScaler, lint_pipeline
from skdpfair.privacy.privacy_report import ASSUMPTIONS
from tests.entrances import ENTRANCES, SWEEP

ABC, COLUMN = list("abc"), "persons__column"
RECORDS = {COLUMN: None, "persons__max_records": None}
ALPHA = 1e-6  # the chance that a correct draw fails a statistical test
pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.LowSignalWarning",
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
)


@pytest.fixture(scope="module")
def visits():
    """600 persons with 1 to 6 records, in any order."""
    rng = np.random.default_rng(0)
    person = rng.permutation(np.repeat(np.arange(600), rng.integers(1, 7, 600)))
    X = rng.normal(size=(len(person), 3)).astype(np.float32)
    y = (X[:, 0] + 0.5 * rng.normal(size=len(person)) > 0).astype(int)
    frame = pd.DataFrame(X, columns=ABC).assign(
        sex=np.where(person % 3, "f", "m"), person=1000 + person
    )
    return frame, y


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp")


def quick(method="dpsgd", **params):
    given = {"epsilon": 3.0, "max_steps": 8, "module": "logistic", "accountant": "rdp"}
    given |= {"group_col": "sex", COLUMN: "person", "persons__max_records": 3}
    return DPFairClassifier(method, random_state=0).set_params(**given | params)


def by_array(**params):
    """Return a classifier whose fit takes the persons as an array."""
    return quick(**{COLUMN: None, "group_col": None} | params)


def behind_step(model):
    return make_pipeline(FunctionTransformer(), model)


def private_search(estimator, space=None, **params):
    given = {"mean_trials": 2.0, "trials": "geometric", "random_state": 0}
    return DPRandomizedSearch(estimator, space or {"lr": [0.1, 1.0]}, **(given | params))


def test_the_report_of_a_fit_counts_samples_and_protects_persons(visits):
    """Each entry that speaks of the unit is that of persons, weights included."""
    X, y = visits
    settings = {"batch_size": 60, "max_sample_weight": 1.0}
    report, plain = (
        quick(**settings, **params).fit(columns, y, sample_weight=np.ones(len(y))).privacy_
        for columns, params in (
            (X, {"delta": "auto"}),
            (X.drop(columns="person"), RECORDS | {"delta": 1e-4}),
        )
    )
    found = report.n_samples, report.sample_rate, report.delta, report.max_records
    assert found == (600, 0.1, 1e-4, 3) and plain.n_samples == len(y)
    assert (report.protects, plain.protects) == ("person", "record")
    assert (report.adjacency, plain.adjacency) == ("zero_out_person", "zero_out")
    assert json.loads(json.dumps(report.facts()))["adjacency"] == report.adjacency
    of_persons, of_records = ({*r.assumptions, *r.not_accounted} for r in (report, plain))
    # several records of one are no risk any more
    assert len(of_records - of_persons) == len(of_persons - of_records) + 1 == 5
    assert all("person" in text for text in of_persons - of_records)
    assert "records of its person" in report.statement and "its own record" in plain.statement
    for text in (report.details(), report._repr_html_()):
        assert "600 persons" in text and "same records" not in text
    assert "persons" not in repr(plain)


@pytest.mark.parametrize("unit", ["person", "record"])
def test_low_signal_warnings_count_the_protected_unit(unit, visits):
    X, y = visits
    settings = {"epsilon": 0.05, "batch_size": 50, "delta": 1e-5}
    columns = X if unit == "person" else X.drop(columns="person")
    model = quick("dpsgd_f", **settings, **({} if unit == "person" else RECORDS))
    n = 600 if unit == "person" else len(y)
    match = rf"n = {n} {unit}s .*batches of (49|50) {unit}s"
    with pytest.warns(LowSignalWarning, match=match):
        model.fit(columns, y)


def test_batches_are_poisson_samples_of_persons(visits, monkeypatch):
    X, y = visits
    seen = []

    def recorded(model, batch, *rest, **kwargs):
        seen.append(batch)
        return private_step(model, batch, *rest, **kwargs)

    monkeypatch.setattr("skdpfair.training.loop.private_step", recorded)
    numbered = X.assign(a=np.arange(len(X)))
    method = get_method("dpsgd", max_grad_norm=1.0)
    quick(method, batch_size=60, max_steps=200, lr=0.1).fit(numbered, y)
    person, drawn = pd.factorize(X["person"])[0], {}
    for batch in seen:
        assert len(batch.examples) < len(batch)
        records = batch.x[:, 0].long().numpy()
        of, size = person[records], batch.examples.sizes.numpy()
        assert (np.repeat(np.arange(len(size)), size) == pd.factorize(of)[0]).all()
        for u in np.unique(of):  # the same records of a person in every batch
            assert drawn.setdefault(u, set(records[of == u])) == set(records[of == u])
    assert {u: len(r) for u, r in drawn.items()} == {
        u: min(n, 3) for u, n in enumerate(np.bincount(person)) if u in drawn
    }
    n_drawn = sum(len(batch.examples) for batch in seen)
    assert stats.binomtest(n_drawn, 600 * len(seen), 0.1).pvalue > ALPHA


def test_sparse_rows_of_persons_can_be_processed_in_parts(visits):
    X, y = visits
    rows = sparse.csr_array(X[ABC].to_numpy())
    settings = {"epsilon": None, "noise_multiplier": 0.0, "lr": 0.5, "batch_size": 600}
    settings["method"] = get_method("dpsgd", max_grad_norm=0.5)
    for size in (10_000, 100):
        model = by_array(**settings, max_physical_batch_size=size)
        model.fit(rows, y, persons=X["person"].to_numpy())
        assert np.isfinite(model.decision_function(rows)).all()


def test_the_column_of_persons_is_no_feature_and_may_be_absent(visits):
    X, y = visits
    model = quick().fit(X, y)
    assert model.net_.module.in_shape == (3,)
    whole = model.predict_proba(X)
    for columns in (["person"], ["sex"], ["person", "sex"]):
        np.testing.assert_array_equal(model.predict_proba(X.drop(columns=columns)), whole)
    renamed = X.assign(person=[f"p{i}" for i in X["person"]])
    assert quick().fit(renamed, y).privacy_.n_samples == 600
    array = quick(persons__column=None).fit(X.drop(columns="person"), y, persons=X["person"])
    assert array.privacy_.n_samples == 600
    memory = X[ABC].to_numpy(), y
    assert by_array().fit(*memory, persons=X["person"].to_numpy()).privacy_.n_samples == 600


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_trains_on_persons_or_refuses_them(name, visits):
    method = METHODS[name]
    model = quick(name, epsilon=3.0 if method.private else None, batch_size=200)
    if not method.takes_persons:
        with pytest.raises(ValueError, match="persons with several records"):
            model.fit(*visits)
        return
    model.fit(*visits)
    assert model.privacy_.max_records == 3
    assert model.privacy_.epsilon <= 3.0 or not method.private


def test_training_on_persons_learns(visits):
    model = quick(epsilon=None, noise_multiplier=0.0, max_steps=100, lr=1.0)
    assert model.fit(*visits).score(*visits) > 0.8


@pytest.mark.parametrize("of_persons", [True, False])
def test_a_warm_start_states_the_largest_number_of_records(visits, of_persons):
    model = quick(warm_start=True).set_params(**{} if of_persons else {COLUMN: None})
    for most in (5, 2):
        model.set_params(persons__max_records=most).fit(*visits)
    report = model.privacy_
    stated = report.max_records, report.records_per_person
    assert stated == ((5, None) if of_persons else (None, 5)) and "at most 5" in report.statement


def test_persons_pass_through_pipelines_searches_and_thresholds(visits, tmp_path):
    X, y = visits
    features, persons = X[ABC], X["person"].to_numpy()
    plain, routed = by_array(), {"dpfairclassifier__persons": persons}
    pipe = behind_step(plain)
    fitted = pipe.fit(features, y, **routed)[-1]
    assert fitted.privacy_.n_samples == 600
    folds = {"groups": persons, "cv": GroupKFold(3), "params": routed}
    models = cross_validate(pipe, features, y, **folds, return_estimator=True)["estimator"]
    assert {m[-1].privacy_.n_samples for m in models} == {400}
    search = GridSearchCV(plain, {"lr": [0.1, 1.0]}, cv=GroupKFold(2))
    search.fit(features, y, persons=persons, groups=persons)
    assert search.best_estimator_.privacy_.n_samples == 600
    model = DPThresholdClassifier(plain, objective="accuracy").fit(features, y, persons=persons)
    assert model.privacy_.adjacency == "zero_out_person" and model.privacy_.epsilon <= 3.0
    fitted.save_release(tmp_path / "model.safetensors")
    again = load_release(tmp_path / "model.safetensors")
    assert again.privacy_.statement == fitted.privacy_.statement
    np.testing.assert_array_equal(again.predict(features), fitted.predict(features))


def test_one_person_moves_the_counts_of_scores_by_one_record(visits, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "skdpfair.model_selection._score_counts.noisy_histograms",
        lambda histograms, *rest: seen.append(histograms) or noisy_histograms(histograms, *rest),
    )
    DPThresholdClassifier(quick()).fit(*visits)
    assert float(seen[0].sum()) == pytest.approx(600)


def test_a_private_search_protects_persons(visits, ledger):
    X, y = visits
    with ledger:
        search = private_search(quick()).fit(X, y)
    report, planned = search.privacy_, search.forecast(600)
    assert (report.adjacency, report.max_records) == ("zero_out_person", 3)
    assert (report.delta, report.n_samples, planned.fits[0].n_samples) == (1e-4, 600, 480)
    assert report.epsilon == pytest.approx(planned.epsilon_total)
    assert ledger.epsilon() == pytest.approx(report.epsilon)
    declared = private_search(quick(classes=[0, 1], group_col__levels=["f", "m"])).fit(X, y)
    n_undeclared = [
        sum("declare" in text for text in r.assumptions) for r in (report, declared.privacy_)
    ]
    assert n_undeclared == [2, 0]
    pipe = behind_step(by_array())
    of_pipe = private_search(pipe, {"dpfairclassifier__lr": [1.0]})
    assert of_pipe.fit(X[ABC], y, persons=X["person"]).privacy_.adjacency == "zero_out_person"
    with ledger, pytest.raises(ValueError, match=r"each record.*each person"):
        private_search(quick(**RECORDS)).fit(X, y)


def test_a_private_search_holds_out_whole_persons_each_of_whom_counts_once(visits, monkeypatch):
    X, y = visits
    seen, scorer = [], _trials.scorer
    monkeypatch.setattr(_trials, "trainer", lambda _, data, *rest: seen.append(data[0]["person"]))
    monkeypatch.setattr(_trials, "scorer", lambda *given: seen.append(given) or scorer(*given))
    monkeypatch.setattr(_trials, "run", lambda *_: ((None, None), None))
    private_search(quick()).fit(X, y)
    trained, (rows, labels, noise, rng, share) = seen
    scored = rows["person"]
    assert set(trained) | set(scored) == set(X["person"]) and noise > 0
    assert not set(trained) & set(scored) and scored.nunique() == 120
    right = FunctionTransformer()  # a model that predicts the labels which stand for its records
    right.classes_ = np.array([0, 1])
    monkeypatch.setattr(_trials, "private_logits", lambda model, X: np.eye(2)[np.asarray(X)])
    wrong = np.where(scored == scored.iloc[0], 1 - labels, labels)
    counted = [scorer(given, labels, 0.0, rng, share)(right) for given in (labels, wrong)]
    assert counted == pytest.approx([120, 119])


@pytest.mark.parametrize(
    ("model", "columns", "match"),
    [
        (private_search(by_array()), ABC, "needs the person of each record"),
        (private_search(quick(persons__max_records=None)), None, "max_records=None"),
        (private_search(quick(persons__surplus="raise")), None, "surplus"),
        (private_search(quick(), {COLUMN: ["a"]}), None, "must not change persons"),
        (
            private_search(behind_step(quick()), {"dpfairclassifier__lr": [1]}),
            None,
            "Leave out col",
        ),
        (DPThresholdClassifier(behind_step(quick())), None, "Leave out col"),
    ],
)
def test_searches_and_thresholds_refuse_persons_that_they_cannot_count(
    model, columns, match, visits
):
    X, y = visits
    with pytest.raises(ValueError, match=match):
        model.fit(X[columns or list(X)], y)


def test_a_released_table_counts_one_record_of_each_person(visits):
    X, y = visits
    given = {"sensitive_features": X["sex"], "epsilon": 1e3, "levels": ["f", "m"]}

    def counted(y_true, y_pred, persons):
        table = release_group_table(y_true, y_pred, persons=persons, **given)
        return table["correct"].sum(), table["incorrect"].sum(), table.attrs["privacy"]

    *counts, facts = counted(y, y, X["person"].to_numpy())
    assert sum(counts) == 600 and facts["adjacency"] == "zero_out_person"
    assert "One record of each person" in facts["statement"]
    assert not any("records" in text for text in facts["not_accounted"])
    assert sum(counted(y, y, np.zeros(len(y)))[:2]) == 1
    right = np.arange(len(y)) % 2  # each record is drawn as often as the other of its person
    pairs = np.arange(len(y)) // 2
    total = sum(counted(right, np.ones_like(right), pairs)[0] for _ in range(20))
    assert stats.binomtest(int(total), 20 * len(set(pairs)), 0.5).pvalue > ALPHA


@pytest.mark.skipif(
    not hasattr(GridSearchCV, "set_callbacks"), reason="scikit-learn < 1.9 tells of no folds"
)
@pytest.mark.parametrize("cv", [GroupKFold(3), 3], ids=["by person", "by record"])
def test_a_ledger_counts_every_fit_of_a_search_for_every_person(cv, visits, ledger):
    X, y = visits
    search = GridSearchCV(quick(group_col=None), {"lr": [0.5]}, cv=cv, refit=False)
    groups = {} if cv == 3 else {"groups": X["person"]}
    ledger.fit(search, X[[*ABC, "person"]], y, **groups)
    assert (ledger.report().n_fits, ledger.report().protects) == (3, "person")


def test_a_ledger_adds_up_one_kind_of_unit(visits, ledger):
    X, y = visits
    with ledger:
        model = quick().fit(X, y)
        with pytest.raises(ValueError, match=r"each record.*each person"):
            quick(**RECORDS).fit(X.drop(columns="person"), y)
    assert ledger.epsilon() == pytest.approx(model.privacy_.epsilon)


def fit_to_patients_and_stays(place, visits, ledger):
    """Fit on patients and then on stays, in one account."""
    X, y = visits
    stays = pd.Series(np.arange(len(X)) % 200, name="stay")
    table = X.rename(columns={"person": "patient"}).assign(stay=stays)
    features, of_patients = table[ABC], quick(persons__column="patient")
    search = GridSearchCV(of_patients, {COLUMN: ["patient", "stay"]}, error_score="raise")
    if place == "warm start":
        model = of_patients.set_params(warm_start=True).fit(table.drop(columns="stay"), y)
        model.set_params(persons__column="stay").fit(table.drop(columns="patient"), y)
    elif place == "grid search":
        ledger.fit(search, table, y)
    elif place == "forecast":
        forecast(search.set_params(cv=GroupKFold(3)), 600)
    else:
        with ledger:
            by_array().fit(features, y, persons=table["patient"])
            assert {fit["persons"] for fit in ledger._fits()} == {"patient"}
            if place == "column":
                quick(persons__column="stay").fit(table.drop(columns="patient"), y)
            else:
                persons = stays.to_frame() if place == "search" else stays
                groups = {"sensitive_features": table["sex"]}
                ENTRANCES[place](by_array(), features, y, persons=persons, **groups)


@pytest.mark.parametrize(
    "place",
    ["warm start", "fit", "column", "search", "threshold", "sweep", "grid search", "forecast"],
)
def test_fits_to_two_kinds_of_persons_have_no_sum(place, visits, ledger):
    """A patient may be several stays, whose fits protect each stay."""
    with pytest.raises(ValueError, match=r"cannot be added|column of the persons changed"):
        fit_to_patients_and_stays(place, visits, ledger)
    if place not in ("warm start", "forecast", "grid search"):
        assert ledger.report().n_fits == 1


def test_fits_to_persons_without_names_are_assumed_to_be_on_the_same(visits, ledger, tmp_path):
    X, y = visits
    assumption, persons = ASSUMPTIONS["persons"], X["person"]
    by_position = quick(persons__column=0, group_col=None)
    with ledger:
        for _ in range(2):
            by_position.fit(np.c_[persons, X[ABC]], y)
    assert ledger.report().notes == (assumption,)
    unnamed_first = by_array(warm_start=True).fit(X[ABC], y, persons=persons.to_numpy())
    assert assumption in unnamed_first.fit(X[ABC], y, persons=persons).privacy_.assumptions
    other, model = PrivacyLedger(tmp_path / "other", delta=1e-4), by_array(warm_start=True)
    with other:
        model.fit(X[ABC], y, persons=persons)
        assert not {assumption} & {*other.report().notes, *model.privacy_.assumptions}
        model.fit(X[ABC], y, persons=persons.to_numpy())
    assert assumption in other.report().notes and assumption in model.privacy_.assumptions
    again = pickle.loads(pickle.dumps(model))
    with pytest.raises(ValueError, match="column of the persons changed"):
        again.fit(X[ABC], y, persons=persons.rename("stay"))


DELTA = {"delta": 1e-4, "accountant": "rdp"}


def test_forecast_counts_persons_and_demands_folds_by_person(visits):
    model = quick(delta=1e-4)
    spent = model.fit(*visits).privacy_.epsilon
    assert forecast(model, 600, n_groups=2, **DELTA).epsilon == pytest.approx(spent)
    plan = forecast(model, 600, n_groups=2, cv=GroupKFold(3), **DELTA)
    assert (plan.n_fits, plan.protects) == (3, "person")
    for cv in (3, KFold(3)):
        with pytest.raises(ValueError, match="several folds"):
            forecast(model, 600, cv=cv)
    with pytest.raises(ValueError, match="cannot be added"):
        forecast(make_pipeline(DPQuantileScaler(), model), 600)


def test_forecast_protects_what_persons_declares(visits):
    bounded = quick(persons__column=None, delta=1e-4)
    unbounded = quick(persons__max_records=None)
    by_candidate = GridSearchCV(quick(), {COLUMN: ["person", None]}, cv=GroupKFold(3))
    assert forecast(bounded, 600, persons=True, **DELTA).protects == "person"
    assert forecast(bounded, 600, persons=False, **DELTA).protects == "record"
    assert forecast(quick(**RECORDS), 600).protects == "record"
    assert forecast(private_search(bounded), 600).protects == "person"  # whose fit demands them
    for model, persons, match in (
        (bounded, None, "persons=None, .* Pass persons=True"),
        (quick(**RECORDS), True, "max_records=None"),
        (unbounded, None, "max_records=None"),
        (quick(), False, "cannot be added"),
        (by_candidate, False, "cannot be added"),
        (private_search(bounded), False, "persons=False, .* DPRandomizedSearch"),
    ):
        with pytest.raises(ValueError, match=match):
            forecast(model, 600, persons=persons, **DELTA)
    with pytest.raises(TypeError, match="persons must be"):
        forecast(bounded, 600, persons=visits[0]["person"])
    with pytest.raises(ValueError, match="max_records=None"):
        private_search(unbounded).forecast(600)


def test_sweep_trains_and_tests_on_different_persons(visits):
    X, y = visits
    settings = {"persons__max_records": 3, "module": "logistic", "max_steps": 5, "lr": 0.5}
    given = {"X": X[ABC], "y": y, "sensitive_features": X["sex"], **SWEEP}
    persons = X["person"].to_numpy()
    results = sweep(**given, persons=persons, **settings)
    overall = results.frame.query("method == 'dpsgd' and group == 'overall'")
    assert overall["epsilon_spent"].le(3).all()
    spec = results.spec
    assert (spec.protects, spec.n_examples) == ("person", 600)
    assert spec.n_persons_of_fit == pytest.approx([480, 480], abs=10)  # 1,700 records
    page = results.to_html()
    assert "<dt>persons</dt><dd>600</dd>" in page
    assert "<dt>δ of one fit</dt><dd>0.0001</dd>" in page  # that of the records is 1e-05
    assert "all records of one person" in page and "several records of" not in page
    for change, match in (
        ({"persons": persons, "cv": KFold(3)}, "records of one person among"),
        ({COLUMN: "person"}, COLUMN),
    ):
        with pytest.raises(ValueError, match=match):
            sweep(**given, **settings, **change)
    person = np.repeat(np.arange(40), 3)
    for cv in (None, 4):
        for train, test in splits(cv, 0, np.arange(120) % 2, np.zeros(120, dtype=int), person):
            assert not np.isin(person[test], person[train]).any()
            assert len(train) + len(test) == 120


@pytest.mark.parametrize("place", ["fit", "threshold", "search", "table", "sweep", "audit"])
def test_persons_are_read_by_one_rule_at_every_entrance(place, visits, monkeypatch):
    X, y = visits
    seen, features = [], X[ABC]
    values = np.array([f"p{i}" for i in X["person"]], dtype=object)
    values[::2] += " "

    def recorded(name, values, n_samples):
        seen.append(codes(name, values, n_samples))
        return seen[-1]

    monkeypatch.setattr("skdpfair.inputs.persons.codes", recorded)
    model = by_array(max_steps=1)
    if place == "fit":
        by_array(persons__column="id").fit(features.assign(id=values), y)
    else:
        groups = {"sensitive_features": X["sex"]}
        ENTRANCES[place](model, features, y, persons=values, **groups)
    assert seen and seen[0].max() + 1 == 600


WITHOUT_INDEX = make_pipeline(FunctionTransformer(np.asarray), by_array())
FITTED = dict.fromkeys(["fit", "pipeline", "sweep"], by_array()) | {"audit": quick()}
FITTED |= dict.fromkeys(["threshold", "search"], WITHOUT_INDEX)
SCORED = {"classifier": quick(), "regressor": DPFairRegressor()}
SCORED |= {"threshold": DPThresholdClassifier(quick()), "search": DPRandomizedSearch(quick(), {})}
SCORERS = {
    "scorer": lambda X, y, **groups: GroupScorer()(quick(), X, y, **groups),
    "dg_gap": lambda X, y, **groups: comparison_scorer("dg_gap", X, y, **groups),
}
PLACES = {  # the call, the names of what comes after the labels, whether labels may be shuffled
    **{
        f"fit: {place}": (
            partial(ENTRANCES[place], model),
            ("sensitive_features", "persons"),
            place not in ("sweep", "audit"),
        )
        for place, model in FITTED.items()
    },
    **{f"score: {name}": (model.score, ["sample_weight"], True) for name, model in SCORED.items()},
    **{name: (scorer, ["sensitive_features"], False) for name, scorer in SCORERS.items()},
}


@pytest.mark.parametrize(
    ("place", "at"), [(place, at) for place in PLACES for at in range(1 + len(PLACES[place][1]))]
)
def test_labels_groups_and_persons_of_another_index_are_refused(place, at, visits):
    """But for labels where permutation_test_score of scikit-learn shuffles them."""
    X, y = visits
    call, names, may_be_shuffled = PLACES[place]
    given = [pd.Series(y), X["sex"], X["person"]]

    def run(rows, index_of):
        given[at] = index_of(given[at])
        return call(rows[ABC], given[0], **dict(zip(names, given[1:], strict=False)))

    def shuffled(values):
        return values.sample(frac=1, random_state=0)

    match = r" has another index than X.*\.loc\[X.*index\]"
    if at or not may_be_shuffled:
        with pytest.raises(ValueError, match=match):
            run(X, shuffled)
        return
    with pytest.warns(UserWarning, match=f"^y{match}"), suppress(NotFittedError):
        run(X, shuffled)
    for index in (X.index + len(X), range(len(X))):  # of other rows, or counted anew
        with pytest.raises(ValueError, match=r"^y has another index"):
            run(X.iloc[::-1], lambda _, index=index: pd.Series(y, index=index))


def test_persons_of_a_part_of_the_rows_have_the_index_of_the_part(visits):
    X, y = visits
    part = X.sample(500, random_state=0)
    features, labels, persons = part[ABC], y[part.index], part["person"]
    model = by_array()
    for given in (persons, persons.tolist()):
        report = model.fit(features, labels, persons=given).privacy_
        assert report.n_samples == persons.nunique()
    params = {"persons": persons}
    found = cross_validate(model, features, labels, cv=3, params=params, error_score="raise")
    assert len(found["test_score"]) == 3
    renumbered = persons.reset_index(drop=True)
    with pytest.raises(ValueError, match=r"another index than X.*persons\.to_numpy"):
        model.fit(features, labels, persons=renumbered)
    given = {"sensitive_features": part["sex"], "epsilon": 1.0}
    with pytest.raises(ValueError, match="another index than y_true"):
        truth = pd.Series(labels, index=part.index)
        release_group_table(truth, labels, persons=renumbered, **given)


def behind(*steps, column=None, last=DPFairClassifier):
    persons, budget = Persons(column, max_records=3), {"epsilon": 5.0, "max_steps": 1}
    ranges = {"y_range": (0, 1)} if last is DPFairRegressor else {}
    clf = last("dpsgd", module="logistic", persons=persons, **budget, **ranges)
    return Pipeline([*((f"s{i}", step) for i, step in enumerate(steps)), ("clf", clf)])


PERSON, ROWS = np.arange(300) // 3, np.random.default_rng(0).random((300, 2))
BY_ROW = DPQuantileScaler((0, 1), epsilon=1.0)
LABELS, PERSONS_OF_CLF = np.resize([0, 1], 300), {"clf__persons": PERSON}


def with_column():
    """Scale columns of a table, and pass on that of the persons."""
    parts = [("scaled", BY_ROW, ["a", "b"]), ("passed", "passthrough", ["pid"])]
    columns = ColumnTransformer(parts, verbose_feature_names_out=False)
    return behind(columns.set_output(transform="pandas"), column="pid")


def mixed(model, X=ROWS, y=LABELS, **given):
    return model, (X, y), given or PERSONS_OF_CLF


GRID = GridSearchCV(behind(BY_ROW), {"clf__lr": [0.1]}, cv=GroupKFold(2), error_score="raise")
TABLE = pd.DataFrame(ROWS, columns=["a", "b"]).assign(pid=PERSON)
NESTED = Pipeline([("in", make_pipeline(BY_ROW)), ("out", behind())])
MIXED = {
    "a pipeline": mixed(behind(BY_ROW)),
    "steps between": mixed(behind(BY_ROW, PolynomialFeatures(2), BoundedScaler((0, 1)))),
    "a union": mixed(behind(make_union(BY_ROW, FunctionTransformer()))),
    "a column": mixed(with_column(), TABLE, clf__persons=None),
    "no bound": mixed(behind(BY_ROW).set_params(clf__persons=None)),
    "nested": mixed(NESTED, out__clf__persons=PERSON),
    "a regressor": mixed(behind(BY_ROW, last=DPFairRegressor), y=ROWS[:, 0]),
    "a search": mixed(GRID, groups=PERSON, **PERSONS_OF_CLF),
    "thresholds": mixed(DPThresholdClassifier(behind(BY_ROW)), persons=PERSON),
}
REFUSED = r"DPQuantileScaler .*persons.*BoundedScaler"


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("how", ["inside a ledger", "by a ledger"])
def test_steps_for_records_are_refused_before_persons(name, how, ledger):
    model, records, given = MIXED[name]
    with pytest.raises(ValueError, match=REFUSED):
        if how == "by a ledger":
            ledger.fit(model, *records, **given)
        with ledger:
            model.fit(*records, **given)
    assert ledger.frame().empty  # the scaler has released nothing, either


def test_steps_that_were_fitted_elsewhere_are_refused_by_the_classifier(monkeypatch):
    monkeypatch.setattr("skdpfair.preprocessing._quantile_scaler.refuse_persons_around", id)
    with pytest.raises(ValueError, match=REFUSED):
        behind(BY_ROW).fit(ROWS, LABELS, **PERSONS_OF_CLF)


def test_steps_and_classifier_for_the_same_unit_are_accepted():
    for step, params, unit in (
        (BY_ROW, {}, "record"),
        (BoundedScaler((0, 1)), PERSONS_OF_CLF, "person"),
    ):
        model = behind(step).fit(ROWS, LABELS, **params)
        assert model[-1].privacy_.protects == unit and not lint_pipeline(model).findings
    for model in (behind(BY_ROW), with_column()):
        (finding,) = lint_pipeline(model).findings
        assert finding.name == "DPQuantileScaler" and "persons" in finding.learns
