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


def test_names_and_groups_of_a_table_are_those_of_pandas(made, frame):
    X, y = frame[0].drop(columns="ward"), frame[1]
    for columns, groups in ((NAMES, None), ([*X], "group")):
        model, same = (quick(group_col=groups).fit(t, y) for t in (made(X[columns]), X[columns]))
        assert list(model.feature_names_in_) == columns
        expected = same.predict_proba(X[columns])
        for predicted in (X[columns], X[NAMES]):
            np.testing.assert_array_equal(model.predict_proba(made(predicted)), expected)
    assert list(model.levels_) == ["a", "b"]
    for wrong in (X[NAMES[::-1]], X.rename(columns={"x0": "z"})):
        with pytest.raises(ValueError, match="feature names should match"):
            model.score(made(wrong), y)


def test_labels_and_groups_beside_the_table(made, frame):
    X, y = frame
    labels = np.where(y > 0, "yes", "no")
    beside = made(X[["group", "ward"]].assign(y=labels))
    model = quick().fit(made(X[NAMES]), beside["y"], sensitive_features=beside["group"])
    same = quick().fit(X[NAMES], labels, sensitive_features=X["group"])
    assert model.score(made(X[NAMES]), beside["y"]) == same.score(X[NAMES], labels)
    assert list(model.levels_) == ["a", "b"]
    both = quick().fit(made(X[NAMES]), y, sensitive_features=beside.select(["group", "ward"]))
    assert list(both.levels_) == [(g, w) for g in "ab" for w in (1, 2)]


def test_public_preprocessor_and_scorers_in_cross_validation(made, frame):
    X, y = frame
    prepare = public_preprocessor(
        dict.fromkeys(NAMES, (-1, 1)), {"ward": ["1", "2"]}, passthrough=["group"]
    )
    expected = prepare.fit_transform(X)
    pd.testing.assert_frame_equal(clone(prepare).fit_transform(made(X)), expected)
    assert (expected["ward_1"] + expected["ward_2"] == 1).all()
    model = make_pipeline(prepare, quick(group_col="group"))
    for make in (lambda *_: GroupScorer(), partial(comparison_scorer, "dg_gap")):
        one, other = (
            cross_validate(
                model, table, y, cv=KFold(2), scoring=make(table, y), error_score="raise"
            )
            for table in (X, made(X))
        )
        assert {k: [*one[k]] for k in one if k.startswith("test_")} == {
            k: [*other[k]] for k in other if k.startswith("test_")
        }


def test_scaler_schema_and_outside_public(made, frame):
    X, y = frame
    scaler = BoundedScaler(dict.fromkeys(NAMES, (-1, 1))).fit(made(X[NAMES]))
    np.testing.assert_array_equal(scaler.transform(made(X[NAMES])), scaler.transform(X[NAMES]))
    groups, wards = {"group": ["a", "b"]}, {"ward": ["1", "2"]}
    schema = TableSchema(target="y", classes=["0", "1"], groups=groups, categories=wards)
    parts = (schema.split(table) for table in (made(X.assign(y=y)), X.assign(y=y)))
    for one, other in zip(*parts, strict=True):
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


@pytest.mark.parametrize(("value", "match"), [(np.nan, "NaN .*x2"), ("text", r"text .*\['x2'\]")])
def test_columns_without_numbers_are_refused_by_name(value, match, made, frame):
    X, y = frame[0][NAMES].head(100), frame[1][:100]
    with pytest.raises(ValueError, match=match):
        quick().fit(made(X.assign(x2=value)), y)


def test_polars_converts_without_pyarrow_but_not_lazily(monkeypatch, frame):
    X, y = frame[0][NAMES], frame[1]
    expected = quick().fit(X, y).predict_proba(X)

    def missing(self):
        raise ModuleNotFoundError("pyarrow")

    monkeypatch.setattr(type(of_polars(X)), "to_pandas", missing)
    model = quick().fit(of_polars(X), y)
    np.testing.assert_array_equal(model.predict_proba(of_polars(X)), expected)
    assert list(model.feature_names_in_) == NAMES
    with pytest.raises(ValueError, match=r"collect\(\)"):
        model.fit(of_polars(X).lazy(), y)
