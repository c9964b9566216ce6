from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpfair import DPFairClassifier
from skdpfair.datasets import load_adult, public_facts
from skdpfair.metrics._arguments import accuracy
from skdpfair.preprocessing import (
    BoundedScaler,
    DPQuantileScaler,
    TableSchema,
    outside_public,
    public_preprocessor,
)


@parametrize_with_checks([BoundedScaler()])
def test_sklearn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def rows():
    return pd.DataFrame({"age": [17, 90, 130], "hours": [1.0, np.nan, 50.0]})


@pytest.mark.parametrize(
    "bounds",
    [{"hours": (1, 99), "age": (17, 90)}, [(17, 90), (1, 99)], np.array([(17, 90), (1, 99)])],
)
def test_values_by_hand(bounds, rows):
    scaled = BoundedScaler(bounds).fit_transform(rows)
    np.testing.assert_allclose(scaled, [[-1, -1], [1, np.nan], [1, 0]])


def test_one_pair_serves_all_columns(rows):
    scaled = BoundedScaler((0, 100)).fit_transform(rows[["age"]])
    np.testing.assert_allclose(scaled.ravel(), [-0.66, 0.8, 1.0])


def test_float32_stays_and_stays_within_the_range():
    values = np.linspace(-10, 10, 101, dtype=np.float32)[:, None]
    scaled = BoundedScaler((-0.1, 0.7)).fit_transform(values)
    assert scaled.dtype == np.float32
    assert scaled.min() == -1
    assert scaled.max() == 1


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((1, 1), r"low < high .*got \(1, 1\) for column 'age'"),
        ((0, np.inf), "finite"),
        (("a", "b"), "finite numbers"),
        ({"age": (17, 90), "hours": (99, 1)}, r"got \(99, 1\) for column 'hours'"),
        ({"age": (17, 90)}, r"none for \['hours'\]"),
        ({"age": (17, 90), "hours": (1, 99), "sex": (0, 1)}, r"some for \['sex'\]"),
        ([(0, 1)], "each of the 2 columns"),
        (None, "each of the 2 columns"),
    ],
)
def test_wrong_bounds_are_named(bounds, message, rows):
    with pytest.raises(ValueError, match=message):
        BoundedScaler(bounds).fit(rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("low, width", [(-8e307, 1.7e308), (1.7e9, 60.0), (0.0, 1e39)])
def test_bounds_are_those_of_floats_of_64_bits(low, width, dtype):
    """Whose width is finite, and not zero."""
    values = np.clip(low + width * np.array([[0.0], [0.5], [1.0]]), -3e38, 3e38).astype(dtype)
    scaled = BoundedScaler((low, low + width)).fit_transform(values)
    share = (np.clip(values.astype(float), low, low + width) - low) / width
    np.testing.assert_allclose(scaled, 2 * share - 1, rtol=1e-6)
    for bounds in ((-1e308, 1e308), (0, 10**400)):
        with pytest.raises(ValueError, match=r"finite|float"):
            BoundedScaler(bounds).fit(values)


DAYS = pd.date_range("1950-01-01", periods=60, freq="200D")
DATED = {
    "dates": DAYS.to_series(),
    "zone": DAYS.tz_localize("UTC").to_series(),
    "durations": pd.Series(DAYS - DAYS[0]),
    "objects": pd.Series(DAYS.date),
    "periods": pd.Series(DAYS.to_period("D")),
}


@pytest.mark.parametrize("column", DATED.values(), ids=DATED)
def test_dates_and_durations_have_no_unit_for_limits(column):
    table = pd.DataFrame({"at": column.reset_index(drop=True), "n": range(60), "y": "a"})
    facts = {"target": "y", "classes": ["a", "b"], "bounds": {"n": (0, 9)}}
    binned = TableSchema(bins={"at": [1960]}, **facts)
    reads = [
        public_preprocessor({"at": (1940, 2010)}).fit,
        BoundedScaler((1940, 2010)).fit,
        BoundedScaler((1940, 2010)).fit(np.eye(1)).transform,
        DPQuantileScaler(bounds={"at": (0, 9)}).fit,
        lambda rows: outside_public(rows, {"at": (0, 9)}),
        lambda rows: BoundedScaler().fit(rows.to_numpy()),
        lambda rows: binned.split(table),
        lambda rows: accuracy(range(60), range(60), sample_weight=rows["at"]),
        lambda rows: DPFairClassifier().fit(np.eye(60), [0, 1] * 30, sample_weight=rows["at"]),
    ]
    for read in reads:
        with pytest.raises(ValueError, match=r"dates or times.*Make each a number"):
            read(table[["at"]])


def test_unnamed_columns_and_infinity_are_named(rows):
    with pytest.raises(ValueError, match="Pass a DataFrame"):
        BoundedScaler({"age": (17, 90)}).fit(rows.to_numpy())
    with pytest.raises(ValueError, match="infinity"):
        BoundedScaler((0, 1)).fit(rows.replace(50.0, np.inf))


@pytest.fixture(scope="module")
def adult():
    return load_adult(subset="test").data


@pytest.fixture(scope="module")
def encoded(adult):
    make = public_preprocessor(**public_facts("adult"), encoding="linear", passthrough=["sex"])
    return make.fit_transform(adult)


def test_adult_becomes_public_columns(adult, encoded):
    names = [
        f"{c}_{v}" for c, listed in public_facts("adult")["categories"].items() for v in listed
    ]
    assert list(encoded) == [*public_facts("adult")["bounds"], *names, "sex"]
    pd.testing.assert_series_equal(encoded["sex"], adult["sex"])
    assert encoded.drop(columns="sex").abs().max(axis=None) == 1
    assert {str(dtype) for dtype in encoded[names].dtypes} == {"float32"}


def test_a_missing_category_makes_zeros(adult, encoded):
    missing = adult["workclass"].isna()
    ones = encoded.filter(like="workclass_").sum(axis=1)
    assert missing.sum() > 0
    assert (ones == ~missing).all()


def test_fitting_on_other_rows_gives_the_same_transform(adult, encoded):
    other = adult[(adult["sex"] == "Female") & (adult["age"] > 60)].dropna().head(5)
    make = public_preprocessor(**public_facts("adult"), encoding="linear", passthrough=["sex"])
    pd.testing.assert_frame_equal(make.fit(other).transform(adult), encoded)
    # curves depend on the number of rows, and on nothing else in them
    make = public_preprocessor(**public_facts("adult"))
    repeated = adult.iloc[np.zeros(len(adult), dtype=int)]
    here, there = (make.fit(rows).transform(adult) for rows in (adult, repeated))
    pd.testing.assert_frame_equal(here, there)


def test_unlisted_and_dropped_columns():
    rows = pd.DataFrame({"x": [1.0], "c": ["new"], "g": ["F"], "other": [0]})
    out = public_preprocessor({"x": (0, 2)}, {"c": ["old", np.nan]}, passthrough="g").fit_transform(
        rows
    )
    assert out.iloc[0].to_dict() == {"x": 0.0, "c_old": 0.0, "g": "F"}


ONE_TWO = [["1", "2"], [1, 2], [1.0, 2.0], np.array([1, 2]), ["1.0", "2.00"]]
COLUMNS = [["1", "2"], [1, 2], [1.0, 2.0], ["1.0", "2.0"], pd.array([1, 2]), pd.Categorical([1, 2])]


@pytest.mark.parametrize("listed", ONE_TWO, ids=str)
@pytest.mark.parametrize("values", COLUMNS, ids=lambda values: str(list(values)))
def test_a_number_and_its_text_are_one_category(listed, values):
    rows = pd.DataFrame({"c": pd.Series(values)})
    out = public_preprocessor({}, {"c": listed}).fit_transform(rows)
    assert out.to_numpy().tolist() == [[1, 0], [0, 1]]
    assert list(out) == [f"c_{value}" for value in listed]
    assert outside_public(rows, {}, {"c": listed}).loc["c", "outside"] == 0


def test_texts_that_are_codes_are_no_numbers():
    listed = ["1", "01", "1e1", " 2", "1_0", "-0.5"]
    values = ["01", "1.0", "10", "2", 10, "nan", "inf", 1, -0.5, "1_0", None]
    out = public_preprocessor({}, {"c": listed}).fit_transform(pd.DataFrame({"c": values}))
    met = [listed[row.argmax()] if row.any() else None for row in out.to_numpy()]
    assert met == ["01", "1", None, None, None, None, None, "1", "-0.5", "1_0", None]
    spelt_twice = public_preprocessor({}, {"c": ["1", "1.0"]})
    out = spelt_twice.fit_transform(pd.DataFrame({"c": ["1", "1.0", 1]}))
    assert out.to_numpy().tolist() == [[1, 0], [0, 1], [0, 0]]  # which of the two is unknown
    with pytest.raises(ValueError, match=r"categories\['c'\] must list .* each once"):
        public_preprocessor({}, {"c": ["1", 1]})


@pytest.mark.parametrize("values", [[True, False], ["True", "False"], [1, 0], [1.0, 0.0]])
@pytest.mark.parametrize("listed", [[True, False], ["True", "False"], [False, True], [1, 0]])
def test_flags(listed, values):
    rows = pd.DataFrame({"flag": values})
    out = public_preprocessor({}, {"flag": listed}).fit_transform(rows)
    first = 1 if str(listed[0]) in ("True", "1") else 0
    assert out.iloc[:, 0].tolist() == [first, 1 - first] and (out.sum(axis=1) == 1).all()
    assert list(out) == [f"flag_{value}" for value in listed]


def test_a_schema_meets_the_numbers_of_a_table():
    schema = TableSchema(
        target="y", classes=["0", "1"], groups={"sex": ["1", "2", ""]}, categories={"ward": ["1"]}
    )
    rows = pd.DataFrame({"y": [0.0, 1.0], "sex": [2.0, np.nan], "ward": [1, 3]})
    X, y, groups = schema.split(rows)
    assert X["ward_1"].tolist() == [1, 0] and y.tolist() == ["0", "1"]
    assert groups["sex"].tolist() == ["2", ""]
    with pytest.raises(ValueError, match="holds values that classes does not list"):
        schema.split(rows.assign(y=[0, 2]))


PAY = {"age": (18, 98), "pay": (0, 10**6), "rent": (0, 500)}


def paid(**given):
    return TableSchema(**{"target": "y", "classes": ["0", "1"], "bounds": PAY} | given)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"missing": ["age", "pay"]},
        {"log_columns": []},
        {"log_columns": ["rent"], "n_intervals": 3},
        {"n_intervals": 0, "categories": {"ward": ["A", "B"]}},
        {"bins": {"age": [25, 65.5]}, "groups": {"sex": ["F", "M"]}},
    ],
)
def test_a_schema_reads_what_it_writes(given, tmp_path):
    schema = paid(**given)
    assert TableSchema.from_dict(asdict(schema)) == schema
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    assert TableSchema.from_toml(tmp_path / "schema.toml") == schema
    fixed = schema.with_fixed_encoding(1000)
    assert fixed.with_fixed_encoding(5) == fixed
    assert fixed.log_columns == given.get("log_columns", ["pay"])


