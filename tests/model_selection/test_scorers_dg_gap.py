"""The scorer of the DG gap identifies the rows that a model was fitted to, or refuses."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpfair.metrics import dg_gap
from skdpfair.model_selection import comparison_scorer
from skdpfair.preprocessing import public_preprocessor

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")


@pytest.fixture(scope="module")
def counts():
    """Rows of small numbers, most of which occur several times, in two groupings."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 4, size=(600, 3)), columns=["x0", "x1", "x2"]).astype(float)
    X = X.assign(group=rng.choice(["a", "b"], 600), race=rng.choice(["u", "v", "w"], 600))
    return X, (X["x0"] + rng.normal(scale=2, size=600) > 1.5).astype(int)


@pytest.fixture
def pipeline(classifier):
    prepare = public_preprocessor({f"x{j}": (0, 3) for j in range(3)}, passthrough=["group"])
    return make_pipeline(prepare, classifier(epsilon=None, noise_multiplier=1.0, group_col="group"))


def gap_by_hand(model, X, y, train, test, column):
    """Return overall gap and gap by group of a model that is fitted here."""
    model = clone(model).fit(X.iloc[train], y.iloc[train])
    right = model.predict(X) == y
    seen, unseen = (right.iloc[r].groupby(X[column].iloc[r]).mean() for r in (train, test))
    gaps = (seen - unseen).rename(lambda group: f"[{group}]")
    gaps["_worst_group"] = seen.min() - unseen.min()
    gaps["overall"] = right.iloc[train].mean() - right.iloc[test].mean()
    return gaps


@pytest.mark.parametrize(
    ("cv", "n_jobs", "column"),
    [
        pytest.param(KFold(3), 2, "group", marks=pytest.mark.slow),
        (StratifiedKFold(3, shuffle=True, random_state=0), 1, "group"),
        (StratifiedKFold(3, shuffle=True, random_state=0), 1, "race"),
        (TimeSeriesSplit(3), 1, "group"),
        (ShuffleSplit(2, train_size=0.5, test_size=0.2, random_state=0), 1, "group"),
    ],
)
def test_dg_gap_of_each_fold_is_that_of_its_own_parts(counts, pipeline, cv, n_jobs, column):
    X, y = counts
    if not isinstance(cv, KFold | StratifiedKFold):  # rows that are left out equal no others
        X = X.assign(x0=X["x0"] / 2 + np.linspace(0.1, 0.9, 600))
    levels = {"group": None, "race": ["u", "v", "w"]}[column]
    scorer = comparison_scorer("dg_gap", X, y, group_col=column, levels=levels)
    grid = {"dpfairclassifier__max_steps": [2, 12]}
    search = GridSearchCV(pipeline, grid, scoring=scorer, refit="neg_dg_gap", cv=cv, n_jobs=n_jobs)
    found = search.set_params(error_score="raise").fit(X, y).cv_results_
    for row, params in enumerate(found["params"]):
        model = clone(pipeline).set_params(**params)
        for fold, parts in enumerate(cv.split(X, y)):
            expected = gap_by_hand(model, X, y, *parts, column)
            for name, gap in expected.items():
                key = "neg_dg_gap" if name == "overall" else f"neg_dg_gap{name}"
                # the nearest to 0 is the largest score
                assert found[f"split{fold}_test_{key}"][row] == pytest.approx(-abs(gap))
    if isinstance(cv, StratifiedKFold):
        assert scorer(search, X, y)["neg_dg_gap"] == 0  # the refitted model has read all rows


def test_dg_gap_of_routed_groups_and_a_scaler_that_each_fold_learns(routed, two_groups, classifier):
    X, y, group = two_groups.data, two_groups.target, two_groups.sensitive_features
    model = make_pipeline(StandardScaler(), classifier("global", epsilon=8.0))
    found = cross_validate(
        model,
        X,
        y,
        scoring=comparison_scorer("dg_gap", X, y, sensitive_features=group),
        cv=KFold(2),
        params={"sensitive_features": group},
        return_train_score=True,
        error_score="raise",
    )
    for fold, (train, _) in enumerate(KFold(2).split(X)):
        fitted = clone(model).fit(X.iloc[train], y[train], sensitive_features=group[train])
        is_train = np.isin(np.arange(len(y)), train)
        gap = dg_gap(y, fitted.predict(X), is_train=is_train)
        assert found["test_neg_dg_gap"][fold] == pytest.approx(-abs(gap))
    assert (found["train_neg_dg_gap"] == 0).all()


def test_dg_gap_of_one_model_and_new_rows(frame, classifier):
    X, y = frame
    seen, new = X.drop(columns="group")[:400], X.drop(columns="group")[400:]
    model = classifier().fit(seen, y[:400])
    rows = {"sensitive_features": X["group"][:400], "levels": ["a", "b"]}
    scores = comparison_scorer("dg_gap", seen, y[:400], **rows)(
        model, new, y[400:], X["group"][400:]
    )
    right = model.predict(X.drop(columns="group")) == y
    assert scores["neg_dg_gap"] == pytest.approx(-abs(right[:400].mean() - right[400:].mean()))
    b = X["group"] == "b"
    gap = right[:400][b[:400]].mean() - right[400:][b[400:]].mean()
    assert scores["neg_dg_gap[b]"] == pytest.approx(-abs(gap))


def test_dg_gap_refuses_training_rows_of_no_fit(frame, classifier):
    X, y = frame
    model = classifier(group_col="group").fit(X[:300], y[:300])
    others = [(X[300:], y[300:]), (X[:299], y[:299]), (X[:300], 1 - y[:300])]
    for table in others:
        with pytest.raises(ValueError, match="X_train and y_train"):
            comparison_scorer("dg_gap", *table)(model, X[300:400], y[300:400])
    doubled = pd.concat([X, X[:300]]), np.concatenate([y, y[:300]])
    with pytest.raises(ValueError, match="no further row"):
        comparison_scorer("dg_gap", *doubled)(model, X[300:400], y[300:400])
    assert "0.1" not in repr(comparison_scorer("dg_gap", X, y))  # numbers of people


def test_dg_gap_refuses_models_without_marks_of_rows(frame, classifier):
    X, y = frame
    model = classifier(group_col="group").fit(X, y)
    again = classifier(group_col="group", warm_start=True).fit(X, y).fit(X, y)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.release(), again]
    other = DummyClassifier().fit(X, y)
    for unknown in (*copies, other):
        with pytest.raises(ValueError, match=r"dg_gap.*from_search"):
            comparison_scorer("dg_gap", X, y, group_col="group", levels=["a", "b"])(unknown, X, y)


@pytest.mark.parametrize(
    ("measure", "given"),
    [
        ("privacy_cost", {"X_train": [[0.0]]}),
        ("excessive_risk", {"y_train": [0]}),
        ("excessive_risk", {"sensitive_features": ["a"]}),
        ("dg_gap", {"X_train": [[0.0]]}),
        ("dg_gap", {"y_train": [0], "sensitive_features": ["a"]}),
    ],
    ids=str,
)
def test_comparison_scorer_refuses_rows_that_its_measure_does_not_read(measure, given):
    with pytest.raises(ValueError, match=f"X_train and y_train.*measure='{measure}'"):
        comparison_scorer(measure, **given)
