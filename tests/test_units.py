"""Persons with several records: what is sampled, clipped, thinned, counted and stated."""

import json
import pickle
import re
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures

from skdpfair import DPFairClassifier, DPFairRegressor, Persons, get_method, load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.mechanism import Mechanism
from skdpfair.engine.step import clip_weights
from skdpfair.exceptions import LowSignalWarning
from skdpfair.inputs.groups import GroupCodes
from skdpfair.inputs.persons import codes, grouped, thinned
from skdpfair.inputs.table import Table
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
from skdpfair.model_selection._score_counts import released
from skdpfair.preprocessing import BoundedScaler, DPQuantileScaler, lint_pipeline
from skdpfair.testing import audit_fit, example_task
from skdpfair.training.batches import PersonRows, records_at

PRIVATE = sorted(name for name, method in METHODS.items() if method.private)
COLUMN = "persons__column"
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
    frame = pd.DataFrame(X, columns=list("abc")).assign(
        sex=np.where(person % 3, "f", "m"), person=1000 + person
    )
    return frame, y


def quick(method="dpsgd", **params):
    given = {"epsilon": 3.0, "max_steps": 8, "module": "logistic", "accountant": "rdp"}
    given |= {"group_col": "sex", COLUMN: "person", "persons__max_records": 3}
    return DPFairClassifier(method, random_state=0).set_params(**given | params)


# --- one step ---------------------------------------------------------------------------------


def step_on(sizes, name="dpsgd", seed=0, **settings):
    generator = torch.Generator().manual_seed(seed)
    n = sum(sizes)
    x = 3.0 * torch.randn((n, 4), generator=generator)
    y = torch.randint(0, 2, (n,), generator=generator)
    group = torch.randint(0, 2, (len(sizes),), generator=generator)
    sizes = torch.tensor(sizes)
    batch = Batch(x, y, group.repeat_interleave(sizes), examples=Examples(sizes))
    return batch, Mechanism(get_method(name, **settings), example_task(n_groups=2), 0.0)


def without(batch, person):
    kept = batch.examples.example_of_row != person
    sizes = batch.examples.sizes[torch.arange(len(batch.examples)) != person]
    return replace(records_at(batch, torch.nonzero(kept)[:, 0]), examples=Examples(sizes))


@pytest.mark.parametrize("name", PRIVATE)
@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=6), seed=st.integers(0, 9))
@settings(max_examples=8, deadline=None)
def test_one_person_moves_each_release_by_at_most_its_sensitivity(name, sizes, seed):
    batch, mechanism = step_on(sizes, name, seed)
    method, noise = mechanism.method, Streams.fresh().noise()
    state = method.start(mechanism.task)
    with select_strategy(torch.nn.Linear(4, 2), batch.x, 2) as model:
        whole = clip_weights(model, batch, mechanism, state, noise, None)
        assert len(whole.weight) == len(sizes)
        gradients = torch.zeros(len(sizes), model.n_parameters)
        for u, row in enumerate(gradients):
            whole.add_weighted(torch.eye(len(sizes))[u], row)
        for u in range(len(sizes)):
            rest = clip_weights(model, without(batch, u), mechanism, state, noise, None)
            for query in mechanism.queries:
                moved = whole.release[query.name] - rest.release[query.name]
                assert moved.norm() <= query.sensitivity * (1 + 1e-5)
            # at the same released counts the others keep their weights
            again = method.clip(rest.sample, state, whole.release)
            others = torch.arange(len(sizes)) != u
            if not method.queries(mechanism.task, 1.0) or not mechanism.queries[0].early:
                torch.testing.assert_close(again.weight, whole.clip.weight[others])
            assert (whole.weight[u] * gradients[u].norm()) <= whole.clip.bound * (1 + 1e-5)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_person_is_clipped_once_and_chunks_change_nothing(name):
    batch, mechanism = step_on([3, 1, 4, 2, 5], name)
    state = mechanism.method.start(mechanism.task)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    found = []
    for chunk in (None, 1, 4, 7):
        with select_strategy(module, batch.x, 2) as model:
            noise = Streams.seeded(0, digest=b"").noise()
            step = private_step(model, batch, mechanism, state, noise, chunk_size=chunk)
        assert step.sound
        found.append(step.gradient.clone())
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-5, atol=1e-7)