def test_a_schema_with_fixed_encoding_makes_the_same_features_from_every_table():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({c: rng.uniform(*pair, 900) for c, pair in PAY.items()})
    rows.loc[0, "pay"] = rows.loc[1, "rent"] = np.nan
    rows["y"] = np.arange(900) % 2
    schema = paid(missing=["pay"]).with_fixed_encoding(len(rows), epsilon=0.5)
    X, _, _ = schema.split(rows)
    assert list(X) == schema.feature_names
    expected = public_preprocessor(PAY, epsilon=0.5, missing=["pay"]).fit_transform(rows)
    pd.testing.assert_frame_equal(X, expected)
    few, _, _ = schema.split(rows[:3])
    pd.testing.assert_frame_equal(few, X[:3])
    assert X["pay_missing"].tolist() == [1] + [0] * 899
    assert not X.isna().any(axis=None)


@pytest.mark.parametrize("lacking", ["pay", "paid", "sex", "ward"])
def test_a_schema_names_the_columns_that_a_table_lacks(lacking):
    schema = TableSchema(
        target="paid",
        classes=["no", "yes"],
        groups={"sex": ["F", "M"]},
        bounds={"pay": (0, 9)},
        categories={"ward": ["A"]},
    )
    table = pd.DataFrame({"pay": [1.0], "sex": ["F"], "ward": ["A"], "paid": ["no"]})
    schema.split(table)
    for other in (table.drop(columns=lacking), pd.concat([table, table[[lacking]]], axis=1)):
        with pytest.raises(ValueError, match=rf"got \['{lacking}'\], which table lacks"):
            schema.split(other)
    with pytest.raises(TypeError, match="table must be a DataFrame"):
        schema.split(table.to_numpy())


