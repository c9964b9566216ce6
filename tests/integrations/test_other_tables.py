"""Tables of polars and pyarrow do what those of pandas do."""

from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_validate
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier
from skdpfair.model_selection import GroupScorer, comparison_scorer
from skdpfair.preprocessing import BoundedScaler, TableSchema, outside_public, public_preprocessor

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)
NAMES = [f"x{j}" for j in range(6)]


def of_pyarrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


def of_polars(frame):
    return pytest.importorskip("polars").from_pandas(frame)


@pytest.fixture(params=[of_polars, of_pyarrow], ids=["polars", "pyarrow"])
def made(request):
    return request.param


@pytest.fixture(scope="module")
def frame(two_groups):
    ward = np.where(two_groups.data["x0"] > 0, 1.0, 2.0)
    frame = two_groups.data.assign(group=two_groups.sensitive_features, ward=ward)
    return frame, two_groups.target


def quick(**params):
    given = {"max_steps": 12, "module": "logistic", "epsilon": 8.0, "random_state": 0}
    return DPFairClassifier("dpsgd", **(given | params))


def test_names_are_kept_and_columns_in_another_order_are_refused(made, frame):
    X, y = frame[0][NAMES], frame[1]
    model, same = quick().fit(made(X), y), quick().fit(X, y)
    assert list(model.feature_names_in_) == NAMES
    np.testing.assert_array_equal(model.predict_proba(made(X)), same.predict_proba(X))
    for wrong in (X[NAMES[::-1]], X.rename(columns={"x0": "z"})):
        with pytest.raises(ValueError, match="feature names should match"):
            model.score(made(wrong), y)


def test_the_group_column(made, frame):
    X, y = frame[0].drop(columns="ward"), frame[1]
    model = quick(group_col="group").fit(made(X), y)
    assert list(model.levels_) == ["a", "b"] and list(model.feature_names_in_) == list(X)
    expected = quick(group_col="group").fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(model.predict_proba(made(X)), expected)
    np.testing.assert_array_equal(model.predict_proba(made(X[NAMES])), expected)


def test_labels_and_groups_beside_the_table(made, frame):
    X, y = frame
    beside = made(X[["group", "ward"]].assign(y=np.where(y > 0, "yes", "no")))
    model = quick().fit(made(X[NAMES]), beside["y"], sensitive_features=beside["group"])
    same = quick().fit(X[NAMES], np.where(y > 0, "yes", "no"), sensitive_features=X["group"])
    assert model.score(made(X[NAMES]), beside["y"]) == same.score(X[NAMES], np.asarray(beside["y"]))
    assert list(model.levels_) == ["a", "b"]
    both = beside.select(["group", "ward"])
    both = quick().fit(made(X[NAMES]), y, sensitive_features=both)
    assert list(both.levels_) == [(g, w) for g in "ab" for w in (1, 2)]


def test_public_preprocessing_in_a_search(made, frame):
    X, y = frame
    prepare = public_preprocessor(
        dict.fromkeys(NAMES, (-1, 1)), {"ward": ["1", "2"]}, passthrough=["group"]
    )
    expected = prepare.fit_transform(X)
    pd.testing.assert_frame_equal(clone(prepare).fit_transform(made(X)), expected)
    assert (expected["ward_1"] + expected["ward_2"] == 1).all()
    model = make_pipeline(prepare, quick(group_col="group"))
    for make in (lambda *_: GroupScorer(), partial(comparison_scorer, "dg_gap")):
        scores = []
        for table in (X, made(X)):
            scorer = make(table, y)
            found = cross_validate(
                model, table, y, cv=KFold(2), scoring=scorer, error_score="raise"
            )
            scores.append({key: found[key].tolist() for key in found if key.startswith("test_")})
        assert scores[0] == scores[1]


def test_a_scaler_a_schema_and_the_count_of_what_is_outside(made, frame):
    X, y = frame
    scaler = BoundedScaler(dict.fromkeys(NAMES, (-1, 1)))
    np.testing.assert_array_equal(
        scaler.fit(made(X[NAMES])).transform(made(X[NAMES])), scaler.fit_transform(X[NAMES])
    )
    schema = TableSchema(
        target="y",
        classes=["0", "1"],
        groups={"group": ["a", "b"]},
        categories={"ward": ["1", "2"]},
    )
    for one, other in zip(
        schema.split(made(X.assign(y=y))), schema.split(X.assign(y=y)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    asked = dict.fromkeys(NAMES, (-1, 1)), {"ward": ["1"]}
    pd.testing.assert_frame_equal(outside_public(made(X), *asked), outside_public(X, *asked))


def test_categories_of_polars_are_declared_by_an_enum():
    pl = pytest.importorskip("polars")
    columns, wards = {"a": np.zeros(9), "ward": ["south"] * 9}, ["north", "south"]
    steps = public_preprocessor({"a": (-3, 3)}, categories="dtype")
    declared = pl.DataFrame(columns, schema_overrides={"ward": pl.Enum(wards)})
    assert {"ward_north", "ward_south"} < {*steps.fit_transform(declared)}
    read = pl.DataFrame(columns, schema_overrides={"ward": pl.Categorical})
    with pytest.raises(ValueError, match=r"\['ward'\] of polars' Categorical.*pl.Enum"):
        steps.fit_transform(read)


def test_missing_values_are_refused_by_name(made, frame):
    X, y = frame[0][NAMES].head(100).copy(), frame[1][:100]
    X.loc[3, "x2"] = np.nan
    with pytest.raises(ValueError, match=r"NaN or infinite values.*x2"):
        quick().fit(made(X), y)
    with pytest.raises(ValueError, match=r"text or category columns \['x2'\]"):
        quick().fit(made(X.assign(x2="text")), y)


def test_polars_without_pyarrow(monkeypatch, frame):
    X, y = frame[0][NAMES], frame[1]
    expected = quick().fit(X, y).predict_proba(X)

    def missing(self):
        raise ModuleNotFoundError("pyarrow")

    monkeypatch.setattr(type(of_polars(X)), "to_pandas", missing)
    model = quick().fit(of_polars(X), y)
    np.testing.assert_array_equal(model.predict_proba(of_polars(X)), expected)
    assert list(model.feature_names_in_) == NAMES


def test_a_lazy_table_is_refused_with_the_remedy(frame):
    X, y = frame[0][NAMES], frame[1]
    with pytest.raises(ValueError, match=r"collect\(\)"):
        quick().fit(of_polars(X).lazy(), y)