def test_the_gradient_of_a_person_is_the_mean_of_her_records():
    batch, mechanism = step_on([2, 3], max_grad_norm=1e9)
    rows = []
    module = torch.nn.Linear(4, 2)
    for x, y in zip(batch.x, batch.y, strict=True):
        loss = torch.nn.functional.cross_entropy(module(x[None]), y[None])
        grads = torch.autograd.grad(loss, module.parameters())
        rows.append(torch.cat([g.flatten() for g in grads]))
    with select_strategy(module, batch.x, 2) as model:
        step = private_step(model, batch, mechanism, None, Streams.fresh().noise())
    expected = torch.stack(rows[:2]).mean(0) + torch.stack(rows[2:]).mean(0)
    size = mechanism.expected_batch_size
    torch.testing.assert_close(step.gradient * size, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", PRIVATE)
def test_persons_with_one_record_take_the_step_of_records(name):
    batch, mechanism = step_on([1] * 9, name)
    mechanism = Mechanism(mechanism.method, mechanism.task, 1.0)
    state, plain = mechanism.method.start(mechanism.task), Batch(batch.x, batch.y, batch.group)
    persons = PersonRows(plain, np.arange(9)).select(torch.arange(9))
    taken = []
    for data in (plain, persons):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            module = torch.nn.Linear(4, 2)
        with select_strategy(module, data.x, 2) as model:
            noise = Streams.seeded(0, digest=b"").noise()
            taken.append(private_step(model, data, mechanism, state, noise).gradient)
    assert torch.equal(*taken)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_batch_without_persons_is_a_step(name):
    batch, mechanism = step_on([2, 1], name)
    mechanism = Mechanism(mechanism.method, example_task(n_groups=20), 1.0)  # wide rows of counts
    unit = np.array([0, 0, 1])
    none = PersonRows(batch, unit).select(torch.tensor([], dtype=torch.int64))
    state = mechanism.method.start(mechanism.task)
    with select_strategy(torch.nn.Linear(4, 2), batch.x, 2) as model:
        step = private_step(model, none, mechanism, state, Streams.fresh().noise())
    assert bool(step.gradient.any()) and step.max_bound_ratio is None


def test_a_person_with_a_record_that_has_no_finite_gradient_counts_for_nothing():
    batch, mechanism = step_on([2, 3, 1])
    batch.x[1, 0] = torch.inf
    with select_strategy(torch.nn.Linear(4, 2), batch.x, 2) as model:
        with_it, rest = (
            private_step(model, b, mechanism, None, Streams.fresh().noise()).gradient.clone()
            for b in (batch, without(batch, 0))
        )
    torch.testing.assert_close(with_it, rest)


def test_a_position_brings_all_records_of_a_person_and_none_of_another():
    unit = np.array([2, 0, 1, 0, 2, 2, -1])
    rows = Batch(torch.arange(7.0)[:, None], torch.arange(7), torch.zeros(7, dtype=torch.int64))
    batch = PersonRows(rows, unit).select(torch.tensor([0, 2]))
    assert batch.y.tolist() == [1, 3, 0, 4, 5] and batch.examples.sizes.tolist() == [2, 3]
    assert len(PersonRows(rows, unit).select(torch.tensor([], dtype=torch.int64))) == 0


def test_the_order_of_persons_in_a_batch_is_told():
    rng = np.random.default_rng(0)
    unit = rng.permutation(np.repeat(np.arange(50), rng.integers(1, 6, 50)))
    codes = torch.from_numpy(unit)
    data = PersonRows(Batch(torch.zeros(len(unit), 1), codes, codes), unit)
    index = torch.from_numpy(rng.permutation(50)[:20])
    assert data.select(index).example_group.tolist() == data.in_order(index).tolist()


def test_sparse_rows_of_persons_can_be_processed_in_parts(visits):
    X, y = visits
    rows = sparse.csr_array(X[list("abc")].to_numpy())
    method = get_method("dpsgd", max_grad_norm=0.5)
    params = {"group_col": None, COLUMN: None, "epsilon": None, "noise_multiplier": 0.0}
    found = [
        quick(method, **params, lr=0.5, batch_size=600, max_physical_batch_size=size)
        .fit(rows, y, persons=X["person"].to_numpy())
        .decision_function(rows)
        for size in (10_000, 100)
    ]
    assert np.isfinite(found).all()


# --- thinning and groups ----------------------------------------------------------------------


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20), most=st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_thinning_keeps_at_most_so_many_of_each_person(sizes, most):
    unit = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    kept = thinned(unit, most, np.random.default_rng(1))
    assert ((kept == unit) | (kept == -1)).all()
    assert np.bincount(kept[kept >= 0]).tolist() == np.minimum(sizes, most).tolist()


def test_thinning_draws_evenly_from_a_persons_own_records_whoever_else_is_there():
    alone, others = np.zeros(4, dtype=np.int64), np.repeat([1, 2], [50, 3])
    generator, n, counts = np.random.default_rng(0), 4000, []
    for unit in (alone, np.concatenate([alone, others])):
        draws = [thinned(unit, 2, generator)[:4] >= 0 for _ in range(n)]
        pairs = np.array([np.flatnonzero(d) @ [4, 1] for d in draws])
        counts.append(np.unique(pairs, return_counts=True)[1])
    for found in counts:  # six pairs, equally likely
        assert len(found) == 6 and stats.chisquare(found).pvalue > ALPHA
    assert stats.chi2_contingency(counts).pvalue > ALPHA


def test_a_person_has_one_group_that_of_most_of_her_records():
    groups = GroupCodes(np.array([0, 1, 1, 2, 0, 2]), np.array(["a", "b", "c"]), True)
    assert grouped(groups, np.array([0, 0, 0, 1, 1, 1])).code.tolist() == [1, 1, 1, 2, 2, 2]
    tied = grouped(groups, np.array([0, 0, 1, 1, 1, 1]))
    assert tied.code[:2].tolist() == [0, 0]


def test_records_that_take_no_part_vote_on_the_group_of_their_person():
    code = np.tile([0] * 9 + [1], 50)
    groups, unit = GroupCodes(code, np.array(["a", "b"]), True), np.repeat(np.arange(50), 10)
    whole = Table(np.zeros((500, 1)), code, np.array([0, 1]), groups, [], person=unit)
    drawn = whole.thinned(1, np.random.default_rng(0))
    taken = drawn.person >= 0
    assert code[taken].any() and not drawn.groups.code[taken].any()


# --- fits -------------------------------------------------------------------------------------


def test_persons_are_counted_sampled_and_stated(visits):
    X, y = visits
    model = quick(delta="auto", batch_size=60).fit(X, y)
    report = model.privacy_
    assert report.n_samples == 600 and report.sample_rate == 0.1 and report.delta == 1e-4
    assert report.adjacency == "zero_out_person" and report.max_records == 3
    assert "all records of one person" in report.statement
    assert "number of persons" in report.statement and "number of records" not in report.statement
    assert not any("several records" in item for item in report.not_accounted)
    assert json.loads(json.dumps(report.facts()))["adjacency"] == "zero_out_person"
    as_records = quick(persons__column=None, persons__max_records=None, batch_size=60, delta=1e-4)
    plain = as_records.fit(X.drop(columns="person"), y).privacy_
    assert plain.adjacency == "zero_out" and plain.n_samples == len(y)