def test_numbers_are_grouped_by_public_edges(tmp_path):
    schema = paid(bins={"age": [25, 65.5], "rank": [3]}, missing=["age"], n_intervals=0)
    ages, ranks = [24.9, 25, 65.5, None], [1, 3, 2.5, 4]
    rows = pd.DataFrame({"age": ages, "pay": 1, "rent": 1, "rank": ranks, "y": 0})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    read = schema.read_csv(tmp_path / "rows.csv")
    for groups in (
        schema.split(read)[2],
        schema.encode_parquet(tmp_path / "rows.parquet", tmp_path / "x.npy").sensitive_features,
    ):
        assert groups["age"].tolist() == ["< 25", "[25, 65.5)", ">= 65.5", ""]
        assert groups["rank"].tolist() == ["< 3", ">= 3", "< 3", ">= 3"]
    assert len(schema.group_levels) == 8 and ("", ">= 3") in schema.group_levels
    assert not [name for name in schema.feature_names if name.startswith("rank")]
    with pytest.raises(ValueError, match="'rank' has values that are missing or no numbers"):
        schema.split(read.assign(rank=["secret", 1, 2, 3]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"missing": ["wage"]}, r"missing names \['wage'\], which bounds does not"),
        ({"missing": "auto"}, "missing must be a list of texts"),
        ({"log_columns": ["ward"]}, r"log_columns names \['ward'\], which bounds does not"),
        ({"log_columns": True}, "log_columns must be a list"),
        ({"n_intervals": 10**9}, "n_intervals must be an integer <= 1000"),
        ({"bins": {"age": [3, 3]}}, r"bins\['age'\] must list numbers in increasing order"),
        ({"bins": {"age": ["a"]}}, r"bins\['age'\] must be a number"),
        (
            {"bins": {"sex": [3]}, "groups": {"sex": ["F", "M"]}},
            "bins and groups both name",
        ),
        ({"groups": {"age": ["1", "2"]}}, "numbers define groups by bins"),
    ],
)
def test_parts_of_a_schema_that_cannot_be_used_are_named(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        paid(**wrong)
    with pytest.raises(ValueError, match=r"with_fixed_encoding\(n_samples, epsilon\)"):
        paid().feature_names  # noqa: B018


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"categories": {"a": ["x"]}}, "categories and bounds both name"),
        ({"passthrough": ["a"]}, "passthrough and bounds both name"),
        ({"categories": {"c": []}}, r"categories\['c'\] must list"),
        ({"categories": {"c": "abc"}}, r"categories\['c'\] must list"),
        ({"missing": "zero"}, "missing must be one of"),
        ({"bounds": {"a": (1, 0)}}, "bounds must be"),
        ({"bounds": None}, "bounds must be a dict"),
    ],
)
def test_wrong_arguments_of_a_preprocessor_are_named_when_it_is_made(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        public_preprocessor(**{"bounds": {"a": (0, 1)}} | wrong)
