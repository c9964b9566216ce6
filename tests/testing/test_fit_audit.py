"""The one-run audit: correct fits pass, missing noise does not.

Fits are seeded: unseeded, a correct one would fail with a chance of at most 5 %.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier, Persons
from skdpfair.datasets import make_two_groups
from skdpfair.engine.noise import Noise
from skdpfair.preprocessing import BoundedScaler
from skdpfair.privacy import NoisyRelease, gdp_parameter
from skdpfair.testing import audit_fit
from skdpfair.testing._lower_bounds import guesses_excess
from skdpfair.training.batches import PersonRows
from tests.audited_fits import EXPECTED, PRIVATE, QUICK, every_method, strong

pytestmark = pytest.mark.filterwarnings(*EXPECTED)


@pytest.fixture(scope="module")
def data():
    return make_two_groups(2000, random_state=0)


@pytest.mark.parametrize("name", every_method(*QUICK))
def test_audit_fit_passes_correct_fits(name, data):
    groups = {"sensitive_features": data.sensitive_features}
    audit = audit_fit(strong(name), data.data, data.target, 400, **groups, random_state=0)
    assert audit.passed and audit.epsilon_claimed <= 1.0
    assert audit.n_canaries == 400 and audit.n_correct <= audit.n_guesses


def test_audit_fit_finds_most_of_a_large_budget(data):
    audit = audit_fit(strong(epsilon=20.0), data.data, data.target, 400, random_state=0)
    assert 0.8 < audit.epsilon_lower <= audit.epsilon_claimed


@pytest.mark.parametrize("name", ["dpsgd", "global_adapt"])
def test_audit_fit_finds_missing_noise(name, data, monkeypatch):
    monkeypatch.setattr(Noise, "fill_", lambda self, out, *args: out.zero_())
    audit = audit_fit(strong(name), data.data, data.target, 400, random_state=0)
    assert not audit.passed and audit.epsilon_lower > 2.0
    excess = guesses_excess(400, audit.n_guesses, audit.n_correct, 0.05 / 3)  # what it rests on
    noise = 1 / gdp_parameter(0.8 * audit.epsilon_lower, 1e-5)
    assert excess((NoisyRelease("steps", 1.0, (noise,), 1),)) > 0
    assert "ABOVE its claim of 0.999" in str(audit)


def test_audit_fit_takes_frames_and_pipelines(data):
    frame = pd.DataFrame(data.data).add_prefix("f")
    frame["sex"] = np.where(np.arange(len(frame)) % 2, "F", "M")
    audit = audit_fit(strong(group_col="sex"), frame, data.target, 50, random_state=0)
    assert audit.n_canaries == 50 and audit.passed
    pipe = make_pipeline(BoundedScaler((-5, 5)), make_pipeline(BoundedScaler((-1, 1)), strong()))
    assert audit_fit(pipe, data.data, data.target, 50, random_state=0).passed


@pytest.fixture
def fitted(monkeypatch):
    """Return a list of what fits are given: X, y and keywords; and of their estimators."""
    seen, fit = [], DPFairClassifier.fit

    def recorded(self, X, y, **given):
        seen.append((X, y, given, self))
        return fit(self, X, y, **given)

    monkeypatch.setattr(DPFairClassifier, "fit", recorded)
    return seen


@pytest.mark.parametrize("at", [0, -1])
def test_audit_fit_leaves_columns_of_groups_and_persons_in_an_array(at, data, fitted):
    sex, person = np.arange(2000) % 2, 2**40 + np.arange(2000) // 4  # float32 tells no two apart
    for name, column in (("group_col", sex), ("persons__column", person)):
        place = at % 7
        X = np.insert(data.data.to_numpy(float), place, column, axis=1)
        params = {name: at, "persons__max_records": 4, "max_steps": 3}
        audit = audit_fit(strong(**params), X, data.target, 50, random_state=0)
        planted, model = np.asarray(fitted[-1][0]), fitted[-1][3]
        assert planted.shape[1] == 7 + 50 and model._group_positions == [place]
        kept = set(planted[:, place])
        assert kept <= set(column) and len(kept) > 0.9 * len(set(column))
        assert audit.protects == ("record" if name == "group_col" else "person")


def persons(n, most, least=1):
    """Return records, labels and the persons whose they are, in any order."""
    rng = np.random.default_rng(0)
    person = rng.permutation(np.repeat(np.arange(n), rng.integers(least, most + 1, n)))
    return rng.normal(size=(len(person), 2)), rng.integers(0, 2, len(person)), person


@pytest.mark.parametrize("name", every_method(*QUICK))
def test_audit_fit_passes_correct_fits_of_persons(name):
    X, y, person = persons(600, 6)
    clf = strong(name, persons__max_records=4, max_steps=30)
    settings = {"sensitive_features": person % 2, "persons": person, "random_state": 0}
    audit = audit_fit(clf, X, y, 300, **settings)
    assert audit.passed and audit.epsilon_claimed <= 1.0 and audit.delta == 1e-4
    assert audit.protects == "person" and audit.n_canaries == 300
    assert "about 300 canary persons" in str(audit)


def records_one_by_one(select):
    return lambda self, index: replace(select(self, index), examples=None)


def test_audit_fit_finds_persons_clipped_by_record_or_without_noise(monkeypatch):
    X, y, person = persons(800, 40, 40)
    clf = strong(epsilon=0.5, lr=0.5, batch_size=300, max_steps=30, persons__max_records=40)
    assert audit_fit(clf, X, y, 400, persons=person, random_state=0).passed
    for owner, name, fault in (
        (PersonRows, "select", records_one_by_one(PersonRows.select)),
        (Noise, "fill_", lambda self, out, *args: out.zero_()),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fault)
            audit = audit_fit(clf, X, y, 400, persons=person, random_state=0)
        assert not audit.passed and audit.epsilon_lower > 2 * audit.epsilon_claimed


@pytest.mark.parametrize("kind", ["feature", "mislabelled"])
def test_audit_fit_plants_canaries_in_all_records_of_a_person(kind, fitted):
    X, y, person = persons(100, 5)
    clf = strong(persons__max_records=5, max_steps=2, batch_size=50)
    audit_fit(clf, X, y, 40, persons=person, kind=kind, random_state=0)
    planted, labels, given, _ = fitted[0]
    kept = pd.Index(given["persons"]).unique()
    assert 100 - 40 < len(kept) < 100
    rows = np.isin(person, kept)  # nobody lost a part of her records
    assert np.array_equal(given["persons"], person[rows])
    if kind == "mislabelled":
        changed = pd.Series(labels != y[rows]).groupby(given["persons"])
        assert (changed.min() == changed.max()).all() and 0 < changed.min().sum() < 40
        return
    owned = pd.DataFrame(planted[:, 2:] != 0).groupby(given["persons"])
    assert (owned.min() == owned.max()).all(axis=None)  # one feature for all of hers
    canaries = owned.max().any(axis=1)
    assert 0 < canaries.sum() == len(kept) - 60 and owned.max().sum().max() == 1
    mine = canaries[given["persons"]].to_numpy()
    assert not planted[mine, :2].any() and (planted[~mine, :2] == X[rows][~mine].astype("f")).all()
    assert (pd.Series(labels)[mine].groupby(given["persons"][mine]).nunique() == 1).all()


def test_audit_fit_takes_persons_of_a_column_as_of_an_array(fitted):
    X, y, person = persons(100, 5)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(person=[f"p{i}" for i in person])
    settings = {"persons__max_records": 5, "max_steps": 2, "batch_size": 50}
    scaled = make_pipeline(BoundedScaler((-5, 5)), strong(**settings))
    pipe = make_pipeline(
        ColumnTransformer([("scaled", BoundedScaler((-5, 5)), ["a", "b"])], remainder="passthrough",
                          verbose_feature_names_out=False).set_output(transform="pandas"),
        strong(persons__column="person", **settings),
    )  # fmt: skip
    for estimator, table, named in (
        (strong(**settings), X, person),
        (strong(persons__column="person", **settings), frame, None),
        (scaled, X, list(person)),
        (pipe, frame, None),
        (scaled, frame[["a", "b"]][::-1], pd.Series(person)[::-1]),
    ):
        audit = audit_fit(estimator, table, y, 20, persons=named, random_state=0)
        assert audit.protects == "person"
    (_, _, by_units, _), (by_column, *_), *others, _ = fitted
    named = [f"p{i}" for i in by_units["persons"]]
    assert by_column["person"].tolist() == named == others[1][0]["person"].tolist()
    assert others[0][2]["persons"] == by_units["persons"].tolist()
    assert list(by_column)[:3] == ["a", "b", "person"] and by_column.shape[1] == 3 + 20


def test_audit_fit_leaves_the_records_unchanged(data):
    X, y = data.data.copy(), data.target.copy()
    audit_fit(strong(max_steps=2), X, y, 50, random_state=0)
    assert np.array_equal(np.asarray(X), np.asarray(data.data)) and (y == data.target).all()


def test_epsilon_at_best_is_that_of_right_guesses(data):
    few = audit_fit(strong(max_steps=3), data.data, data.target, 20, random_state=0)
    assert few.epsilon_lower == 0 and few.epsilon_at_best > 1


TABLE, LABELS = np.zeros((40, 2)), np.arange(40) % 2
OF_PERSONS = {"estimator": strong(persons__max_records=5), "persons": np.arange(40) // 2}
REFUSED = [
    *(({"estimator": e}, f"^estimator .*{name}") for e, name in [
        (LogisticRegression(), r"got LogisticRegression\(\)"),
        (DPFairClassifier, "DPFairClassifier or a Pipeline"),
        (GridSearchCV(DPFairClassifier(), {}), "got GridSearchCV"),
        (make_pipeline(BoundedScaler(), LogisticRegression()), r"got LogisticRegression\(\)"),
        (DPFairClassifier(epsilon=None), "finite epsilon"),
        (DPFairClassifier("sgd", epsilon=None), "finite epsilon"),
    ]),
    *(({"n_canaries": n}, f"^n_canaries.*{n}") for n in (1500, 3)),
    ({"kind": "loud"}, "^kind .*loud"),
    ({"confidence": 1.5}, "^confidence .*1.5"),
    ({"random_state": "x"}, "^random_state must be an integer"),
    ({"y": LABELS[:30]}, "^y .*40"),
    ({"y": TABLE}, "^X .*y one label for each"),
    ({"y": np.zeros(40)}, "^y .*two classes"),
    ({"sensitive_features": ["F"] * 3}, "^sensitive_features .*40"),
    ({"X": np.zeros((40, 1, 8, 8))}, "^kind='feature'.*kind='mislabelled'"),
    ({"X": sparse.csr_matrix(TABLE)}, "^X .*toarray"),
    ({"X": np.full((40, 2), "State-gov")}, "^X must hold numbers"),
    ({"X": pd.DataFrame({"a": 1.0, "work": ["State-gov"] * 40})}, r"^X must .*\['work'\]"),
    (OF_PERSONS | {"n_canaries": 11}, "^n_canaries=11 .*20 persons"),
    (OF_PERSONS | {"persons": np.arange(39)}, "^persons .*39"),
    (OF_PERSONS | {"estimator": strong(persons=Persons(1, max_records=5))}, "column.*array"),
    (OF_PERSONS | {"estimator": strong()}, "max_records=None"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_audit_fit_refuses_arguments_by_name_and_shows_no_cell(change, message):
    given = {"estimator": strong(), "X": TABLE, "y": LABELS, "n_canaries": 10} | change
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        audit_fit(**given)
    assert "State-gov" not in str(caught.getrepr(chain=True, style="value"))
    assert "X" not in change or caught.value.__context__ is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
def test_audit_fit_passes_full_runs(name):
    data = make_two_groups(20_000, random_state=0)
    settings = {"sensitive_features": data.sensitive_features, "random_state": 0}
    classifier = strong(name, epsilon=4.0, batch_size=1000, max_steps=400)
    audit = audit_fit(classifier, data.data, data.target, 2000, **settings)
    assert audit.passed, str(audit)


def test_audit_fit_takes_pictures_with_wrong_labels():
    images = np.random.default_rng(0).random((200, 1, 8, 8)).astype(np.float32)
    clf = strong(module="auto", epsilon=50.0, lr=0.1, max_steps=5, batch_size=50)
    audit = audit_fit(clf, images, np.arange(200) % 3, 20, kind="mislabelled", random_state=0)
    assert audit.passed