def test_a_report_says_what_holds_for_persons(visits):
    """Each entry that speaks of the unit is that of persons, weights included; numbers stay."""
    X, y = visits
    weighted = {"sample_weight": np.ones(len(y))}
    report = quick(max_sample_weight=1.0).fit(X, y, **weighted).privacy_
    plain = quick(persons__column=None, persons__max_records=None, max_sample_weight=1.0)
    of_records = plain.fit(X.drop(columns="person"), y, **weighted).privacy_
    assert (report.protects, of_records.protects) == ("person", "record")
    said, other = ({*r.assumptions, *r.not_accounted} for r in (report, of_records))
    assert len(other - said) == len(said - other) + 1 == 5  # several records: no risk any more
    assert all("person" in text for text in said - other)
    assert "function of the records of its person" in report.statement
    assert "its own record" not in report.statement and "its own record" in of_records.statement
    assert report.n_samples == 600
    for text in (report.details(), report._repr_html_()):
        assert "600 persons" in text and "the same records" not in text
    assert "persons" not in repr(of_records)


@pytest.mark.parametrize("unit", ["person", "record"])
def test_a_warning_of_few_persons_counts_persons(unit, visits):
    X, y = visits
    given = {} if unit == "person" else {COLUMN: None, "persons__max_records": None}
    columns = X if unit == "person" else X.drop(columns="person")
    model = quick("dpsgd_f", epsilon=0.05, batch_size=50, delta=1e-5, **given)
    with pytest.warns(LowSignalWarning) as caught:
        model.fit(columns, y)
    n = 600 if unit == "person" else len(y)
    said = next(str(w.message) for w in caught if w.category is LowSignalWarning)
    assert f"n = {n} {unit}s are few" in said and f"More {unit}s or" in said
    assert re.search(f"batches of (49|50) {unit}s", said)


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
    person, kept = pd.factorize(X["person"])[0], {}
    for batch in seen:
        assert len(batch.examples) < len(batch)
        records = batch.x[:, 0].long().numpy()
        of, size = person[records], batch.examples.sizes.numpy()
        assert (np.repeat(np.arange(len(size)), size) == pd.factorize(of)[0]).all()
        for u in np.unique(of):  # the same records of hers in every batch
            assert kept.setdefault(u, set(records[of == u])) == set(records[of == u])
    assert {u: len(r) for u, r in kept.items()} == {
        u: min(n, 3) for u, n in enumerate(np.bincount(person)) if u in kept
    }
    drawn = sum(len(batch.examples) for batch in seen)
    assert stats.binomtest(drawn, 600 * len(seen), 0.1).pvalue > ALPHA


def test_the_column_of_persons_is_no_feature_and_may_be_absent(visits):
    X, y = visits
    model = quick().fit(X, y)
    assert model.net_.module.in_shape == (3,)
    whole = model.predict_proba(X)
    for columns in (["person"], ["sex"], ["person", "sex"]):
        np.testing.assert_array_equal(model.predict_proba(X.drop(columns=columns)), whole)
    renamed = X.assign(person=[f"p{i}" for i in X["person"]])
    assert quick().fit(renamed, y).privacy_.n_samples == 600


def test_an_array_of_persons_does_as_a_column(visits):
    X, y = visits
    model = quick(persons__column=None).fit(X.drop(columns="person"), y, persons=X["person"])
    assert model.privacy_.n_samples == 600
    nested = quick(persons__column=None, group_col=None, method="dpsgd")
    memory = X[list("abc")].to_numpy()
    assert nested.fit(memory, y, persons=X["person"].to_numpy()).privacy_.n_samples == 600


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_trains_on_persons_or_says_why_not(name, visits):
    X, y = visits
    model = quick(name, epsilon=3.0 if METHODS[name].private else None, batch_size=200)
    if METHODS[name].takes_persons:
        model.fit(X, y)
        assert model.privacy_.max_records == 3
        assert model.privacy_.epsilon <= 3.0 or not METHODS[name].private
    else:
        with pytest.raises(ValueError, match="persons with several records"):
            model.fit(X, y)


def test_persons_pass_through_pipelines_searches_and_thresholds(visits, tmp_path):
    X, y = visits
    features, persons = X[list("abc")], X["person"].to_numpy()
    plain = quick(persons__column=None, group_col=None)
    pipe = make_pipeline(FunctionTransformer(), plain)
    fitted = pipe.fit(features, y, dpfairclassifier__persons=persons)[-1]
    assert fitted.privacy_.n_samples == 600
    found = cross_validate(
        pipe,
        features,
        y,
        groups=persons,
        cv=GroupKFold(3),
        params={"dpfairclassifier__persons": persons},
        return_estimator=True,
    )
    assert {m[-1].privacy_.n_samples for m in found["estimator"]} == {400}
    search = GridSearchCV(plain, {"lr": [0.1, 1.0]}, cv=GroupKFold(2))
    search.fit(features, y, persons=persons, groups=persons)
    assert search.best_estimator_.privacy_.n_samples == 600
    model = DPThresholdClassifier(plain, objective="accuracy").fit(features, y, persons=persons)
    assert model.privacy_.adjacency == "zero_out_person" and model.privacy_.epsilon <= 3.0
    fitted.save_release(tmp_path / "model.safetensors")
    again = load_release(tmp_path / "model.safetensors")
    assert again.privacy_.statement == fitted.privacy_.statement
    np.testing.assert_array_equal(again.predict(features), fitted.predict(features))


@pytest.mark.parametrize("of_persons", [True, False])
def test_a_continued_fit_states_the_largest_number_of_records(visits, of_persons):
    X, y = visits
    model = quick(warm_start=True).set_params(**{} if of_persons else {COLUMN: None})
    for most in (5, 2):
        model.set_params(persons__max_records=most).fit(X, y)
    report, said = model.privacy_, "of which at most 5" if of_persons else "with at most 5 records"
    assert said in report.statement
    stated = report.max_records, report.records_per_person
    assert stated == ((5, None) if of_persons else (None, 5))


def test_one_person_moves_the_counts_of_scores_by_one_record(visits, monkeypatch):
    X, y = visits
    seen = []
    monkeypatch.setattr(
        "skdpfair.model_selection._score_counts.released",
        lambda histograms, *rest: seen.append(histograms) or released(histograms, *rest),
    )
    DPThresholdClassifier(quick()).fit(X, y)
    assert float(seen[0].sum()) == pytest.approx(600)


def private_search(estimator, **params):
    given = {"mean_trials": 2.0, "trials": "geometric", "random_state": 0}
    return DPRandomizedSearch(estimator, {"lr": [0.1, 1.0]}, **(given | params))


def test_a_private_search_protects_persons(visits, tmp_path):
    X, y = visits
    with PrivacyLedger(tmp_path / "ledger", epsilon=100.0, delta=1e-4) as ledger:
        search = private_search(quick()).fit(X, y)
    report = search.privacy_
    assert (report.adjacency, report.max_records) == ("zero_out_person", 3)
    assert report.delta == 1e-4 and "number of persons n" in report.assumptions[0]
    planned = search.forecast(600)
    assert report.epsilon == pytest.approx(planned.epsilon_total)
    assert ledger.epsilon() == pytest.approx(report.epsilon)
    assert planned.fits[0].n_samples == 480 and report.n_samples == 600
    assert sum("declare" in text for text in report.assumptions) == 2
    declared = quick(classes=[0, 1], group_col__levels=["f", "m"])
    declared = private_search(declared).fit(X, y).privacy_
    assert not any("declare" in text for text in declared.assumptions)
    pipe = make_pipeline(FunctionTransformer(), quick(persons__column=None, group_col=None))
    searching = DPRandomizedSearch(pipe, {"dpfairclassifier__lr": [1.0]}, trials="geometric")
    searching.fit(X[list("abc")], y, persons=X["person"])
    assert searching.privacy_.adjacency == "zero_out_person"
    with PrivacyLedger(tmp_path / "ledger") as ledger, pytest.raises(ValueError, match="another"):
        private_search(quick(persons__column=None, persons__max_records=None)).fit(X, y)


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
    counted = scorer(labels, labels, 0.0, rng, share)(right)
    assert counted == pytest.approx(120)
    wrong = np.where(scored == scored.iloc[0], 1 - labels, labels)
    assert scorer(wrong, labels, 0.0, rng, share)(right) == pytest.approx(119)


def test_a_private_search_refuses_persons_that_it_cannot_count(visits):
    X, y = visits
    plain, features = quick(persons__column=None, group_col=None), X[list("abc")]
    for searching, rows, units, says in (
        (private_search(plain), features, None, "needs the person of each record"),
        (private_search(quick(persons__max_records=None)), X, None, "max_records=None"),
        (private_search(quick(persons__surplus="raise")), X, None, "forbids thinning"),
        (
            DPRandomizedSearch(quick(), {COLUMN: ["a"]}),
            X,
            None,
            "must leave persons as they are",
        ),
        (
            private_search(make_pipeline(FunctionTransformer(), quick())).set_params(
                param_distributions={"dpfairclassifier__lr": [1.0]}
            ),
            X,
            None,
            "Leave out column=",
        ),
    ):
        with pytest.raises(ValueError, match=says):
            searching.fit(rows, y, persons=units)
    thresholds = DPThresholdClassifier(make_pipeline(FunctionTransformer(), quick()))
    with pytest.raises(ValueError, match="Leave out column="):
        thresholds.fit(X, y)


def test_a_released_table_counts_one_record_of_each_person(visits):
    X, y = visits
    given = {"sensitive_features": X["sex"], "epsilon": 1e3, "levels": ["f", "m"]}
    persons = X["person"].to_numpy()
    table = release_group_table(y, y, persons=persons, **given)
    assert table[["correct", "incorrect"]].to_numpy().sum() == 600
    assert table.attrs["privacy"]["adjacency"] == "zero_out_person"
    statement = table.attrs["privacy"]["statement"]
    assert "number of persons" in statement and "One record of each person" in statement
    assert not any("records" in text for text in table.attrs["privacy"]["not_accounted"])
    of_one = release_group_table(y, y, persons=np.zeros(len(y)), **given)
    assert of_one[["correct", "incorrect"]].to_numpy().sum() == 1
    right = np.arange(len(y)) % 2  # each record is drawn as often as her others
    rates = [
        release_group_table(right, np.ones_like(right), persons=np.arange(len(y)) // 2, **given)
        for _ in range(20)
    ]
    total = sum(t["correct"].sum() for t in rates)
    assert stats.binomtest(int(total), 20 * (len(y) // 2 + len(y) % 2), 0.5).pvalue > ALPHA


def test_training_on_persons_learns(visits):
    X, y = visits
    model = quick(epsilon=None, noise_multiplier=0.0, max_steps=100, lr=1.0)
    assert model.fit(X, y).score(X, y) > 0.8


# --- ledgers and sweeps -----------------------------------------------------------------------


@pytest.mark.skipif(
    not hasattr(GridSearchCV, "set_callbacks"), reason="scikit-learn < 1.9 tells of no folds"
)
@pytest.mark.parametrize("cv", [GroupKFold(3), 3], ids=["by person", "by record"])
def test_every_fit_of_a_search_counts_for_every_person(cv, visits, tmp_path):
    X, y = visits
    ledger = PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp")
    search = GridSearchCV(quick(group_col=None), {"lr": [0.5]}, cv=cv, refit=False)
    groups = {} if cv == 3 else {"groups": X["person"]}
    ledger.fit(search, X[[*"abc", "person"]], y, **groups)
    assert str(ledger.report()).startswith(
        "Spending: 3 fits, protecting all records of one person\n"
    )


def test_a_ledger_adds_up_one_kind_of_unit(visits, tmp_path):
    X, y = visits
    with PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp") as ledger:
        model = quick().fit(X, y)
        plain = quick(persons__column=None, persons__max_records=None)
        with pytest.raises(ValueError, match="protects each record, but earlier fits"):
            plain.fit(X.drop(columns="person"), y)
    assert ledger.epsilon() == pytest.approx(model.privacy_.epsilon)


def of_patients_and_stays(place, visits, tmp_path):
    """Fit on patients and then on stays, in one account."""
    X, y = visits
    stays = pd.Series(np.arange(len(X)) % 200, name="stay")
    table = X.rename(columns={"person": "patient"}).assign(stay=stays)
    features, patients = table[list("abc")], table["patient"]
    plain, by_column = quick(persons__column=None, group_col=None), quick(persons__column="patient")
    ledger = PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp")
    if place == "warm start":
        model = by_column.set_params(warm_start=True).fit(table.drop(columns="stay"), y)
        model.set_params(persons__column="stay").fit(table.drop(columns="patient"), y)
    elif place == "search":
        search = GridSearchCV(by_column, {COLUMN: ["patient", "stay"]}, error_score="raise")
        ledger.fit(search, table, y)
    elif place == "forecast":
        forecast(GridSearchCV(by_column, {COLUMN: ["patient", "stay"]}, cv=GroupKFold(3)), 600)
    else:
        with ledger:
            plain.fit(features, y, persons=patients)
            assert {fit["persons"] for fit in ledger._fits()} == {"patient"}
            if place == "fit":
                plain.fit(features, y, persons=stays)
            elif place == "column":
                quick(persons__column="stay").fit(table.drop(columns="patient"), y)
            elif place == "private search":
                private_search(plain).fit(features, y, persons=stays.to_frame())
            elif place == "threshold":
                DPThresholdClassifier(plain).fit(features, y, persons=stays)
            else:
                given = {"persons__max_records": 3, "progress": False}
                sweep(
                    features,
                    y,
                    sensitive_features=table["sex"],
                    methods=["dpsgd"],
                    epsilons=[3.0],
                    seeds=1,
                    persons=stays,
                    **given,
                )


@pytest.mark.parametrize(
    "place",
    ["warm start", "fit", "column", "private search", "threshold", "sweep", "search", "forecast"],
)
def test_two_kinds_of_persons_have_no_sum(place, visits, tmp_path):
    """A patient may be several stays, whose fits protect each stay."""
    with pytest.raises(ValueError, match=r"no sum of both|column of the persons changed"):
        of_patients_and_stays(place, visits, tmp_path)
    if place not in ("warm start", "forecast", "search"):
        assert PrivacyLedger(tmp_path / "ledger").report().n_fits == 1


def test_positions_and_later_names_do_not_tell_persons_apart(visits, tmp_path):
    X, y = visits
    features = X[list("abc")]
    ledger = PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp")
    with ledger:
        for _ in range(2):
            quick(persons__column=0, group_col=None).fit(np.c_[X["person"], features], y)
    assert "note: persons that no column name" in str(ledger.report())
    plain = quick(persons__column=None, group_col=None, warm_start=True)
    plain.fit(features, y, persons=X["person"].to_numpy()).fit(features, y, persons=X["person"])
    assert any("no column name" in text for text in plain.privacy_.assumptions)


def test_persons_without_a_name_are_on_record_as_those_of_the_other_fits(visits, tmp_path):
    X, y = visits
    plain, features = quick(persons__column=None, group_col=None, warm_start=True), X[list("abc")]
    ledger = PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp")
    with ledger:
        plain.fit(features, y, persons=X["person"])
        said = [str(ledger.report()), *plain.privacy_.assumptions]
        assert not any("no column name" in text for text in said)
        plain.fit(features, y, persons=X["person"].to_numpy())
        assert any("no column name" in text for text in plain.privacy_.assumptions)
    assert "note: persons that no column name" in str(ledger.report())
    again = pickle.loads(pickle.dumps(plain))
    with pytest.raises(ValueError, match="column of the persons changed"):
        again.fit(features, y, persons=X["person"].rename("stay"))


def test_forecasts_count_persons_and_ask_for_folds_by_person(visits):
    X, y = visits
    model = quick(delta=1e-4)
    spent = model.fit(X, y).privacy_.epsilon
    assert forecast(model, 600, n_groups=2, delta=1e-4, accountant="rdp").epsilon == pytest.approx(
        spent
    )
    found = forecast(model, 600, n_groups=2, cv=GroupKFold(3), delta=1e-4, accountant="rdp")
    assert str(found).startswith("SearchPlan: 3 fits, protecting all records of one person\n")
    for cv in (3, KFold(3)):
        with pytest.raises(ValueError, match="records of one person into several folds"):
            forecast(model, 600, cv=cv)
    with pytest.raises(ValueError, match="there is no sum of both"):
        forecast(make_pipeline(DPQuantileScaler(), model), 600)


def test_forecasts_ask_whether_fits_protect_persons(visits):
    bounded, given = quick(persons__column=None, delta=1e-4), {"delta": 1e-4, "accountant": "rdp"}
    with pytest.raises(ValueError, match=r"persons=None, .* Pass persons=True"):
        forecast(bounded, 600, **given)
    assert forecast(bounded, 600, persons=True, **given).protects == "person"
    records = forecast(bounded, 600, persons=False, **given)
    assert records.protects == "record"
    plain = quick(persons__column=None, persons__max_records=None)
    assert forecast(plain, 600).protects == "record"
    for model, units in ((plain, True), (quick(persons__max_records=None), None)):
        with pytest.raises(ValueError, match="max_records=None declares no bound"):
            forecast(model, 600, persons=units)
    for model in (quick(), GridSearchCV(quick(), {COLUMN: ["person", None]}, cv=GroupKFold(3))):
        with pytest.raises(ValueError, match="There is no sum of both"):
            forecast(model, 600, persons=False)
    with pytest.raises(TypeError, match="persons must be"):
        forecast(bounded, 600, persons=visits[0]["person"])
    assert forecast(private_search(bounded), 600).protects == "person"  # whose fit demands them
    with pytest.raises(ValueError, match="persons=False, but a DPRandomizedSearch protects"):
        forecast(private_search(bounded), 600, persons=False)
    with pytest.raises(ValueError, match="max_records=None declares no bound"):
        private_search(quick(persons__max_records=None)).forecast(600)


def test_a_sweep_keeps_persons_on_one_side(visits, tmp_path):
    X, y = visits
    settings = {"persons__max_records": 3, "module": "logistic", "max_steps": 5, "lr": 0.5}
    given = {"X": X[list("abc")], "y": y, "sensitive_features": X["sex"]}
    given |= {"methods": ["dpsgd"], "epsilons": [3.0], "seeds": 1}
    persons = X["person"].to_numpy()
    results = sweep(**given, persons=persons, **settings)
    assert (
        results.frame.query("method == 'dpsgd' and group == 'overall'")["epsilon_spent"].le(3).all()
    )
    page = results.to_html()
    assert "differ in one person" in page and "replacing all records of one person" in page
    assert "<dt>persons</dt><dd>600</dd>" in page
    size = int(re.search("<dt>persons of one fit</dt><dd>([0-9]+)</dd>", page)[1])
    assert size == pytest.approx(480, abs=10)  # 1,700 records
    assert "<dt>δ of one fit</dt><dd>0.0001</dd>" in page  # that of the records is 1e-05
    assert "several records of one person" not in page and "fits on the same persons" in page
    with pytest.raises(ValueError, match="records of one person among"):
        sweep(**given, persons=persons, cv=KFold(3), **settings)
    with pytest.raises(ValueError, match="persons__column"):
        sweep(**given, persons__column="person", **settings)


def test_the_split_of_a_sweep_is_by_person():
    unit = np.repeat(np.arange(40), 3)
    y, code = np.arange(120) % 2, np.zeros(120, dtype=np.int64)
    for cv in (None, 4):
        for train, test in splits(cv, 0, y, code, unit):
            assert not np.isin(unit[test], unit[train]).any()
            assert len(train) + len(test) == 120


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params, change, error, match",
    [
        ({"persons__max_records": None}, {}, ValueError, "max_records=None declares no"),
        ({"persons__max_records": 0}, {}, ValueError, "max_records of Persons.*got 0"),
        ({"persons__surplus": "raise"}, {}, ValueError, "more than max_records=3"),
        ({"persons__surplus": "raise", COLUMN: None}, {}, ValueError, "no persons are given"),
        ({"persons__surplus": "drop"}, {}, ValueError, "surplus of Persons.*got 'drop'"),
        ({COLUMN: "sex"}, {}, ValueError, "also in group_col"),
        ({COLUMN: "patient"}, {}, ValueError, "persons='patient' is not a column of X"),
        ({COLUMN: ["person"]}, {}, ValueError, "column of Persons must be"),
        ({}, {"persons": np.zeros(1)}, ValueError, "by a column or as an array, not both"),
        ({COLUMN: None}, {"persons": np.zeros(3)}, ValueError, "persons has 3 values for 2,"),
        (
            {COLUMN: None},
            {"persons": np.zeros((3, 2))},
            ValueError,
            r"got an array of shape \(3, 2\)",
        ),
        ({COLUMN: None}, {"persons": ("person",)}, ValueError, r"persons=Persons\('person'"),
        ({COLUMN: None}, {"persons": "person"}, ValueError, "persons is the column 'person' of X"),
    ],
)
def test_what_cannot_be_used_is_refused(params, change, error, match, visits):
    X, y = visits
    if isinstance(change.get("persons"), str):
        X = X.assign(person=[f"p{i}" for i in X["person"]])  # a text, of no use as a feature
        change = {"persons": X[change["persons"]]}
    if isinstance(change.get("persons"), tuple):
        change = {"persons": change["persons"][0]}
    with pytest.raises(error, match=match) as caught:
        quick(**params).fit(X, y, **change)
    assert "Error)" not in str(caught.value)
    assert not any(cell in str(caught.value) for cell in map(str, X["person"].head(50)))


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, "", " "])
def test_missing_persons_are_refused(missing, visits):
    X, y = visits
    X = X.assign(person=[f"p{i}" for i in X["person"]]).astype({"person": object})
    X.loc[3, "person"] = missing
    with pytest.raises(ValueError, match="persons='person' has missing values"):
        quick().fit(X, y)
    features, persons = X.drop(columns="person"), X["person"].tolist()
    with pytest.raises(ValueError, match="persons has missing values"):
        quick(persons__column=None).fit(features, y, persons=persons)


@pytest.mark.parametrize(
    "values, expected",
    [
        # texts are compared stripped and in Unicode's form NFKC
        (["a", " a", "a\t", "A", "a b"], [0, 0, 0, 1, 2]),
        (["\u00e9", "e\u0301", "\uff11\uff17", "17", "\u00a017"], [0, 0, 1, 1, 1]),
        (pd.Series(["b", "a", "b "], dtype="category"), [0, 1, 0]),
        (np.array(["b", "a", "b\t"]), [0, 1, 0]),
        # whole numbers and their texts are one
        ([17, "17", 17.0, "17.0 ", np.int64(17), Decimal(17), "18"], [0] * 6 + [1]),
        (["10000000000000002", 10**16 + 3, "10000000000000003"], [0, 1, 1]),
        ([0.0, -0.0, "0", False, -3, "-3.0"], [0, 0, 0, 0, 1, 1]),
        (pd.Series([2, 1, 2], dtype="Int64"), [0, 1, 0]),
        (np.array([[3.0], [1.0], [3.0]]), [0, 1, 0]),
        (np.array([10**18, 10**18 + 1]), [0, 1]),
        # everything else is taken as it is
        (["007", "7", "+7", "1,000", "1000", "x.0", "x"], [0, 1, 2, 3, 4, 5, 6]),
        ([0.5, "0.5", 1.5, 0.5], [0, 1, 2, 0]),
        ([b"17", "17", b"17 ", b"17"], [0, 1, 2, 0]),
        (pd.to_datetime(["2001-01-02", "2001-01-01", "2001-01-02"]), [0, 1, 0]),
    ],
)
def test_one_person_is_one_however_she_is_spelt(values, expected):
    assert codes("persons", values, len(expected)).tolist() == expected
    alone = [codes("persons", values[i : i + 1], 1).tolist() for i in range(len(values))]
    assert alone == [[0]] * len(values)


@pytest.mark.parametrize("place", ["fit", "threshold", "search", "table", "sweep", "audit"])
def test_all_who_read_persons_compare_them_by_one_rule(place, visits, monkeypatch):
    X, y = visits
    features, seen = X[list("abc")], []
    values = np.array([f"p{i}" for i in X["person"]], dtype=object)
    values[::2] += " "

    def recorded(name, values, n_samples):
        seen.append(codes(name, values, n_samples))
        return seen[-1]

    monkeypatch.setattr("skdpfair.inputs.persons.codes", recorded)
    plain = quick(persons__column=None, group_col=None)
    if place == "fit":
        quick(persons__column="id", group_col=None).fit(features.assign(id=values), y)
    elif place == "threshold":
        DPThresholdClassifier(plain).fit(features, y, persons=values)
    elif place == "search":
        private_search(plain).fit(features, y, persons=values)
    elif place == "table":
        release_group_table(y, y, persons=values, sensitive_features=X["sex"], epsilon=1.0)
    elif place == "sweep":
        given = {"methods": ["dpsgd"], "epsilons": [3.0], "seeds": 1, "max_steps": 1}
        given["persons__max_records"] = 3
        given["progress"] = False
        sweep(features, y, sensitive_features=X["sex"], persons=values, **given)
    else:
        audit_fit(plain.set_params(max_steps=1), features, y, 20, persons=values)
    assert seen and seen[0].max() + 1 == 600


def _fit(X, y, groups, persons):
    quick(persons__column=None, group_col=None).fit(
        X, y, sensitive_features=groups, persons=persons
    )


def _fit_pipeline(X, y, groups, persons):  # whose steps keep the index
    model = make_pipeline(FunctionTransformer(), quick(persons__column=None, group_col=None))
    given = {"sensitive_features": groups, "persons": persons}
    model.fit(X, y, **{f"dpfairclassifier__{name}": values for name, values in given.items()})


def _fit_others(of):
    plain = quick(persons__column=None, group_col=None)
    pipe = make_pipeline(FunctionTransformer(np.asarray), plain)

    def fit(X, y, groups, persons):
        of(pipe).fit(X, y, sensitive_features=groups, persons=persons)

    return fit


PLACES = {
    "fit": _fit,
    "pipeline": _fit_pipeline,
    "threshold": _fit_others(lambda pipe: DPThresholdClassifier(pipe, objective="accuracy")),
    "search": _fit_others(
        lambda pipe: DPRandomizedSearch(pipe, {"dpfairclassifier__lr": [1.0]}, trials="geometric")
    ),
    "sweep": lambda X, y, g, u: sweep(
        X, y, sensitive_features=g, methods=["dpsgd"], epsilons=[3.0], seeds=1, persons=u
    ),
    "audit": lambda X, y, g, u: audit_fit(quick(), X, y, 20, sensitive_features=g, persons=u),
    "score": lambda X, y, g, u: quick().score(X, y, sample_weight=g),
    "regressor": lambda X, y, g, u: DPFairRegressor().score(X, y, sample_weight=g),
    "thresholds": lambda X, y, g, u: DPThresholdClassifier(quick()).score(X, y, sample_weight=g),
    "searched": lambda X, y, g, u: DPRandomizedSearch(quick(), {}).score(X, y, sample_weight=g),
    "scorer": lambda X, y, g, u: GroupScorer()(quick(), X, y, sensitive_features=g),
    "dg_gap": lambda X, y, g, u: comparison_scorer("dg_gap", X, y, sensitive_features=g),
}
SCORES = ("score", "regressor", "thresholds", "searched")
WITHOUT_PERSONS = (*SCORES, "scorer", "dg_gap")
# scikit-learn's permutation_test_score calls these with shuffled labels
WARN_OF_LABELS = ("fit", "pipeline", "threshold", "search", *SCORES)


@pytest.mark.parametrize(
    ("place", "at"),
    [(p, at) for p in PLACES for at in range(3) if at < 2 or p not in WITHOUT_PERSONS],
)
def test_what_is_in_another_order_than_the_records_is_refused(place, at, visits):
    """y, groups and persons with an index, which is not that of the records."""
    X, y = visits
    given = [pd.Series(y), X["sex"], X["person"]]
    given[at] = given[at].sample(frac=1, random_state=0)
    text = r" has another index than X.*\.loc\[X.*index\]"
    if at == 0 and place in WARN_OF_LABELS:
        with pytest.warns(UserWarning, match=f"^y{text}"), suppress(NotFittedError):
            PLACES[place](X[list("abc")], *given)
        # of other rows, or counted anew
        for index in (X.index + len(X), range(len(X))):
            given[at] = pd.Series(y, index=index)
            with pytest.raises(ValueError, match=r"^y has another index than X"):
                PLACES[place](X.iloc[::-1][list("abc")], *given)
        return
    with pytest.raises(ValueError, match=text):
        PLACES[place](X[list("abc")], *given)


def test_persons_of_a_part_come_with_the_index_of_their_records(visits):
    X, y = visits
    part = X.sample(500, random_state=0)
    features, labels = part[list("abc")], y[part.index]
    plain = quick(persons__column=None, group_col=None)
    report = plain.fit(features, labels, persons=part["person"]).privacy_
    assert report.n_samples == part["person"].nunique()
    plain.fit(features, labels, persons=part["person"].tolist())
    persons = part["person"].reset_index(drop=True)
    with pytest.raises(ValueError, match=r"another index than X.*persons\.to_numpy"):
        plain.fit(features, labels, persons=persons)
    found = cross_validate(
        plain, features, labels, cv=3, params={"persons": part["person"]}, error_score="raise"
    )
    assert len(found["test_score"]) == 3
    given = {"sensitive_features": part["sex"], "epsilon": 1.0}
    truth = pd.Series(labels, index=part.index)
    with pytest.raises(ValueError, match="another index than y_true"):
        release_group_table(truth, labels, persons=persons, **given)


def behind(*steps, column=None, last=DPFairClassifier):
    persons, budget = Persons(column, max_records=3), {"epsilon": 5.0, "max_steps": 1}
    ranges = {"y_range": (0, 1)} if last is DPFairRegressor else {}
    clf = last("dpsgd", module="logistic", persons=persons, **budget, **ranges)
    return Pipeline([*((f"s{i}", step) for i, step in enumerate(steps)), ("clf", clf)])


PERSONS, ROWS = np.arange(300) // 3, np.random.default_rng(0).random((300, 2))
BY_ROW = DPQuantileScaler((0, 1), epsilon=1.0)
LABELS, UNITS_OF_CLF = np.resize([0, 1], 300), {"clf__persons": PERSONS}


def kept(n_jobs=None):
    """Scale columns of a table, and keep that of the persons."""
    parts = [("scaled", BY_ROW, ["a", "b"]), ("kept", "passthrough", ["pid"])]
    columns = ColumnTransformer(parts, n_jobs=n_jobs, verbose_feature_names_out=False)
    return behind(columns.set_output(transform="pandas"), column="pid")


TABLE_OF_PERSONS = pd.DataFrame(ROWS, columns=["a", "b"]).assign(pid=PERSONS)
MIXED = {  # fits of a pipeline, which may be those of a ledger
    "a pipeline": lambda fit: fit(behind(BY_ROW), ROWS, LABELS, **UNITS_OF_CLF),
    "steps between": lambda fit: fit(
        behind(BY_ROW, PolynomialFeatures(2), BoundedScaler((0, 1))), ROWS, LABELS, **UNITS_OF_CLF
    ),
    "a union": lambda fit: fit(
        behind(make_union(BY_ROW, FunctionTransformer())), ROWS, LABELS, **UNITS_OF_CLF
    ),
    "a column": lambda fit: fit(kept(), TABLE_OF_PERSONS, LABELS),
    "no bound": lambda fit: fit(
        behind(BY_ROW).set_params(clf__persons=None), ROWS, LABELS, **UNITS_OF_CLF
    ),
    "nested": lambda fit: fit(
        Pipeline([("in", make_pipeline(BY_ROW)), ("out", behind())]),
        ROWS,
        LABELS,
        out__clf__persons=PERSONS,
    ),
    "a regressor": lambda fit: fit(
        behind(BY_ROW, last=DPFairRegressor), ROWS, ROWS[:, 0], **UNITS_OF_CLF
    ),
    "a search": lambda fit: fit(
        GridSearchCV(behind(BY_ROW), {"clf__lr": [0.1]}, cv=GroupKFold(2), error_score="raise"),
        ROWS,
        LABELS,
        groups=PERSONS,
        **UNITS_OF_CLF,
    ),
    "thresholds": lambda fit: fit(
        DPThresholdClassifier(behind(BY_ROW)), ROWS, LABELS, persons=PERSONS
    ),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("how", ["inside a ledger", "by a ledger"])
def test_steps_for_records_are_refused_before_persons(name, how, tmp_path):
    ledger = PrivacyLedger(tmp_path / "spent.jsonl", delta=1e-5)

    def fit(model, *data, **params):
        if how == "by a ledger":
            return ledger.fit(model, *data, **params)
        with ledger:
            return model.fit(*data, **params)

    with pytest.raises(ValueError, match=r"DPQuantileScaler .*persons.*BoundedScaler"):
        MIXED[name](fit)
    assert ledger.frame().empty  # the scaler has released nothing, either


def test_steps_that_were_fitted_elsewhere_are_refused_by_the_classifier(tmp_path, monkeypatch):
    monkeypatch.setattr("skdpfair.preprocessing._quantile_scaler.refuse_persons_around", id)
    with pytest.raises(ValueError, match=r"DPQuantileScaler .*persons.*BoundedScaler"):
        behind(BY_ROW).fit(ROWS, LABELS, **UNITS_OF_CLF)


def test_steps_and_classifier_for_the_same_unit_are_accepted():
    records = behind(BY_ROW).fit(ROWS, LABELS)
    assert records[-1].privacy_.protects == "record" and not lint_pipeline(records).findings
    persons = behind(BoundedScaler((0, 1))).fit(ROWS, LABELS, **UNITS_OF_CLF)
    assert persons[-1].privacy_.protects == "person" and not lint_pipeline(persons).findings
    for model in (behind(BY_ROW), kept()):
        (finding,) = lint_pipeline(model).findings
        assert finding.name == "DPQuantileScaler" and "persons" in finding.learns
